//! `weft plan --verify`: tries each alternative on the twin.

use super::PlanArgs;
use super::cluster::Target;
use crate::commands::trace::{self, Input};
use crate::failure::Failure;
use crate::table::Table;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use std::collections::BTreeSet;
use std::io::IsTerminal;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use weft_core::Nanos;
use weft_core::units::human_bytes;
use weft_estimate::{IoTotals, WorkloadSlice, trial};
use weft_planner::ClassPlacement;
use weft_planner::plan::{Alternative, Planned, Rule};
use weft_trace::prepared::{self, Prepared, Timing, TraceWorkload};
use weft_twin::ClusterSpec;

/// Relative difference below which times count as equal.
pub(super) const EQUAL_WITHIN: f64 = 0.02;
/// Maximum number of concurrent twins. Each uses several hundred MiB.
const TWINS_MAX: usize = 8;

/// A layout with its times.
struct Trial<'a> {
    of: &'a Alternative,
    /// Seconds on the twin, or why the trial failed.
    seconds: Result<f64, String>,
}

/// The operations under one rule.
struct RuleTrials<'a> {
    rule: &'a Rule,
    /// Alternatives that can be tried.
    alternatives: Vec<&'a Alternative>,
    files: BTreeSet<u32>,
    /// Operations tried, and all operations.
    moved: (IoTotals, IoTotals),
    /// Distinct placements, and the index of each alternative's placement.
    placements: Vec<ClassPlacement>,
    which: Vec<usize>,
}

/// A trial: index of its rule and of the placement.
type Job = (usize, usize);

impl PlanArgs {
    /// Tries all alternatives and returns the exit code.
    pub(super) fn verify(&self, input: &Input, planned: &Planned, target: &Target) -> Result<u8, Failure> {
        let cluster = target.twin()?;
        let prepared = self.prepare(input, None)?;
        let rules = self.ruled(planned, target, &prepared)?;
        let outcomes = self.tries(&rules, cluster, target, &prepared)?;
        let (mut wrong, mut checked, mut failed) = (0, 0, 0);
        for (ruled, outcomes) in rules.iter().zip(&outcomes) {
            let tried: Vec<Trial<'_>> = ruled
                .alternatives
                .iter()
                .zip(&ruled.which)
                .map(|(of, &which)| Trial { of, seconds: outcomes[which].clone() })
                .collect();
            let verdicts = verdicts(&tried);
            wrong += verdicts.len();
            failed += usize::from(ruled.moved.1.requests > 0 && tried.iter().all(|one| one.seconds.is_err()));
            checked += usize::from(ruled.moved.1.requests > 0 && tried.iter().any(|one| one.seconds.is_ok()));
            if self.json { as_json(ruled, &tried, &verdicts) } else { as_text(ruled, &tried, &verdicts) }
        }
        if !self.json {
            match wrong {
                0 if checked == 0 && failed > 0 => outln!("\nno layout could be tried"),
                0 if checked == 0 => outln!("\nno rule has requests that could be tried"),
                0 if checked == 1 => {
                    outln!("\nthe model's ranking was right for the one rule that could be tried")
                }
                0 => outln!("\nthe model's ranking was right for all {checked} rules that could be tried"),
                1 => outln!("\nthe model ranked one pair wrongly"),
                wrong => outln!("\nthe model ranked {wrong} pairs wrongly"),
            }
        }
        Ok(u8::from(failed > 0))
    }

    /// Prepares the trace for trials, up to a time of the trace if one is given.
    pub(super) fn prepare(&self, input: &Input, until: Option<Nanos>) -> Result<Prepared, Failure> {
        let options = prepared::Options {
            level: self.level(),
            only: self.only.clone(),
            without: self.without.clone(),
            until,
            ..prepared::Options::default()
        };
        let mut stream = input.open()?;
        let progress = trace::bar();
        let prepared =
            Prepared::new(&input.file, &mut *stream, &options, |stream| trace::tick(&progress, stream));
        progress.finish_and_clear();
        Ok(prepared?)
    }

    /// Returns the number of reads and writes of a rule to try.
    pub(super) fn requests_max(&self) -> u64 {
        if self.verify_requests == 0 { u64::MAX } else { self.verify_requests }
    }

    fn ruled<'a>(
        &self,
        planned: &'a Planned,
        target: &Target,
        prepared: &Prepared,
    ) -> Result<Vec<RuleTrials<'a>>, Failure> {
        let plan = &planned.plan;
        let mut rules = Vec::new();
        for rule in plan.rules.iter().chain(&plan.kept) {
            let files: BTreeSet<u32> = prepared
                .facts
                .files
                .iter()
                .enumerate()
                .filter(|(_, file)| plan.group(&file.name).is_some_and(|of| of.path == rule.path))
                .map(|(number, _)| number as u32)
                .collect();
            let (mut placements, mut which): (Vec<ClassPlacement>, Vec<usize>) = (Vec::new(), Vec::new());
            // Trials place files over whole classes.
            let is_whole = |of: &&Alternative| of.layout.iter().all(|part| part.targets.is_empty());
            let alternatives: Vec<&Alternative> = rule.alternatives.iter().filter(is_whole).collect();
            for (number, of) in alternatives.iter().enumerate() {
                let same = alternatives[..number].iter().position(|before| before.layout == of.layout);
                if let Some(same) = same {
                    which.push(which[same]);
                    continue;
                }
                which.push(placements.len());
                let placement = ClassPlacement::from_plan(&of.layout, &target.figures);
                placements.push(placement.map_err(|why| Failure::new(&rule.path, why))?);
            }
            let workload = TraceWorkload::new(prepared, Timing::Fast);
            let part = WorkloadSlice::new(&workload, Some(files.clone()), self.requests_max());
            let moved = (part.kept(), part.all());
            workload.finish()?;
            rules.push(RuleTrials { rule, alternatives, files, moved, placements, which });
        }
        Ok(rules)
    }

    /// Runs all trials, one per processor at a time. Returns seconds by rule and placement.
    fn tries(
        &self,
        rules: &[RuleTrials<'_>],
        cluster: &ClusterSpec,
        target: &Target,
        prepared: &Prepared,
    ) -> Result<Vec<Vec<Result<f64, String>>>, Failure> {
        let jobs: Vec<Job> = rules
            .iter()
            .enumerate()
            .flat_map(|(number, ruled)| (0..ruled.placements.len()).map(move |placement| (number, placement)))
            .collect();
        let total = jobs.iter().map(|(rule, _)| rules[*rule].moved.0.requests).sum();
        let bar = bar(total, jobs.len());
        let tell = |count| bar.inc(count);
        let tried = concurrently(jobs.len(), |number| {
            let (rule, placement) = jobs[number];
            let ruled = &rules[rule];
            let workload = TraceWorkload::new(prepared, Timing::Fast);
            let part = WorkloadSlice::new(&workload, Some(ruled.files.clone()), self.requests_max())
                .with_progress(&tell);
            let outcome = trial(cluster, &target.figures, &ruled.placements[placement], &part, None);
            let seconds = outcome.map(|trial| trial.seconds * part.weight());
            workload.finish()?;
            Ok::<_, Failure>(seconds.map_err(|error| error.to_string()))
        });
        bar.finish_and_clear();
        let mut outcomes: Vec<Vec<_>> = rules.iter().map(|_| Vec::new()).collect();
        for ((rule, _), seconds) in jobs.into_iter().zip(tried) {
            outcomes[rule].push(seconds?);
        }
        Ok(outcomes)
    }
}

/// Calls `work` with the numbers below `count` on as many threads as there are processors, at most [`TWINS_MAX`].
/// Returns the results by number.
pub(super) fn concurrently<T: Send>(count: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, T)>> = Mutex::new(Vec::new());
    let worker = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count {
                break;
            }
            let result = work(number);
            done.lock().unwrap_or_else(PoisonError::into_inner).push((number, result));
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(TWINS_MAX);
    std::thread::scope(|scope| {
        for _ in 0..threads.min(count) {
            scope.spawn(worker);
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(number, _)| *number);
    done.into_iter().map(|(_, result)| result).collect()
}

/// Returns a bar over the requests of all trials, hidden without a terminal.
pub(super) fn bar(requests: u64, trials: usize) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{wide_bar} {human_pos}/{human_len} requests {msg} {eta}");
    let bar = ProgressBar::new(requests).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.set_message(format!("of {trials} trials on the twin"));
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

fn as_json(ruled: &RuleTrials<'_>, tried: &[Trial<'_>], verdicts: &[String]) {
    let (kept, all) = ruled.moved;
    for one in tried {
        outln!(
            "{}",
            json!({
                "path": ruled.rule.path.0,
                "planner": one.of.planner,
                "model_s": one.of.seconds,
                "twin_s": one.seconds.as_ref().ok(),
                "why_not": one.seconds.as_ref().err(),
                "requests": kept.requests,
                "of_requests": all.requests,
                "bytes": kept.bytes,
                "of_bytes": all.bytes,
            })
        );
    }
    let (path, fastest) = (&ruled.rule.path.0, fastest(tried));
    outln!("{}", json!({ "path": path, "wrong": verdicts, "fastest": fastest.map(|one| one.of.planner) }));
}

fn as_text(ruled: &RuleTrials<'_>, tried: &[Trial<'_>], verdicts: &[String]) {
    let (kept, all) = ruled.moved;
    outln!("\non the twin, {}:", ruled.rule.path);
    if all.requests == 0 {
        return outln!("  no selected operation of the trace accesses these files");
    }
    if kept != all {
        let share = 100.0 * kept.requests as f64 / all.requests.max(1) as f64;
        outln!(
            "  {} of {} requests ({share:.1} %), {} of {}: of each rank the same windows; times are scaled up to all",
            kept.requests,
            all.requests,
            human_bytes(kept.bytes),
            human_bytes(all.bytes)
        );
    }
    let mut table = Table::new(["  ", "PLANNER", "MODEL S", "TWIN S", "MODEL/TWIN", ""]);
    for one in tried {
        let (twin, ratio, note) = match &one.seconds {
            Ok(twin) => {
                (format!("{twin:.3}"), format!("{:.2}", one.of.seconds / twin.max(1e-9)), String::new())
            }
            Err(why) => ("-".to_owned(), "-".to_owned(), why.clone()),
        };
        let model = format!("{:.3}", one.of.seconds);
        table.row([String::new(), one.of.planner.to_string(), model, twin, ratio, note]);
    }
    out!("{}", table.render());
    for verdict in verdicts {
        outln!("  {verdict}");
    }
    match tried.iter().filter(|one| one.seconds.is_ok()).count() {
        0 => outln!("  no layout could be tried"),
        _ if verdicts.is_empty() => outln!("  the model ranked them as the twin does"),
        _ => {}
    }
    let chosen = tried.iter().find(|one| one.of.layout == ruled.rule.layout);
    if let (Some(first), Some(chosen)) = (fastest(tried), chosen)
        && let (Ok(first_s), Ok(chosen_s)) = (&first.seconds, &chosen.seconds)
        && chosen_s / first_s.max(1e-12) > 1.0 + EQUAL_WITHIN
    {
        let by = 100.0 * (1.0 - first_s / chosen_s);
        outln!("  the plan's layout is not the fastest: {} takes {by:.0} % less time", first.of.planner);
    }
}

/// Returns the alternative with the least time on the twin.
fn fastest<'a, 'b>(tried: &'a [Trial<'b>]) -> Option<&'a Trial<'b>> {
    let known = tried.iter().filter_map(|one| Some((one.seconds.as_ref().ok()?, one)));
    known.min_by(|a, b| a.0.total_cmp(b.0)).map(|(_, one)| one)
}

/// Returns pairs that the model ranked wrongly: clearly different in the model and on the twin, in opposite order.
fn verdicts(tried: &[Trial<'_>]) -> Vec<String> {
    let mut found = Vec::new();
    for (number, a) in tried.iter().enumerate() {
        for b in &tried[number + 1..] {
            let (Ok(twin_a), Ok(twin_b)) = (&a.seconds, &b.seconds) else { continue };
            let model = a.of.seconds / b.of.seconds.max(1e-12);
            let twin = twin_a / twin_b.max(1e-12);
            let (model_first, twin_first) = (model < 1.0, twin < 1.0);
            let clear = |ratio: f64| (ratio - 1.0).abs() > EQUAL_WITHIN;
            if clear(twin) && clear(model) && model_first != twin_first {
                let (first, second) = if twin_first { (a, b) } else { (b, a) };
                let by = 100.0 * (twin.max(1.0 / twin) - 1.0);
                found.push(format!(
                    "wrong: {} is {by:.0} % slower than {} on the twin; the model ranked them in the opposite order",
                    second.of.planner, first.of.planner
                ));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use weft_planner::Planner;

    #[test]
    fn concurrent_results_are_in_order() {
        assert_eq!(
            concurrently(100, |number| number * 3),
            (0..100).map(|number| number * 3).collect::<Vec<_>>()
        );
        assert!(concurrently(0, |number| number).is_empty());
    }

    #[test]
    fn only_clear_differences_the_other_way_round_are_wrong() {
        let of = |planner, seconds| Alternative {
            planner,
            seconds,
            cost: None,
            busy: BTreeMap::new(),
            spread: 1.0,
            layout: Vec::new(),
        };
        let all =
            [of(Planner::Best, 1.0), of(Planner::Psa, 1.5), of(Planner::Pa, 1.51), of(Planner::Def, 2.0)];
        let tried = |seconds: [f64; 4]| {
            verdicts(&all.iter().zip(seconds).map(|(of, s)| Trial { of, seconds: Ok(s) }).collect::<Vec<_>>())
        };
        assert!(tried([10.0, 15.0, 14.0, 16.0]).is_empty());
        assert!(tried([10.0, 10.1, 10.0, 9.95]).is_empty());
        let wrong = tried([20.0, 15.0, 25.0, 30.0]);
        assert_eq!(wrong.len(), 1, "{wrong:?}");
        assert!(wrong[0].contains("best is 33 % slower than psa"), "{wrong:?}");
    }
}
