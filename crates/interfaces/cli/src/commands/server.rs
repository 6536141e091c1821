//! `weft server`: lets servers join and leave the cluster.

use super::session::{Weft, why};
use super::target;
use crate::failure::Failure;
use crate::table::Table;
use clap::{Args, Subcommand};
use serde_json::json;
use std::path::PathBuf;
use weft_core::TargetState;
use weft_env::real::block_on;
use weft_wire::cluster::{DomainChange, ServerChange};
use weft_wire::meta::TargetChange;

const AFTER: &str = "\
A server joins and leaves with its targets, while programs run. To add one: run `weft server add NAME`, write a cluster
file on the new host that has the sections of the metadata server and of the new server, and start it. To remove one:
drain its targets with `weft target drain`, run `weft server remove NAME`, and stop it. To move one to another host or
address: stop it, correct its address in the cluster file on its host, and start it there.

The metadata server keeps servers, addresses and targets. Programs and mounts learn of changes from it, whatever their
cluster files say.

Examples:
  weft server list
  weft server add node3
  weft server set node3 --rack r2
  weft server remove node1";

/// Shows servers, and lets them join or leave with their targets.
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
    /// Show the servers on record
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Name the failure domain of a server: servers with the same host, or the same rack, may fail together
    Set {
        /// Name of the server
        server: String,
        /// Host; the host of its network address if it is not named, or named ''
        #[arg(long, required_unless_present = "rack")]
        host: Option<String>,
        /// Rack; '' for none
        #[arg(long)]
        rack: Option<String>,
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
            Command::List { json } => list(&weft, *json)?,
            Command::Set { server, host, rack } => {
                let change = DomainChange { host: host.clone(), rack: rack.clone() };
                let map = block_on(weft.client.set_domain(server.clone(), change))
                    .map_err(|error| Failure::new(format!("server {server}"), why(&error)))?;
                let domain = map.number_of(server).map(|number| map.domain_of(number)).unwrap_or_default();
                outln!("server {server} is on host {} in rack {}", domain.host, or_none(&domain.rack));
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

fn or_none(name: &str) -> &str {
    if name.is_empty() { "-" } else { name }
}

/// Shows the servers on record.
fn list(weft: &Weft, as_json: bool) -> Result<(), Failure> {
    let failed = |error: weft_client::Error| Failure::said(why(&error));
    let map = block_on(weft.client.fetch_map()).map_err(failed)?;
    let levels = block_on(weft.client.levels()).map_err(failed)?;
    let level =
        |name: &str| levels.servers.iter().find(|(known, _)| known == name).map(|(_, latest)| latest.0);
    let mut table = Table::new(["SERVER", "HOST", "RACK", "KNOWS LEVEL", "TARGETS", "ADDRESSES"]);
    let mut all = Vec::new();
    for (number, entry) in map.numbered() {
        let domain = map.domain_of(number);
        let targets = map.targets.iter().filter(|target| target.server == number).map(|target| target.id.0);
        let targets: Vec<u32> = targets.collect();
        let addresses: Vec<_> = entry.addresses.iter().map(ToString::to_string).collect();
        all.push(json!({
            "name": entry.name, "host": domain.host, "rack": domain.rack, "latest_level": level(&entry.name),
            "targets": targets, "addresses": addresses, "metadata": number == map.metadata,
        }));
        table.row([
            entry.name.clone(),
            domain.host.clone(),
            or_none(&domain.rack).to_owned(),
            level(&entry.name).map_or_else(|| "-".to_owned(), |latest| latest.to_string()),
            or_none(&targets.iter().map(u32::to_string).collect::<Vec<_>>().join(",")).to_owned(),
            addresses.join(" "),
        ]);
    }
    if as_json {
        outln!("{:#}", json!({ "level": levels.cluster.0, "servers": all }));
    } else {
        out!("{}", table.render());
    }
    Ok(())
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
