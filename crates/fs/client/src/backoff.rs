//! Backoff of an operation that another client's move, truncation or fence delays.

use weft_core::Nanos;
use weft_env::Env;

/// First and longest pause between two attempts.
const PAUSE_MIN: Nanos = Nanos(500_000);
const PAUSE_MAX: Nanos = Nanos::from_ms(50);
/// Longest time that an operation waits. The metadata server ends or cancels the last step of a move within 10 s.
pub(crate) const WAIT_MAX: Nanos = Nanos::from_s(30);
/// Longest time that a client waits for a fence.
const FENCE_WAIT_MAX: Nanos = Nanos::from_s(300);

/// Growing pauses between the attempts of one operation.
pub(crate) struct Backoff {
    wait_max: Nanos,
    until: Option<Nanos>,
    pause: Nanos,
}

impl Default for Backoff {
    fn default() -> Self {
        Self::up_to(WAIT_MAX)
    }
}

impl Backoff {
    /// Backoff of a client that asks for a fence or seal: 300 s.
    ///
    /// The metadata server grants a file about one fence a second and keeps no queue, so a client can lose to others for
    /// longer than [`WAIT_MAX`]. A truncation that gives up after its first fences would end half done.
    pub(crate) const fn for_fence() -> Self {
        Self::up_to(FENCE_WAIT_MAX)
    }

    const fn up_to(wait_max: Nanos) -> Self {
        Self { wait_max, until: None, pause: Nanos::ZERO }
    }

    /// Pauses before the next attempt. Returns false when the operation has waited long enough.
    pub(crate) async fn wait<E: Env>(&mut self, env: &E) -> bool {
        let now = env.now();
        if now >= *self.until.get_or_insert(now.saturating_add(self.wait_max)) {
            return false;
        }
        self.pause = Nanos(self.pause.0 * 2).clamp(PAUSE_MIN, PAUSE_MAX);
        env.sleep(self.pause).await;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_env::sim::Sim;

    /// Time after which a backoff gives up.
    fn waits(backoff: impl Fn() -> Backoff) -> Nanos {
        let mut sim = Sim::with_seed(1);
        let env = sim.node("client");
        let inside = env.clone();
        sim.block_on(&env, async move {
            let (began, mut backoff) = (inside.now(), backoff());
            while backoff.wait(&inside).await {}
            inside.now().saturating_sub(began)
        })
    }

    #[test]
    fn only_fences_are_awaited_for_longer_than_a_move() {
        let (usual, fence) = (waits(Backoff::default), waits(Backoff::for_fence));
        assert!(usual >= Nanos::from_s(30) && usual < Nanos::from_s(31), "{usual:?}");
        assert!(fence >= Nanos::from_s(300) && fence < Nanos::from_s(301), "{fence:?}");
    }
}
