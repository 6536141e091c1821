//! Experiments as data: one TOML file each, in `crates/twin/lab/experiments`.
//!
//! `cluster` and `workload` have the formats of `weft_twin` and `weft_workload`. A text in them that begins with `=` is
//! a formula over `parameters`, and so is a parameter that begins with `=`. Series, points of the x axis and policies
//! *set* parameters by name, or single values by path, such as `cluster.network`.

mod catalog;
mod claims;
mod load;
mod published;

pub use catalog::{all, by_name, names};
pub use claims::{Check, Claim, Measured, Paper, Statement};
pub use load::LoadError;
pub use published::Published;

use crate::formula::X;
use serde::Deserialize;
use toml::Table;
use weft_twin::RunOptions;

/// A figure or table of a paper, or any other repeatable measurement.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// Name on the command line: paper and figure.
    pub name: String,
    /// Title.
    pub title: String,
    /// The paper.
    pub paper: String,
    /// Figure or table of the paper.
    pub figure: String,
    /// Description of the result in a sentence or two.
    pub shows: String,
    /// Notes for comparisons: differences from the paper's setup, and what its figures leave open.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Named values for formulas.
    #[serde(default)]
    pub parameters: Table,
    /// Description of the cluster.
    pub cluster: Table,
    /// Description of the workload.
    pub workload: Table,
    /// The x axis.
    pub x: Axis,
    /// Curves or groups of bars.
    pub series: Vec<Series>,
    /// Policies under which each series runs. Default: stock only.
    #[serde(default = "stock")]
    pub policies: Vec<Policy>,
    /// How each run is made.
    #[serde(default)]
    pub run: Runs,
    /// The measured quantity.
    pub measure: Measure,
    /// Values that results are divided by.
    #[serde(default)]
    pub baseline: Option<Baseline>,
    /// Values printed in the paper.
    #[serde(default)]
    pub published: Vec<Published>,
    /// Claims that hold if the result has the paper's shape.
    #[serde(default)]
    pub claims: Vec<Claim>,
    /// Differences of the quick form.
    #[serde(default)]
    pub quick: Quick,
}

/// The x axis.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Axis {
    /// The axis label.
    pub name: String,
    /// The unit.
    #[serde(default)]
    pub unit: Option<String>,
    /// Whether the scale is logarithmic.
    #[serde(default)]
    pub log: bool,
    /// Parameter or path that takes each of `values`.
    #[serde(default)]
    pub set: Option<String>,
    /// Places on the axis.
    #[serde(default)]
    pub values: Vec<X>,
    /// Places that set more than one parameter.
    #[serde(default)]
    pub points: Vec<AxisPoint>,
    /// Whether the measurement defines the places, as a distribution does.
    #[serde(default)]
    pub measured: bool,
}

/// A place on the x axis and the parameters it sets.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AxisPoint {
    /// The place.
    pub x: X,
    /// Parameters that it sets.
    #[serde(default)]
    pub set: Table,
}

/// A curve or group of bars.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Series {
    /// Name of the series.
    pub name: String,
    /// Parameters that it sets.
    #[serde(default)]
    pub set: Table,
}

/// A policy of placing and serving bytes.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// Name of the policy. `off` is stock.
    pub name: String,
    /// Parameters that it sets.
    #[serde(default)]
    pub set: Table,
}

/// Name of the policy without any changes.
pub const STOCK: &str = "off";

fn stock() -> Vec<Policy> {
    vec![Policy { name: STOCK.into(), set: Table::new() }]
}

/// Returns the name of a series under a policy.
pub fn series_name(series: &str, policy: &str) -> String {
    if policy == STOCK { series.to_owned() } else { format!("{series}, {policy}") }
}

/// How each run is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Runs {
    /// Number of times that the workload runs on the same files. Page caches are emptied before each pass, and only the
    /// last one is measured. The earlier ones fill caches that survive, such as an SSD.
    pub passes: u32,
    /// Whether the time until all written bytes are on the disks counts.
    pub drain: bool,
    /// Whether all runs begin at the same time with the same random numbers. Two runs then differ only by the effect of
    /// their different configurations, to the nanosecond.
    pub paired: bool,
    /// Number of seeds for each run. Values are means, and claims are checked on the means. The quick form uses the
    /// first seed only.
    pub seeds: u32,
}

impl Runs {
    /// Converts to the options of the twin.
    pub fn options(self) -> RunOptions {
        let Self { passes, drain, paired, seeds: _ } = self;
        RunOptions { passes, drain, paired, ..RunOptions::default() }
    }
}

impl Default for Runs {
    fn default() -> Self {
        Self { passes: 1, drain: false, paired: false, seeds: 1 }
    }
}

/// The measured quantity.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "what", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Measure {
    /// Megabytes (10^6) per second of a phase or of the whole run.
    Bandwidth {
        /// Name of the phase.
        #[serde(default)]
        phase: Option<String>,
    },
    /// Operations per second of a phase or of the whole run.
    Rate {
        /// Name of the phase.
        #[serde(default)]
        phase: Option<String>,
        /// Kind of operation, such as `open`. Default: all.
        #[serde(default)]
        op: Option<String>,
    },
    /// Seconds of a phase or of the whole run.
    RunTime {
        /// Name of the phase.
        #[serde(default)]
        phase: Option<String>,
    },
    /// Mean milliseconds per operation of a phase or of the whole run.
    MeanLatency {
        /// Name of the phase.
        #[serde(default)]
        phase: Option<String>,
        /// Kind of operation. Default: all.
        #[serde(default)]
        op: Option<String>,
    },
    /// Mean seconds that a process spends in file calls, plus the drain time where it counts.
    IoTime,
    /// Bytes that the SSDs took from writes or gave to reads, in per cent of the bytes that the processes moved.
    SsdShare,
    /// Most megabytes (10^6) of pages in the memory of one delegate.
    DelegateMemory,
    /// Seconds during which the disks of each data server were not idle. The places are `S0`, `S1` and so on.
    DiskTime,
    /// Bytes of the mapping to the replica, in per cent of the replica's bytes.
    MappingSpace,
    /// Share of each request size among all requests that reached the disks, in per cent.
    BlockSizes {
        /// Minimum share in per cent of a size that is reported.
        #[serde(default = "one")]
        least: f64,
    },
}

fn one() -> f64 {
    1.0
}

impl Measure {
    /// Returns the unit of the values.
    pub fn unit(&self) -> &'static str {
        match self {
            Self::Bandwidth { .. } => "MB/s",
            Self::DelegateMemory => "MB",
            Self::Rate { .. } => "1/s",
            Self::RunTime { .. } | Self::IoTime | Self::DiskTime => "s",
            Self::MeanLatency { .. } => "ms",
            Self::BlockSizes { .. } | Self::SsdShare | Self::MappingSpace => "%",
        }
    }
}

/// The value that each result is divided by: the result of another series, x or policy. Fields that are not set stay as
/// they are.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Baseline {
    /// Series of the baseline.
    #[serde(default)]
    pub series: Option<String>,
    /// Policy of the baseline.
    #[serde(default)]
    pub policy: Option<String>,
    /// AxisPoint of the baseline.
    #[serde(default)]
    pub x: Option<X>,
}

/// Differences of the quick form: less data and fewer places.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quick {
    /// Parameters that it sets before all others.
    #[serde(default)]
    pub set: Table,
    /// Places on the x axis. Default: all.
    #[serde(default)]
    pub x: Vec<X>,
    /// Series. Default: all.
    #[serde(default)]
    pub series: Vec<String>,
}

#[cfg(test)]
mod tests;
