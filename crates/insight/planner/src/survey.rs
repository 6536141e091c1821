//! A single pass over a trace that collects what the planner needs, in bounded memory.

use crate::mix::{Direction, OffsetHistogram, RequestKind, RequestMix};
use crate::pattern::{Overlap, Pattern, Stream};
use crate::rule::{FileGrouping, PathRule};
use crate::sample::{Request, Sample};
use std::collections::{BTreeMap, BTreeSet};
use weft_trace::{FileId, Level, Names, OFFSET_MAX, Operation, Rank, Record};

/// Maximum number of (file, rank) pairs whose request order is tracked. Further pairs count as unordered.
const STREAMS_MAX: usize = 1 << 17;
/// Maximum number of file groups. Further files share the last one.
const GROUPS_MAX: usize = 1 << 10;

/// Bounds on what is kept of a trace.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Requests kept for the queueing model.
    pub sample: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { sample: 1 << 17 }
    }
}

/// Collects statistics of records. Records may come in any order that preserves the order of each rank.
#[derive(Debug)]
pub struct Survey {
    levels: [LevelSurvey; 2],
}

/// Statistics of one interface (POSIX or MPI-IO). Both interfaces record the same transfers.
#[derive(Debug)]
struct LevelSurvey {
    groups: Vec<GroupTotals>,
    grouping: FileGrouping,
    /// By file number.
    files: Vec<Option<FileTotals>>,
    streams: BTreeMap<(FileId, Rank), Stream>,
    numbers: BTreeMap<Rank, u64>,
    overlap: Overlap,
    sample: Sample,
    span: (u64, u64),
    bytes: u64,
    hosts: BTreeSet<u32>,
}

#[derive(Clone, Copy, Debug)]
struct FileTotals {
    group: u32,
    extent: u64,
    bytes: u64,
}

#[derive(Debug, Default)]
struct GroupTotals {
    files: u64,
    bytes: [u64; 2],
    requests: [u64; 2],
    mix: RequestMix,
    bytes_by_offset: OffsetHistogram,
    ranks: BTreeSet<Rank>,
    unordered: u64,
}

/// Summary of a trace.
#[derive(Clone, Debug)]
pub struct TraceSummary {
    /// The interface whose operations are summarized.
    pub level: Level,
    /// Number of ranks that moved bytes.
    pub ranks: u32,
    /// Number of named hosts.
    pub hosts: u32,
    /// Start of the first and end of the last request, nanoseconds of the trace.
    pub span_ns: (u64, u64),
    /// Mean number of requests in flight while there were any.
    pub concurrency: f64,
    /// Maximum number of requests in flight.
    pub concurrency_max: f64,
    /// File groups that are planned together, most bytes first.
    pub groups: Vec<FileGroup>,
    /// Sampled requests of all groups in time order; `group` is an index into `groups`.
    pub sample: Vec<Request>,
    /// Total number of requests.
    pub requests: u64,
}

/// A file group: a file, or files whose names differ only in numbers.
#[derive(Clone, Debug)]
pub struct FileGroup {
    /// The file names.
    pub rule: PathRule,
    /// Number of files.
    pub files: u64,
    /// Length of the largest file: one past the last byte accessed.
    pub extent: u64,
    /// Sum of the lengths of all files.
    pub extent_sum: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Number of reads.
    pub reads: u64,
    /// Number of writes.
    pub writes: u64,
    /// Number of ranks that use the files.
    pub ranks: u32,
    /// Access pattern.
    pub pattern: Pattern,
    /// Kinds of request, most bytes first.
    pub kinds: Vec<RequestKind>,
    /// Bytes moved, by the offset at which their requests begin.
    pub bytes_by_offset: OffsetHistogram,
}

impl FileGroup {
    /// Total bytes moved.
    pub fn bytes(&self) -> u64 {
        self.read_bytes.saturating_add(self.written_bytes)
    }

    /// The request length that moves most bytes, the paper's S.
    pub fn request_size(&self) -> u64 {
        let mut sizes: BTreeMap<u64, f64> = BTreeMap::new();
        for kind in &self.kinds {
            *sizes.entry(kind.len.round() as u64).or_default() += kind.bytes();
        }
        let most = sizes.into_iter().max_by(|a, b| a.1.total_cmp(&b.1));
        most.map_or(1, |(len, _)| len.max(1))
    }
}

impl Survey {
    /// An empty survey.
    pub fn new(limits: &Limits) -> Self {
        Self { levels: [LevelSurvey::new(limits), LevelSurvey::new(limits)] }
    }

    /// Adds a record; `names` resolves its file.
    pub fn add(&mut self, record: &Record, names: &Names) {
        if record.op.moves_bytes() && record.len.get() > 0 && record.end_offset() <= OFFSET_MAX {
            self.levels[record.level as usize].add(record, names);
        } else if record.op == Operation::Sync {
            self.levels[record.level as usize].sync(record);
        }
    }

    /// Finishes the survey of `level`. By default that is POSIX if any bytes were moved there, else MPI-IO.
    pub fn finish(self, level: Option<Level>) -> TraceSummary {
        let [posix, mpi] = self.levels;
        let level = level.unwrap_or(if posix.bytes > 0 { Level::Posix } else { Level::MpiIo });
        match level {
            Level::Posix => posix.finish(level),
            Level::MpiIo => mpi.finish(level),
        }
    }
}

impl LevelSurvey {
    fn new(limits: &Limits) -> Self {
        Self {
            groups: Vec::new(),
            grouping: FileGrouping::new(GROUPS_MAX),
            files: Vec::new(),
            streams: BTreeMap::new(),
            numbers: BTreeMap::new(),
            overlap: Overlap::default(),
            sample: Sample::new(limits.sample),
            span: (u64::MAX, 0),
            bytes: 0,
            hosts: BTreeSet::new(),
        }
    }

    /// Adds a sync, which only the sample needs.
    fn sync(&mut self, record: &Record) {
        // A rank that has moved nothing has nothing to sync.
        let known = self.files.get(record.file.0 as usize).copied().flatten();
        let (Some(file), Some(number)) = (known, self.numbers.get_mut(&record.rank)) else { return };
        let time = (record.start.get(), record.end.get());
        let request = Request::new(record.rank.0, record.file.0, Direction::Write, 0, 0, time);
        self.sample.add(Request { group: file.group, ..request }, *number);
        *number += 1;
    }

    fn add(&mut self, record: &Record, names: &Names) {
        let group = self.group(record.file, names);
        let (offset, len, end) = (record.offset.get(), record.len.get(), record.end_offset());
        let direction = if record.op == Operation::Write { Direction::Write } else { Direction::Read };
        self.bytes = self.bytes.saturating_add(len);
        self.span = (self.span.0.min(record.start.get()), self.span.1.max(record.end.get()));
        self.overlap.add(record.start, record.end);
        self.hosts.insert(record.host.0);
        let number = self.numbers.entry(record.rank).or_default();
        let time = (record.start.get(), record.end.get());
        let request = Request::new(record.rank.0, record.file.0, direction, offset, len, time);
        self.sample.add(Request { group, collective: record.collective, ..request }, *number);
        *number += 1;
        let sums = &mut self.groups[group as usize];
        let write = direction == Direction::Write;
        let has_space = self.streams.len() < STREAMS_MAX;
        let follows = match self.streams.get_mut(&(record.file, record.rank)) {
            Some(stream) => stream.add(offset, len, write),
            None => {
                if has_space {
                    self.streams.insert((record.file, record.rank), Stream::new(offset, len, write));
                    sums.ranks.insert(record.rank);
                } else {
                    sums.unordered += 1;
                }
                offset == 0
            }
        };
        let bytes = &mut sums.bytes[usize::from(write)];
        *bytes = bytes.saturating_add(len);
        sums.requests[usize::from(write)] += 1;
        sums.mix.add(direction, follows, offset, len);
        sums.bytes_by_offset.add(offset, len);
        let file = self.files[record.file.0 as usize].as_mut().expect("made with its group");
        file.extent = file.extent.max(end);
        file.bytes = file.bytes.saturating_add(len);
    }

    fn group(&mut self, file: FileId, names: &Names) -> u32 {
        let at = file.0 as usize;
        if self.files.len() <= at {
            self.files.resize(at + 1, None);
        }
        if let Some(sums) = self.files[at] {
            return sums.group;
        }
        let group = self.grouping.group(names.file_name(file).unwrap_or_default());
        if group == self.groups.len() {
            self.groups.push(GroupTotals::default());
        }
        self.groups[group].files += 1;
        self.files[at] = Some(FileTotals { group: group as u32, extent: 0, bytes: 0 });
        group as u32
    }

    fn finish(self, level: Level) -> TraceSummary {
        let count = self.groups.len();
        let mut streams: Vec<BTreeMap<FileId, Vec<&Stream>>> = vec![BTreeMap::new(); count];
        for ((file, _), stream) in &self.streams {
            let group = self.files[file.0 as usize].expect("it has streams").group;
            streams[group as usize].entry(*file).or_default().push(stream);
        }
        let (mut extents, mut sums) = (vec![0u64; count], vec![0u64; count]);
        for file in self.files.iter().flatten() {
            let group = file.group as usize;
            extents[group] = extents[group].max(file.extent);
            sums[group] = sums[group].saturating_add(file.extent);
        }
        let rules = self.grouping.rules();
        let ranks = self.numbers.len() as u32;
        let mut groups: Vec<(usize, FileGroup)> = self
            .groups
            .into_iter()
            .zip(rules)
            .zip(streams)
            .enumerate()
            .map(|(number, ((group, rule), streams))| {
                let group = FileGroup {
                    rule,
                    files: group.files,
                    extent: extents[number],
                    extent_sum: sums[number],
                    read_bytes: group.bytes[0],
                    written_bytes: group.bytes[1],
                    reads: group.requests[0],
                    writes: group.requests[1],
                    ranks: group.ranks.len().max(1) as u32,
                    pattern: Pattern::of(streams.into_values()),
                    kinds: group.mix.kinds(),
                    bytes_by_offset: group.bytes_by_offset,
                };
                (number, group)
            })
            .collect();
        groups.sort_by_key(|(number, group)| (std::cmp::Reverse(group.bytes()), *number));
        let mut place = vec![0; count];
        for (now, (before, _)) in groups.iter().enumerate() {
            place[*before] = now as u32;
        }
        let requests = self.sample.seen();
        let mut sample = self.sample.requests();
        for request in &mut sample {
            request.group = place[request.group as usize];
        }
        let (concurrency, concurrency_max) = self.overlap.concurrency();
        TraceSummary {
            level,
            ranks,
            hosts: self.hosts.iter().filter(|host| **host != 0).count() as u32,
            span_ns: if self.span.0 == u64::MAX { (0, 0) } else { self.span },
            concurrency,
            concurrency_max,
            groups: groups.into_iter().map(|(_, group)| group).collect(),
            sample,
            requests,
        }
    }
}
