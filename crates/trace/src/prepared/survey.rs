//! What a trace's files are like, and where its ranks waited for each other.
//!
//! A trace rarely has barriers. One is taken to be at a point in time when (a) no operation of any rank was under way,
//! and (b) a rank then used what another had made before: read a file that another had written, wrote one that
//! another had read, used a name that another had made or removed. The latest such point between the two is taken.
//! Where there was no quiet point between, nothing is taken: the ranks did not all wait for each other.

use super::{Facts, Traced};
use crate::error::Result;
use crate::names::Names;
use crate::record::{Level, Operation, Rank, Record};
use crate::sort::Sorted;
use crate::stream::Info;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use weft_core::Nanos;

/// Most barriers that are taken from a trace.
pub const BARRIERS_MAX: usize = 1 << 20;

/// A point at which all ranks wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Barrier {
    /// Operations that begin at or after this come after it.
    pub at: Nanos,
    /// When the last operation before it ended.
    pub quiet_since: Nanos,
}

/// What a replay does with a file.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FilePlan {
    /// Its path in the trace.
    pub name: String,
    /// It is there before the replay begins, with so many bytes.
    pub input: Option<u64>,
    /// Whether anything is written to it, or it is made or cut.
    pub written: bool,
    /// One past the largest byte that is touched.
    pub extent: u64,
    /// Bytes that reads ask for.
    pub read_bytes: u64,
    /// Bytes that writes bring.
    pub written_bytes: u64,
    /// Whether its bytes or its name go or shrink on the way, so that nothing can be said of them in the end.
    pub cut: bool,
    /// Whether it is a directory.
    pub directory: bool,
    /// Whether several ranks use it.
    pub shared: bool,
    /// Whether ranks used its name in an order that is not known.
    pub disordered: bool,
}

impl FilePlan {
    /// Whether so little of it is read that only these parts are made before the replay.
    pub fn sparse(&self) -> bool {
        self.input.is_some_and(|len| self.read_bytes < len)
    }

    /// Most bytes that it takes in the replay.
    pub fn room(&self) -> u64 {
        self.extent.max(self.input.unwrap_or(0)).min(self.read_bytes.saturating_add(self.written_bytes))
    }
}

/// The latest uses by two different ranks.
#[derive(Clone, Copy, Default)]
struct Latest {
    first: Option<(Rank, Nanos)>,
    second: Option<(Rank, Nanos)>,
}

impl Latest {
    fn add(&mut self, rank: Rank, start: Nanos) {
        if self.first.is_some_and(|(other, _)| other != rank) {
            self.second = self.first;
        }
        self.first = Some((rank, start));
    }

    /// When a rank other than `rank` was the last to do so.
    fn by_others(&self, rank: Rank) -> Option<Nanos> {
        let of =
            |use_: Option<(Rank, Nanos)>| use_.filter(|(other, _)| *other != rank).map(|(_, start)| start);
        of(self.first).or_else(|| of(self.second))
    }
}

/// Uses before the latest quiet point, and since.
#[derive(Clone, Copy, Default)]
struct Used {
    before: Latest,
    since: Latest,
}

impl Used {
    /// Brings what was used since an earlier quiet point before the latest one, `quiet`.
    fn pass(&mut self, quiet: Nanos) {
        // Whatever was used before this call began before a quiet point that has come since.
        if self.since.first.is_some_and(|(_, start)| start < quiet) {
            for (rank, start) in [self.since.second, self.since.first].into_iter().flatten() {
                self.before.add(rank, start);
            }
            self.since = Latest::default();
        }
    }
}

#[derive(Clone, Default)]
struct FileState {
    plan: FilePlan,
    user: Option<Rank>,
    /// One past the largest byte written so far.
    high: u64,
    reads: Used,
    writes: Used,
    /// Making and removing the name, cutting.
    names: Used,
}

/// What came of one pass.
pub(super) struct Survey {
    /// Records that are taken, by rank.
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
        let mut told: BTreeMap<Rank, u64> = BTreeMap::new();
        let mut quiet = Quiet::default();
        for record in sorted.iter()? {
            let record = record?;
            if record.op == Operation::Barrier {
                *told.entry(record.rank).or_default() += 1;
                continue;
            }
            if record.level == level {
                *all.entry(record.rank).or_default() += 1;
                survey.add(&record, &mut quiet);
            }
        }
        survey.judge_barriers(infer, &all, &told);
        survey.finish(sorted, level)?;
        Ok(survey)
    }

    fn add(&mut self, record: &Record, quiet: &mut Quiet) {
        quiet.before(record.start);
        let file = &mut self.files[record.file.0 as usize];
        let (rank, start) = (record.rank, record.start);
        let first = file.user.is_none();
        file.plan.shared |= file.user.is_some_and(|user| user != rank);
        file.user.get_or_insert(rank);
        let uses = Uses::of(record);
        for used in [&mut file.reads, &mut file.writes, &mut file.names] {
            used.pass(quiet.at);
        }
        let against = [
            (true, file.names),
            (uses.reads || uses.names, file.writes),
            (uses.writes || uses.names, file.reads),
        ];
        let against = against.into_iter().filter(|(matters, _)| *matters).map(|(_, used)| used);
        // What lies before a quiet point is separated by a barrier there.
        let before = against.clone().filter_map(|used| used.before.by_others(rank)).max();
        if before.is_some_and(|other| other >= quiet.barrier) {
            if self.barriers.len() < BARRIERS_MAX {
                self.barriers.push(Barrier { at: quiet.at, quiet_since: quiet.since });
            }
            quiet.barrier = quiet.at;
        }
        // What lies after it cannot be.
        let since = |used: Used| used.since.by_others(rank).is_some();
        file.plan.disordered |= since(file.names) || uses.names && against.clone().any(since);
        for (used, latest) in
            [(uses.reads, &mut file.reads), (uses.writes, &mut file.writes), (uses.names, &mut file.names)]
        {
            if used {
                latest.since.add(rank, start);
            }
        }
        file.note(record, first);
        quiet.end = quiet.end.max(record.end);
        self.span = (self.span.0.min(start.get()), self.span.1.max(record.end.get()));
        self.len_max = self.len_max.max(if record.op.moves_bytes() { record.len.get() } else { 0 });
    }

    /// Barriers that the trace has count if all ranks came to each; else those that it shows do.
    fn judge_barriers(&mut self, infer: bool, all: &BTreeMap<Rank, u64>, told: &BTreeMap<Rank, u64>) {
        let count = told.values().next().copied().unwrap_or(0);
        let complete = count > 0 && told.values().all(|n| *n == count) && all.keys().eq(told.keys());
        if count > 0 && !complete {
            self.notes.push("its barriers are not of all ranks and were left out".into());
        }
        self.explicit = complete && infer;
        if self.explicit || !infer || all.len() < 2 {
            self.barriers.clear();
        }
        if self.barriers.len() == BARRIERS_MAX {
            self.notes.push(format!(
                "ranks wait for each other {BARRIERS_MAX} times; where they did after that was left out"
            ));
        }
    }

    /// Counts what is taken, now that all is known of the files.
    fn finish(&mut self, sorted: &Sorted, level: Level) -> Result<()> {
        for file in &mut self.files {
            if file.plan.disordered && !file.plan.directory {
                file.plan.input.get_or_insert(0);
            }
        }
        let mut ranks = BTreeMap::new();
        for record in sorted.iter()? {
            let record = record?;
            if self.takes(&record, level) {
                *ranks.entry(record.rank).or_default() += 1;
            }
        }
        self.ranks = ranks;
        Ok(())
    }

    /// Whether a record is replayed.
    pub fn takes(&self, record: &Record, level: Level) -> bool {
        if record.op == Operation::Barrier {
            return self.explicit;
        }
        record.level == level && !self.leaves_out(record, level)
    }

    /// Whether a record of the level is left out because its outcome depended on an order that is not known.
    pub fn leaves_out(&self, record: &Record, level: Level) -> bool {
        if record.level != level || !record.op.has_file() {
            return false;
        }
        let plan = &self.files[record.file.0 as usize].plan;
        match record.op {
            Operation::Mkdir | Operation::Rmdir => plan.shared,
            Operation::Stat => plan.directory && plan.shared,
            Operation::Unlink => plan.disordered || plan.directory,
            Operation::Truncate => plan.disordered && plan.shared,
            _ => plan.directory,
        }
    }

    pub fn facts(
        self,
        info: Info,
        level: Level,
        places: Vec<std::ops::Range<u64>>,
        traced: BTreeMap<Operation, Traced>,
        left_out: u64,
    ) -> Facts {
        let mut notes = self.notes;
        if left_out > 0 {
            notes.push(format!(
                "{left_out} operations on names that ranks used in no known order were left out"
            ));
        }
        Facts {
            info,
            level,
            ranks: self.ranks.keys().copied().collect(),
            places,
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

/// The latest point at which nothing was under way.
#[derive(Default)]
struct Quiet {
    end: Nanos,
    at: Nanos,
    since: Nanos,
    /// The barrier that was taken last.
    barrier: Nanos,
}

impl Quiet {
    fn before(&mut self, start: Nanos) {
        if start > self.end {
            (self.at, self.since) = (start, self.end);
        }
    }
}

/// What an operation does to a file, as far as others see it.
struct Uses {
    reads: bool,
    writes: bool,
    names: bool,
}

impl Uses {
    fn of(record: &Record) -> Self {
        let (reads, writes, names) = match record.op {
            // No byte was there, or was changed.
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
    fn note(&mut self, record: &Record, first: bool) {
        let plan = &mut self.plan;
        let end = if record.op.moves_bytes() { record.end_offset() } else { 0 };
        match record.op {
            // A file that is used before anything makes it was there.
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
