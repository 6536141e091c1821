//! Interface of what runs experiments, and the observations it returns.

use crate::experiment::Runs;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;
use toml::Table;
use weft_core::Nanos;
use weft_env::device::DeviceCounters;

/// An environment that runs workloads on clusters.
pub trait World: Sync {
    /// Checks that both descriptions are valid, without running them.
    fn check(&self, cluster: &Table, workload: &Table) -> Result<(), String>;

    /// Runs a workload on a cluster.
    fn run(&self, cluster: &Table, workload: &Table, runs: Runs, seed: u64) -> Result<Observation, String>;
}

/// Observations of one run.
#[derive(Clone, Debug, Default)]
pub struct Observation {
    /// Time from the first operation of any process to the last end, or to the end of the drain.
    pub elapsed: Nanos,
    /// The part of `elapsed` after the end of the last process.
    pub drain: Nanos,
    /// Phases in the order of their start.
    pub phases: Vec<Phase>,
    /// The disks.
    pub disks: Vec<Disk>,
    /// Activity of the SSDs beside the disks. `None` without SSDs.
    pub ssd: Option<Ssd>,
    /// Number of processes.
    pub ranks: u32,
    /// Hash over all events.
    pub event_hash: u64,
    /// Number of operations that sent requests to a server.
    pub requests: u64,
    /// Most bytes of pages in the memory of one delegate. `None` without delegates.
    pub delegate_memory: Option<u64>,
    /// The replica that the requests went to. `None` without one.
    pub replica: Option<Replica>,
    /// Duration of the run on the host.
    pub wall: Duration,
}

/// Space of a replica.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Replica {
    /// Bytes of the file that are in the replica.
    pub bytes: u64,
    /// Bytes of the mapping from the file to the replica.
    pub mapping_bytes: u64,
}

/// A phase of a run.
#[derive(Clone, Debug, Default)]
pub struct Phase {
    /// Name of the phase.
    pub name: String,
    /// Time from the first operation to the last end.
    pub elapsed: Nanos,
    /// Operations by kind.
    pub kinds: BTreeMap<String, Kind>,
}

/// Operations of one kind.
#[derive(Clone, Copy, Debug, Default)]
pub struct Kind {
    /// Number of operations.
    pub ops: u64,
    /// Payload bytes.
    pub bytes: u64,
    /// Sum of the durations.
    pub latency: Nanos,
}

/// A disk after a run.
#[derive(Clone, Debug, Default)]
pub struct Disk {
    /// Server, class and profile.
    pub name: String,
    /// Number of its server.
    pub server: u32,
    /// Whether it belongs to a target, not to metadata.
    pub is_data: bool,
    /// Requests that reached it.
    pub counters: DeviceCounters,
}

/// Activity of all SSDs beside disks in a run.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Ssd {
    /// Bytes that writes put on the SSDs.
    pub written: u64,
    /// Bytes that reads took from the SSDs.
    pub read: u64,
    /// Bytes written back to the disks.
    pub written_back: u64,
    /// Bytes copied to the SSDs after a read that missed them.
    pub preloaded: u64,
    /// Bytes moved by compaction.
    pub moved: u64,
    /// Bytes only on the SSDs at the end.
    pub dirty: u64,
    /// Number of pieces of larger requests that went to the SSDs.
    pub fragments: u64,
    /// Number of small requests of one piece that went to the SSDs.
    pub random: u64,
    /// Number of reads served by the SSDs alone.
    pub hits: u64,
    /// Number of reads served partly by the SSDs.
    pub partial_hits: u64,
    /// Number of reads that missed the SSDs.
    pub misses: u64,
}
