//! Runs experiments on simulated clusters.

use crate::experiment::Runs;
use crate::planned::{self, PlanSpec};
use crate::world::{Disk, Kind, Observation, Phase, Ssd, World};
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::time::Instant;
use toml::{Table, Value};
use weft_core::Nanos;
use weft_twin::{ClusterSpec, DeviceRole, IbridgeOutcome, Outcome, PhaseOutcome, SsdStatus};
use weft_workload::{Workload, WorkloadSpec};

/// The twin: real client and servers on modelled disks and networks, under virtual time.
pub struct Twin;

impl World for Twin {
    fn check(&self, cluster: &Table, workload: &Table) -> Result<(), String> {
        read(cluster, workload).map(|_| ())
    }

    fn run(&self, cluster: &Table, workload: &Table, runs: Runs, seed: u64) -> Result<Observation, String> {
        let (mut cluster, plan, workload) = read(cluster, workload)?;
        cluster.seed = seed;
        let (mut redirected, mut looked_up) = (None, None);
        if let Some(plan) = plan {
            plan.apply(&mut cluster, &*workload, runs)?;
            redirected = plan.replicate(&mut cluster, &*workload)?;
            looked_up = plan.look_up(&*workload);
        }
        let replica = redirected.as_ref().map(|(_, replica)| *replica);
        let workload: &dyn Workload = match (&redirected, &looked_up) {
            (Some((redirected, _)), _) => redirected,
            (None, Some(looked_up)) => looked_up,
            (None, None) => &*workload,
        };
        let begin = Instant::now();
        let ranks = workload.ranks();
        let options = runs.options();
        let outcome = weft_twin::run_with(&cluster, workload, options).map_err(|error| error.to_string())?;
        Ok(Observation { wall: begin.elapsed(), ranks, replica, ..seen(outcome) })
    }
}

/// Cluster, planner and workload of a run.
pub(crate) type Described = (ClusterSpec, Option<PlanSpec>, Box<dyn Workload>);

pub(crate) fn read(cluster: &Table, workload: &Table) -> Result<Described, String> {
    let mut cluster = cluster.clone();
    let plan = planned::take(&mut cluster)?;
    let spec: ClusterSpec = parsed("cluster", &cluster)?;
    spec.check().map_err(|error| error.to_string())?;
    let workload: WorkloadSpec = parsed("workload", workload)?;
    Ok((spec, plan, workload.build().map_err(|error| error.to_string())?))
}

fn parsed<T: DeserializeOwned>(what: &str, table: &Table) -> Result<T, String> {
    Value::Table(table.clone())
        .try_into()
        .map_err(|error: toml::de::Error| format!("{what}: {}", error.message()))
}

fn seen(outcome: Outcome) -> Observation {
    let disk = |device: weft_twin::DeviceOutcome| Disk {
        name: format!("server {} {} {}", device.server, device.class, device.profile),
        server: device.server,
        is_data: device.role == DeviceRole::Target,
        counters: device.counters,
    };
    let ssd = (!outcome.ibridge.is_empty()).then(|| ssd(&outcome.ibridge));
    Observation {
        ssd,
        elapsed: outcome.elapsed,
        drain: outcome.drain,
        phases: outcome.phases.iter().map(phase).collect(),
        disks: outcome.devices.into_iter().map(disk).collect(),
        event_hash: outcome.event_hash,
        requests: outcome.file_requests,
        delegate_memory: outcome.delegates.map(|delegates| delegates.memory_max),
        ..Observation::default()
    }
}

fn ssd(all: &[IbridgeOutcome]) -> Ssd {
    let sum = |of: fn(&SsdStatus) -> u64| all.iter().map(|log| of(&log.status)).sum();
    Ssd {
        written: sum(|log| log.bytes_written.0),
        read: sum(|log| log.bytes_read.0),
        written_back: sum(|log| log.bytes_written_back.0),
        preloaded: sum(|log| log.bytes_preloaded.0),
        moved: sum(|log| log.bytes_moved.0),
        dirty: sum(|log| log.dirty.0),
        fragments: sum(|log| log.class("fragment").admitted),
        random: sum(|log| log.class("random").admitted),
        hits: sum(|log| log.read_hits),
        partial_hits: sum(|log| log.read_partial_hits),
        misses: sum(|log| log.read_misses),
    }
}

fn phase(phase: &PhaseOutcome) -> Phase {
    let mut kinds = BTreeMap::new();
    for (kind, measure) in &phase.kinds {
        let name = serde_json::to_value(kind).ok().and_then(|name| name.as_str().map(str::to_owned));
        let name = name.expect("a kind of operation is a word");
        let ops = measure.latency.count();
        let latency = Nanos(measure.latency.mean().0 * ops);
        kinds.insert(name, Kind { ops, bytes: measure.bytes, latency });
    }
    Phase { name: phase.name.clone(), elapsed: phase.elapsed(), kinds }
}
