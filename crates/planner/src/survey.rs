//! One pass over a trace: what there is to plan for.

use crate::mix::{Direction, Kind, Mix, Places};
use crate::pattern::{Overlap, Pattern, Stream};
use crate::rule::{Naming, PathRule};
use crate::sample::{Request, Sample};
use std::collections::{BTreeMap, BTreeSet};
use weft_trace::{FileId, Level, Names, OFFSET_MAX, Operation, Rank, Record};

/// Pairs of rank and file whose order of requests is followed; what is beyond counts as having none.
const STREAMS_MAX: usize = 1 << 17;
/// Groups of files that are told apart; further files join the last one.
const UNITS_MAX: usize = 1 << 10;

/// How much is kept of a trace.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Requests that are kept for the planner's queueing model.
    pub sample: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { sample: 1 << 17 }
    }
}

/// Takes records in any order that keeps each rank's.
#[derive(Debug)]
pub struct Survey {
    levels: [Side; 2],
}

/// Operations at one interface: those at the other tell the same again.
#[derive(Debug)]
struct Side {
    units: Vec<UnitSums>,
    naming: Naming,
    /// By file.
    files: Vec<Option<FileSums>>,
    streams: BTreeMap<(FileId, Rank), Stream>,
    numbers: BTreeMap<Rank, u64>,
    overlap: Overlap,
    sample: Sample,
    span: (u64, u64),
    bytes: u64,
    hosts: BTreeSet<u32>,
}

#[derive(Clone, Copy, Debug)]
struct FileSums {
    unit: u32,
    extent: u64,
    bytes: u64,
}

#[derive(Debug, Default)]
struct UnitSums {
    files: u64,
    bytes: [u64; 2],
    requests: [u64; 2],
    mix: Mix,
    heat: Places,
    ranks: BTreeSet<Rank>,
    unordered: u64,
}

/// What is known of a trace.
#[derive(Clone, Debug)]
pub struct Traced {
    /// The interface whose operations these are.
    pub level: Level,
    /// Ranks that moved bytes.
    pub ranks: u32,
    /// Hosts that have names.
    pub hosts: u32,
    /// Begin of the first request and end of the last, in nanoseconds of the trace.
    pub span_ns: (u64, u64),
    /// Requests under way at a time, the mean while there were any.
    pub concurrency: f64,
    /// The most requests under way at a time.
    pub concurrency_max: f64,
    /// Files that are planned for together, those with the most bytes first.
    pub units: Vec<Unit>,
    /// Some requests of all units, by time; `unit` is an index of `units`.
    pub sample: Vec<Request>,
    /// Requests in all.
    pub requests: u64,
}

/// A file, or files with names alike.
#[derive(Clone, Debug)]
pub struct Unit {
    /// Which files.
    pub rule: PathRule,
    /// How many.
    pub files: u64,
    /// The largest of them: one past its last byte that was touched.
    pub extent: u64,
    /// Of all of them.
    pub extent_sum: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Requests that read.
    pub reads: u64,
    /// Requests that write.
    pub writes: u64,
    /// Ranks that use them.
    pub ranks: u32,
    /// In which order.
    pub pattern: Pattern,
    /// The requests, by kind; most bytes first.
    pub kinds: Vec<Kind>,
    /// Bytes that were moved, by the offset at which their requests begin.
    pub heat: Places,
}

impl Unit {
    /// Bytes moved.
    pub fn bytes(&self) -> u64 {
        self.read_bytes.saturating_add(self.written_bytes)
    }

    /// The length that moves most bytes, the paper's S.
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
    /// Of nothing yet.
    pub fn new(limits: &Limits) -> Self {
        Self { levels: [Side::new(limits), Side::new(limits)] }
    }

    /// Takes a record; `names` has the name of its file.
    pub fn add(&mut self, record: &Record, names: &Names) {
        if record.op.moves_bytes() && record.len.get() > 0 && record.end_offset() <= OFFSET_MAX {
            self.levels[record.level as usize].add(record, names);
        } else if record.op == Operation::Sync {
            self.levels[record.level as usize].sync(record);
        }
    }

    /// What came of it: the operations at POSIX if any moved bytes, else those at MPI-IO, or those of `level`.
    pub fn finish(self, level: Option<Level>) -> Traced {
        let [posix, mpi] = self.levels;
        let level = level.unwrap_or(if posix.bytes > 0 { Level::Posix } else { Level::MpiIo });
        match level {
            Level::Posix => posix.finish(level),
            Level::MpiIo => mpi.finish(level),
        }
    }
}

impl Side {
    fn new(limits: &Limits) -> Self {
        Self {
            units: Vec::new(),
            naming: Naming::new(UNITS_MAX),
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

    /// Of interest to the sample alone.
    fn sync(&mut self, record: &Record) {
        // Who has moved nothing has nothing to bring to the disks.
        let known = self.files.get(record.file.0 as usize).copied().flatten();
        let (Some(file), Some(number)) = (known, self.numbers.get_mut(&record.rank)) else { return };
        let time = (record.start.get(), record.end.get());
        let request = Request::new(record.rank.0, record.file.0, Direction::Write, 0, 0, time);
        self.sample.add(Request { unit: file.unit, ..request }, *number);
        *number += 1;
    }

    fn add(&mut self, record: &Record, names: &Names) {
        let unit = self.unit(record.file, names);
        let (offset, len, end) = (record.offset.get(), record.len.get(), record.end_offset());
        let direction = if record.op == Operation::Write { Direction::Write } else { Direction::Read };
        self.bytes = self.bytes.saturating_add(len);
        self.span = (self.span.0.min(record.start.get()), self.span.1.max(record.end.get()));
        self.overlap.add(record.start, record.end);
        self.hosts.insert(record.host.0);
        let number = self.numbers.entry(record.rank).or_default();
        let time = (record.start.get(), record.end.get());
        let request = Request::new(record.rank.0, record.file.0, direction, offset, len, time);
        self.sample.add(Request { unit, collective: record.collective, ..request }, *number);
        *number += 1;
        let sums = &mut self.units[unit as usize];
        let write = direction == Direction::Write;
        let room = self.streams.len() < STREAMS_MAX;
        let follows = match self.streams.get_mut(&(record.file, record.rank)) {
            Some(stream) => stream.add(offset, len, write),
            None => {
                if room {
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
        sums.heat.add(offset, len);
        let file = self.files[record.file.0 as usize].as_mut().expect("made with its unit");
        file.extent = file.extent.max(end);
        file.bytes = file.bytes.saturating_add(len);
    }

    fn unit(&mut self, file: FileId, names: &Names) -> u32 {
        let at = file.0 as usize;
        if self.files.len() <= at {
            self.files.resize(at + 1, None);
        }
        if let Some(sums) = self.files[at] {
            return sums.unit;
        }
        let unit = self.naming.unit(names.file_name(file).unwrap_or_default());
        if unit == self.units.len() {
            self.units.push(UnitSums::default());
        }
        self.units[unit].files += 1;
        self.files[at] = Some(FileSums { unit: unit as u32, extent: 0, bytes: 0 });
        unit as u32
    }

    fn finish(self, level: Level) -> Traced {
        let count = self.units.len();
        let mut streams: Vec<BTreeMap<FileId, Vec<&Stream>>> = vec![BTreeMap::new(); count];
        for ((file, _), stream) in &self.streams {
            let unit = self.files[file.0 as usize].expect("it has streams").unit;
            streams[unit as usize].entry(*file).or_default().push(stream);
        }
        let (mut extents, mut sums) = (vec![0u64; count], vec![0u64; count]);
        for file in self.files.iter().flatten() {
            let unit = file.unit as usize;
            extents[unit] = extents[unit].max(file.extent);
            sums[unit] = sums[unit].saturating_add(file.extent);
        }
        let rules = self.naming.rules();
        let ranks = self.numbers.len() as u32;
        let mut units: Vec<(usize, Unit)> = self
            .units
            .into_iter()
            .zip(rules)
            .zip(streams)
            .enumerate()
            .map(|(number, ((unit, rule), streams))| {
                let unit = Unit {
                    rule,
                    files: unit.files,
                    extent: extents[number],
                    extent_sum: sums[number],
                    read_bytes: unit.bytes[0],
                    written_bytes: unit.bytes[1],
                    reads: unit.requests[0],
                    writes: unit.requests[1],
                    ranks: unit.ranks.len().max(1) as u32,
                    pattern: Pattern::of(streams.into_values()),
                    kinds: unit.mix.kinds(),
                    heat: unit.heat,
                };
                (number, unit)
            })
            .collect();
        units.sort_by_key(|(number, unit)| (std::cmp::Reverse(unit.bytes()), *number));
        let mut place = vec![0; count];
        for (now, (before, _)) in units.iter().enumerate() {
            place[*before] = now as u32;
        }
        let requests = self.sample.seen();
        let mut sample = self.sample.requests();
        for request in &mut sample {
            request.unit = place[request.unit as usize];
        }
        let (concurrency, concurrency_max) = self.overlap.concurrency();
        Traced {
            level,
            ranks,
            hosts: self.hosts.iter().filter(|host| **host != 0).count() as u32,
            span_ns: if self.span.0 == u64::MAX { (0, 0) } else { self.span },
            concurrency,
            concurrency_max,
            units: units.into_iter().map(|(_, unit)| unit).collect(),
            sample,
            requests,
        }
    }
}
