//! `weft replay`: repeats what a traced program did, on real files or on the twin.

mod real;
mod rows;
mod twin;

pub use real::{free_space, worker_command, worker_environment};

use super::trace::{Input, bar, tick};
use crate::failure::Failure;
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use weft_core::Nanos;
use weft_trace::prepared::{Options, Prepared, Timing};

const AFTER: &str = "\
Each rank of the trace performs its operations in order. Ranks wait for each other at barriers of the trace, and where
the trace shows that they did: no operation was in progress, and then a rank used what another had created. Files get
new names (number and last part of the path) in a new directory below PATH, which is removed at the end. Files that
existed before the program are created first, with the size that the reads need.

PATH is any directory: local, on a mount, or under /weft, which the processes of the replay reach through the preload
library as under `weft run`. With --twin, the operations run on a simulated cluster; see docs/guide/twin-and-lab.md.

A trace of both levels is replayed at POSIX, the level that the file system sees, unless --level says otherwise.

Examples:
  weft replay app.darshan /weft
  weft replay app.darshan /scratch/me --verify --json
  weft replay app.wtrace /weft --speed 1                  with the program's own pauses
  weft replay app.darshan --twin cluster.toml
  weft replay counters-only.darshan /weft --reconstruct --ranks 32";

/// Repeats what a traced program did.
#[derive(Args)]
#[command(after_long_help = AFTER)]
pub struct Replay {
    #[command(flatten)]
    input: Input,
    /// An existing directory for the files
    #[arg(value_name = "PATH", required_unless_present = "twin", conflicts_with = "twin")]
    path: Option<PathBuf>,
    /// Run on the simulated cluster that this file describes
    #[arg(long, value_name = "CLUSTER.toml")]
    twin: Option<PathBuf>,
    /// Keep the pauses between operations, divided by this factor [default: no pauses]
    #[arg(long, value_name = "FACTOR", value_parser = factor)]
    speed: Option<f64>,
    /// Use operations at this level [default: posix if any of them moves bytes]
    #[arg(long, value_name = "LEVEL")]
    level: Option<LevelArg>,
    /// Only files whose path contains this text
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// No files whose path contains this text
    #[arg(long, value_name = "TEXT")]
    without: Option<String>,
    /// Only this many ranks, beginning with the first
    #[arg(long, value_name = "COUNT")]
    ranks: Option<u32>,
    /// Only operations that begin before this time of the trace
    #[arg(long, value_name = "TIME", value_parser = super::duration)]
    until: Option<Nanos>,
    /// Let ranks never wait for each other
    #[arg(long)]
    no_barriers: bool,
    /// Stamp payloads, compare all reads, and compare everything written at the end
    #[arg(long, conflicts_with = "twin")]
    verify: bool,
    /// Maximum number of processes; more ranks share them
    #[arg(long, value_name = "COUNT", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1024))]
    processes: u32,
    /// Maximum number of threads per process; more ranks share them
    #[arg(long, value_name = "COUNT", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: u32,
    /// Keep the files
    #[arg(long, conflicts_with = "twin")]
    keep: bool,
    /// Do not check whether the files fit into the free space
    #[arg(long, conflicts_with = "twin")]
    no_room_check: bool,
    /// Number of files to show, those with the most bytes first
    #[arg(long, value_name = "COUNT", default_value_t = 10)]
    files: usize,
    /// Print JSON, one object per line: a total, each kind of operation, each file
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum LevelArg {
    Posix,
    MpiIo,
}

fn factor(text: &str) -> Result<f64, String> {
    let factor =
        text.trim_end_matches('x').parse::<f64>().ok().filter(|factor| *factor > 0.0 && factor.is_finite());
    factor.ok_or_else(|| "write a number above 0, such as 1 or 2.5".to_owned())
}

impl Replay {
    /// Runs the command and returns the exit code.
    pub fn run(self, cluster: Option<PathBuf>) -> Result<u8, Failure> {
        let prepared = self.prepare()?;
        match &self.twin {
            Some(file) => self.on_twin(&prepared, file),
            None => self.on_files(&prepared, cluster),
        }
    }

    fn prepare(&self) -> Result<Prepared, Failure> {
        let options = Options {
            level: self.level.map(|level| match level {
                LevelArg::Posix => weft_trace::Level::Posix,
                LevelArg::MpiIo => weft_trace::Level::MpiIo,
            }),
            only: self.only.clone(),
            without: self.without.clone(),
            ranks: self.ranks,
            until: self.until,
            barriers: !self.no_barriers,
            ..Options::default()
        };
        let mut stream = self.input.open()?;
        let progress = bar();
        let prepared =
            Prepared::new(&self.input.file, &mut *stream, &options, |stream| tick(&progress, stream));
        progress.finish_and_clear();
        Ok(prepared?)
    }

    fn timing(&self) -> Timing {
        self.speed.map_or(Timing::Fast, Timing::Speed)
    }
}

/// A process of a replay. Only `weft replay` starts it.
#[derive(Args)]
pub struct ReplayWorker {
    /// Description of its work
    spec: String,
}

impl ReplayWorker {
    /// Works until the parent process ends it.
    pub fn run(self) -> Result<u8, Failure> {
        weft_trace::replay::serve(&self.spec).map_err(|error| Failure::new("replay-worker", error))?;
        Ok(0)
    }
}
