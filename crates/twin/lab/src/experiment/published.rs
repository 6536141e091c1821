//! Values printed in the papers.

use crate::formula::X;
use serde::Deserialize;

/// Values of one series from one source.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// Name of the series.
    pub series: String,
    /// Places on the x axis.
    pub x: Vec<X>,
    /// Values at these places, if printed.
    #[serde(default)]
    pub values: Vec<f64>,
    /// Ratios to the baseline, if these are printed and the values are not.
    #[serde(default)]
    pub ratios: Vec<f64>,
    /// Table, figure or section.
    pub source: String,
}

impl Published {
    /// Returns the value at `x`.
    pub fn value(&self, x: &X) -> Option<f64> {
        self.values.get(self.x.iter().position(|at| at == x)?).copied()
    }

    /// Returns the ratio at `x`.
    pub fn ratio(&self, x: &X) -> Option<f64> {
        self.ratios.get(self.x.iter().position(|at| at == x)?).copied()
    }
}
