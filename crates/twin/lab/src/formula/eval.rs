//! Evaluation of formulas.

use super::tree::{Function, Join, Tree, X};

/// Values of the names in a formula.
pub trait Scope {
    /// Returns the value of a parameter.
    fn parameter(&self, name: &str) -> Result<f64, EvalError>;

    /// Returns the value of a series at an x.
    fn series(&self, name: &str, x: &X, source: Source) -> Result<f64, EvalError>;

    /// Returns each x at which a series has values.
    fn xs(&self) -> Vec<X>;
}

/// Source of a series' value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// The result of this run.
    Measured,
    /// The value printed in the paper.
    Published,
    /// The ratio to the baseline printed in the paper, or computed from two printed values.
    PublishedRatio,
}

/// Error of an evaluation.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum EvalError {
    /// An unknown name.
    #[error("there is no {0}")]
    Unknown(String),
    /// A value that this run does not have, such as one omitted in the quick form.
    #[error("there is no value of {0}")]
    Missing(String),
    /// A formula without a meaning.
    #[error("{0}")]
    Invalid(String),
}

/// Evaluates a formula to a number at `x`.
pub fn number(tree: &Tree, scope: &dyn Scope, x: Option<&X>) -> Result<f64, EvalError> {
    match tree {
        Tree::Number(number) => Ok(*number),
        Tree::Parameter(name) => scope.parameter(name),
        Tree::Series(series, at) => value(scope, series, at.as_ref().or(x), Source::Measured),
        Tree::Negative(of) => Ok(-number(of, scope, x)?),
        Tree::Joined(left, join, right) => {
            let (left, right) = (number(left, scope, x)?, number(right, scope, x)?);
            match join {
                Join::Add => Ok(left + right),
                Join::Sub => Ok(left - right),
                Join::Mul => Ok(left * right),
                Join::Div if right == 0.0 => Err(EvalError::Invalid("a division by zero".into())),
                Join::Div => Ok(left / right),
                join => Err(EvalError::Invalid(format!("`{}` is not a number", join.sign()))),
            }
        }
        Tree::Not(_) => Err(EvalError::Invalid("`not` is not a number".into())),
        Tree::Call(function, arguments) => call(*function, arguments, scope, x),
    }
}

fn value(scope: &dyn Scope, series: &str, x: Option<&X>, source: Source) -> Result<f64, EvalError> {
    let x =
        x.ok_or_else(|| EvalError::Invalid(format!("give an x for \"{series}\", such as \"{series}\"[1]")))?;
    scope.series(series, x, source)
}

fn call(function: Function, arguments: &[Tree], scope: &dyn Scope, x: Option<&X>) -> Result<f64, EvalError> {
    let argument = |index: usize| number(&arguments[index], scope, x);
    match function {
        Function::Published | Function::PublishedRatio => {
            let Tree::Series(series, at) = &arguments[0] else {
                unreachable!("the parser only accepts a series of the paper")
            };
            let is_ratio = function == Function::PublishedRatio;
            let source = if is_ratio { Source::PublishedRatio } else { Source::Published };
            value(scope, series, at.as_ref().or(x), source)
        }
        Function::Mean | Function::Least | Function::Most => {
            let values = over_all(&arguments[0], scope)?;
            Ok(match function {
                Function::Mean => values.iter().sum::<f64>() / values.len() as f64,
                Function::Least => values.iter().copied().fold(f64::INFINITY, f64::min),
                _ => values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            })
        }
        Function::Below => {
            let (Tree::Series(series, _), end) = (&arguments[0], argument(1)?) else {
                unreachable!("the parser only accepts series in `below`")
            };
            let mut sum = 0.0;
            for x in scope.xs() {
                if matches!(x, X::Number(at) if at < end) {
                    sum += scope.series(series, &x, Source::Measured)?;
                }
            }
            Ok(sum)
        }
        Function::Min => Ok(argument(0)?.min(argument(1)?)),
        Function::Max => Ok(argument(0)?.max(argument(1)?)),
        Function::Floor => Ok(argument(0)?.floor()),
        Function::Ceil => Ok(argument(0)?.ceil()),
        Function::Abs => Ok(argument(0)?.abs()),
    }
}

/// Returns the values at all x that have one. Fails if there is none.
fn over_all(tree: &Tree, scope: &dyn Scope) -> Result<Vec<f64>, EvalError> {
    let mut values = Vec::new();
    let mut missing = EvalError::Missing("any x".into());
    for x in scope.xs() {
        match number(tree, scope, Some(&x)) {
            Ok(value) => values.push(value),
            Err(error @ EvalError::Missing(_)) => missing = error,
            Err(error) => return Err(error),
        }
    }
    if values.is_empty() { Err(missing) } else { Ok(values) }
}

/// Evaluates a claim at `x`. Returns the result and the comparison in words, such as `2.06 >= 1.5`.
pub fn truth(tree: &Tree, scope: &dyn Scope, x: Option<&X>) -> Result<(bool, String), EvalError> {
    match tree {
        Tree::Not(of) => {
            let (is, shown) = truth(of, scope, x)?;
            Ok((!is, format!("not ({shown})")))
        }
        Tree::Joined(left, join @ (Join::And | Join::Or), right) => {
            let (left, left_shown) = truth(left, scope, x)?;
            let (right, right_shown) = truth(right, scope, x)?;
            let is = if *join == Join::And { left && right } else { left || right };
            Ok((is, format!("{left_shown} {} {right_shown}", join.sign())))
        }
        Tree::Joined(left, join, right) => {
            let (left, right) = (number(left, scope, x)?, number(right, scope, x)?);
            let is = match join {
                Join::Less => left < right,
                Join::LessOrEqual => left <= right,
                Join::More => left > right,
                Join::MoreOrEqual => left >= right,
                Join::Equal => left == right,
                join => {
                    return Err(EvalError::Invalid(format!("`{}` is neither true nor false", join.sign())));
                }
            };
            Ok((is, format!("{} {} {}", shown(left), join.sign(), shown(right))))
        }
        _ => Err(EvalError::Invalid("a number is neither true nor false".into())),
    }
}

/// Formats a number with three or four digits.
pub fn shown(number: f64) -> String {
    let size = number.abs();
    let text = match size {
        _ if number == number.trunc() && size < 1e6 => format!("{number}"),
        _ if size >= 1000.0 => format!("{number:.0}"),
        _ if size >= 100.0 => format!("{number:.1}"),
        _ if size >= 0.01 => format!("{number:.2}"),
        _ => format!("{number:.4}"),
    };
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}
