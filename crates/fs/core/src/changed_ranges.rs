//! Tracks changed bytes in bounded memory. Above the limit, ranges become coarser but never miss a byte.

use crate::ranges::{ByteRange, RangeSet};

/// Factor by which the granule grows each time there are too many ranges.
const GRANULE_FACTOR: u64 = 8;
/// First granule above single bytes, in bytes.
const FIRST_GRANULE_BYTES: u64 = 4096;

/// Changed bytes, and possibly some unchanged ones near them.
#[derive(Clone, Debug)]
pub struct ChangedRanges {
    ranges: RangeSet,
    ranges_max: usize,
    /// All ranges begin and end at multiples of this, or at 2^64 - 1.
    granule: u64,
}

impl ChangedRanges {
    /// Returns an empty set of at most `ranges_max` ranges.
    ///
    /// # Panics
    /// When `ranges_max` is zero.
    pub fn new(ranges_max: usize) -> Self {
        assert!(ranges_max > 0, "at least one range is needed");
        Self { ranges: RangeSet::new(), ranges_max, granule: 1 }
    }

    /// Records that the bytes of `range` have changed.
    pub fn add(&mut self, range: ByteRange) {
        self.ranges.insert(rounded(range, self.granule));
        while self.ranges.count() > self.ranges_max {
            self.granule = match self.granule {
                1 => FIRST_GRANULE_BYTES,
                granule => granule.saturating_mul(GRANULE_FACTOR),
            };
            self.ranges = self.ranges.iter().map(|range| rounded(range, self.granule)).collect();
        }
    }

    /// Returns the changed ranges and clears them.
    pub fn take(&mut self) -> RangeSet {
        self.granule = 1;
        std::mem::take(&mut self.ranges)
    }

    /// Returns the changed ranges.
    pub fn ranges(&self) -> &RangeSet {
        &self.ranges
    }
}

fn rounded(range: ByteRange, granule: u64) -> ByteRange {
    let start = range.start() - range.start() % granule;
    let end = range.end().checked_next_multiple_of(granule).unwrap_or(u64::MAX);
    ByteRange::new(start, end).expect("no smaller than the range")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_many_ranges_become_coarser_and_miss_nothing() {
        let mut state = 7u64;
        for ranges_max in [1, 2, 10, 100] {
            let (mut changed, mut exact) = (ChangedRanges::new(ranges_max), RangeSet::new());
            for _ in 0..2000 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let start = state >> 30;
                let range = match state % 50 {
                    0 => ByteRange::from(start).expect("below the end"),
                    _ => ByteRange::with_len(start, 1 + state % 9000).expect("not empty"),
                };
                changed.add(range);
                exact.insert(range);
                assert!(changed.ranges().count() <= ranges_max);
                assert!(changed.ranges().contains(range));
            }
            assert!(exact.iter().all(|range| changed.ranges().contains(range)));
            let taken = changed.take();
            assert!(taken.bytes() >= exact.bytes() && changed.ranges().is_empty());
        }
    }

    #[test]
    fn few_ranges_are_exact() {
        let mut changed = ChangedRanges::new(3);
        let ranges =
            [(0, 1), (10, 11), (20, 21)].map(|(start, end)| ByteRange::new(start, end).expect("a byte"));
        ranges.iter().for_each(|range| changed.add(*range));
        assert_eq!(changed.take(), ranges.into_iter().collect());
        let far = ByteRange::new(100, 101).expect("a byte");
        ranges.iter().chain([&far]).for_each(|range| changed.add(*range));
        assert_eq!(changed.ranges().iter().collect::<Vec<_>>(), [ByteRange::new(0, 4096).expect("a page")]);
    }
}
