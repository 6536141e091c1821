//! Parts of the local file system: space allocation, page cache and journal.

mod cache;
mod journal;
mod ranges;
mod space;

pub(crate) use cache::PageCache;
pub(crate) use journal::{Journal, Stage};
pub(crate) use ranges::Ranges;
pub(crate) use space::{Piece, Space};

use serde::{Deserialize, Serialize};

/// Bytes of a memory page and of a file system block.
pub(crate) const PAGE: u64 = 4096;

/// Parameters of the operating system above the block layer.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FilesSpec {
    /// Page cache in MiB. With 0, only dirty pages stay in memory.
    pub page_cache_mib: u64,
    /// Maximum read-ahead of sequential reads in KiB. Needs a page cache.
    pub read_ahead_kib: u64,
    /// Dirty memory in MiB at which buffered writes wait.
    pub dirty_limit_mib: u64,
    /// Dirty memory in MiB at which write-back starts.
    pub dirty_background_mib: u64,
    /// Age of dirty memory in milliseconds at which write-back starts.
    pub write_back_ms: f64,
    /// Speed of copies between caller and memory, in 10^6 bytes per second.
    pub copy_mb_s: f64,
    /// Fixed cost of a read, write or sync call in microseconds.
    pub call_us: f64,
    /// Cost of a lookup or change of a name in memory, in microseconds.
    pub name_us: f64,
    /// Number of 4 KiB blocks that a journal commit writes before its record. 0 is a file system without a journal,
    /// which writes two blocks in place instead.
    pub journal_blocks: u64,
    /// Whether commits and syncs flush the device's write cache.
    pub barrier: bool,
    /// Size of the journal in MiB.
    pub journal_mib: u64,
    /// Position of the journal as a fraction of the device.
    pub journal_at: f64,
    /// Maximum length in MiB of the extents that files are allocated in.
    pub stretch_mib: u64,
}

impl Default for FilesSpec {
    fn default() -> Self {
        Self {
            page_cache_mib: 0,
            read_ahead_kib: 0,
            dirty_limit_mib: 512,
            dirty_background_mib: 128,
            write_back_ms: 30_000.0,
            copy_mb_s: 5_000.0,
            call_us: 2.0,
            name_us: 4.0,
            journal_blocks: 4,
            barrier: true,
            journal_mib: 128,
            journal_at: 0.5,
            stretch_mib: 128,
        }
    }
}
