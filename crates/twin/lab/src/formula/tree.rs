//! Syntax tree of a formula.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A place on the x axis: a number, or a name on an axis without a scale.
#[derive(Clone, PartialEq, PartialOrd, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum X {
    /// A number.
    Number(f64),
    /// A name.
    Name(String),
}

impl fmt::Display for X {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Name(name) => name.fmt(f),
        }
    }
}

/// Binary operator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Join {
    /// `+`
    Add,
    /// `-`
    Sub,
    /// `*`
    Mul,
    /// `/`
    Div,
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    More,
    /// `>=`
    MoreOrEqual,
    /// `==`
    Equal,
    /// `and`
    And,
    /// `or`
    Or,
}

impl Join {
    /// Returns the operator's text.
    pub fn sign(self) -> &'static str {
        match self {
            Self::Add => "+",
            Self::Sub => "-",
            Self::Mul => "*",
            Self::Div => "/",
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::More => ">",
            Self::MoreOrEqual => ">=",
            Self::Equal => "==",
            Self::And => "and",
            Self::Or => "or",
        }
    }
}

/// Function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Function {
    /// The published value of a series.
    Published,
    /// The published ratio of a series to its baseline.
    PublishedRatio,
    /// Mean over all x.
    Mean,
    /// Minimum over all x.
    Least,
    /// Maximum over all x.
    Most,
    /// Sum of a series over all x below a number.
    Below,
    /// Smaller of two numbers.
    Min,
    /// Larger of two numbers.
    Max,
    /// Rounds down.
    Floor,
    /// Rounds up.
    Ceil,
    /// Absolute value.
    Abs,
}

/// A formula.
#[derive(Clone, PartialEq, Debug)]
pub enum Tree {
    /// A number.
    Number(f64),
    /// A parameter.
    Parameter(String),
    /// The value of a series at this x, or at the x of the claim.
    Series(String, Option<X>),
    /// Negation of a number.
    Negative(Box<Tree>),
    /// Logical negation.
    Not(Box<Tree>),
    /// Binary operation.
    Joined(Box<Tree>, Join, Box<Tree>),
    /// Function call.
    Call(Function, Vec<Tree>),
}

/// Places at which a claim must hold.
#[derive(Clone, PartialEq, Debug)]
pub enum At {
    /// The formula itself names each x.
    Once,
    /// Each x of the experiment.
    Each,
    /// Each of these x.
    These(Vec<X>),
}

/// A parsed claim.
#[derive(Clone, PartialEq, Debug)]
pub struct Claimed {
    /// The formula.
    pub tree: Tree,
    /// Places at which it must hold.
    pub at: At,
}
