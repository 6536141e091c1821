//! The section of one experiment.

use super::escape::Escaped;
use super::page::Entry;
use super::plot::{self, Plot};
use crate::claim::{Finding, Verdict};
use crate::experiment::Experiment;
use crate::formula::shown;
use crate::rows::Row;
use crate::run::Outcome;
use crate::table::ratio_name;
use std::fmt::Write;

pub(super) fn write(html: &mut String, entry: &Entry) {
    let Experiment { name, title, paper, figure, shows, notes, .. } = entry.experiment;
    let _ = write!(
        html,
        "<section id=\"{0}\">\n<h2>{1}</h2>\n<p class=\"where\">{0}: {2}, {3}</p>\n<p>{4}</p>\n",
        Escaped(name),
        Escaped(title),
        Escaped(paper),
        Escaped(figure),
        Escaped(shows)
    );
    match &entry.outcome {
        Some(outcome) => {
            result(html, entry.experiment, outcome);
        }
        None => {
            let _ = writeln!(html, "<p>Not run yet: <code>weft lab run {}</code></p>", Escaped(name));
        }
    }
    if !notes.is_empty() {
        html.push_str("<h3>Notes</h3>\n");
        for note in notes {
            let _ = writeln!(html, "<p>{}</p>", Escaped(note));
        }
    }
    html.push_str("</section>\n");
}

fn result(html: &mut String, experiment: &Experiment, outcome: &Outcome) {
    if let Some(plot) = plot::plot(experiment, &outcome.rows) {
        figure(html, &experiment.title, &plot);
    }
    table(html, experiment, &outcome.rows);
    claims(html, &outcome.findings);
    let quick = if outcome.quick { " --quick" } else { "" };
    let command = format!("weft lab run {}{quick} --seed {}", outcome.experiment, outcome.seed);
    let _ = writeln!(html, "<h3>Run</h3>\n<p><code>{}</code></p>", Escaped(&command));
    runs(html, outcome);
}

fn figure(html: &mut String, title: &str, plot: &Plot) {
    let _ = write!(
        html,
        "<figure>\n<div class=\"wide\" tabindex=\"0\" role=\"img\" aria-label=\"{}\">{}</div>\n<figcaption>\n\
         <ul class=\"legend\">\n",
        Escaped(&format!("Plot: {title}. The table below has its values.")),
        plot.svg
    );
    for (name, color) in &plot.legend {
        let _ = writeln!(
            html,
            "<li><span class=\"swatch\" style=\"background: {color}\" aria-hidden=\"true\"></span>{}</li>",
            Escaped(name)
        );
    }
    html.push_str("</ul>\n");
    if plot.has_published {
        html.push_str(
            "<p class=\"soft\">Hollow circles: as published. All else: the twin, virtual time.</p>\n",
        );
    }
    html.push_str("</figcaption>\n</figure>\n");
}

/// Begins a table that scrolls within its own box if it is wider than the page.
fn begin_table(html: &mut String, about: &str) {
    let _ = write!(
        html,
        "<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"{}\"><table>\n<thead><tr>",
        Escaped(about)
    );
}

fn table(html: &mut String, experiment: &Experiment, rows: &[Row]) {
    type Get = fn(&Row) -> Option<f64>;
    let ratio = ratio_name(experiment.baseline.as_ref());
    let columns: [(&str, Get); 7] = [
        (experiment.measure.unit(), |row| Some(row.value)),
        ("least", |row| Some(row.spread?.least)),
        ("most", |row| Some(row.spread?.most)),
        ("published", |row| row.published),
        ("baseline", |row| row.baseline),
        (&ratio, |row| row.ratio),
        ("published ratio", |row| row.published_ratio),
    ];
    let columns: Vec<_> =
        columns.into_iter().filter(|(_, get)| rows.iter().any(|row| get(row).is_some())).collect();
    begin_table(html, &format!("Values: {}", experiment.title));
    html.push_str("<th scope=\"col\">series</th>");
    let unit = experiment.x.unit.as_ref().map_or_else(String::new, |unit| format!(", {unit}"));
    let _ = write!(
        html,
        "<th scope=\"col\" class=\"number\">{}{}</th>",
        Escaped(&experiment.x.name),
        Escaped(&unit)
    );
    for (name, _) in &columns {
        let _ = write!(html, "<th scope=\"col\" class=\"number\">{}</th>", Escaped(name));
    }
    html.push_str("</tr></thead>\n<tbody>\n");
    for row in rows {
        let x = row.x.to_string();
        let _ = write!(
            html,
            "<tr><th scope=\"row\">{}</th><td class=\"number\">{}</td>",
            Escaped(&row.series),
            Escaped(&x)
        );
        for (_, get) in &columns {
            let cell = get(row).map_or_else(String::new, shown);
            let _ = write!(html, "<td class=\"number\">{cell}</td>");
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</tbody>\n</table></div>\n");
}

fn claims(html: &mut String, findings: &[Finding]) {
    if findings.is_empty() {
        return;
    }
    html.push_str("<h3>Claims</h3>\n<ul class=\"claims\">\n");
    for finding in findings {
        let class = match finding.verdict {
            Verdict::Met => "met",
            Verdict::Failed => "failed",
            Verdict::Unmet => "unmet",
            Verdict::Unchecked => "unchecked",
        };
        let _ = write!(
            html,
            "<li class=\"{class}\"><strong>{}</strong>: {}<br><code>{}</code> <span class=\"soft\">{}</span>",
            finding.word(),
            Escaped(&finding.says),
            Escaped(&finding.check),
            Escaped(&finding.compared)
        );
        if let Some(reason) = &finding.reason {
            let _ = write!(html, "<br>Reason: {}", Escaped(reason));
        }
        if let Some(source) = &finding.source {
            let _ = write!(html, "<br><span class=\"soft\">{}</span>", Escaped(source));
        }
        html.push_str("</li>\n");
    }
    html.push_str("</ul>\n");
}

fn runs(html: &mut String, outcome: &Outcome) {
    html.push_str("<details><summary>Runs</summary>\n");
    begin_table(html, "Runs");
    for head in ["run", "virtual s", "wall s", "simulated requests", "event hash"] {
        let _ = write!(html, "<th scope=\"col\">{head}</th>");
    }
    html.push_str("</tr></thead>\n<tbody>\n");
    for run in &outcome.runs {
        let _ = writeln!(
            html,
            "<tr><th scope=\"row\">{}</th><td class=\"number\">{}</td><td class=\"number\">{}</td>\
             <td class=\"number\">{}</td><td><code>{}</code></td></tr>",
            Escaped(&run.what),
            shown(run.virtual_s),
            shown(run.wall_s),
            run.requests,
            Escaped(&run.event_hash)
        );
    }
    html.push_str("</tbody>\n</table></div>\n</details>\n");
}
