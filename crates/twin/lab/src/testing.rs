//! Worlds with fixed results for tests.

use crate::experiment::{Experiment, Runs};
use crate::run::{Options, Outcome, run};
use crate::world::{Disk, Kind, Observation, Phase, Replica, World};
use toml::Table;
use weft_core::Nanos;
use weft_env::device::DeviceCounters;

/// A world in which every run gives the same result.
pub struct Flat;

impl World for Flat {
    fn check(&self, _: &Table, _: &Table) -> Result<(), String> {
        Ok(())
    }

    fn run(&self, _: &Table, _: &Table, _: Runs, seed: u64) -> Result<Observation, String> {
        let kind = Kind { ops: 1000, bytes: 100_000_000, latency: Nanos(1_000_000_000) };
        let phase = |name: &str| Phase {
            name: name.into(),
            elapsed: Nanos(1_000_000_000),
            kinds: ["read", "write", "open", "set-len", "remove"].map(|name| (name.to_owned(), kind)).into(),
        };
        let counters = DeviceCounters {
            busy: Nanos(500_000_000),
            block_sizes: [(65_536, 75), (131_072, 25)].into(),
            ..Default::default()
        };
        Ok(Observation {
            elapsed: Nanos(1_000_000_000),
            drain: Nanos(0),
            phases: ["read", "write", "create", "open", "resize", "delete", "spanning/read"]
                .map(phase)
                .to_vec(),
            disks: vec![Disk { name: "data".into(), server: 0, is_data: true, counters }],
            ssd: None,
            ranks: 4,
            event_hash: seed,
            requests: 1000,
            delegate_memory: Some(1_000_000),
            replica: Some(Replica { bytes: 1_000_000, mapping_bytes: 1000 }),
            wall: std::time::Duration::from_millis(1),
        })
    }
}

/// Runs an experiment with seed 7. Panics on an error.
pub fn outcome(experiment: &Experiment, world: &dyn World, quick: bool) -> Outcome {
    let options = Options { quick, seed: 7, jobs: 2 };
    run(experiment, world, &options, &mut |_, _, _| ()).unwrap_or_else(|error| panic!("{error}"))
}
