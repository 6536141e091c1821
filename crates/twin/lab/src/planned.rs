//! Layouts of an experiment by a planner, instead of the layout in the cluster's description.
//!
//! `cluster.plan = { planner = "psa", capacities = { ssd = … } }` uses the layout that this planner computes for the
//! workload. Without `planner`, the cluster's own layout stays. `exhaustive` and `fixed` are not planners: they try
//! layouts on the twin and take the fastest. `exhaustive` tries a grid and then the neighbors of its best layouts, and
//! `fixed` the layouts with one stripe size.
//!
//! `replicas = "ceda"` decides by this policy whether the requests go to a replica of their file, to a moved file, or to
//! the file in the cluster's layout. `copy_back = false` decides without the time to copy written bytes back to the file,
//! which is not a part of the run.
//!
//! `lookup_ns = 100` looks every request up in a mapping without entries, which takes this time.

use crate::experiment::Runs;
use crate::lookup::LookedUpWorkload;
use crate::world::Replica;
use serde::Deserialize;
use std::collections::BTreeMap;
use toml::{Table, Value};
use weft_core::Nanos;
use weft_estimate::{
    RedirectedWorkload, SearchResult, SearchSpace, Trials, layout_spec, of_twin, summarize_workload,
    summarize_workload_within,
};
use weft_planner::figures::Class;
use weft_planner::model::{Load, run};
use weft_planner::plan::Options;
use weft_planner::replicas::{self, Alternative, Arrangement, Decision, Kind, Policy};
use weft_planner::{ClassPlacement, Figures, FileGroup, Limits, Planner, TraceSummary, plan};
use weft_twin::ClusterSpec;
use weft_workload::{Size, Workload};

/// Most requests of a workload whose file is replicated.
const REPLICATED_REQUESTS_MAX: usize = 1 << 20;
/// Number of requests of the workload for the quick estimate of layouts.
const ESTIMATE_REQUESTS: usize = 1024;

/// A planner and the capacity that it may use.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanSpec {
    /// The planner, or the set of layouts to try.
    planner: Option<LayoutSource>,
    /// The policy by which the file is replicated.
    replicas: Option<Policy>,
    /// Whether the time to copy written bytes back to the file counts for the decision. Default: yes.
    #[serde(default = "yes")]
    copy_back: bool,
    /// Time of a lookup in a mapping without entries, nanoseconds. By default nothing is looked up.
    lookup_ns: Option<u64>,
    /// Capacity of each target by class.
    #[serde(default, alias = "rooms")]
    capacities: BTreeMap<String, Size>,
    /// Number of seeds over which tried layouts are averaged. Default: 1.
    #[serde(default = "one")]
    seeds: u64,
}

const fn one() -> u64 {
    1
}

const fn yes() -> bool {
    true
}

/// Source of a layout.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(untagged)]
enum LayoutSource {
    Planner(Planner),
    Search(LayoutSet),
}

/// Set of layouts to try on the twin.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LayoutSet {
    /// All layouts of [`SearchSpace::all`], then the neighbors of the best ones.
    Exhaustive,
    /// Layouts with one stripe size.
    Fixed,
}

/// Removes the plan from a cluster's description, of which it is not a part.
///
/// # Errors
/// Fails if the plan is invalid.
pub fn take(cluster: &mut Table) -> Result<Option<PlanSpec>, String> {
    let Some(value) = cluster.remove("plan") else { return Ok(None) };
    let spec: PlanSpec = Value::try_into(value)
        .map_err(|error: toml::de::Error| format!("cluster.plan: {}", error.message()))?;
    Ok(Some(spec))
}

/// A workload and a cluster in the form that planners use.
pub struct Problem {
    /// The workload's requests in the form of a trace with one unit.
    pub traced: TraceSummary,
    /// The cluster.
    pub figures: Figures,
    /// Number of seeds over which layouts are averaged.
    pub seeds: u64,
}

impl Problem {
    /// The unit of files to lay out.
    pub fn group(&self) -> &FileGroup {
        &self.traced.groups[0]
    }

    /// Computes a planner's layout and the time that its model predicts.
    ///
    /// # Errors
    /// Fails if nothing can be planned.
    pub fn planned(&self, planner: Planner, alternatives: bool) -> Result<weft_planner::Planned, String> {
        let options = Options { planner, alternatives, ..Options::default() };
        plan(&self.traced, &self.figures, &options).map_err(|error| error.to_string())
    }

    /// Tries layouts on the twin.
    pub fn search(
        &self,
        set: LayoutSet,
        cluster: &ClusterSpec,
        workload: &dyn Workload,
        runs: Runs,
        jobs: usize,
    ) -> SearchResult {
        let capacities: Vec<u64> = self.figures.classes.iter().map(Class::capacity).collect();
        let (extent, request) = (self.group().extent, self.group().request_size());
        let space = SearchSpace { figures: &self.figures, capacities: &capacities, extent, request };
        let (figures, options) = (&self.figures, runs.options());
        let trials = Trials { cluster, figures, workload, options, seeds: self.seeds, jobs };
        let load = Load::of(&self.traced, Some(0)).subsample(ESTIMATE_REQUESTS);
        let estimate = |placement: &ClassPlacement| run(&self.figures, &load, &[placement]).seconds;
        match set {
            LayoutSet::Exhaustive => trials.search(&space, &estimate),
            LayoutSet::Fixed => {
                let layouts: Vec<ClassPlacement> =
                    space.fixed().into_iter().map(|(_, placement)| placement).collect();
                let ran = trials.each(&layouts);
                let best = ran.into_iter().map(|(trial, number)| (trial, layouts[number].clone())).collect();
                SearchResult { tried: layouts.len(), best }
            }
        }
    }
}

impl PlanSpec {
    /// Converts a workload on a cluster to a planning problem.
    ///
    /// # Errors
    /// Fails for files that need separate plans, and for a cluster without device parameters.
    pub fn problem(&self, cluster: &ClusterSpec, workload: &dyn Workload) -> Result<Problem, String> {
        self.problem_of(cluster, summarize_workload(workload))
    }

    fn problem_of(&self, cluster: &ClusterSpec, traced: TraceSummary) -> Result<Problem, String> {
        let [group] = traced.groups.as_slice() else {
            return Err("a plan for an experiment needs one file, or files with similar names".into());
        };
        let capacities =
            self.capacities.iter().map(|(class, capacity)| (class.clone(), capacity.0)).collect();
        let figures = of_twin(cluster, &capacities, group.extent_sum).map_err(|error| error.to_string())?;
        Ok(Problem { traced, figures, seeds: self.seeds.max(1) })
    }

    /// Sets the cluster's layout to the one that the planner computes or the search finds.
    ///
    /// # Errors
    /// Fails if nothing can be planned.
    pub fn apply(
        &self,
        cluster: &mut ClusterSpec,
        workload: &dyn Workload,
        runs: Runs,
    ) -> Result<(), String> {
        let Some(source) = self.planner else { return Ok(()) };
        let problem = self.problem(cluster, workload)?;
        let placement = match source {
            LayoutSource::Planner(planner) => {
                let planned = problem.planned(planner, false)?;
                let mut of = planned.placements.into_iter();
                let (_, placements) = of.find(|(of, _)| *of == planner).expect("every planner has a layout");
                placements.into_iter().next().expect("there is one group")
            }
            LayoutSource::Search(set) => {
                // Another seed than that of the run. Otherwise the best of some hundred layouts would profit from
                // chance.
                let cluster = ClusterSpec { seed: cluster.seed.wrapping_add(1), ..cluster.clone() };
                let found = problem.search(set, &cluster, workload, runs, 1).best.into_iter().next();
                found.ok_or("no layout of the search can be created")?.1
            }
        };
        cluster.layout = layout_spec(&placement, &problem.figures).map_err(|error| error.to_string())?;
        Ok(())
    }

    /// Decides whether the requests go to a replica, and sets the cluster's layout to that of the replica or of the moved
    /// file. Returns the redirected workload and the space of its replica; `None` if the requests stay as they are.
    ///
    /// # Errors
    /// Fails for several files, and for a layout with more than one stripe size.
    pub fn replicate<'a>(
        &self,
        cluster: &mut ClusterSpec,
        workload: &'a dyn Workload,
    ) -> Result<Option<(RedirectedWorkload<'a>, Replica)>, String> {
        let Some(policy) = self.replicas.filter(|policy| *policy != Policy::Off) else { return Ok(None) };
        let (problem, decision) = self.decision(policy, cluster, workload)?;
        let chosen = decision.alternative(decision.chosen).ok_or_else(|| decision.reason.clone())?;
        carry_out(chosen, &decision.arrangement, &problem.figures, cluster, workload)
    }

    /// Judges all alternatives for the workload's file.
    ///
    /// # Errors
    /// Fails for several files, and for a layout with more than one stripe size.
    pub fn decision(
        &self,
        policy: Policy,
        cluster: &ClusterSpec,
        workload: &dyn Workload,
    ) -> Result<(Problem, Decision), String> {
        let traced = summarize_workload_within(workload, &Limits { sample: REPLICATED_REQUESTS_MAX });
        let problem = self.problem_of(cluster, traced)?;
        if problem.group().files != 1 {
            return Err("replicas in an experiment need a workload with one file".into());
        }
        let layout = &cluster.layout;
        if !layout.stripe_sizes.is_empty() || layout.stripe_count.is_some() || layout.class.is_some() {
            return Err(
                "replicas in an experiment need a layout with one stripe size over all targets".into()
            );
        }
        let original = ClassPlacement::whole(vec![layout.stripe_size.0; problem.figures.classes.len()]);
        let options = replicas::Options { policy, ..replicas::Options::default() };
        let decide = if self.copy_back { replicas::decide } else { replicas::decide_without_copy_back };
        let plan = decide(&problem.traced, &problem.figures, &[original], &options)
            .map_err(|error| error.to_string())?;
        let decision = plan.decisions.into_iter().next().ok_or("the workload moves no bytes")?;
        Ok((problem, decision))
    }

    /// Returns the workload with a lookup before each request, if the plan has one.
    pub fn look_up<'a>(&self, workload: &'a dyn Workload) -> Option<LookedUpWorkload<'a>> {
        self.lookup_ns.map(|ns| LookedUpWorkload::new(workload, Nanos(ns)))
    }
}

/// Sets the cluster's layout to that of an alternative, and redirects the requests if it is a replica. Returns the
/// redirected workload and the space of its replica; `None` if the requests stay as they are.
///
/// # Errors
/// Fails for a layout that the cluster cannot have.
pub fn carry_out<'a>(
    chosen: &Alternative,
    arrangement: &Arrangement,
    figures: &Figures,
    cluster: &mut ClusterSpec,
    workload: &'a dyn Workload,
) -> Result<Option<(RedirectedWorkload<'a>, Replica)>, String> {
    if chosen.kind == Kind::Leave {
        return Ok(None);
    }
    cluster.layout = layout_spec(&chosen.placement, figures).map_err(|error| error.to_string())?;
    if !chosen.kind.is_replica() {
        return Ok(None);
    }
    let file = arrangement.objects().first().map_or(0, |object| object.file);
    let mapping = arrangement.mapping(file, &chosen.starts).map_err(|error| error.to_string())?;
    let replica = Replica { bytes: arrangement.bytes(), mapping_bytes: mapping.encoded_len() as u64 };
    Ok(Some((RedirectedWorkload::new(workload, arrangement.clone(), chosen.starts.clone()), replica)))
}
