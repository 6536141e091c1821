//! Ranges of bytes that do not touch one another.

use std::collections::BTreeMap;

#[derive(Clone, Debug, Default)]
pub(crate) struct Ranges {
    by_start: BTreeMap<u64, u64>,
}

impl Ranges {
    /// The ranges in their order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.by_start.iter().map(|(&start, &end)| (start, end))
    }

    pub fn is_empty(&self) -> bool {
        self.by_start.is_empty()
    }

    /// Adds a range; how many bytes are new.
    pub fn insert(&mut self, mut start: u64, mut end: u64) -> u64 {
        let mut old = 0;
        if let Some((&before, &its_end)) = self.by_start.range(..start).next_back()
            && its_end >= start
        {
            start = before;
        }
        while let Some((&next, &its_end)) = self.by_start.range(start..=end).next() {
            self.by_start.remove(&next);
            old += its_end - next;
            end = end.max(its_end);
        }
        self.by_start.insert(start, end);
        end - start - old
    }

    /// Takes a range out; how many bytes it held of it.
    pub fn remove(&mut self, start: u64, end: u64) -> u64 {
        let mut held = 0;
        let first = self.by_start.range(..=start).next_back().map_or(start, |(&first, _)| first);
        while let Some((&from, &to)) = self.by_start.range(first..end).find(|&(_, &to)| to > start) {
            self.by_start.remove(&from);
            if from < start {
                self.by_start.insert(from, start);
            }
            if to > end {
                self.by_start.insert(end, to);
            }
            held += to.min(end) - from.max(start);
        }
        held
    }

    /// The first range that ends behind `from`, cut to `most` bytes and to what lies behind `from`.
    pub fn next(&self, from: u64, most: u64) -> Option<(u64, u64)> {
        let before = self.by_start.range(..=from).next_back().filter(|&(_, &end)| end > from);
        let (&start, &end) = before.or_else(|| self.by_start.range(from..).next())?;
        let start = start.max(from);
        Some((start, end.min(start.saturating_add(most))))
    }

    /// Whether `at` is in a range.
    pub fn has(&self, at: u64) -> bool {
        self.by_start.range(..=at).next_back().is_some_and(|(_, &end)| end > at)
    }

    /// Appends the parts of a range that are here.
    pub fn parts(&self, start: u64, end: u64, out: &mut Vec<(u64, u64)>) {
        let mut at = start;
        while let Some((from, to)) = self.next(at, u64::MAX - at).filter(|&(from, _)| from < end) {
            out.push((from, to.min(end)));
            at = to;
        }
    }

    /// Appends the parts of a range that are not here.
    pub fn gaps(&self, start: u64, end: u64, out: &mut Vec<(u64, u64)>) {
        let mut at = start;
        while at < end {
            match self.next(at, u64::MAX - at) {
                Some((from, to)) if from < end => {
                    if from > at {
                        out.push((at, from));
                    }
                    at = to;
                }
                _ => {
                    out.push((at, end));
                    return;
                }
            }
        }
    }
}
