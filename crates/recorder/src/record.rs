//! One operation of one rank.

use crate::names::{FileId, HostId};
use serde::{Deserialize, Serialize};
use std::fmt;
use weft_core::{ByteLen, FileOffset, Nanos};

/// A process of the traced program, by its number among them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Rank(pub u32);

/// What a rank did.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum Operation {
    /// Read `len` bytes from `offset`.
    Read = 0,
    /// Wrote `len` bytes from `offset`.
    Write = 1,
    /// Opened a file that was there.
    Open = 2,
    /// Opened a file, making it when it was missing.
    Create = 3,
    /// Closed it.
    Close = 4,
    /// Brought its bytes to the disks.
    Sync = 5,
    /// Cut or extended it to `offset` bytes.
    Truncate = 6,
    /// Asked for attributes.
    Stat = 7,
    /// Removed a file.
    Unlink = 8,
    /// Made a directory.
    Mkdir = 9,
    /// Removed a directory.
    Rmdir = 10,
    /// Waited for all ranks; the file has no meaning.
    Barrier = 11,
}

impl Operation {
    /// All of them, by their number in formats.
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

    /// As formats and people write it.
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

    /// By its number in formats.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// By its name, or another that is in use for it.
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

    /// Whether it moves bytes.
    pub const fn moves_bytes(self) -> bool {
        matches!(self, Self::Read | Self::Write)
    }

    /// Whether it is about a file at all.
    pub const fn has_file(self) -> bool {
        !matches!(self, Self::Barrier)
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Which interface the operation was made by. A program's MPI-IO calls cause POSIX ones, so a trace of both tells
/// everything twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// The C library.
    #[default]
    Posix,
    /// `MPI_File_*`.
    MpiIo,
}

impl Level {
    /// As formats and people write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Posix => "posix",
            Self::MpiIo => "mpi-io",
        }
    }

    /// By its name, or another that is in use for it.
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

/// The largest offset and length that a file can have.
pub const OFFSET_MAX: u64 = i64::MAX as u64;

/// One operation. Times count from the begin of the trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    /// Who.
    pub rank: Rank,
    /// Where that process ran.
    pub host: HostId,
    /// On which file; without meaning for a barrier.
    pub file: FileId,
    /// What.
    pub op: Operation,
    /// By which interface.
    pub level: Level,
    /// As part of a call that all ranks made together.
    pub collective: bool,
    /// First byte; the new length for [`Operation::Truncate`]; else 0.
    pub offset: FileOffset,
    /// Bytes that it moved: of a read at the end of a file those that there were. 0 for what moves none.
    pub len: ByteLen,
    /// When it began.
    pub start: Nanos,
    /// When it was done, never before `start`.
    pub end: Nanos,
}

impl Record {
    /// One past its last byte; at most 2^64 - 1.
    pub fn end_offset(&self) -> u64 {
        self.offset.get().saturating_add(self.len.get())
    }

    /// How long it took.
    pub fn duration(&self) -> Nanos {
        Nanos(self.end.get().saturating_sub(self.start.get()))
    }
}
