//! The fault search finds every seeded mutant (a deliberate bug) within a bounded number of seeds.
//!
//! The mutants need a cargo feature that nothing else enables: `cargo test -p weft-twin --features mutants --test
//! search_mutants`.
#![cfg(feature = "mutants")]

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use weft_env::mutants::Mutant;
use weft_twin::search::{Options, Violation, run};

/// Maximum number of seeds until a mutant is found.
const SEEDS_MAX: u64 = 200;
/// Maximum number of seeds for mutants that need several faults in a row. These begin near a seed that found them.
const RARE_SEEDS_MAX: u64 = 1500;

/// Mutants that less than one seed in ten thousand finds. Each was found by a longer search with `--mutant`.
const TOO_RARE: [Mutant; 1] = [Mutant::EarlyMark];

/// Mutants that the search does not find. Clients recover from the effect of `ReadAfterSeal`. `LateReplicaMark` shows only if
/// a client is killed between two exchanges of a write that others have read. `ReusedCopy` needs a client that ends with the
/// metadata server's host. `StaleRepetition` needs a server that is slow, but answers a repetition. Other tests find them:
/// `sealed_reads.rs` beside this one, the client's tests of replicas, and the server's of inline files, of quotas, of name
/// leases, which no simulated cluster has, and of connections.
const FOUND_ELSEWHERE: [Mutant; 7] = [
    Mutant::ReadAfterSeal,
    Mutant::LateReplicaMark,
    Mutant::ReusedCopy,
    Mutant::KeptCharge,
    Mutant::UncheckedQuota,
    Mutant::KeptName,
    Mutant::StaleRepetition,
];

/// Returns the seeds to run, and their options.
fn seeds_and_options(mutant: Mutant) -> (Range<u64>, Options) {
    let off = Options {
        mutant: Some(mutant),
        ibridge: Some(false),
        cache: Some(false),
        moves: Some(false),
        rules: Some(false),
        churn: Some(false),
        parts: Some(false),
        stops: Some(false),
        pairs: Some(false),
        holes: Some(false),
        inline: Some(false),
        replicas: Some(false),
        integrity: Some(false),
        compression: Some(false),
        damage: Some(false),
        disks: Some(false),
        loses: Some(false),
        ..Options::default()
    };
    let ssds = Options { ibridge: Some(true), ..off };
    let churn = Options { churn: Some(true), ..ssds };
    let moves = Options { moves: Some(true), ..off };
    let replicas = Options { replicas: Some(true), replica_use: Some(true), ..off };
    let rare = |first| first..first + RARE_SEEDS_MAX;
    match mutant {
        Mutant::UnforgottenCopy | Mutant::HiddenBytes | Mutant::ForgottenChange => (0..SEEDS_MAX, ssds),
        Mutant::KeptCacheCopy => (0..SEEDS_MAX, Options { cache: Some(true), ..off }),
        Mutant::EarlyReuse => (70..70 + SEEDS_MAX, churn),
        Mutant::MissedMove => (rare(130), churn),
        Mutant::UnsyncedWriteBack => (rare(1500), ssds),
        Mutant::NoSecondTry => (rare(1050), ssds),
        Mutant::ChangeTwice => (rare(400), off),
        Mutant::ShrinkingSize => (rare(150), off),
        Mutant::UnnotedChange | Mutant::ReadableSeal => (0..SEEDS_MAX, moves),
        Mutant::ForgottenCut => (rare(750), moves),
        Mutant::ReusedIds => (rare(600), off),
        Mutant::ForgottenRemovals => (rare(0), off),
        Mutant::TrustedCopy => (0..SEEDS_MAX, Options { stops: Some(true), ..moves }),
        Mutant::ReducedReservation => (rare(14_000_000), Options { parts: Some(true), ..moves }),
        Mutant::KeptReservation => (0..SEEDS_MAX, Options { parts: Some(true), ..off }),
        Mutant::UnloadedRules => (0..SEEDS_MAX, Options { rules: Some(true), ..off }),
        Mutant::StaleChecksum => (0..SEEDS_MAX, Options { integrity: Some(true), ..off }),
        Mutant::TornMapEntry | Mutant::LostOverlay | Mutant::StaleChunk => {
            (0..SEEDS_MAX, Options { compression: Some(true), ..off })
        }
        // Holes free more space.
        Mutant::EarlyChunkReuse => (rare(0), Options { compression: Some(true), holes: Some(true), ..off }),
        Mutant::BytesInTwoPlaces | Mutant::ForgottenHead => {
            (0..SEEDS_MAX, Options { inline: Some(true), ..off })
        }
        Mutant::IgnoredByteLease => (rare(0), Options { inline: Some(true), ..off }),
        Mutant::LossAsHole => (0..SEEDS_MAX, Options { damage: Some(true), ..off }),
        Mutant::ForgottenRecord => (0..SEEDS_MAX, Options { loses: Some(true), ..off }),
        Mutant::UncheckedIdentity => (0..SEEDS_MAX, Options { disks: Some(true), ..off }),
        Mutant::PageCachedTwice
        | Mutant::DroppedDirtyRange
        | Mutant::ReversedLocks
        | Mutant::UnawaitedHold
        | Mutant::SwallowedWriteError
        | Mutant::EarlyRelease => (0..SEEDS_MAX, Options { delegates: true, ..off }),
        Mutant::EarlyReplica
        | Mutant::ForgottenRegion
        | Mutant::ReplicaAfterCut
        | Mutant::LooseReplica
        | Mutant::KeptReplica => (0..SEEDS_MAX, replicas),
        Mutant::ForgottenLineage => (rare(2090), Options { disks: Some(true), ..off }),
        _ => (0..SEEDS_MAX, off),
    }
}

/// Runs the seeds on all processors and returns the first that breaks a promise.
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
fn every_mutant_is_found() {
    weft_client::set_log(|_| ());
    let mut missed = Vec::new();
    let is_searched = |mutant: &Mutant| !TOO_RARE.contains(mutant) && !FOUND_ELSEWHERE.contains(mutant);
    // One of them, by its name.
    let wanted = std::env::var("WEFT_MUTANT").ok();
    let is_wanted = |mutant: &Mutant| wanted.as_ref().is_none_or(|name| mutant.name() == *name);
    for mutant in Mutant::ALL.into_iter().filter(is_searched).filter(is_wanted) {
        let (seeds, options) = seeds_and_options(mutant);
        match first_found(&seeds, options) {
            Some((seed, what)) => {
                eprintln!("{}: seed {seed}: {}: {}", mutant.name(), what.promise, what.what)
            }
            None => missed.push(mutant.name()),
        }
    }
    assert_eq!(missed, Vec::<String>::new(), "not found");
}
