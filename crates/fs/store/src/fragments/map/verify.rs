//! Consistency check of entries, counters and lists.

use super::{ClassTotal, Map, Mapped};
use crate::fragments::piece::State;
use weft_core::DataClass;

impl Map {
    /// Panics if entries, counters and lists disagree. For tests.
    pub fn verify(&self) {
        let mut totals = [ClassTotal::default(); DataClass::COUNT];
        let (mut count, mut lost) = (0, 0);
        let mut in_segments = vec![(0, 0); self.segments.count() as usize];
        for (key, &file) in &self.by_key {
            let slot = &self.files[file as usize];
            assert!(self.headers.get(file).key == *key && !slot.entries.is_empty());
            let (mut end, mut sums) = (0, [0; 3]);
            for (&start, &id) in &slot.entries {
                let entry = self.entry(id);
                assert!(
                    entry.file == file && entry.start == start && entry.len > 0 && start >= end,
                    "{key:?}"
                );
                end = entry.end();
                count += 1;
                let len = u64::from(entry.len);
                match entry.label.state {
                    State::Lost => {
                        sums[2] += len;
                        lost += len;
                        continue;
                    }
                    State::Dirty => sums[0] += len,
                    State::Clean | State::Copy => sums[1] += len,
                }
                let total = &mut totals[entry.label.class.index()];
                total.entries += 1;
                total.gains += i128::from(entry.label.weight());
                total.puts += u64::from(entry.label.puts);
                let segment = &mut in_segments[entry.location.segment as usize];
                segment.0 += len;
                if entry.label.state == State::Dirty {
                    total.dirty += len;
                    segment.1 += len;
                } else {
                    total.clean += len;
                }
            }
            assert_eq!([slot.dirty, slot.clean, slot.lost], sums);
        }
        assert_eq!((count, lost), (self.len(), self.lost));
        assert_eq!(totals, self.classes);
        for class in DataClass::ALL {
            let spare: Vec<Mapped> = self.evictable(class).collect();
            assert!(spare.iter().all(|it| it.label.class == class && it.label.is_evictable()));
            assert_eq!(spare.iter().map(|it| it.extent.len()).sum::<u64>(), totals[class.index()].clean);
        }
        for (index, segment) in self.segments.iter() {
            assert_eq!((segment.live, segment.dirty), in_segments[index as usize]);
            let listed: u64 = self.in_segment(index).map(|it| it.extent.len()).sum();
            assert_eq!(listed, segment.live);
        }
    }
}
