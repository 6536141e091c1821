//! `weft plan`: from a trace to layouts.

mod cluster;
mod room;
mod verify;
mod watch;

use super::trace::{Input, bar, tick};
use crate::failure::Failure;
use crate::table::{Table, human};
use crate::whole::Whole;
use clap::{Args, ValueEnum};
use cluster::Target;
use std::collections::BTreeMap;
use std::path::PathBuf;
use watch::Watch;
use weft_planner::plan::{Alternative, Options, Plan, Planned, Planner, Rule};
use weft_planner::{Limits, Survey, Traced};
use weft_trace::{FileId, Level, Source};

const AFTER: &str = "\
The trace is read once; memory does not grow with it. Files whose names differ only in numbers are planned for together.
The plan says for each group of files its layout (stripe sizes by class and range), the time that every alternative would
take by the planner's model, why the layout was chosen and how sure it is that no alternative is faster.

--cluster names a cluster of the twin (`weft twin example`), a file of figures (a plan has them under [cluster]), or a
cluster file; without it the configured cluster is planned for. Of a cluster file the figures that `weft profile` measured
are taken, which lie beside it. Without them, and of the twin, devices are measured on their models: of a cluster file
those that `emulate` or --profile names, else usual ones for classes hdd, ssd and nvme. Room is what the cluster file
limits, less what servers that run say of other files; --room goes before it.

--watch needs no trace: it follows a directory of a cluster that runs by the samples that its data servers keep (`sample`
in the cluster file, off by default), until it is ended. When another pattern of requests has lasted for --lasts
intervals, a new layout would take --gain less time than what is in force, and the last change is --pause ago, the directory
gets a rule for these files (`weft getstripe -d DIR` shows it), and --output the plan. Files that are there keep the layout
that they have, unless --migrate has `weft migrate` move them. Only administrators may do
this: root and the user who runs the servers on the servers' hosts, and holders of an administrator's key.

--verify replays the trace on the twin under each alternative and says where the model had ranked them wrongly. Trials
run side by side. Of files with more than 262,144 reads and writes it takes that many: of each rank the same windows,
spread over the trace. --verify-requests takes another number, or all.

Examples:
  weft plan app.darshan --cluster twin.toml --room ssd=1GiB --explain
  weft plan app.wtrace --cluster twin.toml --output plan.toml
  weft apply plan.toml                             new files get the layouts
  weft plan counters-only.darshan --reconstruct --cluster twin.toml --planner psa
  weft plan app.wtrace --cluster twin.toml --verify
  weft plan app.wtrace --cluster twin.toml --verify --verify-requests 0 --json | jq 'select(.wrong)'
  weft plan --watch /weft/results --every 5min --gain 30%
  weft plan --watch /weft/results --output plan.toml --migrate=50MiB
  weft plan --watch /weft/results --once --dry-run";

/// Plans layouts for a traced program.
#[derive(Args)]
#[command(after_long_help = AFTER)]
pub struct PlanArgs {
    /// The trace: a Darshan log, CSV or .wtrace
    #[arg(value_name = "TRACE", required_unless_present = "directory")]
    trace: Option<PathBuf>,
    /// Make a likely course of events from the counters of a Darshan log that has no DXT
    #[arg(long, conflicts_with = "directory")]
    reconstruct: bool,
    #[command(flatten)]
    watch: Watch,
    /// Who plans; the others stand in the plan as alternatives
    #[arg(long, value_name = "PLANNER", default_value = "best")]
    planner: Planner,
    /// Where to write the plan; - is standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Also the patterns, all alternatives and their bottlenecks
    #[arg(long)]
    explain: bool,
    /// Room for the plan on each target of a class; several times
    #[arg(long, value_name = "CLASS=SIZE", value_parser = room)]
    room: Vec<(String, u64)>,
    /// Device of a class, by the name or the file of its profile; several times
    #[arg(long, value_name = "CLASS=PROFILE", value_parser = profile)]
    profile: Vec<(String, String)>,
    /// The network of a cluster file [default: as `weft profile` found it, else 100gbe]
    #[arg(long, value_name = "NAME")]
    network: Option<String>,
    /// Operations at this level [default: posix if any move bytes]
    #[arg(long, value_name = "LEVEL", conflicts_with = "directory")]
    level: Option<LevelArg>,
    /// Only files whose path has this in it
    #[arg(long, value_name = "TEXT", conflicts_with = "directory")]
    only: Option<String>,
    /// No files whose path has this in it
    #[arg(long, value_name = "TEXT", conflicts_with = "directory")]
    without: Option<String>,
    /// Parts that a layout may have
    #[arg(long, value_name = "COUNT", default_value_t = 64, value_parser = parts)]
    parts: usize,
    /// Try each alternative on the twin
    #[arg(long, conflicts_with = "directory")]
    verify: bool,
    /// Try so many reads and writes of each rule's files, spread over the trace, if it has more; 0 for all
    #[arg(long, value_name = "COUNT", default_value_t = 262_144, requires = "verify")]
    verify_requests: u64,
    /// One JSON object per line instead of tables: each rule with its alternatives
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum LevelArg {
    Posix,
    MpiIo,
}

/// What was read of a trace.
struct Surveyed {
    traced: Traced,
    /// Offsets and times are guesses.
    guessed: bool,
    notes: Vec<String>,
    /// The files that it moves bytes of.
    files: Vec<String>,
}

fn pair(text: &str) -> Result<(&str, &str), String> {
    text.split_once('=').filter(|(class, _)| !class.is_empty()).ok_or_else(|| "write CLASS=VALUE".to_owned())
}

fn room(text: &str) -> Result<(String, u64), String> {
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
    /// Plans; the code to end with.
    pub fn run(self, file: Option<PathBuf>) -> Result<u8, Failure> {
        for (option, given) in [
            ("--json", self.json),
            ("--explain", self.explain && !self.watch.is_wanted()),
            ("--verify", self.verify),
        ] {
            if given && self.to_stdout() {
                return Err(Failure::misuse(option, "standard output has the plan, and nothing else")
                    .remedy("give --output a file"));
            }
        }
        let trace = match &self.trace {
            None => return self.watch(file),
            Some(_) if self.watch.is_wanted() => {
                return Err(Failure::misuse("--watch", "a directory is followed without a trace"));
            }
            Some(trace) => trace.clone(),
        };
        let input = Input { file: trace, reconstruct: self.reconstruct };
        self.output.iter().try_for_each(|path| input.spare(path))?;
        // Before the work.
        let output = self.output.as_deref().map(Whole::new).transpose()?;
        let Surveyed { traced, guessed, notes, files } = self.survey(&input)?;
        let bytes = traced.units.iter().map(|unit| unit.extent_sum).fold(0, u64::saturating_add);
        let rooms: BTreeMap<String, u64> = self.room.iter().cloned().collect();
        let network = self.network.as_deref();
        let target = Target::read(file, &self.profile, network, &rooms, bytes, Some(&files))?;
        let options = Options {
            planner: self.planner,
            trace: input.file.display().to_string(),
            notes: notes.into_iter().chain(target.notes.iter().cloned()).collect(),
            guessed,
            parts_max: self.parts,
            alternatives: true,
        };
        if traced.requests == 0 && (self.only.is_some() || self.without.is_some() || self.level.is_some()) {
            let level = self.level().map(|level| format!(" at {level}")).unwrap_or_default();
            let why = format!("it moves no bytes{level} of files that --only and --without leave");
            return Err(Failure::new(input.file.display(), why)
                .remedy("`weft trace show` tells which files and levels it has"));
        }
        let planned = weft_planner::plan(&traced, &target.figures, &options);
        let planned = planned.map_err(|why| Failure::new(input.file.display(), why))?;
        let text = planned.plan.to_toml();
        output.iter().try_for_each(|output| output.write(text.as_bytes()))?;
        if self.json {
            json(&planned.plan)?;
        } else if !self.to_stdout() {
            self.show(&planned, &traced);
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
        let mut survey = Survey::new(&Limits::default());
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
            notes.push("offsets and times were guessed from counters: the plan is as good as these".into());
        }
        let named = wanted.iter().zip(0..).filter(|(wanted, _)| **wanted == Some(true));
        let files = named.filter_map(|(_, file)| stream.names().file_name(FileId(file)).map(str::to_owned));
        let files = files.collect();
        Ok(Surveyed { traced: survey.finish(self.level()), guessed, notes, files })
    }

    fn show(&self, planned: &Planned, traced: &Traced) {
        let plan = &planned.plan;
        outln!(
            "{} requests of {} ranks at {}, {:.1} under way at a time",
            traced.requests,
            traced.ranks,
            traced.level,
            traced.concurrency
        );
        for note in &plan.notes {
            outln!("note: {note}");
        }
        for rule in &plan.rules {
            outln!();
            self.rule(rule);
        }
        outln!("\nthe whole run by the planner's model, without what the program does besides:");
        let mut table = Table::new(["  ", "PLANNER", "SECONDS"]);
        for predicted in &plan.predicted {
            let seconds = format!("{:.3}", predicted.seconds);
            table.row([String::new(), predicted.planner.to_string(), seconds]);
        }
        out!("{}", table.render());
        if let Some(path) = self.output.as_deref().filter(|path| *path != "-") {
            let quoted = super::quoted_path(path);
            outln!("written to {}; `weft apply {quoted}` has new files get these layouts", path.display());
        }
    }

    fn rule(&self, rule: &Rule) {
        let files = if rule.files == 1 { String::new() } else { format!(" ({} files)", rule.files) };
        outln!("{}{files}: {} long, {} moved", rule.path, human(rule.extent.0), human(rule.moved.0));
        if self.explain {
            outln!("  pattern: {}", rule.pattern);
        }
        outln!("  layout: {}", layout(&rule.layout));
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

fn busy(of: &Alternative) -> String {
    let busy: Vec<String> =
        of.busy.iter().map(|(class, part)| format!("{class} {:.0}%", 100.0 * part)).collect();
    busy.join(" ")
}

fn layout(parts: &[weft_planner::placing::PartFile]) -> String {
    let parts: Vec<String> = parts.iter().map(ToString::to_string).collect();
    parts.join("; ")
}

fn json(plan: &Plan) -> Result<(), Failure> {
    let failed = |error| Failure::new("plan", error);
    for rule in &plan.rules {
        outln!("{}", serde_json::to_string(rule).map_err(failed)?);
    }
    for predicted in &plan.predicted {
        outln!("{}", serde_json::to_string(predicted).map_err(failed)?);
    }
    Ok(())
}
