//! The whole page.

use super::escape::Escaped;
use super::section;
use crate::claim::{EFFECT_FACTOR, Verdict};
use crate::experiment::Experiment;
use crate::run::Outcome;
use std::fmt::Write;

/// An experiment and its result, if there is one.
pub struct Entry<'a> {
    /// The experiment.
    pub experiment: &'a Experiment,
    /// The result.
    pub outcome: Option<Outcome>,
}

const STYLE: &str = include_str!("page.css");

/// Renders the page. `fidelity` is the text of the last fidelity comparison.
pub fn page(entries: &[Entry], fidelity: Option<&str>) -> String {
    let mut html = String::new();
    html += "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n";
    html += "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n";
    let _ = write!(html, "<title>Weft laboratory</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n");
    html += "<header>\n<h1>Weft laboratory</h1>\n";
    html += "<p><strong class=\"virtual\">virtual time</strong> All values were predicted by the twin: the real \
             client and server code on modeled disks and networks, under a simulated clock. Papers measured on \
             machines; compare ratios and shapes, not absolute values.</p>\n";
    let _ = write!(
        html,
        "<p>A figure that a paper prints is met if the effect is within a factor of {EFFECT_FACTOR} of the paper's, above \
         or below: 20 to 45 % for a gain of 30 %. The band of each claim is shown.</p>\n</header>\n<main>\n"
    );
    summary(&mut html, entries);
    if let Some(text) = fidelity {
        html += "<section id=\"fidelity\">\n<h2>Fidelity</h2>\n<p>The twin's prediction beside runs in real time on \
                 emulated targets of the same profiles.</p>\n";
        let _ = writeln!(html, "<pre tabindex=\"0\">{}</pre>\n</section>", Escaped(text));
    }
    for entry in entries {
        section::write(&mut html, entry);
    }
    html += "</main>\n</body>\n</html>\n";
    html
}

fn summary(html: &mut String, entries: &[Entry]) {
    html.push_str("<section id=\"summary\">\n<h2>Summary</h2>\n");
    let missing = entries.iter().filter(|entry| entry.outcome.is_none()).count();
    if missing > 0 {
        let _ = writeln!(
            html,
            "<p>{missing} of {} experiments have not been run. <code>weft lab report --fill</code> runs them in the \
             quick form; <code>weft lab run all</code> takes hours.</p>",
            entries.len()
        );
    }
    html.push_str("<table class=\"cards\">\n<thead><tr>");
    for head in ["Experiment", "Paper", "What", "Claims met", "Form", "Seed"] {
        let _ = write!(html, "<th scope=\"col\">{head}</th>");
    }
    html.push_str("</tr></thead>\n<tbody>\n");
    for Entry { experiment, outcome } in entries {
        let Experiment { name, title, paper, figure, .. } = experiment;
        let _ = write!(
            html,
            "<tr><th scope=\"row\"><a href=\"#{0}\">{0}</a></th><td>{1}, {2}</td><td>{3}</td>",
            Escaped(name),
            Escaped(paper),
            Escaped(figure),
            Escaped(title)
        );
        match outcome {
            Some(outcome) => {
                let form = if outcome.quick { "quick" } else { "full" };
                let _ = write!(
                    html,
                    "<td>{}</td><td>{form}</td><td>{}</td>",
                    tally(outcome),
                    outcome.seeds_in_words()
                );
            }
            None => html.push_str("<td colspan=\"3\">not run</td>"),
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</tbody>\n</table>\n</section>\n");
}

fn tally(outcome: &Outcome) -> String {
    let count = |verdict| outcome.findings.iter().filter(|finding| finding.verdict == verdict).count();
    let checked = outcome.findings.len() - count(Verdict::Unchecked);
    let mut text = format!("{} of {checked}", count(Verdict::Met));
    for (verdict, labels) in [
        (Verdict::Unmet, "not, with reasons"),
        (Verdict::Failed, "failed"),
        (Verdict::Unchecked, "unchecked"),
    ] {
        if count(verdict) > 0 {
            let class = if verdict == Verdict::Failed { " class=\"failed\"" } else { "" };
            let _ = write!(text, "; <span{class}>{} {labels}</span>", count(verdict));
        }
    }
    text
}
