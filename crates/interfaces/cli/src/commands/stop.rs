//! `weft stop`.

use super::serve::runs_here;
use super::session::{Weft, of_server};
use crate::embedded;
use crate::failure::Failure;
use clap::Args;
use std::path::PathBuf;
use weft_config::{Cluster, Server};
use weft_core::Nanos;
use weft_env::Address;
use weft_env::real::block_on;

const AFTER: &str = "\
Servers stop in order: running requests are answered and everything is written. Files stay, and the next `weft run`
starts the servers again. Servers on other hosts are not affected.

Examples:
  weft stop                        the embedded cluster, or the configured cluster's servers on this host
  weft stop --state /scratch/me    an embedded cluster at another place";

/// Stops the servers of the cluster that run on this machine.
#[derive(Args)]
#[command(after_long_help = AFTER)]
pub struct Stop {
    /// State directory of the embedded cluster
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Kill servers with Unix sockets at once, like a crash; synced data stays
    #[arg(long)]
    kill: bool,
}

impl Stop {
    /// Runs the command.
    pub fn run(self, file: Option<PathBuf>) -> Result<u8, Failure> {
        let cluster = match (self.state, file) {
            (Some(state), _) => Cluster::load(&embedded::state_dir(Some(state))?.join("cluster.toml"))?,
            (None, Some(file)) => Cluster::load(&file)?,
            (None, None) => Cluster::from_env()?,
        };
        let _lock = cluster.embedded.as_deref().map(embedded::lock).transpose()?;
        let mut stopped = embedded::stop_servers(&cluster, self.kill)?;
        stopped.extend(by_message(&cluster)?);
        match stopped.len() {
            0 => outln!("no server of {} runs on this machine", cluster.name),
            _ => outln!("stopped {}", stopped.join(", ")),
        }
        Ok(0)
    }
}

/// Stops the servers of this host without a Unix socket, whose process ids are unknown.
fn by_message(cluster: &Cluster) -> Result<Vec<String>, Failure> {
    let only_tcp =
        |server: &Server| !server.addresses.iter().any(|address| matches!(address, Address::Unix(_)));
    if !cluster.servers.iter().any(|server| only_tcp(server) && runs_here(server)) {
        return Ok(Vec::new());
    }
    let weft = Weft::of(cluster.clone(), |options| options.retry_for = Nanos(0))?;
    weft_client::set_log(|_| ()); // an absent server need not be stopped
    let mut stopped = Vec::new();
    for (id, server) in cluster.numbered().filter(|(_, server)| only_tcp(server) && runs_here(server)) {
        match block_on(weft.client.shutdown(id)) {
            Ok(()) => stopped.push(server.name.clone()),
            Err(weft_client::Error::Unreachable(_)) => {}
            Err(error) => return Err(of_server(&server.name, &error)),
        }
    }
    Ok(stopped)
}
