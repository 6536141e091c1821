//! Memory does not grow with a trace. A test file of its own: it looks at the memory of its process.

use std::time::Instant;
use weft_core::{ByteLen, FileOffset, Nanos};
use weft_planner::figures::{Class, Depth, Figures, Head, Line, Network, Seek, Service};
use weft_planner::plan::Options;
use weft_planner::{Bytes, Limits, Survey};
use weft_trace::wtrace::{Reader, Writer};
use weft_trace::{HostId, Level, Operation, Rank, Record, RecordStream};

/// Most memory that this process ever had, in bytes.
fn most_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("VmHWM");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
}

fn dice(n: u64) -> u64 {
    let x = (n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (x ^ (x >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 20
}

/// Records of 64 ranks: a shared file at random, with many lengths, and a file of each rank in order.
fn write(path: &std::path::Path, count: u64) {
    let mut writer = Writer::create(path).expect("made");
    let shared = writer.file("/scratch/shared").expect("few");
    let own: Vec<_> =
        (0..64).map(|rank| writer.file(&format!("/scratch/own.{rank}")).expect("few")).collect();
    for index in 0..count {
        let rank = (index % 64) as u32;
        let start = index * 100 + dice(index) % 5_000;
        let in_order = index / 64 % 2 == 0;
        let (file, offset, len) = if in_order {
            (own[rank as usize], index / 128 * 65_536, 65_536)
        } else {
            (shared, dice(index) % (1 << 38), 1 + dice(index + count) % (1 << 18))
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
            end: Nanos(start + dice(index) % 100_000),
        };
        writer.push(&record).expect("written");
    }
    writer.finish().expect("written");
}

fn figures() -> Figures {
    // The slowest model that there is: heads, and several courses of chance.
    let head = Head {
        turn_us: 8333.0,
        seeks: vec![
            Seek { distance: Bytes(1 << 20), us: 1000.0 },
            Seek { distance: Bytes(1 << 30), us: 4000.0 },
        ],
        reads_on: Bytes(256 << 10),
        stretches: 8,
        way_us: 120.0,
        takes: 16,
        ahead: Bytes(128 << 10),
    };
    let class = |name: &str, startup_us, mb_s, room: Option<Bytes>| {
        let service = Service {
            sequential: Line { startup_us: startup_us / 10.0, mb_s },
            streams: None,
            head: None,
            near: None,
            scattered: Vec::new(),
            sync_us: 0.0,
            waits: None,
            cache: None,
            random: vec![
                Depth { depth: 1, startup_us, mb_s },
                Depth { depth: 16, startup_us: startup_us / 2.0, mb_s },
            ],
            behind: Bytes(0),
            gathers: Bytes(0),
        };
        Class {
            name: name.to_owned(),
            targets: 4,
            room,
            memory: Bytes(0),
            read: Service { head: room.is_none().then(|| head.clone()), ..service.clone() },
            write: service,
        }
    };
    Figures {
        processes_per_node: 8,
        call_us: 50.0,
        network: Network::new(30.0, 1000.0),
        classes: vec![class("hdd", 9000.0, 100.0, None), class("ssd", 100.0, 500.0, Some(Bytes(10 << 30)))],
    }
}

fn all_of_it(count: u64) {
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
    assert_eq!((traced.requests, traced.ranks, traced.units.len()), (count, 64, 2));
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
    // A record is 72 bytes in memory: ten million would take 720 MB.
    assert!(most - before < 100_000_000, "{} bytes for {count} requests", most - before);
}

#[test]
fn many_requests_take_little_memory() {
    all_of_it(100_000);
}

#[test]
#[ignore = "half a minute in release: cargo test --release -p weft-planner --test bounded -- --ignored --nocapture"]
fn ten_million_requests_take_no_more() {
    all_of_it(10_000_000);
}
