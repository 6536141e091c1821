//! What benchmarks of transfers have in common: passes over a file that open it, move bytes and close it, each part
//! reported apart.

use crate::op::{FileRef, Op};
use serde::{Deserialize, Serialize};

/// A rank's operations.
pub(crate) type Ops<'a> = Box<dyn Iterator<Item = Op> + Send + 'a>;

/// Which way bytes go.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Access {
    /// To a file that need not exist.
    #[default]
    Write,
    /// To a file that exists already, with all its bytes: see [`crate::Workload::inputs`].
    Rewrite,
    /// From a file that exists already.
    Read,
    /// First a pass of writing, then one of reading what was written.
    Both,
}

impl Access {
    /// Whether the files are there before the start.
    pub(crate) fn finds_files(self) -> bool {
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

/// When written bytes are brought to the disks.
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

/// One pass.
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

/// The names of the phases of passes.
const PHASES: [&str; 6] = ["write-open", "write", "write-close", "read-open", "read", "read-close"];

/// The name of a phase of a workload that consists of passes.
pub(crate) fn phase_name(phase: u16) -> String {
    PHASES.get(usize::from(phase)).copied().unwrap_or("unknown").to_owned()
}

/// One pass over `file`: all ranks open it, move bytes and close it together.
pub(crate) fn pass<'a>(
    direction: Direction,
    file: FileRef,
    body: impl Iterator<Item = Op> + Send + 'a,
) -> impl Iterator<Item = Op> + Send + 'a {
    pass_from(0, direction, file, body)
}

/// The same, with phases numbered from `base` on.
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

/// How transfers of one pass become operations.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Style {
    pub(crate) direction: Direction,
    /// All ranks wait for each other before each transfer.
    pub(crate) barrier: bool,
    pub(crate) sync: SyncWhen,
    pub(crate) collective: bool,
}

/// The operations of transfers `(offset, length)` on `file`.
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
