//! Evaluates the samples of one interval.

use super::comparison::{FileLayout, compare};
use super::pattern_tracker::{Decision, Hysteresis, PatternTracker, Signature, Step};
use super::request_reassembly::{ReassembledRequest, SampledMessage, reassemble};
use crate::figures::Figures;
use crate::plan::{Options, Plan, PlanError, Rule};
use crate::rule::PathRule;
use crate::survey::{Limits, Survey, TraceSummary};
use std::collections::{BTreeMap, VecDeque};
use weft_core::{Candidate, ClassLayout, Layout, Nanos};
use weft_trace::{FileId, HostId, Level, Names, Operation, Rank, Record};

mod replica_proposal;

pub use replica_proposal::ReplicaProposal;

/// Maximum requests of an interval that are used.
const REQUESTS_MAX: usize = 1 << 18;
/// Silence after which a client counts as a new rank. Samples leave out longer stretches of a client's time, so
/// requests across a gap are unrelated.
const CLIENT_GAP_NS: u64 = 1_000_000_000;
/// Maximum number of client processes whose rank numbers are kept between intervals.
const CLIENTS_MAX: usize = 1 << 20;

/// A file and the messages sampled for it in an interval.
#[derive(Clone, Debug)]
pub struct FileSamples {
    /// File id.
    pub file: weft_core::FileId,
    /// Its path.
    pub path: String,
    /// Its layout.
    pub layout: Layout,
    /// The layout that a rule would give it if it were created now.
    pub ruled: Option<ClassLayout>,
    /// Its length.
    pub size: u64,
    /// The sampled messages.
    pub messages: Vec<SampledMessage>,
}

/// A file group in an interval.
#[derive(Clone, PartialEq, Debug)]
pub struct Group {
    /// Its path, with `*` for every number.
    pub name: String,
    /// Its pattern, if there were enough requests.
    pub signature: Option<Signature>,
    /// The consequence.
    pub step: Step,
    /// The decision about its layout, if a plan was due.
    pub decided: Option<GroupDecision>,
    /// The decision about a replica, if one was due.
    pub replica: Option<ReplicaProposal>,
}

/// A decision with the predicted times behind it.
#[derive(Clone, PartialEq, Debug)]
pub struct GroupDecision {
    /// The decision.
    pub decision: Decision,
    /// Time under the layouts in force, seconds: those of rules where there are any, else those of the files.
    pub in_force_s: f64,
    /// Time under the layouts that the files have, seconds.
    pub files_s: f64,
    /// Time under the new layout, seconds.
    pub planned_s: f64,
    /// The new rule.
    pub rule: Rule,
}

/// Result of an interval.
#[derive(Clone, Debug)]
pub struct Interval {
    /// Number of reassembled requests.
    pub requests: u64,
    /// Number of messages that could not be assigned to a complete request.
    pub lost: u64,
    /// All groups with requests.
    pub groups: Vec<Group>,
    /// The plan with the rules to put into force, if any.
    pub plan: Option<Plan>,
    /// Why planning failed, if it was due.
    pub failed: Option<String>,
}

/// The requests of one interval.
#[derive(Debug)]
struct IntervalRequests {
    files: Vec<FileRequests>,
}

#[derive(Debug)]
struct FileRequests {
    at: FileLayout,
    path: String,
    size: u64,
    requests: Vec<ReassembledRequest>,
}

/// Watches a directory from interval to interval.
#[derive(Debug)]
pub struct Watcher {
    tracker: PatternTracker,
    /// Path of the directory with a trailing slash.
    directory: String,
    /// The intervals that a pattern has to last.
    intervals: VecDeque<IntervalRequests>,
    clients: BTreeMap<u64, Rank>,
}

impl Watcher {
    /// A watcher of the directory with this path.
    pub fn new(directory: &str, hysteresis: Hysteresis) -> Self {
        let directory = PathRule::of(&format!("{}/", directory.trim_end_matches('/'))).0;
        Self {
            tracker: PatternTracker::new(hysteresis),
            directory,
            intervals: VecDeque::new(),
            clients: BTreeMap::new(),
        }
    }

    /// Evaluates an interval that ended at `now`, and plans layouts. Times in `files` are relative to an origin common to
    /// all intervals. If a plan is due, `figures` is called with the total length of the files and returns figures of the
    /// targets in `available`.
    pub fn interval(
        &mut self,
        now: Nanos,
        files: Vec<FileSamples>,
        figures: impl FnOnce(u64) -> Result<Figures, String>,
        available: &[Candidate<'_>],
        options: &Options,
    ) -> Interval {
        self.evaluate(now, files, |watcher, interval| {
            watcher.plan(now, interval, figures, available, options)
        })
    }

    /// Finds the step of each group, and calls `decide` if a plan is due.
    fn evaluate(
        &mut self,
        now: Nanos,
        files: Vec<FileSamples>,
        decide: impl FnOnce(&mut Self, &mut Interval) -> Result<(), PlanError>,
    ) -> Interval {
        let mut interval = self.observe(now, files);
        if interval.groups.iter().any(|group| group.step == Step::Plan)
            && let Err(error) = decide(self, &mut interval)
        {
            interval.failed = Some(error.to_string());
        }
        interval
    }

    /// Reassembles the requests of an interval and finds the step of each group.
    fn observe(&mut self, now: Nanos, files: Vec<FileSamples>) -> Interval {
        let (mut count, mut lost) = (0, 0);
        let mut interval_requests = IntervalRequests { files: Vec::new() };
        for mut file in files {
            let (mut requests, missed) =
                reassemble(&file.layout, file.size, std::mem::take(&mut file.messages));
            let remaining = REQUESTS_MAX - count.min(REQUESTS_MAX);
            lost += missed;
            if requests.len() > remaining {
                requests.truncate(remaining);
            }
            count += requests.len();
            if !requests.is_empty() {
                let FileSamples { file, path, layout, ruled, size, .. } = file;
                let at = FileLayout { file, layout, ruled };
                interval_requests.files.push(FileRequests { at, path, size, requests });
            }
        }
        let mut interval =
            Interval { requests: count as u64, lost, groups: Vec::new(), plan: None, failed: None };
        if count == 0 {
            return interval;
        }
        let mut ranks = RankAssignment::per_stretch();
        let (traced, _) = trace([&interval_requests].into_iter(), &mut ranks, &Limits::default());
        self.intervals.push_back(interval_requests);
        while self.intervals.len() > self.tracker.hysteresis().intervals.max(1) as usize {
            self.intervals.pop_front();
        }
        for group in &traced.groups {
            let name = self.group_name(&group.rule);
            let signature = Signature::of(group, self.tracker.hysteresis());
            let step = self.tracker.observe(now, &name, signature);
            interval.groups.push(Group { name, signature, step, decided: None, replica: None });
        }
        interval
    }

    /// Forgets the history, because another directory without rules has this path now.
    pub fn forget(&mut self) {
        self.tracker.forget();
        self.intervals.clear();
    }

    /// Reverts a decision that could not be carried out.
    pub fn failed(&mut self, group: &str) {
        self.tracker.failed(group);
    }

    /// The name of a group, independent of the files seen in an interval: every number after the directory is replaced
    /// by `*`.
    fn group_name(&self, rule: &PathRule) -> String {
        rule.generalize_after(&self.directory).0
    }

    /// The trace of the intervals that a pattern has to last, with the id and layout of each file.
    fn window(&mut self, limits: &Limits) -> (TraceSummary, BTreeMap<u32, FileLayout>) {
        if self.clients.len() > CLIENTS_MAX {
            self.clients.clear();
        }
        let mut per_client = RankAssignment::PerClient(&mut self.clients);
        let (mut traced, layouts) = trace(self.intervals.iter(), &mut per_client, limits);
        // A client counted as one rank shows jumps between sampled stretches that are not its own.
        let (stretches, _) = trace(self.intervals.iter(), &mut RankAssignment::per_stretch(), limits);
        for group in &mut traced.groups {
            if let Some(same) = stretches.groups.iter().find(|same| same.rule == group.rule) {
                group.pattern.shape.clone_from(&same.pattern.shape);
                group.pattern.share = same.pattern.share;
            }
        }
        (traced, layouts)
    }

    fn plan(
        &mut self,
        now: Nanos,
        interval: &mut Interval,
        figures: impl FnOnce(u64) -> Result<Figures, String>,
        available: &[Candidate<'_>],
        options: &Options,
    ) -> Result<(), PlanError> {
        let (traced, layouts) = self.window(&Limits::default());
        let figures = figures(bytes_of(&traced)).map_err(PlanError)?;
        let due = |name: &str| interval.groups.iter().any(|g| g.step == Step::Plan && g.name == name);
        let groups: Vec<usize> = (0..traced.groups.len())
            .filter(|group| due(&self.group_name(&traced.groups[*group].rule)))
            .collect();
        let (mut plan, comparison) = compare(&traced, &groups, &figures, available, &layouts, options)?;
        plan.rules.clear();
        for group in interval.groups.iter_mut().filter(|group| group.step == Step::Plan) {
            let of_group = comparison.iter().find(|one| self.group_name(&one.rule.path) == group.name);
            let (in_force_s, planned_s) = of_group.map_or((0.0, 0.0), |one| (one.in_force_s, one.planned_s));
            let decision = self.tracker.decide(now, &group.name, in_force_s, planned_s);
            let Some(comparison) = of_group else { continue };
            // The rule applies to the whole group, including future files.
            let rule = Rule { path: PathRule(group.name.clone()), ..comparison.rule.clone() };
            if matches!(decision, Decision::Apply { .. }) {
                plan.rules.push(rule.clone());
            }
            let files_s = comparison.files_s;
            group.decided = Some(GroupDecision { decision, in_force_s, files_s, planned_s, rule });
        }
        interval.plan = (!plan.rules.is_empty()).then_some(plan);
        Ok(())
    }
}

/// Total length of the files of a trace.
fn bytes_of(traced: &TraceSummary) -> u64 {
    traced.groups.iter().map(|group| group.extent_sum).fold(0, u64::saturating_add)
}

/// How clients are mapped to ranks.
enum RankAssignment<'a> {
    /// One rank per client process.
    PerClient(&'a mut BTreeMap<u64, Rank>),
    /// One rank per stretch of a client's time without a gap: its current rank and the end of its last request.
    PerStretch(BTreeMap<u64, (Rank, Nanos)>, u32),
}

impl RankAssignment<'_> {
    fn per_stretch() -> Self {
        Self::PerStretch(BTreeMap::new(), 0)
    }

    /// The rank of a request. Requests arrive in order of their start.
    fn of(&mut self, request: &ReassembledRequest) -> Rank {
        match self {
            Self::PerClient(known) => {
                let next = Rank(known.len() as u32);
                *known.entry(request.client).or_insert(next)
            }
            Self::PerStretch(known, count) => {
                let (rank, end) = known.entry(request.client).or_insert((Rank(u32::MAX), Nanos(0)));
                if *rank == Rank(u32::MAX) || request.start.saturating_sub(*end) >= Nanos(CLIENT_GAP_NS) {
                    *rank = Rank(*count);
                    *count += 1;
                }
                *end = request.end.max(*end);
                *rank
            }
        }
    }
}

/// Converts intervals to a trace summary, and returns the last id and layout of each file.
fn trace<'a>(
    intervals: impl Iterator<Item = &'a IntervalRequests>,
    ranks: &mut RankAssignment<'_>,
    limits: &Limits,
) -> (TraceSummary, BTreeMap<u32, FileLayout>) {
    let mut names = Names::default();
    let mut layouts = BTreeMap::new();
    let mut sizes: BTreeMap<FileId, u64> = BTreeMap::new();
    let mut all: Vec<(FileId, ReassembledRequest)> = Vec::new();
    for interval in intervals {
        for of in &interval.files {
            let Some(file) = names.file(&of.path) else { continue };
            layouts.insert(file.0, of.at.clone());
            sizes.insert(file, of.size);
            all.extend(of.requests.iter().map(|request| (file, *request)));
        }
    }
    all.sort_by_key(|(file, request)| (request.start, request.client, *file));
    let origin = all.first().map_or(Nanos(0), |(_, request)| request.start);
    let mut survey = Survey::new(limits);
    for (file, request) in all {
        let record = Record {
            rank: ranks.of(&request),
            host: HostId(0),
            file,
            op: if request.write { Operation::Write } else { Operation::Read },
            level: Level::Posix,
            collective: false,
            offset: request.extent.offset,
            len: request.extent.len,
            start: request.start.saturating_sub(origin),
            end: request.end.max(request.start).saturating_sub(origin),
        };
        survey.add(&record, &names);
    }
    let mut traced = survey.finish(Some(Level::Posix));
    // Samples do not show the length of files, and capacity is needed for whole files.
    for group in &mut traced.groups {
        let of_unit = names.all_files().zip(0u32..).filter(|(path, _)| group.rule.matches(path));
        let (mut most, mut sum) = (0, 0u64);
        for (_, number) in of_unit {
            let size = sizes.get(&FileId(number)).copied().unwrap_or(0);
            most = most.max(size);
            sum = sum.saturating_add(size);
        }
        group.extent = group.extent.max(most);
        group.extent_sum = group.extent_sum.max(sum);
    }
    (traced, layouts)
}

#[cfg(test)]
mod tests;
