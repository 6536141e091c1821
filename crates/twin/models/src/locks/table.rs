//! Locks of one object.

use super::Mode;
use std::collections::BTreeMap;
use std::ops::Range;

/// A lock or token that a client holds.
#[derive(Clone, Debug)]
pub(super) struct HeldLock {
    pub client: u32,
    pub range: Range<u64>,
    pub mode: Mode,
    /// Time at which the grant arrives.
    pub since: u64,
    /// Time until which the client uses it.
    pub busy_until: u64,
    /// Range of the last use.
    pub last: Range<u64>,
    /// Dirty ranges under the lock, disjoint.
    dirty: Vec<Range<u64>>,
}

/// Maximum number of dirty ranges tracked.
const DIRTY_MAX: usize = 64;

impl HeldLock {
    pub fn new(client: u32, range: Range<u64>, mode: Mode, since: u64) -> Self {
        Self {
            client,
            last: range.start..range.start,
            range,
            mode,
            since,
            busy_until: since,
            dirty: Vec::new(),
        }
    }

    /// The client uses a part of the range.
    pub fn mark_used(&mut self, part: &Range<u64>, mode: Mode, until: u64) {
        self.busy_until = self.busy_until.max(until);
        self.last = part.clone();
        if mode == Mode::Write {
            self.note_written(part.clone());
        }
    }

    fn note_written(&mut self, part: Range<u64>) {
        let mut joined = part;
        self.dirty.retain(|other| {
            let touches = other.start <= joined.end && joined.start <= other.end;
            if touches {
                joined = joined.start.min(other.start)..joined.end.max(other.end);
            }
            !touches
        });
        self.dirty.push(joined);
        if self.dirty.len() > DIRTY_MAX {
            // Assume that the oldest range is written back in the background.
            self.dirty.remove(0);
        }
    }

    pub fn overlaps(&self, range: &Range<u64>) -> bool {
        self.range.start < range.end && range.start < self.range.end
    }

    /// Removes the dirty bytes of a range and returns their number.
    pub fn flush(&mut self, range: &Range<u64>) -> u64 {
        let mut count = 0;
        let mut rest = Vec::new();
        for part in self.dirty.drain(..) {
            let (low, high) = (part.start.max(range.start), part.end.min(range.end));
            if low >= high {
                rest.push(part);
                continue;
            }
            count += high - low;
            rest.extend([part.start..low, high..part.end].into_iter().filter(|piece| !piece.is_empty()));
        }
        self.dirty = rest;
        count
    }
}

/// All locks of an object.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    held: Vec<HeldLock>,
    /// Clients that lost a lock: the range of its last use, and the time at which that is forgotten.
    losers: BTreeMap<u32, (Range<u64>, u64)>,
}

impl Table {
    pub fn iter(&self) -> impl Iterator<Item = &HeldLock> {
        self.held.iter()
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut HeldLock> {
        self.held.iter_mut()
    }

    /// Returns the client's lock that covers a range in this mode.
    pub fn covering(&mut self, client: u32, range: &Range<u64>, mode: Mode) -> Option<&mut HeldLock> {
        self.held.iter_mut().find(|held| {
            held.client == client
                && held.range.start <= range.start
                && range.end <= held.range.end
                && (held.mode == Mode::Write || mode == Mode::Read)
        })
    }

    /// Adds a grant. The client's locks inside it become part of it.
    pub fn add(&mut self, mut held: HeldLock) {
        for old in &mut self.held {
            let is_inside = held.range.start <= old.range.start && old.range.end <= held.range.end;
            // A read lock does not replace a write lock.
            if old.client == held.client && is_inside && (held.mode == Mode::Write || old.mode == Mode::Read)
            {
                held.busy_until = held.busy_until.max(old.busy_until);
                for part in std::mem::take(&mut old.dirty) {
                    held.note_written(part);
                }
                old.range = 0..0;
            }
        }
        self.held.retain(|old| !old.range.is_empty());
        self.held.push(held);
    }

    /// Whether another client's lock conflicts with the mode.
    pub fn conflicts(held: &HeldLock, client: u32, mode: Mode) -> bool {
        held.client != client && (mode == Mode::Write || held.mode == Mode::Write)
    }

    /// Remembers the last use of a lock that was lost.
    pub fn note_loser(&mut self, client: u32, last: Range<u64>, until: u64) {
        self.losers.insert(client, (last, until));
    }

    /// Returns the ranges that other clients used last under locks they have lost.
    pub fn losers(&mut self, client: u32, now: u64) -> impl Iterator<Item = &Range<u64>> {
        self.losers.retain(|_, (_, until)| *until > now);
        self.losers.iter().filter(move |(other, _)| **other != client).map(|(_, (last, _))| last)
    }

    /// Removes empty locks.
    pub fn tidy(&mut self) {
        self.held.retain(|held| !held.range.is_empty());
    }

    /// Adds the second part of a lock that was split.
    pub fn push(&mut self, held: HeldLock) {
        self.held.push(held);
    }

    pub fn forget(&mut self, client: u32) {
        self.held.retain(|held| held.client != client);
        self.losers.remove(&client);
    }
}
