//! `weft lab`: runs experiments on simulated clusters and compares them with published results.

use crate::atomic_file::AtomicFile;
use crate::failure::{FAILED, Failure};
use crate::progress::Progress;
use crate::table::Table;
use clap::{Args, Subcommand};
use std::path::PathBuf;
use weft_lab::experiment::{self, Experiment};
use weft_lab::report::{Entry, page};
use weft_lab::run::{self, Options, Outcome};
use weft_lab::twin::Twin;
use weft_lab::{fidelity, folder, table};

const AFTER: &str = "\
The twin runs Weft's own client and server code on modelled disks and networks under virtual time. A paper's cluster
therefore runs here, and equal seeds give equal results. Each experiment includes the published values, and claims
about the shape of the result. Compare ratios and shapes, because papers measured real machines.

Results are stored in --results (default: $XDG_STATE_HOME/weft/lab) for `weft lab report`.

Exit codes:
  0  success: every claim that was checked holds or has a reason why it does not
  1  a claim failed without a reason, or an experiment could not run
  2  wrong arguments or an invalid experiment file

Examples:
  weft lab list
  weft lab run ibridge-fig2a --quick
  weft lab run all --jobs 4
  weft lab run ceda-fig3 --json | jq -r '[.series, .x, .value] | @tsv'
  weft lab run --file my.toml --seed 3
  weft lab report --output lab.html
  weft lab fidelity --quick";

const FIDELITY_AFTER: &str = "\
Each workload runs on four real servers in this process, over Unix sockets, in real time, on targets that take the
time of a modelled disk, and on the twin with the same profiles. The transport is measured first and becomes the
twin's network. The machine should be idle: without a free processor when a disk is done, real runs take longer (`chrt
-f 10 weft lab fidelity`, as root, gets priority).

Each workload runs three times in real time and twelve times on the twin, each time with other disks. If the times
differ by more than a quarter, the workload has several states that chance selects. It then runs twelve and 48 times,
and the means are compared.

Exit codes:
  0  the median error is at most 10 %, and the worst at most 25 %
  1  an error is greater, or a run failed";

/// Runs the experiments of papers on simulated clusters.
#[derive(Args)]
#[command(after_long_help = AFTER)]
pub struct Lab {
    #[command(subcommand)]
    command: LabCommand,
}

#[derive(Subcommand)]
enum LabCommand {
    /// List the experiments
    List(List),
    /// Run experiments
    Run(RunLab),
    /// Write one HTML page with plots and tables beside the published results
    Report(Report),
    /// Compare predictions with runs in real time
    Fidelity(Fidelity),
}

/// Lists the experiments.
#[derive(Args)]
struct List {
    /// Print JSON, one object per line
    #[arg(long)]
    json: bool,
}

/// Runs experiments.
#[derive(Args)]
struct RunLab {
    /// Names of experiments, or `all`
    #[arg(value_name = "NAME", required_unless_present = "file")]
    names: Vec<String>,
    /// Also run the experiment in this file
    #[arg(long, value_name = "FILE")]
    file: Vec<PathBuf>,
    /// Print rows as JSON, one per line, instead of tables
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    settings: RunSettings,
}

/// Writes one HTML page.
#[derive(Args)]
struct Report {
    /// The file to write
    #[arg(long, value_name = "FILE", default_value = "weft-lab.html")]
    output: PathBuf,
    /// Run the quick form of experiments without a result
    #[arg(long)]
    fill: bool,
    #[command(flatten)]
    settings: RunSettings,
}

/// Compares predictions with runs in real time.
#[derive(Args)]
#[command(after_long_help = FIDELITY_AFTER)]
struct Fidelity {
    /// Use less data, and run each workload once
    #[arg(long)]
    quick: bool,
    /// Only workloads with this text in their name
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    only: String,
    /// Seed of the twin and of the emulated disks
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
    /// Directory for files of the real servers, which are removed afterwards [default: in memory]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Directory of the results
    #[arg(long, value_name = "DIR")]
    results: Option<PathBuf>,
}

#[derive(Args)]
struct RunSettings {
    /// Use less data and fewer places on the x axis
    #[arg(long)]
    quick: bool,
    /// Seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of concurrent runs, each on one core [default: the number of cores]
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// Directory of the results
    #[arg(long, value_name = "DIR")]
    results: Option<PathBuf>,
}

impl Lab {
    /// Runs the command and returns the exit code.
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
        Failure::misuse("lab", "neither XDG_STATE_HOME nor HOME is set").remedy("give --results DIR")
    })
}

impl RunSettings {
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
        let results = self.settings.results()?;
        let options = self.settings.options();
        let mut failed = 0;
        let experiments = self.experiments()?;
        for (number, experiment) in experiments.iter().enumerate() {
            let outcome = run_one(experiment, &place(number, experiments.len()), &options)?;
            folder::save(&results, &outcome).map_err(|error| Failure::new("lab", error))?;
            if self.json {
                for row in &outcome.rows {
                    outln!("{}", serde_json::to_string(row).expect("a row is numbers and texts"));
                }
            } else {
                outln!("{}", table::render(experiment, &outcome));
            }
            for finding in outcome.failed() {
                failed += 1;
                let side = finding.side.map_or_else(String::new, |side| format!(", {}", side.word()));
                errln!(
                    "weft: lab: {}: claim failed{side}: {} ({})",
                    experiment.name,
                    finding.says,
                    finding.compared
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
                    .remedy("`weft lab list` shows all experiments")
            })?;
            found.push(experiment.clone());
        }
        for file in &self.file {
            found.push(Experiment::load(file).map_err(|error| Failure::misuse("lab", error))?);
        }
        Ok(found)
    }
}

/// Runs an experiment. `place` is its place among several, such as `3 of 80, `.
fn run_one(experiment: &Experiment, place: &str, options: &Options) -> Result<Outcome, Failure> {
    let progress = Progress::new(format!("lab: {place}{}", experiment.name));
    let outcome = run::run(experiment, &Twin, options, &mut |done, all, what| {
        progress.set(done as u64, all as u64, what);
    });
    outcome.map_err(|error| Failure::new("lab", error))
}

/// Returns the place among `all`, counted from 0, in words. Nothing for a single one.
fn place(number: usize, all: usize) -> String {
    if all > 1 { format!("{} of {all}, ", number + 1) } else { String::new() }
}

impl Report {
    fn run(self) -> Result<u8, Failure> {
        let failed = |error: folder::FolderError| Failure::new("lab", error);
        let output = AtomicFile::new(&self.output)?;
        let results = self.settings.results()?;
        let mut outcomes = Vec::new();
        for experiment in experiment::all() {
            outcomes.push(folder::load(&results, &experiment.name).map_err(failed)?);
        }
        let missing: Vec<usize> = (0..outcomes.len()).filter(|at| outcomes[*at].is_none()).collect();
        if self.fill {
            let options = Options { quick: true, ..self.settings.options() };
            for (number, at) in missing.iter().enumerate() {
                let fresh = run_one(&experiment::all()[*at], &place(number, missing.len()), &options)?;
                // Stored at once: after Ctrl-C, the next call continues here.
                folder::save(&results, &fresh).map_err(failed)?;
                outcomes[*at] = Some(fresh);
            }
        }
        let entries: Vec<Entry> = experiment::all()
            .iter()
            .zip(outcomes)
            .map(|(experiment, outcome)| Entry {
                experiment,
                // Claims may have changed since the run.
                outcome: outcome.map(|outcome| outcome.judged_again(experiment)),
            })
            .collect();
        let fidelity = folder::load_fidelity(&results).map_err(failed)?;
        let page = page(&entries, fidelity.as_deref());
        output.write(page.as_bytes())?;
        outln!("{}", summary(&self.output.display().to_string(), &entries));
        Ok(0)
    }
}

/// Describes the page, and how to get results that it does not have.
fn summary(output: &str, entries: &[Entry]) -> String {
    let missing: Vec<&Entry> = entries.iter().filter(|entry| entry.outcome.is_none()).collect();
    let mut text =
        format!("{output}: results of {} of {} experiments", entries.len() - missing.len(), entries.len());
    let Some(first) = missing.first() else { return text };
    text += &format!(
        "\n\n{} have not been run here. The page shows what they are about, and the command of each:\n\n  \
         weft lab run {} --quick    one experiment, smaller than in the paper, in seconds\n  \
         weft lab report --fill              all that are missing, so; Ctrl-C keeps what is done\n  \
         weft lab run all                    all in full size, which takes hours",
        missing.len(),
        first.experiment.name,
    );
    text
}

impl Fidelity {
    fn run(self) -> Result<u8, Failure> {
        let results = results_folder(self.results.as_ref())?;
        // In memory if possible: a host disk slower than the modelled one would distort the times.
        let memory = PathBuf::from("/dev/shm");
        let below = self.dir.clone().unwrap_or_else(|| match memory.is_dir() {
            true => memory,
            false => std::env::temp_dir(),
        });
        let progress = Progress::new("lab: fidelity");
        let found = fidelity::run(&below, &self.only, self.quick, self.seed, &mut |done, all, what| {
            progress.set(done as u64, all as u64, what);
        });
        drop(progress);
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
