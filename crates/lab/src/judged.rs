//! Plans of an experiment's places, held against the twin: what the model says, what the twin says, what was to be had.

use crate::experiment::Experiment;
use crate::plan::{Point, points};
use crate::planned::{Problem, Tried};
use crate::twin::read;
use weft_estimate::{layout_spec, tried};
use weft_planner::model::{Load, run};
use weft_planner::{Placing, Planner};
use weft_twin::RunOptions;

/// A layout with both its times.
#[derive(Clone, PartialEq, Debug)]
pub struct Judged {
    /// Who has it.
    pub who: &'static str,
    /// What the planner's own model says, seconds.
    pub model_s: f64,
    /// What it takes on the twin, seconds.
    pub twin_s: f64,
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
    /// What was tried, the quickest on the twin first.
    pub tried: Vec<Judged>,
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
    let crate::experiment::Runs { passes, drain, paired } = experiment.run;
    let options = RunOptions { passes, drain, paired };
    let mut planners = Vec::new();
    for (planner, placings) in &planned.placings {
        let placing = &placings[0];
        layout_spec(placing, &problem.figures).map_err(|error| format!("{name}: {planner}: {error}"))?;
        let run = tried(&cluster, &problem.figures, &*workload, vec![placing.clone()], options, 1);
        let (trial, _) = run.first().ok_or_else(|| format!("{name}: {planner}: the run failed"))?;
        let (model_s, layout) = (model(placing), written(placing));
        planners.push(Judged { who: planner.name(), model_s, twin_s: trial.seconds, layout });
    }
    let tried = how.tried.map(|what| found(&problem, what, &cluster, &*workload, experiment, how));
    let judged = |(twin_s, placing): &(f64, Placing)| Judged {
        who: "tried",
        model_s: model(placing),
        twin_s: *twin_s,
        layout: written(placing),
    };
    Ok(Place {
        name,
        planners,
        confidence: planned.plan.rules.first().map_or(0.0, |rule| rule.confidence),
        tried: tried.iter().flatten().map(judged).collect(),
    })
}

fn found(
    problem: &Problem,
    what: Tried,
    cluster: &weft_twin::ClusterSpec,
    workload: &dyn weft_workload::Workload,
    experiment: &Experiment,
    how: How,
) -> Vec<(f64, Placing)> {
    problem.tried(what, cluster, workload, experiment.run, how.jobs)
}
