//! Compressed files on modeled disks: the device transfers what is stored, and coding takes processor time.

use weft_twin::{
    ClusterSpec, CompressionSpec, DeviceRole, Outcome, Payload, RunOptions, ServerSpec, TargetSpec, run,
    run_with,
};
use weft_workload::{Size, WorkloadSpec};

/// Ratio of bytes that are stored raw.
const INCOMPRESSIBLE: f64 = 1.0;
const ZEROS: f64 = 0.0;

fn cluster(profile: &str, setting: &str, ratio: f64) -> ClusterSpec {
    let target = TargetSpec { profile: profile.to_owned(), ..TargetSpec::default() };
    let mut spec = ClusterSpec {
        servers: vec![ServerSpec { count: 1, targets: vec![target], ..ServerSpec::default() }],
        compression: CompressionSpec { setting: setting.to_owned(), ratio, speed: 1.0 },
        ..ClusterSpec::default()
    };
    spec.layout.stripe_size = Size::mib(1);
    spec
}

fn workload(access: &str, ranks: u32, transfer: &str, per_rank: &str, order: &str) -> WorkloadSpec {
    let text = format!(
        "kind = \"ior\"\nranks = {ranks}\ntransfer = \"{transfer}\"\nper_rank = \"{per_rank}\"\n\
         access = \"{access}\"\n{order}"
    );
    toml::from_str(&text).expect("a workload")
}

fn outcome(cluster: &ClusterSpec, workload: &WorkloadSpec) -> Outcome {
    let options = RunOptions { drain: true, ..RunOptions::default() };
    run_with(cluster, &*workload.build().expect("builds"), options).expect("runs to its end")
}

/// Bytes read and written by the disks of the targets.
fn moved(outcome: &Outcome) -> (u64, u64) {
    let disks = outcome.devices.iter().filter(|device| device.role == DeviceRole::Target);
    disks.fold((0, 0), |(read, written), disk| {
        (read + disk.counters.read_bytes, written + disk.counters.write_bytes)
    })
}

#[test]
fn a_sequential_program_gains_what_the_disk_does_not_transfer() {
    // Long enough that memory holds a small part of it.
    for (access, per_rank) in [("write", "4 GiB"), ("read", "1 GiB")] {
        let workload = workload(access, 1, "1 MiB", per_rank, "");
        let elapsed =
            |setting, ratio| outcome(&cluster("hdd-7200", setting, ratio), &workload).elapsed.0 as f64;
        let plain = elapsed("off", INCOMPRESSIBLE);
        let gain = |ratio| plain / elapsed("zstd", ratio);
        let (half, incompressible, zeros) = (gain(0.5), gain(INCOMPRESSIBLE), gain(ZEROS));
        let what = format!("{access}: {half:.2}, incompressible {incompressible:.3}, zeros {zeros:.1}");
        assert!(half >= 1.7 && incompressible >= 0.97 && zeros >= 10.0, "{what}");
    }
}

#[test]
fn the_disk_transfers_the_stored_bytes_and_the_map() {
    let bytes = 256 << 20;
    for (ratio, stored) in [(0.5, bytes / 2), (0.25, bytes / 4), (INCOMPRESSIBLE, bytes), (ZEROS, 0)] {
        let cluster = cluster("hdd-7200", "lz4/256KiB", ratio);
        let (_, written) = moved(&outcome(&cluster, &workload("write", 4, "1 MiB", "64 MiB", "")));
        assert!((stored..stored + (1 << 20)).contains(&written), "{written} bytes of {stored} at {ratio}");
        let (read, _) = moved(&outcome(&cluster, &workload("read", 4, "1 MiB", "64 MiB", "")));
        assert!((stored..stored + (8 << 20)).contains(&read), "{read} bytes of {stored} at {ratio}");
    }
}

#[test]
fn interleaved_records_are_read_as_fast_as_plain_ones() {
    let workload = workload("read", 4, "47008", "64 MiB", "layout = \"strided\"");
    let elapsed = |setting, ratio| outcome(&cluster("hdd-7200", setting, ratio), &workload).elapsed.0 as f64;
    let plain = elapsed("off", INCOMPRESSIBLE);
    for ratio in [0.5, INCOMPRESSIBLE] {
        let gain = plain / elapsed("zstd", ratio);
        assert!(gain >= 0.9, "{ratio}: {gain:.2}");
    }
}

#[test]
fn parts_of_chunks_are_written_raw_and_folded_without_reads() {
    let workload = workload("write", 1, "47008", "256 MiB", "sync = \"end\"");
    let (read, written) = moved(&outcome(&cluster("hdd-7200", "zstd", 0.5), &workload));
    let stored = 128 << 20;
    // Most pieces are folded before they reach the disk.
    assert!(read == 0 && written > stored && written < stored * 13 / 10, "{read} and {written} bytes");
}

#[test]
fn slow_processors_are_slower_than_the_disk() {
    let workload = workload("write", 1, "1 MiB", "128 MiB", "");
    let elapsed = |speed| {
        let mut cluster = cluster("hdd-7200", "zstd:9", 0.5);
        cluster.compression.speed = speed;
        outcome(&cluster, &workload).elapsed.0 as f64 / 1e9
    };
    // 18 ns for each byte.
    let slow = elapsed(0.1);
    let coding = 18e-9 * 10.0 * f64::from(128 << 20);
    assert!(slow > coding && slow < coding * 1.2, "{slow} s, coding alone {coding} s");
    assert!(elapsed(10.0) < slow / 8.0);
}

#[test]
fn maps_survive_datafiles_that_are_closed() {
    let mut cluster = cluster("simple", "zstd/16KiB", 0.5);
    cluster.servers[0].open_datafiles = 2;
    let text = "file_per_process = true\norder = \"random\"";
    for access in ["both", "read"] {
        let workload = workload(access, 16, "40000", "2 MiB", text);
        let first = outcome(&cluster, &workload);
        assert_eq!(first, outcome(&cluster, &workload), "{access}: the same seed");
    }
}

#[test]
fn impossible_settings_are_named() {
    let refused = |change: &dyn Fn(&mut ClusterSpec)| {
        let mut cluster = cluster("simple", "zstd", 0.5);
        change(&mut cluster);
        let workload = workload("write", 1, "1 MiB", "1 MiB", "").build().expect("builds");
        run(&cluster, &*workload).expect_err("refused").to_string()
    };
    assert!(refused(&|it| it.compression.ratio = 1.5).contains("compression.ratio"));
    assert!(refused(&|it| it.compression.speed = 0.0).contains("compression.speed"));
    assert!(refused(&|it| it.compression.setting = "gzip".into()).contains("compression.setting"));
    assert!(refused(&|it| it.payload = Payload::Bytes).contains("payload = \"lengths\""));
}
