//! Contents of a disk's write cache: ranges of sectors that are not on the platters yet.

use std::collections::BTreeMap;

/// Disjoint ranges by their start.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dirty {
    ranges: BTreeMap<u64, u64>,
    sectors: u64,
}

impl Dirty {
    pub fn sectors(&self) -> u64 {
        self.sectors
    }

    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Adds a range and merges it with ranges that it touches.
    pub fn insert(&mut self, mut start: u64, mut end: u64) {
        if let Some((&before, &its_end)) = self.ranges.range(..=start).next_back()
            && its_end >= start
        {
            start = before;
        }
        while let Some((&next, &its_end)) = self.ranges.range(start..=end).next() {
            self.ranges.remove(&next);
            self.sectors -= its_end - next;
            end = end.max(its_end);
        }
        self.ranges.insert(start, end);
        self.sectors += end - start;
    }

    /// Whether the whole range is in the cache.
    pub fn contains(&self, start: u64, end: u64) -> bool {
        self.ranges.range(..=start).next_back().is_some_and(|(_, &its_end)| its_end >= end)
    }

    /// Returns up to `count` ranges that follow `sector` inwards, then from the outer edge.
    pub fn ahead(&self, sector: u64, count: usize) -> impl Iterator<Item = (u64, u64)> + '_ {
        let onward = self.ranges.range(sector..).chain(self.ranges.range(..sector));
        onward.take(count).map(|(&start, &end)| (start, end))
    }

    /// Takes the first sectors of a range, up to `most`, and returns their end.
    pub fn take(&mut self, start: u64, most: u64) -> u64 {
        let end = self.ranges.remove(&start).expect("a range that is here");
        let cut = end.min(start + most);
        if cut < end {
            self.ranges.insert(cut, end);
        }
        self.sectors -= cut - start;
        cut
    }
}
