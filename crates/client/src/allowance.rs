//! The time that one operation may wait for servers: over all of its attempts, connections and greetings together.

use weft_core::Nanos;
use weft_env::{Conn, Env};
use weft_wire::Link;

/// Least time that a server is given once the allowance is used up: for a reply that has arrived already.
const LEAST: Nanos = Nanos::from_ms(50);

/// The time of one operation. Costs a look at the coarse clock, and more only when something goes wrong.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowance {
    /// On the clock of [`Env::tick`].
    began: Nanos,
    total: Nanos,
}

impl Allowance {
    /// Begins now.
    #[inline]
    pub(crate) fn begin<E: Env>(env: &E, total: Nanos) -> Self {
        Self { began: env.tick(), total }
    }

    /// What is left of it, never nothing.
    pub(crate) fn left<E: Env>(&self, env: &E) -> Nanos {
        self.total.saturating_sub(env.tick().saturating_sub(self.began)).max(LEAST)
    }

    /// Whether it is used up.
    pub(crate) fn is_over<E: Env>(&self, env: &E) -> bool {
        self.left(env) == LEAST
    }

    /// Lets each send and receive on `link` wait for no longer than what is left.
    pub(crate) fn limit<E: Env, C: Conn>(&self, env: &E, link: &mut Link<C>) -> std::io::Result<()> {
        link.conn().set_timeout(Some(self.left(env)))
    }
}
