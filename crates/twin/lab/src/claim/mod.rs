//! Claims: whether a result has the shape that the paper shows.
//!
//! A claim is a condition, or a figure that lies in a [`Band`] around the paper's. The second form is for every figure
//! that the paper prints: a result far above the paper contradicts it as much as one far below.

mod band;

pub use band::{Band, EFFECT_FACTOR, LOSS_MAX, RATIO_DIFFERENCE, Side};

use crate::experiment::{Claim, Experiment, Measured, Paper, Statement};
use crate::formula::{At, EvalError, Scope, Source, X, number, shown, truth};
use crate::plan;
use crate::rows::{Row, published, published_ratio};
use serde::{Deserialize, Serialize};

/// Result of a claim.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The claim holds.
    Met,
    /// The claim does not hold, and the experiment gives no reason.
    Failed,
    /// The claim does not hold, for the reason given in the experiment.
    Unmet,
    /// The quick form cannot check the claim.
    Unchecked,
}

impl Verdict {
    /// Returns the verdict in words.
    pub fn word(self) -> &'static str {
        match self {
            Self::Met => "met",
            Self::Failed => "FAILED",
            Self::Unmet => "not met, with a reason",
            Self::Unchecked => "not checked in the quick form",
        }
    }
}

/// A claim with its verdict.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Finding {
    /// The claim in words.
    pub says: String,
    /// The claim's formula.
    pub check: String,
    /// Place in the paper.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The verdict.
    pub verdict: Verdict,
    /// Position beside the band around the paper's figure, if the claim compares with one and does not hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub side: Option<Side>,
    /// The comparison with numbers.
    pub compared: String,
    /// Known reason why the claim does not hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl Finding {
    /// Returns the verdict in words, with the position beside the paper's figure.
    pub fn word(&self) -> String {
        match (self.verdict, self.side) {
            (Verdict::Failed, Some(side)) => format!("FAILED, {}", side.word()),
            (Verdict::Unmet, Some(side)) => format!("{}, with a reason", side.word()),
            (verdict, _) => verdict.word().to_owned(),
        }
    }
}

/// Checks all claims of an experiment.
pub fn findings(experiment: &Experiment, rows: &[Row], quick: bool) -> Vec<Finding> {
    let scope = Results { experiment, rows, quick };
    experiment.claims.iter().map(|claim| finding(claim, &scope)).collect()
}

/// Result at one place of the x axis.
struct Compared {
    holds: bool,
    side: Option<Side>,
    text: String,
}

fn finding(claim: &Claim, scope: &Results) -> Finding {
    let formula = claim.statement.formula();
    let made = |verdict, side, compared: String| Finding {
        says: claim.says.clone(),
        check: formula.text.clone(),
        source: claim.source.clone(),
        verdict,
        side,
        compared,
        reason: claim.unmet.clone().filter(|_| verdict == Verdict::Unmet),
    };
    if scope.quick && !claim.quick {
        return made(Verdict::Unchecked, None, String::new());
    }
    let places = match &formula.claimed.at {
        At::Once => vec![None],
        At::Each => scope.xs().into_iter().map(Some).collect(),
        At::These(these) => these.iter().cloned().map(Some).collect(),
    };
    let (mut holds, mut side, mut compared) = (true, None::<Side>, Vec::new());
    for x in &places {
        match at_place(&claim.statement, scope, x.as_ref()) {
            Ok(place) => {
                holds &= place.holds;
                side = match (side, place.side) {
                    (Some(before), Some(now)) => Some(before.and(now)),
                    (before, now) => before.or(now),
                };
                let at = x.as_ref().map_or_else(String::new, |x| format!(" at {x}"));
                compared.push(format!("{}{at}{}", place.text, if place.holds { "" } else { " (no)" }));
            }
            // The quick form omits some places and series.
            Err(EvalError::Missing(_)) if scope.quick => {}
            Err(error) => {
                holds = false;
                compared.push(error.to_string());
            }
        }
    }
    let verdict = match (compared.is_empty(), holds, &claim.unmet) {
        (true, ..) => Verdict::Unchecked,
        (_, true, _) => Verdict::Met,
        (_, false, Some(_)) => Verdict::Unmet,
        (_, false, None) => Verdict::Failed,
    };
    made(verdict, side, compared.join("; "))
}

fn at_place(statement: &Statement, scope: &Results, x: Option<&X>) -> Result<Compared, EvalError> {
    match statement {
        Statement::Holds(check) => {
            let (holds, text) = truth(&check.claimed.tree, scope, x)?;
            Ok(Compared { holds, side: None, text })
        }
        Statement::Near { figure, measured, paper } => {
            let value = number(&figure.claimed.tree, scope, x)?;
            let (from, to) = published_figures(paper, scope, x)?;
            let band = Band::around(*measured, from, to)
                .ok_or_else(|| EvalError::Invalid("a paper's figure must be positive".into()))?;
            let side = band.side(value);
            let up_to = if *measured == Measured::RatioUpTo { "up to " } else { "" };
            let printed = if from == to { shown(to) } else { format!("{} to {}", shown(from), shown(to)) };
            let text = format!("{}, the paper {up_to}{printed} (band {band})", shown(value));
            Ok(Compared { holds: side.is_none(), side, text })
        }
    }
}

/// Returns the least and the greatest figure of the paper at `x`.
fn published_figures(paper: &Paper, scope: &Results, x: Option<&X>) -> Result<(f64, f64), EvalError> {
    let one = |figure| (figure, figure);
    match paper {
        Paper::One(tree) => number(tree, scope, x).map(one),
        Paper::Range(from, to) => Ok((*from, *to)),
        Paper::Places(places) => {
            let place = x.map(X::to_string).unwrap_or_default();
            let figure = places.get(&place).copied().map(one);
            figure.ok_or_else(|| EvalError::Missing(format!("the paper at {place}")))
        }
    }
}

struct Results<'a> {
    experiment: &'a Experiment,
    rows: &'a [Row],
    quick: bool,
}

impl Scope for Results<'_> {
    fn parameter(&self, name: &str) -> Result<f64, EvalError> {
        plan::parameter(self.experiment, self.quick, name)
    }

    fn series(&self, name: &str, x: &X, source: Source) -> Result<f64, EvalError> {
        let missing = || EvalError::Missing(format!("\"{name}\" at {x}"));
        match source {
            Source::Measured => {}
            Source::Published => return published(self.experiment, name, x).ok_or_else(missing),
            Source::PublishedRatio => {
                return published_ratio(self.experiment, name, x).ok_or_else(missing);
            }
        }
        let row = self.rows.iter().find(|row| row.series == name && row.x == *x);
        match row {
            Some(row) => Ok(row.value),
            // A request size that does not occur has a share of zero.
            None if self.experiment.x.measured && self.rows.iter().any(|row| row.series == name) => Ok(0.0),
            None => Err(missing()),
        }
    }

    fn xs(&self) -> Vec<X> {
        if !self.experiment.x.measured {
            return self.experiment.x.places();
        }
        let mut xs: Vec<X> = Vec::new();
        for row in self.rows {
            if !xs.contains(&row.x) {
                xs.push(row.x.clone());
            }
        }
        xs
    }
}
