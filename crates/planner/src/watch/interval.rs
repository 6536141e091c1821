//! What was seen in an interval, and what follows from it.

use super::asked::{Asked, Seen, requests};
use super::judge::{FileLayout, judge};
use super::state::{Decision, Hysteresis, Signature, Step, Watch};
use crate::figures::Figures;
use crate::plan::{Options, Plan, PlanError, Rule};
use crate::rule::PathRule;
use crate::survey::{Limits, Survey, Traced};
use std::collections::{BTreeMap, VecDeque};
use weft_core::{Candidate, ClassLayout, Layout, Nanos};
use weft_trace::{FileId, HostId, Level, Names, Operation, Rank, Record};

/// Most requests of an interval that are used.
const REQUESTS_MAX: usize = 1 << 18;
/// A client of whom nothing was seen for so long may have done anything meanwhile: samples leave out stretches of its time
/// that are longer.
const GAP_NS: u64 = 1_000_000_000;
/// Most client processes that keep their numbers from interval to interval.
const CLIENTS_MAX: usize = 1 << 20;

/// A file and what servers saw of it in an interval.
#[derive(Clone, Debug)]
pub struct FileSeen {
    /// Its id.
    pub file: weft_core::FileId,
    /// Its path.
    pub path: String,
    /// Its layout.
    pub layout: Layout,
    /// What a rule would give it if it were made now.
    pub ruled: Option<ClassLayout>,
    /// Its length.
    pub size: u64,
    /// The messages.
    pub seen: Vec<Seen>,
}

/// A group of files in an interval.
#[derive(Clone, PartialEq, Debug)]
pub struct Group {
    /// Its name: a path in which `*` stands for each number.
    pub name: String,
    /// What it did, if there was enough to tell.
    pub signature: Option<Signature>,
    /// What follows.
    pub step: Step,
    /// Where it was planned for: the decision, and the new rule with the times by which it was made.
    pub decided: Option<Decided>,
}

/// A decision and its reasons.
#[derive(Clone, PartialEq, Debug)]
pub struct Decided {
    /// What is done.
    pub decision: Decision,
    /// How long the requests take in the layouts in force: of rules where there are any, else those that files have.
    pub in_force_s: f64,
    /// How long in the layouts that files have.
    pub files_s: f64,
    /// How long in the new one.
    pub planned_s: f64,
    /// The new one.
    pub rule: Rule,
}

/// What came of an interval.
#[derive(Clone, Debug)]
pub struct Interval {
    /// Requests that were found.
    pub requests: u64,
    /// Messages that belonged to no request that could be put together.
    pub lost: u64,
    /// All groups with requests.
    pub groups: Vec<Group>,
    /// The plan with the rules that are to be put into force, if there are any.
    pub plan: Option<Plan>,
    /// Why nothing could be planned though it was due.
    pub failed: Option<String>,
}

/// One interval as it is kept.
#[derive(Debug)]
struct Kept {
    files: Vec<KeptFile>,
}

#[derive(Debug)]
struct KeptFile {
    at: FileLayout,
    path: String,
    size: u64,
    asked: Vec<Asked>,
}

/// Follows a directory from interval to interval.
#[derive(Debug)]
pub struct Watcher {
    watch: Watch,
    /// Its path, with a slash behind.
    directory: String,
    /// As many as a pattern has to last.
    kept: VecDeque<Kept>,
    clients: BTreeMap<u64, Rank>,
}

impl Watcher {
    /// Has seen nothing yet of the directory of this path, as those of files begin with it.
    pub fn new(directory: &str, hysteresis: Hysteresis) -> Self {
        let directory = PathRule::of(&format!("{}/", directory.trim_end_matches('/'))).0;
        Self { watch: Watch::new(hysteresis), directory, kept: VecDeque::new(), clients: BTreeMap::new() }
    }

    /// An interval has ended at `now`; times in `files` have any origin, the same in all intervals. Where a pattern has
    /// lasted, it is planned for. Then `figures` is asked for the cluster's, told how many bytes the files have; they are
    /// those of the targets in `available`.
    pub fn interval(
        &mut self,
        now: Nanos,
        files: Vec<FileSeen>,
        figures: impl FnOnce(u64) -> Result<Figures, String>,
        available: &[Candidate<'_>],
        options: &Options,
    ) -> Interval {
        let (mut count, mut lost) = (0, 0);
        let mut kept = Kept { files: Vec::new() };
        for mut file in files {
            let (mut asked, missed) = requests(&file.layout, file.size, std::mem::take(&mut file.seen));
            let room = REQUESTS_MAX - count.min(REQUESTS_MAX);
            lost += missed;
            if asked.len() > room {
                asked.truncate(room);
            }
            count += asked.len();
            if !asked.is_empty() {
                let FileSeen { file, path, layout, ruled, size, .. } = file;
                kept.files.push(KeptFile { at: FileLayout { file, layout, ruled }, path, size, asked });
            }
        }
        let mut interval =
            Interval { requests: count as u64, lost, groups: Vec::new(), plan: None, failed: None };
        if count == 0 {
            return interval;
        }
        let (traced, _) = trace([&kept].into_iter(), &mut Ranks::of_stretches());
        self.kept.push_back(kept);
        while self.kept.len() > self.watch.hysteresis().intervals.max(1) as usize {
            self.kept.pop_front();
        }
        for unit in &traced.units {
            let name = self.general(&unit.rule);
            let signature = Signature::of(unit, self.watch.hysteresis());
            let step = self.watch.observe(now, &name, signature);
            interval.groups.push(Group { name, signature, step, decided: None });
        }
        if interval.groups.iter().any(|group| group.step == Step::Plan)
            && let Err(error) = self.plan(now, &mut interval, figures, available, options)
        {
            interval.failed = Some(error.to_string());
        }
        interval
    }

    /// Another directory has the path now, without the rules of the one before.
    pub fn forget(&mut self) {
        self.watch.forget();
        self.kept.clear();
    }

    /// What was decided for a group could not be done.
    pub fn failed(&mut self, group: &str) {
        self.watch.failed(group);
    }

    /// The name of a group whatever of its files an interval has: every number below the directory is left open.
    fn general(&self, rule: &PathRule) -> String {
        rule.open_behind(&self.directory).0
    }

    fn plan(
        &mut self,
        now: Nanos,
        interval: &mut Interval,
        figures: impl FnOnce(u64) -> Result<Figures, String>,
        available: &[Candidate<'_>],
        options: &Options,
    ) -> Result<(), PlanError> {
        if self.clients.len() > CLIENTS_MAX {
            self.clients.clear();
        }
        let (mut traced, layouts) = trace(self.kept.iter(), &mut Ranks::Clients(&mut self.clients));
        // Who is counted once has jumps in his order that are not his own.
        let (stretches, _) = trace(self.kept.iter(), &mut Ranks::of_stretches());
        for unit in &mut traced.units {
            if let Some(same) = stretches.units.iter().find(|same| same.rule == unit.rule) {
                unit.pattern.shape.clone_from(&same.pattern.shape);
                unit.pattern.share = same.pattern.share;
            }
        }
        let bytes = traced.units.iter().map(|unit| unit.extent_sum).fold(0, u64::saturating_add);
        let figures = figures(bytes).map_err(PlanError)?;
        let due = |name: &str| interval.groups.iter().any(|g| g.step == Step::Plan && g.name == name);
        let units: Vec<usize> =
            (0..traced.units.len()).filter(|unit| due(&self.general(&traced.units[*unit].rule))).collect();
        let (mut plan, judged) = judge(&traced, &units, &figures, available, &layouts, options)?;
        plan.rules.clear();
        for group in interval.groups.iter_mut().filter(|group| group.step == Step::Plan) {
            let of_group = judged.iter().find(|one| self.general(&one.rule.path) == group.name);
            let (in_force_s, planned_s) = of_group.map_or((0.0, 0.0), |one| (one.in_force_s, one.planned_s));
            let decision = self.watch.decide(now, &group.name, in_force_s, planned_s);
            let Some(judged) = of_group else { continue };
            // For all files of the group, also those to come.
            let rule = Rule { path: PathRule(group.name.clone()), ..judged.rule.clone() };
            if matches!(decision, Decision::Apply { .. }) {
                plan.rules.push(rule.clone());
            }
            let files_s = judged.files_s;
            group.decided = Some(Decided { decision, in_force_s, files_s, planned_s, rule });
        }
        interval.plan = (!plan.rules.is_empty()).then_some(plan);
        Ok(())
    }
}

/// Who counts as one rank.
enum Ranks<'a> {
    /// A client process.
    Clients(&'a mut BTreeMap<u64, Rank>),
    /// A client process from one gap to the next: its rank now, and the end of what it did last.
    Stretches(BTreeMap<u64, (Rank, Nanos)>, u32),
}

impl Ranks<'_> {
    fn of_stretches() -> Self {
        Self::Stretches(BTreeMap::new(), 0)
    }

    /// The rank of a request; they come by their begin.
    fn of(&mut self, asked: &Asked) -> Rank {
        match self {
            Self::Clients(known) => {
                let next = Rank(known.len() as u32);
                *known.entry(asked.client).or_insert(next)
            }
            Self::Stretches(known, count) => {
                let (rank, end) = known.entry(asked.client).or_insert((Rank(u32::MAX), Nanos(0)));
                if *rank == Rank(u32::MAX) || asked.start.saturating_sub(*end) >= Nanos(GAP_NS) {
                    *rank = Rank(*count);
                    *count += 1;
                }
                *end = asked.end.max(*end);
                *rank
            }
        }
    }
}

/// Intervals as a trace, and each file's id and layout, those that it had last.
fn trace<'a>(
    kept: impl Iterator<Item = &'a Kept>,
    ranks: &mut Ranks<'_>,
) -> (Traced, BTreeMap<u32, FileLayout>) {
    let mut names = Names::default();
    let mut layouts = BTreeMap::new();
    let mut sizes: BTreeMap<FileId, u64> = BTreeMap::new();
    let mut all: Vec<(FileId, Asked)> = Vec::new();
    for kept in kept {
        for of in &kept.files {
            let Some(file) = names.file(&of.path) else { continue };
            layouts.insert(file.0, of.at.clone());
            sizes.insert(file, of.size);
            all.extend(of.asked.iter().map(|asked| (file, *asked)));
        }
    }
    all.sort_by_key(|(file, asked)| (asked.start, asked.client, *file));
    let origin = all.first().map_or(Nanos(0), |(_, asked)| asked.start);
    let mut survey = Survey::new(&Limits::default());
    for (file, asked) in all {
        let record = Record {
            rank: ranks.of(&asked),
            host: HostId(0),
            file,
            op: if asked.write { Operation::Write } else { Operation::Read },
            level: Level::Posix,
            collective: false,
            offset: asked.extent.offset,
            len: asked.extent.len,
            start: asked.start.saturating_sub(origin),
            end: asked.end.max(asked.start).saturating_sub(origin),
        };
        survey.add(&record, &names);
    }
    let mut traced = survey.finish(Some(Level::Posix));
    // Samples do not show how long files are, and room is needed for all of each.
    for unit in &mut traced.units {
        let of_unit = names.all_files().zip(0u32..).filter(|(path, _)| unit.rule.matches(path));
        let (mut most, mut sum) = (0, 0u64);
        for (_, number) in of_unit {
            let size = sizes.get(&FileId(number)).copied().unwrap_or(0);
            most = most.max(size);
            sum = sum.saturating_add(size);
        }
        unit.extent = unit.extent.max(most);
        unit.extent_sum = unit.extent_sum.max(sum);
    }
    (traced, layouts)
}

#[cfg(test)]
mod tests;
