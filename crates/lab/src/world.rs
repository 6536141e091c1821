//! Where experiments run, and what is seen there.

use crate::experiment::Runs;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;
use toml::Table;
use weft_core::Nanos;
use weft_env::device::DeviceCounters;

/// Something that runs workloads on clusters.
pub trait World: Sync {
    /// Checks that both can be read, without running them.
    fn check(&self, cluster: &Table, workload: &Table) -> Result<(), String>;

    /// Runs one.
    fn run(&self, cluster: &Table, workload: &Table, runs: Runs, seed: u64) -> Result<Observation, String>;
}

/// What was seen of one run.
#[derive(Clone, Debug, Default)]
pub struct Observation {
    /// From the first operation of any process to the last end, or until everything was on the disks.
    pub elapsed: Nanos,
    /// The part of it after the last process' end.
    pub drain: Nanos,
    /// Phases, in the order of their first beginning.
    pub phases: Vec<Phase>,
    /// The disks.
    pub disks: Vec<Disk>,
    /// What the SSDs beside them did; `None` where there are none.
    pub ssd: Option<Ssd>,
    /// Processes.
    pub ranks: u32,
    /// Changes with anything that happened in the run.
    pub event_hash: u64,
    /// Operations that asked a server for something.
    pub requests: u64,
    /// How long the run took its host.
    pub wall: Duration,
}

/// A phase of a run.
#[derive(Clone, Debug, Default)]
pub struct Phase {
    /// Its name.
    pub name: String,
    /// From its first operation to its last end.
    pub elapsed: Nanos,
    /// What was done, by the name of the operation.
    pub kinds: BTreeMap<String, Kind>,
}

/// Operations of one kind.
#[derive(Clone, Copy, Debug, Default)]
pub struct Kind {
    /// How many.
    pub ops: u64,
    /// Payload bytes.
    pub bytes: u64,
    /// Time of all of these together.
    pub latency: Nanos,
}

/// A disk, after a run.
#[derive(Clone, Debug, Default)]
pub struct Disk {
    /// What lies on it.
    pub name: String,
    /// Whether it is under a target, and not under metadata.
    pub is_data: bool,
    /// What reached it.
    pub counters: DeviceCounters,
}

/// What the SSDs beside all disks did in a run.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Ssd {
    /// Bytes that writes put there.
    pub written: u64,
    /// Bytes that reads took from there.
    pub read: u64,
    /// Bytes written back to the disks.
    pub written_back: u64,
    /// Bytes copied there after a read that missed them.
    pub preloaded: u64,
    /// Bytes moved to make room.
    pub moved: u64,
    /// Bytes that lie there alone at the end.
    pub dirty: u64,
    /// Pieces of larger requests that went there.
    pub fragments: u64,
    /// Small requests of one piece that did.
    pub random: u64,
    /// Reads that they served alone, in part, and not at all.
    pub hits: u64,
    /// In part.
    pub partial_hits: u64,
    /// Not at all.
    pub misses: u64,
}
