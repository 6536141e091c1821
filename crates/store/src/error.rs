//! What can go wrong with a target and its datafiles.

use crate::fragments::{LogError, OpenLogError};
use std::io;
use std::path::PathBuf;
use weft_core::TargetId;

/// Why an operation on a datafile failed.
#[derive(Debug, thiserror::Error)]
pub enum DatafileError {
    /// The device is full.
    #[error(
        "{path}: {doing}: no space left on the device: free some, or add a target and place new files there"
    )]
    NoSpace {
        /// The datafile.
        path: String,
        /// What was tried.
        doing: &'static str,
    },
    /// The device failed.
    #[error("{path}: {doing}: the device reports an error: look at the kernel's log and the disk's health")]
    Device {
        /// The datafile.
        path: String,
        /// What was tried.
        doing: &'static str,
    },
    /// Bytes do not match their checksums.
    #[error(
        "{path}: {doing}: bytes {start} to {end} of this datafile on {target} do not match their checksums: the disk \
         damaged them: run `weft fsck --scrub` to find all damaged files, restore them from a backup or write the \
         damaged bytes anew, and look at the disk's health"
    )]
    Damaged {
        /// The datafile.
        path: String,
        /// The target that it lies on.
        target: TargetId,
        /// What was tried.
        doing: &'static str,
        /// First byte of the damaged blocks.
        start: u64,
        /// One past their last byte.
        end: u64,
    },
    /// The file asks for checksums at rest, and this datafile holds bytes without any.
    #[error(
        "{path}: {doing}: the checksums of this datafile on {target} are missing, so its bytes cannot be verified: restore \
         the file from a backup, or bring the file {path}{suffix} back, and look at the disk's health",
        suffix = crate::integrity::SUFFIX
    )]
    ChecksumsMissing {
        /// The datafile.
        path: String,
        /// The target that it lies on.
        target: TargetId,
        /// The operation.
        doing: &'static str,
    },
    /// An earlier sync failed, and what was written before it may be lost.
    #[error(
        "{path}: sync: an earlier sync of it failed, and the system does not say which bytes were lost: \
         look at the disk's health, then write the file anew"
    )]
    Unsafe {
        /// The datafile.
        path: String,
    },
    /// Its file was removed while somebody had it open who had been cut off from the metadata service for long.
    #[error("{path}: its file was removed: open it anew")]
    Removed {
        /// The datafile.
        path: String,
    },
    /// The log on the SSD beside the target.
    #[error("{0}")]
    Log(#[from] LogError),
    /// Anything else.
    #[error("{path}: {doing}: {source}")]
    Other {
        /// The datafile.
        path: String,
        /// What was tried.
        doing: &'static str,
        /// As the system says.
        source: io::Error,
    },
}

impl DatafileError {
    /// Sorts what the system said.
    pub(crate) fn new(path: impl Into<String>, doing: &'static str, source: io::Error) -> Self {
        let path = path.into();
        match source.raw_os_error() {
            Some(ENOSPC) => Self::NoSpace { path, doing },
            _ if source.kind() == io::ErrorKind::StorageFull => Self::NoSpace { path, doing },
            Some(EIO) => Self::Device { path, doing },
            _ => Self::Other { path, doing, source },
        }
    }

    /// The error's number on Linux; `EIO` where it has none.
    pub fn errno(&self) -> i32 {
        match self {
            Self::NoSpace { .. } => ENOSPC,
            Self::Device { .. }
            | Self::Damaged { .. }
            | Self::ChecksumsMissing { .. }
            | Self::Unsafe { .. }
            | Self::Log(_) => EIO,
            Self::Removed { .. } => ESTALE,
            Self::Other { source, .. } => source.raw_os_error().unwrap_or(EIO),
        }
    }
}

const EIO: i32 = 5;
const ENOSPC: i32 = 28;
const ESTALE: i32 = 116;

/// Why a target cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// Its directory is missing or cannot be used.
    #[error(
        "{path}: {doing}: {source}: make the directory and let the server's user own it, \
         or correct the target's path in the cluster file"
    )]
    Io {
        /// The target's path.
        path: PathBuf,
        /// What was tried.
        doing: &'static str,
        /// As the system says.
        source: io::Error,
    },
    /// Another process has it.
    #[error(
        "{path}: another server uses this target: end that one first, or give this target a path of its own"
    )]
    Locked {
        /// The target's path.
        path: PathBuf,
    },
    /// It holds something else.
    #[error(
        "{path}: not empty ({found} is there) and no Weft target: give the target an empty directory of its own"
    )]
    NotEmpty {
        /// The target's path.
        path: PathBuf,
        /// One thing that is there.
        found: String,
    },
    /// It holds datafiles without saying whose.
    #[error(
        "{path}: holds datafiles, but its identity file {identity:?} is gone: restore that file from a backup \
         before the server may touch them"
    )]
    IdentityGone {
        /// The target's path.
        path: PathBuf,
        /// The missing file.
        identity: &'static str,
    },
    /// Its identity file is damaged.
    #[error(
        "{path}: the identity file {identity:?} is damaged ({why}): check the disk; if the datafiles are sound, \
         restore that file from a backup"
    )]
    Damaged {
        /// The target's path.
        path: PathBuf,
        /// The damaged file.
        identity: &'static str,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A later version of Weft wrote it.
    #[error("{path}: format version {found}, this program knows {known}: install a later Weft")]
    Version {
        /// The target's path.
        path: PathBuf,
        /// As found.
        found: u32,
        /// As known.
        known: u32,
    },
    /// It belongs to another cluster or is another target.
    #[error(
        "{path}: this directory is {found}, the cluster file says {wanted}: correct the target's path or id"
    )]
    Foreign {
        /// The target's path.
        path: PathBuf,
        /// Whose it is.
        found: String,
        /// Whose it should be.
        wanted: String,
    },
    /// Newer bytes of it may lie in a log that it was opened without.
    #[error(
        "{path}: newer bytes of this target may lie in the fragment log {log}, which the cluster file does not name: \
         give the target its [server.target.ibridge] with that path again; with policy = \"off\" everything is written \
         to the disk at the start, and the section may go afterwards"
    )]
    LogNotNamed {
        /// The target's path.
        path: PathBuf,
        /// The log's.
        log: PathBuf,
    },
    /// The log beside it cannot be used.
    #[error("{0}")]
    Log(#[from] OpenLogError),
    /// What lies in the log beside it cannot be written to the disk.
    #[error("{path}: writing to the disk what lies in the fragment log {log}: {why}")]
    NotFlushed {
        /// The target's path.
        path: PathBuf,
        /// The log's.
        log: PathBuf,
        /// What stands in the way.
        why: String,
    },
    /// Its file system cannot do direct I/O.
    #[error(
        "{path}: the file system does not take direct I/O in blocks of {block} bytes ({source}): \
         set module = \"buffered\" for this target"
    )]
    NoDirect {
        /// The target's path.
        path: PathBuf,
        /// The size of the blocks.
        block: usize,
        /// As the system says.
        source: io::Error,
    },
}
