//! One rank's operations.

use serde::{Deserialize, Serialize};
use std::ops::Range;
use weft_core::Nanos;

/// A file or directory of a workload, by its number among them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct FileRef(pub u32);

/// What a rank does next. Offsets and lengths are in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Op {
    /// Opens a file.
    Open {
        /// Which.
        file: FileRef,
        /// For reading and writing, and made when missing; otherwise it is there, and is opened for reading alone.
        create: bool,
    },
    /// Closes a file that this rank has open.
    Close {
        /// Which.
        file: FileRef,
    },
    /// Reads from an open file. Bytes beyond its end may be asked for, and are none.
    Read {
        /// Which.
        file: FileRef,
        /// From here.
        offset: u64,
        /// So much.
        len: u64,
        /// As part of a call that all ranks make together.
        collective: bool,
    },
    /// Writes to an open file.
    Write {
        /// Which.
        file: FileRef,
        /// From here.
        offset: u64,
        /// So much.
        len: u64,
        /// As part of a call that all ranks make together.
        collective: bool,
    },
    /// Brings an open file's bytes to the disks.
    Sync {
        /// Which.
        file: FileRef,
    },
    /// Cuts or extends an open file.
    SetLen {
        /// Which.
        file: FileRef,
        /// To so much.
        len: u64,
    },
    /// Makes a directory.
    Mkdir {
        /// Which.
        file: FileRef,
    },
    /// Makes a file without leaving it open.
    Create {
        /// Which.
        file: FileRef,
    },
    /// Asks for attributes by name.
    Stat {
        /// Which.
        file: FileRef,
    },
    /// Cuts or extends by name.
    Resize {
        /// Which.
        file: FileRef,
        /// To so much.
        len: u64,
    },
    /// Removes a file by name.
    Remove {
        /// Which.
        file: FileRef,
    },
    /// Removes a directory.
    Rmdir {
        /// Which.
        file: FileRef,
    },
    /// Waits until all ranks of this rank's [group](Workload::group) have come here.
    Barrier,
    /// Begins a part of the run that is reported apart, under the name of this number; without waiting for others.
    Phase(u16),
    /// Computes for so long.
    Compute(Nanos),
}

impl Op {
    /// The file or directory that it is about, if it is about one.
    pub const fn file(self) -> Option<FileRef> {
        match self {
            Self::Open { file, .. }
            | Self::Close { file }
            | Self::Read { file, .. }
            | Self::Write { file, .. }
            | Self::Sync { file }
            | Self::SetLen { file, .. }
            | Self::Mkdir { file }
            | Self::Create { file }
            | Self::Stat { file }
            | Self::Resize { file, .. }
            | Self::Remove { file }
            | Self::Rmdir { file } => Some(file),
            Self::Barrier | Self::Phase(_) | Self::Compute(_) => None,
        }
    }
}

/// What a parallel program does, as one stream of operations for each rank. Streams take memory that does not grow
/// with their length, and the same workload always gives the same streams.
pub trait Workload: Send + Sync {
    /// Number of processes.
    fn ranks(&self) -> u32;

    /// The path of each file and directory below the workload's own directory; [`FileRef`] is an index here. Names
    /// of directories come before those of what is in them.
    fn name(&self, file: FileRef) -> String;

    /// The name of a phase, as it stands in results.
    fn phase(&self, phase: u16) -> String;

    /// The ranks that a barrier of `rank` waits for, itself among them: one program of a mix.
    fn group(&self, rank: u32) -> Range<u32> {
        let _ = rank;
        0..self.ranks()
    }

    /// Files that are there, with so many bytes, before the first operation: what a reading program finds. Whoever
    /// runs the workload makes them, with the directories above them, by the quickest means and outside of all
    /// phases.
    fn inputs(&self) -> Box<dyn Iterator<Item = (FileRef, u64)> + Send + '_> {
        Box::new(std::iter::empty())
    }

    /// What `rank` does.
    fn ops(&self, rank: u32) -> Box<dyn Iterator<Item = Op> + Send + '_>;
}
