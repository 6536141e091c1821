//! What can go wrong with a log.

use std::io;
use std::path::PathBuf;

/// Why an operation on a log did not happen.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LogError {
    /// There is no room: the disk takes it. No fault.
    #[error("the fragment log is full")]
    Full,
    /// The SSD failed. Nothing more is written to this log.
    #[error(
        "{path}: {what}: the SSD of this target is no longer used: what is dirty on it is being moved to the disk; \
         replace the SSD"
    )]
    Failed {
        /// What of the log.
        path: PathBuf,
        /// What was tried, and what the system said.
        what: String,
    },
    /// Bytes that only the SSD had cannot be read.
    #[error(
        "{file} from {offset}: {len} bytes that were only in the fragment log {path} are lost ({what}): \
         write them anew or restore the file"
    )]
    Lost {
        /// The datafile's name.
        file: String,
        /// From where in the datafile.
        offset: u64,
        /// How many.
        len: u64,
        /// The log.
        path: PathBuf,
        /// Why.
        what: String,
    },
    /// A clean copy cannot be read: the disk has the same bytes. The copy has been dropped.
    #[error("a clean copy in the fragment log {path} cannot be read ({what})")]
    BadCopy {
        /// The log.
        path: PathBuf,
        /// Why.
        what: String,
    },
}

/// Why a log cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenLogError {
    /// Its directory is missing or cannot be used.
    #[error(
        "{path}: {doing}: {source}: make the directory on the SSD and let the server's user own it, \
         or correct the target's ibridge path in the cluster file"
    )]
    Io {
        /// The log's path.
        path: PathBuf,
        /// What was tried.
        doing: &'static str,
        /// As the system says.
        source: io::Error,
    },
    /// Another process has it.
    #[error(
        "{path}: another server uses this fragment log: end that one first, or give this one a path of its own"
    )]
    Locked {
        /// The log's path.
        path: PathBuf,
    },
    /// It holds something else.
    #[error(
        "{path}: not empty ({found} is there) and no fragment log: give the log an empty directory of its own"
    )]
    NotEmpty {
        /// The log's path.
        path: PathBuf,
        /// One thing that is there.
        found: String,
    },
    /// It belongs to another target.
    #[error("{path}: this fragment log is of {found}, the cluster file says {wanted}: correct its path")]
    Foreign {
        /// The log's path.
        path: PathBuf,
        /// Whose it is.
        found: String,
        /// Whose it should be.
        wanted: String,
    },
    /// What was durable is damaged, so that nobody knows which bytes are the newest.
    #[error(
        "{path}: the fragment log's {what} is damaged, and it held bytes that the disk does not have: restore \
         the log's directory, or remove what is in it to give these bytes up; then run `weft fsck`"
    )]
    Damaged {
        /// The log's path.
        path: PathBuf,
        /// The damaged part.
        what: String,
    },
    /// A later version of Weft wrote it.
    #[error("{path}: fragment log of version {found}, this program knows {known}: install a later Weft")]
    Version {
        /// The log's path.
        path: PathBuf,
        /// As found.
        found: u32,
        /// As known.
        known: u32,
    },
}
