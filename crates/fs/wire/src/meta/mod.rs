//! Messages of the metadata service: namespace, attributes, opens, locks.
//!
//! A request names a file by a base inode and a relative path that the server walks, so that each operation needs one
//! exchange. The base is the root, or an inode that the session has reached and proves with a [`WalkProof`]. Each
//! request that changes metadata carries the slot of its connection (from the greeting) and a sequence number. The
//! server stores the last reply of each slot in the transaction of the change. A request repeated after a lost
//! connection or a restart therefore gets the original reply and is not executed twice.

mod attributes;
mod dump;
mod locks;
mod moves;
mod opens;
mod paths;
mod quotas;
mod replicas;
mod reply;
mod request;
mod rules;
mod targets;
mod waits;

pub use attributes::{Attr, CollectedSize, FileType, InvalidSize, NO_EPOCH, SetAttr, SetTime, Writer};
pub use dump::{DUMP_ROWS_MAX, DUMPS_MAX, DumpBegun, DumpedRow};
pub use locks::{HeldLock, LockKind, LockOwner, LockRange, LockSpace, ReclaimLock};
pub use moves::{MOVES_MAX, MoveState, MoverState, Moving};
pub use opens::{LayoutSpec, OpenFlags, Opened, ReclaimOpen, Redirected, WriteSummary, WrittenLens};
pub use paths::{KnownPath, PATHS_MAX};
pub use quotas::{QUOTAS_MAX, Quota, QuotaSubject, TreeStep};
pub use replicas::{DIRTY_LEN_MAX, FenceKind, REPLICAS_MAX, ReplicaInfo, ReplicaSpec};
pub use reply::{ClusterLevels, Entry, Event, Growing, MetaReply, NamespaceReport, Outdated, ScannedInode};
pub use request::MetaRequest;
pub use rules::{RULED_MAX, RULES_MAX, Rule, RuleRemoval, RuledDirectory, SpaceReservation};
pub use targets::{LINEAGE_MAX, TargetChange, TargetClaim, TargetRecord, TargetRefusal, TargetVerdict};
pub use waits::{
    BYTE_LEASE, EVENT_WAIT, FREED_WITHIN, GROWTH_WAIT, LOCK_WAIT, NAME_LEASE, PAGES_DROPPED_AFTER, PAGES_WAIT,
};

use crate::hello::Identity;
use crate::session::WalkProof;
use serde::{Deserialize, Serialize};
use weft_core::FileId;

/// Maximum number of reports in [`MetaRequest::Averages`] and [`MetaReply::Averages`]: one for each possible target.
pub const AVERAGES_MAX: usize = 1 << 16;

/// Inode of the root directory.
pub const ROOT: FileId = FileId(1);
/// Maximum length of a name in bytes.
pub const NAME_LEN_MAX: usize = 255;
/// Maximum length of a path in bytes.
pub const PATH_LEN_MAX: usize = 4096;
/// Maximum length of an extended attribute's value in bytes.
pub const XATTR_LEN_MAX: usize = 65_536;
/// Maximum number of entries in one page of a listing.
pub const LIST_LIMIT_MAX: u32 = 4096;

/// Request together with its sequence number and caller.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct MetaCall {
    /// Sequence number among the changes of the connection's slot, from 1; 0 for a request that may be repeated.
    pub seq: u64,
    /// User on whose behalf a mount run by root sends the request; ignored unless the peer is root.
    pub on_behalf: Option<Identity>,
    /// Request.
    pub request: MetaRequest,
}

/// File named by a base inode and a relative path.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct InodePath {
    /// Inode at which the walk starts.
    pub base: FileId,
    /// Proof that the session has reached `base`. Not needed for the root inode, nor by the root user and servers; an
    /// invalid proof is rejected.
    pub proof: Option<WalkProof>,
    /// Names separated by `/`; empty for the base itself. Leading slashes are ignored.
    #[serde(with = "serde_bytes")]
    pub path: Vec<u8>,
    /// Whether to follow a symbolic link in the last component.
    pub follow: bool,
}

impl InodePath {
    /// Returns the path `path` from the root.
    pub fn from_root(path: impl Into<Vec<u8>>, follow: bool) -> Self {
        Self { base: ROOT, proof: None, path: path.into(), follow }
    }

    /// Returns an inode that the session has reached.
    pub const fn at_inode(file: FileId, proof: WalkProof) -> Self {
        Self { base: file, proof: Some(proof), path: Vec::new(), follow: false }
    }
}

/// Handle of a session. The client chooses the number, so that a repeated open is the same open.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct HandleId(pub u64);
