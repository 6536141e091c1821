//! Ranks wait for each other.

use parking_lot::Mutex;
use weft_core::Nanos;
use weft_env::sim::{SimEnv, SimNotify};
use weft_env::{Env, Notify};

/// A barrier of some ranks. Its cost is modelled, not simulated: message passing between ranks is none of Weft's.
pub(crate) struct Barrier {
    ranks: u32,
    cost: Nanos,
    here: Mutex<u32>,
    notify: SimNotify,
}

impl Barrier {
    pub(crate) fn new(env: &SimEnv, ranks: u32, cost: Nanos) -> Self {
        Self { ranks, cost, here: Mutex::new(0), notify: env.notify() }
    }

    /// Waits until all have come, and as long after that as the barrier costs.
    pub(crate) async fn wait(&self, env: &SimEnv) {
        let epoch = self.notify.epoch();
        let is_last = {
            let mut here = self.here.lock();
            *here = (*here + 1) % self.ranks;
            *here == 0
        };
        if is_last {
            self.notify.notify_all();
        } else {
            self.notify.wait(epoch, None).await;
        }
        if self.cost > Nanos::ZERO {
            env.sleep(self.cost).await;
        }
    }
}
