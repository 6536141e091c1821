//! Experiments run, several points at once.

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

/// How to run.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Less data, fewer places.
    pub quick: bool,
    /// Decides all that is left to chance; of several it is the first.
    pub seed: u64,
    /// So many points at once; each takes one core.
    pub jobs: usize,
}

/// What an experiment gave.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Whose.
    pub experiment: String,
    /// Whether it was the quick form.
    pub quick: bool,
    /// The first seed.
    pub seed: u64,
    /// So many seeds, one after the other; values are their means.
    #[serde(default = "one")]
    pub seeds: u32,
    /// Its values.
    pub rows: Vec<Row>,
    /// Its claims.
    pub findings: Vec<Finding>,
    /// What each run was like.
    pub runs: Vec<RunNote>,
}

/// What one run was like.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunNote {
    /// Its series and x.
    pub what: String,
    /// Virtual seconds.
    pub virtual_s: f64,
    /// Seconds on the host.
    pub wall_s: f64,
    /// Simulated requests for file data or metadata.
    pub requests: u64,
    /// Changes with anything that happened, in hexadecimal.
    pub event_hash: String,
    /// Virtual seconds of it after the last process' end.
    #[serde(default)]
    pub drain_s: f64,
    /// What the SSDs beside the disks did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ssd: Option<Ssd>,
}

fn one() -> u32 {
    1
}

impl Outcome {
    /// The seeds in words.
    pub fn seeds_in_words(&self) -> String {
        match self.seeds {
            1 => format!("seed {}", self.seed),
            count => format!("means of seeds {} to {}", self.seed, self.seed + u64::from(count) - 1),
        }
    }

    /// The claims that failed without a reason.
    pub fn failed(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|finding| finding.verdict == Verdict::Failed)
    }
}

/// A run that could not be made.
#[derive(Debug, thiserror::Error)]
#[error("{experiment}, {point}: {why}")]
pub struct RunError {
    /// Whose.
    pub experiment: String,
    /// Its series and x.
    pub point: String,
    /// Why not.
    pub why: String,
}

/// Runs an experiment; `progress` hears of each point that is done: how many of how many, and which.
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
        // Before hours are spent on those before it.
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
    // Values of a point, with their places if it has none of its own.
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
                // A size that no request had with a seed has a share of nothing there.
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

/// Runs all tasks by `jobs` threads; results stand in their order.
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
        let (tell, hear) = mpsc::channel();
        for _ in 0..jobs.clamp(1, tasks.len().max(1)) {
            let (tell, next) = (tell.clone(), &next);
            scope.spawn(move || {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(&Task { point, seed }) = tasks.get(index) else { return };
                    let result = world.run(&point.cluster, &point.workload, runs, seed);
                    if tell.send((index, result)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(tell);
        let mut done = 0;
        while let Ok((index, result)) = hear.recv() {
            results[index] = Some(result);
            done += 1;
            progress(done, tasks.len(), &label(tasks[index].point));
        }
    });
    results.into_iter().map(|result| result.unwrap_or_else(|| Err("the run fell over".into()))).collect()
}
