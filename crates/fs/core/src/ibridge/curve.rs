//! Service curve of a disk: the parameters of equation 1.

use crate::units::{ByteLen, Nanos};

const NANOS_PER_S: u64 = 1_000_000_000;

/// D_to_T, R and B of a disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServiceCurve {
    /// D_to_T as points (distance, seek time) in ascending order from distance 0. Linear between points, constant
    /// beyond the last.
    seek: Vec<(ByteLen, Nanos)>,
    rotation: Nanos,
    read_bytes_per_s: u64,
    write_bytes_per_s: u64,
    cross_file_distance: ByteLen,
}

/// Reason why parameters do not form a curve.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CurveError {
    /// The first point is not distance 0 in no time.
    #[error("the first point of a seek curve must be distance 0 in no time")]
    Start,
    /// Distances do not increase, or times decrease.
    #[error("distances of a seek curve must rise, and its times must not fall")]
    Order,
    /// A throughput is zero.
    #[error("a disk's throughput cannot be 0")]
    Throughput,
}

impl ServiceCurve {
    /// Creates the curve of a disk.
    ///
    /// `seek` are points (distance in bytes, time), of which the first is (0, 0). `rotation` is R, the mean rotational
    /// delay: half a turn. The throughputs are the peak transfer rates B. `cross_file_distance` replaces the distance
    /// between two datafiles, because a server knows offsets in datafiles but not their positions on the disk.
    ///
    /// # Errors
    /// [`CurveError`].
    pub fn new(
        seek: Vec<(ByteLen, Nanos)>,
        rotation: Nanos,
        read_bytes_per_s: u64,
        write_bytes_per_s: u64,
        cross_file_distance: ByteLen,
    ) -> Result<Self, CurveError> {
        if seek.first() != Some(&(ByteLen::ZERO, Nanos::ZERO)) {
            return Err(CurveError::Start);
        } else if seek.windows(2).any(|pair| pair[0].0 >= pair[1].0 || pair[0].1 > pair[1].1) {
            return Err(CurveError::Order);
        } else if read_bytes_per_s == 0 || write_bytes_per_s == 0 {
            return Err(CurveError::Throughput);
        }
        Ok(Self { seek, rotation, read_bytes_per_s, write_bytes_per_s, cross_file_distance })
    }

    /// D_to_T: returns the seek time over `distance`.
    pub fn seek(&self, distance: ByteLen) -> Nanos {
        let after = self.seek.partition_point(|point| point.0 <= distance);
        let (from, start) = self.seek[after - 1]; // There is a point at 0.
        let Some(&(to, end)) = self.seek.get(after) else { return start };
        Nanos(start.0 + scaled(distance.0 - from.0, end.0 - start.0, to.0 - from.0))
    }

    /// R: returns the mean rotational delay.
    pub const fn rotation(&self) -> Nanos {
        self.rotation
    }

    /// Size/B: returns the transfer time.
    pub fn transfer(&self, len: ByteLen, write: bool) -> Nanos {
        let speed = if write { self.write_bytes_per_s } else { self.read_bytes_per_s };
        Nanos(scaled(len.0, NANOS_PER_S, speed))
    }

    /// Returns the distance assumed between two datafiles.
    pub const fn cross_file_distance(&self) -> ByteLen {
        self.cross_file_distance
    }
}

/// Returns `number` * `times` / `by`, saturated. Nearly always a single 64-bit division.
fn scaled(number: u64, times: u64, by: u64) -> u64 {
    match number.checked_mul(times) {
        Some(product) => product / by,
        None => {
            let wide = u128::from(number) * u128::from(times) / u128::from(by);
            u64::try_from(wide).unwrap_or(u64::MAX)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(seek: &[(u64, u64)]) -> Result<ServiceCurve, CurveError> {
        let seek = seek.iter().map(|&(distance, time)| (ByteLen(distance), Nanos(time))).collect();
        ServiceCurve::new(seek, Nanos(10), 100, 50, ByteLen(7))
    }

    #[test]
    fn seek_times_are_interpolated() {
        let curve = curve(&[(0, 0), (100, 1000), (300, 2000)]).unwrap();
        let seek = |distance| curve.seek(ByteLen(distance)).0;
        assert_eq!([seek(0), seek(1), seek(50), seek(100), seek(101)], [0, 10, 500, 1000, 1005]);
        assert_eq!([seek(200), seek(299), seek(300), seek(u64::MAX)], [1500, 1995, 2000, 2000]);
    }

    #[test]
    fn transfers_use_the_throughput_of_their_direction() {
        let curve = curve(&[(0, 0)]).unwrap();
        assert_eq!(curve.transfer(ByteLen(200), false), Nanos::from_s(2));
        assert_eq!(curve.transfer(ByteLen(200), true), Nanos::from_s(4));
        assert_eq!(curve.transfer(ByteLen(u64::MAX), true), Nanos(u64::MAX), "saturates");
        assert_eq!(curve.seek(ByteLen(5)), Nanos::ZERO, "a device without an arm");
    }

    #[test]
    fn invalid_parameters_are_rejected() {
        assert_eq!(curve(&[]), Err(CurveError::Start));
        assert_eq!(curve(&[(0, 1)]), Err(CurveError::Start));
        assert_eq!(curve(&[(0, 0), (5, 3), (5, 4)]), Err(CurveError::Order));
        assert_eq!(curve(&[(0, 0), (5, 3), (6, 2)]), Err(CurveError::Order));
        let still = ServiceCurve::new(vec![(ByteLen(0), Nanos(0))], Nanos(0), 0, 1, ByteLen(0));
        assert_eq!(still, Err(CurveError::Throughput));
    }
}
