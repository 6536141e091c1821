//! The service curve of a disk for iBridge, from measured cases.

use super::cases::Order;
use super::fit::rounded;
use super::target::Measured;
use serde::{Deserialize, Serialize};
use weft_core::ibridge::{CurveError, ServiceCurve};
use weft_core::{ByteLen, Nanos};
use weft_planner::mix::Direction;

/// Assumed distance between two datafiles, as a fraction of the device.
const DATAFILE_DISTANCE_FRACTION: f64 = 1.0 / 32.0;

/// Upper bound of that distance, as a multiple of the longest measured one.
const EXTRAPOLATION_MAX: u64 = 4;

/// Seek time, rotation and throughput of a target's device.
///
/// The time of a small read at distance d is modeled as `a + b sqrt(d)`, because the arm accelerates and brakes on all
/// but the longest seeks. The field `rotation_us` is the time at the shortest measured distance, and the field
/// `seek_us_per_root_byte` gives the increase beyond it. Their sum matches the measurement.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Curve {
    /// R: time of a small read at a short distance, microseconds.
    pub rotation_us: f64,
    /// D_to_T: seek time per square root of a byte, beyond that of a distance of `seek_from` bytes, microseconds.
    pub seek_us_per_root_byte: f64,
    /// Standard error of `seek_us_per_root_byte`.
    pub seek_error: f64,
    /// Shortest measured distance, bytes.
    pub seek_from: u64,
    /// B of reads, 10^6 bytes per second.
    pub read_mb_s: f64,
    /// B of writes, 10^6 bytes per second.
    pub write_mb_s: f64,
    /// Assumed distance between two datafiles, bytes.
    pub elsewhere: u64,
}

impl Curve {
    /// The curve of a device of `capacity` bytes with the given throughputs; `None` if no distances were measured.
    pub fn of(measured: &Measured, capacity: u64, read_mb_s: f64, write_mb_s: f64) -> Option<Self> {
        let points: Vec<(f64, f64, f64)> = measured
            .cases
            .iter()
            .filter_map(|(case, point)| match (case.direction, case.order) {
                (Direction::Read, Order::Distance(distance)) => {
                    Some(((distance as f64).sqrt(), point.ns_each / 1e3, point.ns_error.max(1.0) / 1e3))
                }
                _ => None,
            })
            .collect();
        let (first, _) = (points.first()?, points.get(1)?);
        let sum = |of: &dyn Fn(f64, f64) -> f64| {
            points.iter().map(|&(x, y, error)| of(x, y) / (error * error)).sum::<f64>()
        };
        let (n, x, y) = (sum(&|_, _| 1.0), sum(&|x, _| x), sum(&|_, y| y));
        let (xx, xy) = (sum(&|x, _| x * x), sum(&|x, y| x * y));
        let spread = n * xx - x * x;
        let slope = ((n * xy - x * y) / spread).max(0.0);
        let least = (y - slope * x) / n + slope * first.0;
        Some(Self {
            rotation_us: rounded(least - 4096.0 / read_mb_s.max(1e-6)),
            seek_us_per_root_byte: rounded(slope),
            seek_error: rounded((n / spread).sqrt()),
            seek_from: (first.0 * first.0) as u64,
            read_mb_s,
            write_mb_s,
            // Bounded, because the error of the square-root term grows with the distance.
            elsewhere: ((capacity as f64 * DATAFILE_DISTANCE_FRACTION) as u64)
                .min(measured.reach.saturating_mul(EXTRAPOLATION_MAX)),
        })
    }

    /// The curve in the form of iBridge's decision.
    ///
    /// # Errors
    /// If the values form no curve; a file may contain any values.
    pub fn service_curve(&self) -> Result<ServiceCurve, CurveError> {
        let time = |us: f64| Nanos((us * 1e3).clamp(0.0, 1e12) as u64);
        let mut seek = vec![(ByteLen(0), Nanos(0))];
        let from = self.seek_from.max(1);
        let mut distance = from;
        // Covers all distances that occur, with two points per doubling.
        while distance <= self.elsewhere.saturating_mul(11).max(from) && seek.len() < 128 {
            let us = self.seek_us_per_root_byte * ((distance as f64).sqrt() - (from as f64).sqrt());
            let longest = seek[seek.len() - 1].1;
            seek.push((ByteLen(distance), time(us).max(longest)));
            distance = ((distance as f64 * std::f64::consts::SQRT_2) as u64).saturating_add(1);
        }
        let speed = |mb_s: f64| (mb_s * 1e6).clamp(0.0, 1e18) as u64;
        let (read, write) = (speed(self.read_mb_s), speed(self.write_mb_s));
        ServiceCurve::new(seek, time(self.rotation_us), read, write, ByteLen(self.elsewhere))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::cases::Case;
    use crate::measure::fit::{Point, Stream};

    fn measured(rotation_us: f64, root_us: f64) -> Measured {
        let point = |distance: u64| {
            let case =
                Case { direction: Direction::Read, order: Order::Distance(distance), depth: 1, len: 4096 };
            let us = rotation_us + root_us * ((distance as f64).sqrt() - 1024.0);
            let stream = Stream { times: vec![(us * 1e3) as u64; 50], elapsed: (us * 5e4) as u64 };
            (case, Point::of_streams(case.name(), 4096, &[stream]))
        };
        let cases = [1 << 20, 16 << 20, 128 << 20, 1 << 30].map(point).to_vec();
        Measured { cases, missed: Vec::new(), page_cache: None, span: 2 << 30, reach: 1 << 40, direct: true }
    }

    #[test]
    fn the_curve_reproduces_measured_distances() {
        let curve = Curve::of(&measured(5000.0, 0.02), 1 << 40, 200.0, 180.0).unwrap();
        let service = curve.service_curve().unwrap();
        for distance in [1u64 << 20, 64 << 20, 1 << 30] {
            let wanted = 5000.0 + 0.02 * ((distance as f64).sqrt() - 1024.0);
            let us = (service.seek(ByteLen(distance)).0 + service.rotation().0) as f64 / 1e3;
            assert!((us / wanted - 1.0).abs() < 0.02, "{distance}: {us} for {wanted}");
        }
        assert_eq!(service.cross_file_distance(), ByteLen(1 << 35));
        // A distance of 32 GiB is extrapolated by the square root.
        let far = service.seek(service.cross_file_distance()).0 as f64 / 1e3;
        let wanted = 0.02 * (2f64.powf(17.5) - 1024.0);
        assert!((far / wanted - 1.0).abs() < 0.03, "{far} for {wanted}");
        assert_eq!(service.transfer(ByteLen(200_000_000), false), Nanos::from_s(1));
    }

    #[test]
    fn an_ssd_has_no_seeks_and_invalid_values_do_not_panic() {
        let curve = Curve::of(&measured(80.0, 0.0), 1 << 38, 500.0, 400.0).unwrap();
        assert_eq!(curve.service_curve().unwrap().seek(ByteLen(1 << 40)), Nanos(0));
        for odd in [
            Curve { seek_from: 0, elsewhere: u64::MAX, ..curve.clone() },
            Curve { rotation_us: f64::NAN, seek_us_per_root_byte: f64::INFINITY, ..curve.clone() },
            Curve { read_mb_s: -1.0, ..curve.clone() },
        ] {
            let _ = odd.service_curve();
        }
        assert!(Curve { write_mb_s: 0.0, ..curve }.service_curve().is_err());
    }
}
