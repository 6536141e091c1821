//! Requests of clients to the metadata service.

use super::{
    AVERAGES_MAX, CollectedSize, FenceKind, FileType, HandleId, InodePath, LINEAGE_MAX, LayoutSpec, LockKind,
    LockOwner, LockRange, LockSpace, OpenFlags, PATHS_MAX, QuotaSubject, RULES_MAX, ReclaimLock, ReclaimOpen,
    ReplicaSpec, Rule, RuleRemoval, SetAttr, TargetChange, TargetClaim, TreeStep, WriteSummary, WrittenLens,
};
use crate::bounded;
use crate::capability::Capability;
use crate::cluster::{DomainChange, ServerChange, TargetPlace};
use crate::keys::{KeyId, REVOKED_MAX};
use crate::level::{Level, Levels};
use crate::session::SessionName;
use serde::{Deserialize, Serialize};
use weft_core::ibridge::Report;
use weft_core::{
    AttachToken, ByteLen, FileId, FileOffset, QuotaId, QuotaLimits, RecordedLens, TargetId, TargetUuid,
};
use weft_env::Address;

/// Request of a client to the metadata service. Requests marked M change metadata and carry a sequence number.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum MetaRequest {
    /// Returns attributes. Reply: `Attr`.
    Stat {
        /// File to look up.
        at: InodePath,
    },
    /// Opens a file, and creates it if the flags say so (M). Reply: `Opened`.
    Open {
        /// File to open.
        at: InodePath,
        /// Open flags.
        flags: OpenFlags,
        /// Permission bits of a new file, after the umask.
        mode: u32,
        /// Handle number chosen by the client.
        handle: HandleId,
        /// Layout of a new file.
        layout: LayoutSpec,
        /// Whether the client wants its kernel to cache pages; see `Opened::may_cache`.
        cache: bool,
        /// Number of processes of the parallel program that opens the file; `None` if it is not one.
        ranks: Option<u32>,
    },
    /// Opens a file that another session of the same owner has open, for a process after fork or exec. Permission is
    /// checked as for an open, except that the file's owner always has it. Reply: `Opened`.
    Adopt {
        /// Open of the other session; its capability is ignored.
        open: ReclaimOpen,
        /// Name of the other session.
        parent: SessionName,
    },
    /// Closes a handle. Usually one-way. Reply: `Done`.
    Close {
        /// Handle to close.
        handle: HandleId,
        /// Summary of the writes through the handle.
        summary: WriteSummary,
    },
    /// Stores the measured size of a file, which validates its cached size. Ignored if the epoch has changed or a
    /// writer is active. Also ends a truncation (see `MetaReply::Truncate`). One-way. Reply: `Done`.
    ValidateSize {
        /// File that was measured.
        file: FileId,
        /// Epoch of the size query.
        epoch: u64,
        /// Capability of the size query, with the right to validate the size.
        cap: Capability,
        /// Result of the measurement.
        found: CollectedSize,
    },
    /// Prepares a change of length (M): checks permission and starts a new epoch. Reply: `Truncate`; the client then
    /// sets the lengths of all datafiles. `Done` if the file is inline, and remains so; `OpenFirst`, or `EFBIG` with a handle, if
    /// it is inline and has to grow.
    Truncate {
        /// File to cut or extend.
        at: InodePath,
        /// Alternatively an open handle; opening it for writing was permission enough.
        handle: Option<HandleId>,
        /// New length. Recorded lengths of datafiles are lowered to it before any datafile is cut.
        size: ByteLen,
    },
    /// Returns a fresh capability for an open handle. Reply: `Capability`, or `Relocated`.
    Renew {
        /// Handle to renew.
        handle: HandleId,
    },
    /// Creates a directory (M). Reply: `Attr`.
    Mkdir {
        /// Name of the directory.
        at: InodePath,
        /// Permission bits, after the umask.
        mode: u32,
    },
    /// Creates an inode without data (M). Reply: `Attr`.
    Mknod {
        /// Name of the inode.
        at: InodePath,
        /// Type of the inode.
        kind: FileType,
        /// Permission bits, after the umask.
        mode: u32,
        /// Device number.
        rdev: u64,
    },
    /// Creates a symbolic link (M). Reply: `Attr`.
    Symlink {
        /// Name of the link.
        at: InodePath,
        /// Path that the link contains.
        #[serde(with = "serde_bytes")]
        target: Vec<u8>,
    },
    /// Creates a hard link (M). Fails with `EPERM` unless the caller owns the file, or may read and write it and it is
    /// a regular file without set-id bits. Reply: `Attr`.
    Link {
        /// Existing file. An inode itself with `follow` is a file without a name, which gets its first one from its owner
        /// while this session has it open for writing.
        from: InodePath,
        /// New name.
        to: InodePath,
    },
    /// Removes the name of a non-directory (M). Reply: `Done`.
    Unlink {
        /// Name to remove.
        at: InodePath,
    },
    /// Removes an empty directory (M). Reply: `Done`.
    Rmdir {
        /// Directory to remove.
        at: InodePath,
    },
    /// Renames a file or directory (M). Reply: `Done`.
    Rename {
        /// Old name.
        from: InodePath,
        /// New name.
        to: InodePath,
        /// Fail if the new name exists (RENAME_NOREPLACE).
        no_replace: bool,
        /// Swap the two names (RENAME_EXCHANGE).
        exchange: bool,
    },
    /// Returns the target of a symbolic link. Reply: `Target`.
    Readlink {
        /// Link to read.
        at: InodePath,
    },
    /// Sets attributes (M). Reply: `Attr`.
    SetAttr {
        /// File to change.
        at: InodePath,
        /// New values.
        set: SetAttr,
    },
    /// Returns one page of a directory's names in byte order, without `.` and `..`. Reply: `Entries`.
    List {
        /// Directory to list.
        at: InodePath,
        /// Last name of the previous page; empty for the first page.
        #[serde(with = "serde_bytes")]
        after: Vec<u8>,
        /// Maximum number of names, at most [`LIST_LIMIT_MAX`](super::LIST_LIMIT_MAX).
        limit: u32,
        /// Whether to return attributes.
        with_attr: bool,
        /// Whether this mount wants to use names and attributes for [`NAME_LEASE`](super::NAME_LEASE). It answers events.
        lease: bool,
    },
    /// Checks access as access(2) does (`R_OK` 4, `W_OK` 2, `X_OK` 1, `F_OK` 0). Reply: `Done`.
    Access {
        /// File to check.
        at: InodePath,
        /// Combination of these bits.
        mask: u32,
    },
    /// Returns the value of an extended attribute. Reply: `Value`.
    GetXattr {
        /// File to query.
        at: InodePath,
        /// Name of the attribute.
        name: String,
    },
    /// Sets an extended attribute (M). Reply: `Done`.
    SetXattr {
        /// File to change.
        at: InodePath,
        /// Name of the attribute.
        name: String,
        /// New value.
        #[serde(with = "serde_bytes")]
        value: Vec<u8>,
        /// Fail if the attribute exists (XATTR_CREATE).
        create: bool,
        /// Fail if the attribute is missing (XATTR_REPLACE).
        replace: bool,
    },
    /// Lists the names of all extended attributes. Reply: `Names`.
    ListXattr {
        /// File to query.
        at: InodePath,
    },
    /// Removes an extended attribute (M). Reply: `Done`.
    RemoveXattr {
        /// File to change.
        at: InodePath,
        /// Name of the attribute.
        name: String,
    },
    /// Returns the layout of a file or the default layout of a directory. Reply: `Layout`.
    GetLayout {
        /// File or directory to query.
        at: InodePath,
    },
    /// Sets the layout of an empty file without writers, or the default layout of a directory (M). Reply: `Done`.
    SetLayout {
        /// File or directory to change.
        at: InodePath,
        /// Requested layout.
        spec: LayoutSpec,
    },
    /// Acquires a lock. Reply: `Locked`, or `LockedFenced` for appends. After waiting up to 250 ms the server replies
    /// `LockWait`, and the client repeats the request with its ticket. The request fails with `EAGAIN` if `wait` is
    /// false and with `EDEADLK` on a deadlock.
    Lock {
        /// Open file to lock.
        handle: HandleId,
        /// Lock family.
        space: LockSpace,
        /// Owner of the lock.
        owner: LockOwner,
        /// Shared or exclusive.
        kind: LockKind,
        /// Byte range.
        range: LockRange,
        /// Whether to wait for the lock.
        wait: bool,
        /// Ticket of the preceding `LockWait`, 0 at first.
        ticket: u64,
        /// Process id that F_GETLK reports to other processes.
        pid: u32,
    },
    /// Cancels a waiting lock request. Reply: `Done`.
    CancelLock {
        /// Ticket of the `LockWait`.
        ticket: u64,
    },
    /// Releases a byte range. Reply: `Done`.
    Unlock {
        /// Open file to unlock.
        handle: HandleId,
        /// Lock family.
        space: LockSpace,
        /// Owner of the lock.
        owner: LockOwner,
        /// Byte range.
        range: LockRange,
    },
    /// Returns the first conflicting lock. Reply: `Holder`.
    TestLock {
        /// Open file to test.
        handle: HandleId,
        /// Lock family.
        space: LockSpace,
        /// Owner of the hypothetical lock.
        owner: LockOwner,
        /// Shared or exclusive.
        kind: LockKind,
        /// Byte range.
        range: LockRange,
    },
    /// Restores opens and locks after a reconnection. Reply: `Reclaimed`.
    Reclaim {
        /// Opens of the session.
        opens: Vec<ReclaimOpen>,
        /// Locks of the session.
        locks: Vec<ReclaimLock>,
    },
    /// Waits for the one-way requests sent earlier on the same connection and makes their changes durable. Changes with
    /// a reply are durable when the reply arrives. Reply: `Done`.
    Flush,
    /// Returns the number of inodes, the space of the metadata device, and what quotas leave. Reply: `StatFs`.
    StatFs {
        /// File or directory whose tree counts; `None` for the caller's quota alone.
        at: Option<InodePath>,
    },
    /// Invalidates pages of a file in the kernel caches of other mounts, and waits until these mounts have dropped
    /// them. Reply: `Done`.
    Invalidate {
        /// Open file that was written.
        handle: HandleId,
        /// First byte.
        start: u64,
        /// One past the last byte.
        end: u64,
    },
    /// Asks the I/O delegates of other jobs to write and drop their pages of a file, and waits briefly until all have
    /// acknowledged that. Reply: `Recalled`.
    AwaitRecall {
        /// Open file.
        handle: HandleId,
    },
    /// Waits briefly for events that a caching mount or an I/O delegate must handle, and acknowledges earlier ones. Reply: `Events`.
    WaitEvents {
        /// Number of the last event that is handled, with all before it.
        done: u64,
    },
    /// Returns one page of all inodes, for consistency checks. Reserved for administrators. Reply: `Inodes`.
    ScanInodes {
        /// Last inode of the previous page.
        after: FileId,
        /// Maximum number of inodes, at most [`LIST_LIMIT_MAX`](super::LIST_LIMIT_MAX).
        limit: u32,
    },
    /// Checks the namespace, and repairs it on request (M): entries without inodes, inodes without entries, wrong link
    /// counts. Reserved for administrators. Reply: `Checked`.
    CheckNamespace {
        /// Whether to repair.
        repair: bool,
    },
    /// Reports the average service times of a data server's disks and returns those of all disks. The metadata server
    /// keeps them in memory for a short time. Reserved for servers. Reply: `Averages`.
    Averages {
        /// Reports, at most [`AVERAGES_MAX`].
        #[serde(deserialize_with = "bounded::vec::<_, _, AVERAGES_MAX>")]
        reports: Vec<Report>,
    },
    /// Releases the append lock after a failed append that may still reach the data servers. The next holder gets
    /// `LockedFenced`. Reply: `Done`.
    AbandonAppend {
        /// Open file.
        handle: HandleId,
        /// Owner of the append lock.
        owner: LockOwner,
    },
    /// Returns the rules of a directory, followed by those of its ancestors, nearest first. Reply: `Rules`.
    Rules {
        /// Directory to query.
        at: InodePath,
    },
    /// Changes the rules of a directory atomically (M). Reply: `Done`.
    ChangeRules {
        /// Directory to change.
        at: InodePath,
        /// Rules to remove.
        forget: RuleRemoval,
        /// Rules to add, in front of those that remain.
        #[serde(deserialize_with = "bounded::vec::<_, _, RULES_MAX>")]
        add: Vec<Rule>,
    },
    /// Starts to move a file's bytes to another layout, or resumes a stopped move. Only the owner and root may move a
    /// file, one move at a time. From now on this session has the file open under `handle`, but programs can neither
    /// read nor write through that handle. Repeating the request has no further effect. Reply: `Moving`, or `Done` if
    /// the file already has the layout.
    BeginMove {
        /// File to move.
        at: InodePath,
        /// Handle number chosen by the client.
        handle: HandleId,
        /// New layout, chosen as for a new file of this name.
        layout: LayoutSpec,
        /// Only return the layout that the file would get. Reply: `Layout`.
        dry_run: bool,
    },
    /// Renews the capabilities for a move of this session. Reply: `Moving`.
    RenewMove {
        /// Handle of the move.
        handle: HandleId,
        /// Offset below which all bytes are copied and durable. A resumed move starts there.
        copied: ByteLen,
        /// Bytes that this session has copied, for progress reports. If `done` and `left` are both 0, nothing is
        /// reported.
        done: ByteLen,
        /// Bytes still to be copied, as far as the session knows.
        left: ByteLen,
    },
    /// Starts the switch to the new layout. From now on no client gets a capability that survives the seal: data
    /// servers reject capabilities that expire before `Moving::seal_s` once they have received [`DataRequest::Seal`].
    /// Ends with the commit, the cancellation, the end of the session, or after 10 s. Reply: `Moving`.
    ///
    /// [`DataRequest::Seal`]: crate::data::DataRequest::Seal
    BeginCutover {
        /// Handle of the move.
        handle: HandleId,
    },
    /// Cancels the switch. Reply: `Done`.
    CancelCutover {
        /// Handle of the move.
        handle: HandleId,
    },
    /// Commits the move after all bytes in the new datafiles are durable (M). The file gets the new datafiles, and the
    /// old ones are removed. Reply: `Done`; `EAGAIN` if the switch has been canceled.
    CommitMove {
        /// Handle of the move.
        handle: HandleId,
        /// Value of `Moving::seal_s` in the reply that started the switch.
        seal_s: u64,
        /// Length of the file.
        size: ByteLen,
        /// Lengths of the new datafiles.
        lens: RecordedLens,
        /// Bytes that this mover has copied, as in `RenewMove`.
        copied: ByteLen,
    },
    /// Aborts a move of any session and removes the copied bytes. Reserved for the owner and root. Reply: `Done`.
    AbortMove {
        /// File whose move ends.
        at: InodePath,
    },
    /// Lists files that are being moved or whose moves have stopped: those of the caller, or all for root. Reply:
    /// `Moves`.
    Moves {
        /// Last file of the previous page.
        after: FileId,
    },
    /// Takes a snapshot of the database, to be read page by page. Reserved for administrators. Reply: `DumpBegun`;
    /// `EBUSY` if [`DUMPS_MAX`](super::DUMPS_MAX) dumps exist.
    DumpBegin,
    /// Returns the next rows of a dump. Reply: `Dumped`; `ESTALE` if the dump no longer exists.
    DumpPage {
        /// Number of the dump, which the same session started.
        number: u64,
        /// Table and key of the last row of the previous page; `None` for the first page.
        after: Option<(u8, Vec<u8>)>,
    },
    /// Ends a dump. Reply: `Done`.
    DumpEnd {
        /// Number of the dump.
        number: u64,
    },
    /// Records the ends of synced writes in the datafiles of an open file, so that a later loss of bytes is detected.
    /// Ignored if the file was cut in the meantime. One-way. Reply: `Done`.
    Record {
        /// Open file.
        handle: HandleId,
        /// Ends of the writes.
        written: WrittenLens,
    },
    /// Returns the recorded lengths of an open file's datafiles. Reply: `Recorded`.
    Recorded {
        /// Open file.
        handle: HandleId,
    },
    /// Asks whether a target's directory may be used; changes nothing. Reserved for servers. Reply: `TargetVerdict`.
    JudgeTarget {
        /// Number of the target in the cluster file.
        target: TargetId,
        /// Contents of the target's directory.
        claim: TargetClaim,
        /// Whether the administrator lets blank directories join (`weft serve --format`).
        format: bool,
    },
    /// Records that a target attached, after the target has stored the token `to`. Reserved for servers (M). Reply:
    /// `Attached`.
    AttachTarget {
        /// Number of the target in the cluster file.
        target: TargetId,
        /// Identity of its disk.
        uuid: TargetUuid,
        /// Token of the verdict; `None` if the target joins.
        from: Option<AttachToken>,
        /// New token.
        to: AttachToken,
        /// Where it attached; `None` from a server that does not register.
        place: Option<TargetPlace>,
    },
    /// Lists the targets on record. Reply: `Targets`.
    Targets,
    /// Changes the state of a target. Reserved for administrators (M). Reply: `Targets`.
    ChangeTarget {
        /// Number of the target.
        target: TargetId,
        /// Change to make.
        change: TargetChange,
    },
    /// Asks which file ids this copy of the database has allocated, in contrast to another copy. Reserved for
    /// administrators. Reply: `Lineage`.
    Lineage {
        /// File ids, at most [`LINEAGE_MAX`]; generations are ignored.
        #[serde(deserialize_with = "bounded::vec::<_, _, LINEAGE_MAX>")]
        files: Vec<FileId>,
    },
    /// Revokes keys on all servers and closes their connections. Reserved for administrators (M). Reply: `Done`.
    RevokeKeys {
        /// Keys to revoke, at most [`REVOKED_MAX`].
        #[serde(deserialize_with = "bounded::vec::<_, _, REVOKED_MAX>")]
        keys: Vec<KeyId>,
    },
    /// Lists the revoked keys. Reserved for servers and administrators. Reply: `Revoked`.
    RevokedKeys,
    /// Creates a replica without bytes for an open file, instead of an unused one, and opens its data for reading and
    /// writing (M). Reserved for the owner and root. Reply: `Opened`, for the data; `EEXIST` if the file has a valid
    /// replica, `EBUSY` if another session creates one.
    CreateReplica {
        /// Open file.
        handle: HandleId,
        /// Handle for the data.
        data_handle: HandleId,
        /// The replica.
        spec: ReplicaSpec,
        /// Layout of the data.
        layout: LayoutSpec,
    },
    /// Begins to copy the file to its new replica, or begins again. Reply: `Done`; `EBUSY` if the file may change
    /// meanwhile without an open that the service sees.
    CopyReplica {
        /// Open file, with which the session has created the replica.
        handle: HandleId,
        /// Seal that all its datafiles have ([`Self::FenceFile`]); 0 for none.
        sealed_s: u64,
    },
    /// Makes a new replica valid, after its bytes and its mapping are durable (M). Reply: `Done`; `EAGAIN` if the file
    /// may have changed since `CopyReplica`.
    PublishReplica {
        /// Open file, with which the session has created the replica.
        handle: HandleId,
    },
    /// Opens the data of an open file's replica, with the rights of that open. Reply: `ReplicaOpened`; `ENOENT` without
    /// a valid replica.
    OpenReplica {
        /// Open file.
        handle: HandleId,
        /// Handle for the data.
        data_handle: HandleId,
    },
    /// Asks not to use the replica of an open file, because its data cannot be read. Reply: `Done`; `EBUSY` if other clients
    /// may use it, or if it has bytes that the file does not have.
    BypassReplica {
        /// Open file.
        handle: HandleId,
    },
    /// Marks regions of a replica as newer than the file, before their first byte is written (M). Reply: `Done`.
    MarkReplica {
        /// File, open for writing.
        handle: HandleId,
        /// First region.
        first: u32,
        /// Number of regions.
        count: u32,
    },
    /// Asks for a fence or seal against all earlier capabilities, which the client then gives to the data servers, and for a
    /// capability that passes it. Reply: `LockedFenced`; `EAGAIN` while a move switches the file's datafiles, or after too
    /// many of them within the last seconds; `EBUSY` for a seal while the file is moved.
    FenceFile {
        /// File or data of a replica.
        handle: HandleId,
        /// Whether it is a fence or a seal.
        kind: FenceKind,
    },
    /// Lets others have capabilities that pass the seal of this session. Reply: `Done`; `ESTALE` if they could get them
    /// before.
    ReleaseSeal {
        /// File or data of a replica.
        handle: HandleId,
    },
    /// Records that the file has all bytes of its replica durably (M). Reply: `Done`; `EAGAIN` if somebody else may have
    /// written since the `epoch`.
    SynchronizedReplica {
        /// File, open for writing by the session that has copied the bytes.
        handle: HandleId,
        /// [`ReplicaInfo::epoch`](super::ReplicaInfo::epoch) before the copy.
        epoch: u64,
        /// Seal that the datafiles of file and replica have; 0 for none.
        sealed_s: u64,
    },
    /// Removes the replica of a file (M). Reserved for the owner and root. Reply: `Done`; `EBUSY` if programs use it, or if
    /// it has bytes that the file does not have, unless `force` is set.
    DropReplica {
        /// File.
        at: InodePath,
        /// Whether bytes that the file does not have are given up.
        force: bool,
    },
    /// Returns the replica of a file. Reply: `Replicas`, empty if it has none.
    Replica {
        /// File.
        at: InodePath,
    },
    /// Lists the replicas of the caller's files or, for root, of all files. Reply: `Replicas`.
    Replicas {
        /// Last file of the previous page.
        after: FileId,
    },
    /// Gives up the replica that the open creates, and removes its data (M). Reply: `Done`; `ESTALE` if it creates none, or
    /// no longer.
    AbandonReplica {
        /// File, open by the session that creates the replica.
        handle: HandleId,
    },
    /// Charges an open file for bytes behind its present end, so that data servers accept them. The new capability ends with
    /// the given one. Reply: `Capability`; `EDQUOT` if a quota does not allow it; `ESTALE` if the capability does not hold any
    /// more.
    ReserveSpace {
        /// File, open for writing.
        handle: HandleId,
        /// Capability of the session for the file.
        cap: Capability,
        /// End of the write.
        end: FileOffset,
    },
    /// Sets the limits of an account (M). A first limit begins the account; a tree's files are then counted by
    /// [`Self::CountTree`]. Reserved for administrators. Reply: `Quotas` with the account.
    SetQuota {
        /// User, or the directory that is the root of a tree.
        subject: QuotaSubject,
        /// New limits.
        limits: QuotaLimits,
    },
    /// Returns one account, even without limits. Users see their own and those of trees that they can reach. Reply: `Quotas`,
    /// empty for a path in no tree.
    GetQuota {
        /// Account.
        subject: QuotaSubject,
    },
    /// Lists accounts. Reserved for administrators. Reply: `Quotas`.
    ListQuotas {
        /// Last account of the previous page.
        after: Option<QuotaId>,
    },
    /// Counts entries of a directory in a new tree, or counts them again. Reserved for administrators. Reply: `TreeCounted`.
    CountTree(TreeStep),
    /// Records that all files of a tree are counted (M). Reserved for administrators. Reply: `Done`.
    EndTreeCount {
        /// Root of the tree.
        tree: FileId,
    },
    /// Returns the paths of inodes, each as far as the caller could find it by listing directories. Administrators see
    /// all. Reply: `Paths`.
    Paths {
        /// Inodes.
        #[serde(deserialize_with = "bounded::vec::<_, _, PATHS_MAX>")]
        files: Vec<FileId>,
    },
    /// Waits until all changes of names and attributes, and of inline files, that were answered before their sync survive a
    /// loss of power. Reply: `Done`.
    SyncNames,
    /// Reads from an inline file. Reply: `InlineBytes`; `EREMCHG` if the file has grown and has datafiles now.
    ReadInline {
        /// Open file; open for reading if `len` is not zero.
        handle: HandleId,
        /// First byte.
        offset: FileOffset,
        /// Maximum number of bytes.
        len: ByteLen,
    },
    /// Writes to an inline file (M). Reply: `InlineWritten`; `EFBIG` if the file must grow first, because the write ends behind
    /// the limit of inline files or the device of the metadata is full; `EREMCHG` as for `ReadInline`.
    WriteInline {
        /// File, open for writing.
        handle: HandleId,
        /// First byte; `None` appends.
        offset: Option<FileOffset>,
        /// Bytes.
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
    },
    /// Begins to give an inline file datafiles. Reply: `Growing`; `Relocated` if the file was empty and has them now;
    /// `EREMCHG` as for `ReadInline`.
    Grow {
        /// File, open for writing.
        handle: HandleId,
    },
    /// Ends that, after the client has copied the bytes. Reply: `Relocated`; `ESTALE` if the file has changed or another
    /// client began to grow it since; `EREMCHG` as for `ReadInline`.
    Grown {
        /// File, open for writing.
        handle: HandleId,
        /// Copied bytes in the datafiles: their ends count as recorded if the client has synced them, else none.
        copied: WrittenLens,
    },
    /// Returns attributes as `Stat` does, for a mount that wants to use them, and the name, for
    /// [`NAME_LEASE`](super::NAME_LEASE). It answers events. Reply: `LookedUp`.
    LookUp {
        /// Name to look up in the directory `at.base`; or this inode, whose attributes are wanted.
        at: InodePath,
    },
    /// Returns the cluster map. Reply: `ClusterMap`.
    ClusterMap,
    /// Reports the addresses of a server that starts (M). Reserved for servers. Reply: `Registered`; `EPERM` for a server
    /// that is not on record; `EINVAL` if one of its targets that may hold data is not among `targets`.
    RegisterServer {
        /// Name of the server.
        name: String,
        /// Its addresses.
        #[serde(with = "crate::cluster::addresses")]
        addresses: Vec<Address>,
        /// Targets in its cluster file.
        #[serde(deserialize_with = "bounded::vec::<_, _, AVERAGES_MAX>")]
        targets: Vec<TargetId>,
        /// Whether the administrator lets it join (`weft serve --format`).
        format: bool,
        /// Feature levels that it knows.
        levels: Levels,
    },
    /// Lets a server join, or removes it (M). Reserved for administrators. Reply: `ClusterMap`.
    ChangeServer {
        /// Name of the server.
        name: String,
        /// Change to make.
        change: ServerChange,
    },
    /// Returns the feature levels of the cluster and its servers. Reply: `Levels`.
    Levels,
    /// Raises the feature level of the cluster (M). Reserved for administrators. Reply: `Levels`; `EBUSY` if a server does
    /// not know the level; `EINVAL` for a level that is lower, or that the metadata server does not know.
    RaiseLevel {
        /// The new level.
        to: Level,
    },
    /// Names the failure domain of a server (M). Level 2. Reserved for administrators. Reply: as for `ClusterMap`;
    /// `EOPNOTSUPP` while the cluster has level 1.
    SetDomain {
        /// Name of the server.
        name: String,
        /// Names to change.
        change: DomainChange,
    },
}

impl MetaRequest {
    /// Feature level that has this request.
    pub fn level(&self) -> Level {
        match self {
            Self::SetDomain { .. } => Level::DOMAINS,
            _ => Level::FIRST,
        }
    }
}
