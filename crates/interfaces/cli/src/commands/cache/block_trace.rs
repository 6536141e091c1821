//! Traces of block devices as CSV.
//!
//! | form | columns |
//! | --- | --- |
//! | MSR Cambridge, no heading | Timestamp, Hostname, DiskNumber, Type, Offset, Size, ResponseTime |
//! | with a heading | `timestamp`, `offset`, `size`, `op`, in any order; `volume` may be absent |
//!
//! MSR Cambridge traces are those of Narayanan, Donnelly and Rowstron (FAST 2008). Offset and size are bytes. The lines
//! are in the order of time; the timestamps are not used.

use super::trace::Step;
use crate::failure::Failure;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use weft_core::LocalExtent;
use weft_core::cache::CacheRequest;

/// Maximum length of a line in bytes.
const LINE_LEN_MAX: u64 = 4096;
/// Maximum length of a request in bytes. A longer one is a damaged line.
const REQUEST_LEN_MAX: u64 = 1 << 32;
/// Maximum offset. No device is larger.
const OFFSET_MAX: u64 = 1 << 60;
/// Maximum number of volumes.
const VOLUMES_MAX: usize = 65_536;

/// Positions of the columns.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Columns {
    /// Columns that together name the volume.
    volume: Vec<usize>,
    operation: usize,
    offset: usize,
    size: usize,
    has_heading: bool,
}

impl Columns {
    /// Recognizes the first line of a trace.
    fn of(line: &str) -> Option<Self> {
        let cells: Vec<String> = line
            .trim_start_matches('\u{feff}')
            .split(',')
            .map(|cell| cell.trim().trim_matches('"').to_ascii_lowercase())
            .collect();
        let is_number = |at: usize| cells.get(at).is_some_and(|cell| cell.parse::<u64>().is_ok());
        if cells.len() == 7 && is_number(0) && is_number(4) && is_number(5) && operation(&cells[3]).is_some()
        {
            let volume = vec![1, 2];
            return Some(Self { volume, operation: 3, offset: 4, size: 5, has_heading: false });
        }
        let find = |names: &[&str]| cells.iter().position(|cell| names.contains(&cell.as_str()));
        // A trace of a program has a column of files, and its own reader.
        if find(&["file", "path", "filename", "file_name"]).is_some() {
            return None;
        }
        Some(Self {
            volume: find(&["volume", "disk", "device"]).into_iter().collect(),
            operation: find(&["op", "operation", "type"])?,
            offset: find(&["offset"])?,
            size: find(&["size", "length", "len", "bytes"])?,
            has_heading: true,
        })
    }
}

/// Returns whether an operation writes.
fn operation(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "read" | "r" => Some(false),
        "write" | "w" => Some(true),
        _ => None,
    }
}

/// Returns true if a file begins like the trace of a block device.
///
/// # Errors
/// If the file cannot be read.
pub fn is_block_trace(path: &Path) -> Result<bool, Failure> {
    let failed = |error| Failure::new(path.display(), error);
    let mut begin = Vec::new();
    File::open(path).map_err(failed)?.take(LINE_LEN_MAX).read_to_end(&mut begin).map_err(failed)?;
    let line = begin.split(|byte| *byte == b'\n').next().unwrap_or_default();
    Ok(std::str::from_utf8(line).is_ok_and(|line| Columns::of(line).is_some()))
}

/// The requests of a trace, as a stream.
pub struct BlockTrace {
    path: PathBuf,
    input: BufReader<File>,
    columns: Columns,
    volumes: BTreeMap<String, u64>,
    line: u64,
    text: Vec<u8>,
    /// Whether `text` holds the first request already.
    is_pending: bool,
}

impl BlockTrace {
    /// Opens a trace.
    ///
    /// # Errors
    /// If the file cannot be read or is no trace of a block device.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        let file = File::open(path).map_err(|error| Failure::new(path.display(), error))?;
        let mut trace = Self {
            path: path.to_owned(),
            input: BufReader::with_capacity(1 << 16, file),
            columns: Columns { volume: Vec::new(), operation: 0, offset: 0, size: 0, has_heading: true },
            volumes: BTreeMap::new(),
            line: 0,
            text: Vec::new(),
            is_pending: false,
        };
        trace.read_line()?;
        let columns = std::str::from_utf8(&trace.text).ok().and_then(Columns::of);
        trace.columns =
            columns.ok_or_else(|| trace.wrong("not the first line of a trace of a block device"))?;
        trace.is_pending = !trace.columns.has_heading;
        Ok(trace)
    }

    /// Reads a line. Returns false at the end.
    fn read_line(&mut self) -> Result<bool, Failure> {
        self.text.clear();
        self.line += 1;
        let read = self.input.by_ref().take(LINE_LEN_MAX).read_until(b'\n', &mut self.text);
        let len = read.map_err(|error| Failure::new(self.path.display(), error))?;
        if len as u64 == LINE_LEN_MAX {
            return Err(self.wrong("the line is longer than 4,095 bytes"));
        }
        Ok(len > 0)
    }

    fn wrong(&self, why: impl std::fmt::Display) -> Failure {
        Failure::new(format_args!("{}: line {}", self.path.display(), self.line), why)
            .remedy("`weft help cache simulate` lists the columns")
    }

    fn step(&mut self) -> Result<Option<Step>, Failure> {
        loop {
            if !std::mem::take(&mut self.is_pending) && !self.read_line()? {
                return Ok(None);
            }
            let text = std::str::from_utf8(&self.text).map_err(|_| self.wrong("not UTF-8"))?;
            let text = text.trim();
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            let cells: Vec<&str> = text.split(',').map(|cell| cell.trim().trim_matches('"')).collect();
            let cell = |at: usize| cells.get(at).copied().unwrap_or_default();
            let number = |at: usize, max: u64, what: &str| {
                let number = cell(at).parse::<u64>().ok().filter(|number| *number <= max);
                number.ok_or_else(|| self.wrong(format_args!("{:?} is not {what} in bytes", cell(at))))
            };
            let offset = number(self.columns.offset, OFFSET_MAX, "an offset")?;
            let size = number(self.columns.size, REQUEST_LEN_MAX, "a size")?;
            let Some(writes) = operation(cell(self.columns.operation)) else {
                let why = format!("{:?} is neither Read nor Write", cell(self.columns.operation));
                return Err(self.wrong(why));
            };
            let volume = self.columns.volume.iter().map(|at| cell(*at)).collect::<Vec<_>>().join(".");
            let file = match self.volumes.get(&volume) {
                Some(file) => *file,
                None if self.volumes.len() == VOLUMES_MAX => {
                    return Err(self.wrong("the trace has more than 65,536 volumes"));
                }
                None => {
                    let file = self.volumes.len() as u64;
                    self.volumes.insert(volume, file);
                    file
                }
            };
            let request = CacheRequest { file, session: 0, extent: LocalExtent::new(offset, size) };
            return Ok(Some(if writes { Step::Write(request) } else { Step::Read(request) }));
        }
    }
}

impl Iterator for BlockTrace {
    type Item = Result<Step, Failure>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step().transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(text: &str) -> Result<Vec<Step>, Failure> {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("trace");
        std::fs::write(&path, text).expect("written");
        let recognized = is_block_trace(&path)?;
        let read = BlockTrace::open(&path).and_then(Iterator::collect);
        assert!(recognized || read.is_err());
        read
    }

    fn request(file: u64, offset: u64, len: u64) -> CacheRequest {
        CacheRequest { file, session: 0, extent: LocalExtent::new(offset, len) }
    }

    #[test]
    fn msr_cambridge_traces_are_read() {
        let read = steps(
            "128166372003061629,usr,0,Read,7014609920,24576,41286\r\n\
             128166372016382155,usr,1,Write,1317441536,8192,1963\n\n\
             128166372026382245,usr,0,Read,0,4096,1\n",
        );
        assert_eq!(
            read.expect("a trace"),
            [
                Step::Read(request(0, 7_014_609_920, 24_576)),
                Step::Write(request(1, 1_317_441_536, 8192)),
                Step::Read(request(0, 0, 4096)),
            ]
        );
    }

    #[test]
    fn headings_name_columns_in_any_order() {
        let read = steps("# no\ntimestamp,offset\n").map(|steps| steps.len());
        assert!(read.is_err());
        let read = steps("Timestamp, Offset, Size, Op\n1,0,512,R\n2.5,512,100,w\n# end\n").expect("a trace");
        assert_eq!(read, [Step::Read(request(0, 0, 512)), Step::Write(request(0, 512, 100))]);
        let read = steps("op,volume,size,offset,queue\nread,b,1,2,9\nread,a,3,4,9\nread,b,5,6,9\n")
            .expect("a trace");
        assert_eq!(read.len(), 3);
        assert_eq!((read[1], read[2]), (Step::Read(request(1, 4, 3)), Step::Read(request(0, 6, 5))));
    }

    #[test]
    fn wrong_lines_are_named() {
        for (line, why) in [
            ("3,a,1,x", "\"a\" is not an offset in bytes"),
            ("3,1,-1,r", "\"-1\" is not a size"),
            ("3,1,1,x", "neither Read nor Write"),
            ("3,1", "\"\" is not a size"),
            ("3,9999999999999999999,1,r", "offset"),
            ("3,1,18446744073709551615,r", "size"),
        ] {
            let error = steps(&format!("timestamp,offset,size,op\n1,2,3,r\n{line}\n")).unwrap_err();
            assert!(error.text().contains(why) && error.text().contains("line 3"), "{line}: {error}");
        }
        let error = steps(&format!("timestamp,offset,size,op\n{}", "1".repeat(5000))).unwrap_err();
        assert!(error.text().contains("longer than 4,095"), "{error}");
    }

    #[test]
    fn traces_of_programs_are_left_to_their_reader() {
        assert_eq!(Columns::of("operation,file,offset,length"), None);
        assert_eq!(Columns::of(""), None);
    }
}
