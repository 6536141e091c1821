//! `weft plan --try`: replays the trace on the running cluster with the present and with the planned layouts.

mod layouts;
mod scratch;

use super::PlanArgs;
use crate::commands::replay::{worker_command, worker_environment};
use crate::commands::session::Weft;
use crate::commands::trace::Input;
use crate::embedded;
use crate::failure::Failure;
use crate::signals::{self, Blocked};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use layouts::{ScratchFiles, Side};
use scratch::Scratch;
use std::io::IsTerminal;
use weft_core::Nanos;
use weft_planner::Plan;
use weft_planner::plan::{DECIDING_PAIRS_MIN, Trial};
use weft_trace::prepared::{Prepared, Timing};
use weft_trace::replay::{self, run};
use weft_workload::Op;

/// Signals that end a trial after its files are removed.
const END_SIGNALS: [i32; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];
/// Maximum number of processes of a replay, as by default in `weft replay`.
const PROCESSES: u32 = 64;
/// Maximum number of threads of each process, as by default in `weft replay`.
const THREADS: u32 = 16;
/// Number of equal time slices of a trace, at whose ends the share to replay may end.
const SLICES: u64 = 1 << 16;

/// Options of `--try`.
#[derive(Args)]
pub struct TrialArgs {
    /// Replay the trace on the running cluster with the present and with the planned layouts, alternately
    #[arg(long = "try", conflicts_with_all = ["directory", "replicas", "verify"])]
    trial: bool,
    /// Pairs of replays; fewer than 6 decide nothing
    #[arg(long, value_name = "COUNT", default_value_t = 7, requires = "trial",
        value_parser = clap::value_parser!(u32).range(5..=1000))]
    times: u32,
    /// Replay only the requests that begin before this share of them, from 0 to 1
    #[arg(long, value_name = "FRACTION", default_value_t = 1.0, requires = "trial", value_parser = fraction)]
    try_until: f64,
}

fn fraction(text: &str) -> Result<f64, String> {
    let fraction = text.parse().ok().filter(|fraction| *fraction > 0.0 && *fraction <= 1.0);
    fraction.ok_or_else(|| "write a number above 0, up to 1, such as 0.1".to_owned())
}

impl TrialArgs {
    /// Opens the cluster of the trial, if there is to be one.
    pub(super) fn cluster(&self, file: Option<std::path::PathBuf>) -> Result<Option<Weft>, Failure> {
        if !self.trial {
            return Ok(None);
        }
        if self.times < DECIDING_PAIRS_MIN {
            errln!(
                "weft: --times {}: no difference between so few pairs is beyond chance, so no plan is kept; \
                 give at least {DECIDING_PAIRS_MIN}",
                self.times
            );
        }
        let opened = Weft::open(file);
        opened.map(Some).map_err(|failure| failure.remedy("--try needs a running cluster"))
    }
}

impl PlanArgs {
    /// Replays the trace in pairs, with the present layouts of its files and with those of `plan`.
    pub(super) fn try_plan(&self, weft: &Weft, input: &Input, plan: &Plan) -> Result<Trial, Failure> {
        let _held = embedded::hold(&weft.cluster)?;
        let (prepared, share) = self.prepare_share(input)?;
        let files = ScratchFiles::of(weft, &prepared, plan)?;
        let wanted: Vec<i32> =
            END_SIGNALS.into_iter().filter(|signal| !signals::is_ignored(*signal)).collect();
        let signals = Blocked::new(&wanted);
        let tried = self.replay_pairs(weft, &prepared, &files);
        // A signal that came during the trial ends the process here, after the scratch files were removed.
        signals.unblock();
        let (present_s, planned_s) = tried?;
        Ok(Trial { times: self.trial.times, share, present_s, planned_s })
    }

    /// Returns the seconds of each replay with the present layouts, and with the planned ones.
    fn replay_pairs(
        &self,
        weft: &Weft,
        prepared: &Prepared,
        files: &ScratchFiles,
    ) -> Result<(Vec<f64>, Vec<f64>), Failure> {
        let scratch = Scratch::new(weft)?;
        let needed = [Side::Present, Side::Planned].map(|side| files.space(weft, &scratch, side));
        let [present, planned] = needed;
        let (present, planned) = (present?, planned?);
        present.check(weft)?;
        planned.check(weft)?;
        for side in [Side::Present, Side::Planned] {
            scratch.set_rules(side, files.rules(side)?)?;
        }
        let mut options = replay::Options {
            dir: std::path::PathBuf::new(),
            processes: PROCESSES,
            threads: THREADS,
            timing: Timing::Fast,
            verify: false,
            space_limit: None,
            unlink_early: false,
            keep: false,
            sync: true,
            is_ended,
            worker: worker_command()?,
            environment: worker_environment(&weft.cluster)?,
        };
        let shown = pairs_bar(self.trial.times);
        let (mut present_s, mut planned_s) = (Vec::new(), Vec::new());
        for pair in 0..self.trial.times {
            let mut sides =
                [(Side::Present, &present, &mut present_s), (Side::Planned, &planned, &mut planned_s)];
            if pair % 2 == 1 {
                sides.reverse();
            }
            for (side, space, seconds) in sides {
                // The servers remove the datafiles of the replay before in the background.
                space.wait_until_free(weft)?;
                options.dir = scratch.replay_dir(side);
                let outcome = run(prepared, &options, |progress| {
                    shown.set_message(format!("{} layouts: {}", side.name(), progress.phase));
                });
                let outcome = outcome.map_err(|why| Failure::new("--try", why))?;
                seconds.push(outcome.tally.elapsed().get().max(1) as f64 / 1e9);
                shown.inc(1);
            }
        }
        shown.finish_and_clear();
        scratch.remove()?;
        Ok((present_s, planned_s))
    }

    /// Prepares the share of the trace that is replayed. Returns the fraction of its reads and writes, too.
    fn prepare_share(&self, input: &Input) -> Result<(Prepared, f64), Failure> {
        let whole = self.prepare(input, None)?;
        if self.trial.try_until >= 1.0 {
            return Ok((whole, 1.0));
        }
        let (until, share) = end_of_share(&whole, self.trial.try_until)?;
        Ok((self.prepare(input, Some(until))?, share))
    }
}

/// Whether a signal asks for the end of the trial.
fn is_ended() -> bool {
    signals::is_pending(&END_SIGNALS)
}

/// Returns the time of the trace before which `fraction` of all reads and writes begin, and the exact fraction.
fn end_of_share(whole: &Prepared, fraction: f64) -> Result<(Nanos, f64), Failure> {
    let (begin, end) = whole.facts.span_ns;
    let width = (end - begin) / SLICES + 1;
    let mut counts = vec![0u64; SLICES as usize];
    for rank in 0..whole.ranks() {
        let mut steps = whole.steps(rank, Timing::Fast);
        for step in steps.by_ref() {
            if matches!(step.op, Op::Read { .. } | Op::Write { .. }) {
                counts[((step.start.get() - begin) / width) as usize] += 1;
            }
        }
        steps.error().map_or(Ok(()), Err)?;
    }
    let total: u64 = counts.iter().sum();
    let (mut sum, mut slices) = (0, 0);
    for count in counts {
        sum += count;
        slices += 1;
        if sum as f64 >= fraction * total as f64 {
            break;
        }
    }
    Ok((Nanos(begin + slices * width), sum as f64 / total.max(1) as f64))
}

fn pairs_bar(pairs: u32) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:20} {pos}/{len} {wide_msg} {elapsed}");
    let bar = ProgressBar::new(2 * u64::from(pairs));
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
