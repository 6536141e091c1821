//! The plan file.

use super::advice::Advice;
use super::trial::Trial;
use crate::bytes::Bytes;
use crate::figures::Figures;
use crate::placement::{ClassPlacement, PlanPart};
use crate::rule::PathRule;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Version of the file format.
pub(super) const VERSION: u32 = 2;

/// A layout planner.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Planner {
    /// Search over multi-part layouts with the queueing model.
    Best,
    /// PSA as printed.
    Psa,
    /// PA as described in the PSA paper.
    Pa,
    /// The default: 64 KiB stripes over all targets.
    Def,
    /// The layouts in force: those of the files, or those that new files would get.
    Present,
}

impl Planner {
    /// All planners that make layouts, best first.
    pub const ALL: [Self; 4] = [Self::Best, Self::Psa, Self::Pa, Self::Def];

    /// Name in files and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Best => "best",
            Self::Psa => "psa",
            Self::Pa => "pa",
            Self::Def => "def",
            Self::Present => "present",
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
        found.ok_or_else(|| format!("{text:?} is not a planner: use best, psa, pa or def"))
    }
}

/// A plan in the form of its file.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Version of the file format.
    pub version: u32,
    /// The planner that made it.
    pub planner: Planner,
    /// Name of the trace.
    pub trace: String,
    /// Notes for the reader.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Advice for the whole run; absent if no present layouts were known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advice: Option<Advice>,
    /// Predicted time of the whole run under each planner, by the queueing model.
    pub predicted: Vec<Predicted>,
    /// File groups that get another layout.
    #[serde(default)]
    pub rules: Vec<Rule>,
    /// File groups that keep their layout. Their rules are for the reader.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<Rule>,
    /// The cluster that the plan is for.
    pub cluster: Figures,
    /// How the plan was tried on the running cluster, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trial: Option<Trial>,
}

/// Predicted time of the whole run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Predicted {
    /// The planner.
    pub planner: Planner,
    /// Predicted I/O time, seconds.
    pub seconds: f64,
}

/// A file group and its layout.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// The files; `*` stands for a number.
    pub path: PathRule,
    /// Number of such files in the trace.
    pub files: u64,
    /// Length of the longest file.
    pub extent: Bytes,
    /// Total bytes read and written.
    pub moved: Bytes,
    /// Access pattern: order, sharing, request lengths.
    pub pattern: String,
    /// Why this layout was chosen.
    pub why: String,
    /// Confidence that no alternative is faster, 0 to 1.
    pub confidence: f64,
    /// Advice for these files; absent if no present layout was known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advice: Option<Advice>,
    /// The parts of the layout.
    pub layout: Vec<PlanPart>,
    /// Layouts of all planners, including this one, with predicted times.
    pub alternatives: Vec<Alternative>,
}

/// A planner's layout for the files of a rule.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Alternative {
    /// The planner.
    pub planner: Planner,
    /// Predicted time of the requests to these files alone, by the queueing model.
    pub seconds: f64,
    /// Total cost of all requests by the paper's tables, seconds; for the paper's planners only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
    /// Fraction of the predicted time in which the busiest target of each class is busy.
    pub busy: std::collections::BTreeMap<String, f64>,
    /// Mean number of targets that a request touches.
    pub spread: f64,
    /// The parts of the layout.
    pub layout: Vec<PlanPart>,
}

/// Why a plan is invalid.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("plan: {0}")]
pub struct PlanError(pub(crate) String);

/// Checks that a rule's layout is one of the cluster's classes.
fn checked(layout: &[PlanPart], rule: &Rule, cluster: &Figures) -> Result<(), PlanError> {
    let read = ClassPlacement::from_plan(layout, cluster);
    read.map(drop).map_err(|why| PlanError(format!("layout of {}: {why}", rule.path)))
}

impl Plan {
    /// Formats the plan as TOML with a leading comment.
    ///
    /// # Panics
    /// Never: every value has a TOML form.
    pub fn to_toml(&self) -> String {
        let text = toml::to_string(self).expect("a plan has no value that TOML cannot hold");
        format!("# A plan of `weft plan`. Layouts are by class; all targets of a class take part.\n{text}")
    }

    /// Parses and checks a plan.
    ///
    /// # Errors
    /// The first problem found.
    pub fn from_toml(text: &str) -> Result<Self, PlanError> {
        let plan: Self = toml::from_str(text).map_err(|error| PlanError(error.to_string()))?;
        if plan.version != VERSION {
            return Err(PlanError(format!("version {} is not {VERSION}: plan again", plan.version)));
        }
        plan.trial.iter().try_for_each(Trial::check)?;
        plan.cluster.check().map_err(|error| PlanError(error.to_string()))?;
        let amount = |what: &dyn fmt::Display, value: f64| match value.is_finite() && value >= 0.0 {
            true => Ok(()),
            false => Err(PlanError(format!("{what}: {value} is not a valid amount: plan again"))),
        };
        let seconds = |what: &dyn fmt::Display, advice: Option<Advice>| {
            let values =
                advice.into_iter().flat_map(|of| [of.present_s, of.planned_s, of.error_s, of.cost_s]);
            values.into_iter().try_for_each(|value| amount(what, value))
        };
        seconds(&"advice", plan.advice)?;
        plan.predicted.iter().try_for_each(|of| amount(&of.planner, of.seconds))?;
        for rule in plan.rules.iter().chain(&plan.kept) {
            if rule.path.0.contains("**") {
                return Err(PlanError(format!(
                    "{}: `**` is not allowed in a plan, where `*` stands for a number; use `weft setstripe --rule` for \
                     other patterns",
                    rule.path
                )));
            }
            if !(0.0..=1.0).contains(&rule.confidence) {
                return Err(PlanError(format!(
                    "{}: confidence {} is not from 0 to 1",
                    rule.path, rule.confidence
                )));
            }
            seconds(&rule.path, rule.advice)?;
            for other in &rule.alternatives {
                let values = [other.seconds, other.spread]
                    .into_iter()
                    .chain(other.cost)
                    .chain(other.busy.values().copied());
                values
                    .into_iter()
                    .try_for_each(|value| amount(&format!("{} for {}", other.planner, rule.path), value))?;
            }
            let planned = rule.alternatives.iter().filter(|other| other.planner != Planner::Present);
            planned.map(|other| &other.layout).try_for_each(|layout| checked(layout, rule, &plan.cluster))?;
        }
        plan.rules.iter().try_for_each(|rule| checked(&rule.layout, rule, &plan.cluster))?;
        Ok(plan)
    }

    /// The rule that applies to a path.
    pub fn rule(&self, path: &str) -> Option<&Rule> {
        matching(self.rules.iter(), path)
    }

    /// The group of a path, whether its layout changes or not.
    pub fn group(&self, path: &str) -> Option<&Rule> {
        matching(self.rules.iter().chain(&self.kept), path)
    }
}

fn matching<'a>(mut rules: impl Iterator<Item = &'a Rule> + Clone, path: &str) -> Option<&'a Rule> {
    // An exact name takes precedence over a pattern.
    let own = PathRule::of(path);
    let exact = rules.clone().find(|rule| rule.path == own);
    exact.or_else(|| rules.find(|rule| rule.path.matches(path)))
}
