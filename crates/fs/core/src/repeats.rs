//! Limits lines of a log about an event that repeats: one when it first occurs, then at most one a minute with the
//! number of occurrences.

use crate::Nanos;
use std::collections::BTreeMap;

/// Interval after which a continuing cause is logged again.
pub const LOG_AGAIN_AFTER: Nanos = Nanos::from_s(60);

/// Occurrences of one cause.
#[derive(Clone, Debug)]
pub struct Occurrences<T> {
    /// Occurrences since the first one.
    pub count: u64,
    /// Time of the latest occurrence.
    pub last: Nanos,
    /// Details of the latest occurrence.
    pub latest: T,
    logged: Nanos,
    unlogged: u64,
}

/// A bounded number of causes with their occurrences.
#[derive(Debug)]
pub struct Repeats<K, T = ()> {
    causes: BTreeMap<K, Occurrences<T>>,
    causes_max: usize,
}

impl<K: Ord + Clone, T: Clone> Repeats<K, T> {
    /// Keeps at most `causes_max` causes. A new one replaces the one whose last occurrence is oldest.
    pub const fn new(causes_max: usize) -> Self {
        Self { causes: BTreeMap::new(), causes_max }
    }

    /// Counts an occurrence. Returns 0 if the cause is new, the number of occurrences since the last line if another
    /// line is due, and `None` if no line is due.
    pub fn note(&mut self, cause: K, latest: T, now: Nanos) -> Option<u64> {
        if let Some(known) = self.causes.get_mut(&cause) {
            (known.count, known.last, known.latest) = (known.count + 1, now, latest);
            known.unlogged += 1;
            return known.is_due(now).then(|| known.take_unlogged(now));
        }
        if self.causes.len() >= self.causes_max
            && let Some(oldest) = self.causes.iter().min_by_key(|(_, known)| known.last)
        {
            let oldest = oldest.0.clone();
            self.causes.remove(&oldest);
        }
        self.causes.insert(cause, Occurrences { count: 1, last: now, latest, logged: now, unlogged: 0 });
        Some(0)
    }

    /// Takes the causes with occurrences that no line has counted, if another line is due: the cause, details of the
    /// latest occurrence, and the number. With `all`, also causes of which no line is due yet. Forgets causes without an
    /// occurrence since their last line.
    pub fn take_due(&mut self, now: Nanos, all: bool) -> Vec<(K, T, u64)> {
        let mut due = Vec::new();
        self.causes.retain(|cause, known| {
            if !all && !known.is_due(now) {
                return true;
            }
            let count = known.take_unlogged(now);
            if count > 0 {
                due.push((cause.clone(), known.latest.clone(), count));
            }
            count > 0
        });
        due
    }

    /// Causes with their occurrences.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &Occurrences<T>)> {
        self.causes.iter()
    }
}

impl<T> Occurrences<T> {
    fn is_due(&self, now: Nanos) -> bool {
        now.saturating_sub(self.logged) >= LOG_AGAIN_AFTER
    }

    fn take_unlogged(&mut self, now: Nanos) -> u64 {
        self.logged = now;
        std::mem::take(&mut self.unlogged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_due_at_first_and_then_once_a_minute_with_its_occurrences() {
        let mut repeats = Repeats::new(2);
        let mut note = |cause, s| repeats.note(cause, (), Nanos::from_s(s));
        assert_eq!((note('a', 0), note('b', 1)), (Some(0), Some(0)));
        assert_eq!((note('a', 59), note('a', 60), note('a', 61)), (None, Some(2), None));
    }

    #[test]
    fn occurrences_that_ended_are_taken_later_and_quiet_causes_are_forgotten() {
        let mut repeats = Repeats::new(2);
        assert_eq!(repeats.note('a', (), Nanos::from_s(0)), Some(0));
        for s in 1..=9 {
            assert_eq!(repeats.note('a', (), Nanos::from_s(s)), None);
        }
        assert_eq!(repeats.take_due(Nanos::from_s(59), false), []);
        assert_eq!(repeats.take_due(Nanos::from_s(60), false), [('a', (), 9)]);
        assert_eq!(repeats.note('a', (), Nanos::from_s(61)), None);
        assert_eq!(repeats.take_due(Nanos::from_s(62), true), [('a', (), 1)]);
        assert_eq!(repeats.take_due(Nanos::from_s(122), false), []);
        assert_eq!(repeats.iter().count(), 0);
        assert_eq!(repeats.note('a', (), Nanos::from_s(123)), Some(0), "a new cause");
    }

    #[test]
    fn the_oldest_cause_is_replaced() {
        let mut repeats = Repeats::new(2);
        for (cause, s) in [('a', 0), ('b', 1), ('a', 2), ('c', 3)] {
            repeats.note(cause, s, Nanos::from_s(s));
        }
        let left: Vec<_> = repeats.iter().map(|(cause, known)| (*cause, known.count, known.latest)).collect();
        assert_eq!(left, [('a', 2, 2), ('c', 1, 3)]);
    }
}
