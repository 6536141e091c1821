//! What is asked of a target.

use weft_planner::mix::Direction;

/// Streams of the case of that name, each in order, with a request under way.
pub(super) const STREAMS: u32 = 16;
/// Neighbors that are mixed, and how many of them are under way at a time.
const NEIGHBORS: u64 = 8;
const NEAR_DEPTH: u32 = 4;
/// So many write at a time where memory gathers it: that they wait for their turns is no property of the device.
const GATHERED_DEPTH: u32 = 4;
/// Lengths that are asked for, bytes.
const LENGTHS: [u64; 4] = [4 << 10, 64 << 10, 256 << 10, 1 << 20];
/// The same in a hurry: a line needs two.
const LENGTHS_QUICK: [u64; 2] = [4 << 10, 1 << 20];
/// Random requests under way at a time.
const DEPTHS: [u32; 4] = [1, 4, 16, 64];
const DEPTHS_QUICK: [u32; 2] = [1, 16];

/// Where the requests of a case lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Order {
    /// One behind the other.
    Sequential,
    /// Several streams in turn, each in order.
    Streams,
    /// One behind the other but for neighbors, which are mixed.
    Near,
    /// Anywhere.
    Random,
    /// The same past memory, on a target whose requests go through it.
    Past,
    /// A write behind the end and a sync, over and over.
    Sync,
    /// Two after each other, about so many bytes apart, the first of them anywhere.
    Apart(u64),
}

/// Requests of one kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Case {
    pub direction: Direction,
    pub order: Order,
    pub depth: u32,
    pub len: u64,
}

impl Case {
    /// In words.
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
            Order::Past => " at random past memory".to_owned(),
            Order::Sync => " behind the end and sync".to_owned(),
            Order::Apart(distance) => format!(", {} apart", size(distance)),
        };
        let depth = match self.order {
            Order::Random | Order::Past if self.depth > 1 => format!(", {} at a time", self.depth),
            _ => String::new(),
        };
        format!("{verb} {}{order}{depth}", size(self.len))
    }

    /// Which part of the time it gets, by the others: requests that wait for each other need longer.
    pub fn share(&self) -> f64 {
        match self.depth {
            // Half of the requests tell nothing, and what tells is small beside the wait for the platter.
            _ if matches!(self.order, Order::Apart(_)) => 2.5,
            // Until it is on the medium, many at a time.
            _ if self.direction == Direction::Write => 2.0,
            0..=4 => 1.0,
            5..=16 => 1.5,
            _ => 2.5,
        }
    }
}

/// All cases of a target, distances over `reach` bytes. Where memory gathers what is written, it makes no difference how many write.
pub(super) fn all(reach: u64, direct: bool, quick: bool) -> Vec<Case> {
    let lengths: &[u64] = if quick { &LENGTHS_QUICK } else { &LENGTHS };
    let depths: &[u32] = if quick { &DEPTHS_QUICK } else { &DEPTHS };
    let mut cases = Vec::new();
    let mut add = |direction, order, depth, len| cases.push(Case { direction, order, depth, len });
    for direction in [Direction::Read, Direction::Write] {
        let gathered = direction == Direction::Write && !direct;
        for &len in lengths {
            add(direction, Order::Sequential, if gathered { GATHERED_DEPTH } else { 1 }, len);
            if !quick {
                add(direction, Order::Streams, STREAMS, len);
                if !gathered {
                    add(direction, Order::Near, NEAR_DEPTH, len);
                }
            }
        }
        if gathered {
            lengths.iter().for_each(|&len| add(direction, Order::Random, GATHERED_DEPTH, len));
        }
        let order = if gathered { Order::Past } else { Order::Random };
        for &depth in depths {
            lengths.iter().for_each(|&len| add(direction, order, depth, len));
        }
    }
    if !direct {
        cases.push(Case { direction: Direction::Write, order: Order::Sync, depth: 1, len: 4096 });
    }
    for part in if quick { &[64, 4][..] } else { &[64, 16, 4][..] } {
        let order = Order::Apart(reach / part);
        cases.push(Case { direction: Direction::Read, order, depth: 1, len: 4096 });
    }
    cases
}

/// The offsets of a case, some at a time.
pub(super) struct Offsets {
    case: Case,
    places: u64,
    anywhere: weft_workload::Permutation,
    neighbors: weft_workload::Permutation,
    /// Of the streams that run side by side: this one.
    stream: u64,
    streams: u64,
    next: u64,
}

impl Offsets {
    pub fn new(case: Case, span: u64, stream: u32) -> Self {
        let places = (span / case.len).max(1);
        let anywhere = weft_workload::Permutation::new(places, case.len);
        let neighbors = weft_workload::Permutation::new(NEIGHBORS, case.len);
        Self { case, places, anywhere, neighbors, stream: stream.into(), streams: case.depth.into(), next: 0 }
    }

    /// Whether each place has been used: memory might answer from here on.
    pub fn is_over(&self) -> bool {
        self.next * self.streams + self.stream >= self.places
    }

    /// The next `count` offsets at most; they count as used by [`Offsets::used`].
    pub fn peek(&self, count: u64) -> Vec<u64> {
        (self.next..self.next + count)
            .take_while(|next| next * self.streams + self.stream < self.places)
            .map(|next| self.at(next) * self.case.len)
            .collect()
    }

    pub fn used(&mut self, count: u64) {
        self.next += count;
    }

    fn at(&self, next: u64) -> u64 {
        let number = next * self.streams + self.stream;
        let streams = u64::from(STREAMS);
        match self.case.order {
            Order::Sequential | Order::Sync => number,
            Order::Near if number / NEIGHBORS < self.places / NEIGHBORS => {
                number / NEIGHBORS * NEIGHBORS + self.neighbors.at(number % NEIGHBORS)
            }
            Order::Near => number,
            Order::Random | Order::Past => self.anywhere.at(number),
            // A region each, but not begun at its beginning: what lies equally far apart may lie on one die of an SSD,
            // and who reads there in step waits for the others.
            Order::Streams => {
                let region = (self.places / streams).max(1);
                let begin = weft_workload::mix(self.stream) % region;
                self.stream % streams * region + (begin + next) % region
            }
            Order::Apart(distance) => {
                let near = self.anywhere.at(number / 2 % self.places);
                // Not always as far, or the platter would always have turned by as much.
                let far = distance / self.case.len * (75 + weft_workload::mix(number) % 51) / 100;
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
    fn no_place_is_used_twice_but_by_distances() {
        let span = 64 << 20;
        for case in all(span, true, false).into_iter().chain(all(span, false, false)) {
            let mut seen = BTreeSet::new();
            for stream in 0..case.depth {
                let mut offsets = Offsets::new(case, span, stream);
                let some = offsets.peek(3);
                assert!(!some.is_empty() || case.depth > 1, "{case:?}");
                offsets.used(some.len() as u64);
                let more = offsets.peek(10_000);
                for at in some.into_iter().chain(more) {
                    assert!(at + case.len <= span, "{case:?}");
                    let is_new = seen.insert(at);
                    assert!(is_new || matches!(case.order, Order::Apart(_)), "{case:?}: {at} again");
                }
            }
        }
    }

    #[test]
    fn names_tell_cases_apart() {
        let cases = all(1 << 36, true, false);
        let names: BTreeSet<String> = cases.iter().map(Case::name).collect();
        assert_eq!(names.len(), cases.len());
        assert!(
            names.contains("read 64 KiB at random, 16 at a time")
                && names.contains("read 4 KiB, 1 GiB apart")
        );
        assert!(all(1 << 30, false, true).len() < 20);
    }
}
