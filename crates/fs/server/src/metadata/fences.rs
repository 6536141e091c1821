//! Fences: revocation of capabilities after the append lock was taken from a client that may still be writing.
//!
//! The next holder of the append lock first tells the data servers to refuse the older capabilities. A fence is a time
//! in seconds since 1970. Capabilities issued before the fence end before that time; capabilities issued after it end
//! at that time or later. After that time the fence is no longer needed.

use std::collections::BTreeMap;
use weft_core::FileId;

/// Maximum number of files with a fence of their own.
const FILES_MAX: usize = 65_536;

/// Fences that are in force.
#[derive(Debug, Default)]
pub(super) struct Fences {
    /// Fence of files of earlier starts: the holders of their append locks are unknown.
    start: Start,
    /// Fence of every file, once there were too many to remember each.
    every: u64,
    files: BTreeMap<FileId, u64>,
}

/// The fence that a start of the service at `at_s` puts on all earlier files.
#[derive(Clone, Copy, Debug, Default)]
struct Start {
    first_new: FileId,
    before_s: u64,
    at_s: u64,
}

impl Fences {
    /// Creates the fences of a start at `at_s`, for files of earlier starts: the first new id, and the end of the older
    /// capabilities.
    pub(super) fn new(first_new: FileId, before_s: u64, at_s: u64) -> Self {
        Self { start: Start { first_new, before_s, at_s }, ..Self::default() }
    }

    /// Adds a fence.
    pub(super) fn put(&mut self, file: FileId, before_s: u64, now_s: u64) {
        if self.files.len() >= FILES_MAX {
            self.files.retain(|_, before| *before > now_s);
        }
        if self.files.len() >= FILES_MAX {
            let others = std::mem::take(&mut self.files).into_values();
            self.every = others.fold(self.every.max(self.start.before_s).max(before_s), u64::max);
        }
        let before = self.files.entry(file).or_insert(before_s);
        *before = (*before).max(before_s);
    }

    /// Whether any fence may be in force.
    pub(super) fn any(&self) -> bool {
        self.start.before_s > 0 || self.every > 0 || !self.files.is_empty()
    }

    /// Latest fence of any file.
    pub(super) fn latest_s(&self) -> u64 {
        self.files.values().copied().fold(self.every.max(self.start.before_s), u64::max)
    }

    /// Fence that a file of earlier starts would have if this start had been at `now_s`; 0 for other files. That of the next
    /// start is later.
    pub(super) fn of_start(&self, file: FileId, now_s: u64) -> u64 {
        let Start { first_new, before_s, at_s } = self.start;
        if file < first_new { before_s + now_s.saturating_sub(at_s) } else { 0 }
    }

    /// Fence of a file at `now_s`; 0 if there is none.
    pub(super) fn of(&self, file: FileId, now_s: u64) -> u64 {
        let own = self.files.get(&file).copied().unwrap_or(0);
        let all = self.of_start(file, self.start.at_s).max(self.every);
        Some(all.max(own)).filter(|before_s| *before_s > now_s).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_is_in_force_until_its_time_and_is_never_lowered() {
        let mut fences = Fences::new(FileId(10), 100, 30);
        assert_eq!(
            (fences.of(FileId(9), 99), fences.of(FileId(9), 100), fences.of(FileId(10), 0)),
            (100, 0, 0)
        );
        fences.put(FileId(12), 150, 50);
        fences.put(FileId(12), 120, 50);
        assert_eq!(fences.latest_s(), 150);
        fences.put(FileId(9), 120, 50);
        assert_eq!(
            (fences.of_start(FileId(9), 30), fences.of_start(FileId(9), 70), fences.of_start(FileId(12), 70)),
            (100, 140, 0),
            "whatever fences the files have of their own"
        );
        assert_eq!(
            (fences.of(FileId(12), 149), fences.of(FileId(12), 150), fences.of(FileId(9), 0)),
            (150, 0, 120)
        );
    }

    #[test]
    fn too_many_fences_cover_every_file() {
        let mut fences = Fences::default();
        for file in 0..FILES_MAX as u64 {
            fences.put(FileId(file), 100 + file, 0);
        }
        assert_eq!(fences.of(FileId(FILES_MAX as u64), 0), 0);
        fences.put(FileId(1 << 40), 90, 50);
        for file in [0, FILES_MAX as u64 - 1, 1 << 30] {
            assert!(fences.of(FileId(file), 0) >= 100 + FILES_MAX as u64 - 1);
        }
        assert!(fences.files.len() <= FILES_MAX, "bounded");
    }
}
