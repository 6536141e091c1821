//! What a disk takes for a request, as far as the decision knows it: the figures of equation 1.

use crate::units::{ByteLen, Nanos};

const NANOS_PER_S: u64 = 1_000_000_000;

/// D_to_T, R and B of one disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServiceCurve {
    /// D_to_T: distances, rising from 0, each with the time of a seek over it; straight lines between them, and the last
    /// time beyond the last.
    seek: Vec<(ByteLen, Nanos)>,
    rotation: Nanos,
    read_bytes_per_s: u64,
    write_bytes_per_s: u64,
    elsewhere: ByteLen,
}

/// Why figures make no curve.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CurveError {
    /// There is no seek of distance 0, or it takes time.
    #[error("the first point of a seek curve must be distance 0 in no time")]
    Start,
    /// Distances must rise from point to point, and times must not fall.
    #[error("distances of a seek curve must rise, and its times must not fall")]
    Order,
    /// A speed is zero.
    #[error("a disk's throughput cannot be 0")]
    Throughput,
}

impl ServiceCurve {
    /// A disk by its figures.
    ///
    /// `seek` are points (distance in bytes, time), the first one (0, 0); `rotation` is the average wait R, half a turn;
    /// the throughputs are the disk's peaks B. `elsewhere` stands for the distance between two datafiles: a server
    /// knows offsets in datafiles, not where on the disk these lie.
    ///
    /// # Errors
    /// When the points do not rise or a throughput is zero.
    pub fn new(
        seek: Vec<(ByteLen, Nanos)>,
        rotation: Nanos,
        read_bytes_per_s: u64,
        write_bytes_per_s: u64,
        elsewhere: ByteLen,
    ) -> Result<Self, CurveError> {
        if seek.first() != Some(&(ByteLen::ZERO, Nanos::ZERO)) {
            return Err(CurveError::Start);
        } else if seek.windows(2).any(|pair| pair[0].0 >= pair[1].0 || pair[0].1 > pair[1].1) {
            return Err(CurveError::Order);
        } else if read_bytes_per_s == 0 || write_bytes_per_s == 0 {
            return Err(CurveError::Throughput);
        }
        Ok(Self { seek, rotation, read_bytes_per_s, write_bytes_per_s, elsewhere })
    }

    /// D_to_T: the time of a seek over `distance`.
    pub fn seek(&self, distance: ByteLen) -> Nanos {
        let after = self.seek.partition_point(|point| point.0 <= distance);
        let (from, start) = self.seek[after - 1]; // there is a point at 0
        let Some(&(to, end)) = self.seek.get(after) else { return start };
        Nanos(start.0 + scaled(distance.0 - from.0, end.0 - start.0, to.0 - from.0))
    }

    /// R: the average wait for the right sector.
    pub const fn rotation(&self) -> Nanos {
        self.rotation
    }

    /// Size/B.
    pub fn transfer(&self, len: ByteLen, write: bool) -> Nanos {
        let speed = if write { self.write_bytes_per_s } else { self.read_bytes_per_s };
        Nanos(scaled(len.0, NANOS_PER_S, speed))
    }

    /// The distance that stands for the one between two datafiles.
    pub const fn elsewhere(&self) -> ByteLen {
        self.elsewhere
    }
}

/// `number` * `times` / `by`, held at the end of the numbers. Nearly always a division of one word.
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
    fn times_lie_on_the_lines_between_the_points() {
        let curve = curve(&[(0, 0), (100, 1000), (300, 2000)]).unwrap();
        let seek = |distance| curve.seek(ByteLen(distance)).0;
        assert_eq!([seek(0), seek(1), seek(50), seek(100), seek(101)], [0, 10, 500, 1000, 1005]);
        assert_eq!([seek(200), seek(299), seek(300), seek(u64::MAX)], [1500, 1995, 2000, 2000]);
    }

    #[test]
    fn transfers_take_the_direction_s_throughput() {
        let curve = curve(&[(0, 0)]).unwrap();
        assert_eq!(curve.transfer(ByteLen(200), false), Nanos::from_s(2));
        assert_eq!(curve.transfer(ByteLen(200), true), Nanos::from_s(4));
        assert_eq!(curve.transfer(ByteLen(u64::MAX), true), Nanos(u64::MAX), "held, not wrapped");
        assert_eq!(curve.seek(ByteLen(5)), Nanos::ZERO, "a device without an arm");
    }

    #[test]
    fn figures_that_make_no_disk_are_refused() {
        assert_eq!(curve(&[]), Err(CurveError::Start));
        assert_eq!(curve(&[(0, 1)]), Err(CurveError::Start));
        assert_eq!(curve(&[(0, 0), (5, 3), (5, 4)]), Err(CurveError::Order));
        assert_eq!(curve(&[(0, 0), (5, 3), (6, 2)]), Err(CurveError::Order));
        let still = ServiceCurve::new(vec![(ByteLen(0), Nanos(0))], Nanos(0), 0, 1, ByteLen(0));
        assert_eq!(still, Err(CurveError::Throughput));
    }
}
