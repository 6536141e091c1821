//! What a run came to.

use crate::spec::SpecError;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use weft_core::{Histogram, Nanos};
use weft_env::device::DeviceCounters;
use weft_wire::status::IbridgeStatus;

/// What a run came to. The same cluster, workload and seed give the same.
#[derive(Clone, PartialEq, Debug)]
pub struct Outcome {
    /// Virtual time from the first rank's start to the last one's end, or until everything was on the disks if that
    /// was waited for.
    pub elapsed: Nanos,
    /// The part of it after the last rank's end.
    pub drain: Nanos,
    /// The phases, in the order of their numbers; operations before the first are in one without a name.
    pub phases: Vec<PhaseOutcome>,
    /// A number that everything that happened determines.
    pub event_hash: u64,
    /// The disks: those of the targets, then that of the metadata if it has one of its own.
    pub devices: Vec<DeviceOutcome>,
    /// The SSDs beside them.
    pub ibridge: Vec<IbridgeOutcome>,
    /// Operations of the workload that asked a server for something.
    pub file_requests: u64,
    /// Messages that clients sent to data services.
    pub data_messages: u64,
    /// How often the simulation polled a task: what the run cost, without a clock.
    pub turns: u64,
}

/// One phase of a workload.
#[derive(Clone, PartialEq, Debug)]
pub struct PhaseOutcome {
    /// Its name.
    pub name: String,
    /// Virtual time, from the start of the ranks, at which its first operation began.
    pub start: Nanos,
    /// And at which its last one ended.
    pub end: Nanos,
    /// What was done, by kind.
    pub kinds: BTreeMap<OpKind, Measure>,
}

impl PhaseOutcome {
    /// How long it took.
    pub fn elapsed(&self) -> Nanos {
        self.end.saturating_sub(self.start)
    }

    /// Bytes read and written.
    pub fn bytes(&self) -> u64 {
        self.kinds.values().map(|measure| measure.bytes).sum()
    }

    /// Operations other than waiting.
    pub fn ops(&self) -> u64 {
        self.kinds.values().map(|measure| measure.latency.count()).sum()
    }

    /// Bytes per second of virtual time; zero when it took none.
    pub fn bytes_per_s(&self) -> f64 {
        per_second(self.bytes(), self.elapsed())
    }

    /// Operations per second of virtual time; zero when it took none.
    pub fn ops_per_s(&self) -> f64 {
        per_second(self.ops(), self.elapsed())
    }
}

fn per_second(count: u64, time: Nanos) -> f64 {
    if time == Nanos::ZERO { 0.0 } else { count as f64 * 1e9 / time.0 as f64 }
}

/// What operations do.
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
    /// Bringing to the disks.
    Sync,
    /// Cutting or extending an open file.
    SetLen,
    /// Making a directory.
    Mkdir,
    /// Making a file.
    Create,
    /// Asking for attributes.
    Stat,
    /// Cutting or extending by name.
    Resize,
    /// Removing a file.
    Remove,
    /// Removing a directory.
    Rmdir,
}

/// Operations of one kind.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Measure {
    /// Bytes that they moved.
    pub bytes: u64,
    /// How long each took.
    pub latency: Histogram,
}

/// What lies on a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeviceRole {
    /// A target, and metadata if it shares the disk.
    Target,
    /// The log beside a target.
    Log,
    /// Metadata alone.
    Metadata,
}

impl DeviceRole {
    /// The folder that a server uses on it.
    pub(crate) fn folder(self) -> &'static str {
        match self {
            Self::Target => "target",
            Self::Log => "log",
            Self::Metadata => "database",
        }
    }
}

/// The SSD beside a target's disk, in the run.
#[derive(Clone, PartialEq, Debug)]
pub struct IbridgeOutcome {
    /// Number of the target.
    pub target: u32,
    /// What the server says at the end; counts are those of the run.
    pub status: IbridgeStatus,
}

impl IbridgeOutcome {
    /// The counts since `before`, the state of now.
    pub(crate) fn since(mut self, before: &Self) -> Self {
        let (now, before) = (&mut self.status, &before.status);
        for (now, before) in [(&mut now.fragments, &before.fragments), (&mut now.random, &before.random)] {
            now.admitted -= before.admitted;
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

/// A disk.
#[derive(Clone, PartialEq, Debug)]
pub struct DeviceOutcome {
    /// Its server.
    pub server: u32,
    /// What lies on it.
    pub role: DeviceRole,
    /// Number of its target; none for a disk of metadata alone.
    pub target: Option<u32>,
    /// Class of the target; `metadata` for a disk of metadata alone, `ibridge` for the SSD beside a target's disk.
    pub class: String,
    /// Its profile.
    pub profile: String,
    /// What reached it between the start of the ranks and their end.
    pub counters: DeviceCounters,
}

/// Why a run came to nothing.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RunError {
    /// The description of the cluster.
    #[error("{0}")]
    Spec(#[from] SpecError),
    /// A server did not start.
    #[error("server {server} did not start: {why}")]
    Server {
        /// Its number.
        server: u32,
        /// As it says.
        why: String,
    },
    /// An operation failed.
    #[error("rank {rank}: {op}: {why}")]
    Op {
        /// Who.
        rank: u32,
        /// What it did.
        op: String,
        /// As the client says.
        why: String,
    },
    /// The workload asks for what cannot be.
    #[error("rank {rank}: {op}: {why}")]
    Workload {
        /// Who.
        rank: u32,
        /// What it was about to do.
        op: String,
        /// What is wrong with that.
        why: &'static str,
    },
    /// What has to be there before the start is more than the targets hold.
    #[error(
        "the files that are read before they are written come to {needed} bytes, and the targets hold {room}"
    )]
    Inputs {
        /// Bytes of these files, holes among them.
        needed: u64,
        /// Bytes of all targets.
        room: u64,
    },
    /// The run took longer than it was given.
    #[error("not done within {} s", .0.0 as f64 / 1e9)]
    Late(Nanos),
}
