//! What parent and workers tell each other: lines of JSON over standard input and output.

use super::tally::Tally;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// What a worker is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WorkerSpec {
    /// Where the prepared trace lies.
    pub trace: PathBuf,
    /// The directory of this replay.
    pub dir: PathBuf,
    /// Whether it does nothing but to remove all files when the replay ends early, by whatever.
    pub janitor: bool,
    /// Which of the workers.
    pub worker: u32,
    /// How many there are.
    pub workers: u32,
    /// Most threads.
    pub threads: u32,
    /// Divides the time between operations; none is as fast as possible.
    pub speed: Option<f64>,
    /// Whether payloads are stamped and checked.
    pub verify: bool,
    /// Whether the files must fit what is free, of which there is at most so much.
    pub check_room: Option<u64>,
}

/// From parent to worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Order {
    /// Say that you are there.
    Hello,
    /// Make the directory; only the first worker does.
    Begin,
    /// Make this worker's share of the files that are there before.
    Prepare,
    /// Fill those parts of large ones that this worker's ranks read.
    PrepareParts,
    /// Go.
    Run,
    /// All have come to this barrier.
    Pass(u64),
    /// Compare what another worker wrote.
    Verify,
    /// Remove this worker's share of the files.
    Clean,
    /// Remove the directory; only the first worker does.
    End,
    /// Nothing more.
    Quit,
}

/// From worker to parent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Report {
    /// What was ordered is done.
    Ready,
    /// All ranks of this worker have come to this barrier.
    Barrier(u64),
    /// So much was done so far.
    Progress {
        /// Operations.
        operations: u64,
        /// Bytes prepared, moved or compared.
        bytes: u64,
    },
    /// All ranks of this worker are at their end.
    Done(Box<Tally>),
    /// So many bytes were compared.
    Verified(u64),
    /// It cannot go on.
    Failed(String),
}
