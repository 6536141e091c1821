//! Measurements against the plain local directory: workloads of weft-workload played for real.
//!
//! Every figure stands beside a control: the same work by the same number of processes on a fresh plain directory,
//! in the same round. Nothing is cached between rounds; directories are fresh each time, because some local file
//! systems make files slowly in directories where many were just removed.

pub mod cases;
pub mod content;
pub mod context;
pub mod ground;
pub mod meeting;
pub mod named;
pub mod player;
pub mod rank;
pub mod ranks;
pub mod report;
pub mod run;
pub mod side;
pub mod target;

pub use context::Context;
pub use run::{BenchArgs, Transport, run};
