//! A plan as its file has it.

use crate::bytes::Bytes;
use crate::figures::Figures;
use crate::placing::{PartFile, Placing};
use crate::rule::PathRule;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The version of the format.
pub(super) const VERSION: u32 = 1;

/// Who plans.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Planner {
    /// A search over composite layouts by the planner's own model.
    Best,
    /// PSA as printed.
    Psa,
    /// PA as PSA's paper has it.
    Pa,
    /// Stripes of 64 KiB over all.
    Def,
}

impl Planner {
    /// All, the best first.
    pub const ALL: [Self; 4] = [Self::Best, Self::Psa, Self::Pa, Self::Def];

    /// As it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Best => "best",
            Self::Psa => "psa",
            Self::Pa => "pa",
            Self::Def => "def",
        }
    }
}

impl fmt::Display for Planner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for Planner {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|planner| planner.name().eq_ignore_ascii_case(text));
        found.ok_or_else(|| format!("{text:?} is no planner: use best, psa, pa or def"))
    }
}

/// A plan, as its file has it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// The version of the format.
    pub version: u32,
    /// Who planned.
    pub planner: Planner,
    /// Which trace was read.
    pub trace: String,
    /// What should be known of it.
    #[serde(default)]
    pub notes: Vec<String>,
    /// What the whole run takes under each planner, by the planner's own model.
    pub predicted: Vec<Predicted>,
    /// What was planned for.
    #[serde(default)]
    pub rules: Vec<Rule>,
    /// The cluster that was planned for.
    pub cluster: Figures,
}

/// The whole run under a planner.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Predicted {
    /// Which.
    pub planner: Planner,
    /// How long, without what the program does besides.
    pub seconds: f64,
}

/// Files and their layout.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Which files: `*` stands for a number.
    pub path: PathRule,
    /// How many the trace has.
    pub files: u64,
    /// The length of the longest.
    pub extent: Bytes,
    /// Read and written in all.
    pub moved: Bytes,
    /// In which order, by whom, how large requests are.
    pub pattern: String,
    /// Why this layout.
    pub why: String,
    /// How sure it is that no other one below is faster, 0 to 1.
    pub confidence: f64,
    /// Its parts.
    pub layout: Vec<PartFile>,
    /// This and the others, with their times.
    pub alternatives: Vec<Alternative>,
}

/// A layout that a planner has for the files of a rule.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Alternative {
    /// Which planner.
    pub planner: Planner,
    /// How long the requests to these files take by themselves, by the planner's own model.
    pub seconds: f64,
    /// The sum of the costs of all requests by the paper's tables, in seconds; of its own planners.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
    /// Part of that time in which the busiest target of each class works.
    pub busy: std::collections::BTreeMap<String, f64>,
    /// Targets that a request touches, on average.
    pub spread: f64,
    /// Its parts.
    pub layout: Vec<PartFile>,
}

/// Why a text is no plan.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("plan: {0}")]
pub struct PlanError(pub(crate) String);

impl Plan {
    /// As a file, with comments.
    ///
    /// # Panics
    /// Never: all of it can be written.
    pub fn to_toml(&self) -> String {
        let text = toml::to_string(self).expect("a plan has no value that TOML cannot hold");
        format!("# A plan of `weft plan`. Layouts are by class; all targets of a class take part.\n{text}")
    }

    /// Reads a plan and checks it.
    ///
    /// # Errors
    /// What is wrong.
    pub fn from_toml(text: &str) -> Result<Self, PlanError> {
        let plan: Self = toml::from_str(text).map_err(|error| PlanError(error.to_string()))?;
        if plan.version != VERSION {
            return Err(PlanError(format!("version {} is not {VERSION}: plan again", plan.version)));
        }
        plan.cluster.check().map_err(|error| PlanError(error.to_string()))?;
        let amount = |what: &dyn fmt::Display, value: f64| match value.is_finite() && value >= 0.0 {
            true => Ok(()),
            false => Err(PlanError(format!("{what}: {value} is no amount of anything: plan again"))),
        };
        plan.predicted.iter().try_for_each(|of| amount(&of.planner, of.seconds))?;
        for rule in &plan.rules {
            if rule.path.0.contains("**") {
                return Err(PlanError(format!(
                    "{}: `**` stands for nothing in a plan, `*` for a number; `weft setstripe --rule` takes patterns of \
                     other kinds",
                    rule.path
                )));
            }
            if !(0.0..=1.0).contains(&rule.confidence) {
                return Err(PlanError(format!(
                    "{}: confidence {} is not from 0 to 1",
                    rule.path, rule.confidence
                )));
            }
            for other in &rule.alternatives {
                let values = [other.seconds, other.spread]
                    .into_iter()
                    .chain(other.cost)
                    .chain(other.busy.values().copied());
                values
                    .into_iter()
                    .try_for_each(|value| amount(&format!("{} for {}", other.planner, rule.path), value))?;
            }
            let layouts = rule.alternatives.iter().map(|other| &other.layout).chain([&rule.layout]);
            for layout in layouts {
                Placing::read(layout, &plan.cluster)
                    .map_err(|why| PlanError(format!("layout of {}: {why}", rule.path)))?;
            }
        }
        Ok(plan)
    }

    /// The rule for a path, if there is one.
    pub fn rule(&self, path: &str) -> Option<&Rule> {
        // An exact name goes before a pattern.
        let own = PathRule::of(path);
        let exact = self.rules.iter().find(|rule| rule.path == own);
        exact.or_else(|| self.rules.iter().find(|rule| rule.path.matches(path)))
    }
}
