//! Algorithm 1 compared with a transcription, the worked example, and the paper's experimental setup.

use super::*;
use crate::mix::{Direction, OffsetHistogram};
use crate::paper::cost::table_iv;
use crate::testing::{class, hybrid};
use proptest::prelude::*;

const KIB: u64 = 1024;
const MIB: u64 = 1 << 20;

fn even(count: u64, size: u64) -> RequestKind {
    let mut offsets = OffsetHistogram::with_unit(size);
    (0..count).for_each(|n| offsets.add(n * size, 1));
    RequestKind { direction: Direction::Read, sequential: false, len: size as f64, offsets }
}

fn parameters(p: u32, c: u32) -> CostParameters {
    CostParameters { processes: p.into(), per_node: c.into(), connect_ns: 34e3, byte_ns: 8.5 }
}

/// Transcription of algorithm 1 for k requests of S bytes, with Opt_cost initially infinite and Total_cost reset per
/// candidate. Returns S_H, S_S and Opt_cost.
fn as_printed(
    k: u64,
    size: u64,
    m: u64,
    n: u64,
    c_s: u64,
    cost: &dyn Fn(u64, Option<u64>) -> f64,
) -> (u64, u64, f64) {
    let (mut opt, mut s_h, mut s_s) = (f64::INFINITY, 0, 0);
    let (l, h) = (size / (m + n), size / m);
    let mut hh = l;
    while hh <= h {
        let ss = (size - m * hh) / n;
        // With nothing on the SServers, all requests are homogeneous.
        let j = c_s.checked_div(ss).unwrap_or(0);
        let mut total = 0.0;
        for i in 0..k {
            total += if i < j { cost(hh, Some(ss)) } else { cost(h, None) };
        }
        if total < opt * (1.0 - RELATIVE_TOLERANCE) {
            (opt, s_h, s_s) = (total, hh, ss);
        }
        hh += STEP;
    }
    (s_h, s_s, opt)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn two_classes_and_one_length_match_the_printed_algorithm(
        (m, n) in (1u32..9, 1u32..9),
        stripes in 1u64..64,
        k in 1u64..300,
        capacity in 0u64..400,
        (p, c) in (1u32..65, 1u32..9),
        (alpha_h, beta_h) in (50.0..20_000.0f64, 20.0..300.0f64),
    ) {
        // Whole stripes, so that no byte of a request is lost to rounding.
        let size = stripes * 4 * KIB * u64::from(m) * u64::from(n) * u64::from(m + n);
        let c_s = capacity * 16 * KIB;
        let figures = hybrid((m, alpha_h, beta_h), (n, 40.0, 500.0), None);
        let kinds = [even(k, size)];
        let parameters = parameters(p, c);
        let problem = Problem::of(&figures, &kinds, size, vec![u64::MAX, c_s], parameters);
        prop_assume!(problem.order == [0, 1]);
        let (hdd, ssd) = (figures.classes[0].read.alone(), figures.classes[1].read.alone());
        let cost = |h: u64, s: Option<u64>| {
            let of = |count: u32, line: Line, bytes: u64| Servers {
                count: count.into(), startup_ns: line.startup_ns(), byte_ns: line.byte_ns(), bytes: bytes as f64,
            };
            match s {
                Some(s) => table_iii(&parameters, size as f64, &[of(m, hdd, h), of(n, ssd, s)]).total(),
                None => table_iv(&parameters, size as f64, &of(m, hdd, size / u64::from(m))).total(),
            }
        };
        let (s_h, s_s, opt) = as_printed(k, size, m.into(), n.into(), c_s, &cost);
        let chosen = problem.psa();
        // A round of whole bytes may be slightly shorter than S, so that the boundary splits the last request.
        prop_assert!((chosen.cost_ns - opt).abs() <= 1e-4 * opt, "{} {opt}", chosen.cost_ns);
        // Stripes may differ where costs tie. A pair that does not fit at all is never in the layout.
        let heterogeneous = s_s > 0 && c_s >= s_s;
        let again = if heterogeneous { problem.given(&[s_h, s_s]).cost_ns } else { opt };
        prop_assert!((again - opt).abs() <= 1e-4 * opt, "<{s_h}, {s_s}> {again} {opt}");
    }

    #[test]
    fn no_layout_exceeds_the_capacity(
        counts in proptest::collection::vec((1u32..6, 10.0..10_000.0f64, 50.0..2_000.0f64, 0u64..(64 * MIB)), 1..4),
        (size, k) in (1u64..(2 * MIB), 1u64..200),
    ) {
        let mut figures = hybrid((1, 1.0, 1.0), (1, 1.0, 1.0), None);
        figures.classes = counts
            .iter()
            .enumerate()
            .map(|(number, &(count, startup, rate, _))| class(&format!("c{number}"), count, startup, rate, None))
            .collect();
        let capacities: Vec<u64> = counts.iter().map(|(.., capacity)| *capacity).collect();
        let kinds = [even(k, size)];
        let problem = Problem::of(&figures, &kinds, size, capacities, parameters(16, 2));
        let extent = k * size;
        for chosen in [problem.psa(), problem.pa(), problem.def(64 * KIB)] {
            prop_assert!(chosen.placement.fits(&figures, &problem.capacities, extent, 1), "{chosen:?}");
            prop_assert!(chosen.cost_ns.is_finite() && chosen.cost_ns > 0.0);
        }
    }
}

#[test]
fn the_worked_example_is_124t_against_80t() {
    // Section III.A: two HServers, one SServer, 20 requests. The SServer holds 6 sub-requests under PA and 20 under
    // PSA. A heterogeneous request costs 2T under PA and 4T under PSA, a homogeneous one 8T.
    let figures = hybrid((2, 1000.0, 100.0), (1, 10.0, 500.0), None);
    let (size, capacity) = (40 * KIB, 120 * KIB);
    let kinds = [even(20, size)];
    let (pa, psa) = ([10 * KIB, 20 * KIB], [17 * KIB, 6 * KIB]);
    let stated_cost = |_: &RequestKind, stripes: &[u64]| match stripes {
        _ if stripes == pa => 2.0,
        _ if stripes == psa => 4.0,
        [_, 0] => 8.0,
        other => panic!("the example states nothing of {other:?}"),
    };
    let problem = Problem::of(&figures, &kinds, size, vec![u64::MAX, capacity], parameters(3, 1));
    let problem = problem.stated_cost(&stated_cost);
    let boundary = |chosen: &PaperLayout| chosen.placement.parts[0].end.unwrap() / size;
    let (pa, psa) = (problem.given(&pa), problem.given(&psa));
    assert_eq!((boundary(&pa), pa.cost_ns), (6, 124.0));
    assert_eq!((boundary(&psa), psa.cost_ns), (20, 80.0));
    let chosen = least(vec![pa, psa.clone()], |chosen: &PaperLayout| chosen.cost_ns);
    assert_eq!(chosen, Some(psa));
}

/// IOR of section IV.B: 4 HServers, 4 SServers of 1 GiB, 512 KiB requests of 16 processes on 8 nodes, 16 GiB.
#[test]
fn in_the_papers_setup_all_pairs_up_to_96_kib_tie() {
    let figures = hybrid((4, 12_000.0, 70.0), (4, 150.0, 400.0), None);
    let size = 512 * KIB;
    let kinds = [even(32_768, size)];
    let problem = Problem::of(&figures, &kinds, size, vec![u64::MAX, 1 << 30], parameters(16, 2));
    // With s from 64 down to 32 KiB the SServers are filled exactly, and HServers hold 96 KiB of a request on average.
    let cost = |h: u64| problem.given(&[h * KIB, (128 - h) * KIB]).cost_ns;
    for h in [64, 72, 80, 88, 96] {
        assert!((cost(h) / cost(96) - 1.0).abs() < 1e-4, "{h}: {} {}", cost(h), cost(96));
    }
    // The paper's pair leaves capacity unused and puts more on the disks.
    assert!(cost(120) > cost(116) && cost(116) > cost(112) && cost(112) > 1.005 * cost(96));
    let pair = |chosen: &PaperLayout| {
        (chosen.placement.parts[0].stripes[0] / KIB, chosen.placement.parts[0].stripes[1] / KIB)
    };
    let (h, s) = pair(&problem.psa());
    assert!((64..=96).contains(&h) && h + s == 128, "<{h},{s}>");
    let pa = pair(&problem.pa());
    // alpha_h alone exceeds all other terms, so the disks get the minimum that the step allows.
    assert_eq!(pa, (4, 124));
}

#[test]
fn other_lengths_cost_as_much_as_on_the_busiest_server() {
    let figures = hybrid((2, 1000.0, 100.0), (2, 10.0, 500.0), None);
    let kinds = [even(10, 64 * KIB)];
    let problem = Problem::of(&figures, &kinds, 64 * KIB, vec![u64::MAX; 2], parameters(4, 1));
    let stripes = [24 * KIB, 8 * KIB];
    let of = |len: u64| problem.request(&even(1, len), &stripes);
    let by_hand = |h: u64, s: u64, len: u64| {
        let line = |class: usize, bytes: u64| {
            let line = figures.classes[class].read.alone();
            Servers {
                count: 2.0,
                startup_ns: line.startup_ns(),
                byte_ns: line.byte_ns(),
                bytes: bytes as f64,
            }
        };
        table_iii(&parameters(4, 1), len as f64, &[line(0, h), line(1, s)]).total()
    };
    assert_eq!(of(64 * KIB), by_hand(24 * KIB, 8 * KIB, 64 * KIB));
    assert_eq!(of(128 * KIB), by_hand(48 * KIB, 16 * KIB, 128 * KIB));
    assert_eq!(of(4 * KIB), by_hand(4 * KIB, 4 * KIB, 4 * KIB));
    assert_eq!(of(80 * KIB), by_hand(40 * KIB, 16 * KIB, 80 * KIB));
}

#[test]
fn a_third_class_without_capacity_changes_nothing() {
    let two = hybrid((4, 12_000.0, 70.0), (4, 150.0, 400.0), None);
    let mut three = two.clone();
    three.classes.push(class("nvme", 2, 50.0, 3000.0, None));
    let size = 256 * KIB;
    let kinds = [
        even(1000, size),
        RequestKind { direction: Direction::Write, sequential: true, ..even(300, 17_000) },
    ];
    let of_two = Problem::of(&two, &kinds, size, vec![u64::MAX, 3 * MIB], parameters(16, 2)).psa();
    let of_three = Problem::of(&three, &kinds, size, vec![u64::MAX, 3 * MIB, 0], parameters(16, 2)).psa();
    let stripes = |chosen: &PaperLayout| {
        chosen.placement.parts.iter().map(|part| part.stripes[..2].to_vec()).collect::<Vec<_>>()
    };
    assert!(of_three.placement.parts.iter().all(|part| part.stripes[2] == 0), "{of_three:?}");
    assert!((of_three.cost_ns / of_two.cost_ns - 1.0).abs() < 0.02, "{of_two:?} {of_three:?}");
    assert_eq!(stripes(&of_three).len(), stripes(&of_two).len());
}

/// Regression: the choices multiply per part. 16 classes with four limited ones took minutes.
#[test]
fn many_classes_do_not_increase_the_number_of_sequences_tried() {
    let mut figures = hybrid((1, 12_000.0, 70.0), (1, 150.0, 400.0), None);
    let next = |n| class(&format!("c{n}"), 1, 12_000.0 / f64::from(n), 70.0 * f64::from(n), None);
    figures.classes.extend((2..16).map(next));
    let kinds = [even(512, 64 * KIB)];
    for limited in [4, 15] {
        let capacity = |n: u64| if n > 15 - limited { n * 100 * KIB } else { u64::MAX };
        let tried = std::cell::Cell::new(0u64);
        let cost = |_: &RequestKind, stripes: &[u64]| {
            tried.set(tried.get() + 1);
            stripes.iter().max().map_or(0.0, |most| *most as f64)
        };
        let problem =
            Problem::of(&figures, &kinds, 64 * KIB, (0..16).map(capacity).collect(), parameters(8, 2));
        let chosen = problem.stated_cost(&cost).psa();
        assert!(chosen.placement.parts.len() <= 16, "{chosen:?}");
        assert!(tried.get() <= 2 * SEQUENCES_MAX as u64, "{limited}: {}", tried.get());
    }
}

#[test]
fn requests_with_fewer_bytes_than_servers_get_a_layout() {
    let two = hybrid((6, 10_000.0, 70.0), (2, 150.0, 400.0), Some(MIB));
    let one = Figures { classes: vec![two.classes[0].clone()], ..two.clone() };
    for (figures, size) in (1..=9).flat_map(|size| [(&two, size), (&one, size)]) {
        let kinds = [even(100, size)];
        let capacities = [u64::MAX, MIB][..figures.classes.len()].to_vec();
        let problem = Problem::of(figures, &kinds, size, capacities, parameters(8, 2));
        for chosen in [problem.psa(), problem.pa(), problem.def(64 * KIB)] {
            assert!(chosen.placement.parts.iter().all(|part| part.round(figures) > 0), "{size}: {chosen:?}");
            assert!(chosen.cost_ns.is_finite() && chosen.cost_ns > 0.0, "{size}: {chosen:?}");
        }
    }
}
