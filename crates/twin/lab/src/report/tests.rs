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
