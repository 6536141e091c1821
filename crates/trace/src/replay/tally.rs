//! What a replay came to.

use crate::record::Operation;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use weft_core::{Histogram, Nanos};

/// All operations of some ranks.
#[derive(Clone, Default, Debug, Serialize, Deserialize)]
pub struct Tally {
    /// By kind.
    pub kinds: BTreeMap<Operation, KindTally>,
    /// By file and kind. There may be hundreds of thousands, each with a few kinds.
    pub files: BTreeMap<u32, Vec<(Operation, FileTally)>>,
}

/// Operations of a kind on one of the files.
fn of_kind(kinds: &mut Vec<(Operation, FileTally)>, op: Operation) -> &mut FileTally {
    let at = kinds.binary_search_by_key(&op, |(op, _)| *op).unwrap_or_else(|at| {
        kinds.insert(at, (op, FileTally::default()));
        at
    });
    &mut kinds[at].1
}

/// Operations of a kind.
#[derive(Clone, Default, Debug, Serialize, Deserialize)]
pub struct KindTally {
    /// Bytes moved.
    pub bytes: u64,
    /// Reads that gave fewer bytes than in the trace.
    pub short: u64,
    /// Names that were there already or were missing.
    pub refused: u64,
    /// Begin of the first, on CLOCK_MONOTONIC.
    pub begin_ns: u64,
    /// End of the last.
    pub end_ns: u64,
    /// How long each took.
    pub latency: Histogram,
}

/// Operations of a kind on a file.
#[derive(Clone, Default, Debug, Serialize, Deserialize)]
pub struct FileTally {
    /// Bytes moved.
    pub bytes: u64,
    /// How long each took.
    pub latency: Histogram,
}

/// An operation that was done.
#[derive(Clone, Copy, Debug)]
pub struct Done {
    /// Bytes moved.
    pub bytes: u64,
    /// Whether a read gave fewer bytes than it asked for.
    pub short: bool,
    /// Whether the system refused because of what names there are.
    pub refused: bool,
    /// On CLOCK_MONOTONIC.
    pub begin_ns: u64,
    /// On CLOCK_MONOTONIC.
    pub end_ns: u64,
}

impl Tally {
    /// Adds an operation.
    pub fn add(&mut self, op: Operation, file: u32, done: &Done) {
        let took = Nanos(done.end_ns - done.begin_ns);
        let kind =
            self.kinds.entry(op).or_insert_with(|| KindTally { begin_ns: u64::MAX, ..Default::default() });
        kind.bytes += done.bytes;
        kind.short += u64::from(done.short);
        kind.refused += u64::from(done.refused);
        kind.begin_ns = kind.begin_ns.min(done.begin_ns);
        kind.end_ns = kind.end_ns.max(done.end_ns);
        kind.latency.add(took);
        let file = of_kind(self.files.entry(file).or_default(), op);
        file.bytes += done.bytes;
        file.latency.add(took);
    }

    /// Adds those of other ranks.
    pub fn merge(&mut self, other: Self) {
        for (op, more) in &other.kinds {
            let kind = self
                .kinds
                .entry(*op)
                .or_insert_with(|| KindTally { begin_ns: u64::MAX, ..Default::default() });
            kind.bytes += more.bytes;
            kind.short += more.short;
            kind.refused += more.refused;
            kind.begin_ns = kind.begin_ns.min(more.begin_ns);
            kind.end_ns = kind.end_ns.max(more.end_ns);
            kind.latency.merge(&more.latency);
        }
        for (file, mut kinds) in other.files {
            let here = self.files.entry(file).or_default();
            if here.is_empty() {
                kinds.shrink_to_fit();
                *here = kinds;
                continue;
            }
            for (op, more) in kinds {
                let file = of_kind(here, op);
                file.bytes += more.bytes;
                file.latency.merge(&more.latency);
            }
        }
    }

    /// Time from the begin of the first operation to the end of the last.
    pub fn elapsed(&self) -> Nanos {
        let begin = self.kinds.values().map(|kind| kind.begin_ns).min().unwrap_or(0);
        let end = self.kinds.values().map(|kind| kind.end_ns).max().unwrap_or(0);
        Nanos(end.saturating_sub(begin))
    }

    /// Number of operations.
    pub fn operations(&self) -> u64 {
        self.kinds.values().map(|kind| kind.latency.count()).sum()
    }

    /// Bytes read and written.
    pub fn bytes(&self) -> u64 {
        self.kinds.values().map(|kind| kind.bytes).sum()
    }
}
