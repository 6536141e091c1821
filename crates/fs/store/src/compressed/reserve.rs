//! Space that a target holds back for maps on a full device.
//!
//! A datafile shrinks by records of its map, and a map that a killed process left needs a checkpoint before the first of
//! them. Both take space. The file `reserve` of the target therefore keeps some allocated. On a full device it is shortened
//! by what one checkpoint or frame needs, and that is written at once. When there is space again, it is allocated again.

use crate::range_lock::RangeLocks;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use weft_core::ByteLen;
use weft_env::{BlockingFile, Dir, Env, File, OpenMode};

/// Name of the file.
const NAME: &str = "reserve";
/// Maximum length in bytes: a checkpoint of 100,000 chunks.
const LEN_MAX: u64 = 4 << 20;
/// The file takes at most this fraction of the device.
const DEVICE_DIVISOR: u64 = 64;
/// Length in bytes of a block of common file systems.
const BLOCK_BYTES: u64 = 4096;
/// Number of blocks released in addition, for what the file system itself needs.
const MORE_BLOCKS: u64 = 2;

/// The reserve of a target.
pub(crate) struct MapReserve<E: Env> {
    dir: E::Dir,
    /// Locked while the file is changed.
    changes: RangeLocks<E>,
    /// True if nothing has been released since it was allocated in full.
    is_whole: AtomicBool,
    /// True if something has been released, and it could not be allocated in full since.
    is_used: AtomicBool,
}

impl<E: Env> MapReserve<E> {
    /// Returns the reserve of the target in `dir`. Allocates nothing yet.
    pub fn new(env: &E, dir: &E::Dir) -> Self {
        Self {
            dir: dir.clone(),
            changes: RangeLocks::new(env),
            is_whole: AtomicBool::new(false),
            is_used: AtomicBool::new(false),
        }
    }

    /// Returns true if the device is, or was a moment ago, so full that the reserve was used.
    pub fn is_used(&self) -> bool {
        self.is_used.load(Ordering::Relaxed)
    }

    /// Allocates the reserve, up to half of the free space. Does nothing if it is whole. Errors are left to a later call.
    pub async fn allocate(&self) {
        if !self.is_whole.load(Ordering::Relaxed) {
            let _ = self.try_allocate().await;
        }
    }

    async fn try_allocate(&self) -> io::Result<()> {
        let _guard = self.changes.lock(0, 1).await;
        let file = self.dir.open(NAME, OpenMode::CREATE).await?.blocking();
        let current = file.len()?.0;
        let space = self.dir.space().await?;
        let wanted = LEN_MAX.min(space.total.0 / DEVICE_DIVISOR);
        let len = wanted.min(space.free.0.saturating_add(current) / 2) / BLOCK_BYTES * BLOCK_BYTES;
        if len > current && file.allocate(ByteLen(len)).is_err() {
            file.set_len(ByteLen(current))?;
            return Ok(());
        }
        if len.max(current) + BLOCK_BYTES > wanted {
            self.is_whole.store(true, Ordering::Relaxed);
            self.is_used.store(false, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Releases space for `bytes` more, which the caller writes at once. Returns false if nothing is left.
    pub async fn release(&self, bytes: usize) -> bool {
        self.try_release(bytes as u64).await.unwrap_or(false)
    }

    async fn try_release(&self, bytes: u64) -> io::Result<bool> {
        let _guard = self.changes.lock(0, 1).await;
        let file = self.dir.open(NAME, OpenMode::WRITE).await?.blocking();
        let len = file.len()?.0;
        if len == 0 {
            return Ok(false);
        }
        self.is_whole.store(false, Ordering::Relaxed);
        self.is_used.store(true, Ordering::Relaxed);
        let needed = (bytes.div_ceil(BLOCK_BYTES) + MORE_BLOCKS) * BLOCK_BYTES;
        file.set_len(ByteLen(len.saturating_sub(needed) / BLOCK_BYTES * BLOCK_BYTES))?;
        // Some file systems free space only after a sync.
        file.sync()?;
        Ok(true)
    }
}
