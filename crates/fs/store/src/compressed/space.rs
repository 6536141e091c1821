//! Space of a container: which units are free.
//!
//! ```text
//!            allocate                 a record names it            the record is replaced
//!   free ---------------> reserved -------------------> live -----------------------------> pending
//!    ^                       |                            |                                    |
//!    |     the write failed  |                            | never named by a sealed frame      |
//!    +-----------------------+----------------------------+          the replacement is sealed |
//!    +-----------------------------------------------------------------------------------------+
//! ```
//!
//! Free units either hold blocks of the file system (*dirty*) or are holes (*clean*). Dirty ones are allocated first.

use super::record::Extent;
use std::collections::{BTreeMap, BTreeSet};
use weft_env::mutants::{Mutant, is_seeded};

/// Unit 0 holds the header of the container.
pub const FIRST_UNIT: u64 = 1;
/// Number of units in a block of the file system, the smallest space that a hole frees.
const BLOCK_UNITS: u64 = 8;
/// A batch is split into single extents rather than appended when one part in this number of the container is free.
const FREE_PART: u64 = 4;

/// Free and pending units of a container.
#[derive(Default)]
pub(super) struct Space {
    /// One past the last unit that is not free. All units behind it are free and clean.
    end: u64,
    dirty: FreeSet,
    clean: FreeSet,
    /// Live extents that no sealed frame names: their units are free at once when they are replaced.
    fresh: BTreeSet<u64>,
    /// Extents that the durable map may still name, and the number of the frame that replaced them.
    pending: Vec<(u64, Extent)>,
    pending_units: u64,
}

impl Space {
    /// Returns the space of a container that has only its header.
    pub fn empty() -> Self {
        Self { end: FIRST_UNIT, ..Self::default() }
    }

    /// Returns the space of a container in which only `live` and `pending` extents are used. Free units count as
    /// dirty up to `len_units`.
    ///
    /// # Errors
    /// When two extents overlap.
    pub fn new(
        live: impl Iterator<Item = Extent>,
        pending: Vec<(u64, Extent)>,
        len_units: u64,
    ) -> Result<Self, &'static str> {
        let mut used: Vec<Extent> = live.chain(pending.iter().map(|(_, extent)| *extent)).collect();
        used.sort_unstable();
        let mut space = Self::empty();
        for extent in used {
            if extent.at < space.end {
                return Err("two chunks at one place");
            }
            if extent.at > space.end {
                let gap = Extent { at: space.end, units: extent.at - space.end };
                space.dirty.insert(gap);
            }
            space.end = extent.end();
        }
        if space.end < len_units {
            space.dirty.insert(Extent { at: space.end, units: len_units - space.end });
            space.end = len_units;
        }
        space.pending_units = pending.iter().map(|(_, extent)| extent.units).sum();
        space.pending = pending;
        Ok(space)
    }

    /// Allocates adjacent units. Prefers the smallest free extent that is large enough.
    pub fn allocate(&mut self, units: u64) -> Extent {
        let found = self.dirty.take(units).or_else(|| self.clean.take(units));
        found.unwrap_or_else(|| {
            let at = self.end;
            self.end += units;
            Extent { at, units }
        })
    }

    /// Returns true if extents should be allocated one by one, although adjacent ones would be written at once: the
    /// container would grow although much of it is free.
    pub fn is_fragmented(&self, units: u64) -> bool {
        let free = self.dirty.units + self.clean.units;
        !self.dirty.has(units) && !self.clean.has(units) && free * FREE_PART >= self.end
    }

    /// Allocates the `units` behind `extent`, if they are free.
    pub fn extend(&mut self, extent: Extent, units: u64) -> bool {
        if units == 0 || self.dirty.take_at(extent.end(), units) || self.clean.take_at(extent.end(), units) {
            return true;
        }
        let is_last = extent.end() == self.end;
        if is_last {
            self.end += units;
        }
        is_last
    }

    /// Frees reserved units that no record names.
    pub fn unreserve(&mut self, extent: Extent) {
        if extent.units > 0 {
            self.dirty.insert(extent);
        }
    }

    /// Records that a frame that is not sealed names `extent`.
    pub fn note_named(&mut self, extent: Extent) {
        self.fresh.insert(extent.at);
    }

    /// Frees an extent that frame `number` has replaced; it stays pending as long as the durable map may name it.
    pub fn free(&mut self, extent: Extent, number: u64) {
        if self.fresh.remove(&extent.at) || is_seeded(Mutant::EarlyChunkReuse) {
            self.dirty.insert(extent);
        } else {
            self.pending_units += extent.units;
            self.pending.push((number, extent));
        }
    }

    /// Records that a sync begins: the frames so far may be sealed from now on, even if the sync fails.
    pub fn begin_seal(&mut self) {
        self.fresh.clear();
    }

    /// Records that frames up to `number` are sealed, durably.
    pub fn sealed(&mut self, number: u64) {
        let (released, pending): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.pending).into_iter().partition(|(by, _)| *by <= number);
        self.pending = pending;
        for (_, extent) in released {
            self.pending_units -= extent.units;
            self.dirty.insert(extent);
        }
    }

    /// Takes free units that hold blocks, to punch holes there. Each extent begins and ends at blocks of the file
    /// system, and belongs to the caller until [`punched`](Self::punched). Free units that share a block with used ones
    /// stay.
    pub fn take_dirty(&mut self, limit: usize) -> Vec<Extent> {
        let mut taken = Vec::new();
        let mut from = 0;
        while taken.len() < limit
            && let Some(dirty) = self.dirty.next_from(from)
        {
            from = dirty.end();
            // Free neighbors belong to the block too.
            let (mut start, mut end) = (dirty.at, dirty.end());
            if let Some(before) = self.clean.ending_at(start) {
                start = before.at.max(start - start % BLOCK_UNITS);
            }
            if let Some(behind) = self.clean.starting_at(end) {
                end = behind.end().min(end.next_multiple_of(BLOCK_UNITS));
            }
            let (start, end) = (start.next_multiple_of(BLOCK_UNITS), end - end % BLOCK_UNITS);
            if start >= end {
                continue;
            }
            let wanted = Extent { at: start, units: end - start };
            self.dirty.remove(wanted);
            self.clean.remove(wanted);
            taken.push(wanted);
        }
        taken
    }

    /// Returns units of [`take_dirty`](Self::take_dirty): as holes, or as they were if punching failed.
    pub fn punched(&mut self, extent: Extent, is_hole: bool) {
        if is_hole { self.clean.insert(extent) } else { self.dirty.insert(extent) }
    }

    /// Gives up the free units at the end. Returns the number of units that are left.
    pub fn trim(&mut self) -> u64 {
        while let Some(last) = self.dirty.ending_at(self.end).or_else(|| self.clean.ending_at(self.end)) {
            self.dirty.remove(last);
            self.clean.remove(last);
            self.end = last.at;
        }
        self.end
    }

    /// Returns the number of units that are free but hold blocks.
    pub fn dirty_units(&self) -> u64 {
        self.dirty.units
    }

    /// Returns the number of units that the durable map may still name.
    pub fn pending_units(&self) -> u64 {
        self.pending_units
    }

    /// Returns one past the last unit in use.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Returns the number of separate free extents.
    pub fn free_extents(&self) -> u64 {
        (self.dirty.by_place.len() + self.clean.by_place.len()) as u64
    }
}

/// A set of free extents; adjacent ones are joined.
#[derive(Default)]
struct FreeSet {
    /// First unit to number of units.
    by_place: BTreeMap<u64, u64>,
    /// Number of units and first unit.
    by_size: BTreeSet<(u64, u64)>,
    units: u64,
}

impl FreeSet {
    fn put(&mut self, extent: Extent) {
        self.by_place.insert(extent.at, extent.units);
        self.by_size.insert((extent.units, extent.at));
        self.units += extent.units;
    }

    fn drop(&mut self, extent: Extent) {
        self.by_place.remove(&extent.at);
        self.by_size.remove(&(extent.units, extent.at));
        self.units -= extent.units;
    }

    fn ending_at(&self, end: u64) -> Option<Extent> {
        let (&at, &units) = self.by_place.range(..end).next_back()?;
        (at + units == end).then_some(Extent { at, units })
    }

    fn starting_at(&self, at: u64) -> Option<Extent> {
        self.by_place.get(&at).map(|&units| Extent { at, units })
    }

    fn next_from(&self, at: u64) -> Option<Extent> {
        self.by_place.range(at..).next().map(|(&at, &units)| Extent { at, units })
    }

    fn insert(&mut self, mut extent: Extent) {
        if let Some(before) = self.ending_at(extent.at) {
            self.drop(before);
            extent = Extent { at: before.at, units: before.units + extent.units };
        }
        if let Some(behind) = self.starting_at(extent.end()) {
            self.drop(behind);
            extent.units += behind.units;
        }
        self.put(extent);
    }

    /// Removes the units of `extent` that are in the set.
    fn remove(&mut self, extent: Extent) {
        let before = self.by_place.range(..extent.at).next_back();
        let mut from = before.filter(|(at, units)| *at + *units > extent.at).map_or(extent.at, |(&at, _)| at);
        while let Some(found) = self.next_from(from).filter(|found| found.at < extent.end()) {
            self.drop(found);
            if found.at < extent.at {
                self.put(Extent { at: found.at, units: extent.at - found.at });
            }
            if found.end() > extent.end() {
                self.put(Extent { at: extent.end(), units: found.end() - extent.end() });
            }
            from = found.end();
        }
    }

    fn has(&self, units: u64) -> bool {
        self.by_size.last().is_some_and(|(largest, _)| *largest >= units)
    }

    /// Takes the first units of the smallest extent that is large enough.
    fn take(&mut self, units: u64) -> Option<Extent> {
        let &(found_units, at) = self.by_size.range((units, 0)..).next()?;
        self.drop(Extent { at, units: found_units });
        if found_units > units {
            self.put(Extent { at: at + units, units: found_units - units });
        }
        Some(Extent { at, units })
    }

    fn take_at(&mut self, at: u64, units: u64) -> bool {
        let Some(found) = self.starting_at(at).filter(|found| found.units >= units) else { return false };
        self.drop(found);
        if found.units > units {
            self.put(Extent { at: at + units, units: found.units - units });
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_env::sim::Rng;

    const fn extent(at: u64, units: u64) -> Extent {
        Extent { at, units }
    }

    #[test]
    fn units_are_reused_only_when_their_replacement_is_sealed() {
        let mut space = Space::empty();
        let first = space.allocate(10);
        assert_eq!(first, extent(1, 10));
        space.note_named(first);
        space.begin_seal();
        space.sealed(1);
        space.free(first, 2);
        assert_eq!((space.pending_units(), space.allocate(10)), (10, extent(11, 10)));
        space.sealed(1);
        assert_eq!(space.allocate(10), extent(21, 10));
        space.sealed(2);
        assert_eq!((space.pending_units(), space.allocate(10)), (0, first));
    }

    #[test]
    fn units_that_no_sealed_frame_names_are_reused_at_once() {
        let mut space = Space::empty();
        let first = space.allocate(10);
        space.note_named(first);
        space.free(first, 1);
        assert_eq!(space.allocate(4), extent(1, 4));
        assert!(space.extend(extent(1, 4), 6), "the rest is free");
        assert!(!space.extend(extent(1, 4), 1), "now it is used");
        assert!(space.extend(extent(1, 10), 5), "the container grows");
        assert_eq!(space.end(), 16);
    }

    #[test]
    fn overlapping_extents_are_found() {
        let pending = vec![(1, extent(8, 5))];
        assert!(Space::new([extent(5, 3)].into_iter(), pending.clone(), 0).is_ok());
        assert!(Space::new([extent(5, 4)].into_iter(), pending, 0).is_err());
        assert!(Space::new([extent(0, 1)].into_iter(), Vec::new(), 0).is_err(), "the header");
    }

    #[test]
    fn holes_cover_whole_blocks() {
        let mut space =
            Space::new([extent(1, 4), extent(30, 2)].into_iter(), Vec::new(), 0).expect("disjoint");
        assert_eq!(space.dirty_units(), 25);
        assert_eq!(space.take_dirty(9), [extent(8, 16)]);
        space.punched(extent(8, 16), true);
        assert_eq!(space.dirty_units(), 9);
        assert_eq!(space.take_dirty(9), [], "the others share blocks with used units");
        space.free(extent(30, 2), 1);
        space.sealed(1);
        assert_eq!(space.take_dirty(9), [extent(24, 8)]);
        space.punched(extent(24, 8), true);
        assert_eq!(space.trim(), 5);
        assert_eq!((space.free_extents(), space.dirty_units()), (0, 0));
    }

    #[test]
    fn no_unit_is_given_twice() {
        for seed in 0..100 {
            let mut rng = Rng::new(seed);
            let mut space = Space::empty();
            let mut live: Vec<Extent> = Vec::new();
            let mut held: Vec<Extent> = Vec::new();
            for number in 1..300 {
                match rng.below(8) {
                    0..=2 => {
                        let new = space.allocate(1 + rng.below(40));
                        if rng.below(2) == 0 {
                            space.note_named(new);
                        }
                        live.push(new);
                    }
                    3 | 4 if !live.is_empty() => {
                        space.free(live.swap_remove(rng.below(live.len() as u64) as usize), number);
                    }
                    5 => space.sealed(rng.below(number)),
                    6 => held.extend(space.take_dirty(1 + rng.below(3) as usize)),
                    7 if !held.is_empty() => {
                        let extent = held.swap_remove(rng.below(held.len() as u64) as usize);
                        space.punched(extent, rng.below(3) > 0);
                    }
                    _ => {
                        if let Some(last) = live.last_mut() {
                            let units = rng.below(9);
                            last.units += if space.extend(*last, units) { units } else { 0 };
                        }
                    }
                }
                let free = |set: &FreeSet| {
                    let all: Vec<_> = set.by_place.iter().map(|(&at, &units)| extent(at, units)).collect();
                    assert_eq!(all.iter().map(|it| it.units).sum::<u64>(), set.units);
                    assert_eq!(set.by_size.len(), all.len());
                    all
                };
                let pending = space.pending.iter().map(|(_, extent)| *extent);
                let mut all: Vec<_> = live.iter().chain(&held).copied().chain(pending).collect();
                all.extend(free(&space.dirty));
                all.extend(free(&space.clean));
                all.sort_unstable();
                let mut at = FIRST_UNIT;
                for extent in all {
                    assert_eq!(extent.at, at, "seed {seed}");
                    at = extent.end();
                }
                assert_eq!(at, space.end, "seed {seed}");
            }
        }
    }
}
