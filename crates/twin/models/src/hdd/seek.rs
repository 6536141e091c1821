//! Seek time as a function of the distance.

use super::HddSpec;
use crate::time::from_us;

/// Seek time. Over short distances the arm accelerates half the way and brakes the other half, so the time grows with
/// the square root of the distance. Over long distances it coasts, and the time grows linearly:
///
/// ```text
/// seek(d) = track + a (sqrt(d) - 1)        1 <= d <= C/3    with seek(C/3) = average
/// seek(d) = average + b (d - C/3)        C/3 <  d <= C      with seek(C) = full
/// ```
#[derive(Clone, Debug)]
pub(crate) struct Seek {
    track: f64,
    root: f64,
    knee: f64,
    average: f64,
    slope: f64,
}

impl Seek {
    pub fn new(spec: &HddSpec, cylinders: u64) -> Self {
        let full = cylinders.max(2) as f64;
        let knee = (full / 3.0).max(2.0);
        let [track, average, longest] =
            [spec.seek_track_us, spec.seek_average_us, spec.seek_full_us].map(|us| from_us(us) as f64);
        let root = (average - track) / (knee.sqrt() - 1.0);
        Self { track, root, knee, average, slope: (longest - average) / (full - knee).max(1.0) }
    }

    /// Returns the time of a seek over `distance` cylinders. Zero for zero.
    pub fn time(&self, distance: u64) -> u64 {
        let distance = distance as f64;
        if distance < 1.0 {
            0
        } else if distance <= self.knee {
            (self.track + self.root * (distance.sqrt() - 1.0)) as u64
        } else {
            (self.average + self.slope * (distance - self.knee)) as u64
        }
    }
}
