//! The local file system between requests for files and a device: where files lie, what memory holds, the journal.

mod cache;
mod journal;
mod ranges;
mod space;

pub(crate) use cache::PageCache;
pub(crate) use journal::{Journal, Stage};
pub(crate) use ranges::Ranges;
pub(crate) use space::{Piece, Space};

use serde::{Deserialize, Serialize};

/// Bytes of a page of memory and of a block of the file system.
pub(crate) const PAGE: u64 = 4096;

/// The figures of the system between requests and the block layer.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FilesSpec {
    /// Memory for pages of files that have been read or written, MiB; 0 keeps none but what is not written back yet.
    pub page_cache_mib: u64,
    /// What is read ahead of a file that is read in order, KiB at most; needs a page cache.
    pub read_ahead_kib: u64,
    /// Buffered writes wait when so much is not written back, MiB.
    pub dirty_limit_mib: u64,
    /// From here on it is written back, MiB.
    pub dirty_background_mib: u64,
    /// What has waited so long is written back, milliseconds.
    pub write_back_ms: f64,
    /// Copying between a caller and memory, 10^6 bytes per second.
    pub copy_mb_s: f64,
    /// What a call for reading, writing or syncing costs beside, microseconds.
    pub call_us: f64,
    /// Looking up or changing a name in memory, microseconds.
    pub name_us: f64,
    /// Blocks of 4 KiB that a commit of the journal writes before its record; 0 is a file system without a journal,
    /// which writes two blocks in place instead.
    pub journal_blocks: u64,
    /// Commits and syncs wait until the device's memory is on the medium.
    pub barrier: bool,
    /// Size of the journal, MiB.
    pub journal_mib: u64,
    /// Where the journal lies, as a part of the device.
    pub journal_at: f64,
    /// The stretches in which files get room, MiB at most.
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
