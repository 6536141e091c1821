//! The band around a figure of a paper in which a result counts as the same.
//!
//! A paper's disks, network and software differ from the twin's, so equal figures are not expected. One rule decides
//! for all claims what *near* means, so that no claim has a band that was fitted to its result:
//!
//! | figure | band |
//! | --- | --- |
//! | ratio *r* | the effect within a factor of 1.5 of the paper's, or the ratio within 10 % |
//! | other value | within a factor of 1.5 |
//! | ratio of *up to r* | from no loss (2 %) to the upper end of the band of *r* |
//!
//! The effect of a ratio above 1 is *r - 1*, the gain. Below 1 it is *1/r - 1*, so that a run time of 0.5 and a
//! bandwidth of 2 have the same band. A band on the ratio itself would call a loss of 10 % a gain of 35 %.
//!
//! The factor of 1.5 is the scatter within the papers: iBridge's unaligned writes gain 105 to 183 % in one figure, CEDA's
//! reads 98 to 122 % by processes and 69 to 292 % by size. 10 % is the error that `weft lab fidelity` accepts as a median.

use crate::experiment::Measured;
use crate::formula::shown;
use serde::{Deserialize, Serialize};

/// Factor between effects that count as the same.
pub const EFFECT_FACTOR: f64 = 1.5;
/// Relative difference of ratios that counts as none.
pub const RATIO_DIFFERENCE: f64 = 0.1;
/// Loss that does not contradict a gain of *up to* a figure.
pub const LOSS_MAX: f64 = 0.02;

/// Position of a result beside the band.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Side {
    /// Above the band.
    Above,
    /// Below the band.
    Below,
    /// Above it at some places and below it at others.
    Both,
}

impl Side {
    /// Returns the position in words.
    pub fn word(self) -> &'static str {
        match self {
            Self::Above => "above the paper",
            Self::Below => "below the paper",
            Self::Both => "above and below the paper",
        }
    }

    /// Joins the position at one more place.
    pub fn and(self, other: Self) -> Self {
        if self == other { self } else { Self::Both }
    }
}

/// Values that count as the paper's figure, ends included.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Band {
    /// The least value.
    pub from: f64,
    /// The greatest value.
    pub to: f64,
}

impl Band {
    /// Returns the band around the figures `from` to `to` of a paper. `None` if a figure is not positive.
    pub fn around(measured: Measured, from: f64, to: f64) -> Option<Self> {
        let is_positive = |figure: f64| figure > 0.0 && figure.is_finite();
        if !is_positive(from) || !is_positive(to) {
            return None;
        }
        Some(match measured {
            Measured::Value => Self { from: from / EFFECT_FACTOR, to: to * EFFECT_FACTOR },
            Measured::Ratio => Self { from: of_ratio(from).from, to: of_ratio(to).to },
            Measured::RatioUpTo if to >= 1.0 => Self { from: 1.0 - LOSS_MAX, to: of_ratio(to).to },
            Measured::RatioUpTo => Self { from: of_ratio(from).from, to: 1.0 + LOSS_MAX },
        })
    }

    /// Returns the position of a value beside the band, or `None` if it is inside.
    pub fn side(self, value: f64) -> Option<Side> {
        if value > self.to {
            Some(Side::Above)
        } else if value < self.from || value.is_nan() {
            Some(Side::Below)
        } else {
            None
        }
    }
}

impl std::fmt::Display for Band {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} to {}", shown(self.from), shown(self.to))
    }
}

fn of_ratio(ratio: f64) -> Band {
    let by_effect = |factor: f64| {
        if ratio >= 1.0 { 1.0 + (ratio - 1.0) * factor } else { 1.0 / (1.0 + (1.0 / ratio - 1.0) * factor) }
    };
    let (one, other) = (by_effect(EFFECT_FACTOR), by_effect(1.0 / EFFECT_FACTOR));
    Band {
        from: one.min(other).min(ratio * (1.0 - RATIO_DIFFERENCE)),
        to: one.max(other).max(ratio * (1.0 + RATIO_DIFFERENCE)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn band(measured: Measured, from: f64, to: f64) -> (f64, f64) {
        let band = Band::around(measured, from, to).expect("positive figures");
        let round = |value: f64| (value * 1000.0).round() / 1000.0;
        (round(band.from), round(band.to))
    }

    #[test]
    fn bands_match_computation_by_hand() {
        // A gain of 106 % is near gains of 71 to 159 %.
        assert_eq!(band(Measured::Ratio, 2.06, 2.06), (1.707, 2.59));
        assert_eq!(band(Measured::Ratio, 12.0, 12.0), (8.333, 17.5));
        // 35 %: 23 to 53 %, never a loss.
        assert_eq!(band(Measured::Ratio, 1.35, 1.35), (1.215, 1.525));
        // Run times: 1 / 0.5 = 2, near 1.667 to 2.5.
        assert_eq!(band(Measured::Ratio, 0.5, 0.5), (0.4, 0.6));
        // No effect: 10 % either way.
        assert_eq!(band(Measured::Ratio, 1.0, 1.0), (0.9, 1.1));
        assert_eq!(band(Measured::Ratio, 1.69, 3.92), (1.46, 5.38));
        assert_eq!(band(Measured::Value, 72.0, 72.0), (48.0, 108.0));
        assert_eq!(band(Measured::RatioUpTo, 1.4, 1.4), (0.98, 1.6));
        assert_eq!(band(Measured::RatioUpTo, 0.5, 0.5), (0.4, 1.02));
    }

    #[test]
    fn a_ratio_and_its_reciprocal_have_reciprocal_bands_by_effect() {
        for ratio in [1.5, 2.0, 3.7, 12.0] {
            let (above, below) = (of_ratio(ratio), of_ratio(1.0 / ratio));
            assert!((above.from * below.to - 1.0).abs() < 1e-9 && (above.to * below.from - 1.0).abs() < 1e-9);
        }
    }

    #[test]
    fn the_ends_belong_to_the_band() {
        let band = Band::around(Measured::Value, 3.0, 3.0).expect("positive");
        assert_eq!((band.side(2.0), band.side(4.5)), (None, None));
        assert_eq!(band.side(4.500_001), Some(Side::Above));
        assert_eq!(band.side(1.999_999), Some(Side::Below));
        assert_eq!(band.side(f64::NAN), Some(Side::Below));
        assert_eq!(band.side(f64::INFINITY), Some(Side::Above));
        assert_eq!(Side::Above.and(Side::Below), Side::Both);
        assert_eq!(Side::Below.and(Side::Below), Side::Below);
        for wrong in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(Band::around(Measured::Ratio, wrong, wrong), None, "{wrong}");
        }
    }
}
