//! Records in the order of their begin, by sorting runs that fit in memory and merging them from a file.

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

/// Bytes of a record in files that only this process reads.
pub const PACKED_LEN: usize = 48;
/// Most bytes of all runs that are in memory while they are merged.
const MERGE_MEMORY: usize = 32 << 20;

/// A record as bytes.
pub fn pack(record: &Record) -> [u8; PACKED_LEN] {
    let mut out = [0; PACKED_LEN];
    let words = [record.start.get(), record.end.get(), record.offset.get(), record.len.get()];
    for (place, word) in out.chunks_mut(8).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    out[32..36].copy_from_slice(&record.rank.0.to_le_bytes());
    out[36..40].copy_from_slice(&record.file.0.to_le_bytes());
    out[40] = record.op as u8;
    out[41] = record.level as u8;
    out[42] = u8::from(record.collective);
    out[44..48].copy_from_slice(&record.host.0.to_le_bytes());
    out
}

/// What [`pack`] made.
pub fn unpack(bytes: &[u8; PACKED_LEN]) -> Record {
    let word = |at: usize| u64::from_le_bytes(*bytes[at..].first_chunk().expect("48 bytes"));
    let half = |at: usize| u32::from_le_bytes(*bytes[at..].first_chunk().expect("48 bytes"));
    Record {
        rank: Rank(half(32)),
        host: HostId(half(44)),
        file: FileId(half(36)),
        op: Operation::from_number(bytes[40]).expect("packed by this process"),
        level: if bytes[41] == Level::MpiIo as u8 { Level::MpiIo } else { Level::Posix },
        collective: bytes[42] != 0,
        offset: FileOffset(word(16)),
        len: ByteLen(word(24)),
        start: Nanos(word(0)),
        end: Nanos(word(8)),
    }
}

/// Takes records in any order.
pub struct Sorter {
    /// Stands in errors.
    path: PathBuf,
    out: BufWriter<File>,
    run: Vec<Record>,
    run_records: usize,
    /// Number of records of each run in the file.
    runs: Vec<u64>,
}

impl Sorter {
    /// With a file in `dir` that has no name and goes with this, and so many records in memory.
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

    /// Takes a record.
    pub fn push(&mut self, record: Record) -> Result<()> {
        self.run.push(record);
        if self.run.len() >= self.run_records { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> Result<()> {
        if self.run.is_empty() {
            return Ok(());
        }
        // Stable: what begins at the same time on a rank stays in the order of the source.
        self.run.sort_by_key(order);
        for record in &self.run {
            self.out.write_all(&pack(record)).map_err(|error| TraceError::io(&self.path, error))?;
        }
        self.runs.push(self.run.len() as u64);
        self.run.clear();
        Ok(())
    }

    /// All of them, in order, as often as one likes.
    pub fn finish(mut self) -> Result<Sorted> {
        self.write()?;
        let file = self.out.into_inner().map_err(|error| TraceError::io(&self.path, error.into_error()))?;
        Ok(Sorted { path: self.path, file, runs: self.runs })
    }
}

fn order(record: &Record) -> (Nanos, Rank) {
    (record.start, record.rank)
}

/// Runs in a file.
pub struct Sorted {
    path: PathBuf,
    file: File,
    runs: Vec<u64>,
}

impl Sorted {
    /// From the first to the last.
    pub fn iter(&self) -> Result<Merge<'_>> {
        let buffer = (MERGE_MEMORY / self.runs.len().max(1) / PACKED_LEN).clamp(16, 16_384);
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

/// The next record of a run: its place in the order, the run's number, itself.
type Head = ((Nanos, Rank), usize, [u8; PACKED_LEN]);

/// Sorted records of all runs.
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

/// Records that stand one after another in a file.
pub struct Slice<'a> {
    path: &'a Path,
    file: &'a File,
    left: std::ops::Range<u64>,
    buffer: Vec<u8>,
    next: usize,
    buffer_records: usize,
}

impl<'a> Slice<'a> {
    /// Those with the numbers `range`, so many in memory.
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
