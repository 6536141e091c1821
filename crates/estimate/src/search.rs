//! A search on the twin for the best layout: what the planners are held against.

use crate::space::{Row, Space};
use crate::trial::{Trial, TrialError, layout_spec, run_layout};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use weft_core::Nanos;
use weft_planner::{Figures, Placing};
use weft_twin::{ClusterSpec, RunOptions};
use weft_workload::Workload;

/// A layout is run until it has taken so much longer than the best before it.
const SLACK: f64 = 1.03;
/// So many of the best layouts have those beside them tried, too.
const BEST: usize = 3;

/// What is tried: a workload on a cluster.
#[derive(Clone, Copy)]
pub struct Trials<'a> {
    /// The cluster; its layout does not matter.
    pub cluster: &'a ClusterSpec,
    /// It in figures.
    pub figures: &'a Figures,
    /// The workload.
    pub workload: &'a dyn Workload,
    /// How it is run.
    pub options: RunOptions,
    /// A layout is judged by the mean of so many runs, each with the next seed: more than one where chance decides much.
    pub seeds: u64,
    /// So many runs at once.
    pub jobs: usize,
}

/// What came of a search.
#[derive(Clone, Default, Debug)]
pub struct Found {
    /// Layouts that were tried.
    pub tried: usize,
    /// Those that take at most 3 % longer than the best, the quickest first.
    pub best: Vec<(Trial, Placing)>,
}

impl Trials<'_> {
    /// Runs the workload under each layout, in full. Those that could be run, the quickest first.
    pub fn each(&self, layouts: &[Placing]) -> Vec<(Trial, usize)> {
        self.within(layouts, f64::INFINITY, f64::INFINITY)
    }

    /// Tries all layouts of the grid, then those beside the best three until nothing beside these is left. No run goes on
    /// when it has taken longer than the best one so far and 3 %; those that `guess` takes for quick go first, so that most
    /// end early.
    pub fn search(&self, space: &Space<'_>, guess: &dyn Fn(&Placing) -> f64) -> Found {
        let mut known: Vec<Placing> = Vec::new();
        let mut best: Vec<(Trial, Row, Placing)> = Vec::new();
        let mut seen_beside: Vec<Placing> = Vec::new();
        let mut new = space.all();
        loop {
            new.retain(|(_, placing)| !known.contains(placing));
            new.sort_by_cached_key(|(_, placing)| (guess(placing) * 1e9) as u64);
            let layouts: Vec<Placing> = new.iter().map(|(_, placing)| placing.clone()).collect();
            known.extend(layouts.iter().cloned());
            let before = best.first().map_or(f64::INFINITY, |(trial, ..)| trial.seconds);
            let ran = self.within(&layouts, before, SLACK);
            best.extend(ran.into_iter().map(|(trial, number)| {
                let (row, placing) = new[number].clone();
                (trial, row, placing)
            }));
            best.sort_by(|a, b| a.0.seconds.total_cmp(&b.0.seconds));
            let next = best.iter().take(BEST).find(|(_, _, placing)| !seen_beside.contains(placing));
            let Some((_, row, placing)) = next else { break };
            seen_beside.push(placing.clone());
            new = space.beside(row);
        }
        let most = best.first().map_or(0.0, |(trial, ..)| trial.seconds * SLACK);
        best.retain(|(trial, ..)| trial.seconds <= most);
        Found {
            tried: known.len(),
            best: best.into_iter().map(|(trial, _, placing)| (trial, placing)).collect(),
        }
    }

    /// Runs each until it has taken `slack` times as long as the best one so far, of which the first took `best`; which of
    /// them ran to their end within that of all does not depend on how many run at once.
    fn within(&self, layouts: &[Placing], best: f64, slack: f64) -> Vec<(Trial, usize)> {
        let (next, best) = (AtomicUsize::new(0), Mutex::new(best));
        let mut found: Vec<(usize, Trial)> = Vec::new();
        std::thread::scope(|scope| {
            let (tell, hear) = mpsc::channel();
            for _ in 0..self.jobs.clamp(1, layouts.len().max(1)) {
                let (tell, next, best) = (tell.clone(), &next, &best);
                scope.spawn(move || {
                    loop {
                        let index = next.fetch_add(1, Ordering::Relaxed);
                        let Some(placing) = layouts.get(index) else { return };
                        let limit = *best.lock().expect("no thread panics with it") * slack;
                        // A layout that files cannot have is none to be tried.
                        let Ok(trial) = self.run(placing, limit) else { continue };
                        let mut best = best.lock().expect("no thread panics with it");
                        *best = best.min(trial.seconds);
                        if tell.send((index, trial)).is_err() {
                            return;
                        }
                    }
                });
            }
            drop(tell);
            found.extend(hear);
        });
        let most = best.into_inner().expect("no thread panics with it") * slack;
        found.retain(|(_, trial)| trial.seconds <= most);
        found.sort_by(|a, b| a.1.seconds.total_cmp(&b.1.seconds).then(a.0.cmp(&b.0)));
        found.into_iter().map(|(index, trial)| (trial, index)).collect()
    }

    /// The mean of all seeds, unless their sum says before that it is over the limit.
    fn run(&self, placing: &Placing, limit_s: f64) -> Result<Trial, TrialError> {
        let mut left = limit_s * self.seeds as f64;
        let (mut sum, mut first) = (0.0, None);
        for seed in 0..self.seeds {
            let limit = left.is_finite().then(|| Nanos((left * 1e9).ceil() as u64));
            let options = RunOptions { limit, ..self.options };
            let cluster = ClusterSpec { seed: self.cluster.seed.wrapping_add(seed), ..self.cluster.clone() };
            let trial = run_layout(&cluster, layout_spec(placing, self.figures)?, self.workload, options)?;
            first.get_or_insert(trial);
            sum += trial.seconds;
            left = (left - trial.seconds).max(0.0);
        }
        let first = first.expect("there is a seed");
        Ok(Trial { seconds: sum / self.seeds as f64, ..first })
    }
}
