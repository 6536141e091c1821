//! Darshan logs, read by Darshan's own library in a sandboxed process.
//!
//! ```text
//! parent: helper.rs ──starts──► child: serve.rs ─► sandbox.rs ─► library.rs (libdarshan-util, C)
//!        ▲                         │
//!        └── stdout: JSON or .wtrace records; stderr: reason of a failure
//! ```
//!
//! The design is explained in docs/design/darshan.md.

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

/// Magic number at byte 8 of a log, in the byte order of the machine that wrote it.
const MAGIC: i64 = 6_567_223;

/// Whether `begin`, the first bytes of a file, belong to a Darshan 3 log.
pub fn is_log(begin: &[u8]) -> bool {
    begin.starts_with(b"3.") && swapped(begin).is_some()
}

/// Whether the log was written in the other byte order; `None` if it is not a log.
pub(crate) fn swapped(begin: &[u8]) -> Option<bool> {
    let magic = i64::from_ne_bytes(*begin.get(8..)?.first_chunk()?);
    match magic {
        MAGIC => Some(false),
        other if other.swap_bytes() == MAGIC => Some(true),
        _ => None,
    }
}
