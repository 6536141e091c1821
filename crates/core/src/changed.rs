//! Which bytes have changed, in bounded memory: when there are too many ranges they are told less finely, never fewer.

use crate::ranges::{ByteRange, RangeSet};

/// Each time that there are too many ranges, they are rounded out to so many times what they were rounded to before.
const COARSER: u64 = 8;
/// What they are rounded out to first, in bytes.
const FIRST: u64 = 4096;

/// Bytes that have changed, and perhaps some beside them.
#[derive(Clone, Debug)]
pub struct Changed {
    ranges: RangeSet,
    ranges_max: usize,
    /// All ranges begin and end at multiples of this, or at the end of all bytes.
    granule: u64,
}

impl Changed {
    /// None yet; at most `ranges_max` ranges are told apart.
    ///
    /// # Panics
    /// For no range at all.
    pub fn new(ranges_max: usize) -> Self {
        assert!(ranges_max > 0, "one range can tell of everything, none of nothing");
        Self { ranges: RangeSet::new(), ranges_max, granule: 1 }
    }

    /// The bytes of `range` have changed.
    pub fn add(&mut self, range: ByteRange) {
        self.ranges.insert(rounded(range, self.granule));
        while self.ranges.count() > self.ranges_max {
            self.granule = if self.granule == 1 { FIRST } else { self.granule.saturating_mul(COARSER) };
            self.ranges = self.ranges.iter().map(|range| rounded(range, self.granule)).collect();
        }
    }

    /// What has changed, which is forgotten here.
    pub fn take(&mut self) -> RangeSet {
        self.granule = 1;
        std::mem::take(&mut self.ranges)
    }

    /// What has changed.
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
    fn too_many_ranges_are_told_less_finely_and_never_fewer() {
        let mut state = 7u64;
        for ranges_max in [1, 2, 10, 100] {
            let (mut changed, mut exact) = (Changed::new(ranges_max), RangeSet::new());
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
            let told = changed.take();
            assert!(told.bytes() >= exact.bytes() && changed.ranges().is_empty());
        }
    }

    #[test]
    fn few_ranges_are_told_as_they_are() {
        let mut changed = Changed::new(3);
        let ranges =
            [(0, 1), (10, 11), (20, 21)].map(|(start, end)| ByteRange::new(start, end).expect("a byte"));
        ranges.iter().for_each(|range| changed.add(*range));
        assert_eq!(changed.take(), ranges.into_iter().collect());
        let far = ByteRange::new(100, 101).expect("a byte");
        ranges.iter().chain([&far]).for_each(|range| changed.add(*range));
        assert_eq!(changed.ranges().iter().collect::<Vec<_>>(), [ByteRange::new(0, 4096).expect("a page")]);
    }
}
