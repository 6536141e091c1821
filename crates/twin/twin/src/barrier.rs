//! Barrier between the ranks of a workload.

use crate::spec::ClusterSpec;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use weft_core::Nanos;
use weft_env::sim::{SimEnv, SimNotify};
use weft_env::{Env, Notify};
use weft_workload::Workload;

/// Barrier of a fixed number of ranks.
///
/// Its cost is a given time. The messages between ranks are not simulated because they do not use Weft.
pub(crate) struct Barrier {
    ranks: u32,
    cost: Nanos,
    arrived: Mutex<u32>,
    notify: SimNotify,
}

impl Barrier {
    pub(crate) fn new(env: &SimEnv, ranks: u32, cost: Nanos) -> Self {
        Self { ranks, cost, arrived: Mutex::new(0), notify: env.notify() }
    }

    /// Waits until all ranks have arrived, then for the cost of the barrier.
    pub(crate) async fn wait(&self, env: &SimEnv) {
        let epoch = self.notify.epoch();
        let is_last = {
            let mut arrived = self.arrived.lock();
            *arrived = (*arrived + 1) % self.ranks;
            *arrived == 0
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

/// Makes a barrier for each group of ranks, keyed by the group's first rank.
pub(crate) fn barriers(spec: &ClusterSpec, workload: &dyn Workload, env: &SimEnv) -> BTreeMap<u32, Barrier> {
    let mut barriers = BTreeMap::new();
    let mut rank = 0;
    while rank < workload.ranks() {
        let group = workload.group(rank);
        assert!(group.contains(&rank), "a rank is one of its own group");
        let ranks = group.end - group.start;
        barriers.insert(group.start, Barrier::new(env, ranks, spec.barrier_cost(ranks)));
        rank = group.end;
    }
    barriers
}
