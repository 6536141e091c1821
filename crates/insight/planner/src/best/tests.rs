//! Patterns with a known best layout.

use super::*;
use crate::mix::Direction;
use crate::paper::{CostParameters, Problem};
use crate::survey::{Limits, Survey, TraceSummary};
use crate::testing::{class, hybrid};
use weft_core::{ByteLen, FileOffset, Nanos};
use weft_trace::{HostId, Level, Names, Operation, Rank, Record};

const KIB: u64 = 1024;
const MIB: u64 = 1 << 20;

fn trace(requests: impl Iterator<Item = (u32, u64, u64)>) -> TraceSummary {
    let mut names = Names::default();
    let file = names.file("/data").unwrap();
    let mut survey = Survey::new(&Limits::default());
    for (n, (rank, offset, len)) in requests.enumerate() {
        let start = n as u64 * 1000;
        let record = Record {
            rank: Rank(rank),
            host: HostId(0),
            file,
            op: Operation::Read,
            level: Level::Posix,
            collective: false,
            offset: FileOffset(offset),
            len: ByteLen(len),
            start: Nanos(start),
            end: Nanos(start + 50_000),
        };
        survey.add(&record, &names);
    }
    survey.finish(None)
}

fn pseudorandom(n: u64) -> u64 {
    let x = (n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (x ^ (x >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 20
}

/// Results of `best` and of the paper's three planners, in seconds of the model.
fn all(figures: &Figures, traced: &TraceSummary, capacities: &[u64]) -> (SearchResult, [f64; 3]) {
    let group = &traced.groups[0];
    let parameters =
        CostParameters { processes: traced.ranks.into(), per_node: 2.0, connect_ns: 34e3, byte_ns: 8.5 };
    let problem = Problem::new(figures, group, capacities, parameters);
    let paper = [problem.def(64 * KIB), problem.pa(), problem.psa()].map(|chosen| chosen.placement);
    let load = Load::of(traced, Some(0));
    let found = Search { figures, group, capacities, load: &load, parts_max: 64 }.best(&paper.each_ref());
    let times = paper.each_ref().map(|placement| run(figures, &load, &[placement]).seconds);
    (found, times)
}

#[test]
fn random_requests_that_partly_fit_the_ssds_go_to_one_target_each() {
    let figures = hybrid((4, 10_000.0, 70.0), (4, 150.0, 400.0), None);
    let traced =
        trace((0..2048u64).map(|n| ((n % 16) as u32, pseudorandom(n) % 8192 * 512 * KIB, 512 * KIB)));
    let capacities = [u64::MAX, traced.groups[0].extent / 16];
    let (found, times) = all(&figures, &traced, &capacities);
    for (time, name) in times.iter().zip(["DEF", "PA", "PSA"]) {
        assert!(found.outcome.seconds * 1.25 < *time, "{name}: {time} {found:?}");
    }
    assert!(found.placement.fits(&figures, &capacities, traced.groups[0].extent, 1));
    let first = &found.placement.parts[0];
    // The stripes keep each request on one target, so that no request makes several disks seek.
    let whole = first.stripes.iter().all(|size| *size == 0 || *size >= 512 * KIB);
    assert!(whole && first.stripes[1] > 0 && found.placement.parts.len() > 1, "{:?}", found.placement);
}

#[test]
fn never_slower_by_the_model_than_the_papers_planners() {
    for (ranks, len, order) in [(1u64, 64 * KIB, 0), (16, 512 * KIB, 0), (16, 16 * KIB, 1), (64, 47_008, 2)] {
        let figures = hybrid((3, 8_000.0, 90.0), (2, 200.0, 450.0), None);
        let count = 1024u64;
        let offset = |n: u64| match order {
            0 => n,
            1 => pseudorandom(n) % count,
            _ => n % ranks * (count / ranks) + n / ranks,
        };
        let traced = trace((0..count).map(|n| ((n % ranks) as u32, offset(n) * len, len)));
        for part in [0, 8, 2, 1] {
            let capacity = traced.groups[0].extent.checked_div(part).unwrap_or(0) / 2;
            let capacities = [u64::MAX, capacity];
            let (found, times) = all(&figures, &traced, &capacities);
            for time in times {
                assert!(
                    found.outcome.seconds <= time * (1.0 + 2.0 * GAIN_OVER_PAPER_MIN),
                    "{ranks} {len} {part}: {times:?} {found:?}"
                );
            }
            assert!(found.placement.fits(&figures, &capacities, traced.groups[0].extent, 1), "{found:?}");
        }
    }
}

#[test]
fn the_hottest_range_is_on_the_fast_class() {
    let figures = hybrid((4, 10_000.0, 70.0), (2, 150.0, 400.0), None);
    // Nine of ten requests go to a sixteenth of the file, in its middle.
    let place =
        |n: u64| if n.is_multiple_of(10) { pseudorandom(n) % 16_384 } else { 8192 + pseudorandom(n) % 1024 };
    let traced = trace((0..6000u64).map(|n| ((n % 8) as u32, place(n) * 64 * KIB, 64 * KIB)));
    let (found, _) = all(&figures, &traced, &[u64::MAX, 48 * MIB]);
    let fast = found.placement.parts.iter().filter(|part| part.stripes[0] == 0);
    let fast: Vec<_> = fast.map(|part| (part.start / MIB, part.end.unwrap_or(u64::MAX) / MIB)).collect();
    let covered: u64 = fast.iter().map(|(a, b)| (*b).min(576).saturating_sub((*a).max(512))).sum();
    assert!(covered >= 56, "{fast:?} of 512..576 MiB");
}

#[test]
fn three_classes_with_unequal_capacity_are_all_used() {
    let mut figures = hybrid((4, 10_000.0, 70.0), (2, 150.0, 400.0), None);
    figures.classes.push(class("nvme", 1, 20.0, 2000.0, None));
    figures.network.mb_s = 10_000.0;
    let traced = trace((0..1024u64).map(|n| ((n % 16) as u32, pseudorandom(n) % 8192 * 64 * KIB, 64 * KIB)));
    let extent = traced.groups[0].extent;
    let capacities = [u64::MAX, extent / 8, extent / 8];
    let (found, times) = all(&figures, &traced, &capacities);
    let bytes_per_target = |class| found.placement.bytes_per_target(&figures, class, extent);
    assert!(bytes_per_target(1) > capacities[1] / 2 && bytes_per_target(2) > capacities[2] / 2, "{found:?}");
    assert!(times.iter().all(|time| found.outcome.seconds * 1.25 < *time), "{times:?} {found:?}");
}

#[test]
fn stripes_are_whole_pages_whatever_the_requests() {
    let figures = hybrid((3, 8_000.0, 90.0), (2, 200.0, 450.0), None);
    for n in 0..24u64 {
        // A few bytes to some megabytes, sequential and random.
        let len = 1 + pseudorandom(n) % (1 << (8 + n % 15));
        let offset = |request: u64| if n.is_multiple_of(2) { request } else { pseudorandom(request) % 256 };
        let traced = trace((0..256u64).map(|request| ((request % 8) as u32, offset(request) * len, len)));
        let (found, _) = all(&figures, &traced, &[u64::MAX, traced.groups[0].extent / (2 + n % 7)]);
        let whole = |size: &u64| size.is_multiple_of(4096);
        let part = |part: &crate::placement::PlacementPart| part.stripes.iter().chain(&part.end).all(whole);
        assert!(found.placement.parts.iter().all(part), "requests of {len}: {:?}", found.placement);
    }
}

#[test]
fn the_search_is_deterministic() {
    let figures = hybrid((2, 10_000.0, 70.0), (2, 150.0, 400.0), None);
    let requests = || (0..500u64).map(|n| ((n % 4) as u32, pseudorandom(n) % 512 * 64 * KIB, 64 * KIB));
    let capacities = [u64::MAX, 4 * MIB];
    let (a, b) =
        (all(&figures, &trace(requests()), &capacities), all(&figures, &trace(requests()), &capacities));
    assert_eq!((a.0.placement, a.0.outcome, a.0.tried), (b.0.placement, b.0.outcome, b.0.tried));
    assert_eq!(trace(requests()).groups[0].kinds[0].direction, Direction::Read);
}
