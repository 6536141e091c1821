//! One rank: a process of its own that plays its part of workloads as its parent tells it, line by line.
//!
//! For each task the parent writes a [`Task`] as a line of JSON; the rank prepares, answers `ready`, waits for `go`,
//! works, and answers a [`TaskResult`]. So all ranks begin together.

use crate::meeting::{Meeting, OTHER_FAILED};
use crate::player::{PhaseResult, Player};
use crate::target::Target;
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, Write};
use weft_workload::WorkloadSpec;

/// What a rank is told once, at its start.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RankSpec {
    /// Which one.
    pub rank: u32,
    /// Of how many.
    pub ranks: u32,
    /// By which way it reaches files.
    pub reach: Reach,
    /// Where ranks wait for each other: a file of [`crate::meeting::MeetingFile`].
    pub meeting: String,
    /// Whether it keeps its processor while it waits for others.
    pub spin: bool,
}

/// By which way a rank reaches files.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Reach {
    /// Plain system calls: the local directory, a mount, or the preload library if the process has it.
    Calls,
    /// The client library, without any interface on top.
    Library {
        /// The cluster file.
        cluster: std::path::PathBuf,
        /// `auto`, `descriptor` or `socket`.
        transport: String,
    },
}

/// A workload that all ranks play together.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Task {
    /// The directory in which it happens.
    pub dir: String,
    /// The workload.
    pub workload: WorkloadSpec,
    /// Whether files that must be there are made first, outside of the time taken.
    pub inputs: bool,
    /// Whether what is read is compared, and what was written is read back; no figure comes of it.
    pub check: bool,
}

/// How a task went on one rank.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct TaskResult {
    /// The parts of the stream, in order; a phase may come several times.
    pub phases: Vec<PhaseResult>,
    /// What went wrong, empty when nothing did.
    pub error: String,
}

/// The life of a rank: reads tasks from standard input until its end.
///
/// # Errors
/// When the parent's lines make no sense or it is gone.
pub fn serve(spec: &RankSpec) -> io::Result<()> {
    let mut target = Target::reach(&spec.reach).map_err(io::Error::other)?;
    let meeting = Meeting::open(&spec.meeting, spec.ranks, spec.spin)?;
    let mut lines = io::stdin().lock().lines();
    let mut out = io::stdout().lock();
    while let Some(line) = lines.next() {
        let task: Task = serde_json::from_str(&line?)?;
        let workload = task.workload.build().map_err(io::Error::other)?;
        let mut player = Player::new(&*workload, spec.rank, &task.dir, &mut target, &meeting);
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
                    meeting.fail();
                }
                TaskResult { phases: Vec::new(), error }
            }
        };
        writeln!(out, "{}", serde_json::to_string(&result)?)?;
        out.flush()?;
    }
    Ok(())
}
