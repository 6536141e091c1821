//! Attempts of one request: whether a lost connection to a server is worth another one.
//!
//! | failure of a connection | another attempt |
//! | --- | --- |
//! | no answer within the time-out | no: the server is marked as silent, because it would probably stay silent |
//! | any other, the deadline passed | no |
//! | any other, [`ATTEMPTS_MAX`] attempts made | no |
//! | any other | yes, over a fresh connection |

use crate::connection::{describe, is_timeout};
use crate::core::Core;
use crate::deadline::Deadline;
use crate::error::Error;
use crate::server::Server;
use std::io;
use weft_env::Env;

/// Attempts to send one request before the client gives up.
pub(crate) const ATTEMPTS_MAX: u32 = 4;

/// The attempts of one request, and the deadline for all of them.
#[derive(Clone, Copy)]
pub(crate) struct Attempts {
    /// Number of the current attempt, from 1.
    pub(crate) number: u32,
    pub(crate) deadline: Deadline,
}

impl Attempts {
    /// Begins the first attempt, with the time that the options allow a request.
    pub(crate) fn begin<E: Env>(core: &Core<E>) -> Self {
        Self::until(Deadline::begin(&core.env, core.options.request_timeout))
    }

    /// Begins the first attempt, with the time that is left until `deadline`.
    pub(crate) fn until(deadline: Deadline) -> Self {
        Self { number: 1, deadline }
    }

    /// Begins the only attempt.
    pub(crate) fn only_one(deadline: Deadline) -> Self {
        Self { number: ATTEMPTS_MAX, deadline }
    }

    /// Begins the next attempt after the connection to `server` failed with `error`.
    ///
    /// # Errors
    /// The error to report if another connection is not worth trying.
    pub(crate) fn after<E: Env>(
        &mut self,
        core: &Core<E>,
        server: &Server<E>,
        error: &io::Error,
    ) -> Result<(), Error> {
        if is_timeout(error) {
            return Err(server.mark_silent(core.env.now(), describe(error), core.options.dead_for));
        }
        if self.number >= ATTEMPTS_MAX || self.deadline.has_passed(&core.env) {
            return Err(server.unreachable(describe(error)));
        }
        self.number += 1;
        Ok(())
    }
}
