//! Compares the alternatives for replicas on the points of an experiment: time predicted by the planner's model beside
//! time on the twin.

use crate::experiment::{Experiment, STOCK};
use crate::plan::{Point, points};
use crate::planned::carry_out;
use crate::twin::read;
use weft_planner::replicas::{Kind, Policy};
use weft_workload::Workload;

/// An alternative with its times.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct JudgedAlternative {
    /// Kind of the alternative.
    pub kind: Kind,
    /// Whether `best` chooses it.
    pub is_chosen: bool,
    /// Seconds of the run predicted by the planner's model, without copies.
    pub model_s: f64,
    /// Seconds of the run on the twin.
    pub twin_s: f64,
}

/// Compares the alternatives on all points of an experiment whose name contains `part`. `progress` is called after each
/// point.
///
/// # Errors
/// The first point that cannot be planned or run.
pub fn judge_replicas(
    experiment: &Experiment,
    (quick, seed): (bool, u64),
    part: &str,
    progress: &mut dyn FnMut(&str, &[JudgedAlternative]),
) -> Result<(), String> {
    let stock = |point: &Point| experiment.series.iter().any(|series| series.name == point.series);
    for point in points(experiment, quick)?.iter().filter(|point| stock(point)) {
        let name = match &point.x {
            Some(x) => format!("{} at {x}", point.series),
            None => point.series.clone(),
        };
        if name.contains(part) {
            progress(&name, &judge_point(experiment, point, seed)?);
        }
    }
    Ok(())
}

fn judge_point(experiment: &Experiment, point: &Point, seed: u64) -> Result<Vec<JudgedAlternative>, String> {
    let (mut cluster, plan, workload) = read(&point.cluster, &point.workload)?;
    cluster.seed = seed;
    let plan = plan.ok_or_else(|| format!("a point under {STOCK} has no plan"))?;
    let (problem, decision) = plan.decision(Policy::Best, &cluster, &*workload)?;
    let judged = |alternative: &weft_planner::replicas::Alternative| {
        let mut cluster = cluster.clone();
        let figures = &problem.figures;
        let redirected = carry_out(alternative, &decision.arrangement, figures, &mut cluster, &*workload)?;
        let run: &dyn Workload = match &redirected {
            Some((redirected, _)) => redirected,
            None => &*workload,
        };
        let outcome = weft_twin::run_with(&cluster, run, experiment.run.options());
        Ok(JudgedAlternative {
            kind: alternative.kind,
            is_chosen: alternative.kind == decision.chosen,
            model_s: alternative.requests_s,
            twin_s: outcome.map_err(|error| error.to_string())?.elapsed.0 as f64 / 1e9,
        })
    };
    decision.alternatives.iter().map(judged).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::by_name;

    #[test]
    fn each_alternative_is_judged_and_one_is_chosen() {
        let experiment = by_name("ceda-fig9").expect("an experiment");
        let mut seen = Vec::new();
        let mut progress = |name: &str, all: &[JudgedAlternative]| seen.push((name.to_owned(), all.to_vec()));
        judge_replicas(experiment, (true, 1), "read", &mut progress).expect("runs");
        let [(name, alternatives)] = seen.as_slice() else { panic!("one place: {seen:?}") };
        assert_eq!((name.as_str(), alternatives.len()), ("read at 64", 5));
        assert_eq!(alternatives.iter().filter(|one| one.is_chosen).count(), 1);
        assert!(alternatives.iter().all(|one| one.twin_s > 0.0 && one.model_s > 0.0), "{alternatives:?}");
    }
}
