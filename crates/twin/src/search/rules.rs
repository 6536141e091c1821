//! What rules directories may have: for each a register, which a change of rules, `mkdir` and `rmdir` write and who makes a
//! file reads.
//!
//! A write counts from when it was sent to when it was answered; one that nobody answered may come at any time, or never. A
//! reader may find what any write has left that had begun before the reader was answered, unless another one, answered
//! before the reader began, began after it was answered.

use super::bytes::Moment;
use super::names::{DIRS, RequestId};
use std::collections::BTreeSet;

/// The stripe size by which a directory's rule is known; `None` has no rule.
pub type Value = Option<u64>;

struct Write {
    id: RequestId,
    value: Value,
    begun: Moment,
    answered: Option<Moment>,
}

/// The registers of all directories.
#[derive(Default)]
pub struct Rules {
    writes: [Vec<Write>; DIRS as usize],
}

impl Rules {
    /// A write is sent.
    pub fn begin(&mut self, id: RequestId, dir: u8, value: Value, now: Moment) {
        self.writes[usize::from(dir)].push(Write { id, value, begun: now, answered: None });
    }

    /// It was done.
    pub fn done(&mut self, id: RequestId, now: Moment) {
        self.writes
            .iter_mut()
            .flatten()
            .filter(|write| write.id == id)
            .for_each(|write| write.answered = Some(now));
    }

    /// It was not done, and will not be.
    pub fn refused(&mut self, id: RequestId) {
        self.writes.iter_mut().for_each(|writes| writes.retain(|write| write.id != id));
    }

    /// What a directory may have had for who asked at `began` and is answered now.
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

    /// The stripes of a file that was made in a directory by who asked at `began`, where nothing else is wanted; `default`
    /// where there is no rule.
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
    fn a_reader_finds_what_may_have_been_written_last() {
        let mut rules = Rules::default();
        let of = |rules: &Rules, began| rules.of(1, began).into_iter().collect::<Vec<_>>();
        assert_eq!(of(&rules, 1), [None]);
        rules.begin(1, 1, Some(7), 2);
        assert_eq!(of(&rules, 1), [None, Some(7)], "it may have come");
        rules.done(1, 4);
        assert_eq!(of(&rules, 3), [None, Some(7)], "it had not come for sure");
        assert_eq!(of(&rules, 4), [Some(7)]);
        // Two at once: either is the last; one without an answer may come much later.
        rules.begin(2, 1, Some(8), 5);
        rules.begin(3, 1, None, 6);
        rules.done(3, 7);
        assert_eq!(of(&rules, 8), [None, Some(8)]);
        rules.begin(4, 1, Some(9), 9);
        rules.done(4, 10);
        assert_eq!(of(&rules, 11), [Some(8), Some(9)]);
        rules.refused(2);
        assert_eq!(of(&rules, 11), [Some(9)]);
        // A directory without a rule asks the root.
        rules.begin(5, 0, Some(3), 12);
        assert_eq!(rules.stripes(2, 11, 1), [1, 3].into());
        assert_eq!(rules.stripes(1, 11, 1), [9].into());
        rules.done(5, 13);
        assert_eq!(rules.stripes(2, 14, 1), [3].into());
    }
}
