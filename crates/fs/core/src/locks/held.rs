//! Locks held on a file.

use super::{HeldLock, LockMode};
use crate::ranges::{ByteRange, RangeSet};
use std::collections::BTreeMap;

/// Held locks. Exclusive ranges are disjoint over all owners, so one ordered map suffices; shared ranges are kept per
/// owner.
#[derive(Clone, Debug)]
pub(super) struct Held<O> {
    /// Start to (end, owner). Adjacent ranges of the same owner are merged.
    exclusive: BTreeMap<u64, (u64, O)>,
    shared: BTreeMap<O, RangeSet>,
    /// Number of ranges over all owners and modes.
    count: usize,
}

impl<O: Ord + Clone> Held<O> {
    pub(super) fn new() -> Self {
        Self { exclusive: BTreeMap::new(), shared: BTreeMap::new(), count: 0 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    fn exclusive_in(&self, range: ByteRange) -> impl Iterator<Item = (ByteRange, &O)> {
        let before = self
            .exclusive
            .range(..range.start())
            .next_back()
            .filter(move |(_, (end, _))| *end > range.start());
        let inside = self.exclusive.range(range.start()..range.end());
        before.into_iter().chain(inside).filter_map(|(&start, (end, owner))| {
            // Ranges are never empty; `filter_map` only avoids an unwrap.
            ByteRange::new(start, *end).map(|range| (range, owner))
        })
    }

    /// Locks of other owners that conflict with `mode` on `range`: exclusive ones by offset, then shared ones by
    /// owner.
    pub(super) fn conflicts<'a>(
        &'a self,
        owner: &'a O,
        range: ByteRange,
        mode: LockMode,
    ) -> impl Iterator<Item = (ByteRange, LockMode, &'a O)> {
        let exclusive = self
            .exclusive_in(range)
            .filter(move |(_, holder)| *holder != owner)
            .map(|(held, holder)| (held, LockMode::Exclusive, holder));
        let shared = (mode == LockMode::Exclusive).then_some(&self.shared).into_iter().flatten();
        let shared = shared.filter(move |(holder, _)| *holder != owner).filter_map(move |(holder, set)| {
            Some((set.overlapping(range).next()?, LockMode::Shared, holder))
        });
        exclusive.chain(shared)
    }

    /// Returns the conflicting lock with the lowest start.
    pub(super) fn first_conflict(&self, owner: &O, range: ByteRange, mode: LockMode) -> Option<HeldLock<O>> {
        self.conflicts(owner, range, mode)
            .min_by_key(|&(held, mode, holder)| (held.start(), mode, holder))
            .map(|(range, mode, owner)| HeldLock { range, mode, owner: owner.clone() })
    }

    /// Sets the lock of `owner` on `range` to `mode`, replacing what it held there. The caller has checked for
    /// conflicts.
    pub(super) fn set(&mut self, owner: &O, range: ByteRange, mode: LockMode) {
        self.clear(owner, range);
        match mode {
            LockMode::Shared => {
                let set = self.shared.entry(owner.clone()).or_default();
                self.count -= set.count();
                set.insert(range);
                self.count += set.count();
            }
            LockMode::Exclusive => self.set_exclusive(owner, range),
        }
    }

    fn set_exclusive(&mut self, owner: &O, range: ByteRange) {
        let (mut start, mut end) = (range.start(), range.end());
        if let Some((&before, (before_end, holder))) = self.exclusive.range(..start).next_back()
            && *before_end == start
            && holder == owner
        {
            start = before;
            self.count -= 1;
        }
        if self.exclusive.get(&end).is_some_and(|(_, holder)| holder == owner)
            && let Some((after_end, _)) = self.exclusive.remove(&end)
        {
            end = after_end;
            self.count -= 1;
        }
        self.exclusive.insert(start, (end, owner.clone()));
        self.count += 1;
    }

    /// Removes the locks of `owner` on `range`.
    pub(super) fn clear(&mut self, owner: &O, range: ByteRange) {
        if let Some(set) = self.shared.get_mut(owner) {
            self.count -= set.count();
            set.remove(range);
            self.count += set.count();
            if set.is_empty() {
                self.shared.remove(owner);
            }
        }
        let cut: Vec<ByteRange> =
            self.exclusive_in(range).filter(|(_, holder)| *holder == owner).map(|(held, _)| held).collect();
        for held in cut {
            self.exclusive.remove(&held.start());
            self.count -= 1;
            let left = ByteRange::new(held.start(), range.start());
            let right = ByteRange::new(range.end(), held.end());
            for rest in left.into_iter().chain(right) {
                self.exclusive.insert(rest.start(), (rest.end(), owner.clone()));
                self.count += 1;
            }
        }
    }

    /// Returns true if clearing `range` would increase the number of ranges by one.
    pub(super) fn clear_splits(&self, owner: &O, range: ByteRange) -> bool {
        let inside = |held: ByteRange| held.start() < range.start() && range.end() < held.end();
        self.exclusive_in(range).any(|(held, holder)| holder == owner && inside(held))
            || self.shared.get(owner).is_some_and(|set| set.overlapping(range).any(inside))
    }

    /// Removes all locks of `owner`; returns true if there were any.
    pub(super) fn remove_owner(&mut self, owner: &O) -> bool {
        let before = self.count;
        self.count -= self.shared.remove(owner).map_or(0, |set| set.count());
        let exclusive = self.exclusive.len();
        self.exclusive.retain(|_, (_, holder)| holder != owner);
        self.count -= exclusive - self.exclusive.len();
        self.count < before
    }

    /// Iterates over all held locks: exclusive ones by offset, then shared ones by owner and offset.
    pub(super) fn iter(&self) -> impl Iterator<Item = HeldLock<O>> + '_ {
        let exclusive = self.exclusive_in(ByteRange::ALL).map(|(range, owner)| HeldLock {
            range,
            mode: LockMode::Exclusive,
            owner: owner.clone(),
        });
        let shared = self.shared.iter().flat_map(|(owner, set)| {
            set.iter().map(|range| HeldLock { range, mode: LockMode::Shared, owner: owner.clone() })
        });
        exclusive.chain(shared)
    }
}
