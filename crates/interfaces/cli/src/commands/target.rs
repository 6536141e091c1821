//! `weft target`: lets targets join, move and leave the cluster.

mod drain;

use super::session::{Weft, why};
use crate::failure::Failure;
use crate::table::Table;
use clap::{Args, Subcommand};
use std::path::PathBuf;
use weft_core::{ByteLen, TargetId};
use weft_env::real::block_on;
use weft_wire::meta::{TargetChange, TargetRecord};

const AFTER: &str = "\
A target is one directory on one disk. The metadata server records the disk that joined as each target, and data
servers use no other one: at its start, a server refuses a blank or missing directory, or one of another cluster.
`weft status` shows the reason. A target's number comes from the cluster file of its server and is never used for two
disks at a time.

Only administrators may change the record: root and the user that runs the servers, on the servers' hosts, and holders
of an administrator's key (`weft key admin`).

`drain` moves the data of all files to other targets of the same class while programs use them. Each file keeps its
stripe size and, if there are enough targets, its stripe count. After a signal or a crash, the same command continues.
A drained target can be removed or get a new disk. A target whose disk is dead cannot be drained: `replace
--data-lost` gives up its data, and reads of files with data there fail with EIO.

Exit codes:
  0    success
  1    failure; with drain: some files still have data there
  2    wrong arguments, cluster file or key
  130  drain was stopped by a signal

Examples:
  weft target list
  weft target drain --rate 100M 3
  weft target remove 3       after the drain; then take it out of the cluster file of its server
  weft target replace 3      after the drain, or with --data-lost: a blank disk may become target 3
  weft target add 7          lets a server whose cluster file names target 7 format its directory, at its next start
  weft target accept 3       use target 3 after an older copy of it, or of the metadata, was restored";

/// Shows and changes the targets on record.
#[derive(Args)]
#[command(after_long_help = AFTER)]
pub struct Target {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Show the targets on record
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Let a blank directory become a new target
    Add {
        /// Numbers of targets
        #[arg(required = true, value_name = "TARGET")]
        targets: Vec<u32>,
    },
    /// Use a target after an older copy of it, or of the metadata, was restored
    Accept {
        /// Numbers of targets
        #[arg(required_unless_present = "all", value_name = "TARGET")]
        targets: Vec<u32>,
        /// All targets on record, needed after the metadata was restored
        #[arg(long, conflicts_with = "targets")]
        all: bool,
    },
    /// Move all data to other targets, and place no new files there from now on
    Drain(Drain),
    /// Place new files on drained targets again
    Activate {
        /// Numbers of targets
        #[arg(required = true, value_name = "TARGET")]
        targets: Vec<u32>,
    },
    /// Let a blank disk replace a target's disk
    Replace {
        /// Number of the target
        #[arg(value_name = "TARGET")]
        target: u32,
        /// The disk is dead: files with data on it lose that data
        #[arg(long)]
        data_lost: bool,
    },
    /// Remove drained targets from the cluster for good
    Remove {
        /// Numbers of targets
        #[arg(required = true, value_name = "TARGET")]
        targets: Vec<u32>,
    },
}

/// Moves all data off some targets.
#[derive(Args)]
struct Drain {
    /// At most this many bytes per second; K, M, G are powers of 1024
    #[arg(long, value_name = "SIZE", value_parser = super::rate)]
    rate: Option<ByteLen>,
    /// Print each file that was moved
    #[arg(short = 'v', long, conflicts_with = "quiet")]
    verbose: bool,
    /// Print neither progress nor a summary
    #[arg(short = 'q', long)]
    quiet: bool,
    /// Numbers of targets
    #[arg(required = true, value_name = "TARGET")]
    targets: Vec<u32>,
}

impl Target {
    /// Runs the command.
    pub fn run(self, file: Option<PathBuf>) -> Result<u8, Failure> {
        let weft = match &self.command {
            Command::Drain(_) => Weft::open_for_transfer(file)?,
            _ => Weft::open(file)?,
        };
        match self.command {
            Command::List { json } => list(&weft, json)?,
            Command::Add { targets } => {
                for target in targets {
                    change(&weft, TargetId(target), TargetChange::Add)?;
                    outln!(
                        "target {target} may join: add it to the cluster file of its server, create its directory, and start that \
                         server (again), which formats it"
                    );
                }
            }
            Command::Accept { targets, all } => {
                let known = if all { records(&weft)? } else { Vec::new() };
                let all = known.iter().map(|record| record.target.0);
                for target in targets.into_iter().chain(all) {
                    change(&weft, TargetId(target), TargetChange::Accept)?;
                    outln!("target {target} is accepted once: start its server again, then run `weft fsck`");
                }
            }
            Command::Drain(requested) => {
                let targets: Vec<_> = requested.targets.iter().copied().map(TargetId).collect();
                return drain::run(&weft, &targets, requested.rate, requested.quiet, requested.verbose);
            }
            Command::Activate { targets } => {
                for target in targets {
                    change(&weft, TargetId(target), TargetChange::Activate)?;
                    outln!("target {target} takes new files");
                }
            }
            Command::Replace { target, data_lost } => {
                change(&weft, TargetId(target), TargetChange::Replace { data_lost })?;
                outln!(
                    "target {target} may get a new disk: mount a blank one there, and start its server (again)"
                );
            }
            Command::Remove { targets } => {
                for target in targets {
                    change(&weft, TargetId(target), TargetChange::Remove)?;
                    outln!(
                        "target {target} is removed: take it out of the cluster file of its server when convenient"
                    );
                }
            }
        }
        Ok(0)
    }
}

/// Returns the targets on record.
pub fn records(weft: &Weft) -> Result<Vec<TargetRecord>, Failure> {
    let found = block_on(weft.client.targets());
    Ok(found.map_err(|error| Failure::new("targets on record", why(&error)))?.1)
}

/// Changes the state of a target on record.
pub fn change(weft: &Weft, target: TargetId, change: TargetChange) -> Result<Vec<TargetRecord>, Failure> {
    block_on(weft.client.change_target(target, change))
        .map_err(|error| Failure::new(format!("target {}", target.0), why(&error)))
}

fn list(weft: &Weft, json: bool) -> Result<(), Failure> {
    let (cluster, records) =
        block_on(weft.client.targets()).map_err(|error| Failure::new("targets on record", why(&error)))?;
    if json {
        outln!("{:#}", serde_json::json!({ "cluster": cluster, "targets": records }));
        return Ok(());
    }
    outln!("cluster {} {cluster}\n", weft.cluster.name);
    let mut table = Table::new(["TARGET", "STATE", "SERVER", "CLASS", "DISK", "ATTACHES"]);
    let map = weft.cluster.map();
    for record in &records {
        let entry = map.targets.iter().find(|entry| entry.id == record.target);
        table.row([
            record.target.0.to_string(),
            record.state.word().into(),
            entry.map_or("-".into(), |entry| map.server(entry.server).name.clone()),
            entry.map_or("-".into(), |entry| entry.class.clone()),
            if record.uuid.is_none() { "-".into() } else { record.uuid.to_string() },
            record.attaches.to_string(),
        ]);
    }
    out!("{}", table.render());
    let unknown = map.targets.iter().filter(|entry| records.iter().all(|record| record.target != entry.id));
    for entry in unknown {
        outln!("target {} has not joined: `weft target add {0}`", entry.id.0);
    }
    Ok(())
}
