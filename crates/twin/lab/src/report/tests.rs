use super::*;
use crate::experiment;
use crate::run::Outcome;
use crate::testing::{Flat, outcome};

fn page_of(outcomes: impl Fn(&str) -> Option<Outcome>) -> String {
    let entries: Vec<Entry> = experiment::all()
        .iter()
        .map(|experiment| Entry { experiment, outcome: outcomes(&experiment.name) })
        .collect();
    page(&entries, Some("median <5 %"))
}

#[test]
fn the_page_has_every_experiment_and_no_external_resource() {
    let page = page_of(|name| Some(outcome(experiment::by_name(name).unwrap(), &Flat, true)));
    for experiment in experiment::all() {
        assert!(page.contains(&format!("<section id=\"{}\">", experiment.name)), "{}", experiment.name);
        assert!(page.contains(&format!("weft lab run {} --quick --seed 7", experiment.name)));
    }
    assert_eq!(page.matches("<svg").count(), experiment::all().len());
    assert!(page.contains("virtual time"));
    assert!(page.contains("median &lt;5 %"));
    for outside in ["src=", "<link", "@import", "url("] {
        assert!(!page.contains(outside), "the page has an external resource: {outside}");
    }
}

#[test]
fn missing_results_show_the_command() {
    let page = page_of(|_| None);
    assert!(page.contains("Not run yet: <code>weft lab run ceda-fig3</code>"));
    assert_eq!(page.matches("<svg").count(), 0);
}

#[test]
fn names_are_escaped() {
    let mut experiment = experiment::by_name("ceda-fig3").unwrap().clone();
    experiment.title = "<b>&\"".into();
    let page = page(&[Entry { experiment: &experiment, outcome: None }], None);
    assert!(page.contains("&lt;b&gt;&amp;&quot;"));
    assert!(!page.contains("<b>"));
}

/// Returns the texts between each `from` and the next `to`.
fn between<'a>(text: &'a str, from: &str, to: &str) -> Vec<&'a str> {
    text.split(from).skip(1).map(|part| part.split(to).next().expect("a part")).collect()
}

/// A legend inside a plot would cover bars. It is a list after the plot, with the name of each series.
#[test]
fn legends_are_outside_of_plots() {
    for experiment in experiment::all() {
        for quick in [false, true] {
            let outcome = outcome(experiment, &Flat, quick);
            let mut names: Vec<String> = Vec::new();
            for row in &outcome.rows {
                if !names.contains(&row.series) {
                    names.push(row.series.clone());
                }
            }
            let page = page(&[Entry { experiment, outcome: Some(outcome) }], None);
            let [svg] = between(&page, "<svg", "</svg>")[..] else { panic!("{}: plots", experiment.name) };
            let labels: Vec<&str> = between(svg, "<text", "</text>");
            assert!(!labels.is_empty(), "{}: no axis", experiment.name);
            let [after] = between(&page, "</svg></div>\n<figcaption>", "</figcaption>")[..] else {
                panic!("{}: one caption, behind the box of the plot", experiment.name)
            };
            assert_eq!(after.matches("class=\"swatch\"").count(), names.len(), "{}", experiment.name);
            for name in &names {
                let name = format!("</span>{}</li>", super::escape::Escaped(name));
                assert!(after.contains(&name), "{}: {name}", experiment.name);
                assert!(!svg.contains(&name), "{}: {name}", experiment.name);
            }
            // Texts of the plot are axis labels, left of the bars or below them.
            let bottom = bottom_of_marks(svg);
            for label in labels {
                let (x, y) = (attribute(label, "x"), attribute(label, "y"));
                assert!(
                    x < 88.0 || y >= bottom,
                    "{}: a text at {x}, {y} covers the plot: {label}",
                    experiment.name
                );
            }
        }
    }
}

fn attribute(element: &str, name: &str) -> f64 {
    let value = between(element, &format!(" {name}=\""), "\"");
    value.first().and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("{name} of {element}"))
}

/// Returns the lower edge of the lowest bar or point.
fn bottom_of_marks(svg: &str) -> f64 {
    let bars =
        between(svg, "<rect", "/>").into_iter().map(|bar| attribute(bar, "y") + attribute(bar, "height"));
    let points = between(svg, "<circle", "/>").into_iter().map(|point| attribute(point, "cy"));
    bars.chain(points).fold(0.0, f64::max)
}

/// Wide contents scroll in their own boxes, so the page of a phone does not.
#[test]
fn everything_wide_is_in_a_box_that_scrolls_or_wraps() {
    let page = page_of(|name| Some(outcome(experiment::by_name(name).unwrap(), &Flat, true)));
    assert!(page.contains("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">"));
    let before = |what: &str| -> Vec<String> {
        let parts: Vec<&str> = page.split(what).collect();
        parts[..parts.len() - 1].iter().map(|part| part.rsplit('<').next().unwrap_or("").to_owned()).collect()
    };
    for what in ["<table>", "<svg"] {
        let boxes = before(what);
        assert!(boxes.len() >= experiment::all().len(), "{what}");
        for around in boxes {
            assert!(around.starts_with("div class=\"wide\" tabindex=\"0\""), "{what} in {around}");
        }
    }
    let style = between(&page, "<style>", "</style>")[0];
    for rule in [
        ".wide { overflow-x: auto; max-width: 100%; }",
        "pre { background: var(--wash); padding: .6rem .8rem; overflow-x: auto;",
        "code { overflow-wrap: anywhere; }",
        ".cards, .cards tbody, .cards tr, .cards th, .cards td { display: block; }",
        "color-scheme: light dark",
        "@media (prefers-color-scheme: dark)",
    ] {
        assert!(style.contains(rule), "{rule}");
    }
    // Nothing has a fixed width in pixels except the drawing's own coordinates.
    assert!(!style.contains("min-width: 8") && !page.contains("<table width"));
    // The colors of a plot follow the page's.
    for svg in between(&page, "<svg", "</svg>") {
        assert!(!svg.contains("#FFFFFF") && !svg.contains("#000000"), "{svg}");
    }
}

#[test]
fn a_result_beside_the_paper_is_told_with_both_figures() {
    let experiment = experiment::by_name("ibridge-fig2a").unwrap();
    let mut found = outcome(experiment, &Flat, false);
    for row in &mut found.rows {
        row.value = if row.series == "64 KB" { 566.0 } else { 100.0 };
    }
    let page = page(&[Entry { experiment, outcome: Some(found.judged_again(experiment)) }], None);
    assert!(
        page.contains("above the paper") && page.contains("5.66, the paper 2.06 (band 1.71 to 2.59)"),
        "{page}"
    );
}
