//! What is run: requests by rank, where ranks wait for each other, what memory may still hold.

use crate::mix::Direction;
use crate::sample::Request;
use crate::survey::Traced;
use std::collections::{BTreeMap, BTreeSet};

/// This part of what is read may be written where reads are a head's.
const WRITTEN: u64 = 8;

/// What is run: requests of a trace by rank.
#[derive(Clone, Debug)]
pub struct Load {
    pub(super) requests: Vec<Planned>,
    /// The requests of each rank, as indices.
    pub(super) ranks: Vec<Vec<u32>>,
    /// Requests between one point at which all ranks wait and the next.
    pub(super) epochs: Vec<u32>,
    /// Those of them that move bytes.
    pub(super) moving: usize,
    /// Requests of the trace for each of these.
    pub(super) scale: f64,
    /// Whether most bytes are read elsewhere than where their rank's read before ended, and next to nothing is written.
    pub(super) jumps: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Planned {
    pub(super) request: Request,
    pub(super) epoch: u32,
    /// Bytes that all ranks moved since somebody moved these last; `None` where nobody has moved all of them.
    pub(super) since: Option<u64>,
}

impl Load {
    /// The sample of a trace, all of it or that of one unit.
    pub fn of(traced: &Traced, unit: Option<u32>) -> Self {
        let wanted = |request: &&Request| unit.is_none_or(|unit| request.unit == unit);
        let requests: Vec<Request> = traced.sample.iter().filter(wanted).copied().collect();
        let all: u64 = match unit {
            None => traced.requests,
            Some(unit) => {
                let unit = &traced.units[unit as usize];
                unit.reads + unit.writes
            }
        };
        Self::from(&requests, all)
    }

    /// Requests by time, of `all` that there were.
    pub(super) fn from(requests: &[Request], all: u64) -> Self {
        let scale = if requests.is_empty() { 1.0 } else { all as f64 / moving(requests) as f64 };
        let mut moved = Moved::default();
        let since = |request: &Request| moved.since(request).map(|bytes| (bytes as f64 * scale) as u64);
        let since: Vec<Option<u64>> = requests.iter().map(since).collect();
        Self::with(requests, &since, scale, jumps(requests))
    }

    fn with(requests: &[Request], since: &[Option<u64>], scale: f64, jumps: bool) -> Self {
        // By rising numbers: neighbors share a node.
        let numbers: BTreeSet<u32> = requests.iter().map(|request| request.rank).collect();
        let numbers: BTreeMap<u32, u32> = numbers.into_iter().zip(0..).collect();
        let mut ranks: Vec<Vec<u32>> = vec![Vec::new(); numbers.len()];
        let mut planned = Vec::with_capacity(requests.len());
        let begins = Waits::of(requests);
        let mut epochs = vec![0; begins.len() + 1];
        let mut epoch = 0;
        for (index, (request, since)) in requests.iter().zip(since).enumerate() {
            let rank = numbers[&request.rank];
            ranks[rank as usize].push(index as u32);
            epoch += usize::from(begins.get(epoch) == Some(&index));
            epochs[epoch] += 1;
            planned.push(Planned { request: *request, epoch: epoch as u32, since: *since });
        }
        Self { requests: planned, ranks, epochs, moving: moving(requests), scale, jumps }
    }

    /// About `max` of the requests, of every rank the same windows.
    #[must_use]
    pub fn thin(&self, max: usize) -> Self {
        const WINDOW: usize = 16;
        let every = self.requests.len().div_ceil(max.max(1)).max(1);
        if every == 1 {
            return self.clone();
        }
        let mut keep = vec![false; self.requests.len()];
        for rank in &self.ranks {
            for (number, &index) in rank.iter().enumerate() {
                keep[index as usize] = (number / WINDOW).is_multiple_of(every);
            }
        }
        let kept = self.requests.iter().zip(&keep).filter(|(_, keep)| **keep);
        let (requests, since): (Vec<Request>, Vec<Option<u64>>) =
            kept.map(|(planned, _)| (planned.request, planned.since)).unzip();
        let all = self.scale * self.moving as f64;
        Self::with(&requests, &since, all / moving(&requests) as f64, self.jumps)
    }

    /// The files of its requests, by their numbers in the trace.
    pub fn files(&self) -> BTreeSet<u32> {
        self.requests.iter().map(|planned| planned.request.file).collect()
    }

    /// Requests that are run.
    pub fn requests(&self) -> usize {
        self.moving
    }

    /// Bytes that they move.
    pub fn bytes(&self) -> u64 {
        self.requests.iter().map(|planned| planned.request.len).fold(0, u64::saturating_add)
    }
}

/// Whether most bytes are read elsewhere than where their rank's read before ended, in the same file, and next to nothing
/// is written.
fn jumps(requests: &[Request]) -> bool {
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
    apart > read / 2 && written <= read / WRITTEN
}

/// How many move bytes; at least one.
fn moving(requests: &[Request]) -> usize {
    requests.iter().filter(|request| !request.is_sync()).count().max(1)
}

/// Who used a file, and by which request.
type Use = (u32, usize);

/// Where all ranks wait for each other: at the latest point without anything under way between one rank's use of a file
/// and another one's in the other direction, and where there was such a point between calls of all ranks.
#[derive(Default)]
struct Waits {
    /// The first request of each epoch but the first.
    begins: Vec<usize>,
    /// End of the last request so far.
    end: u64,
    /// The latest request that began with nothing under way.
    quiet: usize,
    /// By file and whether it was read: the first request of the epoch, and the first one of another rank.
    used: BTreeMap<(u32, bool), [Option<Use>; 2]>,
    /// Whether the request before was part of a call of all ranks.
    collective: bool,
}

impl Waits {
    /// The first request of each epoch but the first.
    fn of(requests: &[Request]) -> Vec<usize> {
        let mut waits = Self::default();
        for (index, request) in requests.iter().enumerate() {
            if !request.is_sync() {
                waits.add(index, request, requests);
            }
            waits.end = waits.end.max(request.end);
        }
        waits.begins
    }

    fn add(&mut self, index: usize, request: &Request, requests: &[Request]) {
        let is_quiet = request.start > 0 && request.start >= self.end;
        if is_quiet {
            self.quiet = index;
        }
        let others = self.used.get(&(request.file, request.direction == Direction::Write));
        let turned = others
            .is_some_and(|of| of.iter().flatten().any(|&(rank, at)| rank != request.rank && at < self.quiet));
        let called = is_quiet && request.collective && self.collective;
        self.collective = request.collective;
        if turned || called {
            self.begins.push(self.quiet);
            self.used.clear();
            let since = requests[self.quiet..index].iter().enumerate();
            since
                .filter(|(_, request)| !request.is_sync())
                .for_each(|(at, request)| self.uses(self.quiet + at, request));
        }
        self.uses(index, request);
    }

    fn uses(&mut self, index: usize, request: &Request) {
        let [first, other] =
            self.used.entry((request.file, request.direction == Direction::Read)).or_default();
        match first {
            None => *first = Some((request.rank, index)),
            Some((rank, _)) if *rank != request.rank => *other = other.or(Some((request.rank, index))),
            Some(_) => {}
        }
    }
}

/// When each byte of each file was moved last, counted in bytes that were moved in all.
#[derive(Default)]
struct Moved {
    bytes: u64,
    /// By file and first byte: one past the last, and when.
    ranges: BTreeMap<(u32, u64), (u64, u64)>,
}

impl Moved {
    /// Takes a request; how many bytes were moved since all of its bytes were.
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
