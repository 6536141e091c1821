//! Layouts of an experiment by a planner, instead of by the description of its cluster.
//!
//! `cluster.plan = { planner = "psa", rooms = { ssd = … } }` lays files out as that planner does for the very workload;
//! without `planner` the cluster's own layout stays.

use serde::Deserialize;
use std::collections::BTreeMap;
use toml::{Table, Value};
use weft_planner::plan::Options;
use weft_planner::{Planner, plan};
use weft_twin::ClusterSpec;
use weft_workload::{Size, Workload};

/// Who lays out, with how much room.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanSpec {
    /// The planner.
    planner: Option<Planner>,
    /// Room on each target, by class.
    #[serde(default)]
    rooms: BTreeMap<String, Size>,
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

impl PlanSpec {
    /// Gives the cluster the layout that the planner has for the workload's files.
    ///
    /// # Errors
    /// When nothing can be planned.
    pub fn apply(&self, cluster: &mut ClusterSpec, workload: &dyn Workload) -> Result<(), String> {
        let Some(planner) = self.planner else { return Ok(()) };
        let traced = weft_estimate::traced(workload);
        let [unit] = traced.units.as_slice() else {
            return Err("a plan for an experiment is for one file, or for files with names alike".into());
        };
        let rooms = self.rooms.iter().map(|(class, room)| (class.clone(), room.0)).collect();
        let figures =
            weft_estimate::of_twin(cluster, &rooms, unit.extent_sum).map_err(|error| error.to_string())?;
        let options = Options { planner, alternatives: false, ..Options::default() };
        let planned = plan(&traced, &figures, &options).map_err(|error| error.to_string())?;
        let (_, placings) =
            planned.placings.iter().find(|(of, _)| *of == planner).expect("every planner has a layout");
        cluster.layout =
            weft_estimate::layout_spec(&placings[0], &figures).map_err(|error| error.to_string())?;
        Ok(())
    }
}
