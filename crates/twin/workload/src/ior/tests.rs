//! Tests of IOR's transfers, computed by hand and recorded from the real program.

use super::*;
use crate::testing::{covered_once, extents, file_extents, well_formed};

fn run(spec: Ior) -> IorRun {
    spec.build().expect("sensible")
}

#[test]
fn segments_of_blocks_of_transfers_by_hand() {
    // ior -t 10 -b 30 -s 2 with 4 ranks; rank 1: (s * 4 + 1) * 30 + j * 10.
    // Segment 0: 30, 40, 50; segment 1: (4 + 1) * 30 = 150, 160, 170.
    let spec =
        Ior { ranks: 4, transfer: Size(10), block: Some(Size(30)), segments: Some(2), ..Ior::default() };
    assert_eq!(extents(&run(spec), 1), [30, 40, 50, 150, 160, 170].map(|offset| (offset, 10)));
}

#[test]
fn transfers_match_ior() {
    // ior 4.1.0+dev -a POSIX -t 47008 -b 141024 -s 3 -w -r -C with 4 ranks, two per node (strace): rank 1 writes its
    // own part and reads that of rank 1 + 2.
    let spec = Ior {
        ranks: 4,
        transfer: Size(47_008),
        block: Some(Size(141_024)),
        segments: Some(3),
        access: Access::Both,
        reorder: 2,
        ..Ior::default()
    };
    let written = [141_024, 188_032, 235_040, 705_120, 752_128, 799_136, 1_269_216, 1_316_224, 1_363_232];
    let read = written.map(|offset| offset + 2 * 141_024);
    let expected: Vec<_> = written.into_iter().chain(read).map(|offset| (offset, 47_008)).collect();
    assert_eq!(extents(&run(spec), 1), expected);
}

#[test]
fn aggregators_read_reordered_parts() {
    // ior 4.1.0+dev -a MPIIO -c -t 10000 -b 10000 -s 2 -w -r -C with 7 ranks, one per node, cb_nodes = 3,
    // cb_buffer_size = 20000 (strace). The ranks' writes do not interleave and stay independent. Their reads count as
    // interleaved, because rank 6 reads the part of rank 0.
    let two_phase = TwoPhase {
        cb_nodes: Some(3),
        per_node: Some(1),
        cb_buffer_size: Size(20_000),
        ..TwoPhase::default()
    };
    let spec = Ior {
        ranks: 7,
        transfer: Size(10_000),
        segments: Some(2),
        access: Access::Both,
        reorder: 1,
        collective: true,
        two_phase: Some(two_phase),
        ..Ior::default()
    };
    let run = run(spec);
    let windows = [(23_334, 20_000), (43_334, 3_334), (93_334, 20_000), (113_334, 3_334)];
    assert_eq!(extents(&run, 1), [&[(10_000, 10_000), (80_000, 10_000)][..], &windows].concat());
    assert_eq!(extents(&run, 6), [(60_000, 10_000), (130_000, 10_000)]);
}

#[test]
fn random_orders_proceed_segment_by_segment() {
    // As in ior 4.1.0+dev -t 4096 -b 65536 -s 2 -z with 4 ranks (strace): each rank accesses random transfers of a
    // segment of 64, the same in each segment, and all ranks together access each once. There ranks had 20, 16, 10, 18.
    for order in [IorOrder::Random, IorOrder::RandomDice] {
        let spec = Ior {
            ranks: 4,
            transfer: Size(4096),
            block: Some(Size(65_536)),
            segments: Some(2),
            order,
            ..Ior::default()
        };
        let run = run(spec);
        covered_once(&run, FileRef(0), 0..2 * 64 * 4096);
        let counts = [0, 1, 2, 3].map(|rank| {
            let extent_list = extents(&run, rank);
            let (first, second) = extent_list.split_at(extent_list.len() / 2);
            let next: Vec<_> = first.iter().map(|&(offset, len)| (offset + 64 * 4096, len)).collect();
            assert_eq!(second, next);
            assert!(!first.is_sorted() && first.iter().any(|extent| extent.0 / 65_536 != u64::from(rank)));
            first.len()
        });
        assert_eq!(counts.iter().sum::<usize>(), 64);
        assert_eq!(counts == [16; 4], order == IorOrder::Random, "{counts:?}");
    }
    // With -F each rank accesses the transfers of its own block, in the same order in each block.
    let spec = Ior {
        ranks: 3,
        transfer: Size(4096),
        block: Some(Size(32_768)),
        segments: Some(2),
        order: IorOrder::RandomOwn,
        file_per_process: true,
        ..Ior::default()
    };
    let run = run(spec);
    covered_once(&run, FileRef(2), 0..2 * 32_768);
    let extent_list = extents(&run, 2);
    let next: Vec<_> = extent_list[..8].iter().map(|&(offset, len)| (offset + 32_768, len)).collect();
    assert_eq!(extent_list[8..], next);
    assert!(!extent_list[..8].is_sorted());
}

#[test]
fn sequential_and_strided_match_ceda() {
    // 4 ranks, 64 KiB, 256 KiB per rank: rank 2 sequentially from 2 * 262,144 = 524,288.
    let spec = Ior { ranks: 4, per_rank: Some(Size::kib(256)), ..Ior::default() };
    let expected = [524_288, 589_824, 655_360, 720_896].map(|offset| (offset, 65_536));
    assert_eq!(extents(&run(spec.clone()), 2), expected);
    // Strided: (n * 4 + 2) * 65,536. The gap is 3 requests, as in the paper.
    let spec = Ior { layout: IorLayout::Strided, ..spec };
    let expected = [131_072, 393_216, 655_360, 917_504].map(|offset| (offset, 65_536));
    assert_eq!(extents(&run(spec), 2), expected);
}

#[test]
fn one_file_per_rank_by_hand() {
    let spec = Ior {
        ranks: 3,
        transfer: Size(10),
        block: Some(Size(20)),
        segments: Some(2),
        file_per_process: true,
        access: Access::Both,
        reorder: 1,
        ..Ior::default()
    };
    let run = run(spec);
    let own = |file| [0, 10, 20, 30].map(|offset| (FileRef(file), offset, 10));
    // Rank 2 writes its own file and reads that of rank 0.
    assert_eq!(file_extents(&run, 2), [own(2), own(0)].concat());
    assert_eq!(run.name(FileRef(2)), "ior.00000002");
    well_formed(&run);
}

#[test]
fn every_shared_order_covers_the_file_once() {
    for order in [IorOrder::Sequential, IorOrder::Random, IorOrder::RandomOwn] {
        for (block, segments) in [(12, 1), (4, 3), (8, 5)] {
            let spec = Ior {
                ranks: 5,
                transfer: Size(4),
                block: Some(Size(block)),
                segments: Some(segments),
                order,
                ..Ior::default()
            };
            covered_once(&run(spec), FileRef(0), 0..5 * block * segments);
        }
    }
}

#[test]
fn random_orders_depend_on_the_seed() {
    let spec = Ior { per_rank: Some(Size::mib(16)), order: IorOrder::Random, ..Ior::default() };
    let (a, b) = (run(spec.clone()), run(spec.clone()));
    assert_eq!(extents(&a, 3), extents(&b, 3));
    assert_ne!(extents(&a, 3), extents(&run(Ior { seed: 2, ..spec }), 3));
    assert_ne!(extents(&a, 3), extents(&a, 4));
}

#[test]
fn reordered_parts_are_assigned_once_each() {
    let spec = Ior { ranks: 7, reorder_random: true, access: Access::Read, ..Ior::default() };
    let run = run(spec);
    covered_once(&run, FileRef(0), 0..7 << 22);
    let mut parts: Vec<u32> = (0..7).map(|rank| run.part(rank, Direction::Read)).collect();
    parts.sort_unstable();
    assert_eq!(parts, [0, 1, 2, 3, 4, 5, 6]);
    assert_eq!(run.inputs().collect::<Vec<_>>(), [(FileRef(0), 7 << 22)]);
}

#[test]
fn collective_calls_by_hand() {
    // 4 ranks, transfers of 10: call n covers 40 n to 40 n + 40. 2 aggregators (ranks 0 and 2) of 20 bytes each.
    let two_phase = TwoPhase { cb_nodes: Some(2), force: true, ..TwoPhase::default() };
    let spec = Ior {
        ranks: 4,
        transfer: Size(10),
        segments: Some(2),
        collective: true,
        two_phase: Some(two_phase),
        ..Ior::default()
    };
    assert_eq!(extents(&run(spec.clone()), 2), [(20, 20), (60, 20)]);
    well_formed(&run(spec.clone()));
    // Ranks 100 bytes apart: the calls have holes, so windows are read and written. 0..110 and 200..310 hold the
    // transfers of ranks 0, 1 and 2, 3 at first; domains have 155 bytes: 0..155 and 155..310.
    let spec = Ior { block: Some(Size(100)), segments: Some(1), ..spec };
    assert_eq!(extents(&run(spec), 0)[..2], [(0, 110), (0, 110)]);
}

#[test]
fn a_billion_transfers_start_at_once() {
    for order in [IorOrder::Sequential, IorOrder::Random, IorOrder::RandomOwn] {
        let spec = Ior {
            ranks: 8192,
            transfer: Size::kib(4),
            layout: IorLayout::Strided,
            per_rank: Some(Size::gib(4096)),
            order,
            ..Ior::default()
        };
        let run = run(spec);
        assert_eq!(run.count, 1 << 30);
        assert_eq!(run.ops(8191).take(1000).count(), 1000);
    }
}

#[test]
fn invalid_descriptions_are_rejected() {
    let refused = |spec: Ior| spec.build().expect_err("an invalid description").parameter;
    assert_eq!(refused(Ior { transfer: Size(0), ..Ior::default() }), "transfer");
    assert_eq!(refused(Ior { block: Some(Size::kib(65)), ..Ior::default() }), "block");
    assert_eq!(refused(Ior { per_rank: Some(Size(1)), ..Ior::default() }), "per_rank");
    let both = Ior { per_rank: Some(Size::mib(1)), segments: Some(1), ..Ior::default() };
    assert_eq!(refused(both), "segments");
    assert_eq!(refused(Ior { reorder: 1, reorder_random: true, ..Ior::default() }), "reorder");
}
