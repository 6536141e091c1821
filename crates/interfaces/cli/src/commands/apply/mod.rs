//! `weft apply`: turns a plan into layout rules of directories, and handles existing files.

mod files;
mod paths;

use super::session::Weft;
use super::{bytes, layout_arguments};
use crate::failure::Failure;
use crate::table::Table;
use clap::Args;
use paths::Mapping;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use weft_core::units::human_bytes;
use weft_core::{ClassLayout, Pattern};
use weft_env::real::block_on;
use weft_planner::live::ClassRenames;
use weft_planner::{PathRule, Plan};
use weft_wire::meta::{FileType, LayoutSpec, Rule, RuleRemoval, SpaceReservation};

const AFTER: &str = "\
Each group of files in the plan becomes a layout rule of a directory: new files there get the layout. Where the plan
has *, the rule matches a number. The rule is set on the deepest existing directory of their path, or on DIR with
--under. It replaces an existing rule of that directory for the same pattern. The directory's other rules come after
the new ones.

Existing files of the plan that were never written get their layout, too. Files that hold bytes keep theirs. They are
listed with the command that moves them, `weft migrate`, which follows the same rules.

Paths in the trace that are not below Weft's mount need --map or --under. --under DIR uses DIR in place of the common
parent directory of all files of the plan. With --anywhere, rules only match the names of files, at any depth below
DIR.

If `weft plan --try` tried the plan, the result is shown. A plan whose layouts were not faster beyond chance has no
rules and sets nothing. A plan that was not tried is applied with a warning, unless its predicted gain exceeds the
model's error plus the cost of the change.

Examples:
  weft apply plan.toml --dry-run                   show what would be set
  weft apply plan.toml --map /scratch/me=/weft/me
  weft apply plan.toml --under /weft/runs --anywhere
  weft apply plan.toml --class ssd=nvme            class ssd of the plan is class nvme here
  weft getstripe -d /weft/runs                     the rules of a directory
  weft apply plan.toml --remove                    remove the plan's rules";

/// Gives new files the layouts of a plan.
#[derive(Args)]
#[command(after_long_help = AFTER)]
pub struct Apply {
    /// The plan, from `weft plan --output`
    #[arg(value_name = "PLAN")]
    plan: PathBuf,
    /// The directory in place of the common parent of all files of the plan
    #[arg(long, value_name = "DIR", value_parser = bytes::argument())]
    under: Option<String>,
    /// Make rules by the names of files only, at any depth
    #[arg(long)]
    anywhere: bool,
    /// Where a path of the trace is on Weft; repeatable, the longest prefix applies
    #[arg(long, value_name = "OLD=NEW", value_parser = mapping, conflicts_with = "under")]
    map: Vec<(String, String)>,
    /// The name of a class of the plan on this cluster; repeatable
    #[arg(long = "class", value_name = "PLANNED=HERE", value_parser = renamed)]
    classes: Vec<(String, String)>,
    /// Only show what would be done
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Remove the rules of the plan
    #[arg(long)]
    remove: bool,
}

/// Reads a plan from a file.
pub fn read(path: &Path) -> Result<Plan, Failure> {
    let bytes = std::fs::read(path).map_err(|error| Failure::new(path.display(), error))?;
    let wrong = |why: &dyn std::fmt::Display| {
        Failure::misuse(path.display(), why).remedy("a plan is what `weft plan --output FILE` writes")
    };
    let text = String::from_utf8(bytes).map_err(|_| wrong(&"it is not UTF-8 text"))?;
    Plan::from_toml(&text).map_err(|why| wrong(&why))
}

/// Whether nothing shows that the plan's layouts are faster than the present ones.
fn is_unproven(plan: &Plan) -> bool {
    plan.trial.is_none() && !plan.advice.is_some_and(|advice| advice.is_certain())
}

fn mapping(text: &str) -> Result<(String, String), String> {
    pair(text, "OLD=NEW")
}

/// Parses the values of `option`, which rename classes of the plan to classes of this cluster.
pub fn classes(plan: &Plan, option: &str, pairs: &[(String, String)]) -> Result<ClassRenames, Failure> {
    let planned = || plan.cluster.classes.iter().map(|class| class.name.as_str());
    match pairs.iter().find(|(class, _)| planned().all(|known| known != class)) {
        Some((class, here)) => {
            Err(Failure::misuse(format!("{option} {class}={here}"), "the plan has no such class")
                .remedy(format!("its classes: {}", planned().collect::<Vec<_>>().join(", "))))
        }
        None => Ok(pairs.iter().cloned().collect()),
    }
}

/// Parses an argument that maps a class of the plan to a class of this cluster.
pub fn renamed(text: &str) -> Result<(String, String), String> {
    pair(text, "PLANNED=HERE")
}

fn pair(text: &str, form: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').filter(|(from, to)| !from.is_empty() && !to.is_empty());
    pair.map(|(from, to)| (from.to_owned(), to.to_owned())).ok_or_else(|| format!("write {form}"))
}

/// A rule of the plan on this cluster.
struct PlacedRule {
    /// The directory that gets the rule, below the mount.
    dir: String,
    /// Path of the files below the mount. `*` is a number.
    path: String,
    pattern: Pattern,
    layout: ClassLayout,
    /// Number of files in the trace.
    files: u64,
    /// Remarks about the layout on this cluster.
    notes: Vec<String>,
}

impl Apply {
    /// Runs the command.
    pub fn run(self, file: Option<PathBuf>) -> Result<u8, Failure> {
        let plan = read(&self.plan)?;
        let weft = Weft::open(file)?;
        if !self.remove {
            if let Some(trial) = &plan.trial {
                outln!("tried: {trial}");
            }
            if plan.rules.is_empty() {
                classes(&plan, "--class", &self.classes)?;
                outln!("the plan changes no layout: files keep their layouts");
                return Ok(0);
            }
            if is_unproven(&plan) {
                errln!(
                    "weft: {}: the plan was not tried and its predicted gain is not certain, so its layouts may be slower; \
                     `weft plan TRACE --try` tries them",
                    self.plan.display()
                );
            }
        }
        let (placed, elsewhere) = self.place_rules(&weft, &plan)?;
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
                None => "give --map OLD=NEW or --under DIR".to_owned(),
            };
            return Err(Failure::misuse(self.plan.display(), why).remedy(remedy));
        }
        for path in &elsewhere {
            errln!("{path} is not below {} and is left out: give --map", weft.cluster.mount.display());
        }
        if self.remove {
            return self.remove_rules(&weft, &placed);
        }
        self.set(&weft, &placed)?;
        print_reservations(&weft);
        let found = files::ExistingFiles::of(&weft, &placed, self.dry_run)?;
        found.show(&weft, self.dry_run);
        Ok(0)
    }

    /// Returns the rules of the plan, and the paths that are not on Weft.
    fn place_rules(&self, weft: &Weft, plan: &Plan) -> Result<(Vec<PlacedRule>, Vec<String>), Failure> {
        let mapping = match &self.under {
            Some(under) => {
                let common = paths::common(plan.rules.iter().map(|rule| rule.path.0.as_str()));
                Mapping::new([(common, PathRule::of(weft.inside(under)?).0)])
            }
            None => {
                let one = |(old, new): &(String, String)| Ok((old.clone(), weft.inside(new)?.to_owned()));
                Mapping::new(self.map.iter().map(one).collect::<Result<Vec<_>, Failure>>()?)
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
            placed.push(PlacedRule {
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

    /// Returns the directory that gets the rule for a path.
    fn directory(&self, weft: &Weft, inside: &str) -> Result<String, Failure> {
        if let Some(under) = &self.under {
            let under = weft.inside(under)?.trim_end_matches('/');
            return match weft.kind(under, true)? {
                Some(FileType::Directory) => Ok(PathRule::of(under).0),
                Some(_) => Err(Failure::misuse(weft.shown(under), "it is not a directory")),
                None => Err(Failure::misuse(weft.shown(under), "there is no such directory")
                    .remedy(format!("create it: weft mkdir -p {}", weft.shown(under)))),
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

    /// Sets the rules of each directory and prints them.
    fn set(&self, weft: &Weft, placed: &[PlacedRule]) -> Result<(), Failure> {
        let mut dirs: BTreeMap<&str, Vec<&PlacedRule>> = BTreeMap::new();
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
                let layout = layout_arguments::by_class(&rule.layout);
                table.row([String::new(), rule.pattern.to_string(), layout, traced]);
                // With rules by names only, the first one with a pattern applies.
                if add.iter().all(|other| other.pattern != rule.pattern) {
                    let layout = LayoutSpec { by_class: Some(rule.layout.clone()), ..LayoutSpec::default() };
                    add.push(Rule { pattern: rule.pattern.clone(), layout });
                }
            }
            out!("{}", table.render());
            if !self.dry_run {
                layout_arguments::keep_compression(weft, dir, &mut add)?;
                weft.at(dir, true, |place| {
                    block_on(weft.client.change_rules(place, RuleRemoval::Replaced, add.clone()))
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

    /// Removes the plan's rules from all directories above its files.
    fn remove_rules(&self, weft: &Weft, placed: &[PlacedRule]) -> Result<u8, Failure> {
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
                    block_on(weft.client.change_rules(
                        place,
                        RuleRemoval::These(patterns.clone()),
                        Vec::new(),
                    ))
                })?;
            }
        }
        if self.dry_run {
            outln!("nothing was removed (--dry-run)");
        }
        Ok(0)
    }
}

/// Returns the mount path that a cluster of this name had in the trace, if a path of the trace is below it.
fn mount_of(weft: &Weft, path: &str) -> Option<String> {
    let above = |at: &str| path.strip_prefix(at).is_some_and(|rest| rest.starts_with('/'));
    super::mount::of(&weft.cluster).into_iter().find(|at| above(at))
}

/// Returns the space reservations of targets with limited capacity.
fn reservations(weft: &Weft) -> Vec<SpaceReservation> {
    let status = block_on(weft.client.status(weft.cluster.map().metadata));
    status.ok().and_then(|status| status.metadata).map(|found| found.space_reservations).unwrap_or_default()
}

/// Prints the capacity that is left on limited targets.
fn print_reservations(weft: &Weft) {
    let describe = |reservation: &SpaceReservation| {
        let left = reservation.capacity.0.saturating_sub(reservation.reserved.0);
        format!(
            "target {} has {} of {} left",
            reservation.target.0,
            human_bytes(left),
            human_bytes(reservation.capacity.0)
        )
    };
    let reservations: Vec<String> = reservations(weft).iter().map(describe).collect();
    if !reservations.is_empty() {
        outln!("reserved: {}", reservations.join("; "));
    }
}
