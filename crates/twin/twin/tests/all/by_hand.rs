//! Small cases whose virtual time can be computed by hand, on the simple disk and the simple network.
//!
//! | Model | Fixed | Per byte |
//! | --- | --- | --- |
//! | Simple disk, medium | 50,000 ns | 0.5 ns |
//! | Simple disk, into memory | 1,000 ns | 0.1 ns |
//! | Simple network | 20,000 ns | 0.08 ns |

use crate::script::Script;
use weft_core::Nanos;
use weft_twin::{
    ClusterSpec, Module, OpKind, Outcome, RunError, RunOptions, ServerSpec, TargetSpec, run, run_with,
};
use weft_workload::{FileRef, Op, Size};

const FILE: FileRef = FileRef(0);
const OPEN: Op = Op::Open { file: FILE, create: true };
/// Maximum nanoseconds for the headers of a request and its reply, which have fewer than 400 bytes.
const HEADS_MAX: u64 = 32;

fn write(offset: u64, len: u64) -> Op {
    Op::Write { file: FILE, offset, len, collective: false }
}

fn read(offset: u64, len: u64) -> Op {
    Op::Read { file: FILE, offset, len, collective: false }
}

fn cluster(servers: u32, module: Module) -> ClusterSpec {
    let targets = vec![TargetSpec { module, ..TargetSpec::default() }];
    let mut spec = ClusterSpec {
        servers: vec![ServerSpec { count: servers, targets, ..ServerSpec::default() }],
        processes_per_node: 1,
        ..ClusterSpec::default()
    };
    spec.layout.stripe_size = Size::mib(1);
    spec
}

fn outcome(spec: &ClusterSpec, ranks: Vec<Vec<Op>>) -> Outcome {
    run(spec, &Script(ranks)).expect("runs to its end")
}

/// Returns the duration of phase 1. Connecting and opening come before it.
fn phase(outcome: &Outcome) -> u64 {
    let phase = outcome.phases.iter().find(|phase| phase.name == "1").expect("there is one");
    phase.elapsed().0
}

fn network(len: u64) -> u64 {
    (len as f64 * 0.08) as u64
}

#[track_caller]
fn assert_time(took: u64, expected: u64, messages: u64) {
    let most = expected + messages * HEADS_MAX;
    assert!((expected..=most).contains(&took), "{took} ns instead of {expected} ns and {messages} heads");
}

#[test]
fn computation_and_barriers_take_their_given_time() {
    let compute = |us: u64| Op::Compute(Nanos(1_000 * us));
    let ranks = (1..=5).map(|rank| vec![compute(rank * 100), Op::Barrier, compute(7), Op::Barrier]).collect();
    // The slowest rank computes for 500 us. A barrier of five ranks has three hops of 10 us.
    assert_eq!(outcome(&cluster(1, Module::Buffered), ranks).elapsed, Nanos(1_000 * (500 + 30 + 7 + 30)));
}

#[test]
fn a_write_takes_two_messages_and_a_copy() {
    for len in [1, 4096, 65_536, 500_000] {
        let ops = vec![OPEN, write(0, 1), Op::Phase(1), write(0, len)];
        let took = phase(&outcome(&cluster(1, Module::Buffered), vec![ops]));
        assert_time(took, 2 * 20_000 + network(len) + 1_000 + len / 10, 2);
    }
}

#[test]
fn a_direct_write_takes_the_medium_time() {
    for blocks in [1, 16, 120] {
        let len = blocks * 4096;
        let ops = vec![OPEN, write(0, 1 << 19), Op::Phase(1), write(0, len)];
        let took = phase(&outcome(&cluster(1, Module::Direct), vec![ops]));
        assert_time(took, 2 * 20_000 + network(len) + 50_000 + len / 2, 2);
    }
}

#[test]
fn a_sync_writes_unsynced_bytes_to_the_medium() {
    let ops = vec![
        OPEN,
        write(0, 1),
        Op::Sync { file: FILE },
        write(0, 200_000),
        Op::Phase(1),
        Op::Sync { file: FILE },
    ];
    let took = phase(&outcome(&cluster(1, Module::Buffered), vec![ops]));
    // The first sync made the datafile's name durable.
    assert_time(took, 2 * 20_000 + 50_000 + 100_000, 2);
}

#[test]
fn a_read_from_four_servers_is_limited_by_the_client_link() {
    let piece = 256 << 10;
    let mut spec = cluster(4, Module::Buffered);
    spec.layout.stripe_size = Size(piece);
    let ops = vec![OPEN, write(0, 4 * piece), Op::Phase(1), read(0, 4 * piece)];
    let took = phase(&outcome(&spec, vec![ops]));
    // All four disks read their piece at once. All replies share the client's one link.
    assert_time(took, 2 * 20_000 + 50_000 + piece / 2 + 4 * network(piece), 8);
}

#[test]
fn readers_of_one_disk_queue() {
    let len = 65_536;
    let rank = |number: u64| {
        vec![OPEN, write(number * len, len), Op::Barrier, Op::Phase(1), read(number * len, len)]
    };
    let outcome = outcome(&cluster(1, Module::Buffered), (0..4).map(rank).collect());
    // Each rank has a node and a link. The server's link carries one reply while the disk reads the next.
    assert_time(phase(&outcome), 2 * 20_000 + 4 * (50_000 + len / 2) + network(len), 2);
    let reads = &outcome.phases.iter().find(|phase| phase.name == "1").expect("it").kinds[&OpKind::Read];
    assert_eq!(reads.latency.count(), 4);
    let disk = &outcome.devices[0].counters;
    assert_eq!((disk.reads, disk.read_bytes, disk.busy.0), (4, 4 * len, 4 * (50_000 + len / 2)));
}

#[test]
fn draining_includes_bytes_in_the_page_cache() {
    let spec = cluster(1, Module::Buffered);
    let script = || Script(vec![vec![OPEN, Op::Phase(1), write(0, 1 << 20), Op::Close { file: FILE }]]);
    let of = |drain| {
        run_with(&spec, &script(), RunOptions { drain, ..RunOptions::default() }).expect("runs to its end")
    };
    let (quick, whole) = (of(false), of(true));
    assert_eq!((quick.drain, quick.devices[0].counters.write_bytes), (Nanos::ZERO, 0), "in memory only");
    assert!(whole.devices[0].counters.write_bytes >= 1 << 20);
    // 1 MiB at half a nanosecond per byte.
    assert!(whole.drain >= Nanos(524_288), "{:?}", whole.drain);
    assert_eq!(whole.elapsed, Nanos(quick.elapsed.0 + whole.drain.0));
    assert_eq!(phase(&whole), phase(&quick), "phases are what the ranks did");
}

#[test]
fn only_the_last_pass_is_reported() {
    let script = || {
        Script(vec![vec![OPEN, write(0, 1 << 20), Op::Phase(1), read(0, 1 << 20), Op::Close { file: FILE }]])
    };
    let spec = cluster(1, Module::Buffered);
    let of = |passes| {
        run_with(&spec, &script(), RunOptions { passes, ..RunOptions::default() }).expect("runs to its end")
    };
    let (first, third) = (of(1), of(3));
    assert_eq!(first.file_requests, third.file_requests);
    assert_eq!(phase(&first), phase(&third));
    // The run does not wait for the bytes of the last pass. Those of earlier passes are on the disk when it begins.
    assert_eq!(third.devices[0].counters.write_bytes, first.devices[0].counters.write_bytes);
    assert!(third.turns > first.turns, "but there were others");
}

#[test]
fn a_limit_ends_longer_runs_and_leaves_shorter_ones_unchanged() {
    let spec = cluster(1, Module::Buffered);
    let ranks = || {
        let rank =
            |number: u64| vec![OPEN, write(number << 20, 1 << 20), Op::Sync { file: FILE }, Op::Barrier];
        Script((0..3).map(rank).collect())
    };
    for drain in [false, true] {
        let run = |limit| run_with(&spec, &ranks(), RunOptions { limit, drain, ..RunOptions::default() });
        let free = run(None).expect("runs to its end");
        let within = run(Some(free.elapsed)).expect("runs to its end");
        assert_eq!((within.elapsed, within.event_hash), (free.elapsed, free.event_hash));
        for limit in [Nanos(free.elapsed.0 - 1), Nanos(free.elapsed.0 / 3), Nanos::ZERO] {
            let error = run(Some(limit)).expect_err("takes longer");
            assert_eq!(error, RunError::Late(limit));
        }
    }
}
