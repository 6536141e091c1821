//! Attempts of one request: whether a lost connection to a server is worth another one.
//!
//! | failure of a connection | another attempt |
//! | --- | --- |
//! | any, the deadline passed | no; after a time-out the server is marked as silent, because it would probably stay silent |
//! | no answer within the time-out | yes, over a fresh connection: the server then ends the former one before it serves the request again |
//! | any other, [`ATTEMPTS_MAX`] attempts made within [`ATTEMPTS_WITHIN`] | no: the request itself may be the cause |
//! | any other | yes, over a fresh connection |

use crate::connection::{describe, is_timeout};
use crate::core::Core;
use crate::deadline::Deadline;
use crate::error::Error;
use crate::server::Server;
use std::io;
use weft_core::Nanos;
use weft_env::Env;

/// Attempts to send one request, in quick succession, before the client gives up.
pub(crate) const ATTEMPTS_MAX: u32 = 4;
/// Time within which that many lost connections count.
const ATTEMPTS_WITHIN: Nanos = Nanos::from_s(10);

/// The attempts of one request, and the deadline for all of them.
#[derive(Clone, Copy)]
pub(crate) struct Attempts {
    /// Number of the current attempt, from 1.
    pub(crate) number: u32,
    pub(crate) deadline: Deadline,
    /// Number of connections lost since `counted_from`.
    lost: u32,
    /// Start of the time in which lost connections are counted, on the clock of [`Env::tick`].
    counted_from: Nanos,
    is_only_one: bool,
}

impl Attempts {
    /// Begins the first attempt of a request for which a program waits.
    pub(crate) fn begin<E: Env>(core: &Core<E>) -> Self {
        Self::until(core, Deadline::of_request(core))
    }

    /// Begins the first attempt, with the time that is left until `deadline`.
    pub(crate) fn until<E: Env>(core: &Core<E>, deadline: Deadline) -> Self {
        Self { number: 1, deadline, lost: 0, counted_from: core.env.tick(), is_only_one: false }
    }

    /// Begins the only attempt.
    pub(crate) fn only_one<E: Env>(core: &Core<E>, deadline: Deadline) -> Self {
        Self { is_only_one: true, ..Self::until(core, deadline) }
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
        let is_over = self.is_only_one || self.deadline.has_passed(&core.env);
        if is_timeout(error) {
            let at = (core.env.now(), core.options.request_timeout);
            if is_over {
                let retry_for = self.deadline.retry_for;
                return Err(server.mark_silent(at, describe(error), core.options.dead_for, retry_for));
            }
            server.mark_silent_but_awaited(at, describe(error));
        } else {
            let tick = core.env.tick();
            if tick.saturating_sub(self.counted_from) > ATTEMPTS_WITHIN {
                (self.counted_from, self.lost) = (tick, 0);
            }
            self.lost += 1;
            if is_over || self.lost >= ATTEMPTS_MAX {
                return Err(server.unreachable(describe(error)));
            }
        }
        self.number += 1;
        Ok(())
    }
}
