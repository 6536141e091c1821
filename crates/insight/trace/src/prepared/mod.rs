//! A trace prepared for replay: sorted, split by rank, with inferred barriers.
//!
//! ```text
//! RecordStream ─► filter ─► sorted runs ─► survey ──────────► records of each rank ─► Steps of each rank
//!                           (../sort.rs)   files, barriers     in one temporary file
//! ```
//!
//! Memory holds one run, the names, a few words for each file and rank, and the barriers.

mod steps;
mod survey;
mod workload;

pub use steps::{Step, Steps, Timing};
pub use survey::{BARRIERS_MAX, Barrier, FilePlan};
pub use workload::TraceWorkload;

use crate::error::{Result, TraceError};
use crate::names::Names;
use crate::record::{Level, Operation, Rank, Record};
use crate::sort::{PACKED_LEN, Slice, Sorted, Sorter, pack};
use crate::stream::{Info, RecordStream};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use survey::Survey;
use weft_core::{Histogram, Nanos};

/// Filters and settings of the preparation.
#[derive(Clone, Debug)]
pub struct Options {
    /// Level of the operations. If `None`: POSIX if POSIX operations transfer data, otherwise MPI-IO.
    pub level: Option<Level>,
    /// Keeps only files whose path contains this text.
    pub only: Option<String>,
    /// Drops files whose path contains this text.
    pub without: Option<String>,
    /// Keeps only ranks below this number.
    pub ranks: Option<u32>,
    /// Keeps only operations that start before this time of the trace.
    pub until: Option<Nanos>,
    /// Whether ranks wait at the trace's barriers and at inferred ones.
    pub barriers: bool,
    /// Number of records in memory at a time.
    pub run_records: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            level: None,
            only: None,
            without: None,
            ranks: None,
            until: None,
            barriers: true,
            run_records: 1 << 19,
        }
    }
}

/// Everything about a prepared trace except its operations.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Facts {
    /// Facts about the traced program.
    pub info: Info,
    /// Level of the operations.
    pub level: Level,
    /// Ranks in the trace, indexed by rank in the replay.
    pub ranks: Vec<Rank>,
    /// Range of record numbers of each rank.
    pub record_ranges: Vec<std::ops::Range<u64>>,
    /// The files, indexed by their numbers in the trace.
    pub files: Vec<FilePlan>,
    /// Inferred barriers, in order.
    pub barriers: Vec<Barrier>,
    /// Whether the records contain barriers themselves.
    pub explicit_barriers: bool,
    /// Start of the first operation and end of the last, in nanoseconds of the trace.
    pub span_ns: (u64, u64),
    /// Largest transfer in bytes.
    pub len_max: u64,
    /// Bytes and latencies in the trace, by kind of operation.
    pub traced: BTreeMap<Operation, Traced>,
    /// Number of operations on names that are not replayed.
    ///
    /// Their outcome depended on an order between ranks that the trace does not show.
    pub left_out: u64,
    /// Remarks about the replay, for users.
    pub notes: Vec<String>,
}

/// Operations of one kind in the trace.
#[derive(Clone, Default, Debug, Serialize, Deserialize)]
pub struct Traced {
    /// Bytes transferred.
    pub bytes: u64,
    /// Latencies in the trace.
    pub latency: Histogram,
}

/// A prepared trace. Dropping it removes its temporary files.
pub struct Prepared {
    /// Everything except the operations.
    pub facts: Facts,
    records: File,
    path: PathBuf,
    dir: Option<tempfile::TempDir>,
}

const FACTS: &str = "facts.json";
const RECORDS: &str = "records";

/// Maximum memory for records while they are split by rank, in bytes.
const SPLIT_BUFFER_BYTES_MAX: usize = 64 << 20;

impl Prepared {
    /// Prepares a trace. `path` is used in errors; `tick` is called regularly so that the caller can report progress.
    ///
    /// # Errors
    /// Fails if the stream fails, no operation remains after filtering, or the temporary directory is full.
    pub fn new(
        path: &Path,
        stream: &mut dyn RecordStream,
        options: &Options,
        mut tick: impl FnMut(&dyn RecordStream),
    ) -> Result<Self> {
        let failed = |error| TraceError::io(&std::env::temp_dir(), error);
        let dir = tempfile::Builder::new().prefix("weft-trace-").tempdir().map_err(failed)?;
        let mut sorter = Sorter::new(dir.path(), options.run_records)?;
        let mut filter = FileFilter::new(options);
        let (mut count, mut moving) = (0u64, [0u64; 2]);
        while let Some(record) = stream.next() {
            let record = record?;
            count += 1;
            if count.is_multiple_of(65_536) {
                tick(stream);
            }
            if options.ranks.is_some_and(|ranks| record.rank.0 >= ranks)
                || options.until.is_some_and(|until| record.start >= until)
            {
                continue;
            }
            if record.op.has_file() && !filter.accepts(&record, stream.names()) {
                continue;
            }
            moving[record.level as usize] += u64::from(record.op.moves_bytes());
            sorter.push(record)?;
        }
        let level = options.level.unwrap_or(if moving[0] > 0 || moving[1] == 0 {
            Level::Posix
        } else {
            Level::MpiIo
        });
        let sorted = sorter.finish()?;
        let survey = Survey::of(&sorted, level, stream.names(), options.barriers)?;
        if survey.ranks.is_empty() {
            let what = format!(
                "no operations to replay at level {level}: of {count} records, the filters leave {} reads and writes \
                 at posix and {} at mpi-io",
                moving[0], moving[1]
            );
            return Err(TraceError::Unfit { path: path.to_owned(), what });
        }
        let records = dir.path().join(RECORDS);
        let facts = split_by_rank(&sorted, level, survey, stream.info().clone(), &records)?;
        // Frees the disk space of the sorted runs.
        drop(sorted);
        let facts_file = dir.path().join(FACTS);
        let json = serde_json::to_vec(&facts).expect("serialization cannot fail");
        std::fs::write(&facts_file, json).map_err(|error| TraceError::io(&facts_file, error))?;
        let file = File::open(&records).map_err(|error| TraceError::io(&records, error))?;
        Ok(Self { facts, records: file, path: records, dir: Some(dir) })
    }

    /// Opens a trace that another process prepared and still holds.
    ///
    /// # Errors
    /// Fails if the files cannot be read.
    pub fn open(dir: &Path) -> Result<Self> {
        let facts = dir.join(FACTS);
        let json = std::fs::read(&facts).map_err(|error| TraceError::io(&facts, error))?;
        let facts = serde_json::from_slice(&json)
            .map_err(|error| TraceError::Unfit { path: facts, what: error.to_string() })?;
        let path = dir.join(RECORDS);
        let records = File::open(&path).map_err(|error| TraceError::io(&path, error))?;
        Ok(Self { facts, records, path, dir: None })
    }

    /// Directory of the temporary files, for [`Prepared::open`].
    ///
    /// # Panics
    /// Panics if another process prepared the trace.
    pub fn dir(&self) -> &Path {
        self.dir.as_ref().expect("prepared here").path()
    }

    /// Unlinks the temporary files now, so that none remain however this process ends.
    ///
    /// Processes that have the files open can still read them.
    pub fn unlink(&self) {
        if let Some(dir) = &self.dir {
            // An error is ignored: dropping `TempDir` tries again.
            let _ = std::fs::remove_dir_all(dir.path());
        }
    }

    /// Number of ranks.
    pub fn ranks(&self) -> u32 {
        self.facts.ranks.len() as u32
    }

    /// Number of records.
    pub fn records(&self) -> u64 {
        self.facts.record_ranges.last().map_or(0, |range| range.end)
    }

    /// Name of a file in the replay: its number in the trace and the last component of its path.
    pub fn name(&self, file: u32) -> String {
        let path = &self.facts.files[file as usize].name;
        let last = path.rsplit('/').find(|part| !part.is_empty()).unwrap_or("file");
        let safe: String = last
            .chars()
            .take(60)
            .map(|c| if c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_') { c } else { '_' })
            .collect();
        format!("{file:06}-{safe}")
    }

    /// Returns the steps of `rank`, a rank number of the replay.
    pub fn steps(&self, rank: u32, timing: Timing) -> Steps<'_> {
        // A buffer of 64 records: for a thousand ranks, 3 MB in total.
        let slice =
            Slice::new(&self.path, &self.records, self.facts.record_ranges[rank as usize].clone(), 64);
        Steps::new(&self.facts, slice, timing)
    }
}

/// Caches which files pass the filters.
struct FileFilter<'a> {
    options: &'a Options,
    known: Vec<Option<bool>>,
}

impl<'a> FileFilter<'a> {
    fn new(options: &'a Options) -> Self {
        Self { options, known: Vec::new() }
    }

    fn accepts(&mut self, record: &Record, names: &Names) -> bool {
        let at = record.file.0 as usize;
        if self.known.len() <= at {
            self.known.resize(at + 1, None);
        }
        *self.known[at].get_or_insert_with(|| {
            let name = names.file_name(record.file).unwrap_or_default();
            let has = |part: &Option<String>| part.as_ref().map(|part| name.contains(part.as_str()));
            has(&self.options.only).unwrap_or(true) && !has(&self.options.without).unwrap_or(false)
        })
    }
}

/// Writes the records of each rank contiguously to `path`.
fn split_by_rank(sorted: &Sorted, level: Level, survey: Survey, info: Info, path: &Path) -> Result<Facts> {
    let failed = |error| TraceError::io(path, error);
    let out = File::create(path).map_err(failed)?;
    let positions: BTreeMap<Rank, usize> =
        survey.ranks.keys().enumerate().map(|(position, rank)| (*rank, position)).collect();
    let mut ranges = Vec::with_capacity(positions.len());
    let mut at = 0;
    for count in survey.ranks.values() {
        ranges.push(at..at + count);
        at += count;
    }
    let each = (SPLIT_BUFFER_BYTES_MAX / PACKED_LEN / positions.len()).clamp(1, 4096) * PACKED_LEN;
    let mut buffers: Vec<(u64, Vec<u8>)> = ranges.iter().map(|range| (range.start, Vec::new())).collect();
    let flush = |(at, buffer): &mut (u64, Vec<u8>)| {
        out.write_all_at(buffer, *at * PACKED_LEN as u64).map_err(failed)?;
        *at += (buffer.len() / PACKED_LEN) as u64;
        buffer.clear();
        Ok(())
    };
    let mut left_out = 0;
    let mut traced: BTreeMap<Operation, Traced> = BTreeMap::new();
    for record in sorted.iter()? {
        let record = record?;
        if !survey.is_replayed(&record, level) {
            left_out += u64::from(survey.is_left_out(&record, level));
            continue;
        }
        let sums = traced.entry(record.op).or_default();
        sums.bytes = sums.bytes.saturating_add(if record.op.moves_bytes() { record.len.get() } else { 0 });
        sums.latency.add(record.duration());
        let buffer = &mut buffers[positions[&record.rank]];
        buffer.1.extend_from_slice(&pack(&record));
        if buffer.1.len() >= each {
            flush(buffer)?;
        }
    }
    for (buffer, range) in buffers.iter_mut().zip(&ranges) {
        flush(buffer)?;
        assert_eq!(buffer.0, range.end, "as many records as were surveyed");
    }
    Ok(survey.facts(info, level, ranges, traced, left_out))
}
