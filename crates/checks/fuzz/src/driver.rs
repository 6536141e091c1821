//! Runs a target for a bounded time over mutations of known inputs.
//!
//! | variable | meaning |
//! | --- | --- |
//! | `WEFT_FUZZ_SECONDS` | run time of each target, default 2; fractions are allowed |
//! | `WEFT_FUZZ_SEED` | the seed printed by a failed run, or `fresh` for a random seed; fixed by default |
//! | `WEFT_FUZZ_DIR` | directory of crash inputs; by default the system's temporary directory |

use crate::mutate::mutate;
use crate::rng::Rng;
use crate::{Outcome, Target};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::time::{Duration, Instant};

/// Maximum number of inputs kept for further mutation.
const POOL_MAX: usize = 512;
/// Default seed.
const SEED: u64 = 0x5745_4654;

/// Options of a run.
#[derive(Clone, PartialEq, Debug)]
pub struct Options {
    /// Run time.
    pub time: Duration,
    /// Seed of the random number generator.
    pub seed: u64,
    /// Directory of crash inputs.
    pub crash_dir: PathBuf,
}

/// Statistics of a run.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Report {
    /// Number of inputs tried.
    pub runs: u64,
    /// Number of inputs that were decoded.
    pub accepted: u64,
    /// Number of inputs that were rejected.
    pub refused: u64,
}

/// An input on which a target panicked.
#[derive(Clone, PartialEq, Debug)]
pub struct Crash {
    /// The input, shortened.
    pub input: Vec<u8>,
    /// File that contains the input.
    pub file: PathBuf,
    /// Message of the panic.
    pub message: String,
}

impl Options {
    /// Reads the options from the environment.
    ///
    /// # Panics
    /// Panics if a variable is invalid.
    pub fn from_env() -> Self {
        let variable = |name| std::env::var(name).ok().filter(|text| !text.is_empty());
        let seconds = variable("WEFT_FUZZ_SECONDS").map_or(2.0, |text| {
            text.parse().unwrap_or_else(|_| panic!("WEFT_FUZZ_SECONDS={text}: write a number of seconds"))
        });
        let seed = match variable("WEFT_FUZZ_SEED").as_deref() {
            None => SEED,
            Some("fresh") => fresh_seed(),
            Some(text) => u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap_or_else(|_| {
                panic!("WEFT_FUZZ_SEED={text}: write the seed that was printed, or fresh")
            }),
        };
        let crash_dir = variable("WEFT_FUZZ_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
        Self { time: Duration::from_secs_f64(seconds), seed, crash_dir }
    }
}

fn fresh_seed() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::hash::RandomState::new().build_hasher().finish()
}

/// Runs `target` until the time is over or an input crashes it.
///
/// # Errors
/// Returns the crash.
pub fn run(target: &Target, options: &Options) -> Result<Report, Box<Crash>> {
    silence_target_panics();
    let mut rng = Rng::new(options.seed);
    let mut report = Report::default();
    let mut pool = (target.seeds)();
    let seeds = pool.len();
    assert!(seeds > 0, "{}: a target needs at least one initial input", target.name);
    let mut attempt = |input: &[u8]| -> Result<Outcome, Box<Crash>> {
        let outcome = try_input(target, input).map_err(|message| crash(target, options, input, message))?;
        report.runs += 1;
        match outcome {
            Outcome::Accepted => report.accepted += 1,
            Outcome::Refused => report.refused += 1,
        }
        Ok(outcome)
    };
    attempt(&[])?;
    for input in &pool {
        attempt(input)?;
    }
    let end = Instant::now() + options.time;
    // Reading the clock once per 16 inputs costs little and still ends the run in time for slow targets.
    while Instant::now() < end {
        for _ in 0..16 {
            // Long inputs are slow, so mostly start from a short one.
            let (one, two) = (rng.below(pool.len()), rng.below(pool.len()));
            let from = if pool[one].len() > 4096 && !rng.one_in(8) { two } else { one };
            let other = rng.below(pool.len());
            let input = mutate(&mut rng, target.shape, &pool[from], &pool[other]);
            if attempt(&input)? == Outcome::Accepted {
                // A decodable input leads to other decodable inputs. The initial inputs are never replaced.
                match pool.len() < POOL_MAX {
                    true => pool.push(input),
                    false if seeds < POOL_MAX => {
                        let gone = seeds + rng.below(POOL_MAX - seeds);
                        pool[gone] = input;
                    }
                    false => {}
                }
            }
        }
    }
    Ok(report)
}

/// Runs `target` with [`Options::from_env`] as a test, and prints the statistics or how to reproduce a crash.
///
/// # Panics
/// Panics on a crash, and if no input was accepted or none was rejected: such a run tested nothing.
pub fn run_as_test(target: &Target) {
    let options = Options::from_env();
    println!("{}: WEFT_FUZZ_SEED={:x} for {:?}", target.name, options.seed, options.time);
    match run(target, &options) {
        Ok(report) => {
            println!("{}: {report:?}", target.name);
            assert!(report.accepted > 0, "{}: no input was accepted", target.name);
            assert!(report.refused > 0, "{}: no input was refused", target.name);
        }
        Err(crash) => panic!(
            "{}: {}\n  input: {} ({} bytes)\n  again: WEFT_FUZZ_SEED={:x} cargo test -p weft-fuzz --test targets {}\n  \
             alone: WEFT_FUZZ_INPUT={} cargo test -p weft-fuzz --test targets {}",
            target.name,
            crash.message,
            crash.file.display(),
            crash.input.len(),
            options.seed,
            target.name,
            crash.file.display(),
            target.name,
        ),
    }
}

thread_local! {
    static IN_TARGET: Cell<bool> = const { Cell::new(false) };
}

/// Silences the panic messages of targets, which are results here. Other panics are still printed.
fn silence_target_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let print = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !IN_TARGET.get() {
                print(info);
            }
        }));
    });
}

fn try_input(target: &Target, input: &[u8]) -> Result<Outcome, String> {
    IN_TARGET.set(true);
    let result = catch_unwind(AssertUnwindSafe(|| (target.run)(input)));
    IN_TARGET.set(false);
    result.map_err(|payload| {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        text.or_else(|| payload.downcast_ref::<&str>().copied())
            .unwrap_or("a panic without a message")
            .to_owned()
    })
}

fn crash(target: &Target, options: &Options, input: &[u8], message: String) -> Box<Crash> {
    let input = shorten(target, input);
    let file = write_crash(&options.crash_dir, target.name, &input);
    let message = try_input(target, &input).err().unwrap_or(message);
    Box::new(Crash { input, file, message })
}

/// Removes parts of the input while it still crashes, for at most one second.
fn shorten(target: &Target, input: &[u8]) -> Vec<u8> {
    let end = Instant::now() + Duration::from_secs(1);
    let mut best = input.to_vec();
    let mut piece = best.len() / 2;
    while piece > 0 && Instant::now() < end {
        let mut at = 0;
        while at < best.len() && Instant::now() < end {
            let mut shorter = best.clone();
            shorter.drain(at..(at + piece).min(best.len()));
            if try_input(target, &shorter).is_err() {
                best = shorter;
            } else {
                at += piece;
            }
        }
        piece /= 2;
    }
    best
}

fn write_crash(dir: &Path, name: &str, input: &[u8]) -> PathBuf {
    let file = dir.join(format!("weft-fuzz-{name}-{:08x}", crc32fast::hash(input)));
    std::fs::create_dir_all(dir)
        .and_then(|()| std::fs::write(&file, input))
        .unwrap_or_else(|error| panic!("{}: the crash input cannot be written: {error}", file.display()));
    file
}
