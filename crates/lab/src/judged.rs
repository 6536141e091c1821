//! Plans of an experiment's places, held against the twin: what the model says, what the twin says, what was to be had.

use crate::experiment::Experiment;
use crate::plan::{Point, points};
use crate::planned::Tried;
use crate::spread::Spread;
use crate::twin::read;
use weft_estimate::{Trials, layout_spec};
use weft_planner::model::{Load, run};
use weft_planner::{Placing, Planner};
use weft_twin::ClusterSpec;

/// Other seeds begin behind those of the search.
const OTHERS: u64 = 1000;
/// Layouts of a search that are run by these, too.
const AGAIN: usize = 5;

/// A layout with both its times.
#[derive(Clone, PartialEq, Debug)]
pub struct Judged {
    /// Who has it.
    pub who: &'static str,
    /// What the planner's own model says, seconds.
    pub model_s: f64,
    /// What it takes on the twin, seconds.
    pub twin_s: f64,
    /// The same by the mean of other seeds; of `best` and the first that a search found.
    pub mean_s: Option<f64>,
    /// Its parts.
    pub layout: String,
}

/// A place of an experiment.
#[derive(Clone, PartialEq, Debug)]
pub struct Place {
    /// The series and where on the x axis.
    pub name: String,
    /// Best, PSA, PA, DEF.
    pub planners: Vec<Judged>,
    /// How sure the plan is.
    pub confidence: f64,
    /// How many layouts were tried.
    pub tried: usize,
    /// The best of them, the quickest on the twin first.
    pub found: Vec<Judged>,
}

impl Place {
    /// The time of the best layout that was found over that of `best`: by the seed with which it was searched, and by the
    /// mean of others, by which chance has not chosen.
    pub fn found_over_best(&self) -> Option<(f64, f64)> {
        let best = self.planners.first()?;
        let means = self.found.iter().filter_map(|one| one.mean_s);
        let mean = means.fold(f64::INFINITY, f64::min);
        Some((self.found.first()?.twin_s / best.twin_s, mean / best.mean_s?))
    }
}

/// How plans are judged.
#[derive(Clone, Copy, Debug)]
pub struct How {
    /// Less data.
    pub quick: bool,
    /// Whether layouts are tried, and which.
    pub tried: Option<Tried>,
    /// Decides all that is left to chance.
    pub seed: u64,
    /// So many other seeds judge what a search found.
    pub others: u64,
    /// So many runs at once.
    pub jobs: usize,
}

/// All places of an experiment, under stock alone; `progress` hears of each that is done.
///
/// # Errors
/// The first place that cannot be planned for or run.
pub fn judged(
    experiment: &Experiment,
    how: How,
    progress: &mut dyn FnMut(&Place),
) -> Result<Vec<Place>, String> {
    let stock = |point: &Point| experiment.series.iter().any(|series| series.name == point.series);
    let mut places = Vec::new();
    for point in points(experiment, how.quick)?.iter().filter(|point| stock(point)) {
        let place = place(experiment, point, how)?;
        progress(&place);
        places.push(place);
    }
    Ok(places)
}

fn place(experiment: &Experiment, point: &Point, how: How) -> Result<Place, String> {
    let name = match &point.x {
        Some(x) => format!("{} at {x}", point.series),
        None => point.series.clone(),
    };
    let (mut cluster, plan, workload) = read(&point.cluster, &point.workload)?;
    cluster.seed = how.seed;
    let plan = plan.ok_or("the experiment's cluster has no plan")?;
    let problem = plan.problem(&cluster, &*workload)?;
    let planned = problem.planned(Planner::Best, true)?;
    let load = Load::of(&problem.traced, Some(0));
    let model = |placing: &Placing| run(&problem.figures, &load, &[placing]).seconds;
    let written = |placing: &Placing| {
        let parts: Vec<String> = placing.written(&problem.figures).iter().map(ToString::to_string).collect();
        parts.join("; ")
    };
    let options = experiment.run.options();
    let seconds = |seed: u64, seeds: u64, placing: &Placing| {
        let cluster = ClusterSpec { seed, ..cluster.clone() };
        let (figures, workload) = (&problem.figures, &*workload);
        let trials = Trials { cluster: &cluster, figures, workload, options, seeds, jobs: 1 };
        trials.each(std::slice::from_ref(placing)).first().map(|(trial, _)| trial.seconds)
    };
    // By other dice than those by which it was found to be the best.
    let mean = |placing: &Placing| {
        let seeds = (1..=how.others.max(1)).map(|seed| seconds(how.seed + OTHERS + seed, 1, placing));
        Some(Spread::of(&seeds.collect::<Option<Vec<_>>>()?).mean)
    };
    let judged = |who, twin_s, placing: &Placing, by_others: bool| Judged {
        who,
        model_s: model(placing),
        twin_s,
        mean_s: if by_others { mean(placing) } else { None },
        layout: written(placing),
    };
    let mut planners = Vec::new();
    for (planner, placings) in &planned.placings {
        let placing = &placings[0];
        layout_spec(placing, &problem.figures).map_err(|error| format!("{name}: {planner}: {error}"))?;
        let twin_s = seconds(how.seed, problem.seeds, placing)
            .ok_or_else(|| format!("{name}: {planner}: the run failed"))?;
        let by_others = how.tried.is_some() && *planner == Planner::Best;
        planners.push(judged(planner.name(), twin_s, placing, by_others));
    }
    let found = how.tried.map(|what| problem.tried(what, &cluster, &*workload, experiment.run, how.jobs));
    let found = found.unwrap_or_default();
    let best = found.best.iter().enumerate();
    Ok(Place {
        name,
        planners,
        confidence: planned.plan.rules.first().map_or(0.0, |rule| rule.confidence),
        tried: found.tried,
        found: best
            .map(|(number, (trial, placing))| judged("found", trial.seconds, placing, number < AGAIN))
            .collect(),
    })
}
