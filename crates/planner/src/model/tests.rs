//! The model, on runs that can be reckoned by hand.

use super::behind::Synced;
use super::head::Head;
use super::target::{Local, Target};
use super::*;
use crate::bytes::Bytes;
use crate::figures::{Depth, Network};
use crate::mix::Direction;
use crate::sample::Request;
use crate::testing::hybrid;

const KIB: u64 = 1024;

fn load(requests: &[(u32, u64, u64)]) -> Load {
    let request = |(number, &(rank, offset, len)): (usize, &(u32, u64, u64))| {
        Request::new(rank, 0, Direction::Read, offset, len, (number as u64, number as u64 + 100_000))
    };
    let requests: Vec<Request> = requests.iter().enumerate().map(request).collect();
    Load::from(&requests, requests.len() as u64)
}

#[test]
fn one_request_by_hand() {
    let figures = hybrid((2, 1000.0, 100.0), (2, 100.0, 400.0), None);
    let load = load(&[(0, 40 << 20, 128 * KIB)]);
    let outcome = run(&figures, &load, &[&Placing::whole(vec![64 * KIB, 0])]);
    // Message, 1 ms and 64 KiB at 100 MB/s on both disks, over the links side by side until the node's has both.
    let took = 65_536.0 / 117.7e6;
    let seconds = 34e-6 + 1e-3 + 65_536.0 / 100e6 + took + 34e-6;
    assert!((outcome.seconds - seconds).abs() < 2.0 * took, "{} {seconds}", outcome.seconds);
    assert_eq!(outcome.spread, 2.0);
    assert_eq!(outcome.busy_s[1], 0.0);
    assert!((outcome.node_s - 2.0 * took).abs() < 1e-9);
}

#[test]
fn busy_targets_bound_the_time_and_ranks_overlap() {
    let figures = hybrid((4, 10_000.0, 100.0), (1, 1.0, 1e6), None);
    let random = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (1 << 14);
    let requests: Vec<_> =
        (0..800u64).map(|n| ((n % 16) as u32, random(n) * 64 * KIB * 64, 64 * KIB)).collect();
    let placing = Placing::whole(vec![64 * KIB * 64, 0]);
    let outcome = run(&figures, &load(&requests), &[&placing]);
    // 200 requests for each disk if they were dealt evenly: 10 ms and 0.66 ms each.
    let even = 200.0 * (10e-3 + 65_536.0 / 100e6);
    assert!((even * 0.99..even * 1.6).contains(&outcome.seconds), "{} {even}", outcome.seconds);
    assert!(outcome.busy_s[0] <= outcome.seconds);
    // One rank alone keeps one disk busy at a time.
    let alone: Vec<_> = requests.iter().map(|&(_, offset, len)| (0, offset, len)).collect();
    let alone = run(&figures, &load(&alone), &[&placing]);
    assert!(alone.seconds > 3.9 * even, "{} {even}", alone.seconds);
}

#[test]
fn devices_that_serve_side_by_side_are_not_slower_for_a_burst() {
    let mut figures = hybrid((1, 1.0, 1e6), (1, 100.0, 1e6), None);
    let depth = |depth, startup_us| Depth { depth, startup_us, mb_s: 1e6 };
    figures.classes[1].read.random = vec![depth(1, 100.0), depth(4, 25.0), depth(16, 10.0)];
    figures.network = Network::new(0.0, 1e6);
    let requests: Vec<_> = (0..16u32).map(|rank| (rank, u64::from(rank) << 30, 4096)).collect();
    let outcome = run(&figures, &load(&requests), &[&Placing::whole(vec![0, 1 << 20])]);
    assert!((outcome.seconds - 160e-6).abs() < 1e-6, "{}", outcome.seconds);
}

#[test]
fn writes_into_memory_are_waited_for_in_the_end() {
    let mut figures = hybrid((1, 1000.0, 100.0), (1, 1.0, 1e6), None);
    figures.classes[0].write.behind = Bytes(1 << 30);
    let request = |n: u64| Request::new(0, 0, Direction::Write, (n * 7 % 50) << 30, 4096, (n, n + 1));
    let requests: Vec<Request> = (0..50).map(request).collect();
    let outcome = run(&figures, &Load::from(&requests, 500), &[&Placing::whole(vec![1 << 40, 0])]);
    let each = 1e-3 + 4096.0 / 100e6;
    // Ten times as many as are run.
    assert!((outcome.seconds - 500.0 * each).abs() < 0.02 * 500.0 * each, "{}", outcome.seconds);
}

#[test]
fn ranks_wait_between_writing_and_reading() {
    let figures = hybrid((2, 1000.0, 100.0), (1, 1.0, 1e6), None);
    let at = |rank, direction, offset, start: u64| {
        Request::new(rank, 0, direction, offset, 4096, (start, start + 10))
    };
    let requests = [
        at(0, Direction::Write, 1 << 40, 1),
        at(1, Direction::Write, (2 << 40) + 4096, 2),
        at(0, Direction::Read, (3 << 40) + 4096, 100),
        at(1, Direction::Read, 4 << 40, 101),
    ];
    let load = Load::from(&requests, 4);
    assert_eq!(load.epochs, [2, 2]);
    let outcome = run(&figures, &load, &[&Placing::whole(vec![4096, 0])]);
    assert!(outcome.seconds > 2e-3);
}

/// Disks that take no time, and a network of 100 MB/s without messages.
fn network_only(targets: u32, window: u64) -> Figures {
    let mut figures = hybrid((targets, 0.0, 1e6), (1, 0.0, 1e6), None);
    figures.network = Network { window: Bytes(window), ..Network::new(0.0, 100.0) };
    figures.processes_per_node = 1;
    figures
}

fn of(direction: Direction, requests: &[(u32, u64, u64)]) -> Load {
    let one = |(number, &(rank, offset, len)): (usize, &(u32, u64, u64))| {
        let number = number as u64;
        Request::new(rank, 0, direction, offset, len, (number, number + 100_000))
    };
    let requests: Vec<Request> = requests.iter().enumerate().map(one).collect();
    Load::from(&requests, requests.len() as u64)
}

const MIB: u64 = 1 << 20;
/// What a MiB takes on a link of 100 MB/s, in seconds.
const MIB_S: f64 = 1.048_576e6 / 100e6;

fn near(seconds: f64, expected: f64) -> bool {
    (seconds / expected - 1.0).abs() < 0.01
}

#[test]
fn ranks_that_begin_with_the_same_target_meet_there() {
    // Two ranks on nodes of their own, each with 4 MiB over two targets, 2 MiB to each, of which a connection holds a
    // quarter. Both go to the first target first: its link carries 4 MiB while the other one's is idle, then the other
    // one's: all but the last pieces one after the other.
    let figures = network_only(2, MIB / 4);
    for direction in [Direction::Write, Direction::Read] {
        let load = of(direction, &[(0, 0, 4 * MIB), (1, 4 * MIB, 4 * MIB)]);
        let spread = run(&figures, &load, &[&Placing::whole(vec![2 * MIB, 0])]).seconds;
        // A target for each: both links carry 4 MiB at the same time.
        let apart = run(&figures, &load, &[&Placing::whole(vec![4 * MIB, 0])]).seconds;
        assert!(near(apart, 4.0 * MIB_S), "{direction:?}: {apart}");
        assert!((7.0 * MIB_S..8.1 * MIB_S).contains(&spread), "{direction:?}: {spread} of {MIB_S}");
    }
    // Connections that hold all of it: everything is on its way at once.
    let figures = network_only(2, 4 * MIB);
    let load = of(Direction::Write, &[(0, 0, 4 * MIB), (1, 4 * MIB, 4 * MIB)]);
    let outcome = run(&figures, &load, &[&Placing::whole(vec![2 * MIB, 0])]);
    assert!(near(outcome.seconds, 4.0 * MIB_S), "{outcome:?}");
}

#[test]
fn the_next_messages_wait_for_all_answers_to_those_before() {
    // 12 MiB to two targets, 8 MiB of it to the first: messages of 4 MiB to both, then 4 MiB to the first.
    let figures = network_only(2, 16 * MIB);
    let load = of(Direction::Read, &[(0, 0, 12 * MIB)]);
    let outcome = run(&figures, &load, &[&Placing::whole(vec![8 * MIB, 0])]);
    // The link of the node carries all of it; the second round begins when the first is through.
    assert!(near(outcome.seconds, 12.0 * MIB_S), "{outcome:?}");
    assert_eq!(outcome.spread, 2.0);
}

#[test]
fn memory_answers_what_it_still_holds() {
    let mut figures = hybrid((1, 1000.0, 100.0), (1, 0.0, 1e6), None);
    figures.network = Network::new(0.0, 1e6);
    let at = |direction, offset, number: u64| {
        Request::new(0, 0, direction, offset * MIB, MIB, (number * 10, number * 10 + 5))
    };
    // 8 MiB are written, then read: a MiB was written 8 MiB ago when it is read.
    let requests: Vec<Request> = (0..8)
        .map(|n| at(Direction::Write, n, n))
        .chain((0..8).map(|n| at(Direction::Read, n, n + 8)))
        .collect();
    let load = Load::from(&requests, 16);
    let placing = Placing::whole(vec![MIB, 0]);
    let each = 1e-3 / 10.0 + MIB as f64 / 100e6;
    for (memory, reads) in [(16 * MIB, 0.0), (4 * MIB, 8.0)] {
        figures.classes[0].memory = Bytes(memory);
        let seconds = run(&figures, &load, &[&placing]).seconds;
        // A write and a read that follow none of theirs take the whole startup.
        assert!((seconds - (8.0 + reads) * each).abs() < 2e-3, "{memory}: {seconds}, {each} each");
    }
}

#[test]
fn memory_orders_what_it_has_gathered() {
    let mut figures = hybrid((1, 1000.0, 100.0), (1, 0.0, 1e6), None);
    figures.network = Network::new(0.0, 1e6);
    let write = &mut figures.classes[0].write;
    (write.behind, write.gathers) = (Bytes(1 << 30), Bytes(1 << 20));
    let placing = Placing::whole(vec![1 << 40, 0]);
    // 256 pieces of 4 KiB that follow each other, in any order: together they are one request of 1 MiB.
    let pieces =
        |distance: u64| (0..256u64).map(move |n| (0, n * 101 % 256 * distance, 4 * KIB)).collect::<Vec<_>>();
    let dense = run(&figures, &of(Direction::Write, &pieces(4 * KIB)), &[&placing]).seconds;
    assert!(near(dense, 1e-3 + MIB as f64 / 100e6), "{dense}");
    // Those far from each other are as many as they are.
    let sparse = run(&figures, &of(Direction::Write, &pieces(4 * MIB)), &[&placing]).seconds;
    assert!(near(sparse, 256.0 * (1e-3 + 4096.0 / 100e6)), "{sparse}");
}

#[test]
fn a_sync_has_the_device_begin_before_memory_has_gathered() {
    let mut figures = hybrid((1, 1000.0, 100.0), (1, 0.0, 1e6), None);
    figures.network = Network::new(0.0, 1e6);
    let write = &mut figures.classes[0].write;
    (write.behind, write.gathers, write.sync_us) = (Bytes(1 << 30), Bytes(1 << 29), 5000.0);
    write.scattered = vec![Depth { depth: 1, startup_us: 9000.0, mb_s: 100.0 }];
    let mut requests: Vec<Request> =
        (0..2).map(|n| Request::new(0, 0, Direction::Write, n << 30, MIB, (n * 10, n * 10 + 5))).collect();
    requests.insert(1, Request::new(0, 0, Direction::Write, 0, 0, (6, 9)));
    let load = Load::from(&requests, 2);
    assert_eq!(load.requests(), 2);
    let outcome = run(&figures, &load, &[&Placing::whole(vec![1 << 40, 0])]);
    // Each of the two is on its way alone; the first also pays for its sync.
    let each = 9e-3 + MIB as f64 / 100e6;
    assert!(near(outcome.seconds, 2.0 * each + 5e-3), "{outcome:?}");
}

#[test]
fn what_comes_while_the_device_writes_goes_in_order_with_what_waits() {
    let mut figures = hybrid((1, 1000.0, 100.0), (1, 0.0, 1e6), None);
    figures.network = Network::new(0.0, 1e6);
    let write = &mut figures.classes[0].write;
    (write.behind, write.gathers) = (Bytes(1 << 40), Bytes(128 << 20));
    // A stretch in any order: memory has gathered two thirds when the device begins.
    let pieces: Vec<_> = (0..3072u64).map(|n| (0, n * 1021 % 3072 * 64 * KIB, 64 * KIB)).collect();
    let seconds = run(&figures, &of(Direction::Write, &pieces), &[&Placing::whole(vec![1 << 40, 0])]).seconds;
    // Few of the last third are left for a second way; given all at once they would be 1,024 requests of a millisecond.
    let once = 192.0 * MIB as f64 / 100e6;
    assert!((once..once + 0.3).contains(&seconds), "{seconds} {once}");
}

#[test]
fn each_datafile_is_synced() {
    let mut figures = hybrid((1, 1000.0, 100.0), (1, 0.0, 1e6), None);
    figures.network = Network::new(0.0, 1e6);
    let write = &mut figures.classes[0].write;
    (write.behind, write.gathers, write.sync_us) = (Bytes(1 << 30), Bytes(1 << 29), 5000.0);
    let mut requests: Vec<Request> =
        (0..2).map(|n| Request::new(0, 0, Direction::Write, n * MIB, MIB, (n * 10, n * 10 + 5))).collect();
    requests.push(Request::new(0, 0, Direction::Write, 0, 0, (16, 19)));
    let seconds = |placing: &Placing| run(&figures, &Load::from(&requests, 2), &[placing]).seconds;
    let bytes = MIB as f64 / 100e6;
    let one = seconds(&Placing::whole(vec![1 << 40, 0]));
    assert!(near(one, 1e-3 + 2.0 * bytes + 5e-3), "{one}");
    let two = seconds(&Placing::two(vec![1 << 40, 0], MIB, vec![1 << 30, 0]));
    assert!(near(two, 2.0 * (1e-3 + bytes + 5e-3)), "{two}");
}

#[test]
fn a_sync_waits_for_what_was_there_when_it_was_asked_for() {
    let mut figures = hybrid((1, 1000.0, 100.0), (1, 0.0, 1e6), None);
    let write = &mut figures.classes[0].write;
    (write.behind, write.gathers, write.sync_us) = (Bytes(1 << 30), Bytes(1 << 29), 5000.0);
    let write = &figures.classes[0].write;
    let mut target = Target::of(0);
    let piece = |object, number: u64| Local { object, offset: number * MIB, len: MIB };
    target.keep(0.0, write, piece(1, 0));
    target.keep(0.0, write, piece(2, 0));
    let since = target.synced(1);
    let Synced::Done(first) = target.sync(0.0, write, 2, target.synced(2)) else {
        panic!("it has nothing to do")
    };
    // Two wait for the other datafile; more of it comes when the first of them is served.
    assert!(matches!(target.sync(0.0, write, 1, since), Synced::Again(at) if at == first));
    let Synced::Done(second) = target.sync(first, write, 1, since) else { panic!("it is ready") };
    target.keep(first, write, piece(1, 1));
    assert!(matches!(target.sync(first, write, 1, since), Synced::Done(at) if at == second));
    // Who asks now waits for that, too.
    assert!(matches!(target.sync(first, write, 1, target.synced(1)), Synced::Again(at) if at == second));
}

#[test]
fn neighbors_out_of_order_take_their_own_line() {
    let mut figures = hybrid((1, 1000.0, 100.0), (1, 0.0, 1e6), None);
    figures.network = Network::new(0.0, 1e6);
    figures.classes[0].read.near = Some(crate::figures::Line { startup_us: 300.0, mb_s: 100.0 });
    let offsets = [1u64, 0, 3, 2].map(|n| (0, n * 64 * KIB, 64 * KIB));
    let outcome = run(&figures, &of(Direction::Read, &offsets), &[&Placing::whole(vec![1 << 30, 0])]);
    // The first lies anywhere (1 ms), the others near the one before.
    let bytes = 4.0 * 65_536.0 / 100e6;
    assert!(near(outcome.seconds, 1e-3 + 3.0 * 300e-6 + bytes), "{outcome:?}");
}

/// One disk of 100 MB/s that turns in 10 ms, with seeks of 1 ms, behind a network that takes no time.
fn turning(reads_on: u64, ahead: u64) -> Figures {
    let mut figures = hybrid((1, 1000.0, 100.0), (1, 0.0, 1e6), None);
    figures.network = Network { window: Bytes(1 << 30), ..Network::new(0.0, 1e6) };
    let read = &mut figures.classes[0].read;
    read.sequential = crate::figures::Line { startup_us: 0.0, mb_s: 100.0 };
    read.head = Some(crate::figures::Head {
        turn_us: 10_000.0,
        seeks: vec![crate::figures::Seek { distance: Bytes(1 << 20), us: 1000.0 }],
        reads_on: Bytes(reads_on),
        stretches: 1,
        way_us: 0.0,
        takes: 16,
        ahead: Bytes(ahead),
    });
    figures.check().unwrap();
    figures
}

/// Seconds of requests of 64 KiB, one after the other, at these multiples of that.
fn read_at(figures: &Figures, places: &[u64]) -> f64 {
    let requests: Vec<_> = places.iter().map(|place| (0, place * 64 * KIB, 64 * KIB)).collect();
    by_head(figures, &requests)
}

/// Seconds by the head, in whatever order requests are.
fn by_head(figures: &Figures, requests: &[(u32, u64, u64)]) -> f64 {
    let load = Load { jumps: true, ..load(requests) };
    run(figures, &load, &[&Placing::whole(vec![1 << 30, 0])]).seconds
}

/// What 64 KiB take to pass.
const PIECE_S: f64 = 65_536.0 / 100e6;

fn same(seconds: f64, expected: f64) {
    assert!((seconds - expected).abs() < 50e-6, "{seconds}, not {expected}");
}

#[test]
fn a_head_reads_on_and_what_it_passed_comes_by_in_a_turn() {
    let figures = turning(256 * KIB, 0);
    let seek = 1e-3;
    same(read_at(&figures, &[100, 101, 102]), seek + 3.0 * PIECE_S);
    // What is skipped passes all the same.
    same(read_at(&figures, &[100, 103]), seek + 4.0 * PIECE_S);
    // And is in memory then.
    same(read_at(&figures, &[100, 103, 101]), seek + 4.0 * PIECE_S);
    // What lies before comes by in a turn less the way back.
    same(read_at(&figures, &[100, 98]), seek + PIECE_S + 10e-3 - 3.0 * PIECE_S + PIECE_S);
    // What lies too near comes by a turn later: the head does not stand still before.
    same(read_at(&figures, &[100, 100 + 15 + 1]), seek + PIECE_S + 15.0 * PIECE_S + PIECE_S);
    same(read_at(&figures, &[100, 100 + 16]), read_at(&figures, &[100, 99 + 17]));
    // Memory keeps one stretch that the head has left, not two; nothing else holds what was read.
    let again = read_at(&figures, &[100, 1000, 100]) - read_at(&figures, &[100, 1000]);
    assert!(again < 50e-6, "{again}");
    let gone = read_at(&figures, &[100, 1000, 2000, 100]) - read_at(&figures, &[100, 1000, 2000]);
    assert!(gone > PIECE_S, "{gone}");
}

#[test]
fn of_those_who_wait_the_one_is_served_that_comes_by_first() {
    let figures = turning(0, 0);
    let served = |places: &[u64]| {
        // One asks; while the head is on its way, the others do.
        let requests: Vec<_> = places
            .iter()
            .enumerate()
            .map(|(rank, place)| (rank as u32, place * 64 * KIB, 64 * KIB))
            .collect();
        by_head(&figures, &requests)
    };
    // Two that lie behind each other pass on one way, in whatever order they were asked for.
    same(served(&[100, 104, 108]), served(&[100, 108, 104]));
    same(served(&[100, 108, 104]), 1e-3 + 9.0 * PIECE_S);
}

#[test]
fn a_device_answers_at_once_what_has_passed_whatever_its_head_is_at() {
    let figures = turning(256 * KIB, 0);
    let service = &figures.classes[0].read;
    let head_figures = service.head.as_ref().unwrap();
    let mut head = Head::default();
    let ask = |head: &mut Head, now: f64, rank: u32, place: u64| {
        let local = Local { object: 0, offset: place * 64 * KIB, len: 64 * KIB };
        assert!(head.waits(now, (rank, 0), local, false, service, head_figures));
        let mut done = Vec::new();
        head.answered(&mut done);
        done
    };
    assert_eq!(ask(&mut head, 0.0, 0, 100), []);
    let passed = head.next(0.0, service, head_figures).unwrap();
    head.passed();
    // Two more have passed when it leaves; on its way it is at nothing else.
    let leaves = passed + 2.5 * PIECE_S * 1e9;
    assert_eq!(ask(&mut head, leaves, 0, 1000), [(0, 0)]);
    assert!(head.next(leaves, service, head_figures).is_some() && head.is_busy());
    assert_eq!(ask(&mut head, leaves + 1.0, 1, 102), [(1, 0)]);
    assert_eq!(ask(&mut head, leaves + 1.0, 2, 103), []);
    // Of what it reads on behind a piece, as much as has passed.
    let passed = leaves + 100.0 * PIECE_S * 1e9;
    head.passed();
    assert_eq!(ask(&mut head, passed, 3, 1001), [(3, 0), (0, 0)]);
}

#[test]
fn the_way_of_a_request_holds_up_who_waits_for_it_and_not_the_head() {
    let seconds = |way_us: f64, ranks: u32| {
        let mut figures = turning(0, 0);
        figures.classes[0].read.head.as_mut().unwrap().way_us = way_us;
        let requests: Vec<_> = (0..16).map(|n| (n % ranks, u64::from(n) * 300 * KIB, 64 * KIB)).collect();
        by_head(&figures, &requests)
    };
    // All are there from the beginning, or each comes when the one before is answered, to a head that waits.
    same(seconds(500.0, 16) - seconds(0.0, 16), 500e-6);
    let one = seconds(20_000.0, 1) - seconds(0.0, 1);
    assert!(one > 15.0 * 20e-3, "{one}");
}

#[test]
fn datafiles_lie_beside_each_other() {
    let mut figures = turning(0, 0);
    let seek = |distance, us| crate::figures::Seek { distance: Bytes(distance), us };
    figures.classes[0].read.head.as_mut().unwrap().seeks = vec![seek(1 << 20, 1000.0), seek(1 << 30, 5000.0)];
    let piece = 64 * KIB;
    let placing = Placing::two(vec![100 * piece, 0], 100 * piece, vec![1 << 40, 0]);
    let behind = |place: u64| {
        let load = load(&[(0, 0, piece), (0, (100 + place) * piece, piece)]);
        run(&figures, &Load { jumps: true, ..load }, &[&placing]).seconds
    };
    // Five pieces behind where the head is: time enough for a short way, and none for one as long as a long datafile.
    let turns = 15_625;
    same(behind(6), 5e-3 + 7.0 * PIECE_S);
    same(behind(6 + turns), 5e-3 + 7.0 * PIECE_S + 10e-3);
}

#[test]
fn files_read_in_order_are_read_ahead() {
    // Each request of one rank lies a piece behind the other one's before: all is asked for in order.
    let own = 5_000.0;
    let seconds = |ahead| {
        let mut figures = turning(0, ahead);
        figures.call_us = own;
        read_at(&figures, &(0..64).collect::<Vec<_>>())
    };
    // Without it the head has to wait for the next turn when the rank comes back.
    let (without, with) = (seconds(0), seconds(128 * KIB));
    assert!(with < 0.85 * without, "{with} {without}");
}

#[test]
fn reads_that_jump_are_served_by_the_head_and_others_by_lines() {
    let figures = turning(256 * KIB, 0);
    let mut lines = figures.clone();
    lines.classes[0].read.head = None;
    let served = |requests: &[(u32, u64, u64)]| {
        let load = load(requests);
        let seconds = |figures| run(figures, &load, &[&Placing::whole(vec![1 << 30, 0])]).seconds;
        assert!(load.jumps || seconds(&figures) == seconds(&lines), "{requests:?}");
        load.jumps && seconds(&figures) != seconds(&lines)
    };
    let of = |requests: u64, place: &dyn Fn(u64) -> (u32, u64)| -> Vec<(u32, u64, u64)> {
        let one = |(rank, place)| (rank, place * 64 * KIB, 64 * KIB);
        (0..requests).map(place).map(one).collect()
    };
    // Streams in order; neighbors in turn, each of which passes over the others'; anywhere; one of each rank.
    assert!(!served(&of(64, &|n| ((n % 4) as u32, n % 4 * 1000 + n / 4))));
    assert!(served(&of(64, &|n| ((n % 4) as u32, n ^ 12))));
    assert!(served(&of(64, &|n| (0, n * 37 % 64 * 100))));
    assert!(!served(&of(4, &|n| (n as u32, n * 1000))));
    // Nor where others write meanwhile.
    let write = |n: u64| Request::new(1, 0, Direction::Write, n << 30, 64 * KIB, (n * 10, n * 10 + 5));
    let read =
        |n: u64| Request::new(0, 0, Direction::Read, (n * 37 % 64) << 20, 64 * KIB, (n * 10, n * 10 + 5));
    let mixed = |every: u64| -> Vec<Request> {
        (0..64).map(|n| if n % every == 0 { write(n) } else { read(n) }).collect()
    };
    assert!(!Load::from(&mixed(4), 64).jumps && Load::from(&mixed(16), 64).jumps);
}

#[test]
fn layouts_are_judged_by_several_courses() {
    let mut figures = turning(256 * KIB, 0);
    let placing = Placing::whole(vec![1 << 30, 0]);
    // In order chance alone makes courses.
    let requests: Vec<_> = (0..64u64).map(|n| ((n % 8) as u32, n * 7 % 64 * 64 * KIB, 64 * KIB)).collect();
    let in_order: Vec<_> = (0..64u64).map(|n| (0, n * 64 * KIB, 64 * KIB)).collect();
    let (turns, ordered) = (load(&requests), load(&in_order));
    assert!(turns.jumps && !ordered.jumps);
    let once = |figures: &Figures, load: &Load| run(figures, load, &[&placing]);
    assert_eq!(judged(&figures, &ordered, &placing), once(&figures, &ordered));
    // Heads that turn a little slower and quicker do.
    let (several, one) = (judged(&figures, &turns, &placing), once(&figures, &turns));
    assert!(several.seconds != one.seconds, "{several:?} {one:?}");
    assert_eq!(Outcome { seconds: one.seconds, ..several }, one);
    figures.call_us = 5_000.0;
    assert!(judged(&figures, &ordered, &placing).seconds != once(&figures, &ordered).seconds);
}

#[test]
fn what_is_quick_in_step_with_the_medium_alone_is_not_relied_upon() {
    let figures = turning(0, 0);
    let placing = Placing::whole(vec![1 << 40, 0]);
    let ratio = |place: &dyn Fn(u64) -> u64| {
        let requests: Vec<_> = (0..256).map(|n| (0, place(n) * 64 * KIB, 64 * KIB)).collect();
        let load = load(&requests);
        judged(&figures, &load, &placing).seconds / run(&figures, &load, &[&placing]).seconds
    };
    // 155 pieces of 64 KiB pass in ten turns and 1.6 ms, and the seek takes 1 ms: each next piece comes by at once, but the
    // turn is missed if it takes 1 % longer.
    let in_step = ratio(&|n| n * 156);
    assert!(in_step > 2.0, "{in_step}");
    let anywhere = ratio(&|n| n * 167 % 256 * 100 + n % 7);
    assert!((0.9..1.1).contains(&anywhere), "{anywhere}");
}

/// A disk of 100 MB/s without startup that begins to write when 2 MiB have been gathered, and what reads wait for.
fn gathering(waits: Option<crate::figures::Waits>) -> Figures {
    let mut figures = hybrid((1, 0.0, 100.0), (1, 0.0, 1e6), None);
    figures.network = Network::new(0.0, 1e6);
    let class = &mut figures.classes[0];
    (class.write.behind, class.write.gathers) = (Bytes(1 << 30), Bytes(2 << 20));
    class.read.waits = waits;
    figures
}

/// What 1 MiB takes there, nanoseconds.
const MIB_NS: f64 = MIB as f64 * 10.0;

/// A target of this class that was given 8 MiB at the beginning, and a ninth that waits.
fn written(figures: &Figures) -> Target {
    let mut target = Target::of(0);
    let class = &figures.classes[0];
    let local = |from: u64, mib: u64| Local { object: 1, offset: from * MIB, len: mib * MIB };
    assert_eq!(target.keep(0.0, &class.write, local(0, 8)), 0.0);
    assert_eq!(target.keep(0.0, &class.write, local(8, 1)), 0.0);
    target
}

/// When a read of one MiB that is asked for `at`, in what 1 MiB takes, is done.
fn read_in(target: &mut Target, figures: &Figures, at: f64, place: u64, side_by_side: bool) -> f64 {
    let local = Local { object: 1, offset: place * MIB, len: MIB };
    target.read(at * MIB_NS, &figures.classes[0], local, side_by_side) / MIB_NS
}

#[test]
fn reads_of_what_is_not_on_the_device_yet_are_answered_from_memory() {
    let figures = gathering(None);
    let mut target = written(&figures);
    // Half of the eight are written: the fifth is on its way, the ninth waits.
    for place in [5, 7, 8] {
        assert_eq!(read_in(&mut target, &figures, 4.5, place, false), 4.5, "{place}");
    }
    assert!((read_in(&mut target, &figures, 4.5, 4, false) - 5.0).abs() < 1e-6);
    assert!((read_in(&mut target, &figures, 5.0, 1, false) - 6.0).abs() < 1e-6);
    // Of what was never written memory has nothing.
    assert!(read_in(&mut target, &figures, 9.0, 20, false) > 9.9);
    // All is on the device in the end, and the reads were in between.
    let end = target.written(30.0 * MIB_NS, &figures.classes[0].write) / MIB_NS;
    assert!((30.0..31.1).contains(&end), "{end}");
    // A rank that reads what it wrote just now has the device do nothing but write.
    let request = |number: u64, direction| {
        Request::new(0, 0, direction, number % 4 * 64 * KIB, 64 * KIB, (number * 10, number * 10 + 5))
    };
    let requests: Vec<_> =
        (0..8).map(|n| request(n, if n < 4 { Direction::Write } else { Direction::Read })).collect();
    let seconds = run(&figures, &Load::from(&requests, 8), &[&Placing::whole(vec![MIB, 0])]).seconds;
    assert!((seconds - 0.25 * MIB_NS / 1e9).abs() < 1e-5, "{seconds}");
}

#[test]
fn reads_wait_for_writes_as_long_as_was_measured() {
    let of = |most: f64, beside: f64| {
        let us = MIB_NS / 1e3;
        gathering(Some(crate::figures::Waits { most_us: most * us, beside_us: beside * us }))
    };
    let done =
        |figures: &Figures, side_by_side| read_in(&mut written(figures), figures, 2.0, 0, side_by_side);
    // Six are left to write and the ninth stays; then the read takes its time.
    assert!((done(&of(100.0, 0.0), false) - 9.0).abs() < 1e-6);
    assert!((done(&of(3.0, 0.0), false) - 6.0).abs() < 1e-6);
    assert!((done(&of(100.0, 2.0), false) - 7.0).abs() < 1e-6);
    assert!((done(&of(0.0, 0.0), false) - 3.0).abs() < 1e-6);
    // The device writes the rest later, unless it reads and writes side by side.
    let end = |figures: &Figures, side_by_side| {
        let mut target = written(figures);
        read_in(&mut target, figures, 2.0, 0, side_by_side);
        target.written(0.0, &figures.classes[0].write) / MIB_NS
    };
    assert!((end(&of(3.0, 0.0), false) - 10.0).abs() < 1e-6);
    assert!((end(&of(3.0, 0.0), true) - 9.0).abs() < 1e-6);
}

#[test]
fn what_a_device_has_taken_into_its_own_memory_is_read_from_it() {
    let mut figures = gathering(None);
    figures.classes[0].write.cache = Some(crate::figures::Cache { size: Bytes(3 << 20), mb_s: 200.0 });
    let mut target = written(&figures);
    // It takes two where it writes one, and no more than three beyond.
    for (at, there) in [(1.5, 3), (2.5, 5), (4.0, 7)] {
        let mut target = target.clone();
        assert_eq!(read_in(&mut target, &figures, at, there, false), at, "{at}");
        assert!(read_in(&mut target, &figures, at, there - 1, false) > at + 0.9, "{at}");
    }
    assert_eq!(read_in(&mut target, &figures, 4.5, 8, false), 4.5);
    // What memory gathers it leaves there.
    assert_eq!(read_in(&mut target, &figures, 7.5, 8, false), 7.5);
}

#[test]
fn all_wait_although_who_wrote_last_is_the_first_to_read() {
    let request =
        |rank, direction, place: u64, times| Request::new(rank, 0, direction, place * MIB, MIB, times);
    let mut requests: Vec<_> =
        (0..3).map(|rank| request(rank, Direction::Write, rank.into(), (1, 10))).collect();
    // The first one here wrote itself what it reads; when the second begins the first is under way.
    requests.push(request(2, Direction::Read, 2, (20, 40)));
    requests.push(request(0, Direction::Read, 0, (21, 40)));
    requests.push(request(1, Direction::Read, 1, (22, 40)));
    let epochs = |requests: &[Request]| Load::from(requests, 6).epochs;
    assert_eq!(epochs(&requests), [3, 3]);
    // What they write then waits for nothing but the next quiet.
    requests.push(request(0, Direction::Write, 1, (23, 50)));
    assert_eq!(epochs(&requests), [3, 4]);
    requests.push(request(1, Direction::Read, 0, (50, 60)));
    assert_eq!(epochs(&requests), [3, 4, 1]);
    // Where something is always under way nobody waits.
    let busy: Vec<_> = (0..6)
        .map(|n| {
            request(
                n % 3,
                if n < 3 { Direction::Write } else { Direction::Read },
                u64::from(n % 3),
                (u64::from(n) * 10, u64::from(n) * 10 + 15),
            )
        })
        .collect();
    assert_eq!(epochs(&busy), [6]);
}
