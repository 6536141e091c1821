//! What clients ask.

use super::{
    AVERAGES_MAX, FileType, Forget, HandleId, LINEAGE_MAX, LayoutSpec, LockKind, LockOwner, LockRange,
    LockSpace, OpenFlags, Place, RULES_MAX, ReclaimLock, ReclaimOpen, Rule, SetAttr, Settlement,
    TargetChange, TargetClaim, WriteSummary, WrittenLens,
};
use crate::bounded;
use crate::capability::Capability;
use crate::keys::{KeyId, REVOKED_MAX};
use crate::session::SessionName;
use serde::{Deserialize, Serialize};
use weft_core::ibridge::Report;
use weft_core::{AttachToken, ByteLen, FileId, RecordedLens, TargetId, TargetUuid};

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
    /// Opens a file that another session of the same owner has reached, as a forked or executed process does. Permission is
    /// checked as for an open; the file's owner always has it. Reply: `Opened`.
    Adopt {
        /// The open of the other session; its capability is ignored.
        open: ReclaimOpen,
        /// Name of the other session.
        parent: SessionName,
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
        /// The capability given there; it must allow [`Rights::SETTLE`](crate::Rights::SETTLE).
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
        /// The length that it is to have: recorded lengths of datafiles are lowered to it before anything is cut.
        size: ByteLen,
    },
    /// A fresh capability for an open handle. Reply: `Capability`, or `Relocated`.
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
    /// Gives a file another name (M). Refused with `EPERM` unless the caller owns the file, or may read and write it and
    /// it is a regular file without set-id bits. Reply: `Attr`.
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
        /// At most this many, itself at most [`LIST_LIMIT_MAX`](super::LIST_LIMIT_MAX).
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
    /// Takes a lock. Reply: `Locked`, `LockedFenced` (for appends), `LockWait` (ask again with the ticket: the server waited up to 250 ms), or
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
    /// Waits a little for something that a caching mount must do; acknowledges what it was told before. Reply: `Events`.
    WaitEvents {
        /// All up to this number are done.
        done: u64,
    },
    /// A page of all inodes, for checks. Administrators only. Reply: `Inodes`.
    ScanInodes {
        /// After this one.
        after: FileId,
        /// At most this many, itself at most [`LIST_LIMIT_MAX`](super::LIST_LIMIT_MAX).
        limit: u32,
    },
    /// Checks the namespace and mends it when asked to (M): entries without inodes, inodes without entries, wrong link
    /// counts. Administrators only. Reply: `Checked`.
    CheckNamespace {
        /// Whether to mend.
        repair: bool,
    },
    /// Tells the average service times of a data server's disks, and asks for those of all. They are kept in memory only,
    /// and not for long. Servers of the cluster only. Reply: `Averages`.
    Averages {
        /// At most [`AVERAGES_MAX`].
        #[serde(deserialize_with = "bounded::vec::<_, _, AVERAGES_MAX>")]
        reports: Vec<Report>,
    },
    /// Gives up the append lock after an append that failed and may be carried out all the same: who has it next is told
    /// (`LockedFenced`). Reply: `Done`.
    Forsake {
        /// Of this open file.
        handle: HandleId,
        /// Who has it.
        owner: LockOwner,
    },
    /// The rules of a directory, and after them those of the directories above it, the nearest first. Reply: `Rules`.
    Rules {
        /// Of this.
        at: Place,
    },
    /// Changes the rules of a directory, all at once (M). Reply: `Done`.
    ChangeRules {
        /// Of this.
        at: Place,
        /// It loses these.
        forget: Forget,
        /// It gets these, before what it keeps.
        #[serde(deserialize_with = "bounded::vec::<_, _, RULES_MAX>")]
        add: Vec<Rule>,
    },
    /// Begins to move a file's bytes to another layout, or goes on where somebody stopped. Owner and root only; one at
    /// a time. The file is open from then on for this session under `handle`, neither for reading nor for writing by
    /// programs. The same again is no other one. Reply: `Moving`, or `Done` when the file has that layout.
    Move {
        /// This file.
        at: Place,
        /// The client's number for it.
        handle: HandleId,
        /// To this layout, as for a new file of its name.
        layout: LayoutSpec,
        /// Begins nothing. Reply: `Layout`.
        only_tell: bool,
    },
    /// Fresh capabilities for a move of this session. Reply: `Moving`.
    MoveOn {
        /// Its number.
        handle: HandleId,
        /// All bytes below this are copied and safe, for who goes on should this session end.
        copied: ByteLen,
        /// For who asks how it goes: what this session has copied, and what is left to be copied as far as it knows; both 0
        /// tell nothing.
        done: ByteLen,
        /// See `done`.
        left: ByteLen,
    },
    /// From here on nobody gets a capability that data servers take after they were told so ([`DataRequest::Seal`]): they
    /// refuse those that end before `Moving::seal_s`. Until `Moved`, `MoveBack`, the end of the session, or for 10 s.
    /// Reply: `Moving`.
    ///
    /// [`DataRequest::Seal`]: crate::data::DataRequest::Seal
    MoveOver {
        /// Of this move.
        handle: HandleId,
    },
    /// Gives `MoveOver` up. Reply: `Done`.
    MoveBack {
        /// Of this move.
        handle: HandleId,
    },
    /// The new datafiles have all bytes, and are safe: from here on they are the file's, and the old ones are removed (M).
    /// Reply: `Done`; `EAGAIN` when `MoveOver` has been given up meanwhile.
    Moved {
        /// Of this move.
        handle: HandleId,
        /// As told by `MoveOver`.
        seal_s: u64,
        /// Length of the file.
        size: ByteLen,
        /// Length of each of the new datafiles.
        lens: RecordedLens,
    },
    /// Gives a move up, whosever it is: what was copied is removed. Owner and root only. Reply: `Done`.
    MoveNot {
        /// Of this file.
        at: Place,
    },
    /// Files of the caller that are being moved, or whose moves were stopped; of root all. Reply: `Moves`.
    Moves {
        /// Those with higher numbers than this.
        after: FileId,
    },
    /// Takes a state of the whole database, to be read page by page. Administrators only. Reply: `DumpBegun`; `EBUSY` when
    /// [`DUMPS_MAX`](super::DUMPS_MAX) are under way.
    DumpBegin,
    /// The rows of a dump after this one (number of its table, and key), or the first ones. Reply: `Dumped`; `ESTALE` when
    /// the dump is not known any more.
    DumpPage {
        /// Of this dump, begun by the same session.
        number: u64,
        /// After this row.
        after: Option<(u8, Vec<u8>)>,
    },
    /// Ends a dump. Reply: `Done`.
    DumpEnd {
        /// This one.
        number: u64,
    },
    /// Records where synced writes end in the datafiles of an open file, so that bytes that go missing later are noticed.
    /// Ignored when the file was cut meanwhile. Sent one-way. Reply: `Done`.
    Record {
        /// Through this open file.
        handle: HandleId,
        /// The ends.
        written: WrittenLens,
    },
    /// Recorded lengths of the datafiles of an open file. Reply: `Recorded`.
    Recorded {
        /// This one.
        handle: HandleId,
    },
    /// Asks whether a target's directory may be used; changes nothing. Servers only. Reply: `TargetVerdict`.
    JudgeTarget {
        /// Number of the target in the cluster file.
        target: TargetId,
        /// What the data server found in the target's directory.
        claim: TargetClaim,
        /// Whether the administrator allowed blank directories to join (`weft serve --format`).
        format: bool,
    },
    /// Records that a target attached, after the target stored `to`. Servers only (M). Reply: `Done`.
    AttachTarget {
        /// Number of the target in the cluster file.
        target: TargetId,
        /// Its disk.
        uuid: TargetUuid,
        /// The token of the verdict; `None` when the target joins.
        from: Option<AttachToken>,
        /// The new token.
        to: AttachToken,
    },
    /// Lists the targets that the metadata server has on record. Reply: `Targets`.
    Targets,
    /// Changes the state of a target. Administrators only (M). Reply: `Targets`.
    ChangeTarget {
        /// Number of the target.
        target: TargetId,
        /// What to do.
        change: TargetChange,
    },
    /// Asks which file ids this database has given out itself, as opposed to another copy of it. Administrators only.
    /// Reply: `Lineage`.
    Lineage {
        /// These, at most [`LINEAGE_MAX`]; generations do not matter.
        #[serde(deserialize_with = "bounded::vec::<_, _, LINEAGE_MAX>")]
        files: Vec<FileId>,
    },
    /// Refuses keys from now on, on all servers, and ends their connections. Administrators only (M). Reply: `Done`.
    RevokeKeys {
        /// These, at most [`REVOKED_MAX`].
        #[serde(deserialize_with = "bounded::vec::<_, _, REVOKED_MAX>")]
        keys: Vec<KeyId>,
    },
    /// Lists the keys that are refused. Servers and administrators only. Reply: `Revoked`.
    RevokedKeys,
}
