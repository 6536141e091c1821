//! Fault search of jobs with I/O delegates: the first seeds, and seeds that once broke a promise.
//!
//! `WEFT_JOB_SEEDS=0..1000` runs other seeds.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use weft_twin::search::{Coverage, Options, run};

/// Seeds of a run of all tests.
const SEEDS: Range<u64> = 0..40;

fn options() -> Options {
    Options { delegates: true, ..Options::default() }
}

fn seeds() -> Range<u64> {
    let Ok(text) = std::env::var("WEFT_JOB_SEEDS") else { return SEEDS };
    let (start, end) = text.split_once("..").expect("a range of seeds, such as 0..1000");
    start.parse().expect("a seed")..end.parse().expect("a seed")
}

#[test]
fn jobs_keep_every_promise() {
    weft_client::set_log(|_| ());
    let (seeds, sum) = (seeds(), Mutex::new((Coverage::default(), Vec::new())));
    let next = AtomicU64::new(seeds.start);
    let verbose = seeds.end == seeds.start + 1;
    let search = || loop {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        if seed >= seeds.end {
            return;
        }
        let report = run(seed, Options { verbose, ..options() });
        report.lines.iter().for_each(|line| eprintln!("{line}"));
        let mut sum = sum.lock().expect("no thread panics with it");
        sum.0.merge(&report.coverage);
        if let Some(what) = report.violation {
            eprintln!("seed {seed}: {}: {}", what.promise, what.what);
            sum.1.push(seed);
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(search))));
    let (coverage, broken) = sum.into_inner().expect("no thread panicked with it");
    coverage.iter().for_each(|(what, count)| eprintln!("{count:>10}  {what}"));
    assert_eq!(broken, Vec::<u64>::new(), "seeds with broken promises of {seeds:?}");
    assert!(verbose || coverage.count("check: the underlying file") > 0, "nothing was checked");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    weft_client::set_log(|_| ());
    for seed in 0..3 {
        assert_eq!(run(seed, options()).event_hash, run(seed, options()).event_hash, "seed {seed}");
    }
}

#[test]
fn seeds_that_once_broke_a_promise_keep_it() {
    weft_client::set_log(|_| ());
    for (seed, bug) in [
        (7, "a dead delegate was reported after 5 s"),
        (74, "a request that met two dead delegates waited for each"),
        (139, "a read took bytes for a hole that were written while it waited for a hold"),
    ] {
        assert_eq!(run(seed, options()).violation, None, "seed {seed}: {bug}");
    }
}
