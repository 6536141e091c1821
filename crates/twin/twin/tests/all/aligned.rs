//! Requests that leave nothing for the SSD take as long as without an SSD.

use weft_core::ibridge::Policy;
use weft_twin::{
    ClusterSpec, DeviceRole, IbridgeSpec, Module, Outcome, RunOptions, ServerSpec, TargetSpec, run_with,
};
use weft_workload::{Size, WorkloadSpec};

/// Tolerance of a duration in nanoseconds.
const ROUNDING_NS: u64 = 1000;

fn cluster(policy: Policy, module: Module) -> ClusterSpec {
    let ibridge = IbridgeSpec {
        policy,
        size: Size::mib(64),
        // Servers exchange their average service times many times in a short run.
        exchange_ms: 10,
        profile: "ibridge-ssd".to_owned(),
        ..IbridgeSpec::default()
    };
    let target = TargetSpec {
        module,
        profile: "ibridge-hdd".to_owned(),
        ibridge: Some(ibridge),
        ..TargetSpec::default()
    };
    let mut spec = ClusterSpec {
        servers: vec![ServerSpec { count: 2, targets: vec![target], ..ServerSpec::default() }],
        processes_per_node: 2,
        ..ClusterSpec::default()
    };
    spec.layout.stripe_size = Size::kib(64);
    spec.client.pause_us = 300.0;
    spec
}

fn outcome(policy: Policy, module: Module, access: &str, transfer: &str) -> Outcome {
    let text = format!(
        "kind = \"mpi-io-test\"\nranks = 6\nsize = \"{transfer}\"\ntotal = \"6 MiB\"\naccess = \"{access}\""
    );
    let workload: WorkloadSpec = toml::from_str(&text).expect("a workload");
    let options = RunOptions { passes: 2, drain: true, paired: true, ..RunOptions::default() };
    run_with(&cluster(policy, module), &*workload.build().expect("builds"), options).expect("runs to its end")
}

#[test]
fn aligned_requests_take_the_same_time_with_and_without_ssds() {
    for module in [Module::Direct, Module::Buffered] {
        for access in ["rewrite", "read"] {
            for transfer in ["64 KiB", "256 KiB"] {
                let what = format!("{transfer} {access} {module:?}");
                let seen = |policy| {
                    let outcome = outcome(policy, module, access, transfer);
                    let disks = outcome.devices.iter().filter(|device| device.role == DeviceRole::Target);
                    let disks: Vec<_> = disks.map(|device| device.counters.block_sizes.clone()).collect();
                    let times = outcome.phases.iter().map(|phase| phase.elapsed().0);
                    (times.collect::<Vec<_>>(), disks)
                };
                let (times, disks) = seen(Policy::Off);
                assert!(disks.iter().all(|sizes| !sizes.is_empty()), "{what}: to the disks");
                for policy in [Policy::Ibridge, Policy::Threshold] {
                    let (found, same) = seen(policy);
                    assert_eq!(same, disks, "{what}, {policy}");
                    // The angle of the platters is rounded.
                    let is_same = found.iter().zip(&times).all(|(a, b)| a.abs_diff(*b) <= ROUNDING_NS);
                    assert!(is_same && found.len() == times.len(), "{what}, {policy}: {found:?}, {times:?}");
                }
            }
        }
    }
}

#[test]
fn fragments_change_the_elapsed_time() {
    let of = |policy| outcome(policy, Module::Direct, "rewrite", "65 KiB").elapsed;
    assert_ne!(of(Policy::Threshold), of(Policy::Off));
}
