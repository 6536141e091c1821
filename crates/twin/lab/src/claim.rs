//! Claims: whether a result has the shape that the paper shows.

use crate::experiment::{Claim, Experiment};
use crate::formula::{At, EvalError, Scope, X, truth};
use crate::plan;
use crate::rows::{Row, published};
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
    /// The comparison with numbers.
    pub compared: String,
    /// Known reason why the claim does not hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Checks all claims of an experiment.
pub fn findings(experiment: &Experiment, rows: &[Row], quick: bool) -> Vec<Finding> {
    let scope = Results { experiment, rows, quick };
    experiment.claims.iter().map(|claim| finding(claim, &scope)).collect()
}

fn finding(claim: &Claim, scope: &Results) -> Finding {
    let made = |verdict, compared: String| Finding {
        says: claim.says.clone(),
        check: claim.check.text.clone(),
        source: claim.source.clone(),
        verdict,
        compared,
        reason: claim.unmet.clone().filter(|_| verdict != Verdict::Unchecked),
    };
    if scope.quick && !claim.quick {
        return made(Verdict::Unchecked, String::new());
    }
    let places = match &claim.check.claimed.at {
        At::Once => vec![None],
        At::Each => scope.xs().into_iter().map(Some).collect(),
        At::These(these) => these.iter().cloned().map(Some).collect(),
    };
    let (mut holds, mut compared) = (true, Vec::new());
    for x in &places {
        match truth(&claim.check.claimed.tree, scope, x.as_ref()) {
            Ok((is, shown)) => {
                holds &= is;
                let at = x.as_ref().map_or_else(String::new, |x| format!(" at {x}"));
                compared.push(format!("{shown}{at}{}", if is { "" } else { " (no)" }));
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
    made(verdict, compared.join("; "))
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

    fn series(&self, name: &str, x: &X, is_published: bool) -> Result<f64, EvalError> {
        let missing = || EvalError::Missing(format!("\"{name}\" at {x}"));
        if is_published {
            return published(self.experiment, name, x).ok_or_else(missing);
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
