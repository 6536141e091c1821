//! Results as tables for a terminal.

use crate::experiment::{Baseline, Experiment};
use crate::formula::shown;
use crate::rows::Row;
use crate::run::Outcome;
use std::fmt::Write;

/// Renders the table of an experiment, followed by its claims.
pub fn render(experiment: &Experiment, outcome: &Outcome) -> String {
    let mut text = String::new();
    let form = if outcome.quick { ", quick form" } else { "" };
    let Experiment { name, title, paper, figure, .. } = experiment;
    let _ = writeln!(
        text,
        "{name}: {title}\n{paper}, {figure}; virtual time, {}{form}\n",
        outcome.seeds_in_words()
    );
    text += &columns(&cells(experiment, &outcome.rows));
    if !outcome.findings.is_empty() {
        text.push('\n');
    }
    for finding in &outcome.findings {
        let _ = writeln!(text, "{}: {}", finding.word(), finding.says);
        if !finding.compared.is_empty() {
            let _ = writeln!(text, "    {}  ->  {}", finding.check, finding.compared);
        }
        if let Some(reason) = &finding.reason {
            let _ = writeln!(text, "    reason: {reason}");
        }
    }
    text
}

/// Returns the heading of the ratio column.
pub fn ratio_name(baseline: Option<&Baseline>) -> String {
    let Some(baseline) = baseline else { return "ratio".into() };
    let mut name = "over".to_owned();
    for part in [&baseline.series, &baseline.policy].into_iter().flatten() {
        let _ = write!(name, " {part}");
    }
    if let Some(x) = &baseline.x {
        let _ = write!(name, " at {x}");
    }
    name
}

fn cells(experiment: &Experiment, rows: &[Row]) -> Vec<Vec<String>> {
    let x = &experiment.x;
    let mut head = vec!["series".to_owned(), x.name.clone(), experiment.measure.unit().to_owned()];
    let show = |some: Option<f64>| some.map_or_else(|| "-".to_owned(), shown);
    type Get = fn(&Row) -> Option<f64>;
    let columns: [(String, Get); 5] = [
        ("least".into(), |row| Some(row.spread?.least)),
        ("most".into(), |row| Some(row.spread?.most)),
        ("published".into(), |row| row.published),
        (ratio_name(experiment.baseline.as_ref()), |row| row.ratio),
        ("published ratio".into(), |row| row.published_ratio),
    ];
    let optional: Vec<_> =
        columns.into_iter().filter(|(_, get)| rows.iter().any(|row| get(row).is_some())).collect();
    head.extend(optional.iter().map(|(name, _)| name.clone()));
    let mut table = vec![head];
    for row in rows {
        let mut cells = vec![row.series.clone(), row.x.to_string(), shown(row.value)];
        cells.extend(optional.iter().map(|(_, of)| show(of(row))));
        table.push(cells);
    }
    table
}

/// Aligns columns: the first one to the left, the others to the right.
fn columns(table: &[Vec<String>]) -> String {
    let count = table.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        table.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..count).map(width).collect();
    let mut text = String::new();
    for row in table {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let pad = " ".repeat(widths[column] - cell.chars().count());
            line += &if column == 0 { format!("{cell}{pad}") } else { format!("  {pad}{cell}") };
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}
