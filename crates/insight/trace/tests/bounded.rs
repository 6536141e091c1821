//! Memory does not grow with the length of a trace. A test binary of its own, since it measures its process.

mod common;

use common::Dice;
use std::path::Path;
use weft_core::{ByteLen, FileOffset, Nanos};
use weft_trace::prepared::{Options, Prepared, Timing};
use weft_trace::wtrace::{Reader, Writer};
use weft_trace::{HostId, Level, Operation, Rank, Record, summary};
use weft_workload::Op;

/// Peak resident memory of this process in bytes.
fn most_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("VmHWM");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
}

/// Writes `count` records of 64 ranks in nearly sorted order, like a running program.
fn write(path: &Path, count: u64) {
    let mut writer = Writer::create(path).expect("made");
    let file = writer.file("/scratch/shared").expect("few");
    let mut dice = Dice::new(1);
    for index in 0..count {
        let start = index * 100 + dice.below(5_000);
        let record = Record {
            rank: Rank((index % 64) as u32),
            host: HostId(0),
            file,
            op: if index % 3 == 0 { Operation::Read } else { Operation::Write },
            level: Level::Posix,
            collective: false,
            offset: FileOffset(dice.below(1 << 40)),
            len: ByteLen(1 + dice.below(1 << 20)),
            start: Nanos(start),
            end: Nanos(start + dice.below(100_000)),
        };
        writer.push(&record).expect("written");
    }
    writer.finish().expect("written");
}

/// Writes, summarizes, sorts and iterates over `count` records in at most 64 MB.
fn all_of_it(count: u64) {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("large.wtrace");
    write(&path, count);
    let mut stream = Reader::open(&path).expect("a trace");
    let shown = summary::summary(&mut stream, ByteLen(65_536), 10, |_| {}).expect("sound");
    assert_eq!((shown.records, shown.ranks), (count, 64));
    let options = Options { run_records: 1 << 17, ..Options::default() };
    let mut stream = Reader::open(&path).expect("a trace");
    let prepared = Prepared::new(&path, &mut stream, &options, |_| {}).expect("sound");
    let mut moved = 0;
    for rank in 0..prepared.ranks() {
        let mut before = Nanos(0);
        for step in prepared.steps(rank, Timing::Fast) {
            assert!(step.start >= before);
            before = step.start;
            moved += u64::from(matches!(step.op, Op::Read { .. } | Op::Write { .. }));
        }
    }
    assert_eq!(moved, count);
    let most = most_memory();
    println!(
        "{count} records: {} MB of memory, {} MB of trace",
        most >> 20,
        path.metadata().expect("the trace").len() >> 20
    );
    assert!(most < 64_000_000, "{most} bytes of memory for {count} records");
}

// A million records would take 72 MB if all were in memory.
#[test]
fn many_records_take_little_memory() {
    all_of_it(1_000_000);
}

#[test]
#[ignore = "a minute in release: cargo test --release -p weft-trace --test bounded -- --ignored --nocapture"]
fn ten_million_records_take_no_more_memory() {
    all_of_it(10_000_000);
}
