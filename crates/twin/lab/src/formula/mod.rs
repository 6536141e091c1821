//! Formulas: arithmetic over the parameters of experiments, and claims about results.
//!
//! | form | means |
//! | --- | --- |
//! | `3.5`, `64KiB`, `10GiB` | a number; bytes in binary units |
//! | `servers` | a parameter |
//! | `"aligned"` | the value of a series at the x of the claim |
//! | `"aligned"[16]`, `"sizes"["64 KiB"]` | the value of a series at an x |
//! | `published("aligned")` | the value printed in the paper |
//! | `published_ratio("aligned")` | the ratio to the baseline that is printed in the paper |
//! | `mean(e)`, `least(e)`, `most(e)` | mean, minimum and maximum over all x at which the formula has a value |
//! | `below("sizes", 64)` | the sum of a series over all x below a number |
//! | `min(a, b)`, `max(a, b)`, `floor(a)`, `ceil(a)`, `abs(a)` | the usual functions |
//! | `+ - * /`, `< <= > >= ==`, `not`, `and`, `or` | the usual operators, in order of precedence |
//! | `… at 16, 64`, `… at each` | a claim that holds at these x, or at each x of the experiment |

mod eval;
mod lex;
mod parse;
mod tree;

pub use eval::{EvalError, Scope, Source, number, shown, truth};
pub use parse::{parse_claim, parse_measured, parse_number};
pub use tree::{At, Claimed, Tree, X};

/// Error of a formula's syntax.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("formula `{formula}`: {why}")]
pub struct FormulaError {
    /// The whole text.
    pub formula: String,
    /// Description of the error.
    pub why: String,
}

#[cfg(test)]
mod tests;
