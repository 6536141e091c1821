//! Recognizes the offsets of a request stream as nested loops.
//!
//! The offsets of a stream are modeled as `base + i0 s0 + i1 s1 + …` with the innermost loop first. The step of a loop
//! is learned from its second iteration, and its count when it ends for the first time. Later requests are compared
//! with the prediction.

use serde::{Deserialize, Serialize};

/// Maximum nesting depth.
pub const LEVELS_MAX: usize = 4;

/// One loop.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Loop {
    /// Bytes from the begin of one iteration to the next.
    pub step: i64,
    /// Iterations; for the outermost loop, those seen.
    pub count: u64,
}

/// How a request relates to the prediction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fit {
    /// It was predicted.
    Hit,
    /// It completed the description of a loop.
    Learned,
    /// It contradicts the prediction.
    Miss,
}

#[derive(Clone, Copy, Debug, Default)]
struct Level {
    /// Bytes between iterations; known after the second one.
    step: Option<i64>,
    /// Iterations; known when the loop has ended and begun again.
    count: Option<u64>,
    /// Iterations of the current pass.
    round: u64,
    /// Offset at which the current iteration began.
    begun: u64,
}

/// A request stream as nested loops, as far as they are known.
#[derive(Clone, Debug)]
pub struct Nest {
    levels: [Level; LEVELS_MAX],
    /// One past the last byte of the previous request.
    end: u64,
    /// Whether each request of the innermost loop begins where the previous one ended, whatever their lengths.
    contiguous: bool,
    /// Common length of all requests, if there is one.
    len: Option<u64>,
    /// Requests that were predicted.
    pub hits: u64,
    /// Total requests.
    pub requests: u64,
    /// Total bytes.
    pub bytes: u64,
}

impl Nest {
    /// Starts with a request.
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

    /// Adds the next request. A miss leaves the nest unchanged; the caller then starts a new one.
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

    /// The innermost loop has ended, so an outer one must continue.
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
                // Loops further out keep the offset at which their iteration began.
                return if learned { Fit::Learned } else { Fit::Hit };
            }
        }
        Fit::Miss
    }

    /// The loops that were confirmed, innermost first. An outermost loop that only began its second iteration does not
    /// count: the jump may have led elsewhere.
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

    /// Whether the innermost loop is contiguous.
    pub fn is_contiguous(&self) -> bool {
        self.contiguous && self.levels[0].step.is_some()
    }

    /// Common length of all requests, if there is one.
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
    fn three_loops_are_learned_and_predicted() {
        let offsets = (0..5).flat_map(|k| {
            (0..4).flat_map(move |j| (0..3).map(move |i| (7 + i * 100 + j * 1_000 + k * 50_000, 10)))
        });
        let (nest, [hits, learned, misses]) = fed(offsets);
        assert_eq!(
            nest.loops(),
            [Loop { step: 100, count: 3 }, Loop { step: 1_000, count: 4 }, Loop { step: 50_000, count: 5 }]
        );
        // Of 60 requests the first predicts nothing, and each loop's step is learned from one.
        assert_eq!((hits, learned, misses), (56, 3, 0));
        assert!(!nest.is_contiguous());
        assert_eq!(nest.len(), Some(10));
    }

    #[test]
    fn contiguous_requests_may_differ_in_length() {
        // Lengths 1, 4, 9, …: each request begins where the previous one ended.
        let begin = |n: u64| (1..n).map(|len| len * len).sum::<u64>();
        let (nest, [hits, learned, misses]) = fed((1..50).map(|n| (begin(n), n * n)));
        assert!(nest.is_contiguous());
        assert_eq!((hits, learned, misses, nest.len()), (47, 1, 0, None));
    }

    #[test]
    fn steps_may_be_negative() {
        let (nest, [hits, ..]) = fed((0..20).map(|i| (10_000 - i * 64, 64)));
        assert_eq!(nest.loops(), [Loop { step: -64, count: 20 }]);
        assert_eq!(hits, 18);
    }

    #[test]
    fn a_loop_that_ends_early_is_a_miss() {
        let runs = [0u64, 100, 200, 1000, 1100, 1200, 2000, 2100, 3000];
        let (_, [.., misses]) = fed(runs.map(|offset| (offset, 10)));
        assert_eq!(misses, 1);
    }
}
