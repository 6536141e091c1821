//! Replicas that a watching command proposes, and their copies.

use crate::atomic_file::AtomicFile;
use crate::commands::session::Weft;
use crate::failure::Failure;
use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use weft_core::ByteLen;
use weft_planner::replicas::{Options, PlannedReplica, Policy, ReplicaFile};
use weft_planner::watch::Interval;

/// The replicas proposed so far.
pub struct Proposals {
    trace: String,
    options: Options,
    /// By path. The agent reads a replica from the plan when it copies, so that the plan keeps all of them.
    replicas: BTreeMap<String, (PlannedReplica, u64)>,
}

impl Proposals {
    /// Creates an empty plan. `trace` names the samples, and `options` has the budget of all replicas.
    pub fn new(trace: String, options: Options) -> Self {
        Self { trace, options, replicas: BTreeMap::new() }
    }

    /// Returns the options with the budget that is left.
    pub fn options(&self) -> Options {
        let taken = self
            .replicas
            .values()
            .map(|(_, bytes)| bytes)
            .fold(0, |sum: u64, bytes| sum.saturating_add(*bytes));
        Options { budget: self.options.budget.saturating_sub(taken), ..self.options.clone() }
    }

    /// Adds the replicas proposed in an interval and returns the paths of their files.
    pub fn add(&mut self, interval: &Interval) -> Vec<String> {
        let proposed = interval.groups.iter().filter_map(|group| group.replica.as_ref());
        let mut paths = Vec::new();
        for (replica, bytes) in proposed.filter_map(|one| Some((one.replica.as_ref()?, one.bytes))) {
            self.replicas.insert(replica.path.clone(), (replica.clone(), bytes));
            paths.push(replica.path.clone());
        }
        paths
    }

    /// Writes the plan.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn write(&self, output: &AtomicFile) -> Result<(), Failure> {
        let policy: Policy = self.options.policy;
        let mut file = ReplicaFile::new(&self.trace, policy.name());
        file.replicas.extend(self.replicas.values().map(|(replica, _)| replica.clone()));
        output.write(file.to_toml().as_bytes())
    }
}

/// Queues the copy of the file `path` to its replica in the plan `output`, with at most `rate` bytes per second, and starts
/// the agent.
///
/// # Errors
/// `weft replicate apply` has printed the reason.
pub fn queue_copy(
    weft: &Weft,
    output: &AtomicFile,
    path: &str,
    rate: Option<ByteLen>,
) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::new("weft replicate apply", error);
    let mut command = Command::new(std::env::current_exe().map_err(failed)?);
    command.arg("--cluster").arg(&weft.cluster.file).args(["replicate", "apply", "--background"]);
    command.args(rate.map(|rate| format!("--rate={}", rate.0)));
    command.arg("--only").arg(path).arg("--").arg(output.path());
    // Standard output may be for JSON.
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).status().map_err(failed)?;
    match status.success() {
        true => Ok(()),
        false => Err(Failure::new(path, "its copy is not queued, see above")),
    }
}
