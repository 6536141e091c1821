//! Surveys a sorted trace: the properties of its files, and the barriers between its ranks.
//!
//! Most traces record no barriers, so they are inferred. A barrier is inferred at an *idle gap*, a time at which no
//! rank had an operation in flight, if a rank afterwards depends on another rank's operation before the gap:
//!
//! | operation before the gap | dependent operation of another rank after the gap |
//! | --- | --- |
//! | writes a file | reads the file |
//! | reads a file | writes the file |
//! | creates, removes or truncates a file | uses the file |
//! | uses a file | creates, removes or truncates the file |
//!
//! ```text
//! rank 0  ── write a ──┐                  ┌─ write b ──
//! rank 1  ───── write c ──┐           ┌─ read a ───      "read a" depends on "write a"
//!                         ◄─ idle gap ─►
//!                                     ▲ barrier: start of the first operation after the latest gap
//! ```
//!
//! The barrier is placed at the latest gap between the two operations. If there is no gap between them, the ranks
//! cannot all have waited for each other, and no barrier is inferred.

use super::{Facts, Traced};
use crate::error::Result;
use crate::names::Names;
use crate::record::{Level, Operation, Rank, Record};
use crate::sort::Sorted;
use crate::stream::Info;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use weft_core::Nanos;

/// Maximum number of inferred barriers.
pub const BARRIERS_MAX: usize = 1 << 20;

/// A barrier at which all ranks wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Barrier {
    /// Operations that start at or after this time follow the barrier.
    pub at: Nanos,
    /// Time at which the last operation before the barrier ended.
    pub idle_since: Nanos,
}

/// Preparation of a file for a replay, and its use during the replay.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FilePlan {
    /// Path in the trace.
    pub name: String,
    /// Length in bytes of the file before the replay, if it must exist.
    pub input: Option<u64>,
    /// Whether the replay writes, creates or truncates the file.
    pub written: bool,
    /// Offset after the last byte accessed.
    pub extent: u64,
    /// Bytes requested by reads.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Whether the file is truncated or removed, so that its final content is not verified.
    pub cut: bool,
    /// Whether the file is a directory.
    pub directory: bool,
    /// Whether more than one rank uses the file.
    pub shared: bool,
    /// Whether ranks used the file's name in an order that the trace does not show.
    pub unordered: bool,
}

impl FilePlan {
    /// Whether so little of the initial content is read that only the parts read are filled before the replay.
    pub fn sparse(&self) -> bool {
        self.input.is_some_and(|len| self.read_bytes < len)
    }

    /// Upper bound of the disk space that the file needs in the replay, in bytes.
    pub fn space_needed(&self) -> u64 {
        self.extent.max(self.input.unwrap_or(0)).min(self.read_bytes.saturating_add(self.written_bytes))
    }
}

/// The latest uses by two different ranks.
#[derive(Clone, Copy, Default)]
struct LatestUses {
    first: Option<(Rank, Nanos)>,
    second: Option<(Rank, Nanos)>,
}

impl LatestUses {
    fn add(&mut self, rank: Rank, start: Nanos) {
        if self.first.is_some_and(|(other, _)| other != rank) {
            self.second = self.first;
        }
        self.first = Some((rank, start));
    }

    /// Time of the latest use by a rank other than `rank`.
    fn by_others(&self, rank: Rank) -> Option<Nanos> {
        let of =
            |use_: Option<(Rank, Nanos)>| use_.filter(|(other, _)| *other != rank).map(|(_, start)| start);
        of(self.first).or_else(|| of(self.second))
    }
}

/// Uses before and after the latest idle gap.
#[derive(Clone, Copy, Default)]
struct UsesByGap {
    before: LatestUses,
    since: LatestUses,
}

impl UsesByGap {
    /// Moves uses to `before` if a newer gap at `gap` lies after them.
    fn advance(&mut self, gap: Nanos) {
        // Every use recorded in an earlier call that started before `gap` lies before the gap.
        if self.since.first.is_some_and(|(_, start)| start < gap) {
            for (rank, start) in [self.since.second, self.since.first].into_iter().flatten() {
                self.before.add(rank, start);
            }
            self.since = LatestUses::default();
        }
    }
}

#[derive(Clone, Default)]
struct FileState {
    plan: FilePlan,
    user: Option<Rank>,
    /// Offset after the last byte written so far.
    high: u64,
    reads: UsesByGap,
    writes: UsesByGap,
    /// Creations, removals and truncations.
    names: UsesByGap,
}

/// Result of the survey.
pub(super) struct Survey {
    /// Number of replayed records of each rank.
    pub ranks: BTreeMap<Rank, u64>,
    files: Vec<FileState>,
    barriers: Vec<Barrier>,
    explicit: bool,
    span: (u64, u64),
    len_max: u64,
    notes: Vec<String>,
}

impl Survey {
    pub fn of(sorted: &Sorted, level: Level, names: &Names, infer: bool) -> Result<Self> {
        let mut survey = Self {
            ranks: BTreeMap::new(),
            files: vec![FileState::default(); names.files() as usize],
            barriers: Vec::new(),
            explicit: false,
            span: (u64::MAX, 0),
            len_max: 0,
            notes: Vec::new(),
        };
        for (file, name) in survey.files.iter_mut().zip(names.all_files()) {
            file.plan.name = name.to_owned();
        }
        let mut all: BTreeMap<Rank, u64> = BTreeMap::new();
        let mut explicit_counts: BTreeMap<Rank, u64> = BTreeMap::new();
        let mut gap = IdleGap::default();
        for record in sorted.iter()? {
            let record = record?;
            if record.op == Operation::Barrier {
                *explicit_counts.entry(record.rank).or_default() += 1;
                continue;
            }
            if record.level == level {
                *all.entry(record.rank).or_default() += 1;
                survey.add(&record, &mut gap);
            }
        }
        survey.resolve_barriers(infer, &all, &explicit_counts);
        survey.finish(sorted, level)?;
        Ok(survey)
    }

    fn add(&mut self, record: &Record, gap: &mut IdleGap) {
        gap.observe_start(record.start);
        let file = &mut self.files[record.file.0 as usize];
        let (rank, start) = (record.rank, record.start);
        let first = file.user.is_none();
        file.plan.shared |= file.user.is_some_and(|user| user != rank);
        file.user.get_or_insert(rank);
        let uses = Uses::of(record);
        for used in [&mut file.reads, &mut file.writes, &mut file.names] {
            used.advance(gap.at);
        }
        let conflicting = [
            (true, file.names),
            (uses.reads || uses.names, file.writes),
            (uses.writes || uses.names, file.reads),
        ];
        let conflicting = conflicting.into_iter().filter(|(matters, _)| *matters).map(|(_, used)| used);
        // An operation before an idle gap can be separated by a barrier at the gap.
        let before = conflicting.clone().filter_map(|used| used.before.by_others(rank)).max();
        if before.is_some_and(|other| other >= gap.barrier) {
            if self.barriers.len() < BARRIERS_MAX {
                self.barriers.push(Barrier { at: gap.at, idle_since: gap.since });
            }
            gap.barrier = gap.at;
        }
        // An operation after the gap overlaps in time or has no gap before the dependent one.
        let since = |used: UsesByGap| used.since.by_others(rank).is_some();
        file.plan.unordered |= since(file.names) || uses.names && conflicting.clone().any(since);
        for (used, latest) in
            [(uses.reads, &mut file.reads), (uses.writes, &mut file.writes), (uses.names, &mut file.names)]
        {
            if used {
                latest.since.add(rank, start);
            }
        }
        file.update_plan(record, first);
        gap.end = gap.end.max(record.end);
        self.span = (self.span.0.min(start.get()), self.span.1.max(record.end.get()));
        self.len_max = self.len_max.max(if record.op.moves_bytes() { record.len.get() } else { 0 });
    }

    /// Uses the trace's own barriers if every rank has the same number of them, otherwise the inferred ones.
    fn resolve_barriers(
        &mut self,
        infer: bool,
        all: &BTreeMap<Rank, u64>,
        explicit_counts: &BTreeMap<Rank, u64>,
    ) {
        let count = explicit_counts.values().next().copied().unwrap_or(0);
        let complete = count > 0
            && explicit_counts.values().all(|n| *n == count)
            && all.keys().eq(explicit_counts.keys());
        if count > 0 && !complete {
            self.notes.push("the trace's barriers do not cover all ranks and were ignored".into());
        }
        self.explicit = complete && infer;
        if self.explicit || !infer || all.len() < 2 {
            self.barriers.clear();
        }
        if self.barriers.len() == BARRIERS_MAX {
            self.notes.push(format!(
                "only the first {BARRIERS_MAX} inferred barriers are used; later ones were left out"
            ));
        }
    }

    /// Marks files of unknown order as initially present, and counts the replayed records.
    fn finish(&mut self, sorted: &Sorted, level: Level) -> Result<()> {
        for file in &mut self.files {
            if file.plan.unordered && !file.plan.directory {
                file.plan.input.get_or_insert(0);
            }
        }
        let mut ranks = BTreeMap::new();
        for record in sorted.iter()? {
            let record = record?;
            if self.is_replayed(&record, level) {
                *ranks.entry(record.rank).or_default() += 1;
            }
        }
        self.ranks = ranks;
        Ok(())
    }

    /// Whether a record is replayed.
    pub fn is_replayed(&self, record: &Record, level: Level) -> bool {
        if record.op == Operation::Barrier {
            return self.explicit;
        }
        record.level == level && !self.is_left_out(record, level)
    }

    /// Whether a record of `level` is left out because its outcome depended on an unknown order of ranks.
    pub fn is_left_out(&self, record: &Record, level: Level) -> bool {
        if record.level != level || !record.op.has_file() {
            return false;
        }
        let plan = &self.files[record.file.0 as usize].plan;
        match record.op {
            Operation::Mkdir | Operation::Rmdir => plan.shared,
            Operation::Stat => plan.directory && plan.shared,
            Operation::Unlink => plan.unordered || plan.directory,
            Operation::Truncate => plan.unordered && plan.shared,
            _ => plan.directory,
        }
    }

    pub fn facts(
        self,
        info: Info,
        level: Level,
        record_ranges: Vec<std::ops::Range<u64>>,
        traced: BTreeMap<Operation, Traced>,
        left_out: u64,
    ) -> Facts {
        let mut notes = self.notes;
        if left_out > 0 {
            notes.push(format!(
                "{left_out} operations on names that ranks used in an unknown order were left out"
            ));
        }
        Facts {
            info,
            level,
            ranks: self.ranks.keys().copied().collect(),
            record_ranges,
            files: self.files.into_iter().map(|file| file.plan).collect(),
            barriers: self.barriers,
            explicit_barriers: self.explicit,
            span_ns: self.span,
            len_max: self.len_max,
            traced,
            left_out,
            notes,
        }
    }
}

/// The latest idle gap.
#[derive(Default)]
struct IdleGap {
    end: Nanos,
    at: Nanos,
    since: Nanos,
    /// Time of the last inferred barrier.
    barrier: Nanos,
}

impl IdleGap {
    fn observe_start(&mut self, start: Nanos) {
        if start > self.end {
            (self.at, self.since) = (start, self.end);
        }
    }
}

/// Effects of an operation on a file that other ranks can observe.
struct Uses {
    reads: bool,
    writes: bool,
    names: bool,
}

impl Uses {
    fn of(record: &Record) -> Self {
        let (reads, writes, names) = match record.op {
            // No byte was read or changed.
            Operation::Read | Operation::Write if record.len.get() == 0 => (false, false, false),
            Operation::Read | Operation::Open | Operation::Stat => (true, false, false),
            Operation::Write => (false, true, false),
            Operation::Create
            | Operation::Mkdir
            | Operation::Unlink
            | Operation::Rmdir
            | Operation::Truncate => (false, false, true),
            Operation::Close | Operation::Sync | Operation::Barrier => (false, false, false),
        };
        Self { reads, writes, names }
    }
}

impl FileState {
    fn update_plan(&mut self, record: &Record, first: bool) {
        let plan = &mut self.plan;
        let end = if record.op.moves_bytes() { record.end_offset() } else { 0 };
        match record.op {
            // A file that is used before the trace creates it must have existed.
            Operation::Read if end > self.high || first => {
                plan.input = Some(plan.input.unwrap_or(0).max(end));
            }
            Operation::Open | Operation::Stat | Operation::Unlink | Operation::Truncate if first => {
                plan.input = Some(0);
            }
            Operation::Mkdir | Operation::Rmdir => plan.directory = true,
            _ => {}
        }
        match record.op {
            Operation::Read => plan.read_bytes = plan.read_bytes.saturating_add(record.len.get()),
            Operation::Write => {
                plan.written_bytes = plan.written_bytes.saturating_add(record.len.get());
                plan.written = true;
                self.high = self.high.max(end);
            }
            Operation::Create => plan.written = true,
            Operation::Truncate => {
                (plan.written, plan.cut) = (true, true);
                self.high = record.offset.get();
            }
            Operation::Unlink => {
                (plan.written, plan.cut) = (true, true);
                self.high = 0;
            }
            _ => {}
        }
        plan.extent = plan.extent.max(end);
    }
}
