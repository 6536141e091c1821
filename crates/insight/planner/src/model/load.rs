//! The input of a run: requests by rank, synchronization points, and reuse distances for the page cache.

use crate::mix::Direction;
use crate::sample::Request;
use crate::survey::TraceSummary;
use std::collections::{BTreeMap, BTreeSet};

/// Reads may be served by a head if writes are at most this fraction (1/8) of the bytes read.
const WRITE_FRACTION_DIVISOR: u64 = 8;

/// The requests of a trace, by rank.
#[derive(Clone, Debug)]
pub struct Load {
    pub(super) requests: Vec<LoadRequest>,
    /// Indices of the requests of each rank.
    pub(super) ranks: Vec<Vec<u32>>,
    /// Number of requests between two synchronization points.
    pub(super) epochs: Vec<u32>,
    /// Number of requests that move bytes.
    pub(super) transfers: usize,
    /// Requests of the trace that each request here stands for.
    pub(super) scale: f64,
    /// Whether disk heads serve the reads, where the figures have them: if most bytes are read at random and almost
    /// nothing is written.
    pub(super) reads_by_head: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct LoadRequest {
    pub(super) request: Request,
    pub(super) epoch: u32,
    /// Reuse distance: bytes that all ranks moved since this range was last moved; `None` if part of it never was.
    pub(super) reuse_distance: Option<u64>,
}

impl Load {
    /// The sample of a trace, restricted to one file group if `group` is given.
    pub fn of(traced: &TraceSummary, group: Option<u32>) -> Self {
        let wanted = |request: &&Request| group.is_none_or(|group| request.group == group);
        let requests: Vec<Request> = traced.sample.iter().filter(wanted).copied().collect();
        let all: u64 = match group {
            None => traced.requests,
            Some(group) => {
                let group = &traced.groups[group as usize];
                group.reads + group.writes
            }
        };
        Self::from(&requests, all)
    }

    /// Builds a load from requests in time order, a sample of `all`.
    pub(crate) fn from(requests: &[Request], all: u64) -> Self {
        let scale = if requests.is_empty() { 1.0 } else { all as f64 / transfers(requests) as f64 };
        let mut reuse_distances = ReuseDistances::default();
        let scaled = |bytes: u64| (bytes as f64 * scale) as u64;
        let since = |request: &Request| reuse_distances.since(request).map(scaled);
        let since: Vec<Option<u64>> = requests.iter().map(since).collect();
        Self::with(requests, &since, scale, random_reads(requests))
    }

    fn with(requests: &[Request], since: &[Option<u64>], scale: f64, reads_by_head: bool) -> Self {
        // Ranks keep their order, because neighbors share a node.
        let numbers: BTreeSet<u32> = requests.iter().map(|request| request.rank).collect();
        let numbers: BTreeMap<u32, u32> = numbers.into_iter().zip(0..).collect();
        let mut ranks: Vec<Vec<u32>> = vec![Vec::new(); numbers.len()];
        let mut load_requests = Vec::with_capacity(requests.len());
        let begins = Barriers::of(requests);
        let mut epochs = vec![0; begins.len() + 1];
        let mut epoch = 0;
        for (index, (request, since)) in requests.iter().zip(since).enumerate() {
            let rank = numbers[&request.rank];
            ranks[rank as usize].push(index as u32);
            epoch += usize::from(begins.get(epoch) == Some(&index));
            epochs[epoch] += 1;
            load_requests.push(LoadRequest {
                request: *request,
                epoch: epoch as u32,
                reuse_distance: *since,
            });
        }
        Self { requests: load_requests, ranks, epochs, transfers: transfers(requests), scale, reads_by_head }
    }

    /// Subsamples to about `max` requests, with the same windows of every rank.
    #[must_use]
    pub fn subsample(&self, max: usize) -> Self {
        const WINDOW: usize = 16;
        self.subsample_windows(max, WINDOW)
    }

    /// Subsamples to about `max` requests, with a few long windows of every rank, or the first requests of every rank if
    /// heads serve the reads. Sequential streams are then interrupted seldom or never: an interruption ends read-ahead.
    #[must_use]
    pub(crate) fn subsample_long(&self, max: usize) -> Self {
        const WINDOWS: usize = 4;
        const WINDOW_MIN: usize = 16;
        let windows = if self.reads_by_head { 1 } else { WINDOWS };
        let each = max / self.ranks.len().max(1);
        self.subsample_windows(max, (each / windows).max(WINDOW_MIN))
    }

    fn subsample_windows(&self, max: usize, window: usize) -> Self {
        let every = self.requests.len().div_ceil(max.max(1)).max(1);
        if every == 1 {
            return self.clone();
        }
        let mut keep = vec![false; self.requests.len()];
        for rank in &self.ranks {
            for (number, &index) in rank.iter().enumerate() {
                keep[index as usize] = (number / window).is_multiple_of(every);
            }
        }
        let kept = self.requests.iter().zip(&keep).filter(|(_, keep)| **keep);
        let (requests, since): (Vec<Request>, Vec<Option<u64>>) =
            kept.map(|(kept, _)| (kept.request, kept.reuse_distance)).unzip();
        let all = self.scale * self.transfers as f64;
        Self::with(&requests, &since, all / transfers(&requests) as f64, self.reads_by_head)
    }

    /// Lets disk heads serve the reads also if they are in order, unless more than a little is written. Loads with the
    /// requests of the same program in different orders are then judged by the same model.
    #[must_use]
    pub(crate) fn with_reads_by_head(mut self) -> Self {
        let moved = |direction| {
            let requests = self.requests.iter().map(|one| &one.request);
            let of = requests.filter(|request| !request.is_sync() && request.direction == direction);
            of.map(|request| request.len).fold(0, u64::saturating_add)
        };
        let (read, written) = (moved(Direction::Read), moved(Direction::Write));
        self.reads_by_head = read > 0 && written <= read / WRITE_FRACTION_DIVISOR;
        self
    }

    /// Numbers of the files that are accessed.
    pub fn files(&self) -> BTreeSet<u32> {
        self.requests.iter().map(|one| one.request.file).collect()
    }

    /// Number of requests that move bytes.
    pub fn requests(&self) -> usize {
        self.transfers
    }

    /// Bytes that the requests move.
    pub fn bytes(&self) -> u64 {
        self.requests.iter().map(|one| one.request.len).fold(0, u64::saturating_add)
    }
}

/// Whether most bytes are read at another offset than where the rank's previous read of the file ended, and almost
/// nothing is written.
fn random_reads(requests: &[Request]) -> bool {
    let mut ends: BTreeMap<(u32, u32), u64> = BTreeMap::new();
    let (mut read, mut apart, mut written) = (0u64, 0u64, 0u64);
    for request in requests.iter().filter(|request| !request.is_sync()) {
        if request.direction == Direction::Write {
            written = written.saturating_add(request.len);
            continue;
        }
        let end = request.offset.saturating_add(request.len);
        let before = ends.insert((request.rank, request.file), end);
        read = read.saturating_add(request.len);
        if before.is_some_and(|before| before != request.offset) {
            apart = apart.saturating_add(request.len);
        }
    }
    apart > read / 2 && written <= read / WRITE_FRACTION_DIVISOR
}

/// Number of requests that move bytes; at least 1.
fn transfers(requests: &[Request]) -> usize {
    requests.iter().filter(|request| !request.is_sync()).count().max(1)
}

/// A rank and the index of its request.
type Access = (u32, usize);

/// Finds the points at which all ranks wait for each other.
///
/// The trace does not record barriers, so they are inferred from idle points, at which no request is in flight. There
/// is a barrier at the latest idle point between conflicting accesses of two ranks to a file (one reads, the other
/// writes), and at an idle point between two collective calls.
#[derive(Default)]
struct Barriers {
    /// First request of each epoch but the first.
    begins: Vec<usize>,
    /// End of the latest request so far.
    end: u64,
    /// Latest request that began with nothing in flight.
    idle_point: usize,
    /// By file and whether it was read: the first request of the epoch, and the first one of another rank.
    accesses: BTreeMap<(u32, bool), [Option<Access>; 2]>,
    /// Whether the previous request was part of a collective call.
    collective: bool,
}

impl Barriers {
    /// First request of each epoch but the first.
    fn of(requests: &[Request]) -> Vec<usize> {
        let mut barriers = Self::default();
        for (index, request) in requests.iter().enumerate() {
            if !request.is_sync() {
                barriers.add(index, request, requests);
            }
            barriers.end = barriers.end.max(request.end);
        }
        barriers.begins
    }

    fn add(&mut self, index: usize, request: &Request, requests: &[Request]) {
        let is_idle_point = request.start > 0 && request.start >= self.end;
        if is_idle_point {
            self.idle_point = index;
        }
        let others = self.accesses.get(&(request.file, request.direction == Direction::Write));
        let is_conflict = |&(rank, at): &Access| rank != request.rank && at < self.idle_point;
        let conflicts = others.is_some_and(|of| of.iter().flatten().any(is_conflict));
        let is_collective = is_idle_point && request.collective && self.collective;
        self.collective = request.collective;
        if conflicts || is_collective {
            self.begins.push(self.idle_point);
            self.accesses.clear();
            let since = requests[self.idle_point..index].iter().enumerate();
            since
                .filter(|(_, request)| !request.is_sync())
                .for_each(|(at, request)| self.record_access(self.idle_point + at, request));
        }
        self.record_access(index, request);
    }

    fn record_access(&mut self, index: usize, request: &Request) {
        let [first, other] =
            self.accesses.entry((request.file, request.direction == Direction::Read)).or_default();
        match first {
            None => *first = Some((request.rank, index)),
            Some((rank, _)) if *rank != request.rank => *other = other.or(Some((request.rank, index))),
            Some(_) => {}
        }
    }
}

/// Reuse distances: when each byte of each file was last moved, measured in bytes moved by all ranks.
#[derive(Default)]
struct ReuseDistances {
    bytes: u64,
    /// By file and first byte: one past the last byte, and the position at which the range was moved.
    ranges: BTreeMap<(u32, u64), (u64, u64)>,
}

impl ReuseDistances {
    /// Records a request and returns the bytes moved since all of its range was last moved.
    fn since(&mut self, request: &Request) -> Option<u64> {
        if request.is_sync() {
            return None;
        }
        let (file, start) = (request.file, request.offset);
        let end = start.saturating_add(request.len);
        let before = self.ranges.range(..(file, start)).next_back();
        let before = before.filter(|((of, _), (to, _))| *of == file && *to > start);
        let before = before.map(|(&key, &value)| (key, value));
        let within: Vec<_> =
            self.ranges.range((file, start)..(file, end)).map(|(&key, &value)| (key, value)).collect();
        let (mut covered, mut oldest) = (start, u64::MAX);
        for ((_, from), (to, when)) in before.into_iter().chain(within) {
            if from <= covered {
                covered = covered.max(to);
                oldest = oldest.min(when);
            }
            self.ranges.remove(&(file, from));
            if from < start {
                self.ranges.insert((file, from), (start, when));
            }
            if to > end {
                self.ranges.insert((file, end), (to, when));
            }
        }
        let since = (covered >= end && end > start).then(|| self.bytes - oldest);
        self.bytes = self.bytes.saturating_add(request.len);
        self.ranges.insert((file, start), (end, self.bytes));
        since
    }
}
