//! The measurement cases of a target.

use weft_core::Nanos;
use weft_planner::mix::Direction;

/// Number of interleaved sequential streams, each with a request in flight.
pub(super) const STREAMS: u32 = 16;
/// Number of adjacent requests that are shuffled, and their queue depth.
const SHUFFLED_NEIGHBORS: u64 = 8;
const NEAR_DEPTH: u32 = 4;
/// Concurrent writers of buffered writes. The page cache hides any dependence on this number.
const BUFFERED_WRITERS: u32 = 4;
/// Request lengths, bytes.
const LENGTHS: [u64; 3] = [4 << 10, 64 << 10, 1 << 20];
/// Request lengths of a measurement that takes [`LONG_TIME`] or longer. More lengths show whether times form a line.
const LENGTHS_LONG: [u64; 4] = [4 << 10, 64 << 10, 256 << 10, 1 << 20];
/// Time of a target from which on a measurement is long.
const LONG_TIME: Nanos = Nanos::from_s(30);
/// Request lengths of a quick measurement. A line needs two.
const LENGTHS_QUICK: [u64; 2] = [4 << 10, 1 << 20];
/// Queue depths of random requests.
const DEPTHS: [u32; 4] = [1, 4, 16, 64];
const DEPTHS_QUICK: [u32; 2] = [1, 16];

/// Offsets of a case.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Order {
    /// Adjacent.
    Sequential,
    /// Several interleaved sequential streams.
    Streams,
    /// Adjacent, except that requests are shuffled in small groups.
    Near,
    /// Random.
    Random,
    /// Random and direct, on a target with buffered I/O.
    RandomDirect,
    /// An append and a sync, repeatedly.
    AppendSync,
    /// Pairs of requests at about this distance in bytes; the first of each pair is random.
    Distance(u64),
}

/// One kind of request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Case {
    pub direction: Direction,
    pub order: Order,
    pub depth: u32,
    pub len: u64,
}

impl Case {
    /// Description of the case.
    pub fn name(&self) -> String {
        let verb = match self.direction {
            Direction::Read => "read",
            Direction::Write => "write",
        };
        let size = |bytes: u64| match bytes {
            bytes if bytes >= 1 << 30 => format!("{:.0} GiB", bytes as f64 / (1u64 << 30) as f64),
            bytes if bytes >= 1 << 20 => format!("{} MiB", bytes >> 20),
            bytes => format!("{} KiB", bytes >> 10),
        };
        let order = match self.order {
            Order::Sequential => " in order".to_owned(),
            Order::Streams => format!(", {STREAMS} streams in turn"),
            Order::Near => ", neighbors out of order".to_owned(),
            Order::Random => " at random".to_owned(),
            Order::RandomDirect => " at random, direct I/O".to_owned(),
            Order::AppendSync => ", append and sync".to_owned(),
            Order::Distance(distance) => format!(", {} apart", size(distance)),
        };
        let depth = match self.order {
            Order::Random | Order::RandomDirect if self.depth > 1 => format!(", {} at a time", self.depth),
            _ => String::new(),
        };
        format!("{verb} {}{order}{depth}", size(self.len))
    }

    /// Name of the figure to which the case contributes.
    pub fn figure(&self) -> String {
        let direction = match self.direction {
            Direction::Read => "read",
            Direction::Write => "write",
        };
        match self.order {
            Order::Sequential => format!("{direction}.sequential"),
            Order::Streams => format!("{direction}.streams"),
            Order::Near => format!("{direction}.near"),
            Order::Random => format!("{direction}.random of depth {}", self.depth),
            Order::RandomDirect => format!("{direction}.scattered of depth {}", self.depth),
            Order::AppendSync => format!("{direction}.sync_us"),
            Order::Distance(_) => "curve".to_owned(),
        }
    }

    /// Whether the planner has no default for the case's figure. These cases come first and are never left out.
    pub fn is_needed(&self) -> bool {
        match self.order {
            Order::Sequential => true,
            // Buffered writes have this depth only.
            Order::Random if self.direction == Direction::Write => {
                self.depth == 1 || self.depth == BUFFERED_WRITERS
            }
            Order::Random => self.depth == 1,
            _ => false,
        }
    }

    /// Relative share of the measurement time. Cases whose requests wait for each other need more.
    pub fn share(&self) -> f64 {
        match self.depth {
            // Only half of the requests count, and the seek is small compared with the rotational delay.
            _ if matches!(self.order, Order::Distance(_)) => 2.5,
            // Includes write-back with a deep queue.
            _ if self.direction == Direction::Write => 2.0,
            0..=4 => 1.0,
            5..=16 => 1.5,
            _ => 2.5,
        }
    }
}

/// All cases of a target that is measured for about `time`, the most important ones first. Distances extend over
/// `reach` bytes. Buffered writes are measured with one number of writers, because the page cache hides it.
pub(super) fn all(reach: u64, direct: bool, quick: bool, time: Nanos) -> Vec<Case> {
    let lengths: &[u64] = match quick {
        true => &LENGTHS_QUICK,
        false if time >= LONG_TIME => &LENGTHS_LONG,
        false => &LENGTHS,
    };
    let depths: &[u32] = if quick { &DEPTHS_QUICK } else { &DEPTHS };
    let mut cases = Vec::new();
    let mut add = |direction, order, depth, len| cases.push(Case { direction, order, depth, len });
    for direction in [Direction::Read, Direction::Write] {
        let buffered = direction == Direction::Write && !direct;
        for &len in lengths {
            add(direction, Order::Sequential, if buffered { BUFFERED_WRITERS } else { 1 }, len);
            if !quick {
                add(direction, Order::Streams, STREAMS, len);
                if !buffered {
                    add(direction, Order::Near, NEAR_DEPTH, len);
                }
            }
        }
        if buffered {
            lengths.iter().for_each(|&len| add(direction, Order::Random, BUFFERED_WRITERS, len));
        }
        let order = if buffered { Order::RandomDirect } else { Order::Random };
        for &depth in depths {
            lengths.iter().for_each(|&len| add(direction, order, depth, len));
        }
    }
    if !direct {
        cases.push(Case { direction: Direction::Write, order: Order::AppendSync, depth: 1, len: 4096 });
    }
    for part in if quick { &[64, 4][..] } else { &[64, 16, 4][..] } {
        let order = Order::Distance(reach / part);
        cases.push(Case { direction: Direction::Read, order, depth: 1, len: 4096 });
    }
    cases.sort_by_key(|case| match case.order {
        _ if case.is_needed() => 0,
        // Nothing measured stands in for these.
        Order::AppendSync | Order::Distance(_) => 1,
        _ => 2,
    });
    cases
}

/// The offsets of one stream of a case.
pub(super) struct Offsets {
    case: Case,
    places: u64,
    anywhere: weft_workload::Permutation,
    neighbors: weft_workload::Permutation,
    /// Index of this stream, and the number of concurrent streams.
    stream: u64,
    streams: u64,
    next: u64,
}

impl Offsets {
    pub fn new(case: Case, span: u64, stream: u32) -> Self {
        let places = (span / case.len).max(1);
        let anywhere = weft_workload::Permutation::new(places, case.len);
        let neighbors = weft_workload::Permutation::new(SHUFFLED_NEIGHBORS, case.len);
        Self { case, places, anywhere, neighbors, stream: stream.into(), streams: case.depth.into(), next: 0 }
    }

    /// Whether every offset has been used. Further requests might be answered from the page cache.
    pub fn is_exhausted(&self) -> bool {
        self.next * self.streams + self.stream >= self.places
    }

    /// The next offsets, at most `count`. [`Offsets::advance`] marks them as used.
    pub fn peek(&self, count: u64) -> Vec<u64> {
        (self.next..self.next + count)
            .take_while(|next| next * self.streams + self.stream < self.places)
            .map(|next| self.at(next) * self.case.len)
            .collect()
    }

    pub fn advance(&mut self, count: u64) {
        self.next += count;
    }

    fn at(&self, next: u64) -> u64 {
        let number = next * self.streams + self.stream;
        let streams = u64::from(STREAMS);
        match self.case.order {
            Order::Sequential | Order::AppendSync => number,
            Order::Near if number / SHUFFLED_NEIGHBORS < self.places / SHUFFLED_NEIGHBORS => {
                number / SHUFFLED_NEIGHBORS * SHUFFLED_NEIGHBORS
                    + self.neighbors.at(number % SHUFFLED_NEIGHBORS)
            }
            Order::Near => number,
            Order::Random | Order::RandomDirect => self.anywhere.at(number),
            // Each stream has a region and starts at a random offset in it. Equally spaced streams might all use the
            // same die of an SSD and wait for each other.
            Order::Streams => {
                let region = (self.places / streams).max(1);
                let begin = weft_core::random::splitmix64(self.stream) % region;
                self.stream % streams * region + (begin + next) % region
            }
            Order::Distance(distance) => {
                let near = self.anywhere.at(number / 2 % self.places);
                // Varies the distance, or the platter would rotate by the same angle each time.
                let far = distance / self.case.len * (75 + weft_core::random::splitmix64(number) % 51) / 100;
                if number.is_multiple_of(2) { near } else { (near + far) % self.places }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn offsets_repeat_only_in_distance_cases() {
        let span = 64 << 20;
        let time = Nanos::from_s(60);
        for case in all(span, true, false, time).into_iter().chain(all(span, false, false, time)) {
            let mut seen = BTreeSet::new();
            for stream in 0..case.depth {
                let mut offsets = Offsets::new(case, span, stream);
                let some = offsets.peek(3);
                assert!(!some.is_empty() || case.depth > 1, "{case:?}");
                offsets.advance(some.len() as u64);
                let more = offsets.peek(10_000);
                for at in some.into_iter().chain(more) {
                    assert!(at + case.len <= span, "{case:?}");
                    let is_new = seen.insert(at);
                    assert!(is_new || matches!(case.order, Order::Distance(_)), "{case:?}: {at} again");
                }
            }
        }
    }

    #[test]
    fn case_names_are_unique() {
        let cases = all(1 << 36, true, false, Nanos::from_s(5));
        let names: BTreeSet<String> = cases.iter().map(Case::name).collect();
        assert_eq!(names.len(), cases.len());
        assert!(
            names.contains("read 64 KiB at random, 16 at a time")
                && names.contains("read 4 KiB, 1 GiB apart")
        );
        assert!(all(1 << 30, false, true, Nanos::from_s(5)).len() < 20);
    }

    #[test]
    fn cases_that_the_planner_needs_come_first() {
        for (direct, quick) in [(true, true), (true, false), (false, true), (false, false)] {
            let cases = all(1 << 30, direct, quick, Nanos::from_s(5));
            let needed = cases.iter().take_while(|case| case.is_needed()).count();
            let figures: BTreeSet<String> = cases[..needed].iter().map(Case::figure).collect();
            let random = if direct { "write.random of depth 1" } else { "write.random of depth 4" };
            for expected in ["read.random of depth 1", "read.sequential", random, "write.sequential"] {
                assert!(figures.contains(expected), "{figures:?}");
            }
            assert!(!cases[needed..].iter().any(Case::is_needed), "{cases:?}");
        }
    }
}
