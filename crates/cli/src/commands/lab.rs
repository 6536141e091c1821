//! `weft lab`: experiments on simulated clusters, beside what papers print.

use crate::failure::{FAILED, Failure};
use crate::table::Table;
use crate::whole::Whole;
use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use std::path::PathBuf;
use weft_lab::experiment::{self, Experiment};
use weft_lab::report::{Entry, page};
use weft_lab::run::{self, Options, Outcome};
use weft_lab::twin::Twin;
use weft_lab::{fidelity, folder, table};

const AFTER: &str = "\
The twin runs Weft's own client and server code on modeled disks and networks under virtual time, so that a cluster
of a paper runs here, the same each time for a seed. Each experiment carries what its paper prints, and claims that
say which shape its figure must have. Compare ratios and shapes: papers measured machines.

Results are kept in --results, by default $XDG_STATE_HOME/weft/lab, for `weft lab report`.

Exit codes:
  0  done, and every claim that was checked holds or says why it cannot
  1  a claim failed without a reason, or an experiment could not run
  2  wrong arguments or a wrong experiment file

Examples:
  weft lab list
  weft lab run ibridge-fig2a --quick
  weft lab run all --jobs 4
  weft lab run ceda-fig3 --json | jq -r '[.series, .x, .value] | @tsv'
  weft lab run --file my.toml --seed 3
  weft lab report --output lab.html
  weft lab fidelity --quick";

const FIDELITY_AFTER: &str = "\
Each workload runs on four real servers of this process, over Unix sockets, in real time, on targets that take the time
of a modeled disk; and on the twin with the same profiles. The transport is measured first and is the twin's network.
Needs a machine that has little else to do: with no processor free when a disk is done, the real runs come late
(`chrt -f 10 weft lab fidelity`, as root, comes before the others).

Each runs three times in real time and twelve times on the twin, with other disks each time. Where runs differ by more than
a quarter, chance decides between several states; those run twelve and 48 times, and the means are compared.

Exit codes:
  0  the median of the errors is at most 10 %, the worst 25 %
  1  it is more, or something could not run";

/// Runs the experiments of papers on simulated clusters.
#[derive(Args)]
#[command(after_long_help = AFTER)]
pub struct Lab {
    #[command(subcommand)]
    command: LabCommand,
}

#[derive(Subcommand)]
enum LabCommand {
    /// Show what experiments there are
    List(List),
    /// Run some
    Run(RunLab),
    /// Write one HTML page with plots and tables beside the published figures
    Report(Report),
    /// Compare predictions with runs in real time
    Fidelity(Fidelity),
}

/// Shows what experiments there are.
#[derive(Args)]
struct List {
    /// JSON, one object to a line
    #[arg(long)]
    json: bool,
}

/// Runs some.
#[derive(Args)]
struct RunLab {
    /// Their names, or `all`
    #[arg(value_name = "NAME", required_unless_present = "file")]
    names: Vec<String>,
    /// Also the experiment in this file
    #[arg(long, value_name = "FILE")]
    file: Vec<PathBuf>,
    /// Rows as JSON, one to a line, instead of tables
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    how: How,
}

/// Writes one HTML page.
#[derive(Args)]
struct Report {
    /// Where to
    #[arg(long, value_name = "FILE", default_value = "weft-lab.html")]
    output: PathBuf,
    /// Run the quick form of whatever has no result yet
    #[arg(long)]
    fill: bool,
    #[command(flatten)]
    how: How,
}

/// Compares predictions with runs in real time.
#[derive(Args)]
#[command(after_long_help = FIDELITY_AFTER)]
struct Fidelity {
    /// Less data, and each once
    #[arg(long)]
    quick: bool,
    /// The workloads that have this in their name
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    only: String,
    /// Of the twin, and of the real disks
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// One JSON object instead of a table
    #[arg(long)]
    json: bool,
    /// Where files of the real servers are made and removed; in memory unless said
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Where results are kept
    #[arg(long, value_name = "DIR")]
    results: Option<PathBuf>,
}

#[derive(Args)]
struct How {
    /// Less data and fewer places on the x axis
    #[arg(long)]
    quick: bool,
    /// Decides all that is left to chance
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// So many runs at once, each on one core; as many as there are cores unless said
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// Where results are kept
    #[arg(long, value_name = "DIR")]
    results: Option<PathBuf>,
}

impl Lab {
    /// Does it; the code to end with.
    pub fn run(self) -> Result<u8, Failure> {
        match self.command {
            LabCommand::List(command) => command.run(),
            LabCommand::Run(command) => command.run(),
            LabCommand::Report(command) => command.run(),
            LabCommand::Fidelity(command) => command.run(),
        }
    }
}

impl List {
    fn run(self) -> Result<u8, Failure> {
        let mut table = Table::new(["NAME", "PAPER", "FIGURE", "CLAIMS", "WHAT"]);
        for Experiment { name, paper, figure, title, claims, .. } in experiment::all() {
            if self.json {
                let row = serde_json::json!({"experiment": name, "paper": paper, "figure": figure, "title": title,
                    "claims": claims.len()});
                outln!("{row}");
            } else {
                let claims = claims.len().to_string();
                table.row([name.clone(), paper.clone(), figure.clone(), claims, title.clone()]);
            }
        }
        if !self.json {
            out!("{}", table.render());
        }
        Ok(0)
    }
}

fn results_folder(said: Option<&PathBuf>) -> Result<PathBuf, Failure> {
    said.cloned().or_else(folder::default_folder).ok_or_else(|| {
        Failure::misuse("lab", "neither XDG_STATE_HOME nor HOME is set").remedy("say --results DIR")
    })
}

impl How {
    fn results(&self) -> Result<PathBuf, Failure> {
        results_folder(self.results.as_ref())
    }

    fn options(&self) -> Options {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        Options { quick: self.quick, seed: self.seed, jobs: self.jobs.unwrap_or_else(cores).max(1) }
    }
}

impl RunLab {
    fn run(self) -> Result<u8, Failure> {
        let results = self.how.results()?;
        let options = self.how.options();
        let mut failed = 0;
        for experiment in self.experiments()? {
            let outcome = run_one(&experiment, &options)?;
            folder::save(&results, &outcome).map_err(|error| Failure::new("lab", error))?;
            if self.json {
                for row in &outcome.rows {
                    outln!("{}", serde_json::to_string(row).expect("a row is numbers and texts"));
                }
            } else {
                outln!("{}", table::render(&experiment, &outcome));
            }
            for finding in outcome.failed() {
                failed += 1;
                eprintln!(
                    "weft: lab: {}: claim failed: {} ({})",
                    experiment.name, finding.says, finding.compared
                );
            }
        }
        Ok(if failed > 0 { FAILED } else { 0 })
    }

    fn experiments(&self) -> Result<Vec<Experiment>, Failure> {
        let mut found = Vec::new();
        for name in &self.names {
            if name == "all" {
                found.extend(experiment::all().iter().cloned());
                continue;
            }
            let experiment = experiment::by_name(name).ok_or_else(|| {
                Failure::misuse("lab", format!("there is no experiment `{name}`"))
                    .remedy("`weft lab list` shows those there are")
            })?;
            found.push(experiment.clone());
        }
        for file in &self.file {
            found.push(Experiment::load(file).map_err(|error| Failure::misuse("lab", error))?);
        }
        Ok(found)
    }
}

fn bar(name: &str) -> ProgressBar {
    // On a terminal a bar; in a log nothing.
    let style = ProgressStyle::with_template("{prefix} {wide_bar} {pos}/{len} {msg}");
    let bar = ProgressBar::new(0).with_style(style.expect("the template is well formed"));
    bar.set_prefix(name.to_owned());
    bar
}

fn run_one(experiment: &Experiment, options: &Options) -> Result<Outcome, Failure> {
    let bar = bar(&experiment.name);
    let outcome = run::run(experiment, &Twin, options, &mut |done, all, what| {
        bar.set_length(all as u64);
        bar.set_position(done as u64);
        bar.set_message(what.to_owned());
    });
    bar.finish_and_clear();
    outcome.map_err(|error| Failure::new("lab", error))
}

impl Report {
    fn run(self) -> Result<u8, Failure> {
        let failed = |error: folder::FolderError| Failure::new("lab", error);
        let output = Whole::new(&self.output)?;
        let results = self.how.results()?;
        let mut entries = Vec::new();
        for experiment in experiment::all() {
            let mut outcome = folder::load(&results, &experiment.name).map_err(failed)?;
            if outcome.is_none() && self.fill {
                let fresh = run_one(experiment, &Options { quick: true, ..self.how.options() })?;
                folder::save(&results, &fresh).map_err(failed)?;
                outcome = Some(fresh);
            }
            entries.push(Entry { experiment, outcome });
        }
        let missing = entries.iter().filter(|entry| entry.outcome.is_none()).count();
        let fidelity = folder::load_fidelity(&results).map_err(failed)?;
        let page = page(&entries, fidelity.as_deref());
        output.write(page.as_bytes())?;
        outln!("{}: {} experiments, {missing} of them not run yet", self.output.display(), entries.len());
        if missing > 0 {
            outln!(
                "`weft lab report --fill` runs the quick form of those first; `weft lab run all` runs all in full."
            );
        }
        Ok(0)
    }
}

impl Fidelity {
    fn run(self) -> Result<u8, Failure> {
        let results = results_folder(self.results.as_ref())?;
        // In memory where that can be: the machine's own disk, when it is slower than the modeled one, spoils the time.
        let memory = PathBuf::from("/dev/shm");
        let below = self.dir.clone().unwrap_or_else(|| match memory.is_dir() {
            true => memory,
            false => std::env::temp_dir(),
        });
        let bar = bar("fidelity");
        let found = fidelity::run(&below, &self.only, self.quick, self.seed, &mut |done, all, what| {
            bar.set_length(all as u64);
            bar.set_position(done as u64);
            bar.set_message(what.to_owned());
        });
        bar.finish_and_clear();
        let found = found.map_err(|error| Failure::new("lab", error))?;
        folder::save_fidelity(&results, &found.render()).map_err(|error| Failure::new("lab", error))?;
        if self.json {
            outln!("{}", serde_json::to_string(&found).expect("a comparison is numbers and texts"));
        } else {
            out!("{}", found.render());
        }
        Ok(if found.is_good() { 0 } else { FAILED })
    }
}
