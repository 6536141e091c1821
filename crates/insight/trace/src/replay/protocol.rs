//! Messages between the parent and the workers: lines of JSON over standard input and output.

use super::tally::Tally;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Description of a worker, passed as a command-line argument.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WorkerSpec {
    /// Directory of the prepared trace.
    pub trace: PathBuf,
    /// Directory of the replay's files.
    pub dir: PathBuf,
    /// Whether the worker only waits, to remove all files if the replay ends early.
    pub janitor: bool,
    /// Number of this worker.
    pub worker: u32,
    /// Number of workers.
    pub workers: u32,
    /// Maximum number of threads.
    pub threads: u32,
    /// Divisor of the pauses between operations; `None` replays as fast as possible.
    pub speed: Option<f64>,
    /// Whether written data is stamped and checked.
    pub verify: bool,
    /// If set, the files must fit in the free space, of which at most this many bytes are counted.
    pub space_limit: Option<u64>,
}

/// Orders from the parent to its workers. See the table in [`super`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Order {
    /// Report readiness.
    Hello,
    /// Create the directory (worker 0 only).
    Begin,
    /// Create this worker's share of the files that must exist.
    Prepare,
    /// Fill the parts of sparsely read files that this worker's ranks read.
    PrepareParts,
    /// Sync this worker's share of the prepared files.
    SyncInput,
    /// Execute the steps.
    Run,
    /// Sync this worker's share of the written files.
    SyncWritten,
    /// Release the threads that wait at the barrier with this number.
    Pass(u64),
    /// Compare the data that another worker wrote.
    Verify,
    /// Remove this worker's share of the files.
    Clean,
    /// Remove the directory (worker 0 only).
    End,
    /// Exit.
    Quit,
}

/// Reports from a worker to the parent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Report {
    /// The order was executed.
    Ready,
    /// All threads of this worker wait at the barrier with this number.
    Barrier(u64),
    /// Progress of the current order.
    Progress {
        /// Operations completed.
        operations: u64,
        /// Bytes prepared, transferred or compared.
        bytes: u64,
    },
    /// All ranks of this worker have ended.
    Done(Box<Tally>),
    /// Number of bytes compared without a difference.
    Verified(u64),
    /// The worker failed, with the reason.
    Failed(String),
}
