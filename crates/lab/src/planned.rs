//! Layouts of an experiment by a planner, instead of by the description of its cluster.
//!
//! `cluster.plan = { planner = "psa", rooms = { ssd = … } }` lays files out as that planner does for the very workload;
//! without `planner` the cluster's own layout stays. `exhaustive` and `fixed` are no planners: they try layouts on the
//! twin, those of a grid and beside its best or those of one stripe size, and take the quickest.

use crate::experiment::Runs;
use serde::Deserialize;
use std::collections::BTreeMap;
use toml::{Table, Value};
use weft_estimate::{Found, Space, Trials, layout_spec, of_twin, traced};
use weft_planner::figures::Class;
use weft_planner::model::{Load, run};
use weft_planner::plan::Options;
use weft_planner::{Figures, Placing, Planner, Traced, Unit, plan};
use weft_twin::ClusterSpec;
use weft_workload::{Size, Workload};

/// Requests of the workload by which it is guessed which layouts are quick.
const GUESSED: usize = 1024;

/// Who lays out, with how much room.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanSpec {
    /// The planner, or what is tried.
    planner: Option<Who>,
    /// Room on each target, by class.
    #[serde(default)]
    rooms: BTreeMap<String, Size>,
    /// Seeds by whose mean layouts that are tried are judged; 1 unless said.
    #[serde(default = "one")]
    seeds: u64,
}

const fn one() -> u64 {
    1
}

/// Who lays out.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(untagged)]
enum Who {
    Planner(Planner),
    Tried(Tried),
}

/// What is tried on the twin.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tried {
    /// All layouts of [`Space::all`], then those beside the best ones.
    Exhaustive,
    /// Those of one stripe size.
    Fixed,
}

/// Takes it out of a cluster's description, of which it is no part.
///
/// # Errors
/// When it is none.
pub fn take(cluster: &mut Table) -> Result<Option<PlanSpec>, String> {
    let Some(value) = cluster.remove("plan") else { return Ok(None) };
    let spec: PlanSpec = Value::try_into(value)
        .map_err(|error: toml::de::Error| format!("cluster.plan: {}", error.message()))?;
    Ok(Some(spec))
}

/// A workload as planners see it.
pub struct Problem {
    /// Its requests, as if traced: one unit.
    pub traced: Traced,
    /// The cluster.
    pub figures: Figures,
    /// Seeds by whose mean layouts are judged.
    pub seeds: u64,
}

impl Problem {
    /// The files.
    pub fn unit(&self) -> &Unit {
        &self.traced.units[0]
    }

    /// What a planner lays out, and what the model says it takes, by its plan.
    ///
    /// # Errors
    /// When nothing can be planned.
    pub fn planned(&self, planner: Planner, alternatives: bool) -> Result<weft_planner::Planned, String> {
        let options = Options { planner, alternatives, ..Options::default() };
        plan(&self.traced, &self.figures, &options).map_err(|error| error.to_string())
    }

    /// Layouts tried on the twin.
    pub fn tried(
        &self,
        what: Tried,
        cluster: &ClusterSpec,
        workload: &dyn Workload,
        runs: Runs,
        jobs: usize,
    ) -> Found {
        let rooms: Vec<u64> = self.figures.classes.iter().map(Class::room).collect();
        let (extent, request) = (self.unit().extent, self.unit().request_size());
        let space = Space { figures: &self.figures, rooms: &rooms, extent, request };
        let (figures, options) = (&self.figures, runs.options());
        let trials = Trials { cluster, figures, workload, options, seeds: self.seeds, jobs };
        let load = Load::of(&self.traced, Some(0)).thin(GUESSED);
        let guess = |placing: &Placing| run(&self.figures, &load, &[placing]).seconds;
        match what {
            Tried::Exhaustive => trials.search(&space, &guess),
            Tried::Fixed => {
                let layouts: Vec<Placing> = space.fixed().into_iter().map(|(_, placing)| placing).collect();
                let ran = trials.each(&layouts);
                let best = ran.into_iter().map(|(trial, number)| (trial, layouts[number].clone())).collect();
                Found { tried: layouts.len(), best }
            }
        }
    }
}

impl PlanSpec {
    /// The workload on the cluster, as planners see it.
    ///
    /// # Errors
    /// Files that would have to be planned for one by one; a cluster without figures.
    pub fn problem(&self, cluster: &ClusterSpec, workload: &dyn Workload) -> Result<Problem, String> {
        let traced = traced(workload);
        let [unit] = traced.units.as_slice() else {
            return Err("a plan for an experiment is for one file, or for files with names alike".into());
        };
        let rooms = self.rooms.iter().map(|(class, room)| (class.clone(), room.0)).collect();
        let figures = of_twin(cluster, &rooms, unit.extent_sum).map_err(|error| error.to_string())?;
        Ok(Problem { traced, figures, seeds: self.seeds.max(1) })
    }

    /// Gives the cluster the layout that is planned, or found, for the workload's files.
    ///
    /// # Errors
    /// When nothing can be planned.
    pub fn apply(
        &self,
        cluster: &mut ClusterSpec,
        workload: &dyn Workload,
        runs: Runs,
    ) -> Result<(), String> {
        let Some(who) = self.planner else { return Ok(()) };
        let problem = self.problem(cluster, workload)?;
        let placing = match who {
            Who::Planner(planner) => {
                let planned = problem.planned(planner, false)?;
                let mut of = planned.placings.into_iter();
                let (_, placings) = of.find(|(of, _)| *of == planner).expect("every planner has a layout");
                placings.into_iter().next().expect("there is one unit")
            }
            Who::Tried(what) => {
                // By other dice than those of the run to come: else the best of some hundred has chance on its side.
                let cluster = ClusterSpec { seed: cluster.seed.wrapping_add(1), ..cluster.clone() };
                let found = problem.tried(what, &cluster, workload, runs, 1).best.into_iter().next();
                found.ok_or("none of the layouts that are tried can be made")?.1
            }
        };
        cluster.layout = layout_spec(&placing, &problem.figures).map_err(|error| error.to_string())?;
        Ok(())
    }
}
