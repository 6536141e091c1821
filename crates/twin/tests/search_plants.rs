//! The search finds every bug that is planted, each within a bounded number of seeds. Needs the feature `plants`, which
//! nothing else turns on: `cargo test -p weft-twin --features plants --test search_plants`.
#![cfg(feature = "plants")]

use weft_env::plants::Plant;
use weft_twin::search::{Options, run};

/// The most seeds that a bug may take to be found.
const SEEDS_MAX: u64 = 200;

#[test]
fn every_planted_bug_is_found() {
    weft_client::set_log(|_| ());
    let mut missed = Vec::new();
    for plant in Plant::ALL {
        let options = Options { plant: Some(plant), ..Options::default() };
        let found = (0..SEEDS_MAX).find_map(|seed| run(seed, options).violation.map(|what| (seed, what)));
        match found {
            Some((seed, what)) => eprintln!("{}: seed {seed}: {}: {}", plant.name(), what.promise, what.what),
            None => missed.push(plant.name()),
        }
    }
    assert_eq!(missed, Vec::<String>::new(), "not found in {SEEDS_MAX} seeds");
}
