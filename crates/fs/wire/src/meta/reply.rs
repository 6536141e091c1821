//! Replies of the metadata service.

use super::{
    AVERAGES_MAX, Attr, DUMP_ROWS_MAX, DumpBegun, DumpedRow, FileType, HandleId, HeldLock, KnownPath,
    LINEAGE_MAX, LIST_LIMIT_MAX, LayoutSpec, MOVES_MAX, MoveState, Moving, Opened, PATHS_MAX, QUOTAS_MAX,
    Quota, REPLICAS_MAX, RULED_MAX, ReclaimLock, ReplicaInfo, RuledDirectory, TargetRecord, TargetVerdict,
};
use crate::bounded;
use crate::capability::Capability;
use crate::cluster::{ClusterMap, Domain, SERVERS_MAX};
use crate::error::WireError;
use crate::keys::Revoked;
use crate::level::{Level, Levels};
use crate::session::WalkProof;
use serde::{Deserialize, Serialize};
use weft_core::ibridge::Report;
use weft_core::{
    ByteLen, ClusterId, Compression, FileId, FileOffset, Integrity, Layout, RecordedLens, ServerId,
};

/// Directory entry.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Entry {
    /// Name.
    #[serde(with = "serde_bytes")]
    pub name: Vec<u8>,
    /// Inode.
    pub file: FileId,
    /// File type.
    pub kind: FileType,
    /// Attributes, if requested and if the caller may search the directory.
    pub attr: Option<Attr>,
    /// Whether the session has leased name and attributes: it gets an event before a change of them is answered.
    pub leased: bool,
}

/// Event that a mount or an I/O delegate must handle: something that it caches of a file is outdated.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Event {
    /// Number of the event; later events have higher ones.
    pub number: u64,
    /// File that has changed.
    pub file: FileId,
    /// What to drop.
    pub outdated: Outdated,
}

/// Cached state of a file that a session must drop.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Outdated {
    /// Pages.
    Pages {
        /// First byte.
        start: u64,
        /// One past the last byte.
        end: u64,
    },
    /// Attributes that the session has leased.
    Attributes,
    /// Attributes, and the name that leads to the file, which it has leased with them.
    Name,
}

/// Inode in a scan.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ScannedInode {
    /// File id, as in the names of its datafiles ([`FileId::generation`]). Pages are ordered by inode, then by
    /// generation.
    pub file: FileId,
    /// Proof with which an administrator may look up the inode by number.
    pub proof: WalkProof,
    /// File type.
    pub kind: FileType,
    /// Cached length.
    pub size: ByteLen,
    /// Whether the cached length is valid.
    pub is_size_valid: bool,
    /// Layout of the datafiles.
    pub layout: Option<Layout>,
    /// Whether the inode is unlinked but open, waits for removal, or is the destination of a move.
    pub doomed: bool,
    /// Path to the inode, if known.
    #[serde(with = "serde_bytes")]
    pub path: Vec<u8>,
    /// Recorded lengths of the datafiles.
    pub recorded: RecordedLens,
    /// Epoch: changes whenever a writer opens the file or the file is cut.
    pub epoch: u64,
    /// Setting of checksums at rest for this file; `None` leaves the decision to the targets.
    pub integrity: Option<Integrity>,
    /// Compression of this file; `None` for a file without.
    pub compression: Option<Compression>,
    /// Whether the bytes of the file are in the metadata. It has no datafiles then, only a layout for those it may get.
    pub is_inline: bool,
}

/// Findings of a namespace check; each problem is a sentence with a path or an inode.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct NamespaceReport {
    /// Number of inodes checked.
    pub inodes: u64,
    /// Number of entries checked.
    pub entries: u64,
    /// Problems found.
    pub problems: Vec<String>,
    /// Number of problems repaired.
    pub mended: u64,
}

/// Reply of the metadata service.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum MetaReply {
    /// Attributes.
    Attr(Attr),
    /// An open file.
    Opened(Box<Opened>),
    /// Permission to set the lengths of all datafiles. Until the client ends the truncation with this epoch and
    /// capability, or its session ends, no measured size is accepted.
    Truncate {
        /// File to cut.
        file: FileId,
        /// Layout of the datafiles.
        layout: Layout,
        /// Capability for the cut.
        cap: Capability,
        /// Epoch with which the client ends the truncation.
        epoch: u64,
        /// Recorded lengths of the datafiles, lowered to the new length. A datafile that is shorter has lost bytes.
        recorded: RecordedLens,
    },
    /// A fresh capability.
    Capability(Capability),
    /// Success without a result.
    Done,
    /// The target of a symbolic link.
    Target(#[serde(with = "serde_bytes")] Vec<u8>),
    /// A page of directory entries.
    Entries {
        /// Entries in order, at most [`LIST_LIMIT_MAX`].
        #[serde(deserialize_with = "bounded::vec::<_, _, { LIST_LIMIT_MAX as usize }>")]
        entries: Vec<Entry>,
        /// Whether another page follows.
        more: bool,
    },
    /// The value of an extended attribute.
    Value(#[serde(with = "serde_bytes")] Vec<u8>),
    /// Names of extended attributes.
    Names(Vec<String>),
    /// A layout.
    Layout {
        /// Layout of a file.
        layout: Option<Layout>,
        /// Default layout of a directory.
        default: Option<LayoutSpec>,
    },
    /// The lock is held.
    Locked,
    /// The lock is not available yet; repeat the request with this ticket.
    LockWait(u64),
    /// The conflicting lock, if any.
    Holder(Option<HeldLock>),
    /// Opens and locks that could not be reclaimed.
    Reclaimed {
        /// Handles whose files are gone.
        lost_opens: Vec<HandleId>,
        /// Locks that another owner has acquired.
        lost_locks: Vec<ReclaimLock>,
        /// Handles whose files got other writers in the meantime, so that the kernel's cached pages are no longer
        /// invalidated.
        uncached: Vec<HandleId>,
    },
    /// Whether no I/O delegate of another job caches pages of the file. If not, the client repeats the request.
    Recalled(bool),
    /// Reply to `Truncate` of a file that must be opened first: I/O delegates of another job cache it and stop when it is
    /// opened, or it is inline and has to grow. The client then repeats the request with the handle.
    OpenFirst,
    /// Number of inodes, and space.
    StatFs {
        /// Inodes in use.
        inodes: u64,
        /// Size of the metadata device.
        total: ByteLen,
        /// Free space on it.
        free: ByteLen,
        /// Accounts with limits in which new files of the caller would count, at most two.
        #[serde(deserialize_with = "bounded::vec::<_, _, 2>")]
        quotas: Vec<Quota>,
    },
    /// Events that a mount or an I/O delegate must handle; empty if none occurred within [`EVENT_WAIT`](super::EVENT_WAIT).
    Events(Vec<Event>),
    /// A page of inodes, at most [`LIST_LIMIT_MAX`]; empty at the end.
    Inodes(
        #[serde(deserialize_with = "bounded::vec::<_, _, { LIST_LIMIT_MAX as usize }>")] Vec<ScannedInode>,
    ),
    /// Findings of a namespace check.
    Checked(NamespaceReport),
    /// The walk met a symbolic link that leads out of the namespace (absolute, or above the root). The client continues
    /// at `target`, followed by `rest`.
    Elsewhere {
        /// Directory that contains the link, as a path from the root.
        #[serde(with = "serde_bytes")]
        from: Vec<u8>,
        /// Contents of the link.
        #[serde(with = "serde_bytes")]
        target: Vec<u8>,
        /// Remaining path after the link.
        #[serde(with = "serde_bytes")]
        rest: Vec<u8>,
    },
    /// Recent average service times of all disks, at most [`AVERAGES_MAX`].
    Averages(#[serde(deserialize_with = "bounded::vec::<_, _, AVERAGES_MAX>")] Vec<Report>),
    /// The request failed.
    Failed(WireError),
    /// The append lock is held, but the previous holder may still be writing. Before the client asks for the file's
    /// length, it must fence the datafiles (`DataRequest::Fence`) against capabilities that expire before `fence_s`.
    LockedFenced {
        /// Capability that expires later.
        cap: Capability,
        /// Earliest expiry that data servers shall accept, in seconds since 1970.
        fence_s: u64,
    },
    /// Directories with rules, nearest first.
    Rules(#[serde(deserialize_with = "bounded::vec::<_, _, RULED_MAX>")] Vec<RuledDirectory>),
    /// Reply to `Renew` for a file that has been moved since the open: its datafiles may have changed.
    Relocated {
        /// Capability for the current datafiles.
        cap: Capability,
        /// Current layout.
        layout: Layout,
    },
    /// A move in progress.
    Moving(Box<Moving>),
    /// Moves in the order of their file ids, at most [`MOVES_MAX`].
    Moves {
        /// Moves.
        #[serde(deserialize_with = "bounded::vec::<_, _, MOVES_MAX>")]
        moves: Vec<MoveState>,
        /// Last file of this page, if another page may follow.
        more: Option<FileId>,
    },
    /// A dump has started.
    DumpBegun(Box<DumpBegun>),
    /// Rows of a dump in the order of tables and keys, at most [`DUMP_ROWS_MAX`]; empty at the end.
    Dumped(#[serde(deserialize_with = "bounded::vec::<_, _, DUMP_ROWS_MAX>")] Vec<DumpedRow>),
    /// Recorded lengths of the datafiles of an open file.
    Recorded {
        /// File id in the names of the datafiles.
        data: FileId,
        /// Epoch: if two replies have the same epoch, no cut started between them.
        epoch: u64,
        /// Lengths, in the order of the layout.
        lens: RecordedLens,
    },
    /// Reply to `JudgeTarget`.
    TargetVerdict(TargetVerdict),
    /// Reply to `Targets` and `ChangeTarget`.
    Targets {
        /// Identity of the cluster.
        cluster: ClusterId,
        /// All targets on record in ascending order, at most [`AVERAGES_MAX`].
        #[serde(deserialize_with = "bounded::vec::<_, _, AVERAGES_MAX>")]
        targets: Vec<TargetRecord>,
    },
    /// Reply to `Lineage`: for each file, whether this copy of the database allocated its id.
    Lineage(#[serde(deserialize_with = "bounded::vec::<_, _, LINEAGE_MAX>")] Vec<bool>),
    /// Reply to `RevokedKeys`.
    Revoked(Revoked),
    /// The open data of a replica.
    ReplicaOpened {
        /// The replica.
        info: Box<ReplicaInfo>,
        /// Its data.
        opened: Box<Opened>,
    },
    /// Replicas in the order of their files, at most [`REPLICAS_MAX`].
    Replicas {
        /// Replicas.
        #[serde(deserialize_with = "bounded::vec::<_, _, REPLICAS_MAX>")]
        replicas: Vec<ReplicaInfo>,
        /// Last file of this page, if another page may follow.
        more: Option<FileId>,
    },
    /// Accounts in ascending order, at most [`QUOTAS_MAX`].
    Quotas {
        /// Accounts.
        #[serde(deserialize_with = "bounded::vec::<_, _, QUOTAS_MAX>")]
        quotas: Vec<Quota>,
        /// Whether another page may follow.
        more: bool,
    },
    /// Progress of counting a tree.
    TreeCounted {
        /// Subdirectories among the counted entries, at most [`QUOTAS_MAX`].
        #[serde(deserialize_with = "bounded::vec::<_, _, QUOTAS_MAX>")]
        directories: Vec<FileId>,
        /// Last name that is counted, if the directory has more.
        #[serde(with = "serde_bytes")]
        after: Option<Vec<u8>>,
        /// Number of entries counted.
        entries: u32,
    },
    /// Reply to `Paths`, in the order of the request.
    Paths(#[serde(deserialize_with = "bounded::vec::<_, _, PATHS_MAX>")] Vec<KnownPath>),
    /// Bytes of an inline file.
    InlineBytes {
        /// Size of the file.
        size: ByteLen,
        /// The bytes that were asked for, up to the end of the file.
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
    },
    /// Reply to `WriteInline`: where the bytes were written.
    InlineWritten {
        /// First byte.
        offset: FileOffset,
    },
    /// Reply to `Grow`.
    Growing(Box<Growing>),
    /// Reply to `LookUp`.
    LookedUp {
        /// Attributes.
        attr: Attr,
        /// Whether the session has leased name and attributes, as for [`Entry`].
        leased: bool,
    },
    /// Reply to `ClusterMap` and `ChangeServer`.
    ClusterMap(Box<ClusterMap>),
    /// Reply to `RegisterServer`.
    Registered {
        /// Number of the server.
        server: ServerId,
        /// Feature level of the cluster.
        level: Level,
    },
    /// Reply to `AttachTarget`.
    Attached {
        /// The target refuses capabilities that end earlier, in seconds since 1970. They were issued before a blank disk
        /// became a target, perhaps in place of a lost one. Their holders may not know of the loss.
        capabilities_from_s: u64,
    },
    /// Reply to `Levels` and `RaiseLevel`.
    Levels(ClusterLevels),
    /// `ClusterMap` with failure domains. Level 2.
    MapWithDomains {
        /// The map without them.
        map: Box<ClusterMap>,
        /// Failure domains by the number of the server.
        #[serde(deserialize_with = "bounded::vec::<_, _, SERVERS_MAX>")]
        domains: Vec<Domain>,
    },
}

impl MetaReply {
    /// The cluster map as a peer of this feature level receives it.
    pub fn of_map(map: &ClusterMap, level: Level) -> Self {
        let mut map = Box::new(map.clone());
        let domains = std::mem::take(&mut map.domains);
        match domains.is_empty() || level < Level::DOMAINS {
            true => Self::ClusterMap(map),
            false => Self::MapWithDomains { map, domains },
        }
    }

    /// Returns the cluster map in this reply.
    pub fn into_map(self) -> Option<ClusterMap> {
        match self {
            Self::ClusterMap(map) => Some(ClusterMap { domains: Vec::new(), ..*map }),
            Self::MapWithDomains { map, domains } => Some(ClusterMap { domains, ..*map }),
            _ => None,
        }
    }
}

/// Feature levels of a cluster and of its servers.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ClusterLevels {
    /// Level of the cluster: no form of a later level is stored.
    pub cluster: Level,
    /// Levels that the metadata server knows.
    pub known: Levels,
    /// The latest level that each registered server knew at its start, by the name of the server.
    #[serde(deserialize_with = "bounded::vec::<_, _, SERVERS_MAX>")]
    pub servers: Vec<(String, Level)>,
}

/// Bytes of an inline file, for the client that copies them to datafiles.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Growing {
    /// Capability to write the datafiles of the copy.
    pub cap: Capability,
    /// Layout of the datafiles.
    pub layout: Layout,
    /// All bytes of the file.
    #[serde(with = "serde_bytes")]
    pub bytes: Vec<u8>,
    /// Whether the copy must survive a loss of power before `Grown`, because the bytes may.
    pub must_sync: bool,
}
