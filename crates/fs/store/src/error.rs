//! Errors of targets and datafiles.

use crate::fragments::{LogError, OpenLogError};
use std::io;
use std::path::PathBuf;
use weft_core::TargetId;

/// Error of an operation on a datafile.
#[derive(Debug, thiserror::Error)]
pub enum DatafileError {
    /// The device is full.
    #[error(
        "{path}: {doing}: no space left on the device: free some, or add a target and place new files there"
    )]
    NoSpace {
        /// Path of the datafile.
        path: String,
        /// Operation that failed.
        doing: &'static str,
    },
    /// The device failed.
    #[error("{path}: {doing}: the device reports an error: look at the kernel's log and the disk's health")]
    Device {
        /// Path of the datafile.
        path: String,
        /// Operation that failed.
        doing: &'static str,
    },
    /// Bytes do not match their checksums.
    #[error(
        "{path}: {doing}: bytes {start} to {end} of this datafile on {target} do not match their checksums: the disk \
         damaged them: run `weft fsck --scrub` to find all damaged files, restore them from a backup or write the \
         damaged bytes again, and look at the disk's health"
    )]
    Damaged {
        /// Path of the datafile.
        path: String,
        /// Target that holds it.
        target: TargetId,
        /// Operation that failed.
        doing: &'static str,
        /// First byte of the damaged blocks.
        start: u64,
        /// One past their last byte.
        end: u64,
    },
    /// The file requires checksums at rest, but this datafile holds bytes without any.
    #[error(
        "{path}: {doing}: the checksums of this datafile on {target} are missing, so its bytes cannot be verified: \
         restore the file from a backup, or bring the file {path}{suffix} back, and look at the disk's health",
        suffix = crate::integrity::SUFFIX
    )]
    ChecksumsMissing {
        /// Path of the datafile.
        path: String,
        /// Target that holds it.
        target: TargetId,
        /// Operation that failed.
        doing: &'static str,
    },
    /// The map of a compressed datafile is missing, or a datafile of a compressed file holds bytes and has no map.
    #[error(
        "{path}: {doing}: the map of this compressed datafile on {target} is missing, so none of its bytes can be \
         found: bring the file {path}{suffix} back or restore the file from a backup, and look at the disk's health",
        suffix = crate::compressed::MAP_SUFFIX
    )]
    MapMissing {
        /// Path of the datafile.
        path: String,
        /// Target that holds it.
        target: TargetId,
        /// Operation that failed.
        doing: &'static str,
    },
    /// The map of a compressed datafile is damaged.
    #[error(
        "{path}: {doing}: the map {path}{suffix} of this compressed datafile on {target} is damaged ({why}), so its \
         bytes, from the first to the last, cannot be found reliably: restore the file from a backup, and look at the \
         disk's health",
        suffix = crate::compressed::MAP_SUFFIX
    )]
    MapDamaged {
        /// Path of the datafile.
        path: String,
        /// Target that holds it.
        target: TargetId,
        /// Operation that failed.
        doing: &'static str,
        /// Kind of damage.
        why: &'static str,
    },
    /// An earlier sync failed, so bytes written before it may be lost.
    #[error(
        "{path}: sync: an earlier sync of it failed, and the system does not say which bytes were lost: \
         look at the disk's health, then write the file again"
    )]
    Unsafe {
        /// Path of the datafile.
        path: String,
    },
    /// The datafile's file has been removed. The client had it open and had lost contact with the metadata service.
    #[error("{path}: its file was removed: open it again")]
    Removed {
        /// Path of the datafile.
        path: String,
    },
    /// Error of the fragment log beside the target.
    #[error("{0}")]
    Log(#[from] LogError),
    /// Any other error.
    #[error("{path}: {doing}: {source}")]
    Other {
        /// Path of the datafile.
        path: String,
        /// Operation that failed.
        doing: &'static str,
        /// Error of the operating system.
        source: io::Error,
    },
}

impl DatafileError {
    /// Classifies an error of the operating system.
    pub(crate) fn new(path: impl Into<String>, doing: &'static str, source: io::Error) -> Self {
        let path = path.into();
        match source.raw_os_error() {
            Some(ENOSPC) => Self::NoSpace { path, doing },
            _ if source.kind() == io::ErrorKind::StorageFull => Self::NoSpace { path, doing },
            Some(EIO) => Self::Device { path, doing },
            _ => Self::Other { path, doing, source },
        }
    }

    /// Returns the error's Linux errno; `EIO` if it has none.
    pub fn errno(&self) -> i32 {
        match self {
            Self::NoSpace { .. } => ENOSPC,
            Self::Device { .. }
            | Self::Damaged { .. }
            | Self::ChecksumsMissing { .. }
            | Self::MapMissing { .. }
            | Self::MapDamaged { .. }
            | Self::Unsafe { .. }
            | Self::Log(_) => EIO,
            Self::Removed { .. } => ESTALE,
            Self::Other { source, .. } => source.raw_os_error().unwrap_or(EIO),
        }
    }
}

const EIO: i32 = 5;
const ENOSPC: i32 = 28;
const EDQUOT: i32 = 122;

/// Returns true if an operation failed because the file system has no free space, or the user's quota is used up.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(ENOSPC | EDQUOT))
        || matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
const ESTALE: i32 = 116;

/// Reason why a target cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// The directory is missing or unusable.
    #[error(
        "{path}: {doing}: {source}: make the directory and let the server's user own it, \
         or correct the target's path in the cluster file"
    )]
    Io {
        /// Path of the target.
        path: PathBuf,
        /// Operation that failed.
        doing: &'static str,
        /// Error of the operating system.
        source: io::Error,
    },
    /// Another process uses the target.
    #[error(
        "{path}: another server uses this target: stop that server first, or give this target a path of its own"
    )]
    Locked {
        /// Path of the target.
        path: PathBuf,
    },
    /// The directory holds something else.
    #[error(
        "{path}: not empty (it contains {found}) and not a Weft target: give the target an empty directory of its own"
    )]
    NotEmpty {
        /// Path of the target.
        path: PathBuf,
        /// Name of one entry in the directory.
        found: String,
    },
    /// The directory holds datafiles, but no identity file.
    #[error(
        "{path}: holds datafiles, but its identity file {identity:?} is gone: restore that file from a backup \
         before the server may touch them"
    )]
    IdentityGone {
        /// Path of the target.
        path: PathBuf,
        /// Name of the missing file.
        identity: &'static str,
    },
    /// The identity file is damaged.
    #[error(
        "{path}: the identity file {identity:?} is damaged ({why}): check the disk; if the datafiles are sound, \
         restore that file from a backup"
    )]
    Damaged {
        /// Path of the target.
        path: PathBuf,
        /// Name of the damaged file.
        identity: &'static str,
        /// Kind of damage.
        why: &'static str,
    },
    /// A later version of Weft wrote the target.
    #[error("{path}: format version {found}, this program knows {known}: install a later Weft")]
    Version {
        /// Path of the target.
        path: PathBuf,
        /// Version in the identity file.
        found: u32,
        /// Latest version that this program reads.
        known: u32,
    },
    /// The target belongs to another cluster, or has another number.
    #[error(
        "{path}: this directory is {found}, the cluster file says {expected}: correct the target's path or id"
    )]
    Foreign {
        /// Path of the target.
        path: PathBuf,
        /// Owner recorded in the identity file.
        found: String,
        /// Owner according to the cluster file.
        expected: String,
    },
    /// A fragment log may hold newer bytes of the target, but the target was opened without it.
    #[error(
        "{path}: newer bytes of this target may lie in the fragment log {log}, which the cluster file does not name: \
         give the target its [server.target.ibridge] or [server.target.cache] with that path again; with policy = \
         \"off\" or mode = \"off\" everything is written to the disk at the start, and the section may go afterwards"
    )]
    LogNotNamed {
        /// Path of the target.
        path: PathBuf,
        /// Path of the log.
        log: PathBuf,
    },
    /// Error of opening the fragment log beside the target.
    #[error("{0}")]
    Log(#[from] OpenLogError),
    /// Dirty bytes in the fragment log cannot be written to the disk.
    #[error("{path}: writing the fragment log {log} back to the disk: {why}")]
    NotFlushed {
        /// Path of the target.
        path: PathBuf,
        /// Path of the log.
        log: PathBuf,
        /// Cause.
        why: String,
    },
    /// The file system does not support direct I/O.
    #[error(
        "{path}: the file system does not take direct I/O in blocks of {block} bytes ({source}): \
         set module = \"buffered\" for this target"
    )]
    NoDirect {
        /// Path of the target.
        path: PathBuf,
        /// Block size in bytes.
        block: usize,
        /// Error of the operating system.
        source: io::Error,
    },
}
