//! Some of a trace's requests: of every rank the same windows, so that what ranks did at a time stays together.

use crate::mix::Direction;

/// Requests in a row of a rank that are kept or left out together.
const WINDOW: u64 = 64;

/// One request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// Who, by the trace's number.
    pub rank: u32,
    /// On which file, by the trace's number.
    pub file: u32,
    /// To which unit of planning it belongs.
    pub unit: u32,
    /// Which way.
    pub direction: Direction,
    /// Part of a call that all ranks make together.
    pub collective: bool,
    /// First byte.
    pub offset: u64,
    /// Bytes; none is a sync.
    pub len: u64,
    /// Begin in nanoseconds of the trace.
    pub start: u64,
    /// End in nanoseconds of the trace.
    pub end: u64,
    /// Number among the requests of its rank.
    pub(crate) number: u64,
}

/// At most so many requests.
#[derive(Clone, Debug)]
pub struct Sample {
    requests: Vec<Request>,
    max: usize,
    /// Of this many windows one is kept.
    windows: u64,
    /// Of this many ranks one is kept, when windows alone do not help.
    ranks: u64,
    seen: u64,
}

impl Sample {
    /// One of `max` requests at most.
    pub fn new(max: usize) -> Self {
        Self { requests: Vec::new(), max: max.max(1), windows: 1, ranks: 1, seen: 0 }
    }

    /// Takes the `number`-th request of a rank, or not.
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
            && mixed(request.rank).is_multiple_of(self.ranks)
    }

    /// What was kept, by time of begin, each rank's in its order.
    pub fn requests(mut self) -> Vec<Request> {
        self.requests.sort_by_key(|request| (request.start, request.rank, request.number));
        self.requests
    }

    /// Requests that were seen, without syncs.
    pub fn seen(&self) -> u64 {
        self.seen
    }
}

impl Request {
    /// Whether it brings what was written to the disks, and moves nothing itself.
    pub fn is_sync(&self) -> bool {
        self.len == 0
    }

    /// One that is not numbered yet.
    pub fn new(rank: u32, file: u32, direction: Direction, offset: u64, len: u64, time: (u64, u64)) -> Self {
        Self {
            rank,
            file,
            unit: 0,
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

/// Ranks that are neighbors do similar things: which are kept is left to chance.
fn mixed(rank: u32) -> u64 {
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
    fn more_ranks_than_room_are_thinned() {
        let mut sample = Sample::new(100);
        for rank in 0..100_000 {
            sample.add(Request::new(rank, 0, Direction::Write, 0, 1, (0, 1)), 0);
        }
        let kept = sample.requests().len();
        assert!((20..=100).contains(&kept), "{kept}");
    }
}
