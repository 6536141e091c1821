//! Sizes that the client computed last, for files whose inode size is not valid.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use weft_core::{ByteLen, FileId, RecordedLens};
use weft_wire::meta::CollectedSize;

/// Size of a file that was just truncated to nothing.
pub(crate) const EMPTY: CollectedSize =
    CollectedSize { size: ByteLen(0), blocks_512: 0, mtime: None, lens: RecordedLens::NONE };

/// Most files whose last computed size the client remembers.
const SIZES_MAX: usize = 1024;

/// Sizes of files whose inode size is not valid, as this client computed them last. Shown while a data server cannot
/// be asked.
#[derive(Default)]
pub(crate) struct LastSizes(Mutex<BTreeMap<FileId, CollectedSize>>);

impl LastSizes {
    pub(crate) fn keep(&self, file: FileId, found: CollectedSize) {
        let mut sizes = self.0.lock();
        sizes.insert(file, found);
        if sizes.len() > SIZES_MAX {
            // Older files have lower ids.
            sizes.pop_first();
        }
    }

    pub(crate) fn last(&self, file: FileId) -> CollectedSize {
        self.0.lock().get(&file).cloned().unwrap_or(EMPTY)
    }
}
