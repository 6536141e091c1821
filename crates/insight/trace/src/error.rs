//! Errors of reading and writing traces, with their remedies.

use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// An error of reading or writing a trace.
#[derive(Debug, Error)]
pub enum TraceError {
    /// The operating system returned an error.
    #[error("{}: {error}", path.display())]
    Io {
        /// File of the operation.
        path: PathBuf,
        /// The operating system's error.
        error: io::Error,
    },
    /// The file's format is unknown.
    #[error("{}: {what}", path.display())]
    Unknown {
        /// The file.
        path: PathBuf,
        /// Apparent kind of the file, and the remedy.
        what: String,
    },
    /// A line of a CSV file is invalid.
    #[error("{}: line {line}: {what}", path.display())]
    Csv {
        /// The CSV file.
        path: PathBuf,
        /// Line number, counted from 1.
        line: u64,
        /// The reason.
        what: String,
    },
    /// A `.wtrace` file was damaged after it was written.
    #[error("{}: damaged at byte {at}: {what}{}", path.display(), saved(*at))]
    Damaged {
        /// The `.wtrace` file.
        path: PathBuf,
        /// Offset of the damaged block in bytes.
        at: u64,
        /// The reason.
        what: String,
    },
    /// A Darshan log cannot be read.
    #[error("{}: {what}", path.display())]
    Darshan {
        /// The log.
        path: PathBuf,
        /// The reason and the remedy.
        what: String,
    },
    /// A Darshan log has counters but no records of single operations.
    #[error(
        "{}: this Darshan log has counters only (modules {modules}), no DXT: it does not say which bytes were \
         accessed when; `weft trace show` prints its counters, --reconstruct guesses a likely sequence of operations \
         from them, and a run with DXT_ENABLE_IO_TRACE=1 set records the operations themselves",
        path.display()
    )]
    NoDxt {
        /// The log.
        path: PathBuf,
        /// Names of the log's modules.
        modules: String,
    },
    /// The library that reads Darshan logs was not found.
    #[error("Darshan logs are read by libdarshan-util 3.4.1 or newer, which was not found{tried}; {remedy}")]
    NoLibrary {
        /// Paths that were tried, and why each failed.
        tried: String,
        /// The remedy.
        remedy: &'static str,
    },
    /// The trace is valid but has no records for the requested operation.
    #[error("{}: {what}", path.display())]
    Unfit {
        /// The trace.
        path: PathBuf,
        /// The reason and the remedy.
        what: String,
    },
}

/// Returns the remedy for a trace that is damaged at byte `at`.
fn saved(at: u64) -> &'static str {
    if at > 0 { "; `weft trace export` copies the records before the damage to another file" } else { "" }
}

impl TraceError {
    /// Wraps an error of the operating system.
    pub fn io(path: &Path, error: io::Error) -> Self {
        Self::Io { path: path.to_owned(), error }
    }
}

/// Result of this crate's functions.
pub type Result<T, E = TraceError> = std::result::Result<T, E>;
