//! Partition of the SSD between the classes.

use super::Class;
use super::policy::Policy;
use crate::units::ByteLen;

/// Weight of a new return in the average of its class: about the last hundred count.
const NEW: f64 = 1.0 / 128.0;
/// Minimum share of a class, so that one without history can build it.
const FLOOR: f64 = 0.1;

/// Shares of the SSD, in proportion to the average returns of the classes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Partition {
    policy: Policy,
    averages: [Option<f64>; 2],
}

impl Partition {
    /// Returns a partition without history.
    pub const fn new(policy: Policy) -> Self {
        Self { policy, averages: [None; 2] }
    }

    /// Records that a request of a class, with this return in nanoseconds, goes to the SSD.
    pub fn admitted(&mut self, class: Class, gain: i64) {
        let gain = gain.max(0) as f64;
        let average = &mut self.averages[class.index()];
        *average = Some(average.map_or(gain, |average| average + (gain - average) * NEW));
    }

    /// Returns the average return of a class in nanoseconds; `None` without history.
    pub const fn average(&self, class: Class) -> Option<f64> {
        self.averages[class.index()]
    }

    /// Returns the share of a class, between 0 and 1. [`Policy::Threshold`] and [`Policy::Detour`] do not partition:
    /// each class may use all. The latter limits usage by its price.
    pub fn share(&self, class: Class) -> f64 {
        let part = |a: f64, b: f64| if a + b > 0.0 { a / (a + b) } else { 0.5 };
        let fragments = match self.policy {
            Policy::Threshold | Policy::Detour { .. } => return 1.0,
            Policy::Static { fragments, random } => part(f64::from(fragments), f64::from(random)),
            Policy::Off | Policy::Ibridge => match self.averages {
                [Some(fragments), Some(random)] => part(fragments, random).clamp(FLOOR, 1.0 - FLOOR),
                [Some(_), None] => 1.0 - FLOOR,
                [None, Some(_)] => FLOOR,
                [None, None] => 0.5,
            },
        };
        if class == Class::Fragment { fragments } else { 1.0 - fragments }
    }

    /// Returns the share of a class in bytes of `capacity`. Quotas select the class that loses bytes when space is
    /// short; they do not keep space empty.
    pub fn quota(&self, class: Class, capacity: ByteLen) -> ByteLen {
        ByteLen(((capacity.0 as f64 * self.share(class)).round() as u64).min(capacity.0))
    }
}
