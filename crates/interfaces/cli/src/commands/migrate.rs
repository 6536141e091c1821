//! `weft migrate`: moves files to other layouts while programs use them.

mod status;

use super::agent::{self, Job, WeftCommand, Work};
use super::bytes;
use super::layout_arguments::{self, LayoutArgs};
use super::session::Weft;
use super::stripe;
use crate::args;
use crate::commands::agent::print_progress;
use crate::failure::{FAILED, Failure};
use crate::signals::Blocked;
use clap::{Args, Parser};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::collections::BTreeSet;
use std::io::IsTerminal;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use weft_client::{MoveOptions, MoveOutcome, MoveProgress, MoveReport};
use weft_core::parts::SpaceLeft;
use weft_core::units::human_bytes;
use weft_core::{ByteLen, COMPRESSION_ATTRIBUTE, CompressionSetting, FileId, Layout, Nanos};
use weft_env::real::block_on;
use weft_planner::Plan;
use weft_planner::live::ClassRenames;
use weft_wire::meta::{Attr, FileType, LayoutSpec};

/// Exit code of a command that was stopped by a signal.
pub const INTERRUPTED: u8 = 130;
/// Duration after which a move shows a progress bar.
const PROGRESS_AFTER: Duration = Duration::from_millis(500);

/// Set when a signal asks the command to stop.
pub static STOP: AtomicBool = AtomicBool::new(false);

const AFTER: &str = "\
Programs may open, read, write, truncate, rename and remove the files at any time. They only notice a pause of some
milliseconds at the end of each file's move. Size, times, owner, mode, names and attributes stay, and holes stay
holes. A file that already has the layout is left alone.

Without layout options, each file gets the layout of a new file with its name: from the first rule that matches, the
directory's default, or the cluster file. So `weft migrate -r` after `weft setstripe` or `weft apply` on a directory
moves existing files to the new layout. Properties that the options leave open are decided in the same way. With
--plan, each file gets the layout of the plan's first rule that matches its path. Files without a rule are left alone.

--compress converts files: to compressed ones, to another codec or length of chunks, or with off to plain ones. Without
other layout options, they keep their layouts. Without --compress, they keep their compression.

During a move, the file's bytes take twice the space. A move that a signal or a crash stops leaves the file as it was.
The same command later resumes the move, unless the file was opened for writing since; then it starts over. --forget
discards a stopped move and frees its space. Removing the file does so, too.

Only the owner and root may move a file. A file that is written faster than it can be copied is not moved.

--background puts the moves into the queue of the agent, which resumes them after a crash; `weft agent status` shows
them. A plan file must stay until they are done.

--status shows all active moves, including those of other commands and in the background, and stopped moves. Root sees
all, other users those of their own files. Paths limit the list to these paths and everything below.

Exit codes:
  0    all files have their layouts; with --status: there is no move
  1    some files do not; standard error says which and why
  2    wrong arguments, plan or cluster file
  3    with --status: moves are active
  4    with --status: moves are stopped and can be resumed
  130  stopped by a signal

Examples:
  weft migrate --class ssd /weft/hot.dat
  weft migrate -r --rate 200M /weft/results        the layouts of new files there
  weft migrate -r --compress zstd /weft/results    compress the files there
  weft migrate -r --plan plan.toml /weft/results
  weft migrate -r --rate 50M --background /weft/results
  weft migrate --status
  weft migrate -r --part ssd=1M@4G --part hdd=4M --dry-run /weft/results";

/// Moves files to other layouts while programs use them.
#[derive(Args)]
#[command(after_long_help = AFTER)]
pub struct Migrate {
    #[command(flatten)]
    layout: LayoutArgs,
    /// Use the layouts of this plan
    #[arg(long, value_name = "PLAN", conflicts_with_all = ["count", "size", "index", "class", "parts"])]
    plan: Option<PathBuf>,
    /// The name of a class of the plan on this cluster; repeatable
    #[arg(long = "class-here", value_name = "PLANNED=HERE", value_parser = super::apply::renamed, requires = "plan")]
    renamed: Vec<(String, String)>,
    /// Move all files in and below directories
    #[arg(short = 'r', short_alias = 'R', long)]
    recursive: bool,
    /// At most this many bytes per second; K, M, G are powers of 1024
    #[arg(long, value_name = "SIZE", value_parser = super::rate)]
    rate: Option<ByteLen>,
    /// Read back and compare everything that was copied
    #[arg(long)]
    verify: bool,
    /// Only show which files would get which layout
    #[arg(short = 'n', long, conflicts_with = "forget")]
    dry_run: bool,
    /// Discard the state of stopped moves, and free their space
    #[arg(long, conflicts_with_all = ["plan", "count", "size", "index", "class", "parts", "compress", "verify", "rate"])]
    forget: bool,
    /// Show active and stopped moves
    #[arg(long, conflicts_with_all = ["plan", "count", "size", "index", "class", "parts", "compress", "recursive",
        "rate", "verify", "dry_run", "forget", "background", "verbose", "quiet"])]
    status: bool,
    /// Print the status as JSON
    #[arg(long, requires = "status")]
    json: bool,
    /// Leave the moves to the agent (see `weft help agent`)
    #[arg(long, conflicts_with_all = ["dry_run", "quiet", "verbose", "forget"])]
    background: bool,
    /// Print the progress of each move as two numbers, bytes done and all bytes
    #[arg(long, hide = true, conflicts_with_all = ["background", "status", "forget", "dry_run", "verbose"])]
    report: bool,
    /// Copy only while the disks of the old and the new targets are idle
    #[arg(long, hide = true, conflicts_with_all = ["rate", "background", "status", "forget"])]
    idle: bool,
    /// Print each file that was moved
    #[arg(short = 'v', long, conflicts_with = "quiet", overrides_with = "verbose")]
    verbose: bool,
    /// Print neither progress nor a summary
    #[arg(short = 'q', long)]
    quiet: bool,
    /// Files, and directories with -r
    #[arg(required_unless_present = "status", value_parser = bytes::argument())]
    paths: Vec<String>,
}

/// Layouts of the files to move.
enum LayoutSource {
    Same(LayoutSpec),
    /// The present layout of each file, with this compression.
    Present(CompressionSetting),
    /// A plan, what its classes are called here, where the cluster is mounted, and the compression.
    Plan(Box<Plan>, ClassRenames, Vec<String>, Option<CompressionSetting>),
}

impl LayoutSource {
    fn read(weft: &Weft, options: &Migrate) -> Result<Self, Failure> {
        let spec = options.layout.spec(weft)?;
        let Some(path) = &options.plan else {
            return Ok(match spec.compression {
                Some(setting) if layout_arguments::leaves_striping_open(&spec) => Self::Present(setting),
                _ => Self::Same(spec),
            });
        };
        let plan = super::apply::read(path)?;
        let renamed = super::apply::classes(&plan, "--class-here", &options.renamed)?;
        Ok(Self::Plan(Box::new(plan), renamed, super::mount::of(&weft.cluster), spec.compression))
    }

    /// Returns the new layout of a file, or `None` to leave the file alone.
    fn of(&self, weft: &Weft, inside: &str) -> Result<Option<LayoutSpec>, Failure> {
        match self {
            Self::Same(spec) => Ok(Some(spec.clone())),
            Self::Present(setting) => {
                let (layout, _) = weft.at(inside, true, |place| block_on(weft.client.get_layout(place)))?;
                let exactly =
                    |layout| LayoutSpec { compression: Some(*setting), ..LayoutSpec::exactly(layout) };
                Ok(layout.as_ref().map(exactly))
            }
            Self::Plan(plan, renamed, mounts, compression) => {
                // Paths of a plan may come from traced programs, begin at the prefix, or come from a mount.
                let shown = weft.shown(inside);
                let names = [shown.clone(), format!("/{inside}"), inside.to_owned()];
                let mounted = mounts.iter().map(|at| format!("{at}/{inside}"));
                let rule = names.into_iter().chain(mounted).find_map(|path| plan.rule(&path));
                let Some(rule) = rule else { return Ok(None) };
                let map = weft.cluster.map();
                let by_class = plan.by_class(rule, &map.candidates(), renamed);
                let (layout, _) = by_class.map_err(|error| Failure::misuse(shown, error))?;
                let compression = *compression;
                Ok(Some(LayoutSpec { by_class: Some(layout), compression, ..LayoutSpec::default() }))
            }
        }
    }
}

/// Counts of the command.
#[derive(Default)]
struct Sum {
    moved: u64,
    alone: u64,
    /// Number of files left alone for which the plan has no rule.
    unplanned: u64,
    /// Whether the plan has a rule for any of the files.
    planned: bool,
    /// Number of files that have less capacity than the plan gives them.
    short: u64,
    bytes: u64,
    failed: bool,
}

/// State of the command while it moves one file after the other.
struct MoveRun<'a> {
    options: &'a Migrate,
    weft: &'a Weft,
    layouts: LayoutSource,
    bar: ProgressBar,
    sum: Sum,
    /// Files with several names that were seen already.
    seen: BTreeSet<FileId>,
}

impl Migrate {
    /// Runs the command.
    pub fn run(self, file: Option<PathBuf>) -> Result<u8, Failure> {
        if self.status {
            return status::show(&Weft::open(file)?, &self.paths, self.json);
        }
        if self.background {
            return self.queue(file);
        }
        stop_on_signals();
        let weft = Weft::open_for_transfer(file)?;
        let layouts = LayoutSource::read(&weft, &self)?;
        if let LayoutSource::Plan(plan, ..) = &layouts
            && plan.rules.is_empty()
        {
            outln!("the plan changes no layout: files keep their layouts");
            return Ok(0);
        }
        let mut run = MoveRun {
            options: &self,
            weft: &weft,
            layouts,
            bar: bar(self.quiet),
            sum: Sum::default(),
            seen: BTreeSet::new(),
        };
        for path in &self.paths {
            let inside = weft.inside(path)?.trim_end_matches('/').to_owned();
            // Links on the command line are followed, those in directories are not.
            let result = run.any(&inside, true);
            run.print_error(result);
        }
        run.bar.finish_and_clear();
        let sum = run.sum;
        if STOP.load(Ordering::Relaxed) {
            errln!("weft: stopped; run the same command to resume");
            return Ok(INTERRUPTED);
        }
        if !self.quiet && !self.dry_run && !self.forget {
            let copied =
                if sum.moved > 0 { format!(" ({} copied)", human_bytes(sum.bytes)) } else { String::new() };
            outln!("moved {}{copied}; {} left alone", files(sum.moved), files(sum.alone));
        }
        if sum.short > 0 {
            let has = if sum.short == 1 { "has" } else { "have" };
            errln!(
                "weft: {} {has} less than the plan gives, because capacity ran out; `weft df` shows the reserved space",
                files(sum.short)
            );
        }
        if let Some(plan) = self.plan.as_ref().filter(|_| sum.unplanned > 0 && !sum.planned) {
            let quoted = super::quoted_path(plan);
            let plan = plan.display();
            errln!(
                "weft: {plan} has no rule for any of them; where its files are elsewhere than in the trace, \
                 `weft apply {quoted} --map OLD=NEW` makes rules of it, by which `weft migrate` goes without --plan"
            );
        }
        Ok(if sum.failed { FAILED } else { 0 })
    }
}

impl Migrate {
    /// Queues the moves for the agent, after the checks that are possible now.
    fn queue(&self, file: Option<PathBuf>) -> Result<u8, Failure> {
        let weft = Weft::open(file)?;
        LayoutSource::read(&weft, self)?;
        let plan = self.plan.as_deref().map(agent::absolute).transpose()?;
        let options = self.options(plan);
        let mut jobs = Vec::new();
        for path in &self.paths {
            let inside = weft.inside(path)?.trim_end_matches('/');
            if weft.stat(inside, true)?.kind == FileType::Directory && !self.recursive {
                return Err(self.is_directory(&weft, inside));
            }
            let command = WeftCommand::Migrate(options.clone());
            jobs.push(Job::new(Work::on_weft(&weft.cluster, weft.shown(inside), command)?, self.rate));
        }
        agent::queue_jobs(&jobs)?;
        Ok(0)
    }

    /// Returns the options of the agent's command, as escaped text.
    fn options(&self, plan: Option<PathBuf>) -> Vec<String> {
        let text = |option: String| bytes::text(option.as_bytes());
        let mut options: Vec<String> = self.layout.options().into_iter().map(text).collect();
        options.extend(plan.map(|plan| format!("--plan={}", bytes::text(plan.as_os_str().as_bytes()))));
        options.extend(
            self.renamed.iter().map(|(planned, here)| text(format!("--class-here={planned}={here}"))),
        );
        options.extend(self.recursive.then(|| "--recursive".to_owned()));
        options.extend(self.verify.then(|| "--verify".to_owned()));
        options
    }

    fn is_directory(&self, weft: &Weft, inside: &str) -> Failure {
        Failure::new(weft.shown(inside), "this is a directory").remedy("-r moves all files in and below it")
    }
}

/// Checks the options of a queued move, as [`Migrate`] gives them to the agent.
pub fn check_queued(options: &[String], path: &str) -> Result<(), String> {
    let words = options.iter().map(|option| bytes::local(option).into_os_string());
    let command = ["weft", "migrate"].map(Into::into).into_iter().chain(words);
    let command = command.chain(["--".into(), bytes::local(path).into_os_string()]);
    let parsed = args::Weft::try_parse_from(command);
    let is_move = matches!(
        parsed,
        Ok(args::Weft { cluster: None, command: args::Command::Migrate(ref migrate) })
            if migrate.paths.len() == 1
                && !(migrate.status || migrate.forget || migrate.dry_run || migrate.background)
                && !(migrate.report || migrate.verbose || migrate.quiet || migrate.rate.is_some() || migrate.idle)
    );
    if is_move {
        Ok(())
    } else {
        Err(format!("options {options:?} are not those of a move in the background"))
    }
}

impl MoveRun<'_> {
    /// Moves a file or, with `-r`, everything below a directory.
    fn any(&mut self, inside: &str, follow: bool) -> Result<(), Failure> {
        let weft = self.weft;
        if STOP.load(Ordering::Relaxed) {
            return Ok(());
        }
        let attr = weft.stat(inside, follow)?;
        match attr.kind {
            FileType::Directory if !self.options.recursive => Err(self.options.is_directory(weft, inside)),
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
                    // A file that has been removed since needs no move.
                    let is_gone =
                        result.is_err() && weft.look(&below, false).is_ok_and(|found| found.is_none());
                    if !is_gone {
                        self.print_error(result);
                    }
                }
                Ok(())
            }
            FileType::Regular => self.file(inside, &attr),
            // A special file is an error only if it was named on the command line.
            _ => Err(Failure::new(weft.shown(inside), "this is neither a file nor a directory")),
        }
    }

    fn file(&mut self, inside: &str, attr: &Attr) -> Result<(), Failure> {
        let MoveRun { options, weft, layouts, bar, sum, seen } = self;
        if options.forget {
            return weft.at(inside, true, |place| block_on(weft.client.cancel_move(place)));
        }
        let Some(spec) = layouts.of(weft, inside)? else {
            sum.alone += 1;
            sum.unplanned += 1;
            return Ok(());
        };
        sum.planned = true;
        // A file with several names gets the layout of the first one that has a rule.
        if attr.nlink > 1 && !seen.insert(attr.file) {
            return Ok(());
        }
        let shown = weft.shown(inside);
        if options.dry_run {
            let has = weft.at(inside, true, |place| block_on(weft.client.get_layout(place)))?.0;
            let gets = weft.at(inside, true, |place| block_on(weft.client.layout_if_moved(place, &spec)))?;
            let moves = has.as_ref() != Some(&gets);
            let mut changes = Vec::new();
            if moves {
                changes.push(format!("{} -> {}", one_line(weft, has.as_ref()), one_line(weft, Some(&gets))));
            }
            if let Some(to) = spec.compression {
                let from = stripe::setting(weft, inside, COMPRESSION_ATTRIBUTE)?;
                let from = from.and_then(|from| from.parse().ok()).unwrap_or(CompressionSetting::Off);
                if from != to {
                    changes.push(format!("compress {from} -> {to}"));
                }
            }
            match changes.as_slice() {
                [] => outln!("{shown}: has it"),
                some => outln!("{shown}: {}", some.join("; ")),
            }
            return Ok(());
        }
        let layout = || Ok::<_, Failure>(weft.at(inside, true, |at| block_on(weft.client.get_layout(at)))?.0);
        // The plan's layout without capacity limits.
        let planned = spec.by_class.as_ref().filter(|_| options.plan.is_some());
        let whole = planned.and_then(|planned| {
            planned
                .place(
                    &weft.cluster.map().candidates(),
                    &SpaceLeft::new(),
                    weft_server::metadata::placed_as(attr.file),
                )
                .ok()
        });
        let before = layout()?;
        let mut outcome = moved(weft, inside, &spec, options, bar)?;
        // The capacity of the old layout is only released by the move, and the file may have needed it.
        if let MoveOutcome::Moved(first) = outcome
            && before.is_some_and(|before| !before.space_reservations().is_empty())
            && !STOP.load(Ordering::Relaxed)
            && gets_more(weft, inside, &spec, whole.as_ref())?
            && let MoveOutcome::Moved(again) = moved(weft, inside, &spec, options, bar)?
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
                if options.verbose {
                    let (size, paused) = (human_bytes(report.size.0), report.paused.0 as f64 / 1e6);
                    bar.suspend(|| outln!("{shown}: {size}, moved; other clients waited {paused:.1} ms"));
                }
            }
            MoveOutcome::Already => sum.alone += 1,
            MoveOutcome::Stopped => {}
        }
        Ok(())
    }

    /// Prints an error and continues with the next file.
    fn print_error(&mut self, result: Result<(), Failure>) {
        if let Err(failure) = result {
            self.sum.failed = true;
            self.bar.suspend(|| errln!("{failure}"));
        }
    }
}

/// Moves a file and shows its name at the progress bar.
fn moved(
    weft: &Weft,
    inside: &str,
    spec: &LayoutSpec,
    options: &Migrate,
    bar: &ProgressBar,
) -> Result<MoveOutcome, Failure> {
    let shown = weft.shown(inside);
    bar.set_message(shown.clone());
    bar.set_position(0);
    let report = options.report;
    let options = MoveOptions {
        rate_bytes_per_s: options.rate,
        only_while_idle: options.idle,
        verify: options.verify,
        ..MoveOptions::default()
    };
    weft.at(inside, true, |place| {
        let mut go_on = |at: MoveProgress| {
            bar.set_length(at.total.0);
            bar.set_position(at.done.0);
            if report {
                print_progress(at.done.0, at.total.0, at.is_waiting);
            }
            if at.round > 1 {
                bar.set_message(format!("{shown} (changes since the last pass)"));
            }
            !STOP.load(Ordering::Relaxed)
        };
        block_on(weft.client.migrate(place, spec, options, &mut go_on))
    })
}

/// Whether another move would give a file more capacity. `whole` is the layout with all capacity, if that is known. The
/// capacity of its old layout is free when the old datafiles are removed, some milliseconds after the move.
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

pub fn files(count: u64) -> String {
    if count == 1 { "1 file".to_owned() } else { format!("{count} files") }
}

/// Formats a layout in one line.
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

/// Makes the first signal stop the move at a safe point. The second signal ends the process.
pub fn stop_on_signals() {
    let signals = Blocked::new(&[libc::SIGINT, libc::SIGTERM, libc::SIGHUP]);
    std::thread::spawn(move || {
        signals.wait();
        STOP.store(true, Ordering::Relaxed);
        signals.wait();
        std::process::exit(i32::from(INTERRUPTED));
    });
}

/// Returns a bar that is hidden for short moves and without a terminal.
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
