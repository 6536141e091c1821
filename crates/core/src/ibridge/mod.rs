//! Which small requests a data server gives to the SSD beside a disk: the decision of iBridge, pure.
//!
//! The paper's equations stand here once each, with its symbols:
//!
//! ```text
//! T_i = T_{i-1}/8 + 7/8 (D_to_T(|λ_i - λ_{i-1}|) + R + Size_i/B)     (1)  served by the disk   ServiceAverage
//! T_i = T_{i-1}                                                      (2)  served by the SSD    ServiceAverage
//! return = T_i by (1) - T_i by (2);  to the SSD when it is positive
//! return of a fragment = return + (T_max - T_sec_max) n              (3)  when this server is  board::fragment_return
//!                                                                         the slowest of all that hold the parent
//! ```
//!
//! [`Decider`] is what a server asks, one for each target: it keeps T and the position of the head, and knows what the
//! other servers reported of theirs ([`Board`]). [`Partition`] says how much of the SSD each class of requests may
//! have. Nothing here knows a device, a clock or what is stored where; who holds a [`Decider`] tells it what happened.

mod average;
mod board;
mod crowd;
mod curve;
mod decider;
mod detour;
mod memory;
mod partition;
mod policy;
mod runs;

pub use average::{DiskRequest, ServiceAverage, Weight, WeightError};
pub use board::{Board, Report, fragment_return};
pub use curve::{CurveError, ServiceCurve};
pub use decider::{Arrival, Decider, DeciderSpec, Thresholds, Verdict};
pub use partition::Partition;
pub use policy::{Policy, PolicyError};

use serde::{Deserialize, Serialize};

/// Why a request is small, which decides whose share of the SSD it takes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// A small piece of a request that spans several datafiles: the others wait for it.
    Fragment,
    /// A request that is small as a whole.
    Random,
}

impl Class {
    /// Both, in the order of [`Class::index`].
    pub const ALL: [Self; 2] = [Self::Fragment, Self::Random];

    /// Its place in arrays of one value for each class.
    pub const fn index(self) -> usize {
        match self {
            Self::Fragment => 0,
            Self::Random => 1,
        }
    }

    /// The word for it in reports.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Fragment => "fragment",
            Self::Random => "random",
        }
    }
}
