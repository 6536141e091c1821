//! What a search has reached: a search that finds nothing has to show that it looked.

use std::collections::BTreeMap;

/// How often each operation, fault and branch of the checkers was reached.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Coverage(BTreeMap<&'static str, u64>);

impl Coverage {
    /// One more.
    pub fn hit(&mut self, what: &'static str) {
        self.add(what, 1);
    }

    /// So many more.
    pub fn add(&mut self, what: &'static str, count: u64) {
        *self.0.entry(what).or_default() += count;
    }

    /// Takes in those of another search.
    pub fn merge(&mut self, other: &Self) {
        other.0.iter().for_each(|(what, count)| self.add(what, *count));
    }

    /// How often `what` was reached.
    pub fn count(&self, what: &str) -> u64 {
        self.0.get(what).copied().unwrap_or(0)
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.0.iter().map(|(what, count)| (*what, *count))
    }
}
