//! `weft plan`: plans layouts from a trace.

mod capacity;
mod cluster;
mod present;
mod replicas;
mod ssd;
mod trial;
mod verify;
mod verify_replicas;
mod watch;

use super::trace::{Input, bar, tick};
use crate::atomic_file::AtomicFile;
use crate::failure::Failure;
use crate::table::Table;
use clap::{ArgGroup, Args, ValueEnum};
use cluster::Target;
use replicas::Replicas;
use std::collections::BTreeMap;
use std::path::PathBuf;
use trial::TrialArgs;
use watch::Watch;
use weft_core::units::human_bytes;
use weft_planner::plan::{Advice, Alternative, Options, Plan, Planned, Planner, Rule};
use weft_planner::{Limits, Survey, TraceSummary};
use weft_trace::{FileId, Level, Source};

const AFTER: &str = "\
The trace is read once in bounded memory. Files whose names differ only in numbers are planned together. For each
group of files, the plan gives the layout (stripe sizes by class and range), the time of every alternative by the
planner's model, the reason for the choice, and the confidence that no alternative is faster.

The present layout of the files, or the one that new files would get, is an alternative as well. It is kept unless
another one gains more than the model's error plus the cost of the change. The error is small for measured devices and
large for assumed ones, so run `weft profile` first. --planner psa, pa or def plans these layouts whatever they gain.

--cluster names a cluster of the twin (`weft twin example`), a file of figures (a plan has them under [cluster]), or a
cluster file. Without it, the plan is for the configured cluster. For a cluster file, the measurements of `weft
profile` beside it are used. Without these, and for the twin, devices are measured on their models. For a cluster file
these are the devices named by `emulate` or --profile, else typical ones for the classes hdd, ssd and nvme. The
capacity is the limit in the cluster file, less the space that running servers report for other files. --capacity
overrides it.

--watch needs no trace. It watches a directory of the running cluster through the samples that its data servers keep
(`sample` in the cluster file, off by default), until it is ended. The directory gets a rule for a group of files, and
--output the plan, when a new pattern of requests has lasted for --lasts intervals, a new layout would take --gain
less time than the present one, and the last change was --pause ago. `weft getstripe -d DIR` shows the rule. Existing
files keep their layout, unless --migrate moves them with `weft migrate`. Only administrators may do this: root and
the user that runs the servers, on the servers' hosts, and holders of an administrator's key.

--replicas shows instead, for each group of files, whether a reorganized copy of what the program requests would be
faster than the file itself, how much space the copy takes, and after how many runs it has paid for itself. On a
cluster, files have their present layouts; one on some targets of a class counts as on all. In descriptions of clusters
they are in stripes of 64 KiB over all classes. The alternatives are to leave the file, to move it to another
layout, and replicas: the bytes of each process in sequence with the file's layout (cida) or on one server each (ceda),
or with a layout of their own. Copying written bytes back counts for each run.
This is a report: it makes no replicas.

--ssd shows instead what an SSD beside each disk (`[server.target.ibridge]`) would gain, on the twin. For each class of
disks, both I/O modules (buffered, direct) and both policies (ibridge, detour) the table has the time without and with
SSDs until the program ends, and until all bytes that it wrote are on the disks (+WB), and the gain in both. Files have
the cluster's default layout, and ranks do not compute between requests: with computation, write-back costs less. If
the trace reads files that it did not write, the second of two runs is measured. For a file of figures the device of
each class is the usual one.

--watch with --replicas proposes a replica instead of a layout, when the pattern of a group with one file has lasted: by
the same criteria, from the requests of these intervals. It needs all requests: `sample = \"all\"` for every server.
Programs with any number of processes use the replica, because a sampled client is no rank. --output gets the plan of all
replicas proposed so far. --replicate leaves the copies to the agent (`weft help agent`), which reads this plan. Requests
that a replica serves are not watched.

--verify replays the trace on the twin with each alternative and reports pairs that the model ranked wrongly. Trials
run concurrently. For files with more than 262,144 reads and writes it uses this many: the same windows of each rank,
spread over the trace. --verify-requests sets another number, or all. --ssd replays a trace in the same way.

--try replays the trace on the running cluster, without its pauses: with the layouts in force (those of the existing
files, else those that new files get) and with the planned ones, in --times pairs whose order alternates. Each replay
uses scratch files below the root of the cluster, fills what is read before the measured time, and syncs all written
files within it. The scratch files must fit in the free space; they are removed at the end, also after an error and
Ctrl-C. The plan keeps its rules only if its layouts are faster beyond chance (Wilcoxon signed-rank test, two-sided,
p < 0.05, which needs 6 pairs); otherwise it has no rules, and a note says why. --try-until replays a part of the
trace.

Examples:
  weft plan app.darshan --cluster twin.toml --capacity ssd=1GiB --explain
  weft plan app.wtrace --cluster twin.toml --output plan.toml
  weft apply plan.toml                             new files get the layouts
  weft plan counters-only.darshan --reconstruct --cluster twin.toml --planner psa
  weft plan app.wtrace --cluster twin.toml --verify
  weft plan app.wtrace --cluster twin.toml --verify --verify-requests 0 --json | jq 'select(.wrong)'
  weft plan app.wtrace --cluster twin.toml --ssd
  weft plan app.wtrace --profile hdd=hdd-nearline --ssd=nvme --json
  weft plan app.wtrace --try --output plan.toml    rules only if they are faster on this cluster
  weft plan app.wtrace --try --try-until 0.1 --times 15
  weft plan app.wtrace --cluster twin.toml --replicas --budget 20GiB --explain
  weft plan --watch /weft/results --every 5min --gain 30%
  weft plan --watch /weft/results --output plan.toml --migrate=50MiB
  weft plan --watch /weft/results --once --dry-run
  weft plan --watch /weft/results --replicas --output replicas.toml --replicate";

/// Plans layouts for a traced program.
#[derive(Args)]
#[command(after_long_help = AFTER, group(ArgGroup::new("tried").args(["verify", "ssd"])))]
pub struct PlanArgs {
    /// The trace: a Darshan log, CSV or .wtrace
    #[arg(value_name = "TRACE", required_unless_present = "directory")]
    trace: Option<PathBuf>,
    /// Reconstruct plausible operations from the counters of a Darshan log without DXT
    #[arg(long, conflicts_with = "directory")]
    reconstruct: bool,
    #[command(flatten)]
    watch: Watch,
    #[command(flatten)]
    replicas: Replicas,
    #[command(flatten)]
    trial: TrialArgs,
    /// The planner; the plan lists the others as alternatives
    #[arg(long, value_name = "PLANNER", default_value = "best")]
    planner: Planner,
    /// Write the plan to this file; - is standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Show the patterns, and all alternatives with their bottlenecks, too
    #[arg(long)]
    explain: bool,
    /// Space that the plan may use on each target of a class; repeatable
    #[arg(long, alias = "room", value_name = "CLASS=SIZE", value_parser = capacity)]
    capacity: Vec<(String, u64)>,
    /// Device of a class: name or file of a profile; repeatable
    #[arg(long, value_name = "CLASS=PROFILE", value_parser = profile)]
    profile: Vec<(String, String)>,
    /// The network of a cluster file [default: as measured by `weft profile`, else 100gbe]
    #[arg(long, value_name = "NAME")]
    network: Option<String>,
    /// Use operations at this level [default: posix if any of them moves bytes]
    #[arg(long, value_name = "LEVEL", conflicts_with = "directory")]
    level: Option<LevelArg>,
    /// Only files whose path contains this text
    #[arg(long, value_name = "TEXT", conflicts_with = "directory")]
    only: Option<String>,
    /// No files whose path contains this text
    #[arg(long, value_name = "TEXT", conflicts_with = "directory")]
    without: Option<String>,
    /// Maximum number of components of a layout
    #[arg(long, value_name = "COUNT", default_value_t = 64, value_parser = parts)]
    parts: usize,
    /// Try each alternative on the twin, with --replicas those for each pattern of one file
    #[arg(long, conflicts_with = "directory")]
    verify: bool,
    /// Show what an SSD of this profile beside each disk would gain, instead of layouts [default profile: sata-ssd]
    #[arg(long, value_name = "PROFILE", num_args = 0..=1, require_equals = true, default_missing_value = "sata-ssd",
        conflicts_with_all = ["directory", "replicas", "verify", "planner", "output", "explain", "parts", "capacity"])]
    ssd: Option<String>,
    /// Reads and writes to try, of each rule's files or with --ssd of all, spread over the trace; 0 for all
    #[arg(long, value_name = "COUNT", default_value_t = 262_144, requires = "tried")]
    verify_requests: u64,
    /// Print JSON, one object per line instead of tables: each rule with its alternatives
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum LevelArg {
    Posix,
    MpiIo,
}

/// Most requests of a trace that replicas are planned for.
const REPLICATED_REQUESTS_MAX: usize = 1 << 20;

/// Data of a trace.
struct Surveyed {
    traced: TraceSummary,
    /// Whether offsets and times are reconstructed.
    guessed: bool,
    notes: Vec<String>,
    /// Names of the files of which the trace moves bytes, by their numbers.
    names: BTreeMap<u32, String>,
}

fn pair(text: &str) -> Result<(&str, &str), String> {
    text.split_once('=').filter(|(class, _)| !class.is_empty()).ok_or_else(|| "write CLASS=VALUE".to_owned())
}

fn capacity(text: &str) -> Result<(String, u64), String> {
    let (class, size) = pair(text)?;
    Ok((class.to_owned(), super::size(size)?.0))
}

fn profile(text: &str) -> Result<(String, String), String> {
    pair(text).map(|(class, profile)| (class.to_owned(), profile.to_owned()))
}

fn parts(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|parts| (1..=64).contains(parts)).ok_or_else(|| "write 1 to 64".to_owned())
}

impl PlanArgs {
    /// Runs the command and returns the exit code.
    pub fn run(self, file: Option<PathBuf>) -> Result<u8, Failure> {
        for (option, given) in [
            ("--json", self.json),
            ("--explain", self.explain && !self.watch.is_wanted()),
            ("--verify", self.verify),
        ] {
            if given && self.to_stdout() {
                return Err(Failure::misuse(option, "standard output is for the plan only")
                    .remedy("give --output a file"));
            }
        }
        let trace = match &self.trace {
            None => return self.watch(file),
            Some(_) if self.watch.is_wanted() => {
                return Err(Failure::misuse("--watch", "watching a directory needs no trace"));
            }
            Some(trace) => trace.clone(),
        };
        let input = Input { file: trace, reconstruct: self.reconstruct };
        self.output.iter().try_for_each(|path| input.spare(path))?;
        // Check the output before the work.
        let output = self.output.as_deref().map(AtomicFile::new).transpose()?;
        let tried_on = self.trial.cluster(file.clone())?;
        let surveyed = self.survey(&input)?;
        let Surveyed { traced, guessed, notes, names } = &surveyed;
        let files: Vec<String> = names.values().cloned().collect();
        let bytes = traced.groups.iter().map(|group| group.extent_sum).fold(0, u64::saturating_add);
        let capacities: BTreeMap<String, u64> = self.capacity.iter().cloned().collect();
        let network = self.network.as_deref();
        // A description of a cluster of the twin has no files.
        let cluster = file.as_deref().and_then(|file| weft_config::Cluster::load(file).ok());
        let cluster = cluster.or_else(|| weft_config::Cluster::from_env().ok());
        let mount = cluster.map(|cluster| cluster.mount);
        let is_mounted =
            self.replicas.is_wanted() && file.is_none() && weft_config::Cluster::configured().is_none();
        let target = match is_mounted {
            true => Target::disk(self.profile.first().map(|(_, profile)| profile.as_str()), bytes)?,
            false => Target::read(file, &self.profile, network, &capacities, bytes, Some(&files))?,
        };
        if self.replicas.is_wanted() && traced.requests > 0 {
            return self.plan_replicas(&input, &surveyed, (&target, mount.as_deref()), output.as_ref());
        }
        if let Some(ssd) = self.ssd.as_deref().filter(|_| traced.requests > 0) {
            return self.plan_ssd(&input, &surveyed, &target, ssd);
        }
        let present = match &target.in_force {
            Some(in_force) => in_force.layouts(&surveyed, &target.figures),
            None => vec![present::default(&target.figures); traced.groups.len()],
        };
        let options = Options {
            planner: self.planner,
            trace: input.file.display().to_string(),
            notes: notes.iter().chain(&target.notes).cloned().collect(),
            guessed: *guessed,
            parts_max: self.parts,
            alternatives: true,
            present: Some(present),
            uncertain: tried_on.is_some(),
        };
        if traced.requests == 0 && (self.only.is_some() || self.without.is_some() || self.level.is_some()) {
            let level = self.level().map(|level| format!(" at {level}")).unwrap_or_default();
            let why = format!("it moves no bytes{level} of the files selected by --only and --without");
            return Err(Failure::new(input.file.display(), why)
                .remedy("`weft trace show` shows its files and levels"));
        }
        let planned = weft_planner::plan(traced, &target.figures, &options);
        let mut planned = planned.map_err(|why| Failure::new(input.file.display(), why))?;
        if planned.plan.rules.is_empty() && tried_on.is_some() {
            planned
                .plan
                .notes
                .push("nothing was tried, because no other layout is predicted to be faster".into());
        } else if let Some(weft) = &tried_on {
            let trial = self.try_plan(weft, &input, &planned.plan)?;
            planned.plan.judge(trial);
        }
        let text = planned.plan.to_toml();
        output.iter().try_for_each(|output| output.write(text.as_bytes()))?;
        if self.json {
            json(&planned.plan)?;
        } else if !self.to_stdout() {
            self.show(&planned, traced);
        }
        if self.verify {
            return self.verify(&input, &planned, &target);
        }
        Ok(0)
    }

    /// Whether the plan goes to standard output.
    fn to_stdout(&self) -> bool {
        self.output.as_deref().is_some_and(|path| path == "-")
    }

    fn level(&self) -> Option<Level> {
        self.level.map(|level| match level {
            LevelArg::Posix => Level::Posix,
            LevelArg::MpiIo => Level::MpiIo,
        })
    }

    fn wants(&self, name: &str) -> bool {
        self.only.as_ref().is_none_or(|part| name.contains(part.as_str()))
            && !self.without.as_ref().is_some_and(|part| name.contains(part.as_str()))
    }

    /// Reads the trace.
    fn survey(&self, input: &Input) -> Result<Surveyed, Failure> {
        let mut stream = input.open()?;
        let limits = if self.replicas.is_wanted() {
            Limits { sample: REPLICATED_REQUESTS_MAX }
        } else {
            Limits::default()
        };
        let mut survey = Survey::new(&limits);
        let mut wanted: Vec<Option<bool>> = Vec::new();
        let progress = bar();
        let mut count = 0u64;
        while let Some(record) = stream.next() {
            let record = record?;
            count += 1;
            if count.is_multiple_of(65_536) {
                tick(&progress, &*stream);
            }
            if !record.op.moves_bytes() {
                continue;
            }
            let file = record.file.0 as usize;
            if wanted.len() <= file {
                wanted.resize(file + 1, None);
            }
            let name = || stream.names().file_name(record.file).unwrap_or_default();
            if *wanted[file].get_or_insert_with(|| self.wants(name())) {
                survey.add(&record, stream.names());
            }
        }
        progress.finish_and_clear();
        let info = stream.info();
        let guessed = info.source == Source::DarshanCounters;
        let mut notes = info.notes.clone();
        if guessed {
            notes.push(
                "offsets and times are reconstructed from counters, which limits the quality of the plan"
                    .into(),
            );
        }
        let named = wanted.iter().zip(0..).filter(|(wanted, _)| **wanted == Some(true));
        let names =
            named.filter_map(|(_, file)| Some((file, stream.names().file_name(FileId(file))?.to_owned())));
        let names = names.collect();
        Ok(Surveyed { traced: survey.finish(self.level()), guessed, notes, names })
    }

    fn show(&self, planned: &Planned, traced: &TraceSummary) {
        let plan = &planned.plan;
        outln!(
            "{} requests of {} ranks at {}, {:.1} in flight",
            traced.requests,
            traced.ranks,
            traced.level,
            traced.concurrency
        );
        for note in &plan.notes {
            outln!("note: {note}");
        }
        for (rule, is_kept) in
            plan.rules.iter().map(|rule| (rule, false)).chain(plan.kept.iter().map(|rule| (rule, true)))
        {
            outln!();
            self.rule(rule, is_kept);
        }
        outln!("\nthe whole run by the planner's model, file operations only:");
        let mut table = Table::new(["  ", "PLANNER", "SECONDS"]);
        for predicted in &plan.predicted {
            let seconds = format!("{:.3}", predicted.seconds);
            table.row([String::new(), predicted.planner.to_string(), seconds]);
        }
        out!("{}", table.render());
        plan.advice.iter().for_each(|advice| outln!("{}", advised(plan, advice)));
        if let Some(trial) = &plan.trial {
            outln!("tried: {trial}");
        }
        if let Some(path) = self.output.as_deref().filter(|path| *path != "-") {
            let quoted = super::quoted_path(path);
            match plan.rules.is_empty() {
                true => outln!("written to {}; it changes no layout", path.display()),
                false => {
                    outln!(
                        "written to {}; `weft apply {quoted}` gives new files these layouts",
                        path.display()
                    );
                }
            }
        }
    }

    fn rule(&self, rule: &Rule, is_kept: bool) {
        let files = if rule.files == 1 { String::new() } else { format!(" ({} files)", rule.files) };
        outln!(
            "{}{files}: {} long, {} moved",
            rule.path,
            human_bytes(rule.extent.0),
            human_bytes(rule.moved.0)
        );
        if self.explain {
            outln!("  pattern: {}", rule.pattern);
        }
        outln!("  {}: {}", if is_kept { "keep" } else { "layout" }, layout(&rule.layout));
        outln!("  why: {}", rule.why);
        outln!("  confidence: {:.0} %", 100.0 * rule.confidence);
        if !self.explain {
            return;
        }
        let mut table = Table::new(["  ", "PLANNER", "SECONDS", "PAPER'S COST", "TARGETS", "BUSY", "LAYOUT"]);
        for other in &rule.alternatives {
            table.row([
                String::new(),
                other.planner.to_string(),
                format!("{:.3}", other.seconds),
                other.cost.map_or("-".to_owned(), |cost| format!("{cost:.1}")),
                format!("{:.1}", other.spread),
                busy(other),
                layout(&other.layout),
            ]);
        }
        out!("{}", table.render());
    }
}

/// The advice for the whole run, with the numbers behind it.
fn advised(plan: &Plan, advice: &Advice) -> String {
    let Advice { present_s, planned_s, error_s, cost_s, .. } = advice;
    if plan.rules.is_empty() {
        return format!("advice: keep the present layouts, {present_s:.3} s");
    }
    let numbers = format!(
        "{planned_s:.3} s instead of {present_s:.3} s; the model's error is {error_s:.3} s, the change costs {cost_s:.3} s"
    );
    match advice.is_certain() {
        true => format!("advice: change the layouts, {numbers}"),
        false => format!("advice: keep the present layouts; these were asked for: {numbers}"),
    }
}

fn busy(of: &Alternative) -> String {
    let busy: Vec<String> =
        of.busy.iter().map(|(class, part)| format!("{class} {:.0}%", 100.0 * part)).collect();
    busy.join(" ")
}

fn layout(parts: &[weft_planner::placement::PlanPart]) -> String {
    let parts: Vec<String> = parts.iter().map(ToString::to_string).collect();
    parts.join("; ")
}

fn json(plan: &Plan) -> Result<(), Failure> {
    let failed = |error| Failure::new("plan", error);
    for (action, rules) in [("change", &plan.rules), ("keep", &plan.kept)] {
        for rule in rules {
            let mut object = serde_json::to_value(rule).map_err(failed)?;
            object["action"] = action.into();
            outln!("{object}");
        }
    }
    for predicted in &plan.predicted {
        outln!("{}", serde_json::to_string(predicted).map_err(failed)?);
    }
    if let Some(advice) = &plan.advice {
        outln!("{}", serde_json::json!({ "advice": advice }));
    }
    if let Some(trial) = &plan.trial {
        let (present_median_s, planned_median_s) = trial.medians_s();
        let result = serde_json::json!({
            "trial": trial,
            "present_median_s": present_median_s,
            "planned_median_s": planned_median_s,
            "ratio": trial.ratio(),
            "p": trial.p_value(),
            "verdict": trial.verdict(),
        });
        outln!("{result}");
    }
    Ok(())
}
