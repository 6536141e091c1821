//! `weft upgrade`: raises the feature level of the cluster after all servers have a later version of Weft.

use super::session::{Weft, why};
use crate::failure::Failure;
use crate::table::Table;
use clap::Args;
use serde_json::json;
use std::path::PathBuf;
use weft_env::real::block_on;
use weft_wire::Level;
use weft_wire::meta::ClusterLevels;

const AFTER: &str = "\
A version of Weft works with the one before it, so hosts are upgraded one after the other while programs run: stop a
server, install the new version, start the server. While the cluster keeps its feature level, a server can also return to
the earlier version. This command ends that: from then on the cluster may store forms that only the new version knows, and
servers of the earlier version do not start any more. Clients of the earlier version go on.

Examples:
  weft upgrade --check
  weft upgrade";

/// Raises the feature level of the cluster.
#[derive(Args)]
#[command(after_long_help = AFTER)]
pub struct Upgrade {
    /// Show the levels of the cluster and its servers, and change nothing
    #[arg(long)]
    check: bool,
    /// Raise to this level instead of the latest one that all servers know
    #[arg(long, value_name = "LEVEL", conflicts_with = "check")]
    to: Option<u8>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Upgrade {
    /// Runs the command.
    pub fn run(self, file: Option<PathBuf>) -> Result<u8, Failure> {
        let weft = Weft::open(file)?;
        let failed = |error: weft_client::Error| Failure::said(why(&error));
        let before = block_on(weft.client.levels()).map_err(failed)?;
        let common = common(&before);
        let mut after = before.clone();
        if !self.check {
            let to = self.to.map_or(common, Level);
            after = block_on(weft.client.raise_level(to)).map_err(failed)?;
        }
        if self.json {
            outln!("{:#}", as_json(&after));
            return Ok(0);
        }
        if self.check {
            print_levels(&before);
        }
        match (after.cluster > before.cluster, self.check) {
            (true, _) => outln!(
                "the cluster has level {} now, before level {}: servers of earlier versions do not start any more",
                after.cluster,
                before.cluster
            ),
            (false, true) if common > before.cluster => {
                outln!(
                    "the cluster has level {}, and all servers know level {common}: `weft upgrade` raises it",
                    before.cluster
                );
            }
            (false, _) if common > after.cluster => outln!("the cluster has level {}", after.cluster),
            (false, _) => {
                outln!("the cluster has level {}, the latest that all servers know", after.cluster);
                let behind = behind(&after);
                if !behind.is_empty() {
                    outln!("servers with an earlier version of Weft: {}", behind.join(", "));
                }
            }
        }
        Ok(0)
    }
}

/// Returns the latest level that all servers know.
fn common(levels: &ClusterLevels) -> Level {
    let servers = levels.servers.iter().map(|(_, latest)| *latest);
    servers.fold(levels.known.latest, Level::min).max(levels.cluster)
}

/// Returns the names of servers that know fewer levels than others.
fn behind(levels: &ClusterLevels) -> Vec<&str> {
    let latest = levels.servers.iter().map(|(_, latest)| *latest).fold(levels.known.latest, Level::max);
    levels.servers.iter().filter(|(_, known)| *known < latest).map(|(name, _)| name.as_str()).collect()
}

fn as_json(levels: &ClusterLevels) -> serde_json::Value {
    let servers =
        levels.servers.iter().map(|(name, latest)| json!({ "name": name, "latest_level": latest.0 }));
    json!({
        "level": levels.cluster.0,
        "latest_common_level": common(levels).0,
        "servers": servers.collect::<Vec<_>>(),
    })
}

fn print_levels(levels: &ClusterLevels) {
    let mut table = Table::new(["SERVER", "KNOWS LEVEL"]);
    for (name, latest) in &levels.servers {
        table.row([name.clone(), latest.to_string()]);
    }
    out!("{}", table.render());
}
