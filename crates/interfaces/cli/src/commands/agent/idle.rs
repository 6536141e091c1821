//! Whether a device is idle. Pure: two samples of its counters go in, a decision comes out.

use std::time::Duration;

/// Average number of queued requests, times 10, up to which a device counts as idle. A single request that passed
/// between two samples does not stop the copy.
const QUEUE_DEPTH_X10_MAX: u64 = 1;
/// Time between two samples.
pub const SAMPLE_INTERVAL: Duration = Duration::from_millis(50);
/// Pause after the first samples that show a busy device.
const PAUSE_MIN: Duration = Duration::from_millis(100);
/// Longest pause. A device that becomes idle is noticed within this time.
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Counters of a block device, or the sums of several.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Sample {
    /// Requests that the device has not completed.
    pub in_flight: u64,
    /// Sum over all requests so far of the time that each was queued or served, in milliseconds.
    pub queue_ms: u64,
}

impl Sample {
    /// Reads a `stat` file of `/sys/dev/block`.
    pub fn parse(stat: &str) -> Option<Self> {
        let mut fields = stat.split_ascii_whitespace().skip(8).map(str::parse);
        let mut next = || fields.next()?.ok();
        let (in_flight, _busy_ms, queue_ms) = (next()?, next()?, next()?);
        Some(Self { in_flight, queue_ms })
    }

    /// Adds the counters of another device.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            in_flight: self.in_flight.saturating_add(other.in_flight),
            queue_ms: self.queue_ms.saturating_add(other.queue_ms),
        }
    }
}

/// Whether a device was idle between two samples. The agent has no requests of its own queued meanwhile.
pub fn is_idle(before: Sample, after: Sample, between: Duration) -> bool {
    // Counters of some kernels wrap.
    let Some(queued_ms) = after.queue_ms.checked_sub(before.queue_ms) else { return false };
    let between_ms = u64::try_from(between.as_millis()).unwrap_or(u64::MAX);
    after.in_flight == 0 && queued_ms.saturating_mul(10) <= between_ms.saturating_mul(QUEUE_DEPTH_X10_MAX)
}

/// Returns the pause before the next samples, after `last` if the device was busy before.
pub fn pause(last: Option<Duration>) -> Duration {
    last.map_or(PAUSE_MIN, |last| last.saturating_mul(2).min(PAUSE_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(in_flight: u64, queue_ms: u64) -> Sample {
        Sample { in_flight, queue_ms }
    }

    #[test]
    fn counters_are_those_of_the_kernel() {
        let stat = "  446216   784926  9550688  4382310  1442 0 11 5   3   75612  4386190  0 0 0 0 9 9\n";
        assert_eq!(Sample::parse(stat), Some(sample(3, 4_386_190)));
        assert_eq!(Sample::parse("1 2 3"), None);
        assert_eq!(Sample::parse("1 2 3 4 5 6 7 8 x 10 11"), None);
    }

    #[test]
    fn a_device_without_requests_is_idle() {
        let between = Duration::from_millis(50);
        assert!(is_idle(sample(0, 100), sample(0, 100), between));
        // One request of 5 ms has passed.
        assert!(is_idle(sample(1, 100), sample(0, 105), between));
        assert!(!is_idle(sample(0, 100), sample(0, 106), between));
    }

    #[test]
    fn queued_requests_and_busy_intervals_are_not_idle() {
        let between = Duration::from_millis(50);
        assert!(!is_idle(sample(0, 100), sample(1, 100), between), "a request has arrived");
        assert!(!is_idle(sample(2, 100), sample(0, 200), between), "two requests were queued all the time");
        assert!(!is_idle(sample(0, 100), sample(0, 5), between), "the counter has wrapped");
        assert!(!is_idle(sample(0, 0), sample(0, u64::MAX), between));
    }

    #[test]
    fn pauses_grow_up_to_a_bound() {
        let mut pauses = vec![pause(None)];
        for _ in 0..6 {
            pauses.push(pause(pauses.last().copied()));
        }
        let pauses: Vec<u128> = pauses.iter().map(Duration::as_millis).collect();
        assert_eq!(pauses, [100, 200, 400, 800, 1600, 2000, 2000]);
    }

    #[test]
    fn counters_of_several_devices_add_up() {
        assert_eq!(sample(1, 10).plus(sample(2, 5)), sample(3, 15));
    }
}
