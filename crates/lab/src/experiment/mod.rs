//! An experiment as data: one TOML file each, in `crates/lab/experiments`.
//!
//! `cluster` and `workload` are what `weft_twin` and `weft_workload` read. A text in them that begins with `=` is a
//! formula over `parameters`; so is one among the parameters. Series, points of the x axis and policies *set*
//! parameters (by name) or single values (by path, as `cluster.network`).

mod catalog;
mod load;
mod published;

pub use catalog::{all, by_name, names};
pub use load::LoadError;
pub use published::Published;

use crate::formula::{Claimed, X};
use serde::Deserialize;
use std::fmt;
use toml::Table;
use weft_twin::RunOptions;

/// One figure or table of a paper, or anything else that is to be measured again and again.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// How it is called on the command line: paper and figure.
    pub name: String,
    /// In a few words.
    pub title: String,
    /// Whose.
    pub paper: String,
    /// Which of its figures or tables.
    pub figure: String,
    /// What it shows, in a sentence or two.
    pub shows: String,
    /// What somebody who compares must know: how the paper's set-up is carried over, what the figures leave open.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Numbers with names, for formulas.
    #[serde(default)]
    pub parameters: Table,
    /// The cluster.
    pub cluster: Table,
    /// What runs on it.
    pub workload: Table,
    /// The x axis.
    pub x: Axis,
    /// The curves or groups of bars.
    pub series: Vec<Series>,
    /// Policies under which each series runs; stock alone unless said.
    #[serde(default = "stock")]
    pub policies: Vec<Policy>,
    /// How each run is made.
    #[serde(default)]
    pub run: Runs,
    /// What is measured.
    pub measure: Measure,
    /// What each value is divided by.
    #[serde(default)]
    pub baseline: Option<Baseline>,
    /// What the paper prints.
    #[serde(default)]
    pub published: Vec<Published>,
    /// What must be so for the figure to have the paper's shape.
    #[serde(default)]
    pub claims: Vec<Claim>,
    /// How the quick form differs.
    #[serde(default)]
    pub quick: Quick,
}

/// The x axis.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Axis {
    /// What it shows.
    pub name: String,
    /// Its unit.
    #[serde(default)]
    pub unit: Option<String>,
    /// Whether equal factors take equal room.
    #[serde(default)]
    pub log: bool,
    /// The parameter or path that takes each of `values`.
    #[serde(default)]
    pub set: Option<String>,
    /// The places on it.
    #[serde(default)]
    pub values: Vec<X>,
    /// Places that set more than one thing.
    #[serde(default)]
    pub points: Vec<Place>,
    /// Whether the measurement itself gives the places, as a distribution does.
    #[serde(default)]
    pub measured: bool,
}

/// A place on the x axis, with what it sets.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Place {
    /// Where.
    pub x: X,
    /// What it sets.
    #[serde(default)]
    pub set: Table,
}

/// One curve or group of bars.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Series {
    /// Its name.
    pub name: String,
    /// What it sets.
    #[serde(default)]
    pub set: Table,
}

/// A way to place and serve bytes.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// Its name; `off` is stock.
    pub name: String,
    /// What it sets.
    #[serde(default)]
    pub set: Table,
}

/// The policy of those who choose none.
pub const STOCK: &str = "off";

fn stock() -> Vec<Policy> {
    vec![Policy { name: STOCK.into(), set: Table::new() }]
}

/// The name of a series under a policy.
pub fn series_name(series: &str, policy: &str) -> String {
    if policy == STOCK { series.to_owned() } else { format!("{series}, {policy}") }
}

/// How each run is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Runs {
    /// How often the workload runs on the same files; the last one is measured, with nothing of files in the servers'
    /// memories. A cache that outlives a run is filled by the others.
    pub passes: u32,
    /// Whether the time until everything that was written lies on the disks counts, too.
    pub drain: bool,
    /// Whether all runs begin at the same time with the same dice: what two of them do not have in common is then the
    /// doing of what they differ in, to the nanosecond.
    pub paired: bool,
    /// With so many seeds each is made, one after the other: values are their means, and claims are judged by these. The
    /// quick form takes the first alone.
    pub seeds: u32,
}

impl Runs {
    /// As the twin takes it.
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

/// What is measured.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "what", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Measure {
    /// Megabytes (10^6) per second of a phase, or of the whole run.
    Bandwidth {
        /// Which phase.
        #[serde(default)]
        phase: Option<String>,
    },
    /// Operations per second of a phase, or of the whole run.
    Rate {
        /// Which phase.
        #[serde(default)]
        phase: Option<String>,
        /// Only operations of this kind, as `open`.
        #[serde(default)]
        op: Option<String>,
    },
    /// Seconds of a phase, or of the whole run.
    RunTime {
        /// Which phase.
        #[serde(default)]
        phase: Option<String>,
    },
    /// Mean milliseconds per operation of a phase, or of the whole run.
    MeanLatency {
        /// Which phase.
        #[serde(default)]
        phase: Option<String>,
        /// Only operations of this kind.
        #[serde(default)]
        op: Option<String>,
    },
    /// Seconds that a process spends on average in calls for files, and until all is on the disks where that counts.
    IoTime,
    /// Bytes that the SSDs beside the disks took from writes or gave to reads, in per cent of what the processes moved.
    SsdShare,
    /// The share of each request size, in per cent, among what reached the devices.
    BlockSizes {
        /// Sizes that are less than this share, in per cent, go unmentioned.
        #[serde(default = "one")]
        least: f64,
    },
}

fn one() -> f64 {
    1.0
}

impl Measure {
    /// The unit of its values.
    pub fn unit(&self) -> &'static str {
        match self {
            Self::Bandwidth { .. } => "MB/s",
            Self::Rate { .. } => "1/s",
            Self::RunTime { .. } | Self::IoTime => "s",
            Self::MeanLatency { .. } => "ms",
            Self::BlockSizes { .. } | Self::SsdShare => "%",
        }
    }
}

/// What each value is divided by: that of another series, x or policy; what is not named stays as it is.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Baseline {
    /// That series.
    #[serde(default)]
    pub series: Option<String>,
    /// That policy.
    #[serde(default)]
    pub policy: Option<String>,
    /// That x.
    #[serde(default)]
    pub x: Option<X>,
}

/// What must be so for the figure to have the paper's shape.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// In words.
    pub says: String,
    /// As a formula: see [`crate::formula`].
    pub check: Check,
    /// Where the paper says so.
    #[serde(default)]
    pub source: Option<String>,
    /// Whether the quick form, too, must show it; unless said it must.
    #[serde(default = "yes")]
    pub quick: bool,
    /// Why an honest model does not show it, if it does not. Such a claim is reported, and fails nothing.
    #[serde(default)]
    pub unmet: Option<String>,
}

fn yes() -> bool {
    true
}

/// A claim's formula, with its text.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "String")]
pub struct Check {
    /// As written.
    pub text: String,
    /// As read.
    pub claimed: Claimed,
}

impl TryFrom<String> for Check {
    type Error = crate::formula::FormulaError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let claimed = crate::formula::parse_claim(&text)?;
        Ok(Self { text, claimed })
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text.fmt(f)
    }
}

/// How the quick form of an experiment differs: less data, fewer places.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quick {
    /// What it sets before all others.
    #[serde(default)]
    pub set: Table,
    /// The only places on the x axis; all if none is named.
    #[serde(default)]
    pub x: Vec<X>,
    /// The only series; all if none is named.
    #[serde(default)]
    pub series: Vec<String>,
}

#[cfg(test)]
mod tests;
