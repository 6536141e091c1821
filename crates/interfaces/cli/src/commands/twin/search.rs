//! `weft twin search`: runs random workloads and faults, and checks every promise.

use crate::failure::Failure;
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use std::io::IsTerminal;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use weft_twin::search::{self, Coverage, Options, Report};

/// Exit code: a promise was broken.
const FOUND: u8 = 1;

const AFTER: &str = "\
Each seed is a small cluster under virtual time, with clients that run random operations, and random faults: processes
die, machines lose power, networks partition, and disks fail, slow down and fill up. Every reply to a client is
checked against the possible ones. See docs/design/twin.md.

Exit codes:
  0  every promise holds in every seed
  1  a promise is broken
  2  wrong arguments

Examples:
  weft twin search --seeds 1000
  weft twin search --seed 17 --verbose
  weft twin search --seed 17 --shrink";

/// Length of the runs.
#[derive(Clone, Copy, ValueEnum)]
enum Profile {
    /// Tens of operations of each program
    Quick,
    /// Several times as many, with more faults
    Long,
}

/// Looks for broken promises under random faults.
#[derive(Args)]
#[command(after_long_help = AFTER)]
pub struct Search {
    /// Number of seeds
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// The first seed
    #[arg(long, default_value_t = 0, value_name = "SEED")]
    from: u64,
    /// Run only this seed
    #[arg(long, conflicts_with_all = ["seeds", "from", "jobs"])]
    seed: Option<u64>,
    /// Number of concurrent seeds [default: one for each processor]
    #[arg(long)]
    jobs: Option<usize>,
    /// Length of the runs
    #[arg(long, value_enum, default_value_t = Profile::Quick)]
    profile: Profile,
    /// Print the whole history of the seed
    #[arg(long, requires = "seed")]
    verbose: bool,
    /// Search for fewer faults and steps with which the seed still breaks a promise
    #[arg(long, requires = "seed")]
    shrink: bool,
    /// Maximum number of faults in each seed
    #[arg(long, value_name = "COUNT")]
    faults_max: Option<u32>,
    /// Maximum number of steps of each program
    #[arg(long, value_name = "COUNT")]
    steps_max: Option<u32>,
    /// Whether disks have SSDs beside them (iBridge) [default: each seed decides]
    #[arg(long, value_name = "on|off", value_parser = on_or_off)]
    ibridge: Option<bool>,
    /// Whether disks have caches on SSDs, with or without iBridge [default: each seed decides]
    #[arg(long, value_name = "on|off", value_parser = on_or_off)]
    cache: Option<bool>,
    /// Whether programs move files to other layouts [default: each seed decides]
    #[arg(long, value_name = "on|off", value_parser = on_or_off)]
    moves: Option<bool>,
    /// Whether moves are divided into pieces and may stop and resume at any of them [default: each seed decides]
    #[arg(long, value_name = "on|off", value_parser = on_or_off)]
    stops: Option<bool>,
    /// Whether programs change layout rules [default: each seed decides]
    #[arg(long, value_name = "on|off", value_parser = on_or_off)]
    rules: Option<bool>,
    /// Whether SSDs, where there are any, are smaller than the data written [default: each seed decides]
    #[arg(long, value_name = "on|off", value_parser = on_or_off)]
    churn: Option<bool>,
    /// Whether files have several components, some on targets with limited capacity [default: each seed decides]
    #[arg(long, value_name = "on|off", value_parser = on_or_off)]
    parts: Option<bool>,
    /// Whether each server has two targets [default: each seed decides]
    #[arg(long, value_name = "on|off", value_parser = on_or_off)]
    pairs: Option<bool>,
    /// Whether programs punch holes into files [default: each seed decides]
    #[arg(long, value_name = "on|off", value_parser = on_or_off)]
    holes: Option<bool>,
    /// Whether files stay in the metadata while they are small [default: each seed decides]
    #[arg(long, value_name = "on|off", value_parser = on_or_off)]
    inline: Option<bool>,
    /// Whether programs create, synchronize and drop replicas of files [default: each seed decides]
    #[arg(long, value_name = "on|off", value_parser = on_or_off)]
    replicas: Option<bool>,
    /// Whether a program that has created a replica uses the file alone for a while [default: each seed decides]
    #[arg(long, value_name = "on|off", value_parser = on_or_off)]
    replica_use: Option<bool>,
    /// Whether targets keep checksums of all bytes [default: each seed decides]
    #[arg(long, value_name = "on|off", value_parser = on_or_off)]
    integrity: Option<bool>,
    /// Whether some files are compressed [default: each seed decides]
    #[arg(long, value_name = "on|off", value_parser = on_or_off)]
    compress: Option<bool>,
    /// Whether datafiles are removed, truncated or, with checksums, get flipped bits at the end [default: off]
    #[arg(long, value_name = "on|off", value_parser = on_or_off)]
    damage: Option<bool>,
    /// Whether disks of stopped servers are swapped for blank ones or older copies for a while [default: each seed
    /// decides]
    #[arg(long, value_name = "on|off", value_parser = on_or_off)]
    disks: Option<bool>,
    /// Whether a disk is lost at the end, given up, and replaced by a blank one [default: each seed decides]
    #[arg(long, value_name = "on|off", value_parser = on_or_off)]
    loses: Option<bool>,
    /// Search jobs with I/O delegates instead of clusters [default: off]
    #[arg(long, value_name = "on|off", value_parser = on_or_off)]
    delegates: Option<bool>,
    /// Enable this seeded mutant, which the search must find
    #[cfg(feature = "mutants")]
    #[arg(long, value_parser = mutant)]
    mutant: Option<weft_env::mutants::Mutant>,
    /// Print JSON, one object per line: each seed that broke a promise, and a summary
    #[arg(long)]
    json: bool,
}

fn on_or_off(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("write on or off".to_owned()),
    }
}

#[cfg(feature = "mutants")]
fn mutant(name: &str) -> Result<weft_env::mutants::Mutant, String> {
    use weft_env::mutants::Mutant;
    let found = Mutant::ALL.into_iter().find(|mutant| mutant.name() == name);
    found.ok_or_else(|| format!("one of {}", Mutant::ALL.map(Mutant::name).join(", ")))
}

/// Totals over all seeds.
#[derive(Default)]
struct Sum {
    seeds: u64,
    broken: Vec<u64>,
    coverage: Coverage,
    virtual_s: f64,
}

impl Search {
    /// Runs the command and returns the exit code.
    pub fn run(self) -> Result<u8, Failure> {
        // Messages of clients and servers go to the history.
        weft_client::set_log(|_| ());
        let profile = match self.profile {
            Profile::Quick => search::Profile::Quick,
            Profile::Long => search::Profile::Long,
        };
        let options = Options {
            profile,
            ibridge: self.ibridge,
            cache: self.cache,
            moves: self.moves,
            rules: self.rules,
            churn: self.churn,
            parts: self.parts,
            stops: self.stops,
            pairs: self.pairs,
            holes: self.holes,
            inline: self.inline,
            replicas: self.replicas,
            replica_use: self.replica_use,
            integrity: self.integrity,
            compression: self.compress,
            damage: self.damage,
            disks: self.disks,
            loses: self.loses,
            delegates: self.delegates == Some(true),
            verbose: self.verbose,
            steps_max: self.steps_max,
            faults_max: self.faults_max,
            #[cfg(feature = "mutants")]
            mutant: self.mutant,
            #[cfg(not(feature = "mutants"))]
            mutant: None,
        };
        match self.seed {
            Some(seed) => self.one(seed, options),
            None => self.all_seeds(options),
        }
    }

    fn one(&self, seed: u64, mut options: Options) -> Result<u8, Failure> {
        if self.shrink {
            match search::shrink(seed, options) {
                Some(fewer) => options = fewer,
                None => outln!("seed {seed} breaks no promise: nothing to shrink"),
            }
        }
        let report = search::run(seed, options);
        report.lines.iter().for_each(|line| outln!("{line}"));
        self.print_violation(&report, options);
        if !self.json {
            outln!(
                "seed {seed}: event hash {:016x}, {:.1} s of virtual time, longest operation {:.1} s",
                report.event_hash,
                report.elapsed.0 as f64 / 1e9,
                report.longest.0 as f64 / 1e9
            );
        }
        Ok(if report.violation.is_some() { FOUND } else { 0 })
    }

    fn all_seeds(&self, options: Options) -> Result<u8, Failure> {
        let bar = if std::io::stderr().is_terminal() {
            let style = ProgressStyle::with_template("{bar:40} {pos}/{len} seeds, {msg} broken, {eta} left");
            ProgressBar::new(self.seeds).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        } else {
            ProgressBar::hidden()
        };
        bar.set_message("0");
        let jobs = self.jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
        let (next, sum) = (AtomicU64::new(self.from), Mutex::new(Sum::default()));
        let end = self.from.saturating_add(self.seeds);
        let start = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..jobs.clamp(1, 1024) {
                scope.spawn(|| {
                    loop {
                        let seed = next.fetch_add(1, Ordering::Relaxed);
                        if seed >= end {
                            return;
                        }
                        let report = search::run(seed, options);
                        let mut sum = sum.lock().expect("nobody panics with it");
                        sum.seeds += 1;
                        sum.coverage.merge(&report.coverage);
                        sum.virtual_s += report.elapsed.0 as f64 / 1e9;
                        if report.violation.is_some() {
                            sum.broken.push(seed);
                            bar.set_message(sum.broken.len().to_string());
                            bar.suspend(|| self.print_violation(&report, options));
                        }
                        bar.inc(1);
                    }
                });
            }
        });
        bar.finish_and_clear();
        let mut sum = sum.into_inner().expect("nobody panics with it");
        sum.broken.sort_unstable();
        self.summary(&sum, start.elapsed().as_secs_f64());
        Ok(if sum.broken.is_empty() { 0 } else { FOUND })
    }

    /// Prints the broken promise of a seed and the command that repeats it.
    fn print_violation(&self, report: &Report, options: Options) {
        let Some(violation) = &report.violation else { return };
        let seed = report.seed;
        let mut repeat = format!("weft twin search --seed {seed} --verbose");
        if let Some(mutant) = options.mutant {
            repeat.push_str(&format!(" --mutant {}", mutant.name()));
        }
        if options.profile == search::Profile::Long {
            repeat.push_str(" --profile long");
        }
        let switches = [
            ("ibridge", options.ibridge),
            ("cache", options.cache),
            ("moves", options.moves),
            ("rules", options.rules),
            ("churn", options.churn),
            ("parts", options.parts),
            ("stops", options.stops),
            ("pairs", options.pairs),
            ("holes", options.holes),
            ("inline", options.inline),
            ("replicas", options.replicas),
            ("integrity", options.integrity),
            ("compress", options.compression),
            ("damage", options.damage),
            ("disks", options.disks),
            ("loses", options.loses),
            ("delegates", options.delegates.then_some(true)),
        ];
        for (name, is_on) in switches {
            if let Some(is_on) = is_on {
                repeat.push_str(&format!(" --{name} {}", if is_on { "on" } else { "off" }));
            }
        }
        for (name, max) in [("faults-max", options.faults_max), ("steps-max", options.steps_max)] {
            if let Some(max) = max {
                repeat.push_str(&format!(" --{name} {max}"));
            }
        }
        if self.json {
            outln!(
                "{}",
                json!({
                    "seed": seed, "promise": violation.promise, "what": violation.what,
                    "at_s": violation.at.0 as f64 / 1e9, "repeat": repeat,
                })
            );
        } else {
            outln!("seed {seed}: broken: {}", violation.promise);
            outln!("  {}", violation.what);
            outln!("  again: {repeat}");
        }
    }

    fn summary(&self, sum: &Sum, wall_s: f64) {
        let Sum { seeds, broken, coverage, virtual_s } = sum;
        if self.json {
            let coverage: serde_json::Map<_, _> =
                coverage.iter().map(|(what, count)| (what.to_owned(), count.into())).collect();
            outln!(
                "{}",
                json!({
                    "seeds": seeds, "broken": broken, "wall_s": wall_s, "virtual_s": virtual_s,
                    "coverage": coverage,
                })
            );
            return;
        }
        for (what, count) in coverage.iter() {
            outln!("{count:>10}  {what}");
        }
        outln!(
            "{seeds} seeds, {} with broken promises; {:.0} s of virtual time in {wall_s:.1} s, {:.1} ms for each seed",
            broken.len(),
            virtual_s,
            wall_s * 1e3 / (*seeds).max(1) as f64
        );
    }
}
