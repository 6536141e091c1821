//! A formula that has been read.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A place on the x axis: a number, or a name where there is no scale.
#[derive(Clone, PartialEq, PartialOrd, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum X {
    /// On a scale.
    Number(f64),
    /// By name.
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

/// What joins two formulas.
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
    /// How it is written.
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

/// A function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Function {
    /// What the paper prints for the one series named.
    Published,
    /// Mean over all x.
    Mean,
    /// Least over all x.
    Least,
    /// Most over all x.
    Most,
    /// The sum of the one series named over all x below a number.
    Below,
    /// The smaller.
    Min,
    /// The larger.
    Max,
    /// Down to a whole number.
    Floor,
    /// Up to a whole number.
    Ceil,
    /// Without its sign.
    Abs,
}

/// A formula.
#[derive(Clone, PartialEq, Debug)]
pub enum Tree {
    /// A number.
    Number(f64),
    /// A parameter.
    Parameter(String),
    /// A series' value, at an x or at that of the claim.
    Series(String, Option<X>),
    /// A sign in front.
    Negative(Box<Tree>),
    /// `not`.
    Not(Box<Tree>),
    /// Two, joined.
    Joined(Box<Tree>, Join, Box<Tree>),
    /// A function of some.
    Call(Function, Vec<Tree>),
}

/// Where a claim is to hold.
#[derive(Clone, PartialEq, Debug)]
pub enum At {
    /// Nowhere in particular: its formula names the x itself.
    Once,
    /// At each x of the experiment.
    Each,
    /// At each of these.
    These(Vec<X>),
}

/// A claim that has been read.
#[derive(Clone, PartialEq, Debug)]
pub struct Claimed {
    /// What is to be true.
    pub tree: Tree,
    /// Where.
    pub at: At,
}
