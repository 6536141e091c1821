//! Decisions for traces whose answer is known.

use super::*;
use crate::Bytes;
use crate::figures::Figures;
use crate::placement::ClassPlacement;
use crate::survey::{Limits, Survey, TraceSummary};
use crate::testing::hybrid;
use weft_core::{ByteLen, FileOffset, Nanos};
use weft_trace::{HostId, Level, Names, Operation, Rank, Record};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Requests of `ranks` ranks, `each` per rank, with the offset of each by rank and number.
fn traced(op: Operation, ranks: u64, each: u64, len: u64, offset: impl Fn(u64, u64) -> u64) -> TraceSummary {
    let mut names = Names::default();
    let file = names.file("/out/data").unwrap();
    let mut survey = Survey::new(&Limits::default());
    for n in 0..each {
        for rank in 0..ranks {
            let start = n * 1_000_000 + rank;
            let record = Record {
                rank: Rank(rank as u32),
                host: HostId(0),
                file,
                op,
                level: Level::Posix,
                collective: false,
                offset: FileOffset(offset(rank, n)),
                len: ByteLen(len),
                start: Nanos(start),
                end: Nanos(start + 900_000),
            };
            survey.add(&record, &names);
        }
    }
    survey.finish(None)
}

/// Four disks.
fn disks() -> Figures {
    let mut figures = hybrid((4, 9_000.0, 80.0), (1, 100.0, 400.0), None);
    figures.classes.truncate(1);
    figures
}

/// The layout of CEDA's file system: stripes of 64 KiB.
fn striped(figures: &Figures) -> Vec<ClassPlacement> {
    vec![ClassPlacement::whole(vec![64 * KIB; figures.classes.len()])]
}

fn decided(traced: &TraceSummary, figures: &Figures, policy: Policy, budget: u64) -> ReplicaPlan {
    let options = Options { policy, budget, ..Options::default() };
    decide(traced, figures, &striped(figures), &options).expect("valid figures")
}

/// Random order of `count` numbers.
fn shuffled(n: u64, count: u64) -> u64 {
    n * 7919 % count
}

/// Reads of 16 KiB in random order: each needs a seek in the original, and continues the one before in a replica.
fn random_reads() -> TraceSummary {
    traced(Operation::Read, 8, 61, 16 * KIB, |rank, n| (shuffled(n, 61) * 8 + rank) * 16 * KIB)
}

#[test]
fn random_small_reads_are_replicated_by_ceda_and_best() {
    let (traced, figures) = (random_reads(), disks());
    let ceda = decided(&traced, &figures, Policy::Ceda, u64::MAX);
    let paper = ceda.decisions[0].paper.expect("judged");
    assert!(paper.ns() > 0.0, "{paper:?}");
    assert_eq!((ceda.decisions[0].chosen, ceda.bytes), (Kind::ByServer, 8 * 61 * 16 * KIB));
    let best = decided(&traced, &figures, Policy::Best, u64::MAX);
    let decision = &best.decisions[0];
    assert!(decision.chosen.is_replica(), "{decision:?}");
    let chosen = decision.alternative(decision.chosen).expect("chosen");
    assert!(decision.now_s() > 1.5 * chosen.run_s(), "{decision:?}");
    assert!(chosen.pays_after(decision.now_s()).is_some() && chosen.sync_s == 0.0);
}

#[test]
fn no_policy_exceeds_its_budget() {
    let (traced, figures) = (random_reads(), disks());
    for policy in Policy::ALL {
        let plan = decided(&traced, &figures, policy, MIB);
        assert_eq!(plan.bytes, 0, "{policy}");
        assert!(!plan.decisions[0].chosen.is_replica(), "{policy}");
    }
}

/// Ranks with a segment each read it in sequence, and each lies on one server already.
#[test]
fn contiguous_patterns_are_left() {
    let figures = disks();
    let traced = traced(Operation::Read, 4, 64, 64 * KIB, |rank, n| (4 * n + rank) * 64 * KIB);
    let ceda = decided(&traced, &figures, Policy::Ceda, u64::MAX);
    assert_eq!(ceda.decisions[0].chosen, Kind::Leave, "figure 4 of the paper: {:?}", ceda.decisions[0].paper);
    let cida = decided(&traced, &figures, Policy::Cida, u64::MAX);
    assert_eq!(cida.decisions[0].chosen, Kind::InSequence, "strided, so CIDA replicates");
}

#[test]
fn written_replicas_pay_for_their_copy_back() {
    let figures = disks();
    let written =
        traced(Operation::Write, 8, 61, 16 * KIB, |rank, n| (shuffled(n, 61) * 8 + rank) * 16 * KIB);
    let plan = decided(&written, &figures, Policy::Best, u64::MAX);
    for alternative in plan.decisions[0].alternatives.iter().filter(|one| one.kind.is_replica()) {
        assert!(alternative.sync_s > 0.0, "{alternative:?}");
    }
}

#[test]
fn runs_alone_are_compared_without_the_copy_back() {
    let figures = disks();
    let written =
        traced(Operation::Write, 8, 61, 16 * KIB, |rank, n| (shuffled(n, 61) * 8 + rank) * 16 * KIB);
    let with = decided(&written, &figures, Policy::Best, u64::MAX);
    let alone = decide_without_copy_back(&written, &figures, &striped(&figures), &Options::default());
    let alone = &alone.expect("valid figures").decisions[0];
    assert!(alone.alternatives.iter().all(|alternative| alternative.sync_s == 0.0));
    assert!(alone.chosen_s() <= with.decisions[0].chosen_s());
}

/// `best` is at most 2 % slower than the best of the other policies, over patterns, request lengths and directions.
#[test]
fn best_is_never_much_worse_than_another_policy() {
    let figures = disks();
    for op in [Operation::Read, Operation::Write] {
        for len in [4 * KIB, 64 * KIB, 256 * KIB] {
            let shapes: [&dyn Fn(u64, u64) -> u64; 3] =
                [&|rank, n| (n * 8 + rank) * len, &|rank, n| (rank * 31 + n) * len, &|rank, n| {
                    (shuffled(n, 31) * 8 + rank) * len + rank % 2 * 100
                }];
            for (shape, offset) in shapes.into_iter().enumerate() {
                let traced = traced(op, 8, 31, len, offset);
                let seconds = |policy| decided(&traced, &figures, policy, u64::MAX).decisions[0].chosen_s();
                let least = [Policy::Off, Policy::Cida, Policy::Ceda]
                    .map(seconds)
                    .into_iter()
                    .fold(f64::MAX, f64::min);
                let best = seconds(Policy::Best);
                assert!(best <= 1.02 * least, "{op:?} of {len}, shape {shape}: {best} over {least}");
            }
        }
    }
}

#[test]
fn a_pattern_with_unknown_requests_is_left() {
    let traced = TraceSummary { sample: random_reads().sample.split_off(1), ..random_reads() };
    let plan = decided(&traced, &disks(), Policy::Best, u64::MAX);
    assert_eq!((plan.decisions[0].chosen, plan.bytes), (Kind::Leave, 0));
    assert!(plan.decisions[0].reason.contains("too many"), "{}", plan.decisions[0].reason);
}

#[test]
fn algorithm_2_takes_the_greatest_benefits_that_fit() {
    let patterns = [(5.0, 60), (9.0, 50), (-1.0, 10), (0.0, 10), (2.0, 30)];
    assert_eq!(chosen_by_benefit(&patterns, 100), [1, 4]);
    assert_eq!(chosen_by_benefit(&patterns, u64::MAX), [1, 0, 4]);
    assert_eq!(chosen_by_benefit(&patterns, 30), [] as [usize; 0], "strictly less than the free space");
}

#[test]
fn decisions_are_deterministic() {
    let (traced, mut figures) = (random_reads(), hybrid((4, 9_000.0, 80.0), (2, 100.0, 400.0), Some(MIB)));
    figures.classes[1].capacity = Some(Bytes(4 * MIB));
    let once = || format!("{:?}", decided(&traced, &figures, Policy::Best, u64::MAX));
    assert_eq!(once(), once());
}
