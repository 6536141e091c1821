//! Compares planners on the points of an experiment: time predicted by the planner's model, time on the twin, and the
//! best layouts found by a search.

use crate::experiment::Experiment;
use crate::plan::{Point, points};
use crate::planned::LayoutSet;
use crate::spread::Spread;
use crate::twin::read;
use weft_estimate::{Trials, layout_spec};
use weft_planner::model::{Load, run};
use weft_planner::{ClassPlacement, Planner};
use weft_twin::ClusterSpec;

/// First of the other seeds, beyond those of the search.
const OTHER_SEEDS_FROM: u64 = 1000;
/// Number of layouts found by a search that run with other seeds, too.
const RERUN_MAX: usize = 5;

/// A layout with its times.
#[derive(Clone, PartialEq, Debug)]
pub struct JudgedLayout {
    /// The planner, or `found` for a layout of the search.
    pub planner: &'static str,
    /// Seconds predicted by the planner's model.
    pub model_s: f64,
    /// Seconds on the twin.
    pub twin_s: f64,
    /// Mean seconds over other seeds. Set for `best` and the first layouts that a search found.
    pub mean_s: Option<f64>,
    /// Components of the layout.
    pub layout: String,
}

/// A point of an experiment.
#[derive(Clone, PartialEq, Debug)]
pub struct JudgedPoint {
    /// Series and place on the x axis.
    pub name: String,
    /// Results of the planners Best, PSA, PA and DEF.
    pub planners: Vec<JudgedLayout>,
    /// Confidence of the plan.
    pub confidence: f64,
    /// Number of layouts tried.
    pub tried: usize,
    /// Best layouts found, fastest first.
    pub found: Vec<JudgedLayout>,
}

impl JudgedPoint {
    /// Returns the time of the best layout found divided by that of `best`: with the seed of the search, and as a mean
    /// over other seeds, which are free of the selection by chance.
    pub fn found_over_best(&self) -> Option<(f64, f64)> {
        let best = self.planners.first()?;
        let means = self.found.iter().filter_map(|one| one.mean_s);
        let mean = means.fold(f64::INFINITY, f64::min);
        Some((self.found.first()?.twin_s / best.twin_s, mean / best.mean_s?))
    }
}

/// Options of a comparison.
#[derive(Clone, Copy, Debug)]
pub struct JudgeOptions {
    /// Whether to use the quick form.
    pub quick: bool,
    /// Set of layouts to try, if any.
    pub layouts: Option<LayoutSet>,
    /// Seed.
    pub seed: u64,
    /// Number of other seeds for the layouts that a search found.
    pub other_seeds: u64,
    /// Number of concurrent runs.
    pub jobs: usize,
}

/// Compares the planners on all points of an experiment under the stock policy. `progress` is called after each point.
///
/// # Errors
/// The first point that cannot be planned or run.
pub fn judge(
    experiment: &Experiment,
    settings: JudgeOptions,
    progress: &mut dyn FnMut(&JudgedPoint),
) -> Result<Vec<JudgedPoint>, String> {
    let stock = |point: &Point| experiment.series.iter().any(|series| series.name == point.series);
    let mut places = Vec::new();
    for point in points(experiment, settings.quick)?.iter().filter(|point| stock(point)) {
        let place = judge_point(experiment, point, settings)?;
        progress(&place);
        places.push(place);
    }
    Ok(places)
}

fn judge_point(
    experiment: &Experiment,
    point: &Point,
    settings: JudgeOptions,
) -> Result<JudgedPoint, String> {
    let name = match &point.x {
        Some(x) => format!("{} at {x}", point.series),
        None => point.series.clone(),
    };
    let (mut cluster, plan, workload) = read(&point.cluster, &point.workload)?;
    cluster.seed = settings.seed;
    let plan = plan.ok_or("the experiment's cluster has no plan")?;
    let problem = plan.problem(&cluster, &*workload)?;
    let planned = problem.planned(Planner::Best, true)?;
    let load = Load::of(&problem.traced, Some(0));
    let model = |placement: &ClassPlacement| run(&problem.figures, &load, &[placement]).seconds;
    let written = |placement: &ClassPlacement| {
        let parts: Vec<String> =
            placement.to_plan(&problem.figures).iter().map(ToString::to_string).collect();
        parts.join("; ")
    };
    let options = experiment.run.options();
    let seconds = |seed: u64, seeds: u64, placement: &ClassPlacement| {
        let cluster = ClusterSpec { seed, ..cluster.clone() };
        let (figures, workload) = (&problem.figures, &*workload);
        let trials = Trials { cluster: &cluster, figures, workload, options, seeds, jobs: 1 };
        trials.each(std::slice::from_ref(placement)).first().map(|(trial, _)| trial.seconds)
    };
    // Other seeds than those with which the layout was found to be the best.
    let mean = |placement: &ClassPlacement| {
        let seeds = (1..=settings.other_seeds.max(1))
            .map(|seed| seconds(settings.seed + OTHER_SEEDS_FROM + seed, 1, placement));
        Some(Spread::of(&seeds.collect::<Option<Vec<_>>>()?).mean)
    };
    let judged = |planner, twin_s, placement: &ClassPlacement, by_others: bool| JudgedLayout {
        planner,
        model_s: model(placement),
        twin_s,
        mean_s: if by_others { mean(placement) } else { None },
        layout: written(placement),
    };
    let mut planners = Vec::new();
    for (planner, placements) in &planned.placements {
        let placement = &placements[0];
        layout_spec(placement, &problem.figures).map_err(|error| format!("{name}: {planner}: {error}"))?;
        let twin_s = seconds(settings.seed, problem.seeds, placement)
            .ok_or_else(|| format!("{name}: {planner}: the run failed"))?;
        let by_others = settings.layouts.is_some() && *planner == Planner::Best;
        planners.push(judged(planner.name(), twin_s, placement, by_others));
    }
    let found =
        settings.layouts.map(|set| problem.search(set, &cluster, &*workload, experiment.run, settings.jobs));
    let found = found.unwrap_or_default();
    let best = found.best.iter().enumerate();
    Ok(JudgedPoint {
        name,
        planners,
        confidence: planned.plan.rules.first().map_or(0.0, |rule| rule.confidence),
        tried: found.tried,
        found: best
            .map(|(number, (trial, placement))| judged("found", trial.seconds, placement, number < RERUN_MAX))
            .collect(),
    })
}
