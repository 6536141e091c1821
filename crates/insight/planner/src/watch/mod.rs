//! Watches the I/O of a running cluster, and plans again when an access pattern has changed permanently.
//!
//! ```text
//! sampled messages ──request_reassembly──> requests ──survey──> access pattern of each file group
//!                                                                   |
//!       ┌──────────── no change, or not permanent yet <── tracker ──┤
//!    (wait)                                                         └──> permanent change: plan
//!                                                                                   |
//!    new layout and current layout, both run by the queueing model <── comparison ──┘
//!       |
//!       └── gain at least `gain`: apply, else keep the current layout
//! ```
//!
//! For replicas, a reorganized copy of the group's file takes the place of the new layout.
//!
//! A group's layout is due for planning when the same new pattern was seen in `intervals` consecutive intervals, and
//! the last change is at least `pause` ago ([`Hysteresis`]).

mod comparison;
mod interval;
mod pattern_tracker;
pub mod request_reassembly;

pub use comparison::{Comparison, FileLayout, compare};
pub use interval::{FileSamples, Group, GroupDecision, Interval, ReplicaProposal, Watcher};
pub use pattern_tracker::{Decision, DirectionMix, Hysteresis, Order, PatternTracker, Signature, Step};
pub use request_reassembly::{ReassembledRequest, SampledMessage};
