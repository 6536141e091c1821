//! Who has what of one object.

use super::Mode;
use std::collections::BTreeMap;
use std::ops::Range;

/// A lock or token that a client keeps.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub client: u32,
    pub range: Range<u64>,
    pub mode: Mode,
    /// When its grant arrives.
    pub since: u64,
    /// Until when it is used.
    pub busy_until: u64,
    /// What was used last.
    pub last: Range<u64>,
    /// What was written under it and not written back, as ranges apart.
    dirty: Vec<Range<u64>>,
}

/// Ranges of unwritten bytes that are told apart; more are taken together.
const DIRTY_MAX: usize = 64;

impl Held {
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

    /// The client uses a part of it.
    pub fn use_it(&mut self, part: &Range<u64>, mode: Mode, until: u64) {
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
            // Written back in the background, as memory would have it.
            self.dirty.remove(0);
        }
    }

    pub fn overlaps(&self, range: &Range<u64>) -> bool {
        self.range.start < range.end && range.start < self.range.end
    }

    /// Takes the unwritten bytes of a range; how many there were.
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

/// All that is held of an object.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    held: Vec<Held>,
    /// Who lost a lock: where it was used last, and when that is forgotten.
    losers: BTreeMap<u32, (Range<u64>, u64)>,
}

impl Table {
    pub fn iter(&self) -> impl Iterator<Item = &Held> {
        self.held.iter()
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Held> {
        self.held.iter_mut()
    }

    /// What the client has that serves for a range.
    pub fn covering(&mut self, client: u32, range: &Range<u64>, mode: Mode) -> Option<&mut Held> {
        self.held.iter_mut().find(|held| {
            held.client == client
                && held.range.start <= range.start
                && range.end <= held.range.end
                && (held.mode == Mode::Write || mode == Mode::Read)
        })
    }

    /// Adds a grant; what the client had inside it is now that.
    pub fn add(&mut self, mut held: Held) {
        for old in &mut self.held {
            let is_inside = held.range.start <= old.range.start && old.range.end <= held.range.end;
            // A lock for reading does not stand in for one for writing.
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

    /// Whether another client's lock conflicts with a range.
    pub fn conflicts(held: &Held, client: u32, mode: Mode) -> bool {
        held.client != client && (mode == Mode::Write || held.mode == Mode::Write)
    }

    /// Remembers where a lock that is lost was used last.
    pub fn note_loser(&mut self, client: u32, last: Range<u64>, until: u64) {
        self.losers.insert(client, (last, until));
    }

    /// Where others that lost a lock used it last.
    pub fn losers(&mut self, client: u32, now: u64) -> impl Iterator<Item = &Range<u64>> {
        self.losers.retain(|_, (_, until)| *until > now);
        self.losers.iter().filter(move |(other, _)| **other != client).map(|(_, (last, _))| last)
    }

    /// Keeps what is not empty.
    pub fn tidy(&mut self) {
        self.held.retain(|held| !held.range.is_empty());
    }

    /// Adds what a holder keeps of what was cut in two.
    pub fn push(&mut self, held: Held) {
        self.held.push(held);
    }

    pub fn forget(&mut self, client: u32) {
        self.held.retain(|held| held.client != client);
        self.losers.remove(&client);
    }
}
