//! Operations of a rank, and the workload trait.

use serde::{Deserialize, Serialize};
use std::ops::Range;
use weft_core::Nanos;

/// Number of a file or directory of a workload.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct FileRef(pub u32);

/// One operation of a rank. Offsets and lengths are in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Op {
    /// Opens a file.
    Open {
        /// The file.
        file: FileRef,
        /// Whether to open for reading and writing and create a missing file. Otherwise the file exists and is only
        /// read.
        create: bool,
    },
    /// Closes an open file.
    Close {
        /// The file.
        file: FileRef,
    },
    /// Reads from an open file. The range may extend beyond the end of the file.
    Read {
        /// The file.
        file: FileRef,
        /// First byte.
        offset: u64,
        /// Length.
        len: u64,
        /// Whether the read is part of a collective call.
        collective: bool,
    },
    /// Writes to an open file.
    Write {
        /// The file.
        file: FileRef,
        /// First byte.
        offset: u64,
        /// Length.
        len: u64,
        /// Whether the write is part of a collective call.
        collective: bool,
    },
    /// Flushes an open file to stable storage.
    Sync {
        /// The file.
        file: FileRef,
    },
    /// Sets the length of an open file.
    SetLen {
        /// The file.
        file: FileRef,
        /// New length.
        len: u64,
    },
    /// Creates a directory.
    Mkdir {
        /// The directory.
        file: FileRef,
    },
    /// Creates a file and closes it.
    Create {
        /// The file.
        file: FileRef,
    },
    /// Reads a file's attributes by name.
    Stat {
        /// The file.
        file: FileRef,
    },
    /// Sets a file's length by name.
    Resize {
        /// The file.
        file: FileRef,
        /// New length.
        len: u64,
    },
    /// Removes a file by name.
    Remove {
        /// The file.
        file: FileRef,
    },
    /// Removes an empty directory.
    Rmdir {
        /// The directory.
        file: FileRef,
    },
    /// Waits until all ranks of this rank's [group](Workload::group) have arrived.
    Barrier,
    /// Begins the phase with this number, which is reported separately. Does not wait for other ranks.
    Phase(u16),
    /// Computes for this time.
    Compute(Nanos),
}

impl Op {
    /// Returns the file or directory of the operation, if it has one.
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

/// The operations of a parallel program, as one stream for each rank.
///
/// Streams use memory that does not grow with their length. The same workload always yields the same streams.
pub trait Workload: Send + Sync {
    /// Number of ranks.
    fn ranks(&self) -> u32;

    /// Path of a file or directory, relative to the workload's directory.
    ///
    /// A directory has a lower number than the files and directories in it.
    fn name(&self, file: FileRef) -> String;

    /// Name of a phase in results.
    fn phase(&self, phase: u16) -> String;

    /// Ranks that share barriers with `rank`, including itself: the ranks of one program of a mix.
    fn group(&self, rank: u32) -> Range<u32> {
        let _ = rank;
        0..self.ranks()
    }

    /// Messages `(rank, bytes)` that `rank` sends to other ranks when it leaves barrier number `barrier`, counted from 0:
    /// the exchange of two-phase I/O. Only simulations with a model of it ask.
    fn exchange(&self, rank: u32, barrier: u64) -> Vec<(u32, u64)> {
        let _ = (rank, barrier);
        Vec::new()
    }

    /// Files that must exist before the first operation, with their lengths in bytes.
    ///
    /// The caller creates them and their parent directories in any way, outside of all phases.
    fn inputs(&self) -> Box<dyn Iterator<Item = (FileRef, u64)> + Send + '_> {
        Box::new(std::iter::empty())
    }

    /// Returns the operations of `rank`.
    fn ops(&self, rank: u32) -> Box<dyn Iterator<Item = Op> + Send + '_>;
}
