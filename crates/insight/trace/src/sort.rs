//! External merge sort of records by start time.

use crate::error::{Result, TraceError};
use crate::names::{FileId, HostId};
use crate::record::{Level, Operation, Rank, Record};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use weft_core::{ByteLen, FileOffset, Nanos};

/// Length of a packed record in bytes. Packed records are stored only in temporary files.
pub const PACKED_LEN: usize = 48;
/// Maximum total size of the runs' buffers during a merge, in bytes.
const MERGE_BUFFER_BYTES_MAX: usize = 32 << 20;

/// Packs a record into fixed-length bytes.
pub fn pack(record: &Record) -> [u8; PACKED_LEN] {
    let mut out = [0; PACKED_LEN];
    let words = [record.start.get(), record.end.get(), record.offset.get(), record.len.get()];
    for (field, word) in out.chunks_mut(8).zip(words) {
        field.copy_from_slice(&word.to_le_bytes());
    }
    out[32..36].copy_from_slice(&record.rank.0.to_le_bytes());
    out[36..40].copy_from_slice(&record.file.0.to_le_bytes());
    out[40] = record.op as u8;
    out[41] = record.level as u8;
    out[42] = u8::from(record.collective);
    out[44..48].copy_from_slice(&record.host.0.to_le_bytes());
    out
}

/// Unpacks the result of [`pack`].
pub fn unpack(bytes: &[u8; PACKED_LEN]) -> Record {
    let u64_at = |at: usize| u64::from_le_bytes(*bytes[at..].first_chunk().expect("48 bytes"));
    let u32_at = |at: usize| u32::from_le_bytes(*bytes[at..].first_chunk().expect("48 bytes"));
    Record {
        rank: Rank(u32_at(32)),
        host: HostId(u32_at(44)),
        file: FileId(u32_at(36)),
        op: Operation::from_number(bytes[40]).expect("packed by this process"),
        level: if bytes[41] == Level::MpiIo as u8 { Level::MpiIo } else { Level::Posix },
        collective: bytes[42] != 0,
        offset: FileOffset(u64_at(16)),
        len: ByteLen(u64_at(24)),
        start: Nanos(u64_at(0)),
        end: Nanos(u64_at(8)),
    }
}

/// Collects records in any order and writes sorted runs to a temporary file.
pub struct Sorter {
    /// Directory of the temporary file, named in errors.
    path: PathBuf,
    out: BufWriter<File>,
    run: Vec<Record>,
    run_records: usize,
    /// Number of records of each run in the file.
    runs: Vec<u64>,
}

impl Sorter {
    /// Creates a sorter with an unnamed temporary file in `dir`. Each run has `run_records` records.
    pub fn new(dir: &Path, run_records: usize) -> Result<Self> {
        let file = tempfile::tempfile_in(dir).map_err(|error| TraceError::io(dir, error))?;
        Ok(Self {
            path: dir.to_owned(),
            out: BufWriter::with_capacity(1 << 20, file),
            run: Vec::new(),
            run_records: run_records.max(1),
            runs: Vec::new(),
        })
    }

    /// Adds a record.
    pub fn push(&mut self, record: Record) -> Result<()> {
        self.run.push(record);
        if self.run.len() >= self.run_records { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> Result<()> {
        if self.run.is_empty() {
            return Ok(());
        }
        // A stable sort keeps the source's order for records of a rank that start at the same time.
        self.run.sort_by_key(order);
        for record in &self.run {
            self.out.write_all(&pack(record)).map_err(|error| TraceError::io(&self.path, error))?;
        }
        self.runs.push(self.run.len() as u64);
        self.run.clear();
        Ok(())
    }

    /// Writes the last run.
    pub fn finish(mut self) -> Result<Sorted> {
        self.write()?;
        let file = self.out.into_inner().map_err(|error| TraceError::io(&self.path, error.into_error()))?;
        Ok(Sorted { path: self.path, file, runs: self.runs })
    }
}

fn order(record: &Record) -> (Nanos, Rank) {
    (record.start, record.rank)
}

/// Sorted runs in a temporary file.
pub struct Sorted {
    path: PathBuf,
    file: File,
    runs: Vec<u64>,
}

impl Sorted {
    /// Iterates over all records in order. May be called more than once.
    pub fn iter(&self) -> Result<Merge<'_>> {
        let buffer = (MERGE_BUFFER_BYTES_MAX / self.runs.len().max(1) / PACKED_LEN).clamp(16, 16_384);
        let mut at = 0;
        let mut merge = Merge { heads: BinaryHeap::new(), runs: Vec::new() };
        for (number, len) in self.runs.iter().enumerate() {
            let mut run = Slice::new(&self.path, &self.file, at..at + len, buffer);
            at += len;
            if let Some(first) = run.next().transpose()? {
                merge.heads.push(Reverse((order(&first), number, pack(&first))));
            }
            merge.runs.push(run);
        }
        Ok(merge)
    }
}

/// The next record of a run: sort key, number of the run, packed record.
type Head = ((Nanos, Rank), usize, [u8; PACKED_LEN]);

/// Merges the records of all runs.
pub struct Merge<'a> {
    heads: BinaryHeap<Reverse<Head>>,
    runs: Vec<Slice<'a>>,
}

impl Iterator for Merge<'_> {
    type Item = Result<Record>;

    fn next(&mut self) -> Option<Self::Item> {
        let Reverse((_, number, packed)) = self.heads.pop()?;
        match self.runs[number].next() {
            Some(Ok(next)) => self.heads.push(Reverse((order(&next), number, pack(&next)))),
            Some(Err(error)) => {
                self.heads.clear();
                return Some(Err(error));
            }
            None => {}
        }
        Some(Ok(unpack(&packed)))
    }
}

/// Consecutive packed records of a file.
pub struct Slice<'a> {
    path: &'a Path,
    file: &'a File,
    left: std::ops::Range<u64>,
    buffer: Vec<u8>,
    next: usize,
    buffer_records: usize,
}

impl<'a> Slice<'a> {
    /// Reads the records with the numbers in `range` through a buffer of `buffer_records` records.
    pub fn new(path: &'a Path, file: &'a File, range: std::ops::Range<u64>, buffer_records: usize) -> Self {
        Self { path, file, left: range, buffer: Vec::new(), next: 0, buffer_records }
    }

    fn fill(&mut self) -> Result<()> {
        let count = (self.left.end - self.left.start).min(self.buffer_records as u64);
        self.buffer.resize(count as usize * PACKED_LEN, 0);
        self.next = 0;
        let at = self.left.start * PACKED_LEN as u64;
        self.left.start += count;
        self.file.read_exact_at(&mut self.buffer, at).map_err(|error| TraceError::io(self.path, error))
    }
}

impl Iterator for Slice<'_> {
    type Item = Result<Record>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.next == self.buffer.len() {
            if self.left.is_empty() {
                return None;
            }
            if let Err(error) = self.fill() {
                self.left.start = self.left.end;
                self.buffer.clear();
                self.next = 0;
                return Some(Err(error));
            }
        }
        let packed = self.buffer[self.next..].first_chunk().expect("whole records");
        self.next += PACKED_LEN;
        Some(Ok(unpack(packed)))
    }
}
