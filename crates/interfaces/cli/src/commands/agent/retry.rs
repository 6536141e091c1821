//! Times of further attempts. Pure.

use std::time::Duration;

/// Pause after the first failed attempt. Each further pause is [`GROWTH`] times as long.
pub const PAUSE: Duration = Duration::from_secs(10);
/// Factor between the pauses after two failed attempts: 10 s, 40 s, 160 s and 640 s.
const GROWTH: u32 = 4;

/// Returns the pause after this number of failed attempts.
pub fn pause(first: Duration, attempts: u32) -> Duration {
    first.saturating_mul(GROWTH.saturating_pow(attempts.saturating_sub(1)))
}

/// Returns how long an attempt at `retry_at_s` must wait. A clock that was set back does not delay it by more than
/// `pause_max`.
pub fn remaining(now_s: u64, retry_at_s: Option<u64>, pause_max: Duration) -> Duration {
    let wait = Duration::from_secs(retry_at_s.unwrap_or(0).saturating_sub(now_s));
    if wait > pause_max { Duration::ZERO } else { wait }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow() {
        let pauses: Vec<u64> = (1..5).map(|attempts| pause(PAUSE, attempts).as_secs()).collect();
        assert_eq!(pauses, [10, 40, 160, 640]);
        assert_eq!(pause(Duration::MAX, 9), Duration::MAX);
    }

    #[test]
    fn a_clock_that_was_set_back_delays_nothing() {
        let remaining = |now, at| remaining(now, at, Duration::from_secs(640)).as_secs();
        assert_eq!(remaining(1000, None), 0);
        assert_eq!(remaining(1000, Some(1010)), 10);
        assert_eq!(remaining(1010, Some(1010)), 0);
        assert_eq!(remaining(1020, Some(1010)), 0);
        assert_eq!(remaining(5, Some(1010)), 0);
    }
}
