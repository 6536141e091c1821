//! Measures the cost of this machine's transport with servers that emulate nothing.

use super::play::play;
use super::real::RealCluster;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};
use weft_client::InodePath;
use weft_core::Nanos;
use weft_env::real::{RealEnv, block_on};
use weft_env::{Env, Notify};
use weft_models::NetworkSpec;
use weft_workload::{Workload, WorkloadSpec};

/// Number of pings measured, and number of pings before the measurement.
const PINGS: u32 = 2000;
const WARM_UP: u32 = 200;
/// Operations without payload of each process.
const STATS: u32 = 400;
/// Bytes that each process reads.
const READS: u32 = 24 << 20;

/// Cost of the path between client and server.
#[derive(Clone, Debug)]
pub struct Transport {
    /// Duration of a single request and reply without payload.
    pub ping: Duration,
    /// Processor time of a message when many are in flight.
    pub message: Duration,
    /// Payload rate of all processes together, in 10^6 bytes per second.
    pub mb_s: f64,
    /// Mean delay of wakeups when all processes wait as for an emulated disk. This delay of the host keeps real
    /// processes from staying in lockstep.
    pub late: Duration,
}

impl Transport {
    /// Measures the transport with this number of processes.
    pub fn measure(below: &Path, servers: u32, ranks: u32) -> Result<Self, String> {
        let failed = |error: io::Error| format!("servers for the ping: {error}");
        let mut cluster = RealCluster::start(below, servers, None).map_err(failed)?;
        let client = cluster.client();
        let root = InodePath::from_root(Vec::new(), true);
        let ping = |count: u32| -> Result<Duration, String> {
            let begin = Instant::now();
            for _ in 0..count {
                block_on(client.stat(&root)).map_err(|error| error.to_string())?;
            }
            Ok(begin.elapsed() / count)
        };
        ping(WARM_UP)?;
        let alone = ping(PINGS)?;
        let stats =
            workload(&format!("kind = \"mdtest\"\nranks = {ranks}\nfiles = {STATS}\nphases = [\"stat\"]"))?;
        let concurrent_stats = play(&mut cluster, &*stats)?;
        cluster.stop();
        let mut cluster = RealCluster::start(below, servers, None).map_err(failed)?;
        let reads = workload(&format!(
            "kind = \"ior\"\nranks = {ranks}\ntransfer = 65536\nper_rank = {READS}\naccess = \"read\""
        ))?;
        let moved = play(&mut cluster, &*reads)?;
        cluster.stop();
        // The twin runs all processes on one node, which sends and receives a message for each operation.
        let message = concurrent_stats / (ranks * STATS) / 2;
        Ok(Self {
            ping: alone,
            // A ping has four message ends, which take less than half of it.
            message: message.min(alone / 8),
            mb_s: f64::from(ranks) * f64::from(READS) / 1e6 / moved.as_secs_f64(),
            late: late(ranks),
        })
    }

    /// Returns the transport as a network of the twin.
    pub fn network(&self) -> NetworkSpec {
        let us = |time: Duration| time.as_secs_f64() * 1e6;
        NetworkSpec {
            name: "measured".into(),
            about: "the transport of this machine".into(),
            source: "measured in the same run".into(),
            // A ping is two messages with two ends each.
            latency_us: (us(self.ping) / 2.0 - 2.0 * us(self.message)).max(0.0),
            link_mb_s: self.mb_s,
            message_us: us(self.message),
            port_kib: 0,
            window_min: 65_536,
            timeout_ms: 0.0,
            local_latency_us: us(self.ping) / 2.0,
            local_mb_s: self.mb_s,
        }
    }
}

/// Measures [`Transport::late`].
fn late(threads: u32) -> Duration {
    const NAP: Nanos = Nanos(500_000);
    const NAPS: u64 = 200;
    // Sleep as clients of an emulated disk do.
    let sleeper = || {
        let env = RealEnv::new();
        let never = env.notify();
        let late = (0..NAPS).map(|_| {
            let at = Nanos(env.now().0 + NAP.0);
            block_on(env.wait_until(&never, never.epoch(), at));
            env.now().0 - at.0
        });
        Duration::from_nanos(late.sum::<u64>() / NAPS)
    };
    std::thread::scope(|scope| {
        let sleepers: Vec<_> = (0..threads).map(|_| scope.spawn(sleeper)).collect();
        let sum: Duration = sleepers.into_iter().map(|sleeper| sleeper.join().unwrap_or_default()).sum();
        sum / threads
    })
}

/// Builds a workload from its description.
pub fn workload(text: &str) -> Result<Box<dyn Workload>, String> {
    let spec: WorkloadSpec = toml::from_str(text).map_err(|error| error.to_string())?;
    spec.build().map_err(|error| error.to_string())
}
