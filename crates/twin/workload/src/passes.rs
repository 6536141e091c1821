//! Passes: the common structure of transfer benchmarks.
//!
//! A pass opens a file, transfers data and closes the file. Each of the three steps is a phase of its own.

use crate::op::{FileRef, Op};
use serde::{Deserialize, Serialize};

/// Stream of a rank's operations.
pub(crate) type Ops<'a> = Box<dyn Iterator<Item = Op> + Send + 'a>;

/// Direction of the transfers, and whether the files exist before.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Access {
    /// Writes a file that need not exist.
    #[default]
    Write,
    /// Writes a file that exists at full length: see [`crate::Workload::inputs`].
    Rewrite,
    /// Reads a file that exists.
    Read,
    /// Writes the file in one pass, then reads it in another.
    Both,
}

impl Access {
    /// Whether the files must exist before the start.
    pub(crate) fn needs_existing_files(self) -> bool {
        matches!(self, Self::Rewrite | Self::Read)
    }

    pub(crate) fn directions(self) -> &'static [Direction] {
        match self {
            Self::Write | Self::Rewrite => &[Direction::Write],
            Self::Read => &[Direction::Read],
            Self::Both => &[Direction::Write, Direction::Read],
        }
    }
}

/// Time at which written data is flushed to stable storage.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SyncWhen {
    /// Never.
    #[default]
    Never,
    /// After each write.
    Each,
    /// Once, after the last write of each rank.
    End,
}

/// Direction of a pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Direction {
    Write,
    Read,
}

impl Direction {
    fn first_phase(self) -> u16 {
        match self {
            Self::Write => 0,
            Self::Read => 3,
        }
    }

    pub(crate) fn transfer(self, file: FileRef, offset: u64, len: u64, collective: bool) -> Op {
        match self {
            Self::Write => Op::Write { file, offset, len, collective },
            Self::Read => Op::Read { file, offset, len, collective },
        }
    }
}

/// Names of the phases of a pass that writes and of one that reads.
const PHASES: [&str; 6] = ["write-open", "write", "write-close", "read-open", "read", "read-close"];

/// Returns the name of a phase of a workload that consists of passes.
pub(crate) fn phase_name(phase: u16) -> String {
    PHASES.get(usize::from(phase)).copied().unwrap_or("unknown").to_owned()
}

/// Generates one pass over `file`: all ranks open it, transfer data and close it together.
pub(crate) fn pass<'a>(
    direction: Direction,
    file: FileRef,
    body: impl Iterator<Item = Op> + Send + 'a,
) -> impl Iterator<Item = Op> + Send + 'a {
    pass_from(0, direction, file, body)
}

/// Generates one pass whose phases are numbered from `base`.
pub(crate) fn pass_from<'a>(
    base: u16,
    direction: Direction,
    file: FileRef,
    body: impl Iterator<Item = Op> + Send + 'a,
) -> impl Iterator<Item = Op> + Send + 'a {
    let first = base + direction.first_phase();
    let create = direction == Direction::Write;
    [Op::Phase(first), Op::Open { file, create }, Op::Barrier, Op::Phase(first + 1)]
        .into_iter()
        .chain(body)
        .chain([Op::Barrier, Op::Phase(first + 2), Op::Close { file }, Op::Barrier])
}

/// How the transfers of a pass become operations.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Style {
    pub(crate) direction: Direction,
    /// Whether all ranks wait at a barrier before each transfer.
    pub(crate) barrier: bool,
    pub(crate) sync: SyncWhen,
    pub(crate) collective: bool,
}

/// Generates the operations of the transfers `(offset, length)` on `file`.
pub(crate) fn transfers<'a>(
    style: Style,
    file: FileRef,
    extents: impl Iterator<Item = (u64, u64)> + Send + 'a,
) -> impl Iterator<Item = Op> + Send + 'a {
    let syncs =
        |when| (style.direction == Direction::Write && style.sync == when).then_some(Op::Sync { file });
    let each = syncs(SyncWhen::Each);
    extents
        .flat_map(move |(offset, len)| {
            let transfer = style.direction.transfer(file, offset, len, style.collective);
            [style.barrier.then_some(Op::Barrier), Some(transfer), each].into_iter().flatten()
        })
        .chain(syncs(SyncWhen::End))
}
