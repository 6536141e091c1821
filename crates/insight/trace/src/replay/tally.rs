//! Results of a replay: counts, bytes and latencies.

use crate::record::Operation;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use weft_core::{Histogram, Nanos};

/// Results of the operations of some ranks.
#[derive(Clone, Default, Debug, Serialize, Deserialize)]
pub struct Tally {
    /// Results by kind of operation.
    pub kinds: BTreeMap<Operation, KindTally>,
    /// Results by file and kind. A vector per file is compact: there may be 100,000 files with a few kinds each.
    pub files: BTreeMap<u32, Vec<(Operation, FileTally)>>,
}

/// Returns the results of one kind of operation on a file and inserts them if missing.
fn of_kind(kinds: &mut Vec<(Operation, FileTally)>, op: Operation) -> &mut FileTally {
    let at = kinds.binary_search_by_key(&op, |(op, _)| *op).unwrap_or_else(|at| {
        kinds.insert(at, (op, FileTally::default()));
        at
    });
    &mut kinds[at].1
}

/// Results of one kind of operation.
#[derive(Clone, Default, Debug, Serialize, Deserialize)]
pub struct KindTally {
    /// Bytes transferred.
    pub bytes: u64,
    /// Number of reads that returned fewer bytes than in the trace.
    pub short: u64,
    /// Number of operations refused because a name was missing or already existed.
    pub refused: u64,
    /// Start of the first operation on `CLOCK_MONOTONIC`.
    pub begin_ns: u64,
    /// End of the last operation on `CLOCK_MONOTONIC`.
    pub end_ns: u64,
    /// Latencies.
    pub latency: Histogram,
}

/// Results of one kind of operation on one file.
#[derive(Clone, Default, Debug, Serialize, Deserialize)]
pub struct FileTally {
    /// Bytes transferred.
    pub bytes: u64,
    /// Latencies.
    pub latency: Histogram,
}

/// Result of one operation.
#[derive(Clone, Copy, Debug)]
pub struct Done {
    /// Bytes transferred.
    pub bytes: u64,
    /// Whether a read returned fewer bytes than requested.
    pub short: bool,
    /// Whether the operation failed because a name was missing or already existed.
    pub refused: bool,
    /// Start on `CLOCK_MONOTONIC`.
    pub begin_ns: u64,
    /// End on `CLOCK_MONOTONIC`.
    pub end_ns: u64,
}

impl Tally {
    /// Adds one operation.
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

    /// Adds the results of other ranks.
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
            let sums = self.files.entry(file).or_default();
            if sums.is_empty() {
                kinds.shrink_to_fit();
                *sums = kinds;
                continue;
            }
            for (op, more) in kinds {
                let file = of_kind(sums, op);
                file.bytes += more.bytes;
                file.latency.merge(&more.latency);
            }
        }
    }

    /// Time from the start of the first operation to the end of the last.
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
