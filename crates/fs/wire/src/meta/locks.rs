//! Locks on byte ranges.

use super::HandleId;
use serde::{Deserialize, Serialize};
use weft_core::FileId;

/// Lock mode.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum LockKind {
    /// Several owners may hold it.
    Shared,
    /// One owner may hold it.
    Exclusive,
}

/// Owner of a lock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum LockOwner {
    /// A process (fcntl). The number distinguishes the processes behind one mount; elsewhere it is 0.
    Process(u64),
    /// An open file (flock, open-file-description locks).
    Handle(HandleId),
}

/// Lock family. As on Linux, locks of different families do not conflict.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum LockSpace {
    /// Byte ranges of fcntl, including open-file-description locks.
    Record,
    /// Whole files (flock).
    Flock,
    /// Lock that a client holds during an append.
    Append,
}

/// Byte range of a lock. An `end` of `u64::MAX` extends it to the end of the file, however long.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LockRange {
    /// First byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
}

/// Conflicting lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HeldLock {
    /// Shared or exclusive.
    pub kind: LockKind,
    /// Byte range.
    pub range: LockRange,
    /// Process id of the holder, 0 if unknown or on another host.
    pub pid: u32,
    /// Whether an open file holds it rather than a process, so that fcntl(2) reports no process.
    pub is_of_open_file: bool,
}

/// Lock that a session reclaims after a reconnection.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ReclaimLock {
    /// Locked file.
    pub file: FileId,
    /// Lock family.
    pub space: LockSpace,
    /// Owner of the lock.
    pub owner: LockOwner,
    /// Shared or exclusive.
    pub kind: LockKind,
    /// Byte range.
    pub range: LockRange,
    /// Process id of the holder, 0 for that of the connection.
    pub pid: u32,
}
