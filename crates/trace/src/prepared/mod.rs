//! A trace made ready for replay: by rank, in order, with what must wait for what.
//!
//! ```text
//! stream -> runs sorted by begin (../sort) -> survey: files, barriers -> by rank in a file -> steps of each rank
//! ```
//!
//! Memory: a run, the names, a few words for each file and rank, the points at which all ranks wait.

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

/// What is taken of a trace, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// Operations at this level; without it those at POSIX if any move bytes, else those at MPI-IO.
    pub level: Option<Level>,
    /// Only files whose path contains this.
    pub only: Option<String>,
    /// No files whose path contains this.
    pub without: Option<String>,
    /// Only ranks below this.
    pub ranks: Option<u32>,
    /// Only operations that begin before this time of the trace.
    pub until: Option<Nanos>,
    /// Whether ranks wait for each other where the trace shows that they did.
    pub barriers: bool,
    /// Records in memory at a time.
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

/// What is known of a prepared trace beside its operations.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Facts {
    /// The source's own words.
    pub info: Info,
    /// Which level the operations are of.
    pub level: Level,
    /// The trace's numbers of the ranks, by their place in the replay.
    pub ranks: Vec<Rank>,
    /// Where each rank's records stand.
    pub places: Vec<std::ops::Range<u64>>,
    /// The files, by their numbers in the trace.
    pub files: Vec<FilePlan>,
    /// Where all ranks wait for each other, in order.
    pub barriers: Vec<Barrier>,
    /// Whether barriers stand among the records themselves.
    pub explicit_barriers: bool,
    /// Begin of the first operation and end of the last, in nanoseconds of the trace.
    pub span_ns: (u64, u64),
    /// Largest number of bytes of an operation.
    pub len_max: u64,
    /// How long operations took when they were traced, and what they moved, by [`Operation`].
    pub traced: BTreeMap<Operation, Traced>,
    /// Operations on names that cannot be done again: their outcome depended on an order of ranks that is not known.
    pub left_out: u64,
    /// What should be known of the replay.
    pub notes: Vec<String>,
}

/// Operations of a kind as they were traced.
#[derive(Clone, Default, Debug, Serialize, Deserialize)]
pub struct Traced {
    /// Bytes moved.
    pub bytes: u64,
    /// How long they took.
    pub latency: Histogram,
}

/// A prepared trace. Its files vanish with it.
pub struct Prepared {
    /// All but the operations.
    pub facts: Facts,
    records: File,
    path: PathBuf,
    dir: Option<tempfile::TempDir>,
}

const FACTS: &str = "facts.json";
const RECORDS: &str = "records";

/// Most bytes of records in memory while they are dealt to ranks.
const DEAL_MEMORY: usize = 64 << 20;

impl Prepared {
    /// Prepares a trace; `path` stands in errors, `tick` is called now and then.
    ///
    /// # Errors
    /// What reading refuses; a trace with nothing to do; no room in the temporary directory.
    pub fn new(
        path: &Path,
        stream: &mut dyn RecordStream,
        options: &Options,
        mut tick: impl FnMut(&dyn RecordStream),
    ) -> Result<Self> {
        let failed = |error| TraceError::io(&std::env::temp_dir(), error);
        let dir = tempfile::Builder::new().prefix("weft-trace-").tempdir().map_err(failed)?;
        let mut sorter = Sorter::new(dir.path(), options.run_records)?;
        let mut wanted = Wanted::new(options);
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
            if record.op.has_file() && !wanted.file(&record, stream.names()) {
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
                "nothing in it is to be replayed at level {level}: {count} records in all, {} reads and \
                                writes at posix and {} at mpi-io after filters",
                moving[0], moving[1]
            );
            return Err(TraceError::Unfit { path: path.to_owned(), what });
        }
        let records = dir.path().join(RECORDS);
        let facts = deal(&sorted, level, survey, stream.info().clone(), &records)?;
        // Its room is free from here on.
        drop(sorted);
        let facts_file = dir.path().join(FACTS);
        let json = serde_json::to_vec(&facts).expect("plain data becomes JSON");
        std::fs::write(&facts_file, json).map_err(|error| TraceError::io(&facts_file, error))?;
        let file = File::open(&records).map_err(|error| TraceError::io(&records, error))?;
        Ok(Self { facts, records: file, path: records, dir: Some(dir) })
    }

    /// One that another process prepared, while that process has it.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn open(dir: &Path) -> Result<Self> {
        let facts = dir.join(FACTS);
        let json = std::fs::read(&facts).map_err(|error| TraceError::io(&facts, error))?;
        let facts = serde_json::from_slice(&json)
            .map_err(|error| TraceError::Unfit { path: facts, what: error.to_string() })?;
        let path = dir.join(RECORDS);
        let records = File::open(&path).map_err(|error| TraceError::io(&path, error))?;
        Ok(Self { facts, records, path, dir: None })
    }

    /// Where it lies, for [`Prepared::open`].
    ///
    /// # Panics
    /// For one that another process prepared.
    pub fn dir(&self) -> &Path {
        self.dir.as_ref().expect("prepared here").path()
    }

    /// Removes its files from the directory; who has it open keeps it. Nothing is left behind then, however this
    /// process ends.
    pub fn forget(&self) {
        if let Some(dir) = &self.dir {
            // What cannot be removed now is tried again at the end.
            let _ = std::fs::remove_dir_all(dir.path());
        }
    }

    /// Number of ranks.
    pub fn ranks(&self) -> u32 {
        self.facts.ranks.len() as u32
    }

    /// Number of records.
    pub fn records(&self) -> u64 {
        self.facts.places.last().map_or(0, |range| range.end)
    }

    /// The name of a file in the replay: flat, with its number in the trace and the last part of its path.
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

    /// What `rank`, by its place in the replay, does.
    pub fn steps(&self, rank: u32, timing: Timing) -> Steps<'_> {
        // A thousand ranks at a time take 3 MB.
        let slice = Slice::new(&self.path, &self.records, self.facts.places[rank as usize].clone(), 64);
        Steps::new(&self.facts, slice, timing)
    }
}

/// Which files are wanted, asked once for each.
struct Wanted<'a> {
    options: &'a Options,
    known: Vec<Option<bool>>,
}

impl<'a> Wanted<'a> {
    fn new(options: &'a Options) -> Self {
        Self { options, known: Vec::new() }
    }

    fn file(&mut self, record: &Record, names: &Names) -> bool {
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

/// Writes the records of each rank together.
fn deal(sorted: &Sorted, level: Level, survey: Survey, info: Info, path: &Path) -> Result<Facts> {
    let failed = |error| TraceError::io(path, error);
    let out = File::create(path).map_err(failed)?;
    let places: BTreeMap<Rank, usize> =
        survey.ranks.keys().enumerate().map(|(place, rank)| (*rank, place)).collect();
    let mut ranges = Vec::with_capacity(places.len());
    let mut at = 0;
    for count in survey.ranks.values() {
        ranges.push(at..at + count);
        at += count;
    }
    let each = (DEAL_MEMORY / PACKED_LEN / places.len()).clamp(1, 4096) * PACKED_LEN;
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
        if !survey.takes(&record, level) {
            left_out += u64::from(survey.leaves_out(&record, level));
            continue;
        }
        let sums = traced.entry(record.op).or_default();
        sums.bytes = sums.bytes.saturating_add(if record.op.moves_bytes() { record.len.get() } else { 0 });
        sums.latency.add(record.duration());
        let buffer = &mut buffers[places[&record.rank]];
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
