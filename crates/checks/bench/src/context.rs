//! The cluster of a measurement: paths, connections, and the load of its servers.

use std::path::{Path, PathBuf};
use weft_client::Client;
use weft_core::ServerId;
use weft_env::real::{RealEnv, block_on};

/// Paths and devices of the measured cluster.
#[derive(Clone, Debug)]
pub struct Context {
    /// The cluster file that the ranks use.
    pub cluster_file: PathBuf,
    /// Path of the preload library.
    pub preload: PathBuf,
    /// Prefix of paths that the preload library serves, such as `/weft`.
    pub prefix: String,
    /// Descriptions of the cluster's emulated devices.
    pub emulated: Vec<String>,
}

/// Load of all servers together.
#[derive(Clone, Copy, Debug, Default)]
pub struct ServerLoad {
    /// Processor time in seconds, only of servers on this host.
    pub cpu_s: f64,
    /// Requests to data servers, and changes made by the metadata server.
    pub requests: u64,
}

/// Counters of all servers at one time.
pub struct LoadSnapshot {
    pids: Vec<u32>,
    load: ServerLoad,
}

impl ServerLoad {
    /// Adds another load.
    pub fn add(&mut self, more: &Self) {
        self.cpu_s += more.cpu_s;
        self.requests += more.requests;
    }

    /// Reads the counters of all servers.
    pub fn snapshot(client: &Client<RealEnv>) -> LoadSnapshot {
        let (pids, requests) = requests(client);
        LoadSnapshot { load: Self { cpu_s: cpu_s(&pids), requests }, pids }
    }
}

impl LoadSnapshot {
    /// Load since the snapshot, without the requests that read the counters.
    pub fn load_since(&self, client: &Client<RealEnv>) -> ServerLoad {
        let cpu_s = cpu_s(&self.pids) - self.load.cpu_s;
        ServerLoad { cpu_s, requests: requests(client).1.saturating_sub(self.load.requests) }
    }
}

/// Creates a client of the cluster in `file`. `transport` is `auto`, `descriptor` or `socket`.
///
/// # Errors
/// Fails if the cluster file is invalid or the transport is unknown.
pub fn connect(file: &Path, transport: &str) -> Result<Client<RealEnv>, String> {
    let cluster = weft_config::Cluster::load(file).map_err(|error| error.to_string())?;
    let mut options = cluster.client_options();
    options.transport = match transport {
        "auto" => weft_client::Transport::Auto,
        "descriptor" => weft_client::Transport::Descriptor,
        "socket" => weft_client::Transport::Socket,
        other => return Err(format!("unknown transport {other}")),
    };
    Ok(Client::new(RealEnv::new(), cluster.map(), options, cluster.credentials().map_err(|e| e.to_string())?))
}

/// Process ids of all servers that answer, and their total number of requests.
fn requests(client: &Client<RealEnv>) -> (Vec<u32>, u64) {
    let (mut pids, mut requests) = (Vec::new(), 0);
    for index in 0..client.map().servers.len() {
        let Ok(status) = block_on(client.status(ServerId(index as u32))) else { continue };
        pids.push(status.pid);
        requests += status.targets.iter().map(|target| target.requests).sum::<u64>();
        requests += status.metadata.as_ref().map_or(0, |metadata| metadata.requests);
    }
    (pids, requests)
}

/// Writes all data on SSDs beside disks back to the disks, on all targets in parallel. Returns the time in seconds.
///
/// # Errors
/// Fails if a target cannot be written back.
pub fn flush(client: &Client<RealEnv>) -> std::io::Result<f64> {
    let began = std::time::Instant::now();
    let flush = |target| block_on(client.flush_target(target, |_, _| ()));
    std::thread::scope(|scope| {
        let map = client.map();
        let targets = map.targets.iter().map(|target| target.id);
        let all: Vec<_> = targets.map(|target| scope.spawn(move || flush(target))).collect();
        let ended = all.into_iter().map(|one| one.join().expect("a flush does not panic"));
        ended.collect::<Result<Vec<_>, _>>()
    })
    .map_err(|error| std::io::Error::other(error.to_string()))?;
    Ok(began.elapsed().as_secs_f64())
}

/// Total processor time of processes on this host, in seconds.
fn cpu_s(pids: &[u32]) -> f64 {
    let of_one = |pid: u32| {
        let (mut clock, mut time) = (0, libc::timespec { tv_sec: 0, tv_nsec: 0 });
        // SAFETY: both calls only write their results; an unknown process is an error.
        let known = unsafe {
            libc::clock_getcpuclockid(pid as libc::pid_t, &raw mut clock) == 0
                && libc::clock_gettime(clock, &raw mut time) == 0
        };
        if known { time.tv_sec as f64 + time.tv_nsec as f64 / 1e9 } else { 0.0 }
    };
    pids.iter().copied().map(of_one).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_grows_while_a_process_works() {
        let own = [std::process::id()];
        let (before, began) = (cpu_s(&own), std::time::Instant::now());
        while began.elapsed().as_millis() < 50 {
            std::hint::black_box(before);
        }
        let took = cpu_s(&own) - before;
        assert!(took > 0.0, "{took}");
        assert!(cpu_s(&[1 << 23]) < 1e-9, "no such process");
    }
}
