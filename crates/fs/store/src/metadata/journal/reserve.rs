//! Space reserved for a full device.
//!
//! A checkpoint that fails for lack of space stops all changes, removals included. The file `reserve` therefore holds
//! back some space. When a checkpoint finds the device full, the file is truncated, and the database is *low*: it
//! still works, but the service accepts no more requests that make it larger. When enough space is free, the file is
//! allocated again.

use super::Blocking;
use crate::metadata::engine::EngineError;
use std::sync::atomic::{AtomicBool, Ordering};
use weft_core::ByteLen;
use weft_env::{BlockingFile, Dir, Env};

/// The file takes at most this fraction of the device.
const DEVICE_DIVISOR: u64 = 16;

/// Free space below which a start does not keep the reserve: the base may grow when it is opened.
const START_FREE_MIN: ByteLen = ByteLen::from_mib(1);

/// The file `reserve` and its state.
pub(super) struct Reserve<E: Env> {
    /// `None` if there was no space even for its name.
    file: Option<Blocking<E>>,
    dir: E::Dir,
    len_min: ByteLen,
    len_max: ByteLen,
    low: AtomicBool,
}

impl<E: Env> Reserve<E> {
    /// Creates a reserve of `len_min` to `len_max` bytes, both limited by the size of the device. Uses an existing
    /// file; allocates nothing yet.
    pub(super) async fn new(
        file: Option<Blocking<E>>,
        dir: E::Dir,
        len_min: ByteLen,
        len_max: ByteLen,
    ) -> Self {
        let part = dir.space().await.map_or(u64::MAX, |space| space.total.0 / DEVICE_DIVISOR);
        let at_most = |len: ByteLen| ByteLen(len.0.min(part));
        Self { file, dir, len_min: at_most(len_min), len_max: at_most(len_max), low: AtomicBool::new(true) }
    }

    /// Returns true if the space was released or could not be allocated.
    pub(super) fn is_low(&self) -> bool {
        self.low.load(Ordering::Relaxed)
    }

    fn current_len(&self) -> ByteLen {
        self.file.as_ref().and_then(|file| file.len().ok()).unwrap_or(ByteLen(0))
    }

    /// Releases the reserved space if the device has next to none left, so that the base can be opened.
    pub(super) async fn release_if_full(&self) {
        let free = self.dir.space().await.map_or(ByteLen(u64::MAX), |space| space.free);
        if free < START_FREE_MIN
            && self.current_len() > ByteLen(0)
            && let Some(file) = &self.file
        {
            let _ = file.set_len(ByteLen(0)).and_then(|()| file.sync());
        }
    }

    /// Returns true if a checkpoint with this result should be repeated: the device was full, and the reserved space
    /// has been released.
    pub(super) fn release_for_retry<T>(&self, result: &Result<T, EngineError>) -> bool {
        if !matches!(result, Err(EngineError::Full { .. })) {
            return false;
        }
        self.low.store(true, Ordering::Relaxed);
        let Some(file) = self.file.as_ref().filter(|_| self.current_len() > ByteLen(0)) else { return false };
        // Some file systems free space only after a sync.
        file.set_len(ByteLen(0)).and_then(|()| file.sync()).is_ok()
    }

    /// Allocates the reserve, up to half of the free space, so that it does not fill the device for others.
    pub(super) async fn allocate(&self) {
        let Some(file) = &self.file else { return };
        let current = self.current_len();
        let made = current >= self.len_max || {
            let free = self.dir.space().await.map_or(0, |space| space.free.0);
            let len = ByteLen(self.len_max.0.min(free.saturating_add(current.0) / 2));
            len >= self.len_min && file.allocate(len.max(current)).is_ok()
        };
        if !made && current > ByteLen(0) {
            // A partial reserve is useless.
            let _ = file.set_len(ByteLen(0));
        }
        file.wait_for_device().await;
        self.low.store(!made, Ordering::Relaxed);
    }
}
