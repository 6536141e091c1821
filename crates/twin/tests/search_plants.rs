//! The search finds every bug that is planted, each within a bounded number of seeds. Needs the feature `plants`, which
//! nothing else turns on: `cargo test -p weft-twin --features plants --test search_plants`.
#![cfg(feature = "plants")]

use weft_env::plants::Plant;
use weft_twin::search::{Options, run};

/// The most seeds that a bug may take to be found.
const SEEDS_MAX: u64 = 200;
/// The same for what takes several faults in a row; these begin where they were found.
const RARE_SEEDS_MAX: u64 = 1500;

/// Where to begin, how many seeds there may be, whether there are SSDs beside the disks, and whether files are moved. Rules of
/// directories are changed for the bug that is about them.
fn where_to_look(plant: Plant) -> (u64, u64, bool, bool) {
    match plant {
        Plant::UnforgottenCopy | Plant::HiddenBytes => (0, SEEDS_MAX, true, false),
        Plant::UnsyncedWriteBack => (83, RARE_SEEDS_MAX, true, false),
        Plant::NoSecondTry => (810, RARE_SEEDS_MAX, true, false),
        Plant::UnnotedChange | Plant::ReadableSeal => (0, SEEDS_MAX, false, true),
        Plant::ForgottenCut => (3500, RARE_SEEDS_MAX, false, true),
        _ => (0, SEEDS_MAX, false, false),
    }
}

#[test]
fn every_planted_bug_is_found() {
    weft_client::set_log(|_| ());
    let mut missed = Vec::new();
    for plant in Plant::ALL {
        let (first, count, ibridge, moves) = where_to_look(plant);
        let options = Options {
            plant: Some(plant),
            ibridge: Some(ibridge),
            moves: Some(moves),
            rules: Some(plant == Plant::UnloadedRules),
            ..Options::default()
        };
        let found =
            (first..first + count).find_map(|seed| run(seed, options).violation.map(|what| (seed, what)));
        match found {
            Some((seed, what)) => eprintln!("{}: seed {seed}: {}: {}", plant.name(), what.promise, what.what),
            None => missed.push(plant.name()),
        }
    }
    assert_eq!(missed, Vec::<String>::new(), "not found");
}
