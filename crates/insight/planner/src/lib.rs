//! Turns I/O traces into file layouts.
//!
//! ```text
//! trace records ──survey──> file groups: access pattern, kinds of request, offsets, a sample
//!                                |
//! figures of the cluster ────────┼──paper──> DEF, PA and PSA as printed
//!                                └──best───> multi-part layouts, evaluated by the queueing model
//!                                                |
//!                                plan: path rule -> layout, alternatives, reason, confidence
//! ```
//! From the same summary, [`replicas`] decides which patterns to replicate.
//!
//! The crate is pure: it reads no clock and no file. Memory does not grow with the number of records.
// Planning must be deterministic (see clippy.toml).
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]

pub mod best;
mod bytes;
pub mod figures;
pub mod live;
pub mod mix;
pub mod model;
pub mod paper;
pub mod pattern;
pub mod placement;
pub mod plan;
pub mod replicas;
mod rule;
pub mod sample;
pub mod survey;
#[cfg(test)]
mod testing;
pub mod watch;

pub use bytes::Bytes;
pub use figures::Figures;
pub use placement::{ClassPlacement, PlacementPart};
pub use plan::{Plan, Planned, Planner, plan};
pub use rule::PathRule;
pub use survey::{FileGroup, Limits, Survey, TraceSummary};
