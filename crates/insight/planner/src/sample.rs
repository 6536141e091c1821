//! A sample of a trace's requests that keeps the same windows of every rank, so that concurrent requests stay together.

use crate::mix::Direction;

/// Consecutive requests of a rank that are kept or dropped together.
const WINDOW: u64 = 64;

/// A request of the trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// Rank number in the trace.
    pub rank: u32,
    /// File number in the trace.
    pub file: u32,
    /// Index of the file group.
    pub group: u32,
    /// Read or write.
    pub direction: Direction,
    /// Whether the request is part of a collective call.
    pub collective: bool,
    /// First byte.
    pub offset: u64,
    /// Length in bytes; 0 for a sync.
    pub len: u64,
    /// Start, nanoseconds of the trace.
    pub start: u64,
    /// End, nanoseconds of the trace.
    pub end: u64,
    /// Index among the requests of its rank.
    pub(crate) number: u64,
}

/// A bounded sample of requests.
#[derive(Clone, Debug)]
pub struct Sample {
    requests: Vec<Request>,
    max: usize,
    /// Every `windows`-th window is kept.
    windows: u64,
    /// Every `ranks`-th rank is kept. Above 1 only if dropping windows does not suffice.
    ranks: u64,
    seen: u64,
}

impl Sample {
    /// An empty sample of at most `max` requests.
    pub fn new(max: usize) -> Self {
        Self { requests: Vec::new(), max: max.max(1), windows: 1, ranks: 1, seen: 0 }
    }

    /// Offers the `number`-th request of a rank to the sample.
    pub fn add(&mut self, mut request: Request, number: u64) {
        request.number = number;
        self.seen += u64::from(!request.is_sync());
        if !self.keeps(&request) {
            return;
        }
        self.requests.push(request);
        while self.requests.len() > self.max {
            let longest = self.requests.iter().map(|request| request.number).max().unwrap_or(0);
            if longest / WINDOW >= self.windows {
                self.windows *= 2;
            } else {
                self.ranks *= 2;
            }
            let mut requests = std::mem::take(&mut self.requests);
            requests.retain(|request| self.keeps(request));
            self.requests = requests;
        }
    }

    fn keeps(&self, request: &Request) -> bool {
        (request.number / WINDOW).is_multiple_of(self.windows)
            && hash(request.rank).is_multiple_of(self.ranks)
    }

    /// The sampled requests by start time; each rank's requests stay in order.
    pub fn requests(mut self) -> Vec<Request> {
        self.requests.sort_by_key(|request| (request.start, request.rank, request.number));
        self.requests
    }

    /// Number of requests offered, without syncs.
    pub fn seen(&self) -> u64 {
        self.seen
    }
}

impl Request {
    /// Whether this is a sync, which moves no bytes.
    pub fn is_sync(&self) -> bool {
        self.len == 0
    }

    /// A request without group and index.
    pub fn new(rank: u32, file: u32, direction: Direction, offset: u64, len: u64, time: (u64, u64)) -> Self {
        Self {
            rank,
            file,
            group: 0,
            direction,
            collective: false,
            offset,
            len,
            start: time.0,
            end: time.1,
            number: 0,
        }
    }
}

/// Hashes a rank. Neighboring ranks behave alike, so the sampled ranks are chosen at random.
fn hash(rank: u32) -> u64 {
    let x = (u64::from(rank) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (x ^ (x >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_ranks_keep_the_same_windows() {
        let mut sample = Sample::new(1000);
        for number in 0..10_000u64 {
            for rank in 0..8 {
                let request = Request::new(rank, 0, Direction::Read, number, 1, (number, number + 1));
                sample.add(request, number);
            }
        }
        assert_eq!(sample.seen(), 80_000);
        let kept = sample.requests();
        assert!((500..=1000).contains(&kept.len()), "{}", kept.len());
        let numbers = |rank| kept.iter().filter(|r| r.rank == rank).map(|r| r.number).collect::<Vec<_>>();
        assert!((1..8).all(|rank| numbers(rank) == numbers(0)));
    }

    #[test]
    fn ranks_are_dropped_if_there_are_too_many() {
        let mut sample = Sample::new(100);
        for rank in 0..100_000 {
            sample.add(Request::new(rank, 0, Direction::Write, 0, 1, (0, 1)), 0);
        }
        let kept = sample.requests().len();
        assert!((20..=100).contains(&kept), "{kept}");
    }
}
