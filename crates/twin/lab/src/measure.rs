//! Derives values from observations.

use crate::experiment::Measure;
use crate::formula::X;
use crate::world::{Kind, Observation, Phase};
use std::collections::BTreeMap;
use weft_core::Nanos;

/// A value, with its x if the measurement defines that.
pub type Value = (Option<X>, f64);

/// Returns the values that an experiment measures of a run. The error says what is missing.
pub fn values(measure: &Measure, seen: &Observation) -> Result<Vec<Value>, String> {
    let one = |value: f64| Ok(vec![(None, value)]);
    match measure {
        Measure::Bandwidth { phase } => {
            let selection = Selection::of(seen, phase.as_deref(), None)?;
            one(selection.all.bytes as f64 / 1e6 / seconds(selection.elapsed)?)
        }
        Measure::Rate { phase, op } => {
            let selection = Selection::of(seen, phase.as_deref(), op.as_deref())?;
            one(selection.all.ops as f64 / seconds(selection.elapsed)?)
        }
        Measure::RunTime { phase } => one(seconds(Selection::of(seen, phase.as_deref(), None)?.elapsed)?),
        Measure::MeanLatency { phase, op } => {
            let Kind { ops, latency, .. } = Selection::of(seen, phase.as_deref(), op.as_deref())?.all;
            if ops == 0 {
                return Err("no operation was performed".into());
            }
            one(latency.0 as f64 / 1e6 / ops as f64)
        }
        Measure::IoTime => {
            let in_calls =
                Selection::of(seen, None, None)?.all.latency.0 as f64 / f64::from(seen.ranks.max(1));
            one((in_calls + seen.drain.0 as f64) / 1e9)
        }
        Measure::SsdShare => {
            let bytes = Selection::of(seen, None, None)?.all.bytes;
            if bytes == 0 {
                return Err("no bytes were moved".into());
            }
            // Without SSDs there is no status.
            let of_ssd = seen.ssd.map_or(0, |ssd| ssd.written + ssd.read);
            one(100.0 * of_ssd as f64 / bytes as f64)
        }
        Measure::DelegateMemory => match seen.delegate_memory {
            Some(bytes) => one(bytes as f64 / 1e6),
            None => Err("there are no delegates".into()),
        },
        Measure::DiskTime => disk_time(seen),
        Measure::MappingSpace => match seen.replica {
            Some(replica) if replica.bytes > 0 => {
                one(100.0 * replica.mapping_bytes as f64 / replica.bytes as f64)
            }
            _ => Err("there is no replica".into()),
        },
        Measure::BlockSizes { least } => block_sizes(seen, *least),
    }
}

/// A phase, or the whole run.
struct Selection {
    elapsed: Nanos,
    all: Kind,
}

impl Selection {
    fn of(seen: &Observation, phase: Option<&str>, op: Option<&str>) -> Result<Self, String> {
        let phases: Vec<&Phase> =
            seen.phases.iter().filter(|of| phase.is_none_or(|name| of.name == name)).collect();
        let elapsed = match (phase, phases.first()) {
            (None, _) => seen.elapsed,
            // Written bytes of the phase reach the disks by the end of the drain.
            (Some(_), Some(phase)) => Nanos(phase.elapsed.0 + seen.drain.0),
            (Some(name), None) => {
                let there: Vec<&str> = seen.phases.iter().map(|phase| phase.name.as_str()).collect();
                return Err(format!("there is no phase `{name}`, only: {}", there.join(", ")));
            }
        };
        let kinds = phases.iter().flat_map(|phase| &phase.kinds);
        let mut all = Kind::default();
        for (_, kind) in kinds.filter(|(name, _)| op.is_none_or(|op| op == *name)) {
            all.ops += kind.ops;
            all.bytes += kind.bytes;
            all.latency.0 += kind.latency.0;
        }
        Ok(Self { elapsed, all })
    }
}

fn seconds(time: Nanos) -> Result<f64, String> {
    if time.0 == 0 { Err("it took no time".into()) } else { Ok(time.0 as f64 / 1e9) }
}

/// Returns the time during which the disks of each data server were not idle.
fn disk_time(seen: &Observation) -> Result<Vec<Value>, String> {
    let mut busy: BTreeMap<u32, u64> = BTreeMap::new();
    for disk in seen.disks.iter().filter(|disk| disk.is_data) {
        *busy.entry(disk.server).or_default() += disk.counters.busy.0;
    }
    if busy.is_empty() {
        return Err("there is no data server".into());
    }
    Ok((0..).zip(busy.values()).map(|(n, ns)| (Some(X::Name(format!("S{n}"))), *ns as f64 / 1e9)).collect())
}

/// Returns shares by request size in KiB, as in the papers. Halves are sectors.
fn block_sizes(seen: &Observation, least: f64) -> Result<Vec<Value>, String> {
    let mut sizes: BTreeMap<u64, u64> = BTreeMap::new();
    for disk in seen.disks.iter().filter(|disk| disk.is_data) {
        for (size, count) in &disk.counters.block_sizes {
            *sizes.entry(*size).or_default() += count;
        }
    }
    let all: u64 = sizes.values().sum();
    if all == 0 {
        return Err("no request reached a disk".into());
    }
    let share = |count: u64| 100.0 * count as f64 / all as f64;
    let values = sizes.iter().map(|(size, count)| (Some(X::Number(*size as f64 / 1024.0)), share(*count)));
    Ok(values.filter(|(_, share)| *share >= least).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::{Disk, Replica, Ssd};
    use weft_env::device::DeviceCounters;

    fn seen() -> Observation {
        let sizes = |sizes: &[(u64, u64)]| DeviceCounters {
            block_sizes: sizes.iter().copied().collect(),
            ..Default::default()
        };
        let disk = |server, is_data, counters| Disk { name: "d".into(), server, is_data, counters };
        let busy = |ms: u64, counters| DeviceCounters { busy: Nanos(ms * 1_000_000), ..counters };
        let phase = |name: &str, ms: u64, kinds: &[(&str, u64, u64)]| Phase {
            name: name.into(),
            elapsed: Nanos(ms * 1_000_000),
            kinds: kinds
                .iter()
                .map(|(name, ops, bytes)| {
                    let latency = Nanos(ops * 500_000);
                    (name.to_string(), Kind { ops: *ops, bytes: *bytes, latency })
                })
                .collect(),
        };
        Observation {
            elapsed: Nanos(2_000_000_000),
            phases: vec![
                phase("read", 500, &[("read", 100, 10_000_000), ("open", 50, 0)]),
                phase("write", 1000, &[("write", 250, 20_000_000)]),
            ],
            disks: vec![
                disk(1, true, busy(700, sizes(&[(65_536, 60), (1024, 1)]))),
                disk(2, true, busy(400, sizes(&[(65_536, 20), (512, 19)]))),
                disk(0, false, busy(900, sizes(&[(4096, 1000)]))),
            ],
            ssd: Some(Ssd { written: 2_000_000, read: 1_000_000, written_back: 7, ..Ssd::default() }),
            delegate_memory: Some(3_000_000),
            replica: Some(Replica { bytes: 4_000_000, mapping_bytes: 24_000 }),
            ranks: 4,
            drain: Nanos(250_000_000),
            ..Default::default()
        }
    }

    #[test]
    fn measures_match_computation_by_hand() {
        let phase = || Some("read".to_owned());
        for (measure, expected) in [
            (Measure::Bandwidth { phase: None }, 15.0),
            // 10 MB in half a second, plus a quarter of a second of drain.
            (Measure::Bandwidth { phase: phase() }, 40.0 / 3.0),
            (Measure::Rate { phase: None, op: None }, 200.0),
            (Measure::Rate { phase: phase(), op: None }, 200.0),
            (Measure::Rate { phase: phase(), op: Some("write".into()) }, 0.0),
            (Measure::RunTime { phase: phase() }, 0.75),
            (Measure::MeanLatency { phase: None, op: None }, 0.5),
            // 400 operations of half a millisecond by four processes.
            (Measure::IoTime, 0.3),
            (Measure::SsdShare, 10.0),
            (Measure::DelegateMemory, 3.0),
            (Measure::MappingSpace, 0.6),
        ] {
            assert_eq!(values(&measure, &seen()), Ok(vec![(None, expected)]), "{measure:?}");
        }
        let times = [("S0", 0.7), ("S1", 0.4)].map(|(name, s)| (Some(X::Name(name.into())), s));
        assert_eq!(values(&Measure::DiskTime, &seen()), Ok(times.to_vec()));
        let shares = vec![(Some(X::Number(0.5)), 19.0), (Some(X::Number(64.0)), 80.0)];
        assert_eq!(values(&Measure::BlockSizes { least: 1.5 }, &seen()), Ok(shares));
    }

    #[test]
    fn missing_values_are_reported() {
        let error = values(&Measure::Bandwidth { phase: Some("none".into()) }, &seen()).unwrap_err();
        assert_eq!(error, "there is no phase `none`, only: read, write");
        assert!(values(&Measure::RunTime { phase: None }, &Observation::default()).is_err());
        for measure in [Measure::BlockSizes { least: 1.0 }, Measure::DiskTime, Measure::MappingSpace] {
            assert!(values(&measure, &Observation::default()).is_err(), "{measure:?}");
        }
    }
}
