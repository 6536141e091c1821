//! `weft plan --watch`: follows a directory of a cluster that runs.

mod gather;
mod mover;

use super::PlanArgs;
use super::cluster::Target;
use super::room;
use crate::commands::bytes;
use crate::commands::session::{Weft, why};
use crate::failure::Failure;
use crate::logging::utc;
use crate::whole::Whole;
use clap::Args;
use gather::Gathering;
use mover::Mover;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;
use weft_core::{ByteLen, Candidate, Nanos, Pattern};
use weft_env::Env;
use weft_env::real::block_on;
use weft_planner::live::Renamed;
use weft_planner::plan::Options;
use weft_planner::watch::{Decided, Decision, Group, Hysteresis, Interval, Step, Watcher};
use weft_planner::{PathRule, Plan};
use weft_wire::meta::{self, FileType, Forget, LayoutSpec, Place};

/// What is followed, and what keeps layouts from following every mood.
#[derive(Args)]
pub struct Watch {
    /// Follow a directory of a cluster that runs instead of reading a trace
    #[arg(long = "watch", value_name = "DIR", value_parser = bytes::argument())]
    directory: Option<String>,
    /// With --watch: how long an interval is
    #[arg(long, value_name = "TIME", default_value = "60s", requires = "directory",
        value_parser = crate::commands::seconds)]
    every: Nanos,
    /// With --watch: part of the time that a new layout has to gain over those that the files have
    #[arg(long, value_name = "PERCENT", default_value = "20%", requires = "directory", value_parser = percent)]
    gain: f64,
    /// With --watch: intervals in a row in which a pattern has to be seen
    #[arg(long, value_name = "COUNT", default_value_t = 3, requires = "directory",
        value_parser = clap::value_parser!(u32).range(1..=1000))]
    lasts: u32,
    /// With --watch: how long after a change of layout the next one may follow
    #[arg(long, value_name = "TIME", default_value = "1h", requires = "directory",
        value_parser = crate::commands::duration)]
    pause: Nanos,
    /// With --watch: requests to a group of files in an interval below which there is no telling
    #[arg(long, value_name = "COUNT", default_value_t = 64, requires = "directory",
        value_parser = clap::value_parser!(u64).range(1..))]
    requests: u64,
    /// With --watch: one look at the samples that the servers have now, whatever lasts
    #[arg(long, requires = "directory")]
    once: bool,
    /// With --watch: give the directory no rules
    #[arg(long, requires = "directory")]
    dry_run: bool,
    /// With --watch and --output: have `weft migrate` move the files that are there, too, at most so many bytes a second
    #[arg(long, value_name = "SIZE", num_args = 0..=1, require_equals = true, requires_all = ["directory", "output"],
        conflicts_with = "dry_run", value_parser = crate::commands::rate)]
    migrate: Option<Option<ByteLen>>,
}

fn percent(text: &str) -> Result<f64, String> {
    let number: Option<f64> = text.trim_end_matches('%').trim_end().parse().ok();
    let part = number.filter(|percent| (0.0..100.0).contains(percent));
    part.map(|percent| percent / 100.0).ok_or_else(|| "write a percentage such as 20%".to_owned())
}

impl Watch {
    /// Whether a directory is to be followed.
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
    /// Follows the directory until it is ended.
    pub(super) fn watch(&self, file: Option<PathBuf>) -> Result<u8, Failure> {
        let args = &self.watch;
        let Some(directory) = &args.directory else { unreachable!("there is a trace or a directory") };
        let output = self.output.as_deref().map(Whole::new).transpose()?;
        let weft = Weft::open(file)?;
        let inside = weft.inside(directory).trim_end_matches('/');
        let attr = weft.stat(inside, true)?;
        if attr.kind != FileType::Directory {
            return Err(Failure::misuse(weft.shown(inside), "this is no directory"));
        }
        let mut gathering = Gathering::new(&weft, inside, &attr)?;
        if !args.once {
            // What was before is somebody else's interval.
            gathering.skip()?;
        }
        gathering.check_sampling()?;
        let below = gathering.below.clone();
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
            return Err(Failure::misuse("--migrate", "the plan has to be a file: give --output FILE"));
        }
        if !args.once {
            self.tell(&format!("watches {}", weft.shown(inside)));
        }
        let (mut directory, mut is_there) = (attr.file, true);
        loop {
            if !args.once {
                std::thread::sleep(Duration::from_nanos(args.every.0));
            }
            if let Some(ended) = mover.as_mut().map_or(Ok(None), Mover::look)? {
                self.tell(&ended);
            }
            let gathered = gathering.gather()?;
            if let Some(now) = gathering.directory() {
                if is_there && now.is_none() {
                    self.tell("no directory is there any more: waits for one");
                }
                is_there = now.is_some();
                if now.is_some_and(|now| std::mem::replace(&mut directory, now) != now) {
                    self.tell(
                        "another directory is there, without the rules of the one before: all begins anew",
                    );
                    watcher.forget();
                }
            }
            for note in &gathered.notes {
                self.tell(note);
            }
            let figures = |bytes| self.figures(&weft, bytes).map_err(|failure| failure.to_string());
            let now = weft.client.env().now();
            let interval = watcher.interval(now, gathered.files, figures, &available, &options);
            self.tell_interval(&interval)?;
            if let Some(plan) = &interval.plan
                && let Err(failure) =
                    self.put_into_force(&weft, &below, plan, output.as_ref(), &available, mover.as_mut())
            {
                eprintln!("{failure}");
                let decided = interval.groups.iter().filter(|group| group.decided.is_some());
                decided.for_each(|group| watcher.failed(&group.name));
            }
            if args.once {
                if let Some(ended) = mover.map_or(Ok(None), Mover::wait)? {
                    self.tell(&ended);
                }
                if interval.groups.is_empty() {
                    self.tell("the samples have no requests to files below it");
                }
                return Ok(u8::from(interval.failed.is_some()));
            }
        }
    }

    /// Those of the cluster's targets, with the room that there is.
    fn figures(&self, weft: &Weft, bytes: u64) -> Result<weft_planner::Figures, Failure> {
        let mut rooms = rooms(weft)?;
        rooms.extend(self.room.iter().cloned());
        let file = weft.cluster.file.clone();
        Ok(Target::read(Some(file), &self.profile, self.network.as_deref(), &rooms, bytes, None)?.figures)
    }

    /// Writes the plan where it was asked for, and gives the directory its rules.
    fn put_into_force(
        &self,
        weft: &Weft,
        below: &str,
        plan: &Plan,
        output: Option<&Whole>,
        available: &[Candidate<'_>],
        mover: Option<&mut Mover>,
    ) -> Result<(), Failure> {
        let text = plan.to_toml();
        if let Some(output) = output {
            output.write(text.as_bytes())?;
            if !output.is_stdout() {
                self.tell(&format!("the plan is in {}", output.path().display()));
            }
        }
        if self.watch.dry_run {
            return Ok(());
        }
        let mut rules = Vec::new();
        let above = PathRule::of(below).0;
        for rule in &plan.rules {
            let wrong = |why: &dyn std::fmt::Display| Failure::new(&rule.path, why);
            let (layout, _) = plan.by_class(rule, available, &Renamed::new()).map_err(|why| wrong(&why))?;
            let inside = weft.strip(&rule.path.0).and_then(|inside| inside.strip_prefix(&*above));
            let inside = inside.ok_or_else(|| wrong(&"it is not below the directory that is watched"))?;
            let pattern = Pattern::of_numbers(inside).map_err(|why| wrong(&why))?;
            let layout = LayoutSpec { by_class: Some(layout), ..LayoutSpec::default() };
            rules.push(meta::Rule { pattern, layout });
        }
        let place = Place::from_root(bytes::bytes(below.trim_end_matches('/')), false);
        let changed = block_on(weft.client.change_rules(&place, Forget::Replaced, rules));
        changed.map_err(|error| Failure::new(weft.shown(below), why(&error)))?;
        let directory = weft.shown(below);
        self.tell(&format!("rules of {directory} have it: files that are made from here on"));
        match (mover, &self.output) {
            (Some(mover), Some(output)) => {
                mover.begin(output)?;
                self.tell("the files that there are are moved");
            }
            _ => {
                let quoted = crate::commands::quoted(&directory);
                self.tell(&format!("`weft migrate -r {quoted}` moves the files that there are"));
            }
        }
        Ok(())
    }

    fn tell(&self, line: &str) {
        if self.json || self.to_stdout() {
            eprintln!("{line}");
        } else {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            outln!("{} {}", utc(now.map_or(0, |now| now.as_secs())), line);
        }
    }

    fn tell_interval(&self, interval: &Interval) -> Result<(), Failure> {
        if self.json {
            for group in &interval.groups {
                let row = row(group).to_string();
                outln!("{row}");
            }
        } else {
            if self.explain {
                let Interval { requests, lost, .. } = interval;
                self.tell(&format!("{requests} requests in the samples, {lost} messages of others"));
            }
            for group in &interval.groups {
                // Who looks once wants to know what there is, also where nothing follows from it.
                if let Some(line) = line(group, self.explain || self.watch.once) {
                    self.tell(&format!("{}: {line}", group.name));
                }
            }
        }
        if let Some(why) = &interval.failed {
            eprintln!("weft: no plan: {why}");
        }
        Ok(())
    }
}

/// What there is to say of a group: of those that go on as before only if `all` is to be told.
fn line(group: &Group, all: bool) -> Option<String> {
    let pattern = group.signature.map_or_else(|| "too little to tell".to_owned(), |seen| seen.to_string());
    if let Some(Decided { decision, in_force_s, files_s, planned_s, rule }) = &group.decided {
        let mut times = format!(
            "{in_force_s:.3} s in the layouts in force, {planned_s:.3} s in the new one by the planner's model"
        );
        if *files_s > 1.05 * in_force_s {
            // A rule was made after the files were.
            times += &format!("; the files that there are have others, in which they take {files_s:.3} s");
        }
        let parts: Vec<String> = rule.layout.iter().map(ToString::to_string).collect();
        let new = format!("{} ({})", parts.join("; "), rule.why);
        return Some(match decision {
            Decision::Apply { gain } => {
                format!("{pattern} lasts; new layout, {:.0} % less time: {new}; {times}", 100.0 * gain)
            }
            Decision::Keep { gain } if *gain > 0.0 => {
                format!(
                    "{pattern} lasts; a new layout would gain {:.0} % only, nothing is changed; {times}",
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
            Some(format!("{pattern} lasts, but the layout was changed a short while ago: {left} s to wait"))
        }
        Step::Known | Step::Quiet => all.then_some(pattern),
    }
}

fn row(group: &Group) -> serde_json::Value {
    let (step, seen) = match group.step {
        Step::Quiet => ("quiet", None),
        Step::Known => ("known", None),
        Step::Waiting { seen, .. } => ("waiting", Some(seen)),
        Step::Paused { .. } => ("paused", None),
        Step::Plan => ("plan", None),
    };
    let decision = group.decided.as_ref().map(|decided| match decided.decision {
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
    })
}

/// What is free on the fullest target of each class, and not promised to files; the class with the most has room enough.
fn rooms(weft: &Weft) -> Result<BTreeMap<String, u64>, Failure> {
    let targets = room::targets(weft)?;
    let mut rooms: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for target in &weft.client.map().targets {
        let free = targets.get(&target.id).map_or(0, room::Taken::spare);
        let (least, sum) = rooms.entry(target.class.clone()).or_insert((u64::MAX, 0));
        *least = (*least).min(free);
        *sum = sum.saturating_add(free);
    }
    let most = rooms.iter().max_by_key(|(_, (_, sum))| *sum).map(|(class, _)| class.clone());
    rooms.retain(|class, _| Some(class) != most.as_ref());
    Ok(rooms.into_iter().map(|(class, (least, _))| (class, least)).collect())
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
