//! Room set aside for a full device.
//!
//! A base that cannot be brought up stops all changes, removals too. So a file keeps some room from the others on the device.
//! When the base finds none it takes that room, and the database is *low*: it still does everything, but the service asks
//! for nothing any more that makes it larger. When there is room for the file again it is made again, and all goes on.

use super::Blocking;
use crate::metadata::engine::EngineError;
use std::sync::atomic::{AtomicBool, Ordering};
use weft_core::ByteLen;
use weft_env::{BlockingFile, Dir, Env};

/// The file takes no more than this part of the device.
const DEVICE_PART: u64 = 16;

/// The file, and whether it is there.
pub(super) struct Reserve<E: Env> {
    /// `None` where not even its name found room.
    file: Option<Blocking<E>>,
    dir: E::Dir,
    len_min: ByteLen,
    len_max: ByteLen,
    low: AtomicBool,
}

impl<E: Env> Reserve<E> {
    /// Of up to `len_max` bytes; with fewer than `len_min` it is of no use, unless the device is very small. What there is
    /// of it counts, but nothing is made yet.
    pub(super) async fn new(
        file: Option<Blocking<E>>,
        dir: E::Dir,
        len_min: ByteLen,
        len_max: ByteLen,
    ) -> Self {
        let part = dir.space().await.map_or(u64::MAX, |space| space.total.0 / DEVICE_PART);
        let at_most = |len: ByteLen| ByteLen(len.0.min(part));
        Self { file, dir, len_min: at_most(len_min), len_max: at_most(len_max), low: AtomicBool::new(true) }
    }

    /// Whether its room has been needed, or could not be had.
    pub(super) fn is_low(&self) -> bool {
        self.low.load(Ordering::Relaxed)
    }

    fn there(&self) -> ByteLen {
        self.file.as_ref().and_then(|file| file.len().ok()).unwrap_or(ByteLen(0))
    }

    /// After `result` of bringing the base up: whether it is worth another attempt, because the device was full and the
    /// room of this has been given up.
    pub(super) fn helps<T>(&self, result: &Result<T, EngineError>) -> bool {
        if !matches!(result, Err(EngineError::Full { .. })) {
            return false;
        }
        self.low.store(true, Ordering::Relaxed);
        let Some(file) = self.file.as_ref().filter(|_| self.there() > ByteLen(0)) else { return false };
        // Some file systems free room only when that is on the device.
        file.set_len(ByteLen(0)).and_then(|()| file.sync()).is_ok()
    }

    /// Makes it again, of half the room that there is: others should not find the device full because of it.
    pub(super) async fn make(&self) {
        let Some(file) = &self.file else { return };
        let there = self.there();
        let made = there >= self.len_max || {
            let free = self.dir.space().await.map_or(0, |space| space.free.0);
            let len = ByteLen(self.len_max.0.min(free.saturating_add(there.0) / 2));
            len >= self.len_min && file.allocate(len.max(there)).is_ok()
        };
        if !made && there > ByteLen(0) {
            // A part of it is of no use to anybody.
            let _ = file.set_len(ByteLen(0));
        }
        file.settle().await;
        self.low.store(!made, Ordering::Relaxed);
    }
}
