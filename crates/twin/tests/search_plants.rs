//! The search finds every bug that is planted, each within a bounded number of seeds. Needs the feature `plants`, which
//! nothing else turns on: `cargo test -p weft-twin --features plants --test search_plants`.
#![cfg(feature = "plants")]

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use weft_env::plants::Plant;
use weft_twin::search::{Options, Violation, run};

/// The most seeds that a bug may take to be found.
const SEEDS_MAX: u64 = 200;
/// The same for what takes several faults in a row; these begin where they were found.
const RARE_SEEDS_MAX: u64 = 1500;

/// Bugs that less than one seed in ten thousand brings to light. Each was found by a longer search with `--plant`.
const TOO_RARE: [Plant; 1] = [Plant::EarlyMark];

/// Which seeds are looked at, and with what they run.
fn where_to_look(plant: Plant) -> (Range<u64>, Options) {
    let off = Options {
        plant: Some(plant),
        ibridge: Some(false),
        moves: Some(false),
        rules: Some(false),
        churn: Some(false),
        parts: Some(false),
        stops: Some(false),
        pairs: Some(false),
        holes: Some(false),
        integrity: Some(false),
        damage: Some(false),
        disks: Some(false),
        ..Options::default()
    };
    let ssds = Options { ibridge: Some(true), ..off };
    let churn = Options { churn: Some(true), ..ssds };
    let moves = Options { moves: Some(true), ..off };
    let rare = |first| first..first + RARE_SEEDS_MAX;
    match plant {
        Plant::UnforgottenCopy | Plant::HiddenBytes => (0..SEEDS_MAX, ssds),
        Plant::EarlyReuse => (70..70 + SEEDS_MAX, churn),
        Plant::MissedMove => (rare(130), churn),
        Plant::UnsyncedWriteBack => (rare(210), ssds),
        Plant::NoSecondTry => (rare(1050), ssds),
        Plant::ChangeTwice => (rare(400), off),
        Plant::ShrinkingSize => (rare(150), off),
        Plant::UnnotedChange | Plant::ReadableSeal => (0..SEEDS_MAX, moves),
        Plant::ForgottenCut => (rare(4190), moves),
        Plant::TrustedCopy => (0..SEEDS_MAX, Options { stops: Some(true), ..moves }),
        Plant::LessRoom => (rare(14_000_000), Options { parts: Some(true), ..moves }),
        Plant::KeptRoom => (0..SEEDS_MAX, Options { parts: Some(true), ..off }),
        Plant::UnloadedRules => (0..SEEDS_MAX, Options { rules: Some(true), ..off }),
        Plant::StaleChecksum => (0..SEEDS_MAX, Options { integrity: Some(true), ..off }),
        Plant::LossAsHole => (0..SEEDS_MAX, Options { damage: Some(true), ..off }),
        Plant::UncheckedIdentity => (0..SEEDS_MAX, Options { disks: Some(true), ..off }),
        Plant::ForgottenLineage => (rare(360), Options { disks: Some(true), ..off }),
        _ => (0..SEEDS_MAX, off),
    }
}

/// The first of the seeds that finds something, on all processors.
fn first_found(seeds: &Range<u64>, options: Options) -> Option<(u64, Violation)> {
    let (next, found) = (AtomicU64::new(seeds.start), Mutex::new(None));
    let is_found = || found.lock().expect("nobody panics with it").is_some();
    let search = || {
        while !is_found() {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return;
            }
            if let Some(what) = run(seed, options).violation {
                let mut found = found.lock().expect("nobody panics with it");
                if found.as_ref().is_none_or(|(first, _)| seed < *first) {
                    *found = Some((seed, what));
                }
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(search))));
    found.into_inner().expect("nobody panicked with it")
}

#[test]
fn every_planted_bug_is_found() {
    weft_client::set_log(|_| ());
    let mut missed = Vec::new();
    for plant in Plant::ALL.into_iter().filter(|plant| !TOO_RARE.contains(plant)) {
        let (seeds, options) = where_to_look(plant);
        match first_found(&seeds, options) {
            Some((seed, what)) => eprintln!("{}: seed {seed}: {}: {}", plant.name(), what.promise, what.what),
            None => missed.push(plant.name()),
        }
    }
    assert_eq!(missed, Vec::<String>::new(), "not found");
}
