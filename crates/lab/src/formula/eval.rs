//! The worth of a formula.

use super::tree::{Function, Join, Tree, X};

/// What names in a formula stand for.
pub trait Scope {
    /// A parameter.
    fn parameter(&self, name: &str) -> Result<f64, EvalError>;

    /// A series at an x; `published` asks for what the paper prints.
    fn series(&self, name: &str, x: &X, published: bool) -> Result<f64, EvalError>;

    /// Each x at which a series has values.
    fn xs(&self) -> Vec<X>;
}

/// Why a formula has no value.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum EvalError {
    /// A name that nobody knows.
    #[error("there is no {0}")]
    Unknown(String),
    /// A value that this run does not have, as the quick form of an experiment leaves some out.
    #[error("there is no value of {0}")]
    Missing(String),
    /// A formula that makes no sense.
    #[error("{0}")]
    Senseless(String),
}

/// The number that a formula gives at `x`.
pub fn number(tree: &Tree, scope: &dyn Scope, x: Option<&X>) -> Result<f64, EvalError> {
    match tree {
        Tree::Number(number) => Ok(*number),
        Tree::Parameter(name) => scope.parameter(name),
        Tree::Series(series, at) => value(scope, series, at.as_ref().or(x), false),
        Tree::Negative(of) => Ok(-number(of, scope, x)?),
        Tree::Joined(left, join, right) => {
            let (left, right) = (number(left, scope, x)?, number(right, scope, x)?);
            match join {
                Join::Add => Ok(left + right),
                Join::Sub => Ok(left - right),
                Join::Mul => Ok(left * right),
                Join::Div if right == 0.0 => Err(EvalError::Senseless("a division by zero".into())),
                Join::Div => Ok(left / right),
                join => Err(EvalError::Senseless(format!("`{}` gives no number", join.sign()))),
            }
        }
        Tree::Not(_) => Err(EvalError::Senseless("`not` gives no number".into())),
        Tree::Call(function, arguments) => call(*function, arguments, scope, x),
    }
}

fn value(scope: &dyn Scope, series: &str, x: Option<&X>, published: bool) -> Result<f64, EvalError> {
    let x =
        x.ok_or_else(|| EvalError::Senseless(format!("nothing says at which x \"{series}\" is meant")))?;
    scope.series(series, x, published)
}

fn call(function: Function, arguments: &[Tree], scope: &dyn Scope, x: Option<&X>) -> Result<f64, EvalError> {
    let argument = |index: usize| number(&arguments[index], scope, x);
    match function {
        Function::Published => match &arguments[0] {
            Tree::Series(series, at) => value(scope, series, at.as_ref().or(x), true),
            _ => unreachable!("the reader lets only series into `published`"),
        },
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
                unreachable!("the reader lets only series into `below`")
            };
            let mut sum = 0.0;
            for x in scope.xs() {
                if matches!(x, X::Number(at) if at < end) {
                    sum += scope.series(series, &x, false)?;
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

/// The values at all x that have one; at least one.
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

/// Whether a claim's formula holds at `x`, and what was compared, in words: `2.06 >= 1.5`.
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
                    return Err(EvalError::Senseless(format!("`{}` is neither true nor false", join.sign())));
                }
            };
            Ok((is, format!("{} {} {}", shown(left), join.sign(), shown(right))))
        }
        _ => Err(EvalError::Senseless("a number is neither true nor false".into())),
    }
}

/// A number for people: three or four digits.
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
