//! The deadline of one operation: it covers all attempts, connections and greetings together.

use weft_core::Nanos;
use weft_env::{Conn, Env};
use weft_wire::Link;

/// Shortest time-out, used after the deadline has passed: enough to receive a reply that has already arrived.
const TIMEOUT_MIN: Nanos = Nanos::from_ms(50);

/// The deadline of one operation. It costs one read of the coarse clock, and more only when something fails.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    /// Start, on the clock of [`Env::tick`].
    began: Nanos,
    total: Nanos,
}

impl Deadline {
    /// Starts a deadline `total` from now.
    #[inline]
    pub(crate) fn begin<E: Env>(env: &E, total: Nanos) -> Self {
        Self { began: env.tick(), total }
    }

    /// Returns the time left, which is never zero.
    pub(crate) fn remaining<E: Env>(&self, env: &E) -> Nanos {
        self.total.saturating_sub(env.tick().saturating_sub(self.began)).max(TIMEOUT_MIN)
    }

    /// Returns whether the deadline has passed.
    pub(crate) fn has_passed<E: Env>(&self, env: &E) -> bool {
        self.remaining(env) == TIMEOUT_MIN
    }

    /// Limits each send and receive on `link` to the time left.
    pub(crate) fn limit<E: Env, C: Conn>(&self, env: &E, link: &mut Link<C>) -> std::io::Result<()> {
        link.conn().set_timeout(Some(self.remaining(env)))
    }
}
