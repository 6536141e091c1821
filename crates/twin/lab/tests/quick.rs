//! Runs the quick form of every experiment. No claim may fail without a reason.

use weft_lab::experiment::{self, Experiment};
use weft_lab::run::{Options, Outcome, run};
use weft_lab::twin::Twin;

fn quick(experiment: &Experiment, seed: u64) -> Outcome {
    let options = Options { quick: true, seed, jobs: 4 };
    run(experiment, &Twin, &options, &mut |_, _, _| ()).unwrap_or_else(|error| panic!("{error}"))
}

fn of_paper(paper: &str) {
    let mut count = 0;
    for experiment in experiment::all().iter().filter(|experiment| experiment.paper == paper) {
        let began = std::time::Instant::now();
        let outcome = quick(experiment, 1);
        assert!(!outcome.rows.is_empty(), "{}", experiment.name);
        let failed: Vec<_> = outcome.failed().collect();
        assert!(failed.is_empty(), "{}: {failed:#?}", experiment.name);
        println!("{}: {:.1} s", experiment.name, began.elapsed().as_secs_f64());
        count += 1;
    }
    assert!(count > 0, "no experiment of {paper}");
}

#[test]
fn no_claim_of_ibridge_fails_without_a_reason() {
    of_paper("iBridge");
}

#[test]
fn no_claim_of_ceda_fails_without_a_reason() {
    of_paper("CEDA");
}

#[test]
fn no_claim_of_the_thesis_fails_without_a_reason() {
    of_paper("Thesis");
}

#[test]
fn no_claim_of_psa_fails_without_a_reason() {
    of_paper("PSA");
}

#[test]
fn no_claim_of_iodc_fails_without_a_reason() {
    of_paper("IODC");
}

#[test]
fn every_paper_has_a_test() {
    let papers = ["iBridge", "CEDA", "Thesis", "PSA", "IODC"];
    for experiment in experiment::all() {
        assert!(papers.contains(&experiment.paper.as_str()), "{} has no test", experiment.name);
    }
}

/// Equal seeds give equal events, and different seeds different ones.
#[test]
fn equal_seeds_give_equal_events() {
    let experiment = experiment::by_name("thesis-tab4.7").unwrap();
    let hashes =
        |seed| quick(experiment, seed).runs.into_iter().map(|run| run.event_hash).collect::<Vec<_>>();
    let first = hashes(5);
    assert_eq!(first, hashes(5));
    assert!(hashes(6).iter().zip(&first).all(|(a, b)| a != b));
}
