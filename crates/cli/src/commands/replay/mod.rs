//! `weft replay`: does again what a traced program did, on real files or on the twin.

mod real;
mod rows;
mod twin;

use super::trace::{Input, bar, tick};
use crate::failure::Failure;
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use weft_core::Nanos;
use weft_trace::prepared::{Options, Prepared, Timing};

const AFTER: &str = "\
Each rank of the trace does its operations in their order. Ranks wait for each other where the trace has barriers, or
where it shows that they did: nothing was under way, and then a rank used what another had made. Files get names of
their own (number and last part of the path) in a new directory below PATH, which is removed in the end. Files that the
program found are made first, with the size that its reads need.

PATH is any directory: a local one, one of a mount, or one under /weft, which the processes of the replay reach by the
preload library as under `weft run`. With --twin the same operations run on a simulated cluster; see docs/twin.md.

A trace of both levels is replayed at POSIX, what the file system saw, unless --level says otherwise.

Examples:
  weft replay app.darshan /weft
  weft replay app.darshan /scratch/me --verify --json
  weft replay app.wtrace /weft --speed 1                  with the program's own pauses
  weft replay app.darshan --twin cluster.toml
  weft replay counters-only.darshan /weft --reconstruct --ranks 32";

/// Does again what a traced program did.
#[derive(Args)]
#[command(after_long_help = AFTER)]
pub struct Replay {
    #[command(flatten)]
    input: Input,
    /// The directory to work in; it must be there
    #[arg(value_name = "PATH", required_unless_present = "twin", conflicts_with = "twin")]
    path: Option<PathBuf>,
    /// Run on a simulated cluster instead, described by this file
    #[arg(long, value_name = "CLUSTER.toml")]
    twin: Option<PathBuf>,
    /// Keep the pauses between operations, divided by this: 1 as they were, 2 half as long. Without it there are none
    #[arg(long, value_name = "FACTOR", value_parser = factor)]
    speed: Option<f64>,
    /// Operations at this level [default: posix if any move bytes]
    #[arg(long, value_name = "LEVEL")]
    level: Option<LevelArg>,
    /// Only files whose path has this in it
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// No files whose path has this in it
    #[arg(long, value_name = "TEXT")]
    without: Option<String>,
    /// Only the first ranks, so many
    #[arg(long, value_name = "COUNT")]
    ranks: Option<u32>,
    /// Only what begins before this time of the trace
    #[arg(long, value_name = "TIME", value_parser = super::duration)]
    until: Option<Nanos>,
    /// Ranks never wait for each other
    #[arg(long)]
    no_barriers: bool,
    /// Stamp payloads, compare what is read, and in the end all that was written
    #[arg(long, conflicts_with = "twin")]
    verify: bool,
    /// Most processes; ranks share them when there are more
    #[arg(long, value_name = "COUNT", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1024))]
    processes: u32,
    /// Most threads of a process; ranks share them when there are more
    #[arg(long, value_name = "COUNT", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: u32,
    /// Leave the files where they are
    #[arg(long, conflicts_with = "twin")]
    keep: bool,
    /// Do not ask whether the files fit what is free
    #[arg(long, conflicts_with = "twin")]
    no_room_check: bool,
    /// Show so many files, those with the most bytes first
    #[arg(long, value_name = "COUNT", default_value_t = 10)]
    files: usize,
    /// One JSON object per line: a total, each kind of operation, each file
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
    /// Does it; the code to end with.
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

/// One process of a replay; started by `weft replay` alone.
#[derive(Args)]
pub struct ReplayWorker {
    /// What it is
    spec: String,
}

impl ReplayWorker {
    /// Works until its parent says that it is over.
    pub fn run(self) -> Result<u8, Failure> {
        weft_trace::replay::serve(&self.spec).map_err(|error| Failure::new("replay-worker", error))?;
        Ok(0)
    }
}
