//! Messages of the metadata service: namespace, attributes, opens, locks.
//!
//! Requests name files by a [`Place`]: a base inode and a relative path that the server walks, so that any operation
//! is one exchange. The base is the root, or an inode that the session has reached and proves with a [`WalkProof`]. Every mutating request carries its connection's slot (from the greeting) and a sequence number;
//! the server keeps the last reply of each slot in the same transaction as the change, so that a request repeated
//! after a lost connection or a restart gets the first answer and is not done twice.

mod attributes;
mod dump;
mod locks;
mod moves;
mod opens;
mod reply;
mod request;
mod rules;
mod targets;
mod waits;

pub use attributes::{Attr, FileType, NO_EPOCH, SetAttr, SetTime, Settlement, Unsettled};
pub use dump::{DUMP_ROWS_MAX, DUMPS_MAX, DumpBegun, DumpedRow};
pub use locks::{HeldLock, LockKind, LockOwner, LockRange, LockSpace, ReclaimLock};
pub use moves::{MOVES_MAX, MoveState, MoverState, Moving};
pub use opens::{LayoutSpec, OpenFlags, Opened, ReclaimOpen, WriteSummary, WrittenLens};
pub use reply::{Entry, Event, MetaReply, NamespaceReport, ScannedInode};
pub use request::MetaRequest;
pub use rules::{Forget, RULED_MAX, RULES_MAX, Rule, RuledDirectory, TargetRoom};
pub use targets::{LINEAGE_MAX, TargetChange, TargetClaim, TargetRecord, TargetRefusal, TargetVerdict};
pub use waits::{EVENT_WAIT, FREED_WITHIN, LOCK_WAIT, PAGES_DROPPED_AFTER, PAGES_WAIT};

use crate::hello::Identity;
use crate::session::WalkProof;
use serde::{Deserialize, Serialize};
use weft_core::FileId;

/// The most reports in [`MetaRequest::Averages`] and [`MetaReply::Averages`]: one for each target that there can be.
pub const AVERAGES_MAX: usize = 1 << 16;

/// The inode of the root directory.
pub const ROOT: FileId = FileId(1);
/// The longest name, in bytes.
pub const NAME_LEN_MAX: usize = 255;
/// The longest path, in bytes.
pub const PATH_LEN_MAX: usize = 4096;
/// The longest extended attribute value, in bytes.
pub const XATTR_LEN_MAX: usize = 65_536;
/// The most entries in one page of a listing.
pub const LIST_LIMIT_MAX: u32 = 4096;

/// A request with what the service needs to do it once and for the right person.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct MetaCall {
    /// Number of this request among the mutating ones of its connection's slot, from 1; 0 for one that may be
    /// repeated without harm.
    pub seq: u64,
    /// Somebody else for whom a mount by root acts; ignored unless the peer is root.
    pub on_behalf: Option<Identity>,
    /// What to do.
    pub request: MetaRequest,
}

/// A file by a base inode and a relative path.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Place {
    /// Where the walk begins.
    pub base: FileId,
    /// That the session has reached `base` before. The root needs none, nor do the root user and servers; one that is
    /// given and does not hold is refused.
    pub proof: Option<WalkProof>,
    /// Names with `/` between them; empty means the base itself. Leading slashes are ignored.
    #[serde(with = "serde_bytes")]
    pub path: Vec<u8>,
    /// Whether a symbolic link at the end is followed.
    pub follow: bool,
}

impl Place {
    /// A path from the root.
    pub fn from_root(path: impl Into<Vec<u8>>, follow: bool) -> Self {
        Self { base: ROOT, proof: None, path: path.into(), follow }
    }

    /// An inode that the session has reached.
    pub const fn at_inode(file: FileId, proof: WalkProof) -> Self {
        Self { base: file, proof: Some(proof), path: Vec::new(), follow: false }
    }
}

/// A handle of a session, numbered by the client so that a repeated open is the same open.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct HandleId(pub u64);
