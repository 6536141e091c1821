//! Whether disks are idle, so that background copies do not delay programs.
//!
//! A copy syncs its own bytes, takes two samples of the disks' counters while it has no requests itself, and continues
//! if others have none either.

use crate::core::Core;
use crate::deadline::Deadline;
use std::collections::{BTreeMap, BTreeSet};
use weft_core::{DeviceLoad, Layout, Nanos, ServerId, TargetId};
use weft_env::Env;
use weft_wire::status::TargetStatus;

/// Average number of queued requests, times 10, up to which a disk counts as idle. A single request that passed between
/// two samples does not stop a copy.
const QUEUE_DEPTH_X10_MAX: u64 = 1;
/// Time between two samples.
pub const SAMPLE_INTERVAL: Nanos = Nanos::from_ms(50);
/// Pause after the first samples that show a busy disk.
const PAUSE_MIN: Nanos = Nanos::from_ms(100);
/// Longest pause. A disk that becomes idle is noticed within this time.
const PAUSE_MAX: Nanos = Nanos::from_s(2);
/// Longest wait for the samples of one server. The copy itself reports a server that does not answer.
const SAMPLE_TIMEOUT: Nanos = Nanos::from_s(2);
/// Requests to a target between two samples up to which it counts as idle, if its disk has no counters.
const REQUESTS_MAX: u64 = 1;

/// Whether a disk was idle between two samples. The copy has no requests of its own queued meanwhile.
pub fn is_idle(before: DeviceLoad, after: DeviceLoad, between: Nanos) -> bool {
    // Counters of some kernels wrap.
    let Some(queued_ms) = after.queued_ms.checked_sub(before.queued_ms) else { return false };
    let between_ms = between.0 / 1_000_000;
    after.in_flight == 0 && queued_ms.saturating_mul(10) <= between_ms.saturating_mul(QUEUE_DEPTH_X10_MAX)
}

/// Pauses between samples while a disk is busy.
#[derive(Default, Debug)]
pub struct Pauses(Option<Nanos>);

impl Pauses {
    /// Returns the next pause: twice as long as the last one, up to a bound.
    pub fn next_pause(&mut self) -> Nanos {
        *self.0.insert(self.0.map_or(PAUSE_MIN, |last| Nanos(last.0.saturating_mul(2)).min(PAUSE_MAX)))
    }
}

/// Load of a target at one time.
#[derive(Clone, Copy, Debug)]
struct TargetLoad {
    /// Counters of its disk, if its server has them. They include requests that did not come through the server.
    disk: Option<DeviceLoad>,
    /// Requests that run or wait at the server.
    queue: u32,
    /// Requests that the server has served since its start.
    requests: u64,
}

impl TargetLoad {
    fn of(status: &TargetStatus) -> Self {
        Self { disk: status.disk, queue: status.queue, requests: status.requests }
    }

    fn is_idle(before: Self, after: Self, between: Nanos) -> bool {
        let is_disk_idle = match (before.disk, after.disk) {
            (Some(before), Some(after)) => is_idle(before, after, between),
            // The server may have restarted.
            _ => after.requests.checked_sub(before.requests).is_some_and(|served| served <= REQUESTS_MAX),
        };
        after.queue == 0 && is_disk_idle
    }
}

/// Targets of layouts.
pub(crate) fn targets_of<'a>(layouts: impl IntoIterator<Item = &'a Layout>) -> BTreeSet<TargetId> {
    let components = layouts.into_iter().flat_map(Layout::components);
    components.flat_map(|component| component.strips.iter().map(|strip| strip.target)).collect()
}

impl<E: Env> Core<E> {
    /// Whether the disks of `targets` are idle. Takes [`SAMPLE_INTERVAL`]. Targets whose servers do not answer count as
    /// idle: the copy reports them.
    pub(crate) async fn are_idle(&self, targets: &BTreeSet<TargetId>) -> bool {
        let before = self.target_loads(targets).await;
        let begin = self.env.now();
        self.env.sleep(SAMPLE_INTERVAL).await;
        let between = self.env.now().saturating_sub(begin);
        let after = self.target_loads(targets).await;
        before.iter().all(|(target, before)| {
            after.get(target).is_none_or(|after| TargetLoad::is_idle(*before, *after, between))
        })
    }

    async fn target_loads(&self, targets: &BTreeSet<TargetId>) -> BTreeMap<TargetId, TargetLoad> {
        let servers: BTreeSet<ServerId> =
            targets.iter().filter_map(|target| self.route(*target).ok()).collect();
        let mut loads = BTreeMap::new();
        for server in servers {
            let Ok(status) = self.status_until(server, Deadline::begin(&self.env, SAMPLE_TIMEOUT)).await
            else {
                continue;
            };
            let wanted = status.targets.iter().filter(|status| targets.contains(&status.target));
            loads.extend(wanted.map(|status| (status.target, TargetLoad::of(status))));
        }
        loads
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(in_flight: u64, queued_ms: u64) -> DeviceLoad {
        DeviceLoad { in_flight, queued_ms, ..DeviceLoad::default() }
    }

    #[test]
    fn a_disk_without_requests_is_idle() {
        assert!(is_idle(load(0, 100), load(0, 100), SAMPLE_INTERVAL));
        // One request of 5 ms has passed.
        assert!(is_idle(load(1, 100), load(0, 105), SAMPLE_INTERVAL));
        assert!(!is_idle(load(0, 100), load(0, 106), SAMPLE_INTERVAL));
    }

    #[test]
    fn queued_requests_and_busy_intervals_are_not_idle() {
        assert!(!is_idle(load(0, 100), load(1, 100), SAMPLE_INTERVAL), "a request has arrived");
        assert!(
            !is_idle(load(2, 100), load(0, 200), SAMPLE_INTERVAL),
            "two requests were queued all the time"
        );
        assert!(!is_idle(load(0, 100), load(0, 5), SAMPLE_INTERVAL), "the counter has wrapped");
        assert!(!is_idle(load(0, 0), load(0, u64::MAX), SAMPLE_INTERVAL));
    }

    #[test]
    fn a_target_without_counters_of_its_disk_is_idle_without_requests() {
        let at = |queue, requests| TargetLoad { disk: None, queue, requests };
        let is_idle = |before, after| TargetLoad::is_idle(before, after, SAMPLE_INTERVAL);
        assert!(is_idle(at(0, 7), at(0, 7)));
        assert!(is_idle(at(1, 7), at(0, 8)), "one request has passed");
        assert!(!is_idle(at(0, 7), at(0, 9)));
        assert!(!is_idle(at(0, 7), at(1, 7)), "a request waits");
        assert!(!is_idle(at(0, 7), at(0, 0)), "the server has restarted");
        // A disk that is busy for others is not idle, although the server has no requests.
        let disk = |in_flight| TargetLoad { disk: Some(load(in_flight, 0)), queue: 0, requests: 0 };
        assert!(is_idle(disk(0), disk(0)) && !is_idle(disk(0), disk(1)));
    }

    #[test]
    fn pauses_grow_up_to_a_bound() {
        let mut pauses = Pauses::default();
        let pauses: Vec<Nanos> = (0..7).map(|_| pauses.next_pause()).collect();
        assert_eq!(pauses, [100, 200, 400, 800, 1600, 2000, 2000].map(Nanos::from_ms));
    }
}
