//! `weft twin`: the same code on a simulated cluster.

pub mod cluster;
mod run;
mod search;
mod speed;

use crate::failure::Failure;
use clap::{Args, Subcommand};

const AFTER: &str = "\
The twin runs the client and the servers of this very program under virtual time, on models of disks and networks: the
same seed gives the same course of events. See docs/twin.md.";

/// Runs client and servers on a simulated cluster.
#[derive(Args)]
#[command(after_long_help = AFTER)]
pub struct Twin {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Predict what a workload does on a cluster
    Run(run::Run),
    /// Print the default cluster as TOML, to begin a description with
    Example,
    /// Measure how fast the simulation runs
    Speed(speed::Speed),
    /// Look for broken promises under random faults
    Search(search::Search),
}

impl Twin {
    /// Does it; the code to end with.
    pub fn run(self) -> Result<u8, Failure> {
        match self.command {
            Command::Run(run) => run.run(),
            Command::Example => example(),
            Command::Speed(speed) => speed.run(),
            Command::Search(search) => search.run(),
        }
    }
}

fn example() -> Result<u8, Failure> {
    let text = toml::to_string(&weft_twin::ClusterSpec::default());
    out!("{}", text.map_err(|error| Failure::new("twin example", error))?);
    Ok(0)
}
