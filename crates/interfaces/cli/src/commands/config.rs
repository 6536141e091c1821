//! `weft config`.

use super::serve::runs_here;
use super::session::{Weft, why};
use crate::failure::Failure;
use crate::table::Table;
use clap::{Args, Subcommand};
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::time::Duration;
use weft_config::{Cluster, EXAMPLE};
use weft_core::Nanos;
use weft_env::real::block_on;
use weft_wire::ClusterMap;
use weft_wire::meta::TargetRecord;

/// Maximum wait for the metadata server's reply during a check.
const ASK_TIMEOUT: Duration = Duration::from_secs(2);

const AFTER: &str = "\
`check` also queries the metadata server of the file for the targets on record, for at most 2 s. It refuses a file
that omits a target which may hold data. If the metadata server cannot be reached, the output says so.

Exit codes:
  0    the file is valid
  2    the file is invalid, or wrong arguments

Examples:
  weft config example > cluster.toml   a commented file to start from
  weft config check cluster.toml       accepted, or refused with line and remedy
  weft config show                     the servers and targets of the cluster that commands use now";

/// Checks, shows or creates a cluster file.
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
    /// Show the cluster that commands use, as parsed
    Show,
}

impl Config {
    /// Runs the command.
    pub fn run(self, file: Option<PathBuf>) -> Result<u8, Failure> {
        match self.command {
            Command::Example => out!("{EXAMPLE}"),
            Command::Check { file: named } => {
                let cluster = super::load(named.or(file))?;
                let targets = cluster.servers.iter().map(|server| server.targets.len()).sum::<usize>();
                let (file, servers) = (cluster.file.display().to_string(), cluster.servers.len());
                let name = cluster.name.clone();
                let unasked = compare(cluster)?;
                outln!("OK: {file}: cluster {name}, {servers} servers, {targets} targets");
                if let Some(why) = unasked {
                    outln!("not compared with the targets on record: {why}");
                }
            }
            Command::Show => show(&super::load(file)?),
        }
        Ok(0)
    }
}

/// Compares a cluster file with the targets on record. Returns the reason if the metadata server cannot be reached.
///
/// # Errors
/// Fails if the file omits a target that may hold data.
fn compare(cluster: Cluster) -> Result<Option<String>, Failure> {
    let file = cluster.file.display().to_string();
    let named: Vec<_> =
        cluster.servers.iter().flat_map(|server| &server.targets).map(|target| target.id).collect();
    let here = cluster.servers.iter().filter(|server| runs_here(server));
    let here: Vec<_> = here.map(|server| server.name.clone()).collect();
    let (sender, receiver) = mpsc::channel();
    // In a thread, because name resolution has no timeout.
    std::thread::spawn(move || sender.send(records(cluster)));
    let (records, map) = match receiver.recv_timeout(ASK_TIMEOUT) {
        Ok(Ok(found)) => found,
        Ok(Err(why)) => return Ok(Some(why)),
        Err(_) => {
            let limit = ASK_TIMEOUT.as_secs();
            return Ok(Some(format!("the metadata server does not answer within {limit} s")));
        }
    };
    // The file need not name the targets of servers on other hosts.
    let is_here = |target| {
        let server = map.server_of(target).map(|server| &map.server(server).name);
        server.is_some_and(|server| here.contains(server))
    };
    let omitted =
        records.iter().filter(|record| record.state.may_hold_data(record.uuid) && is_here(record.target));
    let omitted = omitted.filter(|record| !named.contains(&record.target));
    let omitted: Vec<_> = omitted.map(|record| record.target.0.to_string()).collect();
    if omitted.is_empty() {
        return Ok(None);
    }
    let why = format!("it omits target {}, which joined this cluster and may hold data", omitted.join(", "));
    let remedy = "add it again; to remove a target, run `weft target drain` and `weft target remove` first";
    Err(Failure::misuse(file, why).remedy(remedy))
}

/// Returns the targets on record, and the cluster map.
fn records(cluster: Cluster) -> Result<(Vec<TargetRecord>, Arc<ClusterMap>), String> {
    weft_client::set_log(|_| ());
    let limit = Nanos::from_s(ASK_TIMEOUT.as_secs());
    let weft = Weft::of(cluster, |options| {
        options.connect_timeout = options.connect_timeout.min(limit);
        options.request_timeout = options.request_timeout.min(limit);
        options.retry_for = Nanos(0);
    });
    let weft = weft.map_err(|failure| failure.text().to_owned())?;
    let records = block_on(weft.client.targets()).map_err(|error| why(&error))?.1;
    Ok((records, weft.client.map()))
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
                target.module.name().into(),
                target.path.display().to_string(),
            ]);
        }
    }
    out!("{}", table.render());
    for (target, capacity) in cluster.capacities() {
        let capacity = weft_config::format_size(capacity);
        outln!("layouts may reserve {capacity} on {target}");
    }
    for server in &cluster.servers {
        if let Some(part) = server.sample {
            outln!("{} keeps samples of 1/{part} of each client's time and grants no leases", server.name);
        }
    }
}
