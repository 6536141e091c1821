//! Watching what programs do, and planning anew when it changes for good.
//!
//! ```text
//! messages that servers saw --asked--> requests of programs --survey--> pattern of each group of files
//!    --state--> known, waiting, or it lasts: plan --judge--> new layout and layout in force by the planner's model
//!    --state--> apply, or keep
//! ```

pub mod asked;
mod interval;
mod judge;
mod state;

pub use asked::{Asked, Seen};
pub use interval::{Decided, FileSeen, Group, Interval, Watcher};
pub use judge::{FileLayout, Judged, judge};
pub use state::{Decision, Hysteresis, Order, Signature, Step, Watch, Ways};
