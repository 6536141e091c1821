//! Searches for the best layout on the twin, as a reference for the planners.

use crate::space::{PartSequence, SearchSpace};
use crate::trial::{Trial, TrialError, layout_spec, run_layout};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use weft_core::Nanos;
use weft_planner::{ClassPlacement, Figures};
use weft_twin::{ClusterSpec, RunOptions};
use weft_workload::Workload;

/// A run is aborted when it takes this much longer than the best run so far.
const TIME_LIMIT_FACTOR: f64 = 1.03;
/// Number of best layouts whose neighbors are tried as well.
const BEST_LAYOUTS: usize = 3;

/// A workload on a cluster of the twin, to be run under different layouts.
#[derive(Clone, Copy)]
pub struct Trials<'a> {
    /// The cluster; its own layout is ignored.
    pub cluster: &'a ClusterSpec,
    /// Figures of the cluster.
    pub figures: &'a Figures,
    /// The workload.
    pub workload: &'a dyn Workload,
    /// Run options.
    pub options: RunOptions,
    /// Number of runs with different seeds whose mean judges a layout; more than one if the time varies strongly.
    pub seeds: u64,
    /// Number of concurrent runs.
    pub jobs: usize,
}

/// Result of a search.
#[derive(Clone, Default, Debug)]
pub struct SearchResult {
    /// Number of layouts tried.
    pub tried: usize,
    /// Layouts within 3 % of the best time, best first.
    pub best: Vec<(Trial, ClassPlacement)>,
}

impl Trials<'_> {
    /// Runs the workload under each layout to the end. Returns the layouts that could be run by index, fastest first.
    pub fn each(&self, layouts: &[ClassPlacement]) -> Vec<(Trial, usize)> {
        self.within(layouts, f64::INFINITY, f64::INFINITY)
    }

    /// Tries all layouts of the grid, then the neighbors of the best three until none is left. Runs are aborted at 3 %
    /// above the best time so far. Layouts with a low `guess` run first, so that most runs end early.
    pub fn search(&self, space: &SearchSpace<'_>, guess: &dyn Fn(&ClassPlacement) -> f64) -> SearchResult {
        let mut known: Vec<ClassPlacement> = Vec::new();
        let mut best: Vec<(Trial, PartSequence, ClassPlacement)> = Vec::new();
        let mut expanded: Vec<ClassPlacement> = Vec::new();
        let mut new = space.all();
        loop {
            new.retain(|(_, placement)| !known.contains(placement));
            new.sort_by_cached_key(|(_, placement)| (guess(placement) * 1e9) as u64);
            let layouts: Vec<ClassPlacement> = new.iter().map(|(_, placement)| placement.clone()).collect();
            known.extend(layouts.iter().cloned());
            let before = best.first().map_or(f64::INFINITY, |(trial, ..)| trial.seconds);
            let ran = self.within(&layouts, before, TIME_LIMIT_FACTOR);
            best.extend(ran.into_iter().map(|(trial, number)| {
                let (sequence, placement) = new[number].clone();
                (trial, sequence, placement)
            }));
            best.sort_by(|a, b| a.0.seconds.total_cmp(&b.0.seconds));
            let next = best.iter().take(BEST_LAYOUTS).find(|(_, _, placement)| !expanded.contains(placement));
            let Some((_, sequence, placement)) = next else { break };
            expanded.push(placement.clone());
            new = space.neighbors(sequence);
        }
        let most = best.first().map_or(0.0, |(trial, ..)| trial.seconds * TIME_LIMIT_FACTOR);
        best.retain(|(trial, ..)| trial.seconds <= most);
        SearchResult {
            tried: known.len(),
            best: best.into_iter().map(|(trial, _, placement)| (trial, placement)).collect(),
        }
    }

    /// Runs each layout until it has taken `slack` times the best time so far, initially `best`. The set of layouts
    /// within that limit of the final best does not depend on the number of concurrent runs.
    fn within(&self, layouts: &[ClassPlacement], best: f64, slack: f64) -> Vec<(Trial, usize)> {
        let (next, best) = (AtomicUsize::new(0), Mutex::new(best));
        let mut found: Vec<(usize, Trial)> = Vec::new();
        std::thread::scope(|scope| {
            let (sender, receiver) = mpsc::channel();
            for _ in 0..self.jobs.clamp(1, layouts.len().max(1)) {
                let (sender, next, best) = (sender.clone(), &next, &best);
                scope.spawn(move || {
                    loop {
                        let index = next.fetch_add(1, Ordering::Relaxed);
                        let Some(placement) = layouts.get(index) else { return };
                        let limit = *best.lock().expect("no thread panics with it") * slack;
                        // A layout with too many parts is skipped.
                        let Ok(trial) = self.run(placement, limit) else { continue };
                        let mut best = best.lock().expect("no thread panics with it");
                        *best = best.min(trial.seconds);
                        if sender.send((index, trial)).is_err() {
                            return;
                        }
                    }
                });
            }
            drop(sender);
            found.extend(receiver);
        });
        let most = best.into_inner().expect("no thread panics with it") * slack;
        found.retain(|(_, trial)| trial.seconds <= most);
        found.sort_by(|a, b| a.1.seconds.total_cmp(&b.1.seconds).then(a.0.cmp(&b.0)));
        found.into_iter().map(|(index, trial)| (trial, index)).collect()
    }

    /// Returns the mean over all seeds, or aborts when their sum exceeds the limit.
    fn run(&self, placement: &ClassPlacement, limit_s: f64) -> Result<Trial, TrialError> {
        let mut left = limit_s * self.seeds as f64;
        let (mut sum, mut first) = (0.0, None);
        for seed in 0..self.seeds {
            let limit = left.is_finite().then(|| Nanos((left * 1e9).ceil() as u64));
            let options = RunOptions { limit, ..self.options };
            let cluster = ClusterSpec { seed: self.cluster.seed.wrapping_add(seed), ..self.cluster.clone() };
            let trial = run_layout(&cluster, layout_spec(placement, self.figures)?, self.workload, options)?;
            first.get_or_insert(trial);
            sum += trial.seconds;
            left = (left - trial.seconds).max(0.0);
        }
        let first = first.expect("there is a seed");
        Ok(Trial { seconds: sum / self.seeds as f64, ..first })
    }
}
