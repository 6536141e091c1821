//! Locks on ranges of bytes.

use super::HandleId;
use serde::{Deserialize, Serialize};
use weft_core::FileId;

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
