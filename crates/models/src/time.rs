//! Arithmetic on times, all in nanoseconds.

/// Microseconds of a profile, in nanoseconds.
pub(crate) fn from_us(us: f64) -> u64 {
    (us * 1e3).round() as u64
}

/// The time of `bytes` at `mb_s` (10^6 bytes per second).
pub(crate) fn transfer(bytes: u64, mb_s: f64) -> u64 {
    (bytes as f64 * 1e3 / mb_s).round() as u64
}

/// The earlier of two times that may not come.
pub(crate) fn earliest(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (one, None) | (None, one) => one,
    }
}
