//! Counters of what a search reached. A search that finds nothing must show that it exercised the checks.

use std::collections::BTreeMap;

/// Counts of operations, faults and branches of the checks.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Coverage(BTreeMap<&'static str, u64>);

impl Coverage {
    /// Increments a counter.
    pub fn hit(&mut self, what: &'static str) {
        self.add(what, 1);
    }

    /// Adds `count` to a counter.
    pub fn add(&mut self, what: &'static str, count: u64) {
        *self.0.entry(what).or_default() += count;
    }

    /// Adds the counts of another search.
    pub fn merge(&mut self, other: &Self) {
        other.0.iter().for_each(|(what, count)| self.add(what, *count));
    }

    /// Returns the count of `what`.
    pub fn count(&self, what: &str) -> u64 {
        self.0.get(what).copied().unwrap_or(0)
    }

    /// Iterates over all counts by name.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.0.iter().map(|(what, count)| (*what, *count))
    }
}
