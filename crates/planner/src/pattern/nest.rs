//! Offsets as nested loops, learned from what has been seen and held against what comes.
//!
//! A stream of requests is `base + i0 s0 + i1 s1 + …`, the innermost loop first. Each loop's step is learned from its
//! first repetition, its count from the first time that it ends.

use serde::{Deserialize, Serialize};

/// Loops within each other that are told apart.
pub const LEVELS_MAX: usize = 4;

/// One loop.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Loop {
    /// Bytes from one round's begin to the next one's.
    pub step: i64,
    /// Rounds; of the outermost loop as many as there were.
    pub count: u64,
}

/// How a request fits what was learned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fit {
    /// It was foretold.
    Hit,
    /// Something was learned from it.
    Learned,
    /// It contradicts what was learned.
    Miss,
}

#[derive(Clone, Copy, Debug, Default)]
struct Level {
    /// Bytes from round to round, once there were two.
    step: Option<i64>,
    /// Rounds, once the loop has ended and begun again.
    count: Option<u64>,
    /// Rounds of the pass that is under way.
    round: u64,
    /// Where the round under way began.
    begun: u64,
}

/// What has been learned of a stream.
#[derive(Clone, Debug)]
pub struct Nest {
    levels: [Level; LEVELS_MAX],
    /// One past the byte before.
    end: u64,
    /// Whether the innermost loop goes on where each request ends, whatever their lengths.
    contiguous: bool,
    /// The length of all requests, if they have one.
    len: Option<u64>,
    /// Requests that were foretold.
    pub hits: u64,
    /// Requests in all.
    pub requests: u64,
    /// Bytes in all.
    pub bytes: u64,
}

impl Nest {
    /// Begins with a request.
    pub fn new(offset: u64, len: u64) -> Self {
        let level = Level { round: 1, begun: offset, ..Level::default() };
        Self {
            levels: [level; LEVELS_MAX],
            end: offset.saturating_add(len),
            contiguous: true,
            len: Some(len),
            hits: 0,
            requests: 1,
            bytes: len,
        }
    }

    /// Takes the next request. After a miss the nest is as it was before: begin another one.
    pub fn feed(&mut self, offset: u64, len: u64) -> Fit {
        let fit = self.place(offset);
        if fit == Fit::Miss {
            return fit;
        }
        self.hits += u64::from(fit == Fit::Hit);
        self.requests += 1;
        self.bytes = self.bytes.saturating_add(len);
        self.end = offset.saturating_add(len);
        self.len = self.len.filter(|known| *known == len);
        fit
    }

    fn place(&mut self, offset: u64) -> Fit {
        let follows = offset == self.end;
        let inner = self.levels[0];
        let step = distance(inner.begun, offset);
        let goes_on = match inner.step {
            None => {
                self.contiguous = follows;
                self.levels[0] = Level { step: Some(step), round: 2, begun: offset, ..inner };
                return Fit::Learned;
            }
            Some(_) if self.contiguous => follows,
            Some(known) => known == step,
        };
        if goes_on && inner.count.is_none_or(|count| inner.round < count) {
            self.levels[0].round += 1;
            self.levels[0].begun = offset;
            return Fit::Hit;
        }
        self.jump(offset)
    }

    /// The innermost loop does not go on: one further out does.
    fn jump(&mut self, offset: u64) -> Fit {
        let mut learned = false;
        for outer in 1..LEVELS_MAX {
            let below = self.levels[outer - 1];
            if below.count.is_some_and(|count| below.round != count) {
                return Fit::Miss;
            }
            learned |= below.count.is_none();
            let level = self.levels[outer];
            let step = distance(level.begun, offset);
            let fits = match level.step {
                None => {
                    learned = true;
                    true
                }
                Some(known) => known == step && level.count.is_none_or(|count| level.round < count),
            };
            if fits {
                for inner in &mut self.levels[..outer] {
                    inner.count = inner.count.or(Some(inner.round));
                    (inner.round, inner.begun) = (1, offset);
                }
                self.levels[outer].step = Some(step);
                self.levels[outer].round += 1;
                self.levels[outer].begun = offset;
                // What lies further out begins where its round began.
                return if learned { Fit::Learned } else { Fit::Hit };
            }
        }
        Fit::Miss
    }

    /// The loops that were seen to go round, the innermost first. A loop that had only begun its second round when the
    /// stream ended may have been the way to something else.
    pub fn loops(&self) -> Vec<Loop> {
        let whole = |below: &[Level]| below.iter().all(|level| level.count == Some(level.round));
        let sure = |at: usize| at == 0 || self.levels[at].round > 2 || whole(&self.levels[..at]);
        let mut seen = self.levels.iter().take_while(|level| level.step.is_some()).count();
        while seen > 1 && !sure(seen - 1) {
            seen -= 1;
        }
        let seen = self.levels[..seen].iter();
        seen.map(|level| Loop {
            step: level.step.expect("just seen"),
            count: level.count.unwrap_or(level.round),
        })
        .collect()
    }

    /// Whether the innermost loop goes on where each request ends.
    pub fn is_contiguous(&self) -> bool {
        self.contiguous && self.levels[0].step.is_some()
    }

    /// The length of all requests, if they have one.
    pub fn len(&self) -> Option<u64> {
        self.len
    }
}

fn distance(from: u64, to: u64) -> i64 {
    (i128::from(to) - i128::from(from)).clamp(i64::MIN.into(), i64::MAX.into()) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fed(offsets: impl IntoIterator<Item = (u64, u64)>) -> (Nest, [u64; 3]) {
        let mut offsets = offsets.into_iter();
        let (offset, len) = offsets.next().expect("one at least");
        let mut nest = Nest::new(offset, len);
        let mut fits = [0; 3];
        for (offset, len) in offsets {
            fits[nest.feed(offset, len) as usize] += 1;
        }
        (nest, fits)
    }

    #[test]
    fn three_loops_are_learned_and_foretold() {
        let offsets = (0..5).flat_map(|k| {
            (0..4).flat_map(move |j| (0..3).map(move |i| (7 + i * 100 + j * 1_000 + k * 50_000, 10)))
        });
        let (nest, [hits, learned, misses]) = fed(offsets);
        assert_eq!(
            nest.loops(),
            [Loop { step: 100, count: 3 }, Loop { step: 1_000, count: 4 }, Loop { step: 50_000, count: 5 }]
        );
        // Of 60 the first says nothing, and each loop's step is learned from one.
        assert_eq!((hits, learned, misses), (56, 3, 0));
        assert!(!nest.is_contiguous());
        assert_eq!(nest.len(), Some(10));
    }

    #[test]
    fn contiguous_requests_may_differ_in_length() {
        // Lengths 1, 4, 9, …: the n-th begins where the sum of all before ends.
        let begin = |n: u64| (1..n).map(|len| len * len).sum::<u64>();
        let (nest, [hits, learned, misses]) = fed((1..50).map(|n| (begin(n), n * n)));
        assert!(nest.is_contiguous());
        assert_eq!((hits, learned, misses, nest.len()), (47, 1, 0, None));
    }

    #[test]
    fn backwards_is_a_step_too() {
        let (nest, [hits, ..]) = fed((0..20).map(|i| (10_000 - i * 64, 64)));
        assert_eq!(nest.loops(), [Loop { step: -64, count: 20 }]);
        assert_eq!(hits, 18);
    }

    #[test]
    fn what_ends_early_is_a_miss() {
        let runs = [0u64, 100, 200, 1000, 1100, 1200, 2000, 2100, 3000];
        let (_, [.., misses]) = fed(runs.map(|offset| (offset, 10)));
        assert_eq!(misses, 1);
    }
}
