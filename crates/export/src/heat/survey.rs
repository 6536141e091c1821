//! The first pass: what there is to draw.

use std::collections::BTreeMap;
use weft_core::Nanos;
use weft_trace::{FileId, Level, Operation, Record};

/// What a trace has, of records that move bytes.
#[derive(Clone, Default, Debug)]
pub struct Survey {
    levels: [Side; 2],
}

#[derive(Clone, Default, Debug)]
struct Side {
    span: Option<(Nanos, Nanos)>,
    ranks: u32,
    operations: u64,
    files: BTreeMap<FileId, FileHeat>,
}

/// What was moved of a file.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct FileHeat {
    /// Bytes read.
    pub read: u64,
    /// Bytes written.
    pub written: u64,
    /// The first byte that was touched.
    pub begin: u64,
    /// One past the last.
    pub end: u64,
    /// From the begin of the first operation to the end of the last.
    pub span: (Nanos, Nanos),
}

impl FileHeat {
    /// Bytes moved in both directions.
    pub fn bytes(&self) -> u64 {
        self.read.saturating_add(self.written)
    }
}

/// Whether a record has a place in a picture.
pub(super) fn counts(record: &Record) -> bool {
    record.op.moves_bytes() && record.len.get() > 0
}

impl Survey {
    /// Takes a record.
    pub fn add(&mut self, record: &Record) {
        if !counts(record) {
            return;
        }
        let side = &mut self.levels[record.level as usize];
        side.operations += 1;
        let (begin, end) = side.span.unwrap_or((record.start, record.end));
        side.span = Some((begin.min(record.start), end.max(record.end)));
        side.ranks = side.ranks.max(record.rank.0.saturating_add(1));
        let new = FileHeat { begin: u64::MAX, span: (record.start, record.end), ..FileHeat::default() };
        let file = side.files.entry(record.file).or_insert(new);
        let bytes = if record.op == Operation::Write { &mut file.written } else { &mut file.read };
        *bytes = bytes.saturating_add(record.len.get());
        file.begin = file.begin.min(record.offset.get());
        file.end = file.end.max(record.end_offset());
        file.span = (file.span.0.min(record.start), file.span.1.max(record.end));
    }

    /// The level to draw: POSIX if anything was moved there, else MPI-IO; what stands at both is the same bytes.
    pub fn level(&self) -> Level {
        if self.levels[0].operations > 0 { Level::Posix } else { Level::MpiIo }
    }

    /// Number of reads and writes at `level`.
    pub fn operations(&self, level: Level) -> u64 {
        self.levels[level as usize].operations
    }

    /// One more than the largest rank.
    pub fn ranks(&self, level: Level) -> u32 {
        self.levels[level as usize].ranks
    }

    /// From the begin of the first operation to the end of the last; `None` when there are none.
    pub fn span(&self, level: Level) -> Option<(Nanos, Nanos)> {
        self.levels[level as usize].span
    }

    /// The files at `level`, those that moved most first; of equals in the order in which they came.
    pub fn files(&self, level: Level) -> Vec<(FileId, FileHeat)> {
        let mut files: Vec<_> =
            self.levels[level as usize].files.iter().map(|(file, heat)| (*file, *heat)).collect();
        files.sort_by_key(|(file, heat)| (std::cmp::Reverse(heat.bytes()), *file));
        files
    }
}
