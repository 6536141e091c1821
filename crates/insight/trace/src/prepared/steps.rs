//! The steps of one rank in a replay: its records, with the opens and closes that they imply.

use super::{Barrier, Facts};
use crate::error::Result;
use crate::record::{Operation, Record};
use crate::sort::Slice;
use std::collections::VecDeque;
use weft_core::Nanos;
use weft_workload::{FileRef, Op};

/// Maximum number of files that a rank keeps open. Traces without `open` and `close` do not say when a file is done.
const OPEN_MAX: usize = 64;

/// Pacing of operations.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Timing {
    /// Each rank proceeds as fast as it can.
    Fast,
    /// Before each operation a rank pauses for as long as in the trace, divided by this factor.
    Speed(f64),
}

impl Timing {
    fn gap(self, gap: Nanos) -> Option<Nanos> {
        match self {
            Self::Fast => None,
            Self::Speed(factor) => {
                Some(Nanos((gap.get() as f64 / factor) as u64)).filter(|gap| gap.get() > 0)
            }
        }
    }
}

/// An operation of a replay.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Step {
    /// The operation.
    pub op: Op,
    /// Start in nanoseconds of the trace.
    pub start: Nanos,
}

/// Iterator over the steps of a rank.
///
/// If the temporary file cannot be read, the iterator ends early and [`Steps::error`] returns the reason.
pub struct Steps<'a> {
    facts: &'a Facts,
    records: Slice<'a>,
    timing: Timing,
    barriers: &'a [Barrier],
    /// Time at which the rank's previous operations ended.
    idle_since: Nanos,
    now: Nanos,
    /// Open files, least recently used first.
    open: VecDeque<u32>,
    ready: VecDeque<Op>,
    ended: bool,
    error: Option<crate::TraceError>,
}

impl<'a> Steps<'a> {
    pub(super) fn new(facts: &'a Facts, records: Slice<'a>, timing: Timing) -> Self {
        let idle_since = Nanos(facts.span_ns.0);
        Self {
            facts,
            records,
            timing,
            barriers: &facts.barriers,
            idle_since,
            now: idle_since,
            open: VecDeque::new(),
            ready: VecDeque::new(),
            ended: false,
            error: None,
        }
    }

    /// Takes the error that ended the steps early.
    pub fn error(&mut self) -> Option<crate::TraceError> {
        self.error.take()
    }

    fn fill(&mut self) -> Result<()> {
        match self.records.next().transpose()? {
            Some(record) => self.record(&record),
            None => {
                self.barriers_until(None);
                for file in std::mem::take(&mut self.open) {
                    self.ready.push_back(Op::Close { file: FileRef(file) });
                }
                self.ended = true;
            }
        }
        Ok(())
    }

    /// Appends the barriers before an operation that starts at `start`, or all remaining barriers.
    fn barriers_until(&mut self, start: Option<Nanos>) {
        while let Some((next, rest)) = self.barriers.split_first() {
            if start.is_some_and(|start| next.at > start) {
                break;
            }
            self.ready.push_back(Op::Barrier);
            self.idle_since = self.idle_since.max(next.idle_since);
            self.barriers = rest;
        }
    }

    fn record(&mut self, record: &Record) {
        self.barriers_until(Some(record.start));
        self.now = record.start;
        if let Some(gap) = self.timing.gap(Nanos(record.start.get().saturating_sub(self.idle_since.get()))) {
            self.ready.push_back(Op::Compute(gap));
        }
        self.idle_since = self.idle_since.max(record.end);
        let number = record.file.0;
        let file = FileRef(number);
        let (offset, len, collective) = (record.offset.get(), record.len.get(), record.collective);
        match record.op {
            Operation::Barrier => self.ready.push_back(Op::Barrier),
            Operation::Open | Operation::Create => self.open(number),
            Operation::Close => self.close(number),
            Operation::Read => {
                self.open(number);
                self.ready.push_back(Op::Read { file, offset, len, collective });
            }
            Operation::Write => {
                self.open(number);
                self.ready.push_back(Op::Write { file, offset, len, collective });
            }
            Operation::Sync => {
                self.open(number);
                self.ready.push_back(Op::Sync { file });
            }
            Operation::Truncate => {
                self.open(number);
                self.ready.push_back(Op::SetLen { file, len: offset });
            }
            Operation::Stat => self.ready.push_back(Op::Stat { file }),
            Operation::Unlink => {
                self.close(number);
                self.ready.push_back(Op::Remove { file });
            }
            Operation::Mkdir => self.ready.push_back(Op::Mkdir { file }),
            Operation::Rmdir => self.ready.push_back(Op::Rmdir { file }),
        }
    }

    fn open(&mut self, file: u32) {
        if let Some(at) = self.open.iter().position(|open| *open == file) {
            self.open.remove(at);
        } else {
            if self.open.len() == OPEN_MAX {
                let oldest = self.open.pop_front().expect("OPEN_MAX files are open");
                self.ready.push_back(Op::Close { file: FileRef(oldest) });
            }
            let plan = &self.facts.files[file as usize];
            self.ready
                .push_back(Op::Open { file: FileRef(file), create: plan.written || plan.input.is_none() });
        }
        self.open.push_back(file);
    }

    fn close(&mut self, file: u32) {
        if let Some(at) = self.open.iter().position(|open| *open == file) {
            self.open.remove(at);
            self.ready.push_back(Op::Close { file: FileRef(file) });
        }
    }
}

impl Iterator for Steps<'_> {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        while self.ready.is_empty() && !self.ended {
            if let Err(error) = self.fill() {
                self.error = Some(error);
                self.ended = true;
            }
        }
        self.ready.pop_front().map(|op| Step { op, start: self.now })
    }
}
