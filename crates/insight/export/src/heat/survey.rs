//! The first pass: collects ranges and totals for the axes.

use std::collections::BTreeMap;
use weft_core::Nanos;
use weft_trace::{FileId, Level, Operation, Record};

/// Ranges and totals of a trace's data operations, by level.
#[derive(Clone, Default, Debug)]
pub struct Survey {
    levels: [LevelTotals; 2],
}

#[derive(Clone, Default, Debug)]
struct LevelTotals {
    span: Option<(Nanos, Nanos)>,
    ranks: u32,
    operations: u64,
    files: BTreeMap<FileId, FileHeat>,
}

/// Bytes moved in a file.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct FileHeat {
    /// Bytes read.
    pub read: u64,
    /// Bytes written.
    pub written: u64,
    /// First byte accessed.
    pub begin: u64,
    /// One past the last byte accessed.
    pub end: u64,
    /// Start of the first operation, and end of the last.
    pub span: (Nanos, Nanos),
}

impl FileHeat {
    /// Bytes read and written.
    pub fn bytes(&self) -> u64 {
        self.read.saturating_add(self.written)
    }
}

/// Whether a record moves bytes and therefore appears in a heat map.
pub(super) fn counts(record: &Record) -> bool {
    record.op.moves_bytes() && record.len.get() > 0
}

impl Survey {
    /// Adds a record.
    pub fn add(&mut self, record: &Record) {
        if !counts(record) {
            return;
        }
        let totals = &mut self.levels[record.level as usize];
        totals.operations += 1;
        let (begin, end) = totals.span.unwrap_or((record.start, record.end));
        totals.span = Some((begin.min(record.start), end.max(record.end)));
        totals.ranks = totals.ranks.max(record.rank.0.saturating_add(1));
        let new = FileHeat { begin: u64::MAX, span: (record.start, record.end), ..FileHeat::default() };
        let file = totals.files.entry(record.file).or_insert(new);
        let bytes = if record.op == Operation::Write { &mut file.written } else { &mut file.read };
        *bytes = bytes.saturating_add(record.len.get());
        file.begin = file.begin.min(record.offset.get());
        file.end = file.end.max(record.end_offset());
        file.span = (file.span.0.min(record.start), file.span.1.max(record.end));
    }

    /// The level to draw: POSIX if it moved any bytes, else MPI-IO. Both levels record the same bytes.
    pub fn level(&self) -> Level {
        if self.levels[0].operations > 0 { Level::Posix } else { Level::MpiIo }
    }

    /// Number of reads and writes at `level`.
    pub fn operations(&self, level: Level) -> u64 {
        self.levels[level as usize].operations
    }

    /// One more than the highest rank.
    pub fn ranks(&self, level: Level) -> u32 {
        self.levels[level as usize].ranks
    }

    /// Start of the first operation, and end of the last; `None` if there are none.
    pub fn span(&self, level: Level) -> Option<(Nanos, Nanos)> {
        self.levels[level as usize].span
    }

    /// Files at `level`, most bytes first, and in order of first access among equals.
    pub fn files(&self, level: Level) -> Vec<(FileId, FileHeat)> {
        let mut files: Vec<_> =
            self.levels[level as usize].files.iter().map(|(file, heat)| (*file, *heat)).collect();
        files.sort_by_key(|(file, heat)| (std::cmp::Reverse(heat.bytes()), *file));
        files
    }
}
