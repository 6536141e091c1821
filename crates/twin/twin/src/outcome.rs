//! Results of a run.

use crate::locking::{DelegatesOutcome, LockingOutcome};
use crate::spec::SpecError;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use weft_core::{Histogram, Nanos};
use weft_env::device::DeviceCounters;
use weft_wire::status::SsdStatus;

/// Result of a run. Equal clusters, workloads and seeds give equal outcomes.
#[derive(Clone, PartialEq, Debug)]
pub struct Outcome {
    /// Virtual time from the start of the first rank to the end of the last. With `drain` in
    /// [`RunOptions`](crate::RunOptions), until all written bytes were on the disks.
    pub elapsed: Nanos,
    /// The part of `elapsed` after the last rank ended.
    pub drain: Nanos,
    /// The phases by number. Operations before the first phase belong to a phase without a name.
    pub phases: Vec<PhaseOutcome>,
    /// Hash over all events of the simulation.
    pub event_hash: u64,
    /// The disks of the targets, then the metadata disk if there is a separate one.
    pub devices: Vec<DeviceOutcome>,
    /// The SSDs beside the disks.
    pub ibridge: Vec<IbridgeOutcome>,
    /// Number of workload operations that sent requests to a server.
    pub file_requests: u64,
    /// Number of messages that clients sent to data servers.
    pub data_messages: u64,
    /// Number of times the simulation polled a task. This measures the cost of the run without a clock.
    pub turns: u64,
    /// Work of the locking file system, if the cluster has one.
    pub locking: Option<LockingOutcome>,
    /// Work of the delegates, if there are any.
    pub delegates: Option<DelegatesOutcome>,
}

/// Result of one phase of a workload.
#[derive(Clone, PartialEq, Debug)]
pub struct PhaseOutcome {
    /// Name of the phase.
    pub name: String,
    /// Virtual time from the start of the ranks to the start of the phase's first operation.
    pub start: Nanos,
    /// Virtual time from the start of the ranks to the end of the phase's last operation.
    pub end: Nanos,
    /// Measurements by kind of operation.
    pub kinds: BTreeMap<OpKind, Measure>,
}

impl PhaseOutcome {
    /// Returns the duration of the phase.
    pub fn elapsed(&self) -> Nanos {
        self.end.saturating_sub(self.start)
    }

    /// Returns the bytes read and written.
    pub fn bytes(&self) -> u64 {
        self.kinds.values().map(|measure| measure.bytes).sum()
    }

    /// Returns the number of operations, without barriers and computation.
    pub fn ops(&self) -> u64 {
        self.kinds.values().map(|measure| measure.latency.count()).sum()
    }

    /// Returns bytes per second of virtual time, or zero if the phase took none.
    pub fn bytes_per_s(&self) -> f64 {
        per_second(self.bytes(), self.elapsed())
    }

    /// Returns operations per second of virtual time, or zero if the phase took none.
    pub fn ops_per_s(&self) -> f64 {
        per_second(self.ops(), self.elapsed())
    }
}

fn per_second(count: u64, time: Nanos) -> f64 {
    if time == Nanos::ZERO { 0.0 } else { count as f64 * 1e9 / time.0 as f64 }
}

/// Kind of a workload operation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OpKind {
    /// Opening by name.
    Open,
    /// Closing.
    Close,
    /// Reading.
    Read,
    /// Writing.
    Write,
    /// Flushing to the disks.
    Sync,
    /// Truncating or extending an open file.
    SetLen,
    /// Making a directory.
    Mkdir,
    /// Making a file.
    Create,
    /// Reading attributes.
    Stat,
    /// Truncating or extending a file by name.
    Resize,
    /// Removing a file.
    Remove,
    /// Removing a directory.
    Rmdir,
}

/// Measurements of all operations of one kind.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Measure {
    /// Bytes moved.
    pub bytes: u64,
    /// Latencies of the operations.
    pub latency: Histogram,
}

/// Use of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeviceRole {
    /// A target, and the metadata if it shares the disk.
    Target,
    /// The log beside a target.
    Log,
    /// Metadata only.
    Metadata,
}

impl DeviceRole {
    /// Directory on the device that the server uses.
    pub(crate) fn folder(self) -> &'static str {
        match self {
            Self::Target => "target",
            Self::Log => "log",
            Self::Metadata => "database",
        }
    }
}

/// State of the SSD beside a target's disk.
#[derive(Clone, PartialEq, Debug)]
pub struct IbridgeOutcome {
    /// Number of the target.
    pub target: u32,
    /// The server's report at the end, with the counts of this run only.
    pub status: SsdStatus,
}

impl IbridgeOutcome {
    /// Returns this report with the counts reduced to those since `before`.
    pub(crate) fn since(mut self, before: &Self) -> Self {
        let (now, before) = (&mut self.status, &before.status);
        for (now, before) in now.classes.iter_mut().zip(&before.classes) {
            now.admitted -= before.admitted;
        }
        if let (Some(now), Some(before)) = (&mut now.cache, &before.cache) {
            now.bytes_hit.0 -= before.bytes_hit.0;
            now.bytes_missed.0 -= before.bytes_missed.0;
            now.rejected -= before.rejected;
            now.bytes_evicted.0 -= before.bytes_evicted.0;
            now.bytes_prefetched.0 -= before.bytes_prefetched.0;
        }
        now.read_hits -= before.read_hits;
        now.read_partial_hits -= before.read_partial_hits;
        now.read_misses -= before.read_misses;
        now.bytes_read.0 -= before.bytes_read.0;
        now.bytes_written.0 -= before.bytes_written.0;
        now.bytes_written_back.0 -= before.bytes_written_back.0;
        now.bytes_preloaded.0 -= before.bytes_preloaded.0;
        now.bytes_moved.0 -= before.bytes_moved.0;
        self
    }
}

/// Activity of one disk.
#[derive(Clone, PartialEq, Debug)]
pub struct DeviceOutcome {
    /// Number of the server that the disk belongs to.
    pub server: u32,
    /// Use of the disk.
    pub role: DeviceRole,
    /// Number of the disk's target. `None` for a separate metadata disk.
    pub target: Option<u32>,
    /// Class of the target; `metadata` for a disk of metadata alone, `ibridge` for the SSD beside a target's disk.
    pub class: String,
    /// Name of the device profile.
    pub profile: String,
    /// Requests that reached the disk between the start and the end of the ranks.
    pub counters: DeviceCounters,
}

/// Error that ended a run.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RunError {
    /// The description of the cluster is invalid.
    #[error("{0}")]
    Spec(#[from] SpecError),
    /// A server did not start.
    #[error("server {server} did not start: {why}")]
    Server {
        /// Number of the server.
        server: u32,
        /// The server's own error message.
        why: String,
    },
    /// An operation failed.
    #[error("rank {rank}: {op}: {why}")]
    Op {
        /// The rank.
        rank: u32,
        /// Description of the operation.
        op: String,
        /// The client's error message.
        why: String,
    },
    /// The workload contains an operation that is not possible.
    #[error("rank {rank}: {op}: {why}")]
    Workload {
        /// The rank.
        rank: u32,
        /// Description of the operation.
        op: String,
        /// Why the operation is not possible.
        why: &'static str,
    },
    /// The input files are larger than the capacity of the targets.
    #[error("the input files need {needed} bytes and the targets have {capacity}")]
    Inputs {
        /// Total length of these files in bytes, holes included.
        needed: u64,
        /// Capacity of all targets in bytes.
        capacity: u64,
    },
    /// The run took longer than [`RunOptions::limit`](crate::RunOptions).
    #[error("not finished within {} s", .0.0 as f64 / 1e9)]
    Late(Nanos),
}
