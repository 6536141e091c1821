//! `weft twin`: the same code on a simulated cluster.

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
    /// Measure how fast the simulation runs
    Speed(speed::Speed),
    /// Look for broken promises under random faults
    Search(search::Search),
}

impl Twin {
    /// Does it; the code to end with.
    pub fn run(self) -> Result<u8, Failure> {
        match self.command {
            Command::Speed(speed) => speed.run(),
            Command::Search(search) => search.run(),
        }
    }
}
