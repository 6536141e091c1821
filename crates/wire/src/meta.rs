//! Messages of the metadata service: namespace, attributes, opens, locks.
//!
//! Requests name files by a [`Place`]: a base inode and a relative path that the server walks, so that any operation
//! is one exchange. Every mutating request carries its connection's slot (from the greeting) and a sequence number;
//! the server keeps the last reply of each slot in the same transaction as the change, so that a request repeated
//! after a lost connection or a restart gets the first answer and is not done twice.

use crate::bounded;
use crate::capability::Capability;
use crate::error::WireError;
use crate::hello::{Identity, SessionId};
use serde::{Deserialize, Serialize};
use weft_core::{ByteLen, FileId, Layout, TargetId, Timestamp};

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
    /// Names with `/` between them; empty means the base itself. Leading slashes are ignored.
    #[serde(with = "serde_bytes")]
    pub path: Vec<u8>,
    /// Whether a symbolic link at the end is followed.
    pub follow: bool,
}

/// A handle of a session, numbered by the client so that a repeated open is the same open.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct HandleId(pub u64);

/// What an inode is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum FileType {
    /// Striped bytes.
    Regular,
    /// Names.
    Directory,
    /// A path.
    Symlink,
    /// A named pipe (only its inode; the kernel does the rest on a mount).
    Fifo,
    /// A socket's name.
    Socket,
    /// A character device's name.
    CharDevice,
    /// A block device's name.
    BlockDevice,
}

/// Attributes of an inode.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Attr {
    /// Which.
    pub file: FileId,
    /// What.
    pub kind: FileType,
    /// Permission bits, set-id and sticky bits (07777).
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Names that it has.
    pub nlink: u32,
    /// Length; for a directory a nominal one; for an unsettled file what was last known.
    pub size: ByteLen,
    /// Room taken, in units of 512 bytes; likewise.
    pub blocks_512: u64,
    /// Last read, as far as kept (set at creation and by request).
    pub atime: Timestamp,
    /// Last change of contents; for an unsettled file see [`Unsettled`].
    pub mtime: Timestamp,
    /// Last change of attributes.
    pub ctime: Timestamp,
    /// Device number of a device node.
    pub rdev: u64,
    /// Present when the datafiles know better than the inode: ask them.
    pub unsettled: Option<Box<Unsettled>>,
}

/// What a client needs to learn the true size and times of a file that is open for writing somewhere, or was when
/// its writer or a server died.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Unsettled {
    /// Where the datafiles are.
    pub layout: Layout,
    /// The right to ask for their lengths.
    pub cap: Capability,
    /// Changes whenever a writer opens or the file is truncated.
    pub epoch: u64,
    /// Whether nobody has the file open for writing, so that what the client finds may be settled.
    pub may_settle: bool,
    /// When somebody last set mtime by hand; a datafile changed after it decides instead of `Attr::mtime`.
    pub mtime_set_at: Timestamp,
}

/// What a client found out about an unsettled file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Settlement {
    /// Length.
    pub size: ByteLen,
    /// Room taken, in units of 512 bytes.
    pub blocks_512: u64,
    /// Newest change among the datafiles, if any exists.
    pub mtime: Option<Timestamp>,
}

/// How to open.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct OpenFlags {
    /// For reading.
    pub read: bool,
    /// For writing.
    pub write: bool,
    /// Make it when missing (O_CREAT).
    pub create: bool,
    /// It must be missing (O_EXCL).
    pub exclusive: bool,
    /// Cut to nothing (O_TRUNC).
    pub truncate: bool,
    /// Must be a directory (O_DIRECTORY).
    pub directory: bool,
}

/// What a user wants of the layout of a new file; what is `None` is decided by the directory's default, then by
/// the cluster's.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct LayoutSpec {
    /// Stripe size.
    pub stripe_size: Option<ByteLen>,
    /// How many targets.
    pub stripe_count: Option<u32>,
    /// First target, by index among those that fit.
    pub first: Option<u32>,
    /// Only targets of this class.
    pub class: Option<String>,
    /// Exactly these targets and stripe sizes (overrides the others).
    pub strips: Option<Vec<(TargetId, ByteLen)>>,
}

/// An open file, as the metadata service hands it out.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Opened {
    /// Attributes at the time.
    pub attr: Attr,
    /// Where the datafiles are; `None` for what has none.
    pub layout: Option<Layout>,
    /// The right to read or write them.
    pub cap: Option<Capability>,
    /// Whether the file was made by this request.
    pub created: bool,
    /// The client must now cut all datafiles to nothing, before anything else.
    pub must_truncate: bool,
    /// A kernel caches pages of this file: after each write the client must send `Invalidate`.
    pub cached_elsewhere: bool,
    /// The answer to `cache`: this client's kernel may cache pages of the file, because no other session writes it;
    /// `WaitEvents` tells when that ends.
    pub may_cache: bool,
    /// Changes whenever anybody opens the file for writing or cuts it, as in [`Unsettled`]: a mount whose kernel kept
    /// pages under the same epoch may go on using them.
    pub epoch: u64,
}

/// What a writer says of its writes when it closes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct WriteSummary {
    /// Whether it wrote anything.
    pub wrote: bool,
    /// One past the last byte that it wrote.
    pub end: ByteLen,
    /// How many bytes it wrote, those written twice counted twice: an upper bound of the room taken.
    pub bytes: ByteLen,
    /// A write or truncation failed midway, so that only the datafiles know what is there.
    pub unsure: bool,
    /// Its time of the last write, on the clock of the writer's node.
    pub mtime: Timestamp,
}

/// Kind of lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum LockKind {
    /// Many may hold it.
    Shared,
    /// One may.
    Exclusive,
}

/// Who holds a lock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum LockOwner {
    /// The whole process (fcntl); a number tells processes behind one mount apart, 0 otherwise.
    Process(u64),
    /// One open file (flock, open-file-description locks).
    Handle(HandleId),
}

/// Locks of different families do not see each other, as on Linux.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum LockSpace {
    /// fcntl (and open-file-description) byte ranges.
    Record,
    /// flock, whole files.
    Flock,
    /// Held by the client around an append.
    Append,
}

/// A byte range to lock, `end` exclusive; `u64::MAX` means to the end however far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LockRange {
    /// First byte.
    pub start: u64,
    /// One past the last.
    pub end: u64,
}

/// A lock that somebody holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HeldLock {
    /// Shared or exclusive.
    pub kind: LockKind,
    /// Which bytes.
    pub range: LockRange,
    /// Process id of the holder on its node, 0 when unknown.
    pub pid: u32,
}

/// New values for attributes; `None` leaves one as it is.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct SetAttr {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Last read.
    pub atime: Option<SetTime>,
    /// Last change.
    pub mtime: Option<SetTime>,
}

/// A time to set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum SetTime {
    /// The server's.
    Now,
    /// This one.
    At(Timestamp),
}

/// An open of a session, told again after a reconnection.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ReclaimOpen {
    /// Its number.
    pub handle: HandleId,
    /// Of this file.
    pub file: FileId,
    /// How it was opened; `create`, `exclusive` and `truncate` are not looked at.
    pub flags: OpenFlags,
    /// The capability that was given with it, which proves that it was.
    pub cap: Option<Capability>,
    /// A kernel keeps pages for it.
    pub caching: bool,
}

/// A lock of a session, told again after a reconnection.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ReclaimLock {
    /// On this file.
    pub file: FileId,
    /// In this space.
    pub space: LockSpace,
    /// For this owner.
    pub owner: LockOwner,
    /// Shared or exclusive.
    pub kind: LockKind,
    /// Which bytes.
    pub range: LockRange,
}

/// What a client asks of the metadata service. Those marked M change something and carry a sequence number.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum MetaRequest {
    /// Attributes. Reply: `Attr`.
    Stat {
        /// Of this.
        at: Place,
    },
    /// Opens, and makes when asked to (M). Reply: `Opened`.
    Open {
        /// This.
        at: Place,
        /// How.
        flags: OpenFlags,
        /// Permission bits of a new file, the umask already taken off.
        mode: u32,
        /// The client's number for it.
        handle: HandleId,
        /// Layout of a new file.
        layout: LayoutSpec,
        /// The client wants to let the kernel cache pages; see `Opened::may_cache`.
        cache: bool,
    },
    /// Opens the same file again for another session, as a forked or executed process does. Reply: `Opened`.
    Adopt {
        /// What the other session had.
        open: ReclaimOpen,
    },
    /// Ends an open. Usually sent one-way. Reply: `Done`.
    Close {
        /// This one.
        handle: HandleId,
        /// What was written through it.
        summary: WriteSummary,
    },
    /// Tells the true size of an unsettled file; ignored unless the epoch still holds and nobody writes. Sent
    /// one-way. Also ends a truncation (see `MetaReply::Truncate`). Reply: `Done`.
    Settle {
        /// Of this file.
        file: FileId,
        /// As given in `Unsettled`.
        epoch: u64,
        /// The capability given there.
        cap: Capability,
        /// What was found.
        found: Settlement,
    },
    /// Prepares a change of length (M): permission, then a new epoch. Reply: `Truncate`; the client then sets the lengths
    /// of all datafiles.
    Truncate {
        /// Of this file.
        at: Place,
        /// Or of this open one, which needs no further permission than to have been opened for writing.
        handle: Option<HandleId>,
    },
    /// A fresh capability for an open handle. Reply: `Capability`.
    Renew {
        /// This one.
        handle: HandleId,
    },
    /// Makes a directory (M). Reply: `Attr`.
    Mkdir {
        /// Here.
        at: Place,
        /// Permission bits, the umask already taken off.
        mode: u32,
    },
    /// Makes a node without bytes (M). Reply: `Attr`.
    Mknod {
        /// Here.
        at: Place,
        /// What.
        kind: FileType,
        /// Permission bits, the umask already taken off.
        mode: u32,
        /// Device number.
        rdev: u64,
    },
    /// Makes a symbolic link (M). Reply: `Attr`.
    Symlink {
        /// Here.
        at: Place,
        /// To this.
        #[serde(with = "serde_bytes")]
        target: Vec<u8>,
    },
    /// Gives a file another name (M). Reply: `Attr`.
    Link {
        /// This file.
        from: Place,
        /// This name.
        to: Place,
    },
    /// Removes a name that is no directory (M). Reply: `Done`.
    Unlink {
        /// This one.
        at: Place,
    },
    /// Removes an empty directory (M). Reply: `Done`.
    Rmdir {
        /// This one.
        at: Place,
    },
    /// Renames (M). Reply: `Done`.
    Rename {
        /// From this name.
        from: Place,
        /// To this one.
        to: Place,
        /// Fail when it is there (RENAME_NOREPLACE).
        no_replace: bool,
        /// Swap the two (RENAME_EXCHANGE).
        exchange: bool,
    },
    /// The target of a symbolic link. Reply: `Target`.
    Readlink {
        /// This one.
        at: Place,
    },
    /// Sets attributes (M). Reply: `Attr`.
    SetAttr {
        /// Of this.
        at: Place,
        /// To these.
        set: SetAttr,
    },
    /// A page of a directory's names, in the order of their bytes, without `.` and `..`. Reply: `Entries`.
    List {
        /// Of this directory.
        at: Place,
        /// After this name; empty from the start.
        #[serde(with = "serde_bytes")]
        after: Vec<u8>,
        /// At most this many, itself at most [`LIST_LIMIT_MAX`].
        limit: u32,
        /// With attributes.
        with_attr: bool,
    },
    /// Whether the caller may do this (`R_OK` 4, `W_OK` 2, `X_OK` 1, `F_OK` 0). Reply: `Done`.
    Access {
        /// With this.
        at: Place,
        /// Any of the bits.
        mask: u32,
    },
    /// An extended attribute. Reply: `Value`.
    GetXattr {
        /// Of this.
        at: Place,
        /// Its name.
        name: String,
    },
    /// Sets an extended attribute (M). Reply: `Done`.
    SetXattr {
        /// Of this.
        at: Place,
        /// Its name.
        name: String,
        /// Its value.
        #[serde(with = "serde_bytes")]
        value: Vec<u8>,
        /// Fail when it is there (XATTR_CREATE).
        create: bool,
        /// Fail when it is missing (XATTR_REPLACE).
        replace: bool,
    },
    /// The names of all extended attributes. Reply: `Names`.
    ListXattr {
        /// Of this.
        at: Place,
    },
    /// Removes an extended attribute (M). Reply: `Done`.
    RemoveXattr {
        /// Of this.
        at: Place,
        /// Its name.
        name: String,
    },
    /// The layout of a file, or the default of a directory. Reply: `Layout`.
    GetLayout {
        /// Of this.
        at: Place,
    },
    /// Sets the layout of an empty file that nobody writes, or the default of a directory (M). Reply: `Done`.
    SetLayout {
        /// Of this.
        at: Place,
        /// As wanted.
        spec: LayoutSpec,
    },
    /// Takes a lock. Reply: `Locked`, `LockWait` (ask again with the ticket: the server waited up to 250 ms), or
    /// `EAGAIN` when `wait` is false, `EDEADLK` when waiting would never end.
    Lock {
        /// Through this open file.
        handle: HandleId,
        /// Among these locks.
        space: LockSpace,
        /// For whom.
        owner: LockOwner,
        /// Shared or exclusive.
        kind: LockKind,
        /// Which bytes.
        range: LockRange,
        /// Whether to wait.
        wait: bool,
        /// The place in the queue from a `LockWait`, 0 at first.
        ticket: u64,
        /// Told to others who ask who holds it.
        pid: u32,
    },
    /// Gives up waiting. Reply: `Done`.
    CancelLock {
        /// From a `LockWait`.
        ticket: u64,
    },
    /// Gives up a lock on a range. Reply: `Done`.
    Unlock {
        /// Through this open file.
        handle: HandleId,
        /// Among these locks.
        space: LockSpace,
        /// For whom.
        owner: LockOwner,
        /// Which bytes.
        range: LockRange,
    },
    /// The first lock that would be in the way. Reply: `Holder`.
    TestLock {
        /// Through this open file.
        handle: HandleId,
        /// Among these locks.
        space: LockSpace,
        /// For whom.
        owner: LockOwner,
        /// Shared or exclusive.
        kind: LockKind,
        /// Which bytes.
        range: LockRange,
    },
    /// Tells opens and locks again after a reconnection. Reply: `Reclaimed`.
    Reclaim {
        /// Opens.
        opens: Vec<ReclaimOpen>,
        /// Locks.
        locks: Vec<ReclaimLock>,
    },
    /// Makes every change that this session was told of survive loss of power (they do already; this waits for
    /// one-way requests sent before it on the same connection). Reply: `Done`.
    Flush,
    /// Counts of inodes and room of the metadata device. Reply: `StatFs`.
    StatFs,
    /// A kernel's cached pages of a file are out of date: tells mounts that asked for `cache` and waits until they
    /// have dropped them. Reply: `Done`.
    Invalidate {
        /// Through this open file.
        handle: HandleId,
        /// First byte.
        start: u64,
        /// One past the last.
        end: u64,
    },
    /// Waits up to 30 s for something that a caching mount must do; acknowledges what it was told before. Reply: `Events`.
    WaitEvents {
        /// All up to this number are done.
        done: u64,
    },
    /// A page of all inodes, for checks. Administrators only. Reply: `Inodes`.
    ScanInodes {
        /// After this one.
        after: FileId,
        /// At most this many, itself at most [`LIST_LIMIT_MAX`].
        limit: u32,
    },
    /// Checks the namespace and mends it when asked to (M): entries without inodes, inodes without entries, wrong link
    /// counts. Administrators only. Reply: `Checked`.
    CheckNamespace {
        /// Whether to mend.
        repair: bool,
    },
}

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
    /// Its attributes, when asked for.
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
    /// Which.
    pub file: FileId,
    /// What.
    pub kind: FileType,
    /// Length as far as the inode knows.
    pub size: ByteLen,
    /// Whether the inode knows the length for sure.
    pub settled: bool,
    /// Where its datafiles are.
    pub layout: Option<Layout>,
    /// Unlinked but still open, or waiting for removal.
    pub doomed: bool,
    /// A path that leads to it, as far as known.
    #[serde(with = "serde_bytes")]
    pub path: Vec<u8>,
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
    /// It could not be done.
    Failed(WireError),
}

impl std::fmt::Display for SessionId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "session {:08x}", (self.0 >> 96) as u32)
    }
}
