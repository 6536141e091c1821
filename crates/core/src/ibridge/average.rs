//! T, the average service time of a disk: equations 1 and 2.

use super::curve::ServiceCurve;
use crate::units::{ByteLen, LocalOffset, Nanos};
use std::fmt;
use std::str::FromStr;

/// A request as the disk sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DiskRequest {
    /// A number of the datafile; requests of one datafile have the same.
    pub file: u64,
    /// Where it begins in the datafile.
    pub offset: LocalOffset,
    /// Its length.
    pub len: ByteLen,
    /// Whether it writes.
    pub write: bool,
}

/// How much a new request weighs in T: 7/8 in the paper.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Weight {
    new: u32,
    of: u32,
}

/// Why a text is no weight.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a weight is a fraction above 0 and up to 1, such as \"7/8\"")]
pub struct WeightError;

impl Weight {
    /// `new` parts of `of` for the new request, the rest for the average before it.
    ///
    /// # Errors
    /// When that is not above 0 and up to 1.
    pub const fn new(new: u32, of: u32) -> Result<Self, WeightError> {
        if new == 0 || new > of { Err(WeightError) } else { Ok(Self { new, of }) }
    }

    /// The mean of `old` and `new` with these weights.
    fn mean(self, old: Nanos, new: Nanos) -> Nanos {
        let (parts, of) = (u64::from(self.new), u64::from(self.of));
        if let (Some(old), Some(new)) = (old.0.checked_mul(of - parts), new.0.checked_mul(parts))
            && let Some(sum) = old.checked_add(new)
        {
            return Nanos(sum / of);
        }
        let sum = u128::from(old.0) * u128::from(of - parts) + u128::from(new.0) * u128::from(parts);
        Nanos((sum / u128::from(of)) as u64) // no more than the larger of the two
    }
}

impl Default for Weight {
    /// The paper's.
    fn default() -> Self {
        Self { new: 7, of: 8 }
    }
}

impl fmt::Display for Weight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.new, self.of)
    }
}

impl FromStr for Weight {
    type Err = WeightError;

    fn from_str(text: &str) -> Result<Self, WeightError> {
        let (new, of) = text.split_once('/').ok_or(WeightError)?;
        let number = |text: &str| text.trim().parse().map_err(|_| WeightError);
        Self::new(number(new)?, number(of)?)
    }
}

/// T and λ of one disk: what it took on average of late, and where its head was sent last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ServiceAverage {
    weight: Weight,
    value: Nanos,
    head: Option<(u64, LocalOffset)>,
}

impl ServiceAverage {
    /// Of a disk that has served nothing: T is 0.
    pub const fn new(weight: Weight) -> Self {
        Self { weight, value: Nanos::ZERO, head: None }
    }

    /// T.
    pub const fn value(&self) -> Nanos {
        self.value
    }

    /// |λ_i - λ_{i-1}|, from the first byte of the request before to the first byte of this one.
    pub fn distance(&self, curve: &ServiceCurve, request: &DiskRequest) -> ByteLen {
        match self.head {
            Some((file, at)) if file == request.file => ByteLen(at.0.abs_diff(request.offset.0)),
            _ => curve.elsewhere(),
        }
    }

    /// What the arm would take to get to the request: D_to_T + R.
    pub fn way(&self, curve: &ServiceCurve, request: &DiskRequest) -> Nanos {
        curve.seek(self.distance(curve, request)).saturating_add(curve.rotation())
    }

    /// What the disk would take for the request: D_to_T + R + Size/B.
    pub fn cost(&self, curve: &ServiceCurve, request: &DiskRequest) -> Nanos {
        self.way(curve, request).saturating_add(curve.transfer(request.len, request.write))
    }

    /// Equation 1: T, if the disk served the request. By equation 2 it stays [`value`](Self::value) if the SSD does.
    pub fn disk_if_served(&self, curve: &ServiceCurve, request: &DiskRequest) -> Nanos {
        self.disk_by(self.way(curve, request), curve, request)
    }

    /// The same for who knows the [`way`](Self::way).
    fn disk_by(&self, way: Nanos, curve: &ServiceCurve, request: &DiskRequest) -> Nanos {
        self.weight.mean(self.value, way.saturating_add(curve.transfer(request.len, request.write)))
    }

    /// The return T_disk - T_ssd, in nanoseconds: positive when the request would slow the disk down.
    pub fn gain(&self, curve: &ServiceCurve, request: &DiskRequest) -> i64 {
        self.gain_by(self.way(curve, request), curve, request)
    }

    /// The same for who knows the way.
    pub(super) fn gain_by(&self, way: Nanos, curve: &ServiceCurve, request: &DiskRequest) -> i64 {
        difference(self.disk_by(way, curve, request), self.value)
    }

    /// The disk serves the request: equation 1, and the head moves. A request that the SSD serves changes neither T nor
    /// the head, so nobody tells of it.
    pub fn served(&mut self, curve: &ServiceCurve, request: &DiskRequest) {
        self.served_by(self.way(curve, request), curve, request);
    }

    /// The same for who knows the way.
    pub(super) fn served_by(&mut self, way: Nanos, curve: &ServiceCurve, request: &DiskRequest) {
        self.value = self.disk_by(way, curve, request);
        self.head = Some((request.file, request.offset));
    }
}

/// `a` - `b`, held at the ends of the numbers.
pub(super) fn difference(a: Nanos, b: Nanos) -> i64 {
    let size = i64::try_from(a.0.abs_diff(b.0)).unwrap_or(i64::MAX);
    if a >= b { size } else { -size }
}
