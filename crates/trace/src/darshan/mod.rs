//! Darshan logs, read by Darshan's own library in a process of its own; see docs/decisions/darshan.md.

mod counters;
pub mod dxt;
mod helper;
mod library;
mod reconstruct;
pub mod sandbox;
mod serve;

pub use counters::{Counters, FILES_MAX, FileCounters, LogSummary, ModuleInfo, SIZE_CLASSES};
pub use helper::{Helper, open, summary};
pub use serve::{Mode, serve};

/// Darshan's magic number at byte 8 of a log, in the byte order of the machine that wrote it.
const MAGIC: i64 = 6_567_223;

/// Whether a file that begins so is a log of Darshan 3.
pub fn is_log(begin: &[u8]) -> bool {
    begin.starts_with(b"3.") && swapped(begin).is_some()
}

/// Whether the log was written in the other byte order; `None` when it is no log.
pub(crate) fn swapped(begin: &[u8]) -> Option<bool> {
    let magic = i64::from_ne_bytes(*begin.get(8..)?.first_chunk()?);
    match magic {
        MAGIC => Some(false),
        other if other.swap_bytes() == MAGIC => Some(true),
        _ => None,
    }
}
