//! Waiting requests of one direction, indexed by address and by age.

use std::collections::BTreeMap;

/// Key of a request: its start address and its sequence number.
pub(super) type Slot = (u64, u64);

/// A request and the pieces merged into it.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub start: u64,
    pub end: u64,
    pub pieces: Vec<u32>,
    sequence: u64,
    since: u64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Queue {
    by_start: BTreeMap<Slot, Request>,
    by_age: BTreeMap<u64, (u64, u64)>,
}

impl Queue {
    pub fn is_empty(&self) -> bool {
        self.by_start.is_empty()
    }

    pub fn len(&self) -> usize {
        self.by_start.len()
    }

    /// Adds a piece: appended or prepended to an adjacent request, or as a new request.
    pub fn add(&mut self, sequence: u64, now: u64, piece: u32, at: u64, len: u64, request_max: u64) {
        let mut request = Request { start: at, end: at + len, pieces: vec![piece], sequence, since: now };
        let before = self.by_start.range(..(at, 0)).next_back();
        if let Some((&slot, before)) = before
            && before.end == at
            && before.end - before.start + len <= request_max
        {
            let mut joined = self.take(slot);
            joined.end = request.end;
            joined.pieces.append(&mut request.pieces);
            request = joined;
        }
        let after = self.by_start.range((request.end, 0)..=(request.end, u64::MAX)).next();
        if let Some((&slot, after)) = after
            && after.end - request.start <= request_max
        {
            let mut joined = self.take(slot);
            joined.pieces.extend(std::mem::take(&mut request.pieces));
            joined.start = request.start;
            if request.sequence < joined.sequence {
                (joined.sequence, joined.since) = (request.sequence, request.since);
            }
            request = joined;
        }
        self.by_age.insert(request.sequence, (request.start, request.since));
        self.by_start.insert((request.start, request.sequence), request);
    }

    pub fn take(&mut self, slot: Slot) -> Request {
        let request = self.by_start.remove(&slot).expect("a request that waits");
        self.by_age.remove(&request.sequence);
        request
    }

    /// Returns the oldest request: its sequence number and its key.
    pub fn oldest(&self) -> Option<(u64, Slot)> {
        self.by_age.first_key_value().map(|(&sequence, &(start, _))| (sequence, (start, sequence)))
    }

    /// Returns the oldest request: its arrival time and its key.
    pub fn oldest_since(&self) -> Option<(u64, Slot)> {
        self.by_age.first_key_value().map(|(&sequence, &(start, since))| (since, (start, sequence)))
    }

    /// Returns the first request at or behind an address.
    pub fn next_from(&self, at: u64) -> Option<Slot> {
        self.by_start.range((at, 0)..).next().map(|(&slot, _)| slot)
    }

    /// Whether a request starts in a range.
    pub fn has_between(&self, from: u64, to: u64) -> bool {
        self.next_from(from).is_some_and(|(start, _)| start < to)
    }
}
