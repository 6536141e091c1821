//! Summarizes a trace in one pass.

use crate::error::Result;
use crate::names::FileId;
use crate::record::{Level, Operation, Rank, Record};
use crate::stream::{Info, RecordStream};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use weft_core::ByteLen;

/// Maximum number of (level, rank, file) triples whose last offset is kept to detect sequential access.
///
/// Accesses of further triples count as neither sequential nor backward.
pub const POSITIONS_MAX: usize = 1 << 20;

/// Summary of a trace.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// Facts about the traced program.
    #[serde(flatten)]
    pub info: Info,
    /// Number of records.
    pub records: u64,
    /// Number of ranks that have records.
    pub ranks: u32,
    /// Number of files that have records.
    pub files: u32,
    /// Number of hosts with a name.
    pub hosts: u32,
    /// Start of the first operation in nanoseconds of the trace.
    pub first_ns: u64,
    /// End of the last operation in nanoseconds of the trace.
    pub last_ns: u64,
    /// Stripe size that defines unaligned operations, in bytes.
    pub stripe_size: u64,
    /// Summaries of the interfaces that have records.
    pub levels: Vec<LevelSummary>,
    /// Files with the most bytes, largest first, limited to the requested number.
    pub largest_files: Vec<FileSummary>,
}

/// Summary of the operations at one interface.
#[derive(Clone, Debug, Serialize)]
pub struct LevelSummary {
    /// The interface.
    pub level: Level,
    /// Number of ranks that transferred data.
    pub ranks: u32,
    /// Number of operations by name, for kinds that occur.
    pub operations: BTreeMap<&'static str, u64>,
    /// Summary of the reads.
    pub reads: Direction,
    /// Summary of the writes.
    pub writes: Direction,
    /// Fewest bytes transferred by a rank that transferred any.
    pub rank_bytes_min: u64,
    /// Most bytes transferred by a rank.
    pub rank_bytes_max: u64,
}

/// Summary of the reads or of the writes at one interface.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Direction {
    /// Number of operations.
    pub operations: u64,
    /// Bytes transferred.
    pub bytes: u64,
    /// Operations that are part of collective calls.
    pub collective: u64,
    /// Operations that start or end inside a stripe.
    pub unaligned: u64,
    /// Operations that start at or after the end of the rank's previous operation on the file.
    pub sequential: u64,
    /// Operations that start exactly at the end of the rank's previous operation on the file.
    pub consecutive: u64,
    /// Operations that start before the end of the rank's previous operation on the file.
    pub backward: u64,
    /// Total time in the operations, summed over ranks, in nanoseconds.
    pub time_ns: u64,
    /// Number of operations by request size, rounded up to a power of two, in bytes.
    pub sizes: BTreeMap<u64, u64>,
}

/// Summary of one file.
///
/// Bytes are those of the lowest interface that transferred any, so that no transfer counts twice.
#[derive(Clone, Debug, Default, Serialize)]
pub struct FileSummary {
    /// Path of the file.
    pub name: String,
    /// Number of ranks that used the file.
    pub ranks: u32,
    /// Bytes read.
    pub bytes_read: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Offset after the last byte accessed.
    pub extent: u64,
}

#[derive(Default)]
struct FileSums {
    ranks: BTreeSet<Rank>,
    /// Bytes read and bytes written, at POSIX and at MPI-IO.
    bytes: [[u64; 2]; 2],
    extent: u64,
}

#[derive(Default)]
struct LevelSums {
    operations: [u64; Operation::ALL.len()],
    reads: Direction,
    writes: Direction,
    rank_bytes: BTreeMap<Rank, u64>,
}

/// Summarizes `stream` to its end. `tick` is called regularly so that the caller can report progress.
///
/// # Errors
/// Fails if the stream fails.
pub fn summary(
    stream: &mut dyn RecordStream,
    stripe_size: ByteLen,
    files_shown: usize,
    mut tick: impl FnMut(&dyn RecordStream),
) -> Result<Summary> {
    let mut sums = Sums { stripe: stripe_size.get().max(1), first_ns: u64::MAX, ..Sums::default() };
    while let Some(record) = stream.next() {
        sums.add(&record?);
        if sums.records.is_multiple_of(65_536) {
            tick(stream);
        }
    }
    Ok(sums.finish(stream, files_shown))
}

#[derive(Default)]
struct Sums {
    stripe: u64,
    records: u64,
    first_ns: u64,
    last_ns: u64,
    ranks: BTreeSet<Rank>,
    files: BTreeMap<FileId, FileSums>,
    levels: [LevelSums; 2],
    positions: BTreeMap<(Level, Rank, FileId), u64>,
}

impl Sums {
    fn add(&mut self, record: &Record) {
        self.records += 1;
        self.first_ns = self.first_ns.min(record.start.get());
        self.last_ns = self.last_ns.max(record.end.get());
        self.ranks.insert(record.rank);
        let level = &mut self.levels[record.level as usize];
        level.operations[record.op as usize] += 1;
        if record.op.has_file() {
            self.files.entry(record.file).or_default().ranks.insert(record.rank);
        }
        if !record.op.moves_bytes() {
            return;
        }
        let (offset, len, end) = (record.offset.get(), record.len.get(), record.end_offset());
        let more = |sum: &mut u64| *sum = sum.saturating_add(len);
        more(level.rank_bytes.entry(record.rank).or_default());
        let file = self.files.entry(record.file).or_default();
        more(&mut file.bytes[record.level as usize][usize::from(record.op == Operation::Write)]);
        file.extent = file.extent.max(end);
        let direction = if record.op == Operation::Read { &mut level.reads } else { &mut level.writes };
        direction.operations += 1;
        more(&mut direction.bytes);
        direction.collective += u64::from(record.collective);
        direction.unaligned +=
            u64::from(!offset.is_multiple_of(self.stripe) || !end.is_multiple_of(self.stripe));
        direction.time_ns = direction.time_ns.saturating_add(record.duration().get());
        *direction.sizes.entry(len.max(1).checked_next_power_of_two().unwrap_or(1 << 63)).or_default() += 1;
        let key = (record.level, record.rank, record.file);
        let has_room = self.positions.len() < POSITIONS_MAX;
        match self.positions.get_mut(&key) {
            Some(position) => {
                direction.sequential += u64::from(offset >= *position);
                direction.consecutive += u64::from(offset == *position);
                direction.backward += u64::from(offset < *position);
                *position = end;
            }
            None if has_room => drop(self.positions.insert(key, end)),
            None => {}
        }
    }

    fn finish(self, stream: &dyn RecordStream, files_shown: usize) -> Summary {
        let level = |level: Level, sums: LevelSums| LevelSummary {
            level,
            ranks: sums.rank_bytes.len() as u32,
            operations: Operation::ALL
                .iter()
                .filter(|op| sums.operations[**op as usize] > 0)
                .map(|op| (op.name(), sums.operations[*op as usize]))
                .collect(),
            rank_bytes_min: sums.rank_bytes.values().copied().min().unwrap_or(0),
            rank_bytes_max: sums.rank_bytes.values().copied().max().unwrap_or(0),
            reads: sums.reads,
            writes: sums.writes,
        };
        let [posix, mpi] = self.levels;
        let levels = [level(Level::MpiIo, mpi), level(Level::Posix, posix)];
        let files = self.files.len() as u32;
        let mut largest: Vec<(FileId, FileSums)> = self.files.into_iter().collect();
        let bytes = |sums: &FileSums| if sums.bytes[0] == [0, 0] { sums.bytes[1] } else { sums.bytes[0] };
        largest.sort_by_key(|(_, sums)| std::cmp::Reverse(bytes(sums)[0].saturating_add(bytes(sums)[1])));
        largest.truncate(files_shown);
        Summary {
            info: stream.info().clone(),
            records: self.records,
            ranks: self.ranks.len() as u32,
            files,
            hosts: stream.names().hosts(),
            first_ns: if self.records == 0 { 0 } else { self.first_ns },
            last_ns: self.last_ns,
            stripe_size: self.stripe,
            levels: levels.into_iter().filter(|level| !level.operations.is_empty()).collect(),
            largest_files: largest
                .into_iter()
                .map(|(file, sums)| FileSummary {
                    name: stream.names().file_name(file).unwrap_or_default().to_owned(),
                    ranks: sums.ranks.len() as u32,
                    bytes_read: bytes(&sums)[0],
                    bytes_written: bytes(&sums)[1],
                    extent: sums.extent,
                })
                .collect(),
        }
    }
}
