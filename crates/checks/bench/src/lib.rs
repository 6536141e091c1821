//! Benchmarks: plays workloads of `weft-workload` on Weft and on a control, and compares the figures.
//!
//! The control does the same work with the same number of processes, in the same round. By default it is a plain local
//! directory. Each round uses fresh directories, because some local file systems create files slowly in a directory
//! from which many were just removed.
//!
//! ```text
//! run ─► cases: rounds over all arms ─► ranks: parent of one process per rank ─► report: rows
//!                                          │ one line of JSON per task and result
//!                                          ▼
//!                                       rank ─► player ─► target: system calls or client library
//! ```

pub mod arm;
pub mod barrier;
pub mod cases;
pub mod content;
pub mod context;
pub mod named;
pub mod player;
pub mod rank;
pub mod ranks;
pub mod report;
pub mod run;
pub mod target;
pub mod work_dir;

pub use context::Context;
pub use run::{BenchArgs, Transport, run};
