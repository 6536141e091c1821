//! `weft apply`: from a plan to rules of directories, and to files that are there already.

mod files;
mod paths;

use super::session::Weft;
use super::{bytes, wanted};
use crate::failure::Failure;
use crate::table::{Table, human};
use clap::Args;
use paths::Mapping;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use weft_core::{ClassLayout, Pattern};
use weft_env::real::block_on;
use weft_planner::live::Renamed;
use weft_planner::{PathRule, Plan};
use weft_wire::meta::{FileType, Forget, LayoutSpec, Rule, TargetRoom};

const AFTER: &str = "\
Each group of files in the plan becomes a rule of a directory: files that are made there from then on get its layout, a
number where the plan has *. The rule is set at the deepest directory of their path that is there, or at DIR with --under.
What one of these directories has already as a rule for the same pattern is replaced; its other rules come after the new ones.

Files of the plan that are there and were never written get their layout, too. Those that hold bytes keep it: they are
named with the command that moves them, `weft migrate`, which asks the same rules.

Paths in the trace that are not below Weft's mount need --map or --under. --under DIR takes the directory that all files of
the plan have in common for DIR; with --anywhere rules are about the files' names alone, however deep below DIR they lie.

Examples:
  weft apply plan.toml --dry-run                   what would be set
  weft apply plan.toml --map /scratch/me=/weft/me
  weft apply plan.toml --under /weft/runs --anywhere
  weft apply plan.toml --class ssd=nvme            the plan's ssd targets are called nvme here
  weft getstripe -d /weft/runs                     the rules of a directory
  weft apply plan.toml --remove                    without the plan's rules again";

/// Has files get the layouts of a plan when they are made.
#[derive(Args)]
#[command(after_long_help = AFTER)]
pub struct Apply {
    /// The plan, from `weft plan --output`
    #[arg(value_name = "PLAN")]
    plan: PathBuf,
    /// The directory that stands for the one that all files of the plan have in common
    #[arg(long, value_name = "DIR", value_parser = bytes::argument())]
    under: Option<String>,
    /// Rules by the names of files alone, at any depth
    #[arg(long)]
    anywhere: bool,
    /// Where paths of the trace are on Weft; several times, the longest decides
    #[arg(long, value_name = "OLD=NEW", value_parser = mapping, conflicts_with = "under")]
    map: Vec<(String, String)>,
    /// What a class of the plan is called here; several times
    #[arg(long = "class", value_name = "PLANNED=HERE", value_parser = renamed)]
    classes: Vec<(String, String)>,
    /// Only show what would be done
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Take the rules of the plan away
    #[arg(long)]
    remove: bool,
}

/// The plan of a file.
pub fn read(path: &Path) -> Result<Plan, Failure> {
    let bytes = std::fs::read(path).map_err(|error| Failure::new(path.display(), error))?;
    let wrong = |why: &dyn std::fmt::Display| {
        Failure::misuse(path.display(), why).remedy("a plan is what `weft plan --output FILE` writes")
    };
    let text = String::from_utf8(bytes).map_err(|_| wrong(&"it is no text"))?;
    Plan::from_toml(&text).map_err(|why| wrong(&why))
}

fn mapping(text: &str) -> Result<(String, String), String> {
    pair(text, "OLD=NEW")
}

/// What classes of the plan are called here, as `option` says.
pub fn classes(plan: &Plan, option: &str, pairs: &[(String, String)]) -> Result<Renamed, Failure> {
    let planned = || plan.cluster.classes.iter().map(|class| class.name.as_str());
    match pairs.iter().find(|(class, _)| planned().all(|known| known != class)) {
        Some((class, here)) => {
            Err(Failure::misuse(format!("{option} {class}={here}"), "the plan has no such class")
                .remedy(format!("its classes: {}", planned().collect::<Vec<_>>().join(", "))))
        }
        None => Ok(pairs.iter().cloned().collect()),
    }
}

/// For arguments: what a class of the plan is called here.
pub fn renamed(text: &str) -> Result<(String, String), String> {
    pair(text, "PLANNED=HERE")
}

fn pair(text: &str, form: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').filter(|(from, to)| !from.is_empty() && !to.is_empty());
    pair.map(|(from, to)| (from.to_owned(), to.to_owned())).ok_or_else(|| format!("write {form}"))
}

/// A rule of the plan on this cluster.
struct Placed {
    /// The directory that has it, below the mount.
    dir: String,
    /// The files, below the mount; `*` is a number.
    path: String,
    pattern: Pattern,
    layout: ClassLayout,
    /// Files in the trace.
    files: u64,
    /// What should be known of the layout here.
    notes: Vec<String>,
}

impl Apply {
    /// Does it.
    pub fn run(self, file: Option<PathBuf>) -> Result<u8, Failure> {
        let plan = read(&self.plan)?;
        let weft = Weft::open(file)?;
        let (placed, elsewhere) = self.place(&weft, &plan)?;
        if placed.is_empty() {
            let why = match elsewhere.first() {
                Some(path) => format!("none of its files is below {}: {path}", weft.cluster.mount.display()),
                None => "it has no rules".to_owned(),
            };
            let remedy = match elsewhere.iter().find_map(|path| mount_of(&weft, path)) {
                Some(at) => {
                    let map = super::quoted(&format!("{at}={}", weft.shown("")));
                    format!("this cluster is mounted there: give --map {map}")
                }
                None => "say where they are with --map OLD=NEW or --under DIR".to_owned(),
            };
            return Err(Failure::misuse(self.plan.display(), why).remedy(remedy));
        }
        for path in &elsewhere {
            eprintln!("{path} is not below {} and is left out: give --map", weft.cluster.mount.display());
        }
        if self.remove {
            return self.take_away(&weft, &placed);
        }
        self.set(&weft, &placed)?;
        show_rooms(&weft);
        let found = files::Found::of(&weft, &placed, self.dry_run)?;
        found.show(&weft, self.dry_run);
        Ok(0)
    }

    /// The rules of the plan, and the paths of those that are not on Weft.
    fn place(&self, weft: &Weft, plan: &Plan) -> Result<(Vec<Placed>, Vec<String>), Failure> {
        let mapping = match &self.under {
            Some(under) => {
                let common = paths::common(plan.rules.iter().map(|rule| rule.path.0.as_str()));
                Mapping::new([(common, PathRule::of(weft.inside(under)).0)])
            }
            None => {
                Mapping::new(self.map.iter().map(|(old, new)| (old.clone(), weft.inside(new).to_owned())))
            }
        };
        let renamed = classes(plan, "--class", &self.classes)?;
        let map = weft.cluster.map();
        let candidates = map.candidates();
        let (mut placed, mut elsewhere) = (Vec::new(), Vec::new());
        for rule in &plan.rules {
            let path = rule.path.0.as_str();
            let Some(inside) = mapping.map(path).or_else(|| weft.strip(path).map(str::to_owned)) else {
                elsewhere.push(path.to_owned());
                continue;
            };
            let (layout, notes) = plan.by_class(rule, &candidates, &renamed).map_err(|why| {
                Failure::misuse(self.plan.display(), why)
                    .remedy("name another class with --class PLANNED=HERE, or plan for this cluster")
            })?;
            let dir = self.directory(weft, &inside)?;
            let below = paths::below(&inside, &dir);
            let wrong = |why| Failure::misuse(self.plan.display(), why);
            placed.push(Placed {
                pattern: self.pattern(below).map_err(wrong)?,
                dir,
                path: inside,
                layout,
                files: rule.files,
                notes,
            });
        }
        Ok((placed, elsewhere))
    }

    /// The directory that is to have the rule for a path.
    fn directory(&self, weft: &Weft, inside: &str) -> Result<String, Failure> {
        if let Some(under) = &self.under {
            let under = weft.inside(under).trim_end_matches('/');
            return match weft.kind(under, true)? {
                Some(FileType::Directory) => Ok(PathRule::of(under).0),
                Some(_) => Err(Failure::misuse(weft.shown(under), "it is no directory")),
                None => Err(Failure::misuse(weft.shown(under), "there is no such directory")
                    .remedy(format!("make it: weft mkdir -p {}", weft.shown(under)))),
            };
        }
        let mut deepest = String::new();
        for dir in paths::directories(inside).into_iter().skip(1) {
            match weft.kind(&dir, true)? {
                Some(FileType::Directory) => deepest = dir,
                _ => break,
            }
        }
        Ok(deepest)
    }

    fn pattern(&self, below: &str) -> Result<Pattern, weft_core::pattern::PatternError> {
        if !self.anywhere {
            return Pattern::of_numbers(below);
        }
        let name = below.rsplit('/').next().unwrap_or(below);
        Pattern::of_numbers(name)?.as_str().trim_start_matches('/').parse()
    }

    /// Sets the rules, directory by directory, and shows them.
    fn set(&self, weft: &Weft, placed: &[Placed]) -> Result<(), Failure> {
        let mut dirs: BTreeMap<&str, Vec<&Placed>> = BTreeMap::new();
        for rule in placed {
            dirs.entry(&rule.dir).or_default().push(rule);
        }
        for (dir, rules) in dirs {
            outln!("{}", weft.shown(dir));
            let mut table = Table::new(["  ", "PATTERN", "LAYOUT", "TRACED"]);
            let mut add: Vec<Rule> = Vec::new();
            for rule in rules {
                let traced =
                    if rule.files == 1 { "1 file".to_owned() } else { format!("{} files", rule.files) };
                let layout = wanted::by_class(&rule.layout);
                table.row([String::new(), rule.pattern.to_string(), layout, traced]);
                // Of names alone the first rule stays.
                if add.iter().all(|other| other.pattern != rule.pattern) {
                    let layout = LayoutSpec { by_class: Some(rule.layout.clone()), ..LayoutSpec::default() };
                    add.push(Rule { pattern: rule.pattern.clone(), layout });
                }
            }
            out!("{}", table.render());
            if !self.dry_run {
                weft.at(dir, true, |place| {
                    block_on(weft.client.change_rules(place, Forget::Replaced, add.clone()))
                })?;
            }
        }
        let mut notes: Vec<&String> = placed.iter().flat_map(|rule| &rule.notes).collect();
        notes.sort_unstable();
        notes.dedup();
        notes.iter().for_each(|note| outln!("note: {note}"));
        outln!("{}", if self.dry_run { "nothing was set (--dry-run)" } else { "these rules are set" });
        Ok(())
    }

    /// Takes the plan's rules away wherever they are above its files.
    fn take_away(&self, weft: &Weft, placed: &[Placed]) -> Result<u8, Failure> {
        let mut dirs: BTreeMap<String, Vec<Pattern>> = BTreeMap::new();
        for rule in placed {
            for dir in paths::directories(&rule.path) {
                if weft.look(&dir, true)?.is_none() {
                    break;
                }
                let Ok(pattern) = self.pattern(paths::below(&rule.path, &dir)) else { continue };
                let own = weft.stat(&dir, true)?.file;
                let ruled = weft.at(&dir, true, |place| block_on(weft.client.rules(place)))?;
                let mut own =
                    ruled.iter().filter(|ruled| ruled.directory == own).flat_map(|ruled| &ruled.rules);
                let taken = dirs.entry(dir).or_default();
                if own.any(|rule| rule.pattern == pattern) && !taken.contains(&pattern) {
                    taken.push(pattern);
                }
            }
        }
        dirs.retain(|_, patterns| !patterns.is_empty());
        if dirs.is_empty() {
            outln!("none of the plan's rules is set");
        }
        for (dir, patterns) in dirs {
            for pattern in &patterns {
                outln!("{}: {pattern}", weft.shown(&dir));
            }
            if !self.dry_run {
                weft.at(&dir, true, |place| {
                    block_on(weft.client.change_rules(place, Forget::These(patterns.clone()), Vec::new()))
                })?;
            }
        }
        if self.dry_run {
            outln!("nothing was taken away (--dry-run)");
        }
        Ok(0)
    }
}

/// Where a cluster of this name is mounted, if a path of a trace is below that.
fn mount_of(weft: &Weft, path: &str) -> Option<String> {
    let above = |at: &str| path.strip_prefix(at).is_some_and(|rest| rest.starts_with('/'));
    super::mount::of(&weft.cluster).into_iter().find(|at| above(at))
}

/// The accounts of targets with limited room.
fn rooms(weft: &Weft) -> Vec<TargetRoom> {
    let status = block_on(weft.client.status(weft.cluster.map().metadata));
    status.ok().and_then(|status| status.metadata).map(|found| found.rooms).unwrap_or_default()
}

/// What is left where room is limited.
fn show_rooms(weft: &Weft) {
    let told = |room: &TargetRoom| {
        let left = room.room.0.saturating_sub(room.promised.0);
        format!("target {} has {} of {} left", room.target.0, human(left), human(room.room.0))
    };
    let rooms: Vec<String> = rooms(weft).iter().map(told).collect();
    if !rooms.is_empty() {
        outln!("room: {}", rooms.join("; "));
    }
}
