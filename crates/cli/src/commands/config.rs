//! `weft config`.

use crate::failure::Failure;
use crate::table::Table;
use clap::{Args, Subcommand};
use std::path::PathBuf;
use weft_config::{Cluster, EXAMPLE};

const AFTER: &str = "\
Examples:
  weft config example > cluster.toml   a commented file to start from
  weft config check cluster.toml       refused with line and remedy, or said to be right
  weft config show                     the servers and targets of the cluster that commands use now";

/// Checks, shows or begins a cluster file.
#[derive(Args)]
#[command(after_long_help = AFTER)]
pub struct Config {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Print a commented cluster file
    Example,
    /// Check a cluster file
    Check {
        /// The file, instead of the one that commands use
        file: Option<PathBuf>,
    },
    /// Show the cluster that commands use, as understood
    Show,
}

impl Config {
    /// Does it.
    pub fn run(self, file: Option<PathBuf>) -> Result<u8, Failure> {
        match self.command {
            Command::Example => out!("{EXAMPLE}"),
            Command::Check { file: named } => {
                let cluster = super::load(named.or(file))?;
                let targets = cluster.servers.iter().map(|server| server.targets.len()).sum::<usize>();
                let (file, servers) = (cluster.file.display(), cluster.servers.len());
                outln!("{file}: right: cluster {}, {servers} servers, {targets} targets", cluster.name);
            }
            Command::Show => show(&super::load(file)?),
        }
        Ok(0)
    }
}

fn show(cluster: &Cluster) {
    outln!("cluster  {}", cluster.name);
    outln!("file     {}", cluster.file.display());
    outln!("mount    {}", cluster.mount.display());
    outln!("key      {}", cluster.key_file.display());
    outln!("layout   stripe size {}", weft_config::format_size(cluster.placement.stripe_size));
    outln!();
    let mut table = Table::new(["server", "address", "role", "target", "class", "module", "path"]);
    for server in &cluster.servers {
        let addresses = server.addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        if let Some(metadata) = &server.metadata {
            let path = metadata.path.display().to_string();
            let cells = ["metadata".into(), "-".into(), "-".into(), "-".into(), path];
            let [role, target, class, module, path] = cells;
            table.row([server.name.clone(), addresses.clone(), role, target, class, module, path]);
        }
        for target in &server.targets {
            table.row([
                server.name.clone(),
                addresses.clone(),
                "data".into(),
                target.id.0.to_string(),
                target.class.clone(),
                target.module.word().into(),
                target.path.display().to_string(),
            ]);
        }
    }
    out!("{}", table.render());
    for (target, room) in cluster.rooms() {
        let room = weft_config::format_size(room);
        outln!("parts of layouts that have an end may promise {room} on {target}");
    }
    for server in &cluster.servers {
        if let Some(part) = server.sample {
            outln!(
                "{} keeps samples of 1/{part} of each client's time and lends no descriptors",
                server.name
            );
        }
    }
}
