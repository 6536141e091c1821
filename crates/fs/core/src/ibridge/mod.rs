//! The iBridge decision, as a pure function: which small requests a data server serves from the SSD beside a disk.
//!
//! The paper's equations, with its symbols:
//!
//! ```text
//! T_i = T_{i-1}/8 + 7/8 (D_to_T(|λ_i - λ_{i-1}|) + R + Size_i/B)     (1)  served by the disk   ServiceAverage
//! T_i = T_{i-1}                                                      (2)  served by the SSD    ServiceAverage
//! return = T_i by (1) - T_i by (2);  to the SSD when it is positive
//! return of a fragment = return + (T_max - T_sec_max) n              (3)  when this server is  fragment_return
//!                                                                         the slowest of all that hold the parent
//! ```
//!
//! | symbol | meaning |
//! | --- | --- |
//! | T | average service time of the disk |
//! | λ | position of the head: datafile and offset |
//! | D_to_T | seek time over a distance |
//! | R | rotational delay, half a turn |
//! | B | throughput |
//! | T_max, T_sec_max | the two largest T among the disks that hold the parent |
//! | n | number of siblings of the fragment |
//!
//! A server has one [`Decider`] per target. It keeps T and the position of the head, and the T that other servers
//! reported ([`PeerAverages`]). [`Partition`] computes each class's share of the SSD. This module knows no device,
//! clock or stored data: the owner of a [`Decider`] reports every event to it.

mod average;
mod curve;
mod decider;
mod detour;
mod page_cache;
mod partition;
mod peer_averages;
mod policy;
mod runs;
mod writer_count;

pub use average::{DiskRequest, ServiceAverage, Weight, WeightError};
pub use curve::{CurveError, ServiceCurve};
pub use decider::{Arrival, Decider, DeciderSpec, Thresholds, Verdict};
pub use partition::Partition;
pub use peer_averages::{PeerAverages, Report, fragment_return};
pub use policy::{Policy, PolicyError};

use serde::{Deserialize, Serialize};

/// Class of a small request, whose share of the SSD it uses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// A small piece of a request that spans several datafiles: the parent waits for it.
    Fragment,
    /// A request that is small as a whole.
    Random,
}

impl Class {
    /// All classes, in the order of [`Class::index`].
    pub const ALL: [Self; 2] = [Self::Fragment, Self::Random];

    /// Returns the index in arrays with one value per class.
    pub const fn index(self) -> usize {
        match self {
            Self::Fragment => 0,
            Self::Random => 1,
        }
    }

    /// Returns the name of the class in reports.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Fragment => "fragment",
            Self::Random => "random",
        }
    }
}
