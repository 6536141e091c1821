//! Counts of a run.

use crate::outcome::{Measure, OpKind, PhaseOutcome, RunError};
use std::collections::{BTreeMap, BTreeSet};
use weft_core::Nanos;
use weft_workload::{FileRef, Workload};

/// Counts of the current pass.
#[derive(Default)]
pub(crate) struct Tally {
    /// Ranks, or flush tasks, that have not ended yet.
    pub(crate) left: u32,
    pub(crate) start: Nanos,
    pub(crate) end: Nanos,
    pub(crate) phases: BTreeMap<Option<u16>, Phase>,
    /// Files that have been written to and may need a sync.
    pub(crate) written: BTreeSet<FileRef>,
    pub(crate) data_messages: u64,
    pub(crate) failure: Option<RunError>,
}

pub(crate) struct Phase {
    start: Nanos,
    end: Nanos,
    kinds: BTreeMap<OpKind, Measure>,
}

impl Phase {
    fn outcome(self, workload: &dyn Workload, id: Option<u16>, start: Nanos) -> PhaseOutcome {
        PhaseOutcome {
            name: id.map_or_else(String::new, |id| workload.phase(id)),
            start: self.start.saturating_sub(start),
            end: self.end.saturating_sub(start),
            kinds: self.kinds,
        }
    }
}

impl Tally {
    /// Counts an operation from `times.0` to `times.1`.
    pub(crate) fn count(&mut self, phase: Option<u16>, what: (OpKind, u64), times: (Nanos, Nanos)) {
        let ((kind, bytes), (start, now)) = (what, times);
        self.end = self.end.max(now);
        let fresh = || Phase { start, end: now, kinds: BTreeMap::new() };
        let phase = self.phases.entry(phase).or_insert_with(fresh);
        phase.start = phase.start.min(start);
        phase.end = phase.end.max(now);
        let measure = phase.kinds.entry(kind).or_default();
        measure.bytes += bytes;
        measure.latency.add(now.saturating_sub(start));
    }

    /// Number of operations.
    pub(crate) fn requests(&self) -> u64 {
        let all = self.phases.values().flat_map(|phase| phase.kinds.values());
        all.map(|measure| measure.latency.count()).sum()
    }

    /// Results of the phases.
    pub(crate) fn phases(self, workload: &dyn Workload) -> Vec<PhaseOutcome> {
        let start = self.start;
        self.phases.into_iter().map(|(id, phase)| phase.outcome(workload, id, start)).collect()
    }
}
