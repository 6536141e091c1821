//! Results as rows.

use crate::experiment::{Experiment, series_name};
use crate::formula::X;
use crate::spread::Spread;
use serde::{Deserialize, Serialize};

/// One value of an experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Name of the experiment.
    pub experiment: String,
    /// Name of the curve or group of bars.
    pub series: String,
    /// Place on the x axis.
    pub x: X,
    /// Measured value.
    pub value: f64,
    /// Unit of the value.
    pub unit: String,
    /// Spread over several seeds, of which the value is the mean.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread: Option<Spread>,
    /// Value of the baseline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline: Option<f64>,
    /// Value divided by the baseline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
    /// Value printed in the paper.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published: Option<f64>,
    /// Ratio printed in the paper, or derived from its printed values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published_ratio: Option<f64>,
    /// Remark.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// A measured value before the comparison.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// Series, including its policy.
    pub series: String,
    /// Place on the x axis.
    pub x: X,
    /// Values, one for each seed.
    pub values: Spread,
}

/// Compares each value with its baseline and the published value.
pub fn rows(experiment: &Experiment, measured: &[Measured]) -> Vec<Row> {
    let of = |series: &str, x: &X| {
        measured.iter().find(|m| m.series == series && m.x == *x).map(|m| m.values.mean)
    };
    let row = |m: &Measured| {
        let base = base(experiment, &m.series, &m.x);
        let baseline = base.as_ref().and_then(|(series, x)| of(series, x));
        Row {
            experiment: experiment.name.clone(),
            series: m.series.clone(),
            x: m.x.clone(),
            value: m.values.mean,
            unit: experiment.measure.unit().to_owned(),
            spread: Some(m.values).filter(|values| values.count > 1),
            baseline,
            ratio: baseline.filter(|base| *base != 0.0).map(|base| m.values.mean / base),
            published: published(experiment, &m.series, &m.x),
            published_ratio: published_ratio(experiment, &m.series, &m.x),
            note: None,
        }
    };
    measured.iter().map(row).collect()
}

/// Returns the published value of a series at an x.
pub fn published(experiment: &Experiment, series: &str, x: &X) -> Option<f64> {
    experiment.published.iter().filter(|published| published.series == series).find_map(|p| p.value(x))
}

/// Returns the published ratio of a series to its baseline at an x: as printed, or from two printed values.
pub fn published_ratio(experiment: &Experiment, series: &str, x: &X) -> Option<f64> {
    let same = experiment.published.iter().filter(|published| published.series == series);
    same.clone().find_map(|published| published.ratio(x)).or_else(|| {
        let (base, at) = base(experiment, series, x)?;
        let base = published(experiment, &base, &at).filter(|base| *base != 0.0)?;
        Some(published(experiment, series, x)? / base)
    })
}

/// Returns series and x of a value's baseline. `None` for the baseline itself.
fn base(experiment: &Experiment, series: &str, x: &X) -> Option<(String, X)> {
    let baseline = experiment.baseline.as_ref()?;
    let (own, policy) = experiment.series.iter().find_map(|known| {
        let policy = experiment.policies.iter().find(|p| series_name(&known.name, &p.name) == series)?;
        Some((&known.name, &policy.name))
    })?;
    let name =
        series_name(baseline.series.as_ref().unwrap_or(own), baseline.policy.as_ref().unwrap_or(policy));
    let at = baseline.x.clone().unwrap_or_else(|| x.clone());
    if name == series && at == *x { None } else { Some((name, at)) }
}
