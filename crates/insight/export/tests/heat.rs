//! Heat maps contain every byte of a trace once, and pictures label their content.

use weft_core::{ByteLen, FileOffset, Nanos};
use weft_export::heat::{HeatMap, Picture, Survey, View, svg};
use weft_trace::{FileId, HostId, Level, Operation, Rank, Record};

struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((u128::from(self.0) * u128::from(end)) >> 64) as u64
    }
}

fn record(
    rank: u32,
    file: u32,
    op: Operation,
    (offset, len): (u64, u64),
    (start, end): (u64, u64),
) -> Record {
    Record {
        rank: Rank(rank),
        host: HostId(0),
        file: FileId(file),
        op,
        level: Level::Posix,
        collective: false,
        offset: FileOffset(offset),
        len: ByteLen(len),
        start: Nanos(start),
        end: Nanos(end),
    }
}

fn map(records: &[Record], file: u32, view: View, cells: (usize, usize)) -> HeatMap {
    let mut survey = Survey::default();
    records.iter().for_each(|record| survey.add(record));
    let files = survey.files(Level::Posix);
    let file = files.into_iter().find(|(id, _)| id.0 == file).expect("it was used");
    let mut map = HeatMap::of(&survey, Level::Posix, &[vec![file]], view, cells).remove(0);
    records.iter().for_each(|record| map.add(record));
    map
}

#[test]
fn every_byte_is_counted_once() {
    let seed = u64::from(std::process::id());
    println!("seed {seed}");
    let mut numbers = Numbers(seed);
    let records: Vec<Record> = (0..2000)
        .map(|_| {
            let start = numbers.below(1_000_000);
            let op = [Operation::Read, Operation::Write, Operation::Open][numbers.below(3) as usize];
            let place = (numbers.below(1 << 30), numbers.below(1 << 20));
            let time = (start, start + numbers.below(10_000));
            record(numbers.below(9) as u32, numbers.below(3) as u32, op, place, time)
        })
        .collect();
    for view in [View::Time, View::Ranks, View::RankTime] {
        for file in 0..3 {
            let map = map(&records, file, view, (37, 11));
            for (op, grid) in [(Operation::Read, &map.reads), (Operation::Write, &map.writes)] {
                let fits = |record: &&Record| record.op == op && record.file == FileId(file);
                let bytes: u64 = records.iter().filter(fits).map(|record| record.len.get()).sum();
                let sum: f64 = grid.cells.iter().sum();
                assert_eq!(grid.bytes, ByteLen(bytes));
                assert!((sum - bytes as f64).abs() <= 1e-6 * bytes as f64, "{view:?}: {sum} of {bytes}");
            }
        }
    }
}

#[test]
fn sequential_quarters_form_a_diagonal() {
    // Four ranks write one quarter each, one after the other.
    let records: Vec<Record> = (0..4u64)
        .map(|n| record(n as u32, 0, Operation::Write, (n * 1024, 1024), (n * 100, n * 100 + 100)))
        .collect();
    for view in [View::Time, View::Ranks, View::RankTime] {
        let map = map(&records, 0, view, (4, 4));
        assert_eq!((map.writes.width, map.writes.height), (4, 4));
        let expected: Vec<f64> = (0..16).map(|at| if at % 5 == 0 { 1024.0 } else { 0.0 }).collect();
        assert_eq!(map.writes.cells, expected, "{view:?}");
        assert_eq!(map.reads.bytes, ByteLen(0));
    }
}

#[test]
fn a_group_of_files_is_one_map() {
    // Each rank writes its own file, with a length proportional to its number.
    let records: Vec<Record> = (0..4u64)
        .map(|n| record(n as u32, n as u32, Operation::Write, (0, (n + 1) * 1024), (n * 100, n * 100 + 100)))
        .collect();
    let mut survey = Survey::default();
    records.iter().for_each(|record| survey.add(record));
    let groups = [survey.files(Level::Posix)];
    let mut maps = HeatMap::of(&survey, Level::Posix, &groups, View::RankTime, (4, 4));
    records.iter().for_each(|record| maps[0].add(record));
    let at = |at: usize| if at.is_multiple_of(5) { (at / 5 + 1) as f64 * 1024.0 } else { 0.0 };
    assert_eq!((maps.len(), &maps[0].writes.cells), (1, &(0..16).map(at).collect()));
    let mut maps = HeatMap::of(&survey, Level::Posix, &groups, View::Ranks, (4, 4));
    records.iter().for_each(|record| maps[0].add(record));
    // All ranks write the first kilobyte, and only rank 3 the last one.
    let at = |at: usize| if at % 4 <= at / 4 { 1024.0 } else { 0.0 };
    assert_eq!(maps[0].writes.cells, (0..16).map(at).collect::<Vec<_>>());
}

#[test]
fn a_trace_without_times_is_drawn_in_order() {
    let records: Vec<Record> =
        (0..4u64).map(|n| record(0, 0, Operation::Read, (n * 10, 10), (0, 0))).collect();
    let map = map(&records, 0, View::Time, (4, 4));
    let expected: Vec<f64> = (0..16).map(|at| if at % 5 == 0 { 10.0 } else { 0.0 }).collect();
    assert_eq!(map.reads.cells, expected);
    let picture = Picture { title: "t".into(), notes: vec![], files: vec![("f".into(), map)] };
    assert!(svg(&picture).contains("trace's order"));
}

#[test]
fn a_picture_is_labeled_and_escapes_text() {
    let records = [
        record(0, 0, Operation::Write, (0, 4 << 20), (0, 1_000_000_000)),
        record(1, 0, Operation::Read, (4 << 20, 4 << 20), (2_000_000_000, 4_000_000_000)),
    ];
    let picture = |view, columns| Picture {
        title: "a < b & \"c\" \u{1b}[2J".into(),
        notes: vec!["<script>".into()],
        files: vec![("/weft/<x>".into(), map(&records, 0, view, (columns, Picture::ROWS)))],
    };
    let drawn = svg(&picture(View::Time, Picture::columns(true)));
    for part in [
        "time (s)",
        "offset (MiB)",
        "4.00 MiB read",
        "4.00 MiB written",
        "bytes in a cell",
        "cells of 31 ms × 102 KiB",
        "/weft/&lt;x&gt;",
    ] {
        assert!(drawn.contains(part), "{part} is not in {drawn}");
    }
    assert!(!drawn.contains("<script>") && !drawn.contains('\u{1b}'));
    assert_eq!(drawn, svg(&picture(View::Time, Picture::columns(true))), "the same trace, the same bytes");
    assert!(svg(&picture(View::Ranks, Picture::columns(true))).contains(">rank<"));
}

#[test]
fn marks_lie_beside_the_offsets_and_show_how_much_is_marked() {
    let read = |offset| record(0, 1, Operation::Read, (offset, 100), (0, 10));
    let records: Vec<Record> = (0..8).map(|number| read(number * 100)).collect();
    let drawn = |view, ranges: &[(u64, u64)]| {
        let mut map = map(&records, 1, view, (Picture::columns(false), 8));
        ranges.iter().for_each(|(begin, end)| map.mark(*begin, *end));
        let picture = Picture { title: String::new(), notes: Vec::new(), files: vec![(String::new(), map)] };
        let text = svg(&picture);
        text.lines().filter(|line| line.contains("#1a7f37")).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(drawn(View::Time, &[]), [""; 0]);
    // The second and third of eight cells whole, a tenth of the last, which is shown by a quarter.
    let bar = drawn(View::Time, &[(100, 250), (250, 300), (790, 900), (5, 5)]);
    assert!(
        bar.len() == 2 && bar[0].contains("height=\"48\"") && bar[0].contains("fill-opacity=\"1\""),
        "{bar:?}"
    );
    assert!(bar[1].contains("height=\"24\"") && bar[1].contains("fill-opacity=\"0.25\""), "{bar:?}");
    let bar = drawn(View::Ranks, &[(0, 400)]);
    assert!(bar.len() == 1 && bar[0].contains("width=\"402\""), "half of the columns: {bar:?}");
    assert_eq!(drawn(View::RankTime, &[(0, 400)]), [""; 0], "no offsets");
    assert_eq!(drawn(View::Time, &[(800, u64::MAX)]), [""; 0], "behind the end");
}

/// Random requests, the worst case for the size of a picture, still give a file small enough for a web page.
#[test]
fn the_size_of_a_picture_is_bounded() {
    let mut numbers = Numbers(3);
    let records: Vec<Record> = (0..200_000u64)
        .map(|n| {
            let op = if numbers.below(2) == 0 { Operation::Read } else { Operation::Write };
            record(0, 0, op, (numbers.below(1 << 30), 1 + numbers.below(1 << 16)), (n * 1000, n * 1000 + 500))
        })
        .collect();
    let map = map(&records, 0, View::Time, (Picture::columns(true), Picture::ROWS));
    let picture = Picture { title: String::new(), notes: vec![], files: vec![("f".into(), map)] };
    let len = svg(&picture).len();
    assert!(len < 250_000, "{len} bytes");
}

#[test]
fn extreme_values_are_drawn() {
    let most = u64::MAX;
    let pairs = [(0, 1), (most - 1, 1), (most, 0), (0, most), (most / 2, most / 2), (7, 0)];
    for place in pairs {
        for time in [(0, 0), (0, most), (most, most), (5, 6)] {
            for rank in [0, u32::MAX] {
                for op in [Operation::Read, Operation::Write] {
                    let records = [record(rank, 0, op, place, time)];
                    let mut survey = Survey::default();
                    survey.add(&records[0]);
                    for view in [View::Time, View::Ranks, View::RankTime] {
                        let files = survey.files(Level::Posix);
                        assert_eq!(files.is_empty(), place.1 == 0, "{place:?}");
                        if files.is_empty() {
                            continue;
                        }
                        let map = map(&records, 0, view, (Picture::columns(false), Picture::ROWS));
                        let sum: f64 = map.reads.cells.iter().chain(&map.writes.cells).sum();
                        assert!((sum / place.1 as f64 - 1.0).abs() < 1e-6, "{place:?} {time:?}: {sum}");
                        let picture =
                            Picture { title: "t".into(), notes: vec![], files: vec![("f".into(), map)] };
                        let drawn = svg(&picture);
                        assert!(!drawn.contains("NaN") && !drawn.contains("inf"), "{drawn}");
                        assert!(drawn.len() < 100_000, "{place:?} {time:?}: {} bytes", drawn.len());
                    }
                }
            }
        }
    }
}
