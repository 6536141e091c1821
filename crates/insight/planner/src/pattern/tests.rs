//! Access patterns of generated workloads (weft-workload), and of records in the order of Darshan logs.

use super::*;
use crate::survey::{Limits, Survey, TraceSummary};
use weft_core::{ByteLen, FileOffset, Nanos};
use weft_trace::{HostId, Level, Names, Operation, Rank, Record};
use weft_workload::{Op, WorkloadSpec};

/// The requests of a workload as a trace in which all ranks proceed at the same pace.
fn traced(text: &str) -> TraceSummary {
    let spec: WorkloadSpec = toml::from_str(text).unwrap();
    let workload = spec.build().unwrap();
    let mut names = Names::default();
    let mut survey = Survey::new(&Limits::default());
    let mut ranks: Vec<_> = (0..workload.ranks()).map(|rank| workload.ops(rank)).collect();
    let mut left = ranks.len();
    let mut step = 0;
    while left > 0 {
        left = 0;
        for (rank, ops) in ranks.iter_mut().enumerate() {
            let moved = ops.by_ref().find_map(|op| match op {
                Op::Read { file, offset, len, collective } => {
                    Some((Operation::Read, file, offset, len, collective))
                }
                Op::Write { file, offset, len, collective } => {
                    Some((Operation::Write, file, offset, len, collective))
                }
                _ => None,
            });
            let Some((op, file, offset, len, collective)) = moved else { continue };
            left += 1;
            let record = Record {
                rank: Rank(rank as u32),
                host: HostId(0),
                file: names.file(&workload.name(file)).unwrap(),
                op,
                level: Level::Posix,
                collective,
                offset: FileOffset(offset),
                len: ByteLen(len),
                start: Nanos(step * 1000),
                end: Nanos(step * 1000 + 900),
            };
            survey.add(&record, &names);
        }
        step += 1;
    }
    survey.finish(None)
}

fn pattern(text: &str) -> Pattern {
    let traced = traced(text);
    assert_eq!(
        traced.groups.len(),
        1,
        "{:?}",
        traced.groups.iter().map(|group| &group.rule).collect::<Vec<_>>()
    );
    traced.groups[0].pattern.clone()
}

const KIB: u64 = 1024;

#[test]
fn contiguous_segments_per_rank_are_segmented() {
    let found = pattern("kind = \"ior\"\nranks = 8\ntransfer = \"64 KiB\"\nper_rank = \"2 MiB\"");
    assert_eq!((found.shape, found.sharing, found.share), (Shape::Contiguous, Sharing::Segmented, 1.0));
}

#[test]
fn interleaved_transfers_have_a_fixed_stride() {
    let found = pattern(
        "kind = \"ior\"\nranks = 8\ntransfer = \"64 KiB\"\nper_rank = \"2 MiB\"\nlayout = \"strided\"",
    );
    let stride = Shape::Strided { stride: (8 * 64 * KIB) as i64, block: 64 * KIB };
    assert_eq!((found.shape, found.sharing), (stride, Sharing::Interleaved));
}

#[test]
fn adjacent_transfers_form_strided_blocks() {
    let found =
        pattern("kind = \"ior\"\nranks = 4\ntransfer = \"16 KiB\"\nblock = \"64 KiB\"\nsegments = 20");
    let stride = Shape::Strided { stride: (4 * 64 * KIB) as i64, block: 64 * KIB };
    assert_eq!((found.shape, found.sharing), (stride, Sharing::Interleaved));
}

#[test]
fn tiles_are_strided_rows() {
    let found = pattern("kind = \"mpi-tile-io\"\nranks = 16\ntile_x = 8\ntile_y = 16\nelement = 1024");
    // 4 by 4 tiles: a row of a tile is 8 KiB, a row of the array 32 KiB.
    let stride = Shape::Strided { stride: 32 * KIB as i64, block: 8 * KIB };
    assert_eq!((found.shape, found.sharing), (stride, Sharing::Interleaved));
}

#[test]
fn cells_of_a_solution_are_nested_strides() {
    let found = pattern("kind = \"btio\"\nranks = 4\nclass = \"S\"\nsubtype = \"simple\"");
    assert!(matches!(found.shape, Shape::Nested { .. } | Shape::Mixed { .. }), "{found:?}");
    assert_eq!(found.sharing, Sharing::Interleaved);
}

#[test]
fn shuffled_transfers_are_random() {
    for order in ["random", "random-dice", "random-own"] {
        let found = pattern(&format!(
            "kind = \"ior\"\nranks = 8\ntransfer = \"64 KiB\"\nper_rank = \"8 MiB\"\norder = \"{order}\""
        ));
        assert_eq!(found.shape, Shape::Random, "{order}");
    }
}

#[test]
fn writing_then_reading_in_the_same_order_is_one_shape() {
    let found = pattern(
        "kind = \"ior\"\nranks = 8\ntransfer = \"64 KiB\"\nper_rank = \"2 MiB\"\nlayout = \"strided\"\naccess = \"both\"",
    );
    assert!(matches!(found.shape, Shape::Strided { .. }), "{found:?}");
}

#[test]
fn one_file_per_rank_is_one_group() {
    let traced = traced(
        "kind = \"ior\"\nranks = 8\ntransfer = \"64 KiB\"\nper_rank = \"2 MiB\"\nfile_per_process = true",
    );
    let [group] = traced.groups.as_slice() else { panic!("{:?}", traced.groups) };
    assert_eq!((group.rule.0.as_str(), group.files, group.extent), ("ior.*", 8, 2 << 20));
    assert_eq!(group.extent_sum, 16 << 20);
    assert_eq!((&group.pattern.shape, group.pattern.sharing), (&Shape::Contiguous, Sharing::One));
    assert_eq!((group.request_size(), group.writes, group.written_bytes), (64 * KIB, 256, 16 << 20));
    assert!((traced.concurrency - 8.0).abs() < 1.0, "{}", traced.concurrency);
}

#[test]
fn phases_of_different_order_are_mixed() {
    let mut stream = Stream::new(0, 4096, true);
    for n in 1..100 {
        stream.add(n * 4096, 4096, true);
    }
    for n in 0..100 {
        stream.add((1 << 30) + n * 1_000_000, 512, true);
    }
    let Shape::Mixed { phases } = stream.shape() else { panic!("{:?}", stream.shape()) };
    assert_eq!(phases, [Shape::Contiguous, Shape::Strided { stride: 1_000_000, block: 512 }]);
}

#[test]
fn a_header_does_not_hide_the_order_after_it() {
    // As HDF5 does: it reads the superblock, writes far away, writes data at ascending offsets, and reads the
    // superblock again.
    let mut stream = Stream::new(0, 96, false);
    stream.add(2048, 512, true);
    for n in 0..200 {
        stream.add(4096 + n * 1000, 1000, true);
    }
    stream.add(0, 96, true);
    assert_eq!(stream.shape(), Shape::Contiguous);
}

/// In the order of Darshan's DXT: rank after rank with separate times, reads and writes apart.
#[test]
fn records_may_come_rank_by_rank() {
    let mut names = Names::default();
    let file = names.file("/scratch/mpi-io-test.out").unwrap();
    let mut survey = Survey::new(&Limits::default());
    for rank in 0..32u32 {
        for (op, begin) in [(Operation::Write, 0u64), (Operation::Read, 9_000_000_000)] {
            for n in 0..5u64 {
                let start = begin + n * 1_000_000_000;
                let record = Record {
                    rank: Rank(rank),
                    host: HostId(1 + rank / 4),
                    file,
                    op,
                    level: Level::Posix,
                    collective: false,
                    offset: FileOffset((n * 32 + u64::from(rank)) * (16 << 20)),
                    len: ByteLen(16 << 20),
                    start: Nanos(start + u64::from(rank)),
                    end: Nanos(start + 900_000_000),
                };
                survey.add(&record, &names);
                // The MPI-IO calls behind these operations, which must not count twice.
                survey.add(&Record { level: Level::MpiIo, collective: true, ..record }, &names);
            }
        }
    }
    let traced = survey.finish(None);
    let [group] = traced.groups.as_slice() else { panic!("{:?}", traced.groups) };
    assert_eq!((group.reads, group.writes, group.extent), (160, 160, 5 * 32 * (16 << 20)));
    assert_eq!(group.pattern.shape, Shape::Strided { stride: 32 * (16 << 20), block: 16 << 20 });
    assert_eq!(group.pattern.sharing, Sharing::Interleaved);
    assert!((traced.concurrency - 32.0).abs() < 0.5, "{}", traced.concurrency);
    let order: Vec<_> = traced.sample.iter().map(|request| request.start).collect();
    assert!(order.is_sorted() && order.len() == 320);
}
