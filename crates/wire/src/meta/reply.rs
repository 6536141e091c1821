//! What the service answers.

use super::{
    AVERAGES_MAX, Attr, DUMP_ROWS_MAX, DumpBegun, DumpedRow, FileType, HandleId, HeldLock, LINEAGE_MAX,
    LIST_LIMIT_MAX, LayoutSpec, MOVES_MAX, MoveState, Moving, Opened, RULED_MAX, ReclaimLock, RuledDirectory,
    TargetRecord, TargetVerdict,
};
use crate::bounded;
use crate::capability::Capability;
use crate::error::WireError;
use crate::keys::Revoked;
use crate::session::WalkProof;
use serde::{Deserialize, Serialize};
use weft_core::ibridge::Report;
use weft_core::{ByteLen, ClusterId, FileId, Integrity, Layout, RecordedLens};

/// One name in a directory.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Entry {
    /// The name.
    #[serde(with = "serde_bytes")]
    pub name: Vec<u8>,
    /// Its inode.
    pub file: FileId,
    /// What it is.
    pub kind: FileType,
    /// Its attributes, when asked for and where the caller may search the directory.
    pub attr: Option<Attr>,
}

/// Something that a caching mount must do.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Event {
    /// Grows by one each.
    pub number: u64,
    /// Drop the pages of this file.
    pub file: FileId,
    /// First byte.
    pub start: u64,
    /// One past the last.
    pub end: u64,
}

/// One inode in a scan.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ScannedInode {
    /// Which, by the name of its datafiles ([`FileId::generation`]). Pages are in the order of inodes, then generations.
    pub file: FileId,
    /// For the inode: an administrator may look at it by number.
    pub proof: WalkProof,
    /// What.
    pub kind: FileType,
    /// Length as far as the inode knows.
    pub size: ByteLen,
    /// Whether the inode knows the length for sure.
    pub settled: bool,
    /// Where its datafiles are.
    pub layout: Option<Layout>,
    /// Unlinked but still open, or waiting for removal, or being copied to.
    pub doomed: bool,
    /// A path that leads to it, as far as known.
    #[serde(with = "serde_bytes")]
    pub path: Vec<u8>,
    /// Recorded lengths of the datafiles.
    pub recorded: RecordedLens,
    /// Changes whenever a writer opens the file or it is cut, as in [`Unsettled`](super::Unsettled).
    pub epoch: u64,
    /// The file's own setting of checksums at rest; `None` leaves it to the targets.
    pub integrity: Option<Integrity>,
}

/// What a check found, each a sentence with path or inode.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct NamespaceReport {
    /// Inodes looked at.
    pub inodes: u64,
    /// Entries looked at.
    pub entries: u64,
    /// What was wrong.
    pub problems: Vec<String>,
    /// How many of them were mended.
    pub mended: u64,
}

/// What the metadata service answers.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum MetaReply {
    /// Attributes.
    Attr(Attr),
    /// An open file.
    Opened(Box<Opened>),
    /// The lengths of these datafiles may now be set. Until the client has said so by `Settle` with this epoch and
    /// capability (or its session ends), nobody's finding of the size is believed.
    Truncate {
        /// Which file.
        file: FileId,
        /// Where they are.
        layout: Layout,
        /// The right to do it.
        cap: Capability,
        /// For the `Settle` afterwards.
        epoch: u64,
        /// Recorded lengths of the datafiles, lowered to the new length: one that is shorter has lost bytes.
        recorded: RecordedLens,
    },
    /// A fresh capability.
    Capability(Capability),
    /// Nothing more to say.
    Done,
    /// The target of a symbolic link.
    Target(#[serde(with = "serde_bytes")] Vec<u8>),
    /// Names; `more` tells whether another page follows.
    Entries {
        /// In order, at most [`LIST_LIMIT_MAX`].
        #[serde(deserialize_with = "bounded::vec::<_, _, { LIST_LIMIT_MAX as usize }>")]
        entries: Vec<Entry>,
        /// Whether there are others after these.
        more: bool,
    },
    /// An extended attribute's value.
    Value(#[serde(with = "serde_bytes")] Vec<u8>),
    /// Names of extended attributes.
    Names(Vec<String>),
    /// A layout, with the spec that a directory has as default.
    Layout {
        /// Of a file.
        layout: Option<Layout>,
        /// Of a directory.
        default: Option<LayoutSpec>,
    },
    /// The lock is held.
    Locked,
    /// Ask again with this ticket.
    LockWait(u64),
    /// Who is in the way.
    Holder(Option<HeldLock>),
    /// What could not be reclaimed.
    Reclaimed {
        /// Files that are gone.
        lost_opens: Vec<HandleId>,
        /// Locks that somebody else got meanwhile.
        lost_locks: Vec<ReclaimLock>,
        /// Files of which a kernel keeps pages and that others began to write meanwhile: nobody tells of their writes.
        uncached: Vec<HandleId>,
    },
    /// Counts and room.
    StatFs {
        /// Inodes in use.
        inodes: u64,
        /// Room of the metadata device.
        total: ByteLen,
        /// Free on it.
        free: ByteLen,
    },
    /// What a mount must do now; empty after 30 s.
    Events(Vec<Event>),
    /// A page of inodes, at most [`LIST_LIMIT_MAX`]; empty when there are no more.
    Inodes(
        #[serde(deserialize_with = "bounded::vec::<_, _, { LIST_LIMIT_MAX as usize }>")] Vec<ScannedInode>,
    ),
    /// What a check found.
    Checked(NamespaceReport),
    /// The walk met a symbolic link that leads out of the namespace (absolute, or above the root): the client
    /// goes on from `target` with `rest` behind it.
    Elsewhere {
        /// The directory in which the link lies, as a path from the root.
        #[serde(with = "serde_bytes")]
        from: Vec<u8>,
        /// What the link says.
        #[serde(with = "serde_bytes")]
        target: Vec<u8>,
        /// What is still to be walked after it.
        #[serde(with = "serde_bytes")]
        rest: Vec<u8>,
    },
    /// What is known of the average service times of all disks, at most [`AVERAGES_MAX`].
    Averages(#[serde(deserialize_with = "bounded::vec::<_, _, AVERAGES_MAX>")] Vec<Report>),
    /// It could not be done.
    Failed(WireError),
    /// The append lock is held, and somebody who had it before may be writing still: data servers are to refuse
    /// capabilities of the file that end before `fence_s` (`DataRequest::Fence`) before its length is asked for.
    LockedFenced {
        /// A capability that ends later.
        cap: Capability,
        /// In seconds since 1970.
        fence_s: u64,
    },
    /// Directories with rules, the nearest first.
    Rules(#[serde(deserialize_with = "bounded::vec::<_, _, RULED_MAX>")] Vec<RuledDirectory>),
    /// To `Renew`, of a file that has been given another layout at some time: its datafiles may not be those that were told
    /// at the open.
    Relocated {
        /// For the datafiles as they are.
        cap: Capability,
        /// Where they are.
        layout: Layout,
    },
    /// A move under way.
    Moving(Box<Moving>),
    /// Moves, by the numbers of their files, at most [`MOVES_MAX`].
    Moves {
        /// These.
        #[serde(deserialize_with = "bounded::vec::<_, _, MOVES_MAX>")]
        moves: Vec<MoveState>,
        /// Whether there may be more behind this file.
        more: Option<FileId>,
    },
    /// A dump has begun.
    DumpBegun(Box<DumpBegun>),
    /// Rows of a dump in the order of tables and keys, at most [`DUMP_ROWS_MAX`]; none at the end.
    Dumped(#[serde(deserialize_with = "bounded::vec::<_, _, DUMP_ROWS_MAX>")] Vec<DumpedRow>),
    /// Recorded lengths of the datafiles of an open file.
    Recorded {
        /// The name of the datafiles.
        data: FileId,
        /// Changes whenever a writer opens the file or it is cut: between two replies with the same epoch nobody began to
        /// cut it.
        epoch: u64,
        /// In the order of the file's layout.
        lens: RecordedLens,
    },
    /// To `JudgeTarget`.
    TargetVerdict(TargetVerdict),
    /// To `Targets` and `ChangeTarget`: the cluster and its targets by rising numbers.
    Targets {
        /// Identity of the cluster.
        cluster: ClusterId,
        /// All targets on record, at most [`AVERAGES_MAX`].
        #[serde(deserialize_with = "bounded::vec::<_, _, AVERAGES_MAX>")]
        targets: Vec<TargetRecord>,
    },
    /// To `Lineage`: for each file whether this database gave its id out.
    Lineage(#[serde(deserialize_with = "bounded::vec::<_, _, LINEAGE_MAX>")] Vec<bool>),
    /// To `RevokedKeys`.
    Revoked(Revoked),
}
