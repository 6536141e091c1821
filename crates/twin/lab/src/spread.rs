//! Mean and range of a value over several seeds.

use serde::{Deserialize, Serialize};

/// Values of runs that differ only by chance.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Spread {
    /// Number of values.
    pub count: usize,
    /// Mean.
    pub mean: f64,
    /// Minimum.
    pub least: f64,
    /// Maximum.
    pub most: f64,
}

impl Spread {
    /// Summarizes values, of which there must be at least one.
    pub fn of(values: &[f64]) -> Self {
        assert!(!values.is_empty(), "a mean of nothing");
        Self {
            count: values.len(),
            mean: values.iter().sum::<f64>() / values.len() as f64,
            least: values.iter().copied().fold(f64::INFINITY, f64::min),
            most: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spreads_match_computation_by_hand() {
        assert_eq!(Spread::of(&[-4.0]), Spread { count: 1, mean: -4.0, least: -4.0, most: -4.0 });
        assert_eq!(Spread::of(&[3.0, -1.0, 7.0]), Spread { count: 3, mean: 3.0, least: -1.0, most: 7.0 });
    }
}
