//! What can be wrong with a trace, and what to do about it.

use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Why a trace cannot be read or written.
#[derive(Debug, Error)]
pub enum TraceError {
    /// The system refused.
    #[error("{}: {error}", path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// Its words.
        error: io::Error,
    },
    /// Not a trace of any kind that is known here.
    #[error("{}: {what}", path.display())]
    Unknown {
        /// Which file.
        path: PathBuf,
        /// What it looks like and what can be done.
        what: String,
    },
    /// A line or a heading of a CSV file makes no sense.
    #[error("{}: line {line}: {what}", path.display())]
    Csv {
        /// Which file.
        path: PathBuf,
        /// Counted from 1.
        line: u64,
        /// What is wrong.
        what: String,
    },
    /// Bytes of Weft's own format that were changed after they were written.
    #[error("{}: damaged at byte {at}: {what}{}", path.display(), saved(*at))]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// Where the block begins that does not hold.
        at: u64,
        /// What is wrong with it.
        what: String,
    },
    /// A Darshan log that cannot be read.
    #[error("{}: {what}", path.display())]
    Darshan {
        /// Which file.
        path: PathBuf,
        /// What is wrong and what to do.
        what: String,
    },
    /// A Darshan log without the operations that were asked for.
    #[error(
        "{}: this Darshan log has counters only (modules {modules}), no DXT: it does not say which bytes were \
         accessed when; `weft trace show` tells what it has, --reconstruct makes a likely course of events from its \
         counters, and a run with DXT_ENABLE_IO_TRACE=1 set records the operations themselves",
        path.display()
    )]
    NoDxt {
        /// Which file.
        path: PathBuf,
        /// Names of the modules that it has.
        modules: String,
    },
    /// The library that reads Darshan logs is not there.
    #[error("Darshan logs are read by libdarshan-util 3.4.1 or newer, which was not found{tried}; {remedy}")]
    NoLibrary {
        /// Where it was looked for and why that did not do.
        tried: String,
        /// What to do.
        remedy: &'static str,
    },
    /// The trace has nothing to do what was asked.
    #[error("{}: {what}", path.display())]
    Unfit {
        /// Which file.
        path: PathBuf,
        /// Why, and what to do.
        what: String,
    },
}

/// What can be had of a damaged trace.
fn saved(at: u64) -> &'static str {
    if at > 0 { "; `weft trace export` brings what comes before it to another file" } else { "" }
}

impl TraceError {
    /// Of a system call.
    pub fn io(path: &Path, error: io::Error) -> Self {
        Self::Io { path: path.to_owned(), error }
    }
}

/// What everything here returns.
pub type Result<T, E = TraceError> = std::result::Result<T, E>;
