//! The deadline of one operation: it covers all attempts, connections and greetings together.
//!
//! | deadline | for | total | tries to reach a server for |
//! | --- | --- | --- | --- |
//! | [`Deadline::of_request`] | what a program waits for | the longer of `request_timeout` and `retry_for` | `retry_for` |
//! | [`Deadline::brief`] | what has an answer without the server, such as the last known size | `request_timeout` | `retry_for`, at most [`BRIEF`] |
//! | [`Deadline::begin`] | one attempt to connect | as given | as given |

use crate::core::Core;
use weft_core::Nanos;
use weft_env::{Conn, Env};
use weft_wire::Link;

/// Shortest time-out, used after the deadline has passed: enough to receive a reply that has already arrived.
const TIMEOUT_MIN: Nanos = Nanos::from_ms(50);
/// Longest time for which a brief request tries to reach a server: a restart of the server passes unnoticed.
pub(crate) const BRIEF: Nanos = Nanos::from_s(5);

/// The deadline of one operation. It costs one read of the coarse clock, and more only when something fails.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    /// Start, on the clock of [`Env::tick`].
    began: Nanos,
    total: Nanos,
    /// Time for which the operation tries to reach a server that does not answer.
    pub(crate) retry_for: Nanos,
}

impl Deadline {
    /// Starts a deadline `total` from now.
    #[inline]
    pub(crate) fn begin<E: Env>(env: &E, total: Nanos) -> Self {
        Self { began: env.tick(), total, retry_for: total }
    }

    /// Starts the deadline of a request for which a program waits.
    #[inline]
    pub(crate) fn of_request<E: Env>(core: &Core<E>) -> Self {
        let options = &core.options;
        let total = options.request_timeout.max(options.retry_for);
        Self { began: core.env.tick(), total, retry_for: options.retry_for }
    }

    /// Starts the deadline of a request that has an answer without the server.
    pub(crate) fn brief<E: Env>(core: &Core<E>) -> Self {
        let options = &core.options;
        let retry_for = options.retry_for.min(BRIEF);
        Self { began: core.env.tick(), total: options.request_timeout, retry_for }
    }

    /// Starts the same deadline again.
    pub(crate) fn restart<E: Env>(&mut self, env: &E) {
        self.began = env.tick();
    }

    /// Returns whether the whole time is shorter than `other`.
    pub(crate) fn is_shorter_than(&self, other: Nanos) -> bool {
        self.total < other
    }

    /// Returns the time left, which is never zero.
    pub(crate) fn remaining<E: Env>(&self, env: &E) -> Nanos {
        self.total.saturating_sub(env.tick().saturating_sub(self.began)).max(TIMEOUT_MIN)
    }

    /// Returns whether the deadline has passed.
    pub(crate) fn has_passed<E: Env>(&self, env: &E) -> bool {
        self.remaining(env) == TIMEOUT_MIN
    }

    /// Limits each send and receive on `link` to the time left, and to `longest`.
    pub(crate) fn limit<E: Env, C: Conn>(
        &self,
        env: &E,
        link: &mut Link<C>,
        longest: Nanos,
    ) -> std::io::Result<()> {
        link.conn().set_timeout(Some(self.remaining(env).min(longest)))
    }
}
