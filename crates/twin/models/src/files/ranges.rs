//! Sets of byte ranges of a file, by start and end.

use weft_core::{ByteRange, RangeSet};

/// [`RangeSet`] for the half-open ranges of this crate. An empty range changes nothing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ranges(RangeSet);

impl Ranges {
    /// Iterates over the ranges in order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.0.iter().map(|range| (range.start(), range.end()))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a range and returns the number of bytes that are new.
    pub fn insert(&mut self, start: u64, end: u64) -> u64 {
        ByteRange::new(start, end).map_or(0, |range| self.0.insert(range))
    }

    /// Removes a range and returns the number of bytes removed.
    pub fn remove(&mut self, start: u64, end: u64) -> u64 {
        ByteRange::new(start, end).map_or(0, |range| self.0.remove(range))
    }

    /// Returns the first bytes of the set at or after `from`, at most `bytes_max` of one range.
    pub fn next(&self, from: u64, bytes_max: u64) -> Option<(u64, u64)> {
        let found = self.0.next_from(from)?;
        Some((found.start(), found.end().min(found.start().saturating_add(bytes_max))))
    }

    /// Returns true if the set contains the byte `at`.
    pub fn has(&self, at: u64) -> bool {
        self.0.next_from(at).is_some_and(|found| found.start() == at)
    }

    /// Appends the parts of a range that are in the set.
    pub fn parts(&self, start: u64, end: u64, out: &mut Vec<(u64, u64)>) {
        let Some(range) = ByteRange::new(start, end) else { return };
        let parts = self.0.overlapping(range).filter_map(|found| found.intersection(range));
        out.extend(parts.map(|part| (part.start(), part.end())));
    }

    /// Appends the parts of a range that are not in the set.
    pub fn gaps(&self, start: u64, end: u64, out: &mut Vec<(u64, u64)>) {
        let Some(range) = ByteRange::new(start, end) else { return };
        out.extend(self.0.gaps(range).map(|gap| (gap.start(), gap.end())));
    }
}
