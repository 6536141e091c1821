//! What a measurement needs to know of the cluster under it.

use std::path::{Path, PathBuf};
use weft_client::Client;
use weft_core::ServerId;
use weft_env::real::{RealEnv, block_on};

/// Where the parts of the run are.
#[derive(Clone, Debug)]
pub struct Context {
    /// The cluster file that the ranks are to use.
    pub cluster_file: PathBuf,
    /// The preload library.
    pub preload: PathBuf,
    /// The prefix of paths that the preload library serves, such as `/weft`.
    pub prefix: String,
    /// What of the cluster is emulated, one phrase for each device.
    pub emulated: Vec<String>,
}

/// What all servers together have done so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct ServerLoad {
    /// Processor time, in seconds; only of servers on this machine.
    pub cpu_s: f64,
    /// Requests to data servers and mutations of the metadata server.
    pub requests: u64,
}

/// A client of the cluster in `file`, by `transport` (`auto`, `descriptor`, `socket`).
///
/// # Errors
/// A bad cluster file.
pub fn connect(file: &Path, transport: &str) -> Result<Client<RealEnv>, String> {
    let cluster = weft_config::Cluster::load(file).map_err(|error| error.to_string())?;
    let mut options = cluster.client_options();
    options.transport = match transport {
        "auto" => weft_client::Transport::Auto,
        "descriptor" => weft_client::Transport::Descriptor,
        "socket" => weft_client::Transport::Socket,
        other => return Err(format!("no such transport: {other}")),
    };
    Ok(Client::new(RealEnv::new(), cluster.map(), options, cluster.credentials().map_err(|e| e.to_string())?))
}

/// Asks every server what it has done.
pub fn server_load(client: &Client<RealEnv>) -> ServerLoad {
    let mut load = ServerLoad::default();
    for index in 0..client.map().servers.len() {
        let Ok(status) = block_on(client.status(ServerId(index as u32))) else { continue };
        load.cpu_s += process_cpu_s(status.pid).unwrap_or(0.0);
        load.requests += status.targets.iter().map(|target| target.requests).sum::<u64>();
        load.requests += status.metadata.as_ref().map_or(0, |metadata| metadata.requests);
    }
    load
}

/// Has everything that lies on SSDs beside disks written to the disks, on all targets at the same time; in seconds how long
/// that took.
///
/// # Errors
/// When a target cannot be written back.
pub fn flush(client: &Client<RealEnv>) -> std::io::Result<f64> {
    let began = std::time::Instant::now();
    let flush = |target| block_on(client.flush_target(target, |_, _| ()));
    std::thread::scope(|scope| {
        let targets = client.map().targets.iter().map(|target| target.id);
        let all: Vec<_> = targets.map(|target| scope.spawn(move || flush(target))).collect();
        let ended = all.into_iter().map(|one| one.join().expect("it returns its error"));
        ended.collect::<Result<Vec<_>, _>>()
    })
    .map_err(|error| std::io::Error::other(error.to_string()))?;
    Ok(began.elapsed().as_secs_f64())
}

/// Processor time of a process of this machine so far, in seconds.
fn process_cpu_s(pid: u32) -> Option<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything; fields are counted after it.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks: u64 = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
    // SAFETY: sysconf has no preconditions.
    let per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    Some(ticks as f64 / per_second as f64)
}
