//! Clusters that run, measured: targets by their servers, the network by messages, for the planner and iBridge.
//!
//! ```text
//! cases    what is asked: order, length, how many at a time        target   one target, through its server
//! fit      from times to lines, with their spread                  network  the way to each server
//! curve    the device as iBridge's decision sees it                memory   what a system still has of what was read
//! report   the file of figures
//! ```
//!
//! Written over the client and its environment, so that the twin is measured by the same code as hardware.

mod cases;
mod curve;
mod fit;
mod memory;
mod network;
mod report;
mod target;

pub use curve::Curve;
pub use fit::{FittedLine, Point};
pub use memory::Held;
pub use network::{Link, link};
pub use report::{ClassReport, DepthLine, Lines, Report, Site};
pub use target::{Measured, Plan, steps, target};
