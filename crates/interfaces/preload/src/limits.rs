//! The process's limit on file sizes (`RLIMIT_FSIZE`), applied as the kernel applies it to its own files.
//!
//! The limit is queried once, and again after `setrlimit` and `prlimit`. A change by another process (`prlimit --pid`)
//! is not detected.

use crate::errno::{Fail, Res};
use crate::sys;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// Not queried yet.
const UNKNOWN: u64 = u64::MAX - 1;
/// No limit.
const NONE: u64 = u64::MAX;

static FILE_SIZE: AtomicU64 = AtomicU64::new(UNKNOWN);

/// Returns the maximum size of a file in bytes; `None` without a limit.
#[inline]
pub fn file_size() -> Option<u64> {
    match FILE_SIZE.load(SeqCst) {
        NONE => None,
        UNKNOWN => ask(),
        limit => Some(limit),
    }
}

/// Queries the kernel, and repeats if the limit may have changed meanwhile.
#[cold]
fn ask() -> Option<u64> {
    loop {
        let limit = sys::file_size_limit();
        FILE_SIZE.store(limit.unwrap_or(NONE).min(if limit.is_some() { UNKNOWN - 1 } else { NONE }), SeqCst);
        if sys::file_size_limit() == limit {
            return limit;
        }
    }
}

/// Records that the limit may have changed.
pub fn changed() {
    FILE_SIZE.store(UNKNOWN, SeqCst);
}

/// Returns how many of `wanted` bytes may be written at `offset`.
pub fn writable_len(offset: u64, wanted: usize) -> Res<usize> {
    let Some(limit) = file_size() else { return Ok(wanted) };
    match limit.checked_sub(offset) {
        _ if wanted == 0 => Ok(0),
        None | Some(0) => Err(Fail::BeyondLimit),
        Some(left) => Ok(usize::try_from(left).unwrap_or(usize::MAX).min(wanted)),
    }
}

/// Checks whether a file of `size()` bytes may get the length `wanted`. Shrinking is always allowed.
pub fn may_become(wanted: u64, size: impl FnOnce() -> Res<u64>) -> Res<()> {
    match file_size() {
        Some(limit) if wanted > limit && size()? < wanted => Err(Fail::BeyondLimit),
        _ => Ok(()),
    }
}
