//! `weft server`: lets servers join and leave the cluster.

use super::session::{Weft, why};
use super::target;
use crate::failure::Failure;
use clap::{Args, Subcommand};
use std::path::PathBuf;
use weft_core::TargetState;
use weft_env::real::block_on;
use weft_wire::cluster::ServerChange;
use weft_wire::meta::TargetChange;

const AFTER: &str = "\
A server joins and leaves with its targets, while programs run. To add one: run `weft server add NAME`, write a cluster
file on the new host that has the sections of the metadata server and of the new server, and start it. To remove one:
drain its targets with `weft target drain`, run `weft server remove NAME`, and stop it. To move one to another host or
address: stop it, correct its address in the cluster file on its host, and start it there.

The metadata server keeps servers, addresses and targets. Programs and mounts learn of changes from it, whatever their
cluster files say.

Examples:
  weft server add node3
  weft server remove node1";

/// Lets the targets of a server join or leave.
#[derive(Args)]
#[command(after_long_help = AFTER)]
pub struct Server {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Let a server start, and its blank directories become targets
    Add {
        /// Name of the server in its cluster file
        server: String,
    },
    /// Remove a server and all its targets from the cluster; the targets must be drained first
    Remove {
        /// Name of the server
        server: String,
    },
}

impl Server {
    /// Runs the command.
    pub fn run(self, file: Option<PathBuf>) -> Result<u8, Failure> {
        let weft = Weft::open(file)?;
        match &self.command {
            Command::Add { server } => {
                change(&weft, server, ServerChange::Add)?;
                outln!(
                    "server {server} may join with its targets: start it (again) with `weft serve {server}`"
                );
            }
            Command::Remove { server } => {
                remove_targets(&weft, server)?;
                change(&weft, server, ServerChange::Remove)?;
                outln!(
                    "server {server} is removed: stop it, and take it out of cluster files when convenient"
                );
            }
        }
        Ok(0)
    }
}

fn change(weft: &Weft, name: &str, change: ServerChange) -> Result<(), Failure> {
    let changed = block_on(weft.client.change_server(name.to_owned(), change));
    changed.map(drop).map_err(|error| Failure::new(format!("server {name}"), why(&error)))
}

/// Removes the targets of a server, which must not hold data.
fn remove_targets(weft: &Weft, name: &str) -> Result<(), Failure> {
    let Some((_, server)) = weft.cluster.server(name) else { return Ok(()) };
    if server.metadata.is_some() {
        return Err(Failure::new(format!("server {name}"), "it has the metadata of the cluster"));
    }
    let known = target::records(weft)?;
    for found in &server.targets {
        let record = known.iter().find(|record| record.target == found.id);
        if record.is_some_and(|record| record.state != TargetState::Retired) {
            target::change(weft, found.id, TargetChange::Remove)?;
        }
    }
    Ok(())
}
