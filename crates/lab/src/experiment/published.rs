//! What the papers print.

use crate::formula::X;
use serde::Deserialize;

/// Figures of one series, from one source.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// Whose.
    pub series: String,
    /// At these places.
    pub x: Vec<X>,
    /// The values, if they are printed.
    #[serde(default)]
    pub values: Vec<f64>,
    /// By what factor of the baseline, if that is printed and the values are not.
    #[serde(default)]
    pub ratios: Vec<f64>,
    /// Table, figure, section.
    pub source: String,
}

impl Published {
    /// The value at `x`.
    pub fn value(&self, x: &X) -> Option<f64> {
        self.values.get(self.x.iter().position(|at| at == x)?).copied()
    }

    /// The ratio at `x`.
    pub fn ratio(&self, x: &X) -> Option<f64> {
        self.ratios.get(self.x.iter().position(|at| at == x)?).copied()
    }
}
