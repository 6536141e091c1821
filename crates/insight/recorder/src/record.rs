//! A trace record: one operation of one rank.

use crate::names::{FileId, HostId};
use serde::{Deserialize, Serialize};
use std::fmt;
use weft_core::{ByteLen, FileOffset, Nanos};

/// Rank of a process in the traced program.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Rank(pub u32);

/// Kind of operation. Its number is part of the `.wtrace` and tail formats.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum Operation {
    /// Reads `len` bytes at `offset`.
    Read = 0,
    /// Writes `len` bytes at `offset`.
    Write = 1,
    /// Opens an existing file.
    Open = 2,
    /// Opens a file and creates it if it is missing (`O_CREAT`).
    Create = 3,
    /// Closes a file.
    Close = 4,
    /// Flushes a file's data to stable storage.
    Sync = 5,
    /// Sets a file's length to `offset` bytes.
    Truncate = 6,
    /// Reads a file's attributes.
    Stat = 7,
    /// Removes a file.
    Unlink = 8,
    /// Creates a directory.
    Mkdir = 9,
    /// Removes an empty directory.
    Rmdir = 10,
    /// Waits for all ranks. The record's file is meaningless.
    Barrier = 11,
}

impl Operation {
    /// Every operation, indexed by its number in the formats.
    pub const ALL: [Self; 12] = [
        Self::Read,
        Self::Write,
        Self::Open,
        Self::Create,
        Self::Close,
        Self::Sync,
        Self::Truncate,
        Self::Stat,
        Self::Unlink,
        Self::Mkdir,
        Self::Rmdir,
        Self::Barrier,
    ];

    /// Lowercase name, as in CSV, JSON and output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Open => "open",
            Self::Create => "create",
            Self::Close => "close",
            Self::Sync => "sync",
            Self::Truncate => "truncate",
            Self::Stat => "stat",
            Self::Unlink => "unlink",
            Self::Mkdir => "mkdir",
            Self::Rmdir => "rmdir",
            Self::Barrier => "barrier",
        }
    }

    /// Returns the operation with this number in the formats.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// Returns the operation with this name or a common alias, ignoring case.
    pub fn from_name(name: &str) -> Option<Self> {
        let name = name.trim();
        let is = |other: &str| name.eq_ignore_ascii_case(other);
        Self::ALL.into_iter().find(|op| is(op.name())).or_else(|| match () {
            () if is("r") || is("pread") => Some(Self::Read),
            () if is("w") || is("pwrite") => Some(Self::Write),
            () if is("creat") => Some(Self::Create),
            () if is("fsync") || is("fdatasync") || is("flush") => Some(Self::Sync),
            () if is("ftruncate") || is("setlen") || is("resize") => Some(Self::Truncate),
            () if is("remove") => Some(Self::Unlink),
            () => None,
        })
    }

    /// Whether the operation transfers data.
    pub const fn moves_bytes(self) -> bool {
        matches!(self, Self::Read | Self::Write)
    }

    /// Whether the operation refers to a file.
    pub const fn has_file(self) -> bool {
        !matches!(self, Self::Barrier)
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Interface by which a program made a call.
///
/// MPI-IO calls are implemented by POSIX calls, so a trace of both levels contains each transfer twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// The C library and system calls.
    #[default]
    Posix,
    /// `MPI_File_*`.
    MpiIo,
}

impl Level {
    /// Lowercase name, as in CSV, JSON and output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Posix => "posix",
            Self::MpiIo => "mpi-io",
        }
    }

    /// Returns the level with this name or a common alias, Darshan's module names included.
    pub fn from_name(name: &str) -> Option<Self> {
        match name.trim().to_ascii_lowercase().as_str() {
            "posix" | "x_posix" | "dxt_posix" => Some(Self::Posix),
            "mpi-io" | "mpiio" | "mpi" | "x_mpiio" | "dxt_mpiio" => Some(Self::MpiIo),
            _ => None,
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Largest file offset and file length in bytes.
pub const OFFSET_MAX: u64 = i64::MAX as u64;

/// One operation. Times are relative to the start of the trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    /// Rank that made the call.
    pub rank: Rank,
    /// Host on which the rank ran.
    pub host: HostId,
    /// File that the call refers to; meaningless for a barrier.
    pub file: FileId,
    /// Kind of operation.
    pub op: Operation,
    /// Interface of the call.
    pub level: Level,
    /// Whether the operation is part of a collective call.
    pub collective: bool,
    /// First byte transferred; the new length for [`Operation::Truncate`]; otherwise 0.
    pub offset: FileOffset,
    /// Bytes transferred, which at the end of a file may be fewer than requested. 0 if the operation transfers no data.
    pub len: ByteLen,
    /// Time at which the call began.
    pub start: Nanos,
    /// Time at which the call returned; not before `start`.
    pub end: Nanos,
}

impl Record {
    /// Offset after the last byte transferred, saturating at 2^64 - 1.
    pub fn end_offset(&self) -> u64 {
        self.offset.get().saturating_add(self.len.get())
    }

    /// Time between the call and its return.
    pub fn duration(&self) -> Nanos {
        Nanos(self.end.get().saturating_sub(self.start.get()))
    }
}
