//! Files of whose append lock somebody was relieved who may be writing still: whoever has it next must have the data
//! servers refuse the capabilities of before.
//!
//! A fence is a time in seconds since 1970: no capability that was given before ends so late, and every one that is given
//! from then on ends at that time or later. When it has come, nothing is left to be refused.

use std::collections::BTreeMap;
use weft_core::FileId;

/// Files that are told apart.
const FILES_MAX: usize = 65_536;

/// The fences that stand.
#[derive(Debug, Default)]
pub(super) struct Fences {
    /// Of files below this one: their append locks of before a start are forgotten.
    below: (FileId, u64),
    files: BTreeMap<FileId, u64>,
}

impl Fences {
    /// For files that were there before a start: the first new one, and when their capabilities end.
    pub(super) fn new(first_new: FileId, before_s: u64) -> Self {
        Self { below: (first_new, before_s), files: BTreeMap::new() }
    }

    /// Puts one up.
    pub(super) fn put(&mut self, file: FileId, before_s: u64, now_s: u64) {
        if self.files.len() >= FILES_MAX {
            self.files.retain(|_, before| *before > now_s);
        }
        if self.files.len() >= FILES_MAX {
            // Too many to remember each: all files that there can be.
            let most = self.files.values().fold(self.below.1.max(before_s), |most, &before| most.max(before));
            self.below = (FileId(u64::MAX), most);
            self.files.clear();
        }
        let before = self.files.entry(file).or_insert(before_s);
        *before = (*before).max(before_s);
    }

    /// Whether there may be any.
    pub(super) fn any(&self) -> bool {
        self.below.1 > 0 || !self.files.is_empty()
    }

    /// The fence of a file at `now_s`, 0 where none stands.
    pub(super) fn of(&self, file: FileId, now_s: u64) -> u64 {
        let general = if file < self.below.0 { self.below.1 } else { 0 };
        let own = self.files.get(&file).copied().unwrap_or(0);
        Some(general.max(own)).filter(|before_s| *before_s > now_s).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_stands_until_its_time_and_is_never_lowered() {
        let mut fences = Fences::new(FileId(10), 100);
        assert_eq!(
            (fences.of(FileId(9), 99), fences.of(FileId(9), 100), fences.of(FileId(10), 0)),
            (100, 0, 0)
        );
        fences.put(FileId(12), 150, 50);
        fences.put(FileId(12), 120, 50);
        fences.put(FileId(9), 120, 50);
        assert_eq!(
            (fences.of(FileId(12), 149), fences.of(FileId(12), 150), fences.of(FileId(9), 0)),
            (150, 0, 120)
        );
    }

    #[test]
    fn more_fences_than_are_remembered_stand_before_every_file() {
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
