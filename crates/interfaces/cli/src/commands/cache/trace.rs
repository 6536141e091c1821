//! Traces of programs and of block devices on simulated caches.

use super::block_trace::{self, BlockTrace};
use super::report::{Case, CaseResult, Report, Row, WorkloadPhase};
use super::size::{CacheSize, capacities};
use crate::commands::trace::{bar, tick};
use crate::failure::Failure;
use std::collections::BTreeSet;
use std::path::Path;
use weft_core::LocalExtent;
use weft_core::cache::{BlockId, CacheRequest};
use weft_trace::{Level, OpenOptions, Operation, Record, Sorter, TraceError, open};

/// Records sorted in memory at a time.
const RUN_RECORDS: usize = 1 << 19;
/// Maximum length of a request in bytes. A longer one is a damaged record.
const REQUEST_LEN_MAX: u64 = 1 << 40;
/// Records between two updates of the progress bar.
const TICK_RECORDS: u64 = 1 << 16;

/// A step of a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    Read(CacheRequest),
    Write(CacheRequest),
    /// The file has this length now.
    Truncate(u64, u64),
}

/// Simulates all cases on a trace.
pub fn simulate(path: &Path, reconstruct: bool, sizes: &[CacheSize]) -> Result<Report, Failure> {
    let steps = if block_trace::is_block_trace(path)? {
        Steps::Blocks(path)
    } else {
        Steps::Program(Program::new(path, reconstruct)?)
    };
    let mut blocks = BTreeSet::new();
    steps.each(|step| {
        if let Step::Read(request) | Step::Write(request) = step {
            blocks.extend(BlockId::of(request.file, request.extent));
        }
    })?;
    let footprint = blocks.len() as u64;
    drop(blocks);
    if footprint == 0 {
        return Err(Failure::new(path.display(), "the trace has no reads and writes of data"));
    }
    let capacities = capacities(sizes, footprint)?;
    let mut caches: Vec<_> = capacities.iter().map(|capacity| Case::simulations(*capacity)).collect();
    steps.each(|step| {
        for cache in caches.iter_mut().flatten() {
            match step {
                Step::Read(request) => cache.read(request),
                Step::Write(request) => cache.write(request),
                Step::Truncate(file, len) => cache.truncate(file, len),
            }
        }
    })?;
    let mut rows = Vec::new();
    for (capacity, caches) in capacities.into_iter().zip(&caches) {
        for phase in [WorkloadPhase::Reads, WorkloadPhase::Writes] {
            let results = caches.iter().map(|cache| CaseResult {
                ratio: if phase == WorkloadPhase::Reads { cache.reads() } else { cache.writes() },
                stored: cache.stored(),
            });
            let results: Vec<_> = results.collect();
            if results[0].ratio.requests > 0 {
                rows.push(Row { skew: None, capacity, phase, results });
            }
        }
    }
    Ok(Report { footprint, rows })
}

/// The steps of a trace, which can be repeated.
enum Steps<'a> {
    Blocks(&'a Path),
    Program(Program),
}

impl Steps<'_> {
    fn each(&self, mut each: impl FnMut(Step)) -> Result<(), Failure> {
        match self {
            Self::Blocks(path) => {
                for step in BlockTrace::open(path)? {
                    each(step?);
                }
                Ok(())
            }
            Self::Program(program) => Ok(program.each(each)?),
        }
    }
}

/// Trace of a program, sorted by time in a temporary file.
struct Program {
    sorted: weft_trace::Sorted,
    level: Level,
}

impl Program {
    fn new(path: &Path, reconstruct: bool) -> Result<Self, TraceError> {
        let mut stream = open(path, &OpenOptions { reconstruct, ..OpenOptions::default() })?;
        let mut sorter = Sorter::new(&std::env::temp_dir(), RUN_RECORDS)?;
        let progress = bar();
        let (mut count, mut has_posix) = (0u64, false);
        while let Some(record) = stream.next() {
            let record = record?;
            count += 1;
            if count.is_multiple_of(TICK_RECORDS) {
                tick(&progress, &*stream);
            }
            if record.op.moves_bytes() && record.len.get() > REQUEST_LEN_MAX {
                let what =
                    format!("a request of {} bytes; no request is longer than 1 TiB", record.len.get());
                return Err(TraceError::Unfit { path: path.to_owned(), what });
            }
            if step(&record).is_some() {
                has_posix |= record.level == Level::Posix && record.op.moves_bytes();
                sorter.push(record)?;
            }
        }
        progress.finish_and_clear();
        // MPI-IO calls cause POSIX operations, so one level records everything.
        let level = if has_posix { Level::Posix } else { Level::MpiIo };
        Ok(Self { sorted: sorter.finish()?, level })
    }

    fn each(&self, mut each: impl FnMut(Step)) -> Result<(), TraceError> {
        for record in self.sorted.iter()? {
            let record = record?;
            let is_counted = record.level == self.level || !record.op.moves_bytes();
            if let Some(step) = step(&record).filter(|_| is_counted) {
                each(step);
            }
        }
        Ok(())
    }
}

/// Returns the step of a record; `None` if the cache does not notice it.
fn step(record: &Record) -> Option<Step> {
    let file = u64::from(record.file.0);
    let extent = LocalExtent::new(record.offset.get(), record.len.get());
    let request = CacheRequest { file, session: u64::from(record.rank.0), extent };
    match record.op {
        Operation::Read | Operation::Write if record.len.get() == 0 => None,
        Operation::Read => Some(Step::Read(request)),
        Operation::Write => Some(Step::Write(request)),
        Operation::Truncate => Some(Step::Truncate(file, record.offset.get())),
        Operation::Unlink => Some(Step::Truncate(file, 0)),
        _ => None,
    }
}
