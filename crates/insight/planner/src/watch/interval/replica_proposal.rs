//! Proposes replicas of files whose requests follow a lasting pattern.

use super::{FileLayout, FileSamples, Interval, Watcher, bytes_of};
use crate::figures::Figures;
use crate::plan::{PlanError, PresentLayout};
use crate::replicas::{self, Kind, PlannedReplica};
use crate::sample::Request;
use crate::survey::{FileGroup, Limits, TraceSummary};
use crate::watch::{Decision, Step};
use weft_core::{Candidate, Nanos, TargetId};

/// Most requests of the intervals that a replica is planned for.
const REQUESTS_MAX: usize = 1 << 20;
/// Number of processes of a program that may use the replica: any. A sampled client is not a rank.
const ANY_RANKS: u32 = 0;

/// A decision about a replica of a group's file.
#[derive(Clone, PartialEq, Debug)]
pub struct ReplicaProposal {
    /// Whether to make the replica.
    pub decision: Decision,
    /// Why.
    pub reason: String,
    /// Time of the sampled requests in the file, seconds; 0 if they cannot be judged.
    pub now_s: f64,
    /// Time of the sampled requests with the replica, seconds; without one, the time in the file.
    pub run_s: f64,
    /// Bytes of the replica.
    pub bytes: u64,
    /// The replica to make; `None` if there shall be none.
    pub replica: Option<PlannedReplica>,
}

impl ReplicaProposal {
    fn none(reason: impl Into<String>) -> Self {
        let (decision, reason) = (Decision::Keep { gain: 0.0 }, reason.into());
        Self { decision, reason, now_s: 0.0, run_s: 0.0, bytes: 0, replica: None }
    }
}

impl Watcher {
    /// Evaluates an interval like [`interval`](Self::interval), but plans a replica for the file of each group that is due,
    /// and no layouts. All requests must be in the samples.
    pub fn interval_for_replicas(
        &mut self,
        now: Nanos,
        files: Vec<FileSamples>,
        figures: impl FnOnce(u64) -> Result<Figures, String>,
        available: &[Candidate<'_>],
        options: &replicas::Options,
    ) -> Interval {
        self.evaluate(now, files, |watcher, interval| {
            watcher.propose(now, interval, figures, available, options)
        })
    }

    fn propose(
        &mut self,
        now: Nanos,
        interval: &mut Interval,
        figures: impl FnOnce(u64) -> Result<Figures, String>,
        available: &[Candidate<'_>],
        options: &replicas::Options,
    ) -> Result<(), PlanError> {
        let (traced, layouts) = self.window(&Limits { sample: REQUESTS_MAX });
        let figures = figures(bytes_of(&traced)).map_err(PlanError)?;
        let mut options = options.clone();
        for group in interval.groups.iter_mut().filter(|group| group.step == Step::Plan) {
            let of_group = traced.groups.iter().position(|of| self.group_name(&of.rule) == group.name);
            let mut proposal = match of_group.map(|number| of_one_group(&traced, number)) {
                Some(traced) => {
                    let path = self.path_of(&traced.groups[0]);
                    let layout = traced.sample.first().and_then(|request| layouts.get(&request.file));
                    match path.zip(layout) {
                        Some(file) => propose_for(&traced, file, &figures, available, &options)?,
                        None => ReplicaProposal::none("its requests are not known"),
                    }
                }
                None => ReplicaProposal::none("its requests are not known"),
            };
            proposal.decision = self.tracker.decide(now, &group.name, proposal.now_s, proposal.run_s);
            match proposal.decision {
                Decision::Apply { .. } => options.budget = options.budget.saturating_sub(proposal.bytes),
                Decision::Keep { .. } => proposal.replica = None,
            }
            group.replica = Some(proposal);
        }
        Ok(())
    }

    /// Latest path of a group's file.
    fn path_of(&self, group: &FileGroup) -> Option<&str> {
        let files = self.intervals.iter().rev().flat_map(|interval| &interval.files);
        files.map(|file| file.path.as_str()).find(|path| group.rule.matches(path))
    }
}

/// The part of a trace that concerns one group.
fn of_one_group(traced: &TraceSummary, number: usize) -> TraceSummary {
    let own = traced.sample.iter().filter(|request| request.group as usize == number);
    TraceSummary {
        groups: vec![traced.groups[number].clone()],
        sample: own.map(|request| Request { group: 0, ..*request }).collect(),
        ..*traced
    }
}

/// Plans a replica of the only file of a trace, which has this path and layout.
///
/// # Errors
/// Figures or a layout that do not match, and a replica that no mapping describes.
fn propose_for(
    traced: &TraceSummary,
    (path, at): (&str, &FileLayout),
    figures: &Figures,
    available: &[Candidate<'_>],
    options: &replicas::Options,
) -> Result<ReplicaProposal, PlanError> {
    let files = traced.groups[0].files;
    if files != 1 {
        return Ok(ReplicaProposal::none(format!("it has {files} files, and a replica is for one")));
    }
    let wrong = |why: String| PlanError(format!("{path}: {why}"));
    let class_of = |target: TargetId| {
        let class = available.iter().find(|candidate| candidate.target == target)?.class;
        figures.classes.iter().position(|known| known.name == class)
    };
    let present = PresentLayout::of_file(&at.layout, figures, class_of).map_err(wrong)?;
    let original = present.over_classes(figures);
    let plan = replicas::decide(traced, figures, &[original], options);
    let plan = plan.map_err(|error| wrong(error.to_string()))?;
    let Some(decision) = plan.decisions.first() else {
        return Ok(ReplicaProposal::none("it moves too little to be planned for"));
    };
    let now_s = decision.now_s();
    let Some(chosen) = decision.alternative(decision.chosen).filter(|chosen| chosen.kind.is_replica()) else {
        let reason = match decision.chosen {
            Kind::Move => "another layout of the file is as fast as a replica".to_owned(),
            _ => decision.reason.clone(),
        };
        return Ok(ReplicaProposal { now_s, run_s: now_s, ..ReplicaProposal::none(reason) });
    };
    let file = traced.sample.first().map_or(0, |request| request.file);
    let replica = decision.planned_replica(file, path, ANY_RANKS, Some(figures));
    Ok(ReplicaProposal {
        now_s,
        run_s: chosen.run_s(),
        bytes: chosen.bytes,
        replica: replica.map_err(|error| wrong(error.to_string()))?,
        ..ReplicaProposal::none(format!("{}, {}", decision.chosen, decision.reason))
    })
}
