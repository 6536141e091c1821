//! `weft twin search`: random workloads and faults, and checkers of every promise.

use crate::failure::Failure;
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use std::io::IsTerminal;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use weft_twin::search::{self, Coverage, Options, Report};

/// Something was found.
const FOUND: u8 = 1;

const AFTER: &str = "\
Each seed is a small cluster of its own under virtual time, with clients that do random things and faults that happen to
them: processes die, machines lose power, networks part, disks fail, slow down and fill up. Whatever a client is told is
checked against what may be so. See docs/twin.md.

Exit codes:
  0  every promise holds in every seed
  1  some promise is broken
  2  wrong arguments

Examples:
  weft twin search --seeds 1000
  weft twin search --seed 17 --verbose
  weft twin search --seed 17 --shrink";

/// How thorough a search is.
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
    /// How many seeds
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// The first seed
    #[arg(long, default_value_t = 0, value_name = "SEED")]
    from: u64,
    /// Only this seed
    #[arg(long, conflicts_with_all = ["seeds", "from", "jobs"])]
    seed: Option<u64>,
    /// How many seeds run at once [default: one for each processor]
    #[arg(long)]
    jobs: Option<usize>,
    /// How thorough
    #[arg(long, value_enum, default_value_t = Profile::Quick)]
    profile: Profile,
    /// Print all that happened in the seed
    #[arg(long, requires = "seed")]
    verbose: bool,
    /// Look for fewer faults and steps with which the seed finds something
    #[arg(long, requires = "seed")]
    shrink: bool,
    /// At most so many faults in each seed
    #[arg(long, value_name = "COUNT")]
    faults_max: Option<u32>,
    /// At most so many steps of each program
    #[arg(long, value_name = "COUNT")]
    steps_max: Option<u32>,
    /// Whether there are SSDs beside the disks (iBridge); without this each seed decides
    #[arg(long, value_name = "on|off", value_parser = on_or_off)]
    ibridge: Option<bool>,
    /// Whether files are moved to other layouts meanwhile; without this each seed decides
    #[arg(long, value_name = "on|off", value_parser = on_or_off)]
    moves: Option<bool>,
    /// Whether these moves go piece by piece, stop anywhere and are taken up again, where there are any; without this each
    /// seed decides
    #[arg(long, value_name = "on|off", value_parser = on_or_off)]
    stops: Option<bool>,
    /// Whether rules of directories are changed meanwhile; without this each seed decides
    #[arg(long, value_name = "on|off", value_parser = on_or_off)]
    rules: Option<bool>,
    /// Whether all that is written goes through SSDs too small for it, where there are any; without this each seed decides
    #[arg(long, value_name = "on|off", value_parser = on_or_off)]
    churn: Option<bool>,
    /// Whether files have parts, some on targets with limited room; without this each seed decides
    #[arg(long, value_name = "on|off", value_parser = on_or_off)]
    parts: Option<bool>,
    /// Whether each server has two targets; without this each seed decides
    #[arg(long, value_name = "on|off", value_parser = on_or_off)]
    pairs: Option<bool>,
    /// Whether programs make holes in files; without this each seed decides
    #[arg(long, value_name = "on|off", value_parser = on_or_off)]
    holes: Option<bool>,
    /// Whether targets keep checksums of all bytes; without this each seed decides
    #[arg(long, value_name = "on|off", value_parser = on_or_off)]
    integrity: Option<bool>,
    /// Whether datafiles are removed, cut or, with checksums, get other bits in the end; off without this
    #[arg(long, value_name = "on|off", value_parser = on_or_off)]
    damage: Option<bool>,
    /// Whether disks of stopped servers are taken for others, blank ones and older copies, until the right ones are put
    /// back; without this each seed decides
    #[arg(long, value_name = "on|off", value_parser = on_or_off)]
    disks: Option<bool>,
    /// Plant this bug, which must be found
    #[cfg(feature = "plants")]
    #[arg(long, value_parser = plant)]
    plant: Option<weft_env::plants::Plant>,
    /// One JSON object per line: each seed that found something, and the sum
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

#[cfg(feature = "plants")]
fn plant(name: &str) -> Result<weft_env::plants::Plant, String> {
    use weft_env::plants::Plant;
    let found = Plant::ALL.into_iter().find(|plant| plant.name() == name);
    found.ok_or_else(|| format!("one of {}", Plant::ALL.map(Plant::name).join(", ")))
}

/// What all seeds together came to.
#[derive(Default)]
struct Sum {
    seeds: u64,
    broken: Vec<u64>,
    coverage: Coverage,
    virtual_s: f64,
}

impl Search {
    /// Searches; the code to end with.
    pub fn run(self) -> Result<u8, Failure> {
        // What clients and servers say goes into the history.
        weft_client::set_log(|_| ());
        let profile = match self.profile {
            Profile::Quick => search::Profile::Quick,
            Profile::Long => search::Profile::Long,
        };
        let options = Options {
            profile,
            ibridge: self.ibridge,
            moves: self.moves,
            rules: self.rules,
            churn: self.churn,
            parts: self.parts,
            stops: self.stops,
            pairs: self.pairs,
            holes: self.holes,
            integrity: self.integrity,
            damage: self.damage,
            disks: self.disks,
            verbose: self.verbose,
            steps_max: self.steps_max,
            faults_max: self.faults_max,
            #[cfg(feature = "plants")]
            plant: self.plant,
            #[cfg(not(feature = "plants"))]
            plant: None,
        };
        match self.seed {
            Some(seed) => self.one(seed, options),
            None => self.many(options),
        }
    }

    fn one(&self, seed: u64, mut options: Options) -> Result<u8, Failure> {
        if self.shrink {
            match search::shrink(seed, options) {
                Some(fewer) => options = fewer,
                None => outln!("seed {seed} finds nothing: there is nothing to shrink"),
            }
        }
        let report = search::run(seed, options);
        report.lines.iter().for_each(|line| outln!("{line}"));
        self.tell(&report, options);
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

    fn many(&self, options: Options) -> Result<u8, Failure> {
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
                            bar.suspend(|| self.tell(&report, options));
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

    /// What a seed found, and how to see it again.
    fn tell(&self, report: &Report, options: Options) {
        let Some(violation) = &report.violation else { return };
        let seed = report.seed;
        let mut repeat = format!("weft twin search --seed {seed} --verbose");
        if let Some(plant) = options.plant {
            repeat.push_str(&format!(" --plant {}", plant.name()));
        }
        if options.profile == search::Profile::Long {
            repeat.push_str(" --profile long");
        }
        let switches = [
            ("ibridge", options.ibridge),
            ("moves", options.moves),
            ("rules", options.rules),
            ("churn", options.churn),
            ("parts", options.parts),
            ("stops", options.stops),
            ("pairs", options.pairs),
            ("holes", options.holes),
            ("integrity", options.integrity),
            ("damage", options.damage),
            ("disks", options.disks),
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
