//! Workloads on simulated clusters: equal seeds give equal events, and everything is counted.

use weft_core::Nanos;
use weft_twin::{ClusterSpec, MetadataSpec, OpKind, Outcome, Payload, RunError, ServerSpec, TargetSpec, run};
use weft_workload::{Access, MpiIoTest, Size, WorkloadSpec};

fn cluster(servers: u32) -> ClusterSpec {
    ClusterSpec {
        servers: vec![ServerSpec { count: servers, ..ServerSpec::default() }],
        ..ClusterSpec::default()
    }
}

fn transfers(ranks: u32, size: Size, iterations: u64) -> WorkloadSpec {
    let spec =
        MpiIoTest { ranks, size, iterations: Some(iterations), access: Access::Both, ..MpiIoTest::default() };
    WorkloadSpec::MpiIoTest(spec)
}

fn outcome(cluster: &ClusterSpec, workload: &WorkloadSpec) -> Outcome {
    run(cluster, &*workload.build().expect("a workload")).expect("runs to its end")
}

#[test]
fn equal_seeds_give_equal_events() {
    let workload = transfers(8, Size::kib(64), 5);
    for payload in [Payload::Lengths, Payload::Bytes] {
        for shuffle in [false, true] {
            let cluster = |seed| ClusterSpec { seed, payload, shuffle, ..cluster(3) };
            let first = outcome(&cluster(5), &workload);
            assert_eq!(first, outcome(&cluster(5), &workload), "same seed");
            assert_ne!(first.event_hash, outcome(&cluster(6), &workload).event_hash, "another seed");
        }
    }
}

#[test]
fn lengths_take_the_time_of_bytes() {
    for size in [1000, 4096, 65_536, 100_001, 3_000_000] {
        let workload = transfers(6, Size(size), 4);
        let with = |payload| outcome(&ClusterSpec { payload, ..cluster(3) }, &workload);
        let (lengths, bytes) = (with(Payload::Lengths), with(Payload::Bytes));
        assert_eq!(lengths.elapsed, bytes.elapsed, "{size} bytes");
        assert_eq!((lengths.phases, lengths.devices), (bytes.phases, bytes.devices), "{size} bytes");
    }
}

#[test]
fn outcomes_count_all_operations() {
    let outcome = outcome(&cluster(4), &transfers(8, Size::kib(100), 6));
    let bytes = 8 * 6 * 100 * 1024;
    let all = |kind| outcome.phases.iter().filter_map(|phase| phase.kinds.get(&kind)).collect::<Vec<_>>();
    for kind in [OpKind::Read, OpKind::Write] {
        assert_eq!(all(kind).iter().map(|it| it.bytes).sum::<u64>(), bytes);
        assert_eq!(all(kind).iter().map(|it| it.latency.count()).sum::<u64>(), 8 * 6);
    }
    assert_eq!(outcome.file_requests, outcome.phases.iter().map(|phase| phase.ops()).sum::<u64>());
    assert_eq!(outcome.devices.len(), 5, "four targets and the metadata");
    let read: u64 = outcome.devices.iter().map(|device| device.counters.read_bytes).sum();
    assert_eq!(read, bytes, "the simple disk has no memory");
    assert!(outcome.phases.iter().all(|phase| phase.end <= outcome.elapsed && phase.start <= phase.end));
}

#[test]
fn descriptions_have_defaults_and_invalid_ones_are_refused_with_reasons() {
    let read = |text: &str| toml::from_str::<ClusterSpec>(text);
    assert_eq!(read("").expect("every field has a default"), ClusterSpec::default());
    let spec = read(
        "payload = 'bytes'\n[[servers]]\ncount = 2\n[[servers.targets]]\nclass = 'ssd'\nmodule = 'direct'\n\
         [layout]\nstripe_size = '64 KiB'\n[metadata]\nserver = 1",
    );
    assert_eq!(spec.expect("a cluster").check(), Ok(()));
    assert!(read("nonsense = 1").is_err());
    let refused = |text: &str| read(text).expect("it reads").check().expect_err("refused").to_string();
    for (text, why) in [
        ("network = 'tokens'", "cluster: network: there is no network named \"tokens\""),
        ("processes_per_node = 0", "cluster: processes_per_node: give at least 1"),
        ("servers = []", "cluster: servers: give at least 1"),
        ("[metadata]\nserver = 8", "cluster: metadata.server: there are only 8 servers"),
        ("[layout]\nclass = 'tape'", "cluster: layout.class: no target is of class \"tape\"; there are hdd"),
        ("[[servers]]\n[[servers.targets]]\nprofile = 'drum'", "servers[0].targets[0].profile: "),
        ("[client]\nchecksums = true", "cluster: client.checksums: payloads of lengths only"),
    ] {
        let found = refused(text);
        assert!(found.contains(why), "{found}");
    }
}

#[test]
fn a_full_disk_ends_the_run_with_a_reason() {
    let mut small = cluster(1);
    small.servers[0].targets = vec![TargetSpec { capacity: Size::mib(1), ..TargetSpec::default() }];
    let error = run(&small, &*transfers(2, Size::kib(256), 8).build().expect("a workload"));
    let error = error.expect_err("4 MiB do not fit");
    assert!(matches!(&error, RunError::Op { .. } | RunError::Workload { .. }), "{error}");
    assert!(error.to_string().contains("write of 262144 bytes"), "{error}");
}

#[test]
fn barrier_cost_is_logarithmic() {
    let spec = ClusterSpec::default();
    let cost = |ranks| spec.barrier_cost(ranks).0 / spec.client.barrier_hop_ns;
    assert_eq!([1, 2, 3, 4, 5, 1024, 1025].map(cost), [0, 1, 2, 2, 3, 10, 11]);
    assert_eq!(spec.barrier_cost(1), Nanos::ZERO);
}

#[test]
fn metadata_and_targets_share_disks_as_described() {
    let target = |class: &str| TargetSpec { class: class.into(), ..TargetSpec::default() };
    let mut spec = cluster(2);
    spec.servers[0].targets = vec![target("hdd"), target("hdd"), target("ssd")];
    spec.layout.stripe_sizes =
        [("hdd".to_owned(), Size::kib(48)), ("ssd".to_owned(), Size::kib(160))].into_iter().collect();
    let workload = transfers(4, Size::kib(512), 4);
    let own = outcome(&spec, &workload);
    let disks: Vec<_> =
        own.devices.iter().map(|disk| (disk.server, disk.target, disk.class.as_str())).collect();
    assert_eq!(
        disks,
        [
            (0, Some(0), "hdd"),
            (0, Some(1), "hdd"),
            (0, Some(2), "ssd"),
            (1, Some(3), "hdd"),
            (1, Some(4), "hdd"),
            (1, Some(5), "ssd"),
            (2, None, "metadata"),
        ]
    );
    // One row has four stripes of 48 KiB and two of 160 KiB: 512 KiB, the length of each request.
    for disk in &own.devices[..6] {
        let part = if disk.class == "ssd" { 160 } else { 48 };
        assert_eq!(disk.counters.read_bytes, (16 * part) << 10, "{disk:?}");
    }
    // Metadata on a data server, first on a separate disk, then on the disk of a target.
    for (profile, count) in [(Some("simple".to_owned()), 7), (None, 6)] {
        spec.metadata = MetadataSpec { server: Some(1), profile };
        let shared = outcome(&spec, &workload);
        assert_eq!(shared.devices.len(), count);
        let written = |server: u32| {
            let of_it = shared.devices.iter().filter(|disk| disk.server == server);
            of_it.map(|disk| disk.counters.write_bytes).sum::<u64>()
        };
        // Only metadata is synced.
        assert!(written(1) > 0 && written(0) == 0, "{:?}", shared.devices);
    }
}
