//! Table of the recent streams of each session and datafile, for [`StreamBypass`](super::StreamBypass) and
//! [`Prefetch`](super::Prefetch).

use super::admission::CacheRequest;
use std::collections::BTreeMap;

/// Maximum number of pairs of datafile and session; the one idle for longest is forgotten.
const PAIRS_MAX: usize = 4096;
/// Maximum number of streams of a pair: threads of one process, or programs on one mount, may read several parts of a
/// datafile.
const STREAMS_PER_PAIR: usize = 8;

/// Recent streams of all pairs of datafile and session, with state `S` each.
#[derive(Clone, Debug)]
pub(super) struct StreamTable<S> {
    pairs: BTreeMap<(u64, u64), Pair<S>>,
    /// Pairs in the order of their last request.
    idle: BTreeMap<u64, (u64, u64)>,
    requests: u64,
}

#[derive(Clone, Debug)]
struct Pair<S> {
    last_request: u64,
    streams: Streams<S>,
}

/// Recent streams of a pair, the least recently continued first.
#[derive(Clone, Debug)]
pub(super) struct Streams<S>(Vec<S>);

impl<S> Streams<S> {
    /// Removes and returns the most recently continued stream that a request belongs to.
    pub fn take(&mut self, belongs: impl FnMut(&S) -> bool) -> Option<S> {
        self.0.iter().rposition(belongs).map(|at| self.0.remove(at))
    }

    /// Returns the most recently continued stream.
    pub fn last(&self) -> Option<&S> {
        self.0.last()
    }

    /// Adds a stream that began or continued with the present request, and drops the oldest one if there are too many.
    pub fn push(&mut self, stream: S) -> &mut S {
        if self.0.len() == STREAMS_PER_PAIR {
            self.0.remove(0);
        }
        self.0.push(stream);
        self.0.last_mut().expect("a stream was pushed")
    }
}

impl<S> StreamTable<S> {
    /// Returns an empty table.
    pub const fn new() -> Self {
        Self { pairs: BTreeMap::new(), idle: BTreeMap::new(), requests: 0 }
    }

    /// Returns the streams of the request's datafile and session.
    pub fn of(&mut self, request: &CacheRequest) -> &mut Streams<S> {
        let key = (request.file, request.session);
        self.requests += 1;
        let now = self.requests;
        let is_full = self.pairs.len() >= PAIRS_MAX && !self.pairs.contains_key(&key);
        if let Some((_, idle_longest)) = is_full.then(|| self.idle.pop_first()).flatten() {
            self.pairs.remove(&idle_longest);
        }
        let new = || Pair { last_request: now, streams: Streams(Vec::new()) };
        let pair = self.pairs.entry(key).or_insert_with(new);
        self.idle.remove(&pair.last_request);
        self.idle.insert(now, key);
        pair.last_request = now;
        &mut pair.streams
    }

    /// Returns the number of pairs.
    #[cfg(test)]
    pub fn pairs(&self) -> usize {
        self.pairs.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::LocalExtent;

    #[test]
    fn the_table_is_bounded_and_forgets_the_pair_idle_for_longest() {
        let request = |file| CacheRequest { file, session: 1, extent: LocalExtent::new(0, 1) };
        let mut table: StreamTable<u32> = StreamTable::new();
        let mut count = |file| {
            let streams = table.of(&request(file));
            let count = streams.take(|_| true).unwrap_or(0) + 1;
            streams.push(count);
            assert!(table.pairs() <= PAIRS_MAX && table.idle.len() == table.pairs());
            count
        };
        (0..PAIRS_MAX as u64).for_each(|file| assert_eq!(count(file), 1));
        assert_eq!(count(0), 2);
        assert_eq!(count(1 << 40), 1);
        assert_eq!((count(0), count(1)), (3, 1), "the second pair was idle for longest");
    }

    #[test]
    fn the_oldest_stream_is_dropped() {
        let request = CacheRequest { file: 1, session: 1, extent: LocalExtent::new(0, 1) };
        let mut table: StreamTable<usize> = StreamTable::new();
        let streams = table.of(&request);
        (0..STREAMS_PER_PAIR).for_each(|value| _ = streams.push(value));
        assert_eq!(streams.take(|value| *value < 3), Some(2), "the most recent");
        streams.push(2);
        assert_eq!((streams.last(), streams.0.len()), (Some(&2), STREAMS_PER_PAIR));
        streams.push(99);
        assert_eq!((streams.take(|value| *value == 0), streams.take(|value| *value == 1)), (None, Some(1)));
    }
}
