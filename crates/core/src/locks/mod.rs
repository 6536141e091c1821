//! Byte-range locks with POSIX semantics, as a pure value: no clock, no waiting, no wire.
//!
//! A lock belongs to an owner; locks of one owner never conflict, and a new one replaces what the owner held on
//! those bytes (splitting, converting and merging ranges as fcntl does). Shared locks go together, an exclusive
//! one goes with none of another owner's.
//!
//! Waiting is by *ticket*: a request that cannot be granted gets one, and whoever holds it asks again with
//! [`LockTable::retry`] when the file's locks have changed, and now and then (a change on another file can free
//! it too, when it breaks a cycle). Tickets are served in their order, so a stream of readers cannot starve a
//! writer; a request that waits where it would close a cycle of waits is told so instead.
mod held;
mod table;

pub use table::{Acquire, LockLimits, LockTable, LockTableFull, Ticket, Wait};

use crate::ranges::ByteRange;
use serde::{Deserialize, Serialize};

/// What a lock allows others to hold on the same bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LockMode {
    /// Others may hold shared locks (F_RDLCK, LOCK_SH).
    Shared,
    /// Others may hold nothing (F_WRLCK, LOCK_EX).
    Exclusive,
}

impl LockMode {
    /// Whether locks of these modes by different owners exclude each other.
    pub fn conflicts(self, other: Self) -> bool {
        self == Self::Exclusive || other == Self::Exclusive
    }
}

/// A lock that somebody holds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct HeldLock<O> {
    /// The bytes; as wide as the owner holds them in this mode.
    pub range: ByteRange,
    /// Shared or exclusive.
    pub mode: LockMode,
    /// Whose it is.
    pub owner: O,
}
