//! T, the average service time of a disk: equations 1 and 2.

use super::curve::ServiceCurve;
use crate::units::{ByteLen, LocalOffset, Nanos};
use std::fmt;
use std::str::FromStr;

/// A request as the disk sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DiskRequest {
    /// Number that identifies the datafile.
    pub file: u64,
    /// Offset in the datafile.
    pub offset: LocalOffset,
    /// Length in bytes.
    pub len: ByteLen,
    /// True for a write, false for a read.
    pub write: bool,
}

/// Weight of a new request in T: 7/8 in the paper.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Weight {
    numerator: u32,
    denominator: u32,
}

/// Error: the text is not a weight.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a weight is a fraction above 0 and up to 1, such as \"7/8\"")]
pub struct WeightError;

impl Weight {
    /// Returns the weight `numerator / denominator`.
    ///
    /// # Errors
    /// When the fraction is not above 0 and at most 1.
    pub const fn new(numerator: u32, denominator: u32) -> Result<Self, WeightError> {
        if numerator == 0 || numerator > denominator {
            Err(WeightError)
        } else {
            Ok(Self { numerator, denominator })
        }
    }

    /// Returns the weighted mean of `old` and `new`.
    fn mean(self, old: Nanos, new: Nanos) -> Nanos {
        let (parts, denominator) = (u64::from(self.numerator), u64::from(self.denominator));
        if let (Some(old), Some(new)) = (old.0.checked_mul(denominator - parts), new.0.checked_mul(parts))
            && let Some(sum) = old.checked_add(new)
        {
            return Nanos(sum / denominator);
        }
        let sum = u128::from(old.0) * u128::from(denominator - parts) + u128::from(new.0) * u128::from(parts);
        Nanos((sum / u128::from(denominator)) as u64) // At most the larger of the two.
    }
}

impl Default for Weight {
    /// The weight in the paper.
    fn default() -> Self {
        Self { numerator: 7, denominator: 8 }
    }
}

impl fmt::Display for Weight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.numerator, self.denominator)
    }
}

impl FromStr for Weight {
    type Err = WeightError;

    fn from_str(text: &str) -> Result<Self, WeightError> {
        let (numerator, denominator) = text.split_once('/').ok_or(WeightError)?;
        let number = |text: &str| text.trim().parse().map_err(|_| WeightError);
        Self::new(number(numerator)?, number(denominator)?)
    }
}

/// T and λ of a disk: its recent average service time, and the last position of its head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ServiceAverage {
    weight: Weight,
    value: Nanos,
    head: Option<(u64, LocalOffset)>,
}

impl ServiceAverage {
    /// Returns the state of a disk that has served nothing: T is 0.
    pub const fn new(weight: Weight) -> Self {
        Self { weight, value: Nanos::ZERO, head: None }
    }

    /// Returns T.
    pub const fn value(&self) -> Nanos {
        self.value
    }

    /// Returns |λ_i - λ_{i-1}|, the distance between the first bytes of the previous request and this one.
    pub fn distance(&self, curve: &ServiceCurve, request: &DiskRequest) -> ByteLen {
        match self.head {
            Some((file, at)) if file == request.file => ByteLen(at.0.abs_diff(request.offset.0)),
            _ => curve.cross_file_distance(),
        }
    }

    /// Returns the positioning time of the request, seek plus rotation: D_to_T + R.
    pub fn positioning_time(&self, curve: &ServiceCurve, request: &DiskRequest) -> Nanos {
        curve.seek(self.distance(curve, request)).saturating_add(curve.rotation())
    }

    /// Returns the service time of the request: D_to_T + R + Size/B.
    pub fn cost(&self, curve: &ServiceCurve, request: &DiskRequest) -> Nanos {
        self.positioning_time(curve, request).saturating_add(curve.transfer(request.len, request.write))
    }

    /// Equation 1: returns T if the disk served the request. If the SSD serves it, T stays [`value`](Self::value)
    /// (equation 2).
    pub fn disk_if_served(&self, curve: &ServiceCurve, request: &DiskRequest) -> Nanos {
        self.disk_with(self.positioning_time(curve, request), curve, request)
    }

    /// Equation 1 for a known [positioning time](Self::positioning_time).
    fn disk_with(&self, positioning_time: Nanos, curve: &ServiceCurve, request: &DiskRequest) -> Nanos {
        self.weight
            .mean(self.value, positioning_time.saturating_add(curve.transfer(request.len, request.write)))
    }

    /// Returns T_disk - T_ssd in nanoseconds: positive when the request would slow the disk down.
    pub fn gain(&self, curve: &ServiceCurve, request: &DiskRequest) -> i64 {
        self.gain_with(self.positioning_time(curve, request), curve, request)
    }

    /// Returns T_disk - T_ssd for a known positioning time.
    pub(super) fn gain_with(
        &self,
        positioning_time: Nanos,
        curve: &ServiceCurve,
        request: &DiskRequest,
    ) -> i64 {
        saturating_difference(self.disk_with(positioning_time, curve, request), self.value)
    }

    /// Records that the disk serves the request: T changes by equation 1, and the head moves. Requests served by the
    /// SSD change neither and are not reported.
    pub fn served(&mut self, curve: &ServiceCurve, request: &DiskRequest) {
        self.served_with(self.positioning_time(curve, request), curve, request);
    }

    /// Records a request with a known positioning time.
    pub(super) fn served_with(
        &mut self,
        positioning_time: Nanos,
        curve: &ServiceCurve,
        request: &DiskRequest,
    ) {
        self.value = self.disk_with(positioning_time, curve, request);
        self.head = Some((request.file, request.offset));
    }
}

/// Returns `a` - `b`, saturated.
pub(super) fn saturating_difference(a: Nanos, b: Nanos) -> i64 {
    let size = i64::try_from(a.0.abs_diff(b.0)).unwrap_or(i64::MAX);
    if a >= b { size } else { -size }
}
