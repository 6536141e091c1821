//! Errors of the fragment log.

use crate::error::is_full;
use std::io;
use std::path::PathBuf;

/// Error of an operation on a log.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LogError {
    /// The log has no space. Not a fault: the caller writes to the disk.
    #[error("the fragment log is full")]
    Full,
    /// The SSD failed. Nothing more is written to this log.
    #[error(
        "{path}: {what}: the SSD of this target is no longer used: what is dirty on it is being moved to the disk; \
         replace the SSD"
    )]
    Failed {
        /// File that failed.
        path: PathBuf,
        /// Operation and error.
        what: String,
    },
    /// Bytes of which the SSD had the only copy cannot be read.
    #[error(
        "{file} from {offset}: {len} bytes that were only in the fragment log {path} are lost ({what}): \
         write them again or restore the file"
    )]
    Lost {
        /// Name of the datafile.
        file: String,
        /// Offset in the datafile.
        offset: u64,
        /// Number of bytes.
        len: u64,
        /// Path of the log.
        path: PathBuf,
        /// Cause.
        what: String,
    },
    /// A clean copy cannot be read. It has been dropped; the disk has the same bytes.
    #[error("a clean copy in the fragment log {path} cannot be read ({what})")]
    BadCopy {
        /// Path of the log.
        path: PathBuf,
        /// Cause.
        what: String,
    },
}

/// Returns the remedy for an error of the operating system at the opening of a log.
fn remedy(source: &io::Error) -> &'static str {
    match is_full(source) {
        true => "free space on the SSD, or make the `size` of the target's SSD smaller in the cluster file",
        false => {
            "make the directory on the SSD and let the server's user own it, or correct the path of the target's SSD in \
             the cluster file"
        }
    }
}

/// Error of opening a log.
#[derive(Debug, thiserror::Error)]
pub enum OpenLogError {
    /// The directory is missing or unusable.
    #[error("{path}: {doing}: {source}: {}", remedy(.source))]
    Io {
        /// Path of the log.
        path: PathBuf,
        /// Operation that failed.
        doing: &'static str,
        /// Error of the operating system.
        source: io::Error,
    },
    /// Another process uses the log.
    #[error(
        "{path}: another server uses this fragment log: stop that server first, or give this log a path of its own"
    )]
    Locked {
        /// Path of the log.
        path: PathBuf,
    },
    /// The directory is empty, and the log that was here may have the only copy of bytes.
    #[error(
        "{path}: no fragment log is here, but the one that was here may have had the newest bytes of {target}: mount \
         the right SSD, or remove {target}/beside to give these bytes up; then run `weft fsck`"
    )]
    Gone {
        /// Path of the log.
        path: PathBuf,
        /// Directory of the target.
        target: PathBuf,
    },
    /// The directory holds something else.
    #[error(
        "{path}: not empty (it contains {found}) and not a fragment log: give the log an empty directory of its own"
    )]
    NotEmpty {
        /// Path of the log.
        path: PathBuf,
        /// Name of one entry in the directory.
        found: String,
    },
    /// The log belongs to another target.
    #[error(
        "{path}: this fragment log belongs to {found}, but the cluster file says {expected}: correct its path"
    )]
    Foreign {
        /// Path of the log.
        path: PathBuf,
        /// Owner recorded in the log.
        found: String,
        /// Owner according to the cluster file.
        expected: String,
    },
    /// Durable data is damaged, so it is unknown which bytes are the newest.
    #[error(
        "{path}: the fragment log's {what} is damaged, and it held bytes that the disk does not have: restore \
         the log's directory, or remove what is in it to give these bytes up; then run `weft fsck`"
    )]
    Damaged {
        /// Path of the log.
        path: PathBuf,
        /// Damaged part.
        what: String,
    },
    /// A later version of Weft wrote the log.
    #[error("{path}: fragment log of version {found}, this program knows {known}: install a later Weft")]
    Version {
        /// Path of the log.
        path: PathBuf,
        /// Version in the log.
        found: u32,
        /// Latest version that this program reads.
        known: u32,
    },
}
