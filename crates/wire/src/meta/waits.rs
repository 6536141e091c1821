//! How long the metadata service may keep a request that waits for others. Clients wait so much longer for its reply: who
//! gave up before would close a connection on which nothing is wrong, and with the last one lose all locks.

use super::MetaRequest;
use weft_core::Nanos;

/// How long a request for a lock waits before the client is told to ask again: once for the grace after a start to end,
/// and once for the lock.
pub const LOCK_WAIT: Nanos = Nanos::from_ms(250);
/// How long a mount's question for events waits. Short, because a connection that waits does not see its peer die.
pub const EVENT_WAIT: Nanos = Nanos::from_s(2);
/// How long writers wait for mounts to drop pages.
pub const PAGES_WAIT: Nanos = Nanos::from_s(5);
/// Mounts drop their pages when their connection to the service breaks, which they see at once; after a restart writers
/// are told that all have done so when this much time has gone by.
pub const PAGES_DROPPED_AFTER: Nanos = Nanos::from_s(1);

/// The longest wait of a remover for the room of a large file.
pub const FREED_WITHIN: Nanos = Nanos::from_s(2);

impl MetaRequest {
    /// The longest that the service waits for others before it answers.
    pub const fn waits(&self) -> Nanos {
        match self {
            Self::Lock { .. } => Nanos(2 * LOCK_WAIT.0),
            Self::WaitEvents { .. } => EVENT_WAIT,
            Self::Invalidate { .. } => Nanos(PAGES_WAIT.0 + PAGES_DROPPED_AFTER.0),
            Self::Unlink { .. } | Self::Move { .. } => FREED_WITHIN,
            _ => Nanos::ZERO,
        }
    }
}
