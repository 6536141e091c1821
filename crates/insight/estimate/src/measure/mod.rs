//! Measures running clusters for the planner and iBridge: targets through their servers, and the network by messages.
//!
//! | module | content |
//! | --- | --- |
//! | `cases` | the kinds of request: direction, order, length, queue depth |
//! | `target` | runs all cases on one target through its server |
//! | `concurrent` | tasks that run at the same time |
//! | `network` | message and transfer times to each server |
//! | `processor` | messages per second of the processors that clients and servers share |
//! | `memory` | effective size of the page cache |
//! | `fit` | from request times to lines with standard errors |
//! | `curve` | seek curve of the device for iBridge |
//! | `report` | the file of figures |
//! | `missing` | figures that could not be measured, and why |
//! | `reliability` | lines that say little about the device |
//!
//! A target is measured in this order:
//!
//! ```text
//! create datafile ──> fill it ──> for each case: sync, drop caches, requests ──> page cache ──> remove datafile
//!  (id of no file)                    |                                          (buffered
//!                                     └─ reads: streams until the time is up      targets only)
//!                                     └─ writes: rounds of writes and a sync
//! ```
//!
//! A case has at least two repetitions and is repeated further while they differ by more than 10 %, for half of its time
//! more. Cases that the planner has no default for come first; when the time has run out, the others are left out.
//! A figure that could not be measured is not in the report, which names it and the reason.
//!
//! The server executes lists of offsets and replies with each request's time, so network time is not included. The code
//! runs on the client's environment: the twin is measured by the same code as hardware.

mod cases;
mod concurrent;
mod curve;
mod fit;
mod memory;
mod missing;
mod network;
mod processor;
mod reliability;
mod report;
mod target;

pub use curve::Curve;
pub use fit::{FittedLine, Point};
pub use memory::PageCacheEstimate;
pub use missing::Missing;
pub use network::{Link, link};
pub use processor::processor;
pub use reliability::UNRELIABLE_ERROR;
pub use report::{ClassMeasurement, ClassReport, DepthLine, ERROR_OF_MODEL, Lines, Report};
pub use target::{Measured, Plan, steps, target};
