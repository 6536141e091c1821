//! From traces to layouts.
//!
//! ```text
//! records --survey--> units of files: pattern, kinds of request, places, a sample
//!   figures (classes, network) --paper--> DEF, PA, PSA as printed
//!                              --best---> composite layouts, by a queueing model of our own
//!   plan: path rule -> layout, every alternative with its time, why, how sure
//! ```
//!
//! Pure: no clock, no file. Memory does not grow with the number of records.
// Planning is the same wherever it is done (see clippy.toml).
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]

pub mod best;
mod bytes;
pub mod figures;
pub mod live;
pub mod mix;
pub mod model;
pub mod paper;
pub mod pattern;
pub mod placing;
pub mod plan;
mod rule;
pub mod sample;
pub mod survey;
#[cfg(test)]
mod testing;
pub mod watch;

pub use bytes::Bytes;
pub use figures::Figures;
pub use placing::{Part, Placing};
pub use plan::{Plan, Planned, Planner, plan};
pub use rule::PathRule;
pub use survey::{Limits, Survey, Traced, Unit};
