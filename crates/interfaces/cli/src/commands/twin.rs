//! `weft twin`: runs the real client and servers on a simulated cluster.

pub mod cluster;
mod run;
mod search;
mod speed;

use crate::failure::Failure;
use clap::{Args, Subcommand};

const AFTER: &str = "\
The twin runs the client and server code of this program under virtual time, on models of disks and networks. Equal
seeds give equal events. See docs/guide/twin-and-lab.md.";

/// Runs client and servers on a simulated cluster.
#[derive(Args)]
#[command(after_long_help = AFTER)]
pub struct Twin {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Predict the performance of a workload on a cluster
    Run(run::Run),
    /// Print the default cluster as TOML, as a start for a description
    Example,
    /// Measure the speed of the simulation
    Speed(speed::Speed),
    /// Look for broken promises under random faults
    Search(search::Search),
}

impl Twin {
    /// Runs the command.
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
