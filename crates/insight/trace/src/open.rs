//! Opens a trace of any format, detected by content.

use crate::csv;
use crate::darshan::{self, Helper};
use crate::error::{Result, TraceError};
use crate::stream::RecordStream;
use crate::wtrace;
use std::fs::File;
use std::io::{BufReader, ErrorKind, Read, Seek};
use std::path::Path;

/// File format of a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Weft's own format, `.wtrace`.
    Wtrace,
    /// CSV with a valid heading.
    Csv,
    /// A Darshan 3 log.
    Darshan,
}

/// Options for opening a trace.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// Helper program that reads Darshan logs.
    pub helper: Helper,
    /// Whether to reconstruct operations from the counters of a Darshan log that has no DXT data.
    pub reconstruct: bool,
}

/// A record stream of any format.
pub type AnyStream = Box<dyn RecordStream>;

/// Detects the format of a file.
///
/// # Errors
/// Fails if the file cannot be read or its format is unknown.
pub fn kind(path: &Path) -> Result<Kind> {
    let mut file = File::open(path).map_err(|error| TraceError::io(path, error))?;
    sniff(path, &mut file)
}

fn sniff(path: &Path, file: &mut File) -> Result<Kind> {
    let mut begin = Vec::new();
    let read = file.by_ref().take(8192).read_to_end(&mut begin);
    let unknown = |what: &str| Err(TraceError::Unknown { path: path.to_owned(), what: what.to_owned() });
    match read.and_then(|_| file.rewind()) {
        Err(error) if error.kind() == ErrorKind::NotSeekable => {
            return unknown(
                "traces are read from a seekable file, and this is a pipe; write it to a file first",
            );
        }
        read => read.map_err(|error| TraceError::io(path, error))?,
    }
    if begin.starts_with(wtrace::MAGIC) {
        return Ok(Kind::Wtrace);
    }
    if darshan::is_log(&begin) {
        return Ok(Kind::Darshan);
    }
    if begin.starts_with(&[0x1f, 0x8b]) || begin.starts_with(b"BZh") {
        return unknown(
            "compressed by gzip or bzip2: uncompress it first; convert a Darshan 2 log to Darshan 3 with \
             darshan-convert",
        );
    }
    if begin.is_empty() {
        return unknown("it is empty");
    }
    // The prefix may end inside a character, and file names may contain any bytes.
    let valid = begin.utf8_chunks().next().map_or("", |chunk| chunk.valid());
    let is_csv = |text: &str| csv::has_heading(text.trim_start_matches('\u{feff}'));
    let text = match begin.len() - valid.len() {
        0..4 => valid,
        _ if valid.contains('\n') && is_csv(valid) => valid,
        _ => "\0",
    };
    if text.contains('\0') {
        return unknown("neither .wtrace, CSV nor a Darshan 3 log");
    }
    if is_csv(text) {
        return Ok(Kind::Csv);
    }
    unknown(&format!("text without the heading line of a trace; CSV needs one, such as {}", csv::HEADING))
}

/// Opens a trace.
///
/// # Errors
/// Fails if the file cannot be read, its format is unknown, or the format's reader rejects it.
pub fn open(path: &Path, options: &OpenOptions) -> Result<AnyStream> {
    let mut file = File::open(path).map_err(|error| TraceError::io(path, error))?;
    match sniff(path, &mut file)? {
        Kind::Wtrace => Ok(Box::new(wtrace::Reader::open(path)?)),
        Kind::Csv => {
            let len = file.metadata().map_err(|error| TraceError::io(path, error))?.len();
            Ok(Box::new(csv::Reader::new(path, BufReader::new(file), len)?))
        }
        Kind::Darshan => darshan::open(path, options),
    }
}
