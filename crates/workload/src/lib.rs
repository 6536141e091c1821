//! What parallel programs do to files, once: generators used by the twin, by `weft bench` and by replay.

mod op;

pub use op::{FileRef, Op, Workload};
