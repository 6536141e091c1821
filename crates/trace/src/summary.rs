//! What a trace is like as a whole, from one pass over it.

use crate::error::Result;
use crate::names::FileId;
use crate::record::{Level, Operation, Rank, Record};
use crate::stream::{Info, RecordStream};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use weft_core::ByteLen;

/// Most pairs of a rank and a file whose last place is kept to tell sequential from random; a pair beyond them counts
/// as neither.
pub const PLACES_MAX: usize = 1 << 20;

/// A trace as a whole.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// What the trace says of the program.
    #[serde(flatten)]
    pub info: Info,
    /// Number of records.
    pub records: u64,
    /// Ranks that have records.
    pub ranks: u32,
    /// Files that have records.
    pub files: u32,
    /// Hosts that have names.
    pub hosts: u32,
    /// Begin of the first operation, in nanoseconds of the trace.
    pub first_ns: u64,
    /// End of the last operation.
    pub last_ns: u64,
    /// Stripe size against which operations are called unaligned, in bytes.
    pub stripe_size: u64,
    /// The interfaces that have records.
    pub levels: Vec<LevelSummary>,
    /// Bytes by file, those with the most first, at most so many as were asked for.
    pub largest_files: Vec<FileSummary>,
}

/// The operations at one interface.
#[derive(Clone, Debug, Serialize)]
pub struct LevelSummary {
    /// Which interface.
    pub level: Level,
    /// Ranks that used it.
    pub ranks: u32,
    /// Number of operations of each kind that there was, by name.
    pub operations: BTreeMap<&'static str, u64>,
    /// Reads.
    pub reads: Direction,
    /// Writes.
    pub writes: Direction,
    /// Fewest bytes moved by a rank that used it.
    pub rank_bytes_min: u64,
    /// Most bytes moved by a rank.
    pub rank_bytes_max: u64,
}

/// Reads or writes at one interface.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Direction {
    /// Number of operations.
    pub operations: u64,
    /// Bytes moved.
    pub bytes: u64,
    /// Part of calls that all ranks make together.
    pub collective: u64,
    /// Begin or end within a stripe.
    pub unaligned: u64,
    /// Begin at or after the end of the operation before of the rank on the file.
    pub sequential: u64,
    /// Begin exactly there.
    pub consecutive: u64,
    /// Begin before it.
    pub backward: u64,
    /// Time in the operations, over all ranks, in nanoseconds.
    pub time_ns: u64,
    /// Operations by request size: the smallest power of two that is not smaller, in bytes.
    pub sizes: BTreeMap<u64, u64>,
}

/// A file of a trace. Bytes are those of the lowest interface that has any, so that none counts twice.
#[derive(Clone, Debug, Default, Serialize)]
pub struct FileSummary {
    /// Its name.
    pub name: String,
    /// Ranks that used it.
    pub ranks: u32,
    /// Bytes read.
    pub bytes_read: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// One past the largest byte that was touched.
    pub extent: u64,
}

#[derive(Default)]
struct FileSums {
    ranks: BTreeSet<Rank>,
    /// Bytes read and written at POSIX, and at MPI-IO.
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

/// Reads `stream` to its end. `tick` is called now and then, for progress.
///
/// # Errors
/// What reading refuses.
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
    places: BTreeMap<(Level, Rank, FileId), u64>,
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
        let room = self.places.len() < PLACES_MAX;
        match self.places.get_mut(&key) {
            Some(place) => {
                direction.sequential += u64::from(offset >= *place);
                direction.consecutive += u64::from(offset == *place);
                direction.backward += u64::from(offset < *place);
                *place = end;
            }
            None if room => drop(self.places.insert(key, end)),
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
