//! Byte-range locks with POSIX semantics, as a pure value without clock, waiting or wire format.
//!
//! A lock belongs to an owner. Locks of one owner never conflict, and a new lock replaces what the owner held on those
//! bytes, splitting, converting and merging ranges as fcntl does. Shared locks are compatible with one another; an
//! exclusive lock conflicts with every lock of another owner.
//!
//! | a request finds | result |
//! | --- | --- |
//! | no conflict | granted |
//! | a conflicting lock, no wait requested | busy |
//! | a conflicting lock or an earlier conflicting ticket | queued, with a ticket |
//! | waiting would close a cycle of waits | deadlock |
//!
//! The owner of a ticket calls [`LockTable::retry`] when the file's locks change, and also periodically, because a
//! change on another file can break a cycle. Tickets are served in order, so a stream of readers cannot starve a
//! writer.
mod held;
mod table;

pub use table::{Acquire, LockLimits, LockTable, LockTableFull, Ticket, Wait};

use crate::ranges::ByteRange;
use serde::{Deserialize, Serialize};

/// Mode of a lock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LockMode {
    /// Other owners may hold shared locks (F_RDLCK, LOCK_SH).
    Shared,
    /// Other owners may hold nothing (F_WRLCK, LOCK_EX).
    Exclusive,
}

impl LockMode {
    /// Returns true if locks of these modes by different owners conflict.
    pub fn conflicts(self, other: Self) -> bool {
        self == Self::Exclusive || other == Self::Exclusive
    }
}

/// A held lock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct HeldLock<O> {
    /// Bytes of the lock, as wide as the owner holds them in this mode.
    pub range: ByteRange,
    /// Mode of the lock.
    pub mode: LockMode,
    /// Owner of the lock.
    pub owner: O,
}
