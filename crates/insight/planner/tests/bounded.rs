//! Planning uses bounded memory. In a separate test file, because it measures the memory of its process.

use std::time::Instant;
use weft_core::{ByteLen, FileOffset, Nanos};
use weft_planner::figures::{Class, Depth, Figures, Head, Line, Network, Seek, Service};
use weft_planner::plan::Options;
use weft_planner::{Bytes, Limits, Survey};
use weft_trace::wtrace::{Reader, Writer};
use weft_trace::{HostId, Level, Operation, Rank, Record, RecordStream};

/// Peak memory of this process, bytes.
fn most_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("VmHWM");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
}

fn pseudorandom(n: u64) -> u64 {
    let x = (n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (x ^ (x >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 20
}

/// Records of 64 ranks: a shared file accessed at random with many lengths, and one sequential file per rank.
fn write(path: &std::path::Path, count: u64) {
    let mut writer = Writer::create(path).expect("made");
    let shared = writer.file("/scratch/shared").expect("few");
    let own: Vec<_> =
        (0..64).map(|rank| writer.file(&format!("/scratch/own.{rank}")).expect("few")).collect();
    for index in 0..count {
        let rank = (index % 64) as u32;
        let start = index * 100 + pseudorandom(index) % 5_000;
        let in_order = index / 64 % 2 == 0;
        let (file, offset, len) = if in_order {
            (own[rank as usize], index / 128 * 65_536, 65_536)
        } else {
            (shared, pseudorandom(index) % (1 << 38), 1 + pseudorandom(index + count) % (1 << 18))
        };
        let record = Record {
            rank: Rank(rank),
            host: HostId(0),
            file,
            op: if index % 10 > 0 { Operation::Read } else { Operation::Write },
            level: Level::Posix,
            collective: false,
            offset: FileOffset(offset),
            len: ByteLen(len),
            start: Nanos(start),
            end: Nanos(start + pseudorandom(index) % 100_000),
        };
        writer.push(&record).expect("written");
    }
    writer.finish().expect("written");
}

fn figures() -> Figures {
    // The slowest form of the model: heads, and several runs with random think times.
    let head = Head {
        rotation_us: 8333.0,
        seeks: vec![
            Seek { distance: Bytes(1 << 20), us: 1000.0 },
            Seek { distance: Bytes(1 << 30), us: 4000.0 },
        ],
        look_ahead: Bytes(256 << 10),
        cache_segments: 8,
        overhead_us: 120.0,
        queue_depth: 16,
        read_ahead: Bytes(128 << 10),
    };
    let class = |name: &str, startup_us, mb_s, capacity: Option<Bytes>| {
        let service = Service {
            sequential: Line { startup_us: startup_us / 10.0, mb_s },
            streams: None,
            head: None,
            near: None,
            scattered: Vec::new(),
            sync_us: 0.0,
            read_delay: None,
            cache: None,
            random: vec![
                Depth { depth: 1, startup_us, mb_s },
                Depth { depth: 16, startup_us: startup_us / 2.0, mb_s },
            ],
            write_buffer: Bytes(0),
            write_back_threshold: Bytes(0),
        };
        Class {
            name: name.to_owned(),
            targets: 4,
            capacity,
            memory: Bytes(0),
            error: None,
            devices: None,
            read: Service { head: capacity.is_none().then(|| head.clone()), ..service.clone() },
            write: service,
        }
    };
    Figures {
        processes_per_node: 8,
        call_us: 50.0,
        measured: false,
        network: Network::new(30.0, 1000.0),
        processor: None,
        classes: vec![class("hdd", 9000.0, 100.0, None), class("ssd", 100.0, 500.0, Some(Bytes(10 << 30)))],
    }
}

fn plan_trace(count: u64) {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("large.wtrace");
    write(&path, count);
    let before = most_memory();
    let begun = Instant::now();
    let mut stream = Reader::open(&path).expect("a trace");
    let mut survey = Survey::new(&Limits::default());
    while let Some(record) = stream.next() {
        survey.add(&record.expect("sound"), stream.names());
    }
    let traced = survey.finish(None);
    let read = begun.elapsed();
    assert_eq!((traced.requests, traced.ranks, traced.groups.len()), (count, 64, 2));
    let plan = weft_planner::plan(&traced, &figures(), &Options::default()).expect("a plan");
    assert_eq!(plan.plan.rules.len(), 2);
    let most = most_memory();
    println!(
        "{count} requests: read in {:.1} s, planned in {:.1} s; {} MB of memory, {} MB before",
        read.as_secs_f64(),
        (begun.elapsed() - read).as_secs_f64(),
        most >> 20,
        before >> 20
    );
    // A record takes 72 bytes in memory: ten million would take 720 MB.
    assert!(most - before < 100_000_000, "{} bytes for {count} requests", most - before);
}

#[test]
fn many_requests_take_little_memory() {
    plan_trace(100_000);
}

#[test]
#[ignore = "takes half a minute: cargo test --release -p weft-planner --test bounded -- --ignored --nocapture"]
fn ten_million_requests_take_no_more() {
    plan_trace(10_000_000);
}
