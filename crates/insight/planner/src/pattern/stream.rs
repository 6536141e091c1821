//! The requests of one rank to one file, classified as they arrive.

use super::nest::{Fit, Loop, Nest};
use serde::{Deserialize, Serialize};

/// Maximum number of distinct phases. Requests of further phases count as irregular.
const PHASES_MAX: usize = 8;
/// Predicted requests below which a recognized loop counts as coincidence.
const HITS_MIN: u64 = 2;
/// Fraction of all requests below which a phase is ignored.
const SHARE_MIN: f64 = 0.1;
/// Fraction of requests that must be regular; otherwise the stream is partly random.
const REGULAR_MIN: f64 = 0.6;

/// The order of requests.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Shape {
    /// Too few requests to classify.
    Few,
    /// Each request begins where the previous one ended.
    Contiguous,
    /// Blocks at a fixed distance.
    Strided {
        /// Bytes from block to block.
        stride: i64,
        /// Length of a block, which is one request or several adjacent ones.
        block: u64,
    },
    /// Nested strides, innermost first.
    Nested {
        /// The loops.
        loops: Vec<Loop>,
    },
    /// No recognizable order.
    Random,
    /// Several phases, each with its own order.
    Mixed {
        /// The shapes of the phases, in order of first occurrence.
        phases: Vec<Shape>,
    },
}

impl Shape {
    /// Short human-readable name.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Few => "few requests",
            Self::Contiguous => "contiguous",
            Self::Strided { .. } => "strided",
            Self::Nested { .. } => "nested strides",
            Self::Random => "random",
            Self::Mixed { .. } => "mixed phases",
        }
    }

    fn of(nest: &Nest) -> Self {
        let mut loops = nest.loops();
        if nest.is_contiguous() {
            let inner = loops.remove(0);
            return match loops.as_slice() {
                [] => Self::Contiguous,
                [outer] => {
                    let block = nest.len().map_or(inner.step.unsigned_abs(), |len| len) * inner.count;
                    Self::Strided { stride: outer.step, block }
                }
                _ => {
                    loops.insert(0, inner);
                    Self::Nested { loops }
                }
            };
        }
        match loops.as_slice() {
            [] => Self::Few,
            [only] => Self::Strided { stride: only.step, block: nest.len().unwrap_or(0) },
            _ => Self::Nested { loops },
        }
    }
}

#[derive(Clone, Debug)]
struct Phase {
    shape: Shape,
    requests: u64,
}

/// The requests of a rank to a file, in constant memory.
#[derive(Clone, Debug)]
pub struct Stream {
    nest: Nest,
    write: bool,
    phases: Vec<Phase>,
    irregular: u64,
    /// Total requests.
    pub requests: u64,
    /// Total bytes.
    pub bytes: u64,
    /// First byte accessed.
    pub low: u64,
    /// One past the last byte accessed.
    pub high: u64,
    /// One past the last byte of the previous request.
    end: u64,
}

impl Stream {
    /// Starts with a request.
    pub fn new(offset: u64, len: u64, write: bool) -> Self {
        let end = offset.saturating_add(len);
        Self {
            nest: Nest::new(offset, len),
            write,
            phases: Vec::new(),
            irregular: 0,
            requests: 1,
            bytes: len,
            low: offset,
            high: end,
            end,
        }
    }

    /// Adds the next request, and returns whether it begins where the previous one ended.
    pub fn add(&mut self, offset: u64, len: u64, write: bool) -> bool {
        let follows = offset == self.end;
        self.end = offset.saturating_add(len);
        self.requests += 1;
        self.bytes = self.bytes.saturating_add(len);
        (self.low, self.high) = (self.low.min(offset), self.high.max(self.end));
        // A change of direction begins a new phase without breaking the order.
        if write != self.write || self.nest.feed(offset, len) == Fit::Miss {
            self.close();
            self.nest = Nest::new(offset, len);
            self.write = write;
        }
        follows
    }

    fn close(&mut self) {
        let nest = &self.nest;
        if nest.hits < HITS_MIN {
            self.irregular += nest.requests;
            return;
        }
        let (shape, requests) = (Shape::of(nest), nest.requests);
        let known = self.phases.iter().position(|phase| same_order(&phase.shape, &shape));
        match known {
            Some(at) => self.phases[at].requests += requests,
            None if self.phases.len() < PHASES_MAX => self.phases.push(Phase { shape, requests }),
            None => self.irregular += requests,
        }
    }

    /// The shape of the whole stream.
    pub fn shape(&self) -> Shape {
        let mut whole = self.clone();
        if whole.requests < 3 {
            let contiguous = whole.requests == 2 && whole.nest.is_contiguous();
            return if contiguous { Shape::Contiguous } else { Shape::Few };
        }
        if whole.phases.is_empty() && whole.irregular == 0 && whole.nest.hits > 0 {
            return Shape::of(&whole.nest);
        }
        whole.close();
        let all = whole.requests as f64;
        let regular = 1.0 - whole.irregular as f64 / all;
        let mut phases: Vec<Phase> = whole.phases;
        phases.retain(|phase| phase.requests as f64 >= SHARE_MIN * all);
        let mut shapes: Vec<Shape> = phases.into_iter().map(|phase| phase.shape).collect();
        if regular < SHARE_MIN || shapes.is_empty() {
            return Shape::Random;
        }
        if regular < REGULAR_MIN {
            shapes.push(Shape::Random);
        }
        if shapes.len() == 1 { shapes.remove(0) } else { Shape::Mixed { phases: shapes } }
    }
}

/// Whether two phases have the same order, possibly at different offsets.
fn same_order(a: &Shape, b: &Shape) -> bool {
    match (a, b) {
        (Shape::Nested { loops: a }, Shape::Nested { loops: b }) => {
            a.len() == b.len()
                && a[..a.len() - 1] == b[..b.len() - 1]
                && a[a.len() - 1].step == b[b.len() - 1].step
        }
        _ => a == b,
    }
}
