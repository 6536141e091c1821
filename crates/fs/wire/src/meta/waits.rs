//! Maximum times for which the metadata service delays a reply while it waits for other clients.
//!
//! A client adds this time to its timeout for a reply. Otherwise it would close a healthy connection too early, and the
//! end of its last connection releases all its locks.

use super::MetaRequest;
use weft_core::Nanos;

/// Maximum wait of a request for a lock or a recall before the client repeats it. For locks it covers two waits: for the end of the grace period
/// after a start, and for the lock.
pub const LOCK_WAIT: Nanos = Nanos::from_ms(250);
/// Maximum wait of a request for events. It is short because a client detects a dead peer only when the wait
/// ends.
pub const EVENT_WAIT: Nanos = Nanos::from_s(2);
/// Maximum wait of a writer for mounts to drop pages.
pub const PAGES_WAIT: Nanos = Nanos::from_s(5);
/// Time after a restart of the service after which writers may assume that all mounts have dropped their pages. A mount
/// drops them when its connection to the service breaks, which it detects at once.
pub const PAGES_DROPPED_AFTER: Nanos = Nanos::from_s(1);

/// Time for which a mount may use leased names and attributes, from the moment that it sends the request. A change waits
/// until the mount has dropped them, or until this time is over.
pub const NAME_LEASE: Nanos = Nanos::from_s(1);

/// Time for which a client may use the bytes of an inline file that it got with its open, from the moment that it sends the
/// request. Changes through other open files wait until this one is closed, or until this time is over. Short, because changes wait for it;
/// long enough for a client that waits for a processor between reply and read.
pub const BYTE_LEASE: Nanos = Nanos::from_ms(5);

/// Maximum wait of a change of an inline file while another client copies the file.
pub const GROWTH_WAIT: Nanos = Nanos::from_s(10);
/// Maximum wait of an unlink until the space of a large file is freed.
pub const FREED_WITHIN: Nanos = Nanos::from_s(2);

impl MetaRequest {
    /// Returns the maximum time for which the service delays its reply to this request.
    pub const fn wait_max(&self) -> Nanos {
        // After a restart, the leases of the previous start end first.
        let names = if self.may_change_leased_names() { 2 * NAME_LEASE.0 } else { 0 };
        Nanos(self.usual_wait().0 + names)
    }

    /// Whether the service usually answers this request without waiting for anything but its own disk.
    pub const fn is_answered_at_once(&self) -> bool {
        self.usual_wait().0 == 0
    }

    const fn may_change_leased_names(&self) -> bool {
        use MetaRequest as R;
        matches!(
            self,
            R::Mkdir { .. }
                | R::Mknod { .. }
                | R::Symlink { .. }
                | R::Link { .. }
                | R::Unlink { .. }
                | R::Rmdir { .. }
                | R::Rename { .. }
                | R::SetAttr { .. }
                | R::SetXattr { .. }
                | R::RemoveXattr { .. }
                | R::ChangeRules { .. }
                | R::SetLayout { .. }
                | R::CheckNamespace { .. }
                | R::Open { .. }
                | R::Adopt { .. }
                | R::Truncate { .. }
                | R::ValidateSize { .. }
                | R::WriteInline { .. }
                | R::Grow { .. }
                | R::Grown { .. }
                | R::Close { .. }
        )
    }

    const fn usual_wait(&self) -> Nanos {
        match self {
            Self::Lock { .. } => Nanos(2 * LOCK_WAIT.0),
            Self::AwaitRecall { .. } => LOCK_WAIT,
            Self::WaitEvents { .. } => EVENT_WAIT,
            Self::Invalidate { .. } => Nanos(PAGES_WAIT.0 + PAGES_DROPPED_AFTER.0),
            Self::WriteInline { .. } | Self::Grow { .. } => GROWTH_WAIT,
            Self::Unlink { .. } | Self::BeginMove { .. } => FREED_WITHIN,
            _ => Nanos::ZERO,
        }
    }
}
