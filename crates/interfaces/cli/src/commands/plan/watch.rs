//! `weft plan --watch`: plans for a directory of the running cluster from samples.

mod mover;
mod proposals;
mod sample_reader;

use super::PlanArgs;
use super::capacity;
use super::cluster::Target;
use crate::atomic_file::AtomicFile;
use crate::commands::session::{Weft, why};
use crate::commands::{bytes, layout_arguments};
use crate::failure::Failure;
use crate::logging::utc;
use clap::Args;
use mover::Mover;
use proposals::{Proposals, queue_copy};
use sample_reader::SampleReader;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;
use weft_core::units::human_bytes;
use weft_core::{ByteLen, Candidate, Nanos, Pattern};
use weft_env::Env;
use weft_env::real::block_on;
use weft_planner::live::ClassRenames;
use weft_planner::plan::Options;
use weft_planner::watch::{
    Decision, Group, GroupDecision, Hysteresis, Interval, ReplicaProposal, Step, Watcher,
};
use weft_planner::{PathRule, Plan};
use weft_wire::meta::{self, FileType, InodePath, LayoutSpec, RuleRemoval};

/// Options of `weft plan --watch`: the directory, and the thresholds that damp changes of layouts.
#[derive(Args)]
pub struct Watch {
    /// Watch a directory of the running cluster instead of reading a trace
    #[arg(long = "watch", value_name = "DIR", value_parser = bytes::argument())]
    directory: Option<String>,
    /// With --watch: length of an interval
    #[arg(long, value_name = "TIME", default_value = "60s", requires = "directory",
        value_parser = crate::commands::seconds)]
    every: Nanos,
    /// With --watch: minimum gain of a new layout or a replica over the files as they are, as a part of the time
    #[arg(long, value_name = "PERCENT", default_value = "20%", requires = "directory", value_parser = percent)]
    gain: f64,
    /// With --watch: consecutive intervals in which a pattern must be seen
    #[arg(long, value_name = "COUNT", default_value_t = 3, requires = "directory",
        value_parser = clap::value_parser!(u32).range(1..=1000))]
    lasts: u32,
    /// With --watch: minimum time between two changes of a group
    #[arg(long, value_name = "TIME", default_value = "1h", requires = "directory",
        value_parser = crate::commands::duration)]
    pause: Nanos,
    /// With --watch: minimum requests to a group of files in an interval; fewer are ignored
    #[arg(long, value_name = "COUNT", default_value_t = 64, requires = "directory",
        value_parser = clap::value_parser!(u64).range(1..))]
    requests: u64,
    /// With --watch: evaluate the present samples of the servers once, even if no pattern has lasted
    #[arg(long, requires = "directory")]
    once: bool,
    /// With --watch: set no rules on the directory
    #[arg(long, requires = "directory")]
    dry_run: bool,
    /// With --watch and --output: also move existing files with `weft migrate`, at most this many bytes per second
    #[arg(long, value_name = "SIZE", num_args = 0..=1, require_equals = true, requires_all = ["directory", "output"],
        conflicts_with_all = ["dry_run", "replicas"], value_parser = crate::commands::rate)]
    migrate: Option<Option<ByteLen>>,
    /// With --watch, --replicas and --output: leave the copies to the agent, as `weft replicate apply --background` does,
    /// with at most this many bytes per second [default: while the disks are idle]
    #[arg(long, value_name = "SIZE", num_args = 0..=1, require_equals = true,
        requires_all = ["directory", "replicas", "output"], conflicts_with = "dry_run",
        value_parser = crate::commands::rate)]
    replicate: Option<Option<ByteLen>>,
}

fn percent(text: &str) -> Result<f64, String> {
    let number: Option<f64> = text.trim_end_matches('%').trim_end().parse().ok();
    let part = number.filter(|percent| (0.0..100.0).contains(percent));
    part.map(|percent| percent / 100.0).ok_or_else(|| "write a percentage such as 20%".to_owned())
}

impl Watch {
    /// Whether a directory is to be watched.
    pub fn is_wanted(&self) -> bool {
        self.directory.is_some()
    }

    fn hysteresis(&self) -> Hysteresis {
        Hysteresis {
            gain: self.gain,
            intervals: if self.once { 1 } else { self.lasts },
            pause: self.pause,
            requests: self.requests,
        }
    }
}

impl PlanArgs {
    /// Watches the directory until the command is ended.
    pub(super) fn watch(&self, file: Option<PathBuf>) -> Result<u8, Failure> {
        let args = &self.watch;
        let Some(directory) = &args.directory else { unreachable!("there is a trace or a directory") };
        let output = self.output.as_deref().map(AtomicFile::new).transpose()?;
        let weft = Weft::open(file)?;
        let inside = weft.inside(directory)?.trim_end_matches('/');
        let attr = weft.stat(inside, true)?;
        if attr.kind != FileType::Directory {
            return Err(Failure::misuse(weft.shown(inside), "it is not a directory"));
        }
        let mut samples = SampleReader::new(&weft, inside, &attr)?;
        if !args.once {
            // Samples older than the start do not belong to the first interval.
            samples.skip()?;
        }
        samples.check_sampling(self.replicas.is_wanted())?;
        let below = samples.below.clone();
        let mut watcher = Watcher::new(&weft.shown(&below), args.hysteresis());
        let options = Options {
            planner: self.planner,
            trace: format!("samples of {}", weft.shown(inside)),
            parts_max: self.parts,
            ..Options::default()
        };
        let map = weft.client.map().clone();
        let available: Vec<Candidate<'_>> = map
            .targets
            .iter()
            .map(|target| Candidate { target: target.id, server: target.server, class: &target.class })
            .collect();
        let mut mover = args.migrate.map(|rate| Mover::new(&weft, &below, rate));
        if mover.is_some() && self.to_stdout() {
            return Err(Failure::misuse("--migrate", "the plan must be a file: give --output FILE"));
        }
        if args.replicate.is_some() && self.to_stdout() {
            return Err(Failure::misuse("--replicate", "the plan must be a file: give --output FILE"));
        }
        let proposals = || Proposals::new(options.trace.clone(), self.replicas.options(self.parts));
        let mut proposals = self.replicas.is_wanted().then(proposals);
        if !args.once {
            self.print(&format!("watching {}", weft.shown(inside)));
        }
        let (mut directory, mut is_there) = (attr.file, true);
        loop {
            if !args.once {
                std::thread::sleep(Duration::from_nanos(args.every.0));
            }
            if let Some(ended) = mover.as_mut().map_or(Ok(None), Mover::look)? {
                self.print(&ended);
            }
            let gathered = samples.gather()?;
            if let Some(now) = samples.directory() {
                if is_there && now.is_none() {
                    self.print("the directory is gone: waiting for a new one");
                }
                is_there = now.is_some();
                if now.is_some_and(|now| std::mem::replace(&mut directory, now) != now) {
                    self.print("the directory was replaced and has no rules: starting over");
                    watcher.forget();
                }
            }
            for note in &gathered.notes {
                self.print(note);
            }
            let figures = |bytes| self.figures(&weft, bytes).map_err(|failure| failure.to_string());
            let now = weft.client.env().now();
            let files = gathered.files;
            let interval = match &proposals {
                None => watcher.interval(now, files, figures, &available, &options),
                Some(proposals) => {
                    watcher.interval_for_replicas(now, files, figures, &available, &proposals.options())
                }
            };
            self.print_interval(&interval)?;
            let applied = match (&mut proposals, &interval.plan) {
                (Some(proposals), _) => self.apply_proposals(&weft, proposals, &interval, output.as_ref()),
                (None, Some(plan)) => {
                    self.apply_plan(&weft, &below, plan, output.as_ref(), &available, mover.as_mut())
                }
                (None, None) => Ok(()),
            };
            if let Err(failure) = applied {
                errln!("{failure}");
                let is_decided = |group: &&Group| group.decided.is_some() || group.replica.is_some();
                let decided = interval.groups.iter().filter(is_decided);
                decided.for_each(|group| watcher.failed(&group.name));
            }
            if args.once {
                if let Some(ended) = mover.map_or(Ok(None), Mover::wait)? {
                    self.print(&ended);
                }
                if interval.groups.is_empty() {
                    self.print("the samples have no requests to files below it");
                }
                return Ok(u8::from(interval.failed.is_some()));
            }
        }
    }

    /// Returns the parameters of the cluster's targets, with their free capacity.
    fn figures(&self, weft: &Weft, bytes: u64) -> Result<weft_planner::Figures, Failure> {
        let mut capacities = capacities(weft)?;
        capacities.extend(self.capacity.iter().cloned());
        let file = weft.cluster.file.clone();
        Ok(Target::read(Some(file), &self.profile, self.network.as_deref(), &capacities, bytes, None)?
            .figures)
    }

    /// Writes the plan to its file and sets the rules of the directory.
    fn apply_plan(
        &self,
        weft: &Weft,
        below: &str,
        plan: &Plan,
        output: Option<&AtomicFile>,
        available: &[Candidate<'_>],
        mover: Option<&mut Mover>,
    ) -> Result<(), Failure> {
        let text = plan.to_toml();
        if let Some(output) = output {
            output.write(text.as_bytes())?;
            if !output.is_stdout() {
                self.print(&format!("the plan is in {}", output.path().display()));
            }
        }
        if self.watch.dry_run {
            return Ok(());
        }
        let mut rules = Vec::new();
        let above = PathRule::of(below).0;
        for rule in &plan.rules {
            let wrong = |why: &dyn std::fmt::Display| Failure::new(&rule.path, why);
            let (layout, _) =
                plan.by_class(rule, available, &ClassRenames::new()).map_err(|why| wrong(&why))?;
            let inside = weft.strip(&rule.path.0).and_then(|inside| inside.strip_prefix(&*above));
            let inside = inside.ok_or_else(|| wrong(&"it is not below the watched directory"))?;
            let pattern = Pattern::of_numbers(inside).map_err(|why| wrong(&why))?;
            let layout = LayoutSpec { by_class: Some(layout), ..LayoutSpec::default() };
            rules.push(meta::Rule { pattern, layout });
        }
        layout_arguments::keep_compression(weft, below.trim_end_matches('/'), &mut rules)?;
        let place = InodePath::from_root(bytes::bytes(below.trim_end_matches('/')), false);
        let changed = block_on(weft.client.change_rules(&place, RuleRemoval::Replaced, rules));
        changed.map_err(|error| Failure::new(weft.shown(below), why(&error)))?;
        let directory = weft.shown(below);
        self.print(&format!("rules of {directory} are set for new files"));
        match (mover, &self.output) {
            (Some(mover), Some(output)) => {
                mover.begin(output)?;
                self.print("existing files are being moved");
            }
            _ => {
                let quoted = crate::commands::quoted(&directory);
                self.print(&format!("`weft migrate -r {quoted}` moves existing files"));
            }
        }
        Ok(())
    }

    /// Writes the plan of replicas to its file, and queues the copies of the new ones.
    fn apply_proposals(
        &self,
        weft: &Weft,
        proposals: &mut Proposals,
        interval: &Interval,
        output: Option<&AtomicFile>,
    ) -> Result<(), Failure> {
        let new = proposals.add(interval);
        let Some(output) = output.filter(|_| !new.is_empty()) else { return Ok(()) };
        proposals.write(output)?;
        if output.is_stdout() {
            return Ok(());
        }
        let path = output.path().display();
        let Some(rate) = self.watch.replicate else {
            self.print(&format!("the plan is in {path}; `weft replicate apply {path}` makes the replicas"));
            return Ok(());
        };
        self.print(&format!("the plan is in {path}"));
        for file in new {
            // A file that another replica has already would be refused again in the next interval.
            match queue_copy(weft, output, &file, rate) {
                Ok(()) => self.print(&format!("{file}: the agent copies it, see `weft agent status`")),
                Err(failure) => errln!("{failure}"),
            }
        }
        Ok(())
    }

    fn print(&self, line: &str) {
        if self.json || self.to_stdout() {
            errln!("{line}");
        } else {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            outln!("{} {}", utc(now.map_or(0, |now| now.as_secs())), line);
        }
    }

    fn print_interval(&self, interval: &Interval) -> Result<(), Failure> {
        if self.json {
            for group in &interval.groups {
                let row = row(group).to_string();
                outln!("{row}");
            }
        } else {
            if self.explain {
                let Interval { requests, lost, .. } = interval;
                self.print(&format!("{requests} requests in the samples, {lost} messages of others"));
            }
            for group in &interval.groups {
                // A single evaluation shows everything.
                if let Some(line) = line(group, self.explain || self.watch.once) {
                    self.print(&format!("{}: {line}", group.name));
                }
            }
        }
        if let Some(why) = &interval.failed {
            errln!("weft: no plan: {why}");
        }
        Ok(())
    }
}

/// Formats the state of a group. Unchanged groups are only shown with `all`.
fn line(group: &Group, all: bool) -> Option<String> {
    let pattern = group.signature.map_or_else(|| "too few requests".to_owned(), |seen| seen.to_string());
    if let Some(proposal) = &group.replica {
        return Some(format!("{pattern} lasts; {}", about(proposal)));
    }
    if let Some(GroupDecision { decision, in_force_s, files_s, planned_s, rule }) = &group.decided {
        let mut times = format!(
            "{in_force_s:.3} s in the layouts in force, {planned_s:.3} s in the new one by the planner's model"
        );
        if *files_s > 1.05 * in_force_s {
            // The rule is newer than the files.
            times += &format!("; existing files have other layouts, which take {files_s:.3} s");
        }
        let parts: Vec<String> = rule.layout.iter().map(ToString::to_string).collect();
        let new = format!("{} ({})", parts.join("; "), rule.why);
        return Some(match decision {
            Decision::Apply { gain } => {
                format!("{pattern} lasts; new layout, {:.0} % less time: {new}; {times}", 100.0 * gain)
            }
            Decision::Keep { gain } if *gain > 0.0 => {
                format!(
                    "{pattern} lasts; a new layout would gain only {:.0} %, nothing is changed; {times}",
                    100.0 * gain
                )
            }
            Decision::Keep { .. } => format!("{pattern} lasts; no layout is better; {times}"),
        });
    }
    match group.step {
        Step::Plan => Some(format!("{pattern} lasts, and moves too little to be planned for")),
        Step::Waiting { seen, of } => Some(format!("{pattern}, seen in {seen} of {of} intervals")),
        Step::Paused { left } => {
            let left = left.0 / 1_000_000_000;
            Some(format!("{pattern} lasts, but the layout was changed recently: {left} s to wait"))
        }
        Step::Known | Step::TooFewRequests => all.then_some(pattern),
    }
}

/// Formats a decision about a replica.
fn about(proposal: &ReplicaProposal) -> String {
    let ReplicaProposal { decision, reason, now_s, run_s, bytes, replica } = proposal;
    let times = format!("{now_s:.3} s in the file, {run_s:.3} s with it by the planner's model");
    match (decision, replica) {
        (Decision::Apply { gain }, Some(replica)) => format!(
            "replica of {} with {}, {:.0} % less time: {reason}; {times}; the copy takes {:.3} s",
            replica.path,
            human_bytes(*bytes),
            100.0 * gain,
            replica.copy_s
        ),
        (Decision::Keep { gain }, _) if *gain > 0.0 => {
            format!("a replica would gain only {:.0} %; {times}", 100.0 * gain)
        }
        _ => format!("no replica: {reason}"),
    }
}

fn row(group: &Group) -> serde_json::Value {
    let (step, seen) = match group.step {
        Step::TooFewRequests => ("quiet", None),
        Step::Known => ("known", None),
        Step::Waiting { seen, .. } => ("waiting", Some(seen)),
        Step::Paused { .. } => ("paused", None),
        Step::Plan => ("plan", None),
    };
    let of_replica = group.replica.as_ref().map(|proposal| proposal.decision);
    let decision = group.decided.as_ref().map(|decided| decided.decision).or(of_replica);
    let decision = decision.map(|decision| match decision {
        Decision::Apply { gain } => json!({ "apply": true, "gain": gain }),
        Decision::Keep { gain } => json!({ "apply": false, "gain": gain }),
    });
    json!({
        "row": "group",
        "group": group.name,
        "pattern": group.signature.map(|seen| seen.to_string()),
        "step": step,
        "seen": seen,
        "decision": decision,
        "in_force_s": group.decided.as_ref().map(|decided| decided.in_force_s),
        "files_s": group.decided.as_ref().map(|decided| decided.files_s),
        "planned_s": group.decided.as_ref().map(|decided| decided.planned_s),
        "rule": group.decided.as_ref().map(|decided| &decided.rule),
        "replica": group.replica.as_ref().map(|proposal| json!({
            "file": proposal.replica.as_ref().map(|replica| &replica.path),
            "reason": proposal.reason,
            "now_s": proposal.now_s,
            "run_s": proposal.run_s,
            "bytes": proposal.bytes,
        })),
    })
}

/// Returns free, unreserved space on the fullest target of each class. The class with the most space is unlimited.
fn capacities(weft: &Weft) -> Result<BTreeMap<String, u64>, Failure> {
    let targets = capacity::targets(weft)?;
    let mut capacities: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for target in &weft.client.map().targets {
        let free = targets.get(&target.id).map_or(0, capacity::TargetSpace::spare);
        let (least, sum) = capacities.entry(target.class.clone()).or_insert((u64::MAX, 0));
        *least = (*least).min(free);
        *sum = sum.saturating_add(free);
    }
    let most = capacities.iter().max_by_key(|(_, (_, sum))| *sum).map(|(class, _)| class.clone());
    capacities.retain(|class, _| Some(class) != most.as_ref());
    Ok(capacities.into_iter().map(|(class, (least, _))| (class, least)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_and_intervals_as_people_write_them() {
        assert_eq!((percent("20%"), percent("7.5"), percent("0")), (Ok(0.2), Ok(0.075), Ok(0.0)));
        assert!(percent("100%").is_err() && percent("-1").is_err() && percent("much").is_err());
        assert_eq!(crate::commands::seconds("90 s"), Ok(Nanos::from_s(90)));
        assert!(crate::commands::seconds("10ms").is_err());
    }
}
