//! Backoff of an operation that another client's move, truncation or fences delay.

use weft_core::Nanos;
use weft_env::Env;

/// First and longest pause between two attempts.
const PAUSE_MIN: Nanos = Nanos(500_000);
const PAUSE_MAX: Nanos = Nanos::from_ms(50);
/// Longest time that an operation pauses, all attempts together. Time in which a server did not answer is not counted. The metadata server ends or cancels the last step of a move within 10 s.
pub(crate) const WAIT_MAX: Nanos = Nanos::from_s(30);

/// Growing pauses between the attempts of one operation.
#[derive(Default)]
pub(crate) struct Backoff {
    paused: Nanos,
    pause: Nanos,
}

impl Backoff {
    /// Pauses before the next attempt. Returns false when the operation has waited long enough.
    pub(crate) async fn wait<E: Env>(&mut self, env: &E) -> bool {
        if self.paused >= WAIT_MAX {
            return false;
        }
        self.pause = Nanos(self.pause.0 * 2).clamp(PAUSE_MIN, PAUSE_MAX);
        self.paused = self.paused.saturating_add(self.pause);
        env.sleep(self.pause).await;
        true
    }
}
