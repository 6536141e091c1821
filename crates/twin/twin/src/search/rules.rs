//! Model of layout rules: a register for each directory, written by rule changes, `mkdir` and `rmdir`, and read by file
//! creation.
//!
//! A write is in progress from its request to its reply. A write without a reply may take effect at any time, or never.
//! A reader may see any write that began before the reader was answered, unless a newer write superseded it: one that
//! began after the first was answered, and was answered before the reader began.

use super::bytes::Moment;
use super::names::{DIRS, RequestId};
use std::collections::BTreeSet;

/// Stripe size that identifies a directory's rule. `None` means no rule.
pub type Value = Option<u64>;

struct Write {
    id: RequestId,
    value: Value,
    begun: Moment,
    answered: Option<Moment>,
}

/// Registers of all directories.
#[derive(Default)]
pub struct Rules {
    writes: [Vec<Write>; DIRS as usize],
}

impl Rules {
    /// A write is sent.
    pub fn begin(&mut self, id: RequestId, dir: u8, value: Value, now: Moment) {
        self.writes[usize::from(dir)].push(Write { id, value, begun: now, answered: None });
    }

    /// A write succeeded.
    pub fn done(&mut self, id: RequestId, now: Moment) {
        self.writes
            .iter_mut()
            .flatten()
            .filter(|write| write.id == id)
            .for_each(|write| write.answered = Some(now));
    }

    /// A write was refused and will not take effect.
    pub fn refused(&mut self, id: RequestId) {
        self.writes.iter_mut().for_each(|writes| writes.retain(|write| write.id != id));
    }

    /// Returns the rules that a request from `began` until now may see in a directory.
    pub fn of(&self, dir: u8, began: Moment) -> BTreeSet<Value> {
        let writes = &self.writes[usize::from(dir)];
        let is_over = |answered: Option<Moment>| {
            let later = |write: &Write| {
                answered.is_some_and(|answered| answered < write.begun)
                    && write.answered.is_some_and(|answered| answered <= began)
            };
            writes.iter().any(later)
        };
        let values = writes.iter().filter(|write| !is_over(write.answered)).map(|write| write.value);
        values.chain((!is_over(Some(0))).then_some(None)).collect()
    }

    /// Returns the stripe sizes that a file created without layout options by a request from `began` until now may
    /// have. `default` applies where there is no rule.
    pub fn stripes(&self, dir: u8, began: Moment, default: u64) -> BTreeSet<u64> {
        let mut values = self.of(dir, began);
        if dir != 0 && values.remove(&None) {
            values.extend(self.of(0, began));
        }
        values.into_iter().map(|value| value.unwrap_or(default)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_sees_possible_latest_writes() {
        let mut rules = Rules::default();
        let of = |rules: &Rules, began| rules.of(1, began).into_iter().collect::<Vec<_>>();
        assert_eq!(of(&rules, 1), [None]);
        rules.begin(1, 1, Some(7), 2);
        assert_eq!(of(&rules, 1), [None, Some(7)], "it may have taken effect");
        rules.done(1, 4);
        assert_eq!(of(&rules, 3), [None, Some(7)], "it may not have taken effect");
        assert_eq!(of(&rules, 4), [Some(7)]);
        // Two concurrent writes: either may be the last. One without a reply may take effect much later.
        rules.begin(2, 1, Some(8), 5);
        rules.begin(3, 1, None, 6);
        rules.done(3, 7);
        assert_eq!(of(&rules, 8), [None, Some(8)]);
        rules.begin(4, 1, Some(9), 9);
        rules.done(4, 10);
        assert_eq!(of(&rules, 11), [Some(8), Some(9)]);
        rules.refused(2);
        assert_eq!(of(&rules, 11), [Some(9)]);
        // A directory without a rule uses the root's rule.
        rules.begin(5, 0, Some(3), 12);
        assert_eq!(rules.stripes(2, 11, 1), [1, 3].into());
        assert_eq!(rules.stripes(1, 11, 1), [9].into());
        rules.done(5, 13);
        assert_eq!(rules.stripes(2, 14, 1), [3].into());
    }
}
