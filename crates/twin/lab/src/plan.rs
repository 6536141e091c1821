//! The points of an experiment: series, policies and places on the x axis, each with a cluster and a workload.

use crate::clusters;
use crate::experiment::{Experiment, series_name};
use crate::formula::{EvalError, Scope, Source, X, number, parse_number};
use toml::{Table, Value};

/// One run.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// Name of the series. Includes the policy unless that is stock.
    pub series: String,
    /// Place on the x axis. `None` if the measurement defines it.
    pub x: Option<X>,
    /// Description of the cluster.
    pub cluster: Table,
    /// Description of the workload.
    pub workload: Table,
}

/// Returns all points of an experiment. The error says what is inconsistent.
pub fn points(experiment: &Experiment, quick: bool) -> Result<Vec<Point>, String> {
    let mut points = Vec::new();
    for series in &experiment.series {
        if quick && !experiment.quick.series.is_empty() && !experiment.quick.series.contains(&series.name) {
            continue;
        }
        for policy in &experiment.policies {
            for (x, place) in places(experiment, quick) {
                let mut draft = Draft::of(experiment)?;
                if quick {
                    draft.set_all(&experiment.quick.set)?;
                }
                draft.set_all(&series.set)?;
                draft.set_all(&policy.set)?;
                draft.set_all(&place)?;
                let (cluster, workload) = draft.finish().map_err(|why| {
                    let x = x.as_ref().map_or_else(String::new, |x| format!(" at {x}"));
                    format!("\"{}\"{x}: {why}", series.name)
                })?;
                points.push(Point { series: series_name(&series.name, &policy.name), x, cluster, workload });
            }
        }
    }
    Ok(points)
}

/// Returns the places on the x axis with the parameters they set.
fn places(experiment: &Experiment, quick: bool) -> Vec<(Option<X>, Table)> {
    let axis = &experiment.x;
    if axis.measured {
        return vec![(None, Table::new())];
    }
    let mut places = Vec::new();
    if let Some(set) = &axis.set {
        for x in &axis.values {
            let value = match x {
                X::Number(number) => numeric(*number),
                X::Name(name) => Value::String(name.clone()),
            };
            places.push((Some(x.clone()), Table::from_iter([(set.clone(), value)])));
        }
    }
    places.extend(axis.points.iter().map(|place| (Some(place.x.clone()), place.set.clone())));
    if quick && !experiment.quick.x.is_empty() {
        places.retain(|(x, _)| x.as_ref().is_some_and(|x| experiment.quick.x.contains(x)));
    }
    places
}

/// The parts of an experiment while parameters are being set.
struct Draft {
    parameters: Table,
    cluster: Table,
    workload: Table,
}

impl Draft {
    fn of(experiment: &Experiment) -> Result<Self, String> {
        Ok(Self {
            parameters: experiment.parameters.clone(),
            cluster: clusters::over(&experiment.cluster)?,
            workload: experiment.workload.clone(),
        })
    }

    fn set_all(&mut self, values: &Table) -> Result<(), String> {
        values.iter().try_for_each(|(name, value)| self.set(name, value))
    }

    fn set(&mut self, name: &str, value: &Value) -> Result<(), String> {
        if let Some(path) = name.strip_prefix("cluster.") {
            return put(&mut self.cluster, path, value).map_err(|why| format!("`{name}`: {why}"));
        }
        if let Some(path) = name.strip_prefix("workload.") {
            return put(&mut self.workload, path, value).map_err(|why| format!("`{name}`: {why}"));
        }
        // A misspelled parameter must not be ignored.
        let parameter =
            self.parameters.get_mut(name).ok_or_else(|| format!("there is no parameter `{name}`"))?;
        *parameter = value.clone();
        Ok(())
    }

    fn finish(self) -> Result<(Table, Table), String> {
        let Self { parameters, mut cluster, mut workload } = self;
        let resolve = |table: &mut Table| -> Result<(), String> {
            table.iter_mut().try_for_each(|(_, value)| resolve(value, &parameters))
        };
        resolve(&mut cluster)?;
        resolve(&mut workload)?;
        Ok((cluster, workload))
    }
}

/// Sets a value at a dotted path. Numeric steps are indices of lists.
fn put(table: &mut Table, path: &str, value: &Value) -> Result<(), String> {
    let (step, rest) = match path.split_once('.') {
        Some((step, rest)) => (step, Some(rest)),
        None => (path, None),
    };
    let Some(rest) = rest else {
        table.insert(step.to_owned(), value.clone());
        return Ok(());
    };
    match table.entry(step).or_insert_with(|| Value::Table(Table::new())) {
        Value::Table(inner) => put(inner, rest, value),
        Value::Array(list) => {
            let (index, rest) = rest.split_once('.').ok_or("the path ends at a list")?;
            let index: usize = index.parse().map_err(|_| format!("`{index}` is not a list index"))?;
            match list.get_mut(index) {
                Some(Value::Table(inner)) => put(inner, rest, value),
                _ => Err(format!("the list has no table at {index}")),
            }
        }
        _ => Err(format!("`{step}` is neither a table nor a list")),
    }
}

fn resolve(value: &mut Value, parameters: &Table) -> Result<(), String> {
    match value {
        Value::String(text) => {
            if let Some(formula) = text.strip_prefix('=') {
                *value = resolved(formula, parameters)?;
            }
            Ok(())
        }
        Value::Array(list) => list.iter_mut().try_for_each(|value| resolve(value, parameters)),
        Value::Table(table) => table.iter_mut().try_for_each(|(_, value)| resolve(value, parameters)),
        _ => Ok(()),
    }
}

/// Evaluates a formula. One that names a single parameter takes its value of any type, and others are numbers.
fn resolved(formula: &str, parameters: &Table) -> Result<Value, String> {
    match parameters.get(formula.trim()) {
        Some(Value::String(text)) if !text.starts_with('=') => Ok(Value::String(text.clone())),
        Some(value @ (Value::Boolean(_) | Value::Array(_) | Value::Table(_))) => Ok(value.clone()),
        _ => {
            let tree = parse_number(formula).map_err(|error| error.to_string())?;
            let scope = Parameters { parameters, depth: 0 };
            Ok(numeric(number(&tree, &scope, None).map_err(|error| format!("`{formula}`: {error}"))?))
        }
    }
}

/// Whole numbers become integers, because counts and bytes are parsed as such.
fn numeric(number: f64) -> Value {
    if number == number.trunc() && number.abs() < 2f64.powi(53) {
        Value::Integer(number as i64)
    } else {
        Value::Float(number)
    }
}

/// Maximum length of a chain of parameters. A longer one is a cycle.
const DEPTH_MAX: u32 = 32;

struct Parameters<'a> {
    parameters: &'a Table,
    depth: u32,
}

impl Scope for Parameters<'_> {
    fn parameter(&self, name: &str) -> Result<f64, EvalError> {
        if self.depth > DEPTH_MAX {
            return Err(EvalError::Invalid(format!("parameter `{name}` is defined by itself")));
        }
        match self.parameters.get(name) {
            Some(Value::Integer(number)) => Ok(*number as f64),
            Some(Value::Float(number)) => Ok(*number),
            Some(Value::String(text)) if text.starts_with('=') => {
                let tree = parse_number(&text[1..]).map_err(|error| EvalError::Invalid(error.to_string()))?;
                let deeper = Parameters { parameters: self.parameters, depth: self.depth + 1 };
                number(&tree, &deeper, None)
            }
            Some(_) => Err(EvalError::Invalid(format!("parameter `{name}` is not a number"))),
            None => Err(EvalError::Unknown(format!("parameter `{name}`"))),
        }
    }

    fn series(&self, name: &str, _: &X, _: Source) -> Result<f64, EvalError> {
        Err(EvalError::Invalid(format!("the series \"{name}\" is not known before the run")))
    }

    fn xs(&self) -> Vec<X> {
        Vec::new()
    }
}

/// Returns a numeric parameter of an experiment, for claims.
pub fn parameter(experiment: &Experiment, quick: bool, name: &str) -> Result<f64, EvalError> {
    let mut parameters = experiment.parameters.clone();
    if quick {
        parameters.extend(
            experiment
                .quick
                .set
                .iter()
                .filter(|(name, _)| !name.contains('.'))
                .map(|(n, v)| (n.clone(), v.clone())),
        );
    }
    Parameters { parameters: &parameters, depth: 0 }.parameter(name)
}
