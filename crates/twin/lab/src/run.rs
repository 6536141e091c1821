//! Runs experiments, several points at once.

use crate::claim::{Finding, Verdict, findings};
use crate::experiment::{Experiment, Runs};
use crate::formula::X;
use crate::measure;
use crate::plan::{self, Point};
use crate::rows::{Measured, Row, rows};
use crate::spread::Spread;
use crate::world::{Observation, Ssd, World};
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

/// Options of a run.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Whether to use the quick form, with less data and fewer places.
    pub quick: bool,
    /// The seed, or the first of several.
    pub seed: u64,
    /// Number of concurrent points. Each uses one core.
    pub jobs: usize,
}

/// Result of an experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Name of the experiment.
    pub experiment: String,
    /// Whether it is the result of the quick form.
    pub quick: bool,
    /// The first seed.
    pub seed: u64,
    /// Number of consecutive seeds. Values are their means.
    #[serde(default = "one")]
    pub seeds: u32,
    /// Measured values.
    pub rows: Vec<Row>,
    /// Claims with verdicts.
    pub findings: Vec<Finding>,
    /// Notes on each run.
    pub runs: Vec<RunNote>,
}

/// Notes on one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunNote {
    /// Series and x.
    pub what: String,
    /// Virtual seconds.
    pub virtual_s: f64,
    /// Seconds on the host.
    pub wall_s: f64,
    /// Number of simulated requests for file data or metadata.
    pub requests: u64,
    /// Hash over all events, in hexadecimal.
    pub event_hash: String,
    /// Virtual seconds after the end of the last process.
    #[serde(default)]
    pub drain_s: f64,
    /// Activity of the SSDs beside the disks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ssd: Option<Ssd>,
}

fn one() -> u32 {
    1
}

impl Outcome {
    /// Describes the seeds in words.
    pub fn seeds_in_words(&self) -> String {
        match self.seeds {
            1 => format!("seed {}", self.seed),
            count => format!("means of seeds {} to {}", self.seed, self.seed + u64::from(count) - 1),
        }
    }

    /// Returns the result with the verdicts of the experiment's present claims. A stored result has those of its time.
    #[must_use]
    pub fn judged_again(self, experiment: &Experiment) -> Self {
        Self { findings: findings(experiment, &self.rows, self.quick), ..self }
    }

    /// Returns the claims that failed without a reason.
    pub fn failed(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|finding| finding.verdict == Verdict::Failed)
    }
}

/// A run that failed.
#[derive(Debug, thiserror::Error)]
#[error("{experiment}, {point}: {why}")]
pub struct RunError {
    /// Name of the experiment.
    pub experiment: String,
    /// Series and x.
    pub point: String,
    /// The error.
    pub why: String,
}

/// Runs an experiment. `progress` is called after each point with the number done, the total, and the point's name.
pub fn run(
    experiment: &Experiment,
    world: &dyn World,
    options: &Options,
    progress: &mut dyn FnMut(usize, usize, &str),
) -> Result<Outcome, RunError> {
    let failed =
        |point: &str, why| RunError { experiment: experiment.name.clone(), point: point.into(), why };
    let points = plan::points(experiment, options.quick).map_err(|why| failed("plan", why))?;
    for point in &points {
        // Check all points first, before hours are spent on the earlier ones.
        world.check(&point.cluster, &point.workload).map_err(|why| failed(&label(point), why))?;
    }
    let Options { quick, seed, .. } = *options;
    let seeds = if quick { 1 } else { experiment.run.seeds.max(1) };
    let tasks: Vec<Task> = points
        .iter()
        .flat_map(|point| (seed..seed + u64::from(seeds)).map(move |seed| Task { point, seed }))
        .collect();
    let seen = run_all(&tasks, world, experiment.run, options.jobs, progress);
    let (mut measured, mut runs) = (Vec::new(), Vec::new());
    // Values of a point by place. A distribution has several places.
    let mut found: Vec<(X, Vec<f64>)> = Vec::new();
    for (number, (Task { point, seed }, seen)) in tasks.iter().zip(seen).enumerate() {
        let seen = seen.map_err(|why| failed(&label(point), why))?;
        let values = measure::values(&experiment.measure, &seen).map_err(|why| failed(&label(point), why))?;
        for (x, value) in values {
            let x = point.x.clone().or(x).expect("either the axis or the measurement has places");
            match found.iter_mut().find(|place| place.0 == x) {
                Some(place) => place.1.push(value),
                None => found.push((x, vec![value])),
            }
        }
        if (number + 1) % seeds as usize == 0 {
            for (x, mut values) in found.drain(..) {
                // A size that no request had with some seed has a share of zero there.
                values.resize(seeds as usize, 0.0);
                measured.push(Measured { series: point.series.clone(), x, values: Spread::of(&values) });
            }
        }
        runs.push(RunNote {
            what: if seeds > 1 { format!("{}, seed {seed}", label(point)) } else { label(point) },
            virtual_s: seen.elapsed.0 as f64 / 1e9,
            wall_s: seen.wall.as_secs_f64(),
            requests: seen.requests,
            event_hash: format!("{:016x}", seen.event_hash),
            drain_s: seen.drain.0 as f64 / 1e9,
            ssd: seen.ssd,
        });
    }
    let rows = rows(experiment, &measured);
    let findings = findings(experiment, &rows, options.quick);
    Ok(Outcome { experiment: experiment.name.clone(), quick, seed, seeds, rows, findings, runs })
}

fn label(point: &Point) -> String {
    match &point.x {
        Some(x) => format!("{} at {x}", point.series),
        None => point.series.clone(),
    }
}

/// A point with a seed.
#[derive(Clone, Copy)]
struct Task<'a> {
    point: &'a Point,
    seed: u64,
}

/// Runs all tasks on `jobs` threads. Results are in the order of the tasks.
fn run_all(
    tasks: &[Task<'_>],
    world: &dyn World,
    runs: Runs,
    jobs: usize,
    progress: &mut dyn FnMut(usize, usize, &str),
) -> Vec<Result<Observation, String>> {
    let next = AtomicUsize::new(0);
    let mut results: Vec<Option<Result<Observation, String>>> = tasks.iter().map(|_| None).collect();
    std::thread::scope(|scope| {
        let (sender, receiver) = mpsc::channel();
        for _ in 0..jobs.clamp(1, tasks.len().max(1)) {
            let (sender, next) = (sender.clone(), &next);
            scope.spawn(move || {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(&Task { point, seed }) = tasks.get(index) else { return };
                    let result = world.run(&point.cluster, &point.workload, runs, seed);
                    if sender.send((index, result)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        let mut done = 0;
        while let Ok((index, result)) = receiver.recv() {
            results[index] = Some(result);
            done += 1;
            progress(done, tasks.len(), &label(tasks[index].point));
        }
    });
    results.into_iter().map(|result| result.unwrap_or_else(|| Err("the run panicked".into()))).collect()
}
