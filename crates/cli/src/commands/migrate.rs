//! `weft migrate`: files get other layouts while programs use them.

mod status;

use super::bytes;
use super::session::Weft;
use super::wanted::LayoutArgs;
use crate::failure::{FAILED, Failure};
use crate::signals::Blocked;
use crate::table::human;
use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::collections::BTreeSet;
use std::io::IsTerminal;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use weft_client::{MoveOptions, MoveOutcome, MoveProgress, MoveReport};
use weft_core::parts::RoomLeft;
use weft_core::{ByteLen, FileId, Layout, Nanos};
use weft_env::real::block_on;
use weft_planner::Plan;
use weft_planner::live::Renamed;
use weft_wire::meta::{Attr, FileType, LayoutSpec};

/// Exit code of a command that a signal stopped.
pub const INTERRUPTED: u8 = 130;
/// A move that takes longer gets a progress bar.
const PROGRESS_AFTER: Duration = Duration::from_millis(500);

/// Whether somebody wants it to stop.
pub static STOP: AtomicBool = AtomicBool::new(false);

const AFTER: &str = "\
Programs may have the files open, read, write, cut, rename and remove them all the time: they notice nothing but, at the
end of each file's move, a pause of some milliseconds. Size, times, owner, mode, names and attributes stay as they are, and
holes stay holes. A file that has the layout already is left alone.

Without a layout each file gets the one that a new file of its name would get: by the first rule that fits, the
directory's default, the cluster file. So `weft setstripe` or `weft apply` on a directory and then `weft migrate -r`
bring what is there in line. What options leave open is decided in the same way. With --plan each file gets the layout of
the first rule of the plan that fits its path, and files without one are left alone.

While a file is moved its bytes take room twice. A move that was stopped, by a signal or a crash, leaves the file as it
was; the same command later goes on where it was when nobody has opened the file for writing in between, and begins anew
otherwise. --forget gives such a move up and frees its room; removing the file does, too.

Owner and root may move a file. One that is written faster than it can be copied stays where it is.

--status shows the moves that are under way, whoever began them and also in the background, and those that were stopped:
of root all, of others those of their files. Paths keep to what lies there and below.

Exit codes:
  0    all files have their layouts; with --status there is no move
  1    some do not; standard error says which, and why
  2    wrong arguments, plan or cluster file
  3    with --status: moves are under way
  4    with --status: moves were stopped and wait for somebody to go on with them
  130  stopped by a signal

Examples:
  weft migrate --class ssd /weft/hot.dat
  weft migrate -r --rate 200M /weft/results        as new files there would be
  weft migrate -r --plan plan.toml /weft/results
  weft migrate -r --rate 50M --background move.log /weft/results
  weft migrate --status
  weft migrate -r --part ssd=1M@4G --part hdd=4M --dry-run /weft/results";

/// Moves files to other layouts while programs use them.
#[derive(Args)]
#[command(after_long_help = AFTER)]
pub struct Migrate {
    #[command(flatten)]
    layout: LayoutArgs,
    /// Layouts of a plan
    #[arg(long, value_name = "PLAN", conflicts_with_all = ["count", "size", "index", "class", "parts"])]
    plan: Option<PathBuf>,
    /// A class of the plan by its name here; several times
    #[arg(long = "class-here", value_name = "PLANNED=HERE", value_parser = super::apply::renamed, requires = "plan")]
    renamed: Vec<(String, String)>,
    /// Directories with all files in and below them
    #[arg(short = 'r', short_alias = 'R', long)]
    recursive: bool,
    /// Bytes a second at the most; K, M, G are powers of 1024
    #[arg(long, value_name = "SIZE", value_parser = super::rate)]
    rate: Option<ByteLen>,
    /// Read everything back that was copied, and compare
    #[arg(long)]
    verify: bool,
    /// Only show which files would get which layout
    #[arg(short = 'n', long, conflicts_with = "forget")]
    dry_run: bool,
    /// Give up moves that were stopped, and free their room
    #[arg(long, conflicts_with_all = ["plan", "count", "size", "index", "class", "parts", "verify", "rate"])]
    forget: bool,
    /// Show the moves that are under way, and those that were stopped
    #[arg(long, conflicts_with_all = ["plan", "count", "size", "index", "class", "parts", "recursive", "rate", "verify",
        "dry_run", "forget", "background", "verbose", "quiet"])]
    status: bool,
    /// The same as JSON
    #[arg(long, requires = "status")]
    json: bool,
    /// Go on in the background, in a process of its own that ends by SIGTERM at a good place; what it does and what goes
    /// wrong is told in this file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["dry_run", "quiet"])]
    background: Option<PathBuf>,
    /// Tell of each file that was moved
    #[arg(short = 'v', long, conflicts_with = "quiet", overrides_with = "verbose")]
    verbose: bool,
    /// Neither progress nor what was done
    #[arg(short = 'q', long)]
    quiet: bool,
    /// Files, and directories with -r
    #[arg(required_unless_present = "status", value_parser = bytes::argument())]
    paths: Vec<String>,
}

/// Which layout each file is to get.
enum Wanted {
    Same(LayoutSpec),
    /// A plan, what its classes are called here, and where the cluster is mounted.
    Plan(Box<Plan>, Renamed, Vec<String>),
}

impl Wanted {
    fn read(weft: &Weft, options: &Migrate) -> Result<Self, Failure> {
        let Some(path) = &options.plan else { return options.layout.spec(weft).map(Self::Same) };
        let plan = super::apply::read(path)?;
        let renamed = super::apply::classes(&plan, "--class-here", &options.renamed)?;
        Ok(Self::Plan(Box::new(plan), renamed, super::mount::of(&weft.cluster)))
    }

    /// For a file; `None` leaves it alone.
    fn of(&self, weft: &Weft, inside: &str) -> Result<Option<LayoutSpec>, Failure> {
        match self {
            Self::Same(spec) => Ok(Some(spec.clone())),
            Self::Plan(plan, renamed, mounts) => {
                // A plan's paths may be those of the traced programs, begin at the mount, or have been seen on one.
                let shown = weft.shown(inside);
                let names = [shown.clone(), format!("/{inside}"), inside.to_owned()];
                let mounted = mounts.iter().map(|at| format!("{at}/{inside}"));
                let rule = names.into_iter().chain(mounted).find_map(|path| plan.rule(&path));
                let Some(rule) = rule else { return Ok(None) };
                let map = weft.cluster.map();
                let by_class = plan.by_class(rule, &map.candidates(), renamed);
                let (layout, _) = by_class.map_err(|error| Failure::misuse(shown, error))?;
                Ok(Some(LayoutSpec { by_class: Some(layout), ..LayoutSpec::default() }))
            }
        }
    }
}

/// What has been done.
#[derive(Default)]
struct Sum {
    moved: u64,
    alone: u64,
    /// Of these, those for which the plan has no rule.
    unplanned: u64,
    /// Whether it has one for any, whatever came of that.
    planned: bool,
    /// Files that have less room than the plan gives them.
    short: u64,
    bytes: u64,
    failed: bool,
}

/// The files of a command, one after the other.
struct Course<'a> {
    asked: &'a Migrate,
    weft: &'a Weft,
    wanted: Wanted,
    bar: ProgressBar,
    sum: Sum,
    /// Files that have several names.
    seen: BTreeSet<FileId>,
}

impl Migrate {
    /// Moves one file after the other.
    pub fn run(self, file: Option<PathBuf>) -> Result<u8, Failure> {
        if self.status {
            return status::show(&Weft::open(file)?, &self.paths, self.json);
        }
        if let Some(log) = &self.background {
            return in_background(log);
        }
        stop_on_signals();
        let weft = Weft::open(file)?;
        let wanted = Wanted::read(&weft, &self)?;
        let mut course = Course {
            asked: &self,
            weft: &weft,
            wanted,
            bar: bar(self.quiet),
            sum: Sum::default(),
            seen: BTreeSet::new(),
        };
        for path in &self.paths {
            let inside = weft.inside(path).trim_end_matches('/').to_owned();
            // Links on the command line are followed, those in directories are not.
            let result = course.any(&inside, true);
            course.tell(result);
        }
        course.bar.finish_and_clear();
        let sum = course.sum;
        if STOP.load(Ordering::Relaxed) {
            eprintln!("weft: stopped; the same command goes on where it was");
            return Ok(INTERRUPTED);
        }
        if !self.quiet && !self.dry_run && !self.forget {
            let copied =
                if sum.moved > 0 { format!(" ({} copied)", human(sum.bytes)) } else { String::new() };
            outln!("moved {}{copied}; {} left alone", files(sum.moved), files(sum.alone));
        }
        if sum.short > 0 {
            let has = if sum.short == 1 { "has" } else { "have" };
            eprintln!(
                "weft: {} {has} less than the plan gives: there was no more room; `weft df` shows what is promised",
                files(sum.short)
            );
        }
        if let Some(plan) = self.plan.as_ref().filter(|_| sum.unplanned > 0 && !sum.planned) {
            let quoted = super::quoted_path(plan);
            let plan = plan.display();
            eprintln!(
                "weft: {plan} has no rule for any of them; where its files are elsewhere than in the trace, \
                 `weft apply {quoted} --map OLD=NEW` makes rules of it, by which `weft migrate` goes without --plan"
            );
        }
        Ok(if sum.failed { FAILED } else { 0 })
    }
}

impl Course<'_> {
    /// Moves what is there, and with `-r` what is below it.
    fn any(&mut self, inside: &str, follow: bool) -> Result<(), Failure> {
        let weft = self.weft;
        if STOP.load(Ordering::Relaxed) {
            return Ok(());
        }
        let attr = weft.stat(inside, follow)?;
        match attr.kind {
            FileType::Directory if !self.asked.recursive => {
                Err(Failure::new(weft.shown(inside), "this is a directory")
                    .remedy("-r moves all files in and below it"))
            }
            FileType::Directory => {
                let mut names = Vec::new();
                weft.list(inside, false, |entry| {
                    if matches!(entry.kind, FileType::Directory | FileType::Regular) {
                        names.push(bytes::text(&entry.name));
                    }
                    Ok(())
                })?;
                for name in names {
                    let below = super::session::join(inside, &name);
                    let result = self.any(&below, false);
                    // What somebody removed meanwhile needs no other layout.
                    let is_gone =
                        result.is_err() && weft.look(&below, false).is_ok_and(|found| found.is_none());
                    if !is_gone {
                        self.tell(result);
                    }
                }
                Ok(())
            }
            FileType::Regular => self.file(inside, &attr),
            // Only what was named is looked at that is neither.
            _ => Err(Failure::new(weft.shown(inside), "this is neither a file nor a directory")),
        }
    }

    fn file(&mut self, inside: &str, attr: &Attr) -> Result<(), Failure> {
        let Course { asked, weft, wanted, bar, sum, seen } = self;
        if asked.forget {
            return weft.at(inside, true, |place| block_on(weft.client.forget_move(place)));
        }
        let Some(spec) = wanted.of(weft, inside)? else {
            sum.alone += 1;
            sum.unplanned += 1;
            return Ok(());
        };
        sum.planned = true;
        // By the first of its names that is to have a layout.
        if attr.nlink > 1 && !seen.insert(attr.file) {
            return Ok(());
        }
        let shown = weft.shown(inside);
        if asked.dry_run {
            let has = weft.at(inside, true, |place| block_on(weft.client.get_layout(place)))?.0;
            let gets = weft.at(inside, true, |place| block_on(weft.client.layout_if_moved(place, &spec)))?;
            match has.as_ref() == Some(&gets) {
                true => outln!("{shown}: has it"),
                false => {
                    outln!("{shown}: {} -> {}", one_line(weft, has.as_ref()), one_line(weft, Some(&gets)))
                }
            }
            return Ok(());
        }
        let layout = || Ok::<_, Failure>(weft.at(inside, true, |at| block_on(weft.client.get_layout(at)))?.0);
        // What the plan gives it where there is room enough.
        let planned = spec.by_class.as_ref().filter(|_| asked.plan.is_some());
        let whole = planned.and_then(|planned| {
            planned
                .place(
                    &weft.cluster.map().candidates(),
                    &RoomLeft::new(),
                    weft_server::metadata::placed_as(attr.file),
                )
                .ok()
        });
        let before = layout()?;
        let mut outcome = moved(weft, inside, &spec, asked, bar)?;
        // Until it had moved its old parts had their room, too, which may have been what it needed.
        if let MoveOutcome::Moved(first) = outcome
            && before.is_some_and(|before| !before.promises().is_empty())
            && !STOP.load(Ordering::Relaxed)
            && gets_more(weft, inside, &spec, whole.as_ref())?
            && let MoveOutcome::Moved(again) = moved(weft, inside, &spec, asked, bar)?
        {
            let (copied, paused) = (first.copied.0 + again.copied.0, first.paused.0 + again.paused.0);
            outcome =
                MoveOutcome::Moved(MoveReport { copied: ByteLen(copied), paused: Nanos(paused), ..again });
        }
        if let (Some(has), Some(whole)) = (layout()?, whole) {
            sum.short += u64::from(has != whole && has.is_short_of(&whole));
        }
        match outcome {
            MoveOutcome::Moved(report) => {
                sum.moved += 1;
                sum.bytes += report.copied.0;
                if asked.verbose {
                    let (size, paused) = (human(report.size.0), report.paused.0 as f64 / 1e6);
                    bar.suspend(|| outln!("{shown}: {size}, moved; others waited {paused:.1} ms"));
                }
            }
            MoveOutcome::Already => sum.alone += 1,
            MoveOutcome::Stopped => {}
        }
        Ok(())
    }

    /// Prints what went wrong; the next file may go well.
    fn tell(&mut self, result: Result<(), Failure>) {
        if let Err(failure) = result {
            self.sum.failed = true;
            self.bar.suspend(|| eprintln!("{failure}"));
        }
    }
}

/// Moves a file, whose name stands at the bar.
fn moved(
    weft: &Weft,
    inside: &str,
    spec: &LayoutSpec,
    asked: &Migrate,
    bar: &ProgressBar,
) -> Result<MoveOutcome, Failure> {
    let shown = weft.shown(inside);
    bar.set_message(shown.clone());
    bar.set_position(0);
    let options = MoveOptions { rate: asked.rate, verify: asked.verify, ..MoveOptions::default() };
    weft.at(inside, true, |place| {
        let mut go_on = |at: MoveProgress| {
            bar.set_length(at.of.0);
            bar.set_position(at.done.0);
            if at.round > 1 {
                bar.set_message(format!("{shown} (what was changed meanwhile)"));
            }
            !STOP.load(Ordering::Relaxed)
        };
        block_on(weft.client.migrate(place, spec, options, &mut go_on))
    })
}

/// Whether a file that was moved, and has all that it can if that is `whole`, gets more room if it is moved once more. What
/// its old parts had is free when their datafiles are gone, which is a matter of milliseconds.
fn gets_more(weft: &Weft, inside: &str, spec: &LayoutSpec, whole: Option<&Layout>) -> Result<bool, Failure> {
    let has = weft.at(inside, true, |place| block_on(weft.client.get_layout(place)))?.0;
    if has.as_ref() == whole {
        return Ok(false);
    }
    for _ in 0..5 {
        std::thread::sleep(Duration::from_millis(20));
        let gets = weft.at(inside, true, |place| block_on(weft.client.layout_if_moved(place, spec)))?;
        if has.as_ref() != Some(&gets) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Starts the same command again, apart from this terminal.
fn in_background(log: &Path) -> Result<u8, Failure> {
    let failed = |error: std::io::Error| Failure::new(log.display(), error);
    let out = crate::logging::append(log).map_err(failed)?;
    let error = out.try_clone().map_err(failed)?;
    let mut command = Command::new(std::env::current_exe().map_err(failed)?);
    let mut arguments = std::env::args_os().skip(1);
    let mut told = false;
    while let Some(argument) = arguments.next() {
        match argument.to_str() {
            // What follows are paths.
            Some("--") => {
                command.arg(argument).args(arguments.by_ref());
                break;
            }
            Some("--background") => drop(arguments.next()),
            Some(text) if text.starts_with("--background=") => {}
            Some("migrate") if !std::mem::replace(&mut told, true) => {
                command.args(["migrate", "--verbose"]);
            }
            _ => drop(command.arg(argument)),
        }
    }
    command.env_remove("LD_PRELOAD").stdin(Stdio::null()).stdout(out).stderr(error);
    // SAFETY: setsid is safe between fork and exec.
    unsafe {
        command.pre_exec(|| {
            libc::setsid();
            Ok(())
        });
    }
    let child = command.spawn().map_err(failed)?;
    outln!("process {} moves; `kill {0}` stops it at a good place; see {}", child.id(), log.display());
    Ok(0)
}

pub fn files(count: u64) -> String {
    if count == 1 { "1 file".to_owned() } else { format!("{count} files") }
}

/// A layout for people.
fn one_line(weft: &Weft, layout: Option<&Layout>) -> String {
    let Some(layout) = layout else { return "none".to_owned() };
    let map = weft.cluster.map();
    let strip = |strip: &weft_core::Strip| {
        let entry = map.targets.iter().find(|entry| entry.id == strip.target);
        let class = entry.map_or("?", |entry| entry.class.as_str());
        format!("{class} {} x {}", strip.target.0, weft_config::format_size(strip.stripe_size))
    };
    let part = |part: &weft_core::Component| {
        let strips: Vec<String> = part.strips.iter().map(strip).collect();
        let to = part.end.map(|end| format!("to {}: ", weft_config::format_size(ByteLen(end.0))));
        to.unwrap_or_default() + &strips.join(", ")
    };
    layout.components().iter().map(part).collect::<Vec<_>>().join("; ")
}

/// The first signal has the move end at a good place, the second ends the process.
pub fn stop_on_signals() {
    let signals = Blocked::new(&[libc::SIGINT, libc::SIGTERM, libc::SIGHUP]);
    std::thread::spawn(move || {
        signals.wait();
        STOP.store(true, Ordering::Relaxed);
        signals.wait();
        std::process::exit(i32::from(INTERRUPTED));
    });
}

/// Hidden until a move has taken a while, and where nobody looks.
pub fn bar(quiet: bool) -> ProgressBar {
    if quiet || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{wide_msg} {bytes}/{total_bytes} {binary_bytes_per_sec} {eta}");
    let bar = ProgressBar::new(0);
    bar.set_draw_target(ProgressDrawTarget::hidden());
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let late = bar.clone();
    std::thread::spawn(move || {
        std::thread::sleep(PROGRESS_AFTER);
        if !late.is_finished() {
            late.set_draw_target(ProgressDrawTarget::stderr());
        }
    });
    bar
}
