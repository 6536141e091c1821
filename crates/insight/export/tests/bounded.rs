//! Export uses bounded memory. In a separate test file, because it measures the memory of its process.

use std::path::Path;
use weft_core::{ByteLen, FileOffset, Nanos};
use weft_export::heat::{HeatMap, Picture, Survey, View, svg};
use weft_export::parquet::Writer;
use weft_trace::wtrace::{Reader, Writer as Wtrace};
use weft_trace::{HostId, Level, Operation, Rank, Record, RecordStream};

/// Peak memory of this process, bytes.
fn most_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("VmHWM");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
}

/// 64 ranks write blocks in rounds, each with a small delay.
fn write(path: &Path, count: u64) {
    let mut writer = Wtrace::create(path).expect("made");
    let file = writer.file("/scratch/shared").expect("few");
    for index in 0..count {
        let start = index * 100 + (index * 7919) % 5000;
        let record = Record {
            rank: Rank((index % 64) as u32),
            host: HostId(0),
            file,
            op: if index % 3 == 0 { Operation::Read } else { Operation::Write },
            level: Level::Posix,
            collective: false,
            offset: FileOffset(index * 47_008),
            len: ByteLen(47_008),
            start: Nanos(start),
            end: Nanos(start + 20_000),
        };
        writer.push(&record).expect("written");
    }
    writer.finish().expect("written");
}

/// Draws and exports `count` records in at most 96 MB of memory, including the pages of the program.
fn draw_and_export(count: u64) {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("large.wtrace");
    write(&path, count);
    let begin = std::time::Instant::now();
    let mut survey = Survey::default();
    for record in Reader::open(&path).expect("a trace") {
        survey.add(&record.expect("sound"));
    }
    let files = [survey.files(Level::Posix)];
    let cells = (Picture::columns(true), Picture::ROWS);
    let mut maps = HeatMap::of(&survey, Level::Posix, &files, View::Time, cells);
    for record in Reader::open(&path).expect("a trace") {
        maps[0].add(&record.expect("sound"));
    }
    let map = maps.remove(0);
    assert_eq!(map.reads.bytes.get() + map.writes.bytes.get(), count * 47_008);
    let drawn = svg(&Picture { title: "t".into(), notes: vec![], files: vec![("f".into(), map)] });
    let plotted = begin.elapsed();
    let table = dir.path().join("large.parquet");
    let mut out = Writer::new(&table, std::fs::File::create(&table).expect("made")).expect("made");
    let mut input = Reader::open(&path).expect("a trace");
    while let Some(record) = input.next() {
        out.push(&record.expect("sound"), input.names()).expect("written");
    }
    out.finish(input.info()).expect("written");
    let most = most_memory();
    println!(
        "{count} records: drawn in {plotted:.1?} ({} KB), as Parquet in {:.1?} ({} MB), {} MB of memory",
        drawn.len() >> 10,
        begin.elapsed() - plotted,
        table.metadata().expect("there").len() >> 20,
        most >> 20
    );
    assert!(most < 96_000_000, "{most} bytes of memory for {count} records");
}

// Half a million records take 36 MB in memory, and more than a row group.
#[test]
fn many_records_take_little_memory() {
    draw_and_export(500_000);
}

#[test]
#[ignore = "in release: cargo test --release -p weft-export --test bounded -- --ignored --nocapture"]
fn ten_million_records_take_no_more() {
    draw_and_export(10_000_000);
}
