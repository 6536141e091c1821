//! Parsing and checking of experiments.

use super::{Axis, Experiment, Paper, Quick, Statement, series_name};
use crate::formula::{At, Tree, X};
use crate::plan;
use std::path::Path;

/// Error of an experiment file.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file cannot be read.
    #[error("{file}: {error}")]
    Unreadable {
        /// Name of the file.
        file: String,
        /// The I/O error.
        error: std::io::Error,
    },
    /// The text is not TOML or has unknown fields.
    #[error("{file}: {error}")]
    Syntax {
        /// Name of the file.
        file: String,
        /// The parser's error, with line and column.
        error: Box<toml::de::Error>,
    },
    /// Parts of the experiment contradict each other.
    #[error("{file}: {why}")]
    Inconsistent {
        /// Name of the file.
        file: String,
        /// The contradiction.
        why: String,
    },
}

impl Experiment {
    /// Reads a file.
    pub fn load(file: &Path) -> Result<Self, LoadError> {
        let name = file.display().to_string();
        let text = std::fs::read_to_string(file)
            .map_err(|error| LoadError::Unreadable { file: name.clone(), error })?;
        Self::parse(&name, &text)
    }

    /// Parses a text. `file` is its name for error messages.
    pub fn parse(file: &str, text: &str) -> Result<Self, LoadError> {
        let experiment: Self = toml::from_str(text)
            .map_err(|error| LoadError::Syntax { file: file.into(), error: Box::new(error) })?;
        experiment.check().map_err(|why| LoadError::Inconsistent { file: file.into(), why })?;
        Ok(experiment)
    }

    fn check(&self) -> Result<(), String> {
        self.x.check()?;
        let names: Vec<&str> = self.series.iter().map(|series| series.name.as_str()).collect();
        check_unique("series", &names)?;
        check_unique("policy", &self.policies.iter().map(|policy| policy.name.as_str()).collect::<Vec<_>>())?;
        self.check_quick(&self.quick, &names)?;
        for published in &self.published {
            self.known(&published.series)?;
            for x in &published.x {
                self.x.known(x)?;
            }
            let printed = [published.values.len(), published.ratios.len()];
            if printed.iter().any(|n| *n != 0 && *n != published.x.len()) || printed == [0, 0] {
                return Err(format!(
                    "published of \"{}\": give one value or ratio for each x",
                    published.series
                ));
            }
        }
        if let Some(series) = self.baseline.as_ref().and_then(|baseline| baseline.series.as_ref()) {
            self.known(series)?;
        }
        for claim in &self.claims {
            let formula = claim.statement.formula();
            self.check_tree(&formula.claimed.tree)?;
            if let Statement::Near { paper: Paper::One(tree), .. } = &claim.statement {
                self.check_tree(tree)?;
            }
            if let At::These(xs) = &formula.claimed.at {
                xs.iter().try_for_each(|x| self.x.known(x))?;
            }
            if formula.claimed.at == At::Each && self.x.measured {
                return Err(format!(
                    "claim `{formula}`: `at each` needs places on the x axis, and a measured axis has none"
                ));
            }
        }
        for quick in [false, true] {
            plan::points(self, quick)?;
        }
        Ok(())
    }

    fn check_quick(&self, quick: &Quick, names: &[&str]) -> Result<(), String> {
        quick.x.iter().try_for_each(|x| self.x.known(x))?;
        match quick.series.iter().find(|series| !names.contains(&series.as_str())) {
            Some(series) => Err(format!("quick: there is no series \"{series}\"")),
            None => Ok(()),
        }
    }

    fn check_tree(&self, tree: &Tree) -> Result<(), String> {
        match tree {
            Tree::Number(_) => Ok(()),
            Tree::Parameter(name) => {
                if self.parameters.contains_key(name) {
                    Ok(())
                } else {
                    Err(format!("a claim uses the parameter `{name}`, which does not exist"))
                }
            }
            Tree::Series(series, x) => {
                self.known(series)?;
                x.as_ref().map_or(Ok(()), |x| self.x.known(x))
            }
            Tree::Negative(of) | Tree::Not(of) => self.check_tree(of),
            Tree::Joined(left, _, right) => {
                self.check_tree(left)?;
                self.check_tree(right)
            }
            Tree::Call(_, arguments) => arguments.iter().try_for_each(|argument| self.check_tree(argument)),
        }
    }

    fn known(&self, series: &str) -> Result<(), String> {
        let known = self
            .series
            .iter()
            .any(|known| self.policies.iter().any(|policy| series_name(&known.name, &policy.name) == series));
        if known { Ok(()) } else { Err(format!("there is no series \"{series}\"")) }
    }
}

impl Axis {
    fn check(&self) -> Result<(), String> {
        let ways = [self.measured, !self.values.is_empty(), !self.points.is_empty()];
        if ways.iter().filter(|way| **way).count() != 1 {
            return Err("the x axis needs exactly one of `values`, `points` and `measured = true`".into());
        }
        if self.set.is_some() == self.values.is_empty() {
            return Err("`set` and `values` of the x axis belong together".into());
        }
        Ok(())
    }

    /// Returns the places on the axis, unless the measurement defines them.
    pub fn places(&self) -> Vec<X> {
        let points = self.points.iter().map(|place| place.x.clone());
        self.values.iter().cloned().chain(points).collect()
    }

    fn known(&self, x: &X) -> Result<(), String> {
        if self.measured || self.places().contains(x) {
            Ok(())
        } else {
            Err(format!("{x} is not on the x axis"))
        }
    }
}

fn check_unique(what: &str, names: &[&str]) -> Result<(), String> {
    if names.is_empty() {
        return Err(format!("at least one {what} is needed"));
    }
    for (index, name) in names.iter().enumerate() {
        if names[..index].contains(name) {
            return Err(format!("two {what} are called \"{name}\""));
        }
    }
    Ok(())
}
