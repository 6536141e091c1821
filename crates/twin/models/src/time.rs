//! Time arithmetic in nanoseconds.

/// Converts microseconds of a profile to nanoseconds.
pub(crate) fn from_us(us: f64) -> u64 {
    (us * 1e3).round() as u64
}

/// Returns the time to transfer `bytes` at `mb_s` (10^6 bytes per second).
pub(crate) fn transfer(bytes: u64, mb_s: f64) -> u64 {
    (bytes as f64 * 1e3 / mb_s).round() as u64
}

/// Returns the earlier of two optional times.
pub(crate) fn earliest(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (one, None) | (None, one) => one,
    }
}
