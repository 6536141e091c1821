//! Claims of an experiment file: conditions, and figures to compare with those of the paper.

use crate::formula::{At, Claimed, FormulaError, Tree, X, parse_claim, parse_measured, parse_number};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt;

/// A statement that holds if the result has the paper's shape.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "RawClaim")]
pub struct Claim {
    /// The claim in words.
    pub says: String,
    /// The claim as a formula. See [`crate::formula`].
    pub statement: Statement,
    /// Place in the paper.
    pub source: Option<String>,
    /// Whether the quick form must show it, too. Default: yes.
    pub quick: bool,
    /// Reason why a faithful model does not show it. Such a claim is reported, and is not a failure.
    pub unmet: Option<String>,
}

/// Formula of a claim.
#[derive(Clone, Debug)]
pub enum Statement {
    /// A condition, for what the paper states without a figure.
    Holds(Check),
    /// A figure that must lie in a band around the paper's. See [`crate::claim`].
    Near {
        /// The measured figure.
        figure: Check,
        /// Meaning of the figure, which decides the width of the band.
        measured: Measured,
        /// The paper's figure.
        paper: Paper,
    },
}

/// Meaning of a measured figure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Measured {
    /// A ratio of two configurations, 1 being no effect.
    Ratio,
    /// Any other quantity, such as a share.
    Value,
    /// A ratio whose best case the paper gives: *up to*.
    RatioUpTo,
}

/// Figures of the paper.
#[derive(Clone, Debug)]
pub enum Paper {
    /// One figure, which may be that of a published series at the claim's x.
    One(Tree),
    /// The least and the greatest figure of several cases.
    Range(f64, f64),
    /// A figure for each place of the claim.
    Places(BTreeMap<String, f64>),
}

impl Statement {
    /// Returns the formula that is evaluated, with its places.
    pub fn formula(&self) -> &Check {
        match self {
            Self::Holds(check) => check,
            Self::Near { figure, .. } => figure,
        }
    }
}

/// A formula, with its text.
#[derive(Clone, Debug)]
pub struct Check {
    /// The text.
    pub text: String,
    /// The parsed formula.
    pub claimed: Claimed,
}

impl Check {
    fn parse(
        text: String,
        parser: impl FnOnce(&str) -> Result<Claimed, FormulaError>,
    ) -> Result<Self, FormulaError> {
        let claimed = parser(&text)?;
        Ok(Self { text, claimed })
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text.fmt(f)
    }
}

/// A claim as written in the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawClaim {
    says: String,
    check: Option<String>,
    ratio: Option<String>,
    value: Option<String>,
    paper: Option<RawPaper>,
    up_to: Option<RawPaper>,
    source: Option<String>,
    #[serde(default = "yes")]
    quick: bool,
    unmet: Option<String>,
}

fn yes() -> bool {
    true
}

#[derive(Deserialize)]
#[serde(untagged)]
enum RawPaper {
    Number(f64),
    Range([f64; 2]),
    Places(BTreeMap<String, f64>),
    Formula(String),
}

impl RawPaper {
    fn parsed(self, at: &At) -> Result<Paper, String> {
        match self {
            Self::Number(number) => Ok(Paper::One(Tree::Number(number))),
            Self::Range([from, to]) if from <= to => Ok(Paper::Range(from, to)),
            Self::Range([from, to]) => Err(format!("the paper's range {from} to {to} is empty")),
            Self::Places(places) => match at {
                At::These(these)
                    if these.len() == places.len()
                        && these.iter().map(X::to_string).all(|x| places.contains_key(&x)) =>
                {
                    Ok(Paper::Places(places))
                }
                _ => Err("give one figure of the paper for each place after `at`".into()),
            },
            Self::Formula(text) => match parse_number(&text) {
                Ok(tree) => Ok(Paper::One(tree)),
                Err(error) => Err(error.to_string()),
            },
        }
    }
}

impl TryFrom<RawClaim> for Claim {
    type Error = String;

    fn try_from(raw: RawClaim) -> Result<Self, Self::Error> {
        let RawClaim { says, check, ratio, value, paper, up_to, source, quick, unmet } = raw;
        let wrong = |error: FormulaError| error.to_string();
        let near = |text, measured, paper: RawPaper| -> Result<Statement, String> {
            let figure = Check::parse(text, parse_measured).map_err(wrong)?;
            let paper = paper.parsed(&figure.claimed.at)?;
            Ok(Statement::Near { figure, measured, paper })
        };
        let statement = match (check, ratio, value, paper, up_to) {
            (Some(check), None, None, None, None) => {
                Statement::Holds(Check::parse(check, parse_claim).map_err(wrong)?)
            }
            (None, Some(ratio), None, Some(paper), None) => near(ratio, Measured::Ratio, paper)?,
            (None, Some(ratio), None, None, Some(paper)) => near(ratio, Measured::RatioUpTo, paper)?,
            (None, None, Some(value), Some(paper), None) => near(value, Measured::Value, paper)?,
            _ => {
                return Err(format!(
                    "claim \"{says}\": give `check`, or `ratio` with `paper` or `up_to`, or `value` with `paper`"
                ));
            }
        };
        Ok(Self { says, statement, source, quick, unmet })
    }
}
