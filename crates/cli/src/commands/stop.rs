//! `weft stop`.

use crate::embedded;
use crate::failure::Failure;
use clap::Args;
use std::path::PathBuf;
use weft_config::Cluster;

const AFTER: &str = "\
Servers end in order: requests that run are answered and everything is written. Files stay; the next `weft run`
starts the servers again. Servers on other hosts are not touched.

Examples:
  weft stop                        the embedded cluster, or the configured one's servers on this host
  weft stop --state /scratch/me    an embedded cluster in another place";

/// Stops the servers of the cluster that run on this machine.
#[derive(Args)]
#[command(after_long_help = AFTER)]
pub struct Stop {
    /// Where the embedded cluster keeps its state
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// End them at once, as a crash would (what fsync promised stays)
    #[arg(long)]
    kill: bool,
}

impl Stop {
    /// Stops them.
    pub fn run(self, file: Option<PathBuf>) -> Result<u8, Failure> {
        let cluster = match (self.state, file) {
            (Some(state), _) => Cluster::load(&embedded::state_dir(Some(state))?.join("cluster.toml"))?,
            (None, Some(file)) => Cluster::load(&file)?,
            (None, None) => Cluster::from_env()?,
        };
        let _lock = cluster.embedded.as_deref().map(embedded::lock).transpose()?;
        let stopped = embedded::stop_servers(&cluster, self.kill)?;
        match stopped.len() {
            0 => println!("no server of {} runs on this machine", cluster.name),
            _ => println!("stopped {}", stopped.join(", ")),
        }
        Ok(0)
    }
}
