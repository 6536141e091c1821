//! Tests of the reconstruction on records as real programs leave them.

use super::*;
use std::collections::BTreeMap;

/// A record with the given counters; all other counters are 0.
#[derive(Clone, Default)]
struct Made {
    id: u64,
    rank: Option<u32>,
    counts: BTreeMap<String, u64>,
}

impl Made {
    fn new(rank: impl Into<Option<u32>>, counts: &[(&str, u64)]) -> Self {
        let counts = counts.iter().map(|(name, count)| (format!("POSIX_{name}"), *count));
        Self { id: 7, rank: rank.into(), counts: counts.collect() }
    }
}

const TIMES: [&str; 6] = [
    "POSIX_F_WRITE_START_TIMESTAMP",
    "POSIX_F_WRITE_END_TIMESTAMP",
    "POSIX_F_WRITE_TIME",
    "POSIX_F_READ_START_TIMESTAMP",
    "POSIX_F_READ_END_TIMESTAMP",
    "POSIX_F_READ_TIME",
];

/// Reconstructs a log whose operations run from second 1 to second 2.
fn all(log: &[Made], processes: u32) -> Vec<Record> {
    let float_names = TIMES.map(String::from);
    let of = |made: &Made, then: &mut dyn FnMut(&Counters<'_>)| {
        let names: Vec<String> = made.counts.keys().cloned().collect();
        let rank = made.rank.map_or(u64::MAX, u64::from);
        let times = [1.0f64, 2.0, 0.5, 1.0, 2.0, 0.5].map(f64::to_bits);
        let words: Vec<u64> =
            [made.id, rank].into_iter().chain(made.counts.values().copied()).chain(times).collect();
        then(&Counters::new(&names, &float_names, &words));
    };
    let mut sharing = Sharing::default();
    log.iter().for_each(|made| of(made, &mut |counters| sharing.add(counters)));
    let slots = sharing.slots();
    let mut records = Vec::new();
    let mut names = crate::names::Names::default();
    let id = names.file("/f").expect("a name");
    for made in log {
        of(made, &mut |counters| {
            file(counters, &slots, id, processes, &mut |record| {
                records.push(*record);
                Ok(())
            })
            .expect("nothing fails");
        });
    }
    records
}

fn offsets(records: &[Record], rank: u32) -> Vec<u64> {
    records.iter().filter(|record| record.rank.0 == rank).map(|record| record.offset.0).collect()
}

fn bytes(records: &[Record]) -> u64 {
    records.iter().map(|record| record.len.get()).sum()
}

const MIB: u64 = 1 << 20;

/// An aggregator of a collective write: one mebibyte per row, in some rows less.
fn aggregator(rank: u32, ranks: u64, rows: u64) -> Made {
    Made::new(
        rank,
        &[
            ("WRITES", rows),
            ("BYTES_WRITTEN", rows * MIB - 1000 * (rows / 4)),
            ("MAX_BYTE_WRITTEN", ((rows - 1) * ranks + u64::from(rank) + 1) * MIB - 1),
            ("SIZE_WRITE_100K_1M", rows),
            ("ACCESS1_ACCESS", MIB),
            ("ACCESS1_COUNT", rows - rows / 4),
            ("STRIDE1_STRIDE", (ranks - 1) * MIB),
            ("STRIDE1_COUNT", rows / 2),
            ("STRIDE2_STRIDE", (ranks - 1) * MIB + 777),
            ("STRIDE2_COUNT", rows / 4),
        ],
    )
}

#[test]
fn ranks_with_close_ends_interleave_in_slots_of_the_counted_stride() {
    // Not all ranks of the program take part.
    let members = [0u32, 3, 8, 9];
    let log: Vec<Made> = members
        .iter()
        .enumerate()
        .map(|(n, rank)| Made { rank: Some(*rank), ..aggregator(n as u32, 4, 100) })
        .collect();
    let records = all(&log, 16);
    for (number, rank) in members.iter().enumerate() {
        let expected: Vec<u64> = (0..100).map(|row| (row * 4 + number as u64) * MIB).collect();
        assert_eq!(offsets(&records, *rank), expected, "rank {rank}");
    }
    assert_eq!(bytes(&records), 4 * (100 * MIB - 25_000));
    let whole = records.iter().filter(|record| record.len.get() == MIB).count();
    assert_eq!(whole, 4 * 75, "sizes counted by value are exact");
    // Short operations are spread among the long ones.
    let firsts = records.iter().take(50).filter(|record| record.len.get() < MIB).count();
    assert!((12..=13).contains(&firsts), "{firsts}");
}

#[test]
fn without_a_stride_slots_fill_the_file() {
    let log: Vec<Made> = (0..3)
        .map(|rank| {
            Made::new(
                rank,
                &[
                    ("READS", 10),
                    ("BYTES_READ", 10_000),
                    ("MAX_BYTE_READ", 35_999 + u64::from(rank)),
                    ("SIZE_READ_100_1K", 10),
                    ("ACCESS1_ACCESS", 1000),
                    ("ACCESS1_COUNT", 10),
                ],
            )
        })
        .collect();
    let records = all(&log, 3);
    assert_eq!(offsets(&records, 1), (0..10).map(|row| (3 * row + 1) * 1200).collect::<Vec<_>>());
    let mut places: Vec<u64> = records.iter().map(|record| record.offset.0).collect();
    places.sort_unstable();
    assert!(places.windows(2).all(|pair| pair[1] - pair[0] >= 1000), "no overlap: {places:?}");
}

#[test]
fn ranks_with_distant_ends_have_one_range_each() {
    let log: Vec<Made> = (0..4)
        .map(|rank| {
            Made::new(
                rank,
                &[
                    ("WRITES", 8),
                    ("BYTES_WRITTEN", 800),
                    ("MAX_BYTE_WRITTEN", (u64::from(rank) + 1) * 1600 - 1),
                    ("SIZE_WRITE_0_100", 8),
                    ("ACCESS1_ACCESS", 100),
                    ("ACCESS1_COUNT", 8),
                ],
            )
        })
        .collect();
    let records = all(&log, 4);
    assert_eq!(offsets(&records, 2), (0..8).map(|n| 3200 + 200 * n).collect::<Vec<_>>());
}

#[test]
fn a_rank_with_few_bytes_is_not_part_of_the_pattern() {
    let mut log: Vec<Made> = (1..4).map(|rank| aggregator(rank - 1, 3, 64)).collect();
    log.iter_mut().zip(1..).for_each(|(made, rank)| made.rank = Some(rank));
    log.push(Made::new(
        0,
        &[("WRITES", 5), ("BYTES_WRITTEN", 50), ("MAX_BYTE_WRITTEN", 49), ("SIZE_WRITE_0_100", 5)],
    ));
    let records = all(&log, 4);
    assert_eq!(offsets(&records, 2)[..3], [MIB, 4 * MIB, 7 * MIB]);
    assert_eq!(offsets(&records, 0), [0, 10, 20, 30, 40]);
}

#[test]
fn small_operations_do_not_move_large_ones() {
    let mut log: Vec<Made> = (0..3).map(|rank| aggregator(rank, 3, 64)).collect();
    // Rank 0 also writes small headers.
    for (name, count) in
        [("WRITES", 80), ("SIZE_WRITE_0_100", 16), ("BYTES_WRITTEN", 64 * MIB - 16_000 + 160)]
    {
        log[0].counts.insert(format!("POSIX_{name}"), count);
    }
    let records = all(&log, 3);
    let large = records.iter().filter(|record| record.rank.0 == 0 && record.len.get() > 100);
    let large: Vec<u64> = large.map(|record| record.offset.0).collect();
    assert_eq!(large, (0..64).map(|row| row * 3 * MIB).collect::<Vec<_>>());
    assert_eq!(bytes(&records), 3 * (64 * MIB - 16_000) + 160);
}

#[test]
fn large_operations_of_a_shared_record_belong_to_the_slowest_rank() {
    let log = [Made::new(
        None,
        &[
            ("READS", 24),
            ("BYTES_READ", 4 * MIB + 20 * 200),
            ("MAX_BYTE_READ", 4 * MIB - 1),
            ("CONSEC_READS", 4),
            ("SIZE_READ_100_1K", 20),
            ("SIZE_READ_100K_1M", 4),
            ("ACCESS1_ACCESS", 200),
            ("ACCESS1_COUNT", 20),
            ("ACCESS2_ACCESS", MIB),
            ("ACCESS2_COUNT", 4),
            ("SLOWEST_RANK", 2),
            ("SLOWEST_RANK_BYTES", 4 * MIB),
        ],
    )];
    let records = all(&log, 5);
    let large: Vec<&Record> = records.iter().filter(|record| record.len.get() == MIB).collect();
    assert!(large.iter().all(|record| record.rank.0 == 2));
    assert_eq!(large.iter().map(|record| record.offset.0 / MIB).collect::<Vec<_>>(), [0, 1, 2, 3]);
    for rank in [0, 1, 3, 4] {
        assert_eq!(offsets(&records, rank).len(), 5, "small operations are spread over the other ranks");
    }
}

#[test]
fn a_consecutive_shared_record_is_split_into_one_range_per_rank() {
    let counts = [
        ("WRITES", 12),
        ("BYTES_WRITTEN", 12_000),
        ("MAX_BYTE_WRITTEN", 11_999),
        ("CONSEC_WRITES", 8),
        ("SIZE_WRITE_100_1K", 12),
        ("ACCESS1_ACCESS", 1000),
        ("ACCESS1_COUNT", 12),
    ];
    let records = all(&[Made::new(None, &counts)], 4);
    assert_eq!(offsets(&records, 1), [3000, 4000, 5000]);
    let starts: Vec<u64> = records.iter().map(|record| record.start.0).collect();
    assert_eq!(starts[..3], starts[3..6], "ranks run in parallel");

    // With gaps the ranks alternate.
    let mut gaps = Made::new(None, &counts);
    gaps.counts.insert("POSIX_CONSEC_WRITES".into(), 0);
    assert_eq!(offsets(&all(&[gaps], 4), 1), [1000, 5000, 9000]);
}

#[test]
fn random_counters_keep_counts_bytes_and_the_largest_offset() {
    let mut seed = 1u64;
    let mut dice = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below.max(1)
    };
    const CLASSES: [&str; 5] = ["0_100", "100_1K", "1K_10K", "10K_100K", "100K_1M"];
    for case in 0..400 {
        let ranks = 1 + dice(6);
        let log: Vec<Made> = (0..ranks)
            .map(|rank| {
                let mut counts: Vec<(String, u64)> = Vec::new();
                for direction in ["READ", "WRITE"] {
                    let past = if direction == "READ" { "READ" } else { "WRITTEN" };
                    for class in CLASSES {
                        counts.push((format!("SIZE_{direction}_{class}"), dice(3) * dice(40)));
                    }
                    let most = 1 << (1 + dice(30));
                    let bytes = dice(most);
                    counts.push((format!("BYTES_{past}"), bytes));
                    counts.push((format!("MAX_BYTE_{past}"), bytes * (1 + dice(5))));
                    counts.push((format!("CONSEC_{direction}S"), dice(100)));
                }
                for n in 1..=4 {
                    let most = 1 << (1 + dice(20));
                    counts.push((format!("ACCESS{n}_ACCESS"), dice(most)));
                    counts.push((format!("ACCESS{n}_COUNT"), dice(60)));
                    counts.push((format!("STRIDE{n}_STRIDE"), dice(1 << 22)));
                    counts.push((format!("STRIDE{n}_COUNT"), dice(60)));
                }
                counts.push(("SLOWEST_RANK_BYTES".into(), dice(1 << 28)));
                let counts: Vec<(&str, u64)> = counts.iter().map(|(name, count)| (&**name, *count)).collect();
                let rank = (dice(4) > 0).then_some(rank as u32);
                Made { id: dice(2), ..Made::new(rank, &counts) }
            })
            .collect();
        for made in &log {
            let (places, alone) = (log.clone(), [made.clone()]);
            let records = all(&alone, 8);
            assert!(all(&places, 8).len() >= records.len(), "case {case}");
            for (op, direction, past) in
                [(Operation::Read, "READ", "READ"), (Operation::Write, "WRITE", "WRITTEN")]
            {
                let of = |name: String| made.counts[&format!("POSIX_{name}")];
                let own: Vec<&Record> = records.iter().filter(|record| record.op == op).collect();
                let number: u64 = CLASSES.iter().map(|class| of(format!("SIZE_{direction}_{class}"))).sum();
                assert_eq!(own.len() as u64, number, "case {case}");
                let moved: u64 = own.iter().map(|record| record.len.get()).sum();
                let counted = of(format!("BYTES_{past}"));
                assert!(number == 0 || moved == counted, "case {case}: {moved} of {counted}");
                let end = (of(format!("MAX_BYTE_{past}")) + 1).max(counted);
                assert!(
                    own.iter().all(|record| record.offset.0 + record.len.get() <= end),
                    "case {case}: an operation exceeds {end}"
                );
            }
        }
    }
}
