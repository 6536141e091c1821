//! Partly written units of the map, which wait in the buffer for the rest.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Number of parts of a unit that are tracked.
const PARTS: u64 = 64;

/// Partly written units, up to a maximum number.
#[derive(Clone, Debug)]
pub(super) struct Partial {
    written: BTreeMap<u64, u64>,
    order: VecDeque<u64>,
    max: usize,
    unit: u64,
}

/// Result of a write to a part of a unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Joined {
    /// The unit is new in the buffer.
    Begun,
    /// A part of the unit was in the buffer.
    More,
    /// The unit is complete and can be written.
    Whole,
}

impl Partial {
    pub fn new(unit: u64, max: usize) -> Self {
        Self { written: BTreeMap::new(), order: VecDeque::new(), max: max.max(1), unit }
    }

    /// Adds the bytes `from..to` of a unit.
    pub fn add(&mut self, unit: u64, from: u64, to: u64) -> Joined {
        let part = self.unit.div_ceil(PARTS);
        let (low, high) = (from / part, to.div_ceil(part).min(PARTS));
        let up_to = if high == PARTS { u64::MAX } else { (1 << high) - 1 };
        let bits = up_to & !((1u64 << low) - 1);
        let before = self.written.get(&unit).copied();
        if before.unwrap_or(0) | bits == u64::MAX {
            self.take(unit);
            return Joined::Whole;
        }
        self.written.insert(unit, before.unwrap_or(0) | bits);
        match before {
            Some(_) => Joined::More,
            None => {
                self.order.push_back(unit);
                Joined::Begun
            }
        }
    }

    /// Removes a unit and returns whether it was in the buffer.
    pub fn take(&mut self, unit: u64) -> bool {
        self.written.remove(&unit).is_some()
    }

    /// Removes the oldest unit if there are too many, or if `all` must go.
    pub fn evict(&mut self, all: bool) -> Option<u64> {
        while self.written.len() > self.max || all {
            let unit = self.order.pop_front()?;
            if self.take(unit) {
                return Some(unit);
            }
        }
        // Units that became complete stay in the order until they would be next.
        if self.order.len() > 4 * self.max.max(16) {
            // A unit that was removed and added again is in the order several times. The first entry counts.
            let (keep, mut seen) = (&self.written, BTreeSet::new());
            self.order.retain(|unit| keep.contains_key(unit) && seen.insert(*unit));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeatedly_restarted_unit_takes_bounded_memory() {
        let mut partial = Partial::new(16_384, 2);
        for _ in 0..1000 {
            assert_eq!(partial.add(5, 0, 8192), Joined::Begun);
            assert_eq!(partial.evict(false), None);
            assert_eq!(partial.add(5, 8192, 16_384), Joined::Whole);
            assert_eq!(partial.add(5, 0, 8192), Joined::Begun);
            assert_eq!(partial.evict(false), None);
            assert!(partial.take(5) && partial.order.len() <= 65);
        }
        // The same unit while it is incomplete.
        partial.order.extend([5; 100]);
        assert_eq!(partial.add(5, 0, 512), Joined::Begun);
        assert_eq!((partial.evict(false), partial.order.len()), (None, 1));
    }

    #[test]
    fn a_unit_is_complete_after_all_parts_in_any_order() {
        let mut partial = Partial::new(16_384, 2);
        assert_eq!(partial.add(5, 4096, 8192), Joined::Begun);
        assert_eq!(partial.add(5, 12_288, 16_384), Joined::More);
        assert_eq!(partial.add(5, 0, 4096), Joined::More);
        assert_eq!(partial.add(5, 8192, 12_288), Joined::Whole);
        assert_eq!(partial.add(7, 0, 512), Joined::Begun);
        assert_eq!(partial.add(8, 0, 512), Joined::Begun);
        assert_eq!(partial.evict(false), None, "two have room");
        assert_eq!(partial.add(9, 0, 512), Joined::Begun);
        assert_eq!(partial.evict(false), Some(7), "the oldest that is not whole");
        assert_eq!([partial.evict(true), partial.evict(true), partial.evict(true)], [Some(8), Some(9), None]);
    }
}
