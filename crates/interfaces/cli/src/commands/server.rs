//! `weft server`: all targets of a server at once.

use super::session::Weft;
use super::target;
use crate::failure::Failure;
use clap::{Args, Subcommand};
use std::path::PathBuf;
use weft_config::Server as Entry;
use weft_core::{TargetId, TargetState};
use weft_wire::meta::TargetChange;

const AFTER: &str = "\
A server joins and leaves with its targets. To add one: add it and its targets to the end of the cluster file on all
hosts, restart the metadata server, run `weft server add NAME`, and start the new server. To remove one: drain its
targets with `weft target drain`, run `weft server remove NAME`, stop all servers, remove it from the cluster file on
all hosts, and start the others.

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
    /// Let blank directories become the targets of a server of the cluster file
    Add {
        /// Name of the server in the cluster file
        server: String,
    },
    /// Remove all targets of a server from the cluster for good; they must be drained first
    Remove {
        /// Name of the server in the cluster file
        server: String,
    },
}

impl Server {
    /// Runs the command.
    pub fn run(self, file: Option<PathBuf>) -> Result<u8, Failure> {
        let weft = Weft::open(file)?;
        let (name, change) = match &self.command {
            Command::Add { server } => (server, TargetChange::Add),
            Command::Remove { server } => (server, TargetChange::Remove),
        };
        let server = find(&weft, name)?;
        let known = target::records(&weft)?;
        let state = |id: TargetId| known.iter().find(|record| record.target == id).map(|record| record.state);
        if change == TargetChange::Remove && server.metadata.is_some() {
            return Err(Failure::new(format!("server {name}"), "it has the metadata of the cluster"));
        }
        let mut done = 0;
        for found in &server.targets {
            let is_done = match change {
                TargetChange::Add => state(found.id).is_some_and(|state| state != TargetState::Joining),
                _ => state(found.id).is_none_or(|state| state == TargetState::Retired),
            };
            if !is_done {
                target::change(&weft, found.id, change)?;
                done += 1;
            }
        }
        match change {
            TargetChange::Add => outln!("{done} targets of server {name} may join: start it (again)"),
            _ => outln!(
                "{done} targets of server {name} are removed: stop all servers, then remove it from the \
                cluster file on all hosts"
            ),
        }
        Ok(0)
    }
}

fn find<'a>(weft: &'a Weft, name: &str) -> Result<&'a Entry, Failure> {
    weft.cluster.server(name).map(|(_, server)| server).ok_or_else(|| {
        let file = weft.cluster.file.display();
        Failure::misuse(format!("server {name:?}"), format!("{file} does not name it"))
            .remedy("name it there first, with its targets, on all hosts")
    })
}
