//! A rank: a process that plays its part of workloads as directed by its parent.
//!
//! For each task the parent writes a [`Task`] as a line of JSON. The rank prepares, answers `ready`, waits for `go`,
//! plays the workload and answers with a [`TaskResult`]. Waiting for `go` makes all ranks begin together.

use crate::barrier::{Barrier, OTHER_FAILED};
use crate::player::{PhaseResult, Player};
use crate::target::Target;
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, Write};
use weft_workload::WorkloadSpec;

/// Description of a rank, passed at its start.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RankSpec {
    /// Number of this rank.
    pub rank: u32,
    /// Number of ranks.
    pub ranks: u32,
    /// How the rank accesses files.
    pub access: FileAccess,
    /// Path of the [`crate::barrier::BarrierFile`] that all ranks share.
    pub barrier: String,
    /// Whether the rank spins instead of sleeping while it waits for others.
    pub spin: bool,
}

/// How a rank accesses files.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum FileAccess {
    /// System calls: on a local directory or a mount, or through the preload library if it is loaded.
    Calls,
    /// The client library without another interface.
    Library {
        /// The cluster file.
        cluster: std::path::PathBuf,
        /// The transport: `auto`, `descriptor` or `socket`.
        transport: String,
    },
}

/// A workload that all ranks play together.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Task {
    /// Directory of the workload's files.
    pub dir: String,
    /// The workload.
    pub workload: WorkloadSpec,
    /// Whether to create the workload's input files first, outside of the timed phases.
    pub inputs: bool,
    /// Whether to verify reads, and to read back all writes in the end. The figures are then meaningless.
    pub check: bool,
}

/// Result of a task on one rank.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct TaskResult {
    /// Phases in order. A phase may occur more than once.
    pub phases: Vec<PhaseResult>,
    /// Reason of a failure; empty on success.
    pub error: String,
}

/// Runs a rank: executes tasks from standard input until its end.
///
/// # Errors
/// Fails if the parent sends invalid lines or has died.
pub fn serve(spec: &RankSpec) -> io::Result<()> {
    let mut target = Target::new(&spec.access).map_err(io::Error::other)?;
    let barrier = Barrier::open(&spec.barrier, spec.ranks, spec.spin)?;
    let mut lines = io::stdin().lock().lines();
    let mut out = io::stdout().lock();
    while let Some(line) = lines.next() {
        let task: Task = serde_json::from_str(&line?)?;
        let workload = task.workload.build().map_err(io::Error::other)?;
        let mut player = Player::new(&*workload, spec.rank, &task.dir, &mut target, &barrier);
        let prepared = if task.inputs { player.make_inputs() } else { Ok(()) };
        writeln!(out, "ready")?;
        out.flush()?;
        match lines.next() {
            Some(go) if go.as_ref().is_ok_and(|go| go == "go") => {}
            _ => break,
        }
        let result = match prepared.and_then(|()| player.play(task.check)) {
            Ok(phases) => TaskResult { phases, error: String::new() },
            Err(error) => {
                if error != OTHER_FAILED {
                    barrier.fail();
                }
                TaskResult { phases: Vec::new(), error }
            }
        };
        writeln!(out, "{}", serde_json::to_string(&result)?)?;
        out.flush()?;
    }
    Ok(())
}
