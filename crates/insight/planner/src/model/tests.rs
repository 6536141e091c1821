//! Runs whose times can be calculated by hand.

use super::head::Head;
use super::target::{DatafileRange, Target};
use super::write_back::SyncProgress;
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
    let outcome = run(&figures, &load, &[&ClassPlacement::whole(vec![64 * KIB, 0])]);
    // One message, 1 ms and 64 KiB at 100 MB/s on both disks. The links work in parallel up to the node's link, which
    // carries both halves.
    let took = 65_536.0 / 117.7e6;
    let seconds = 34e-6 + 1e-3 + 65_536.0 / 100e6 + took + 34e-6;
    assert!((outcome.seconds - seconds).abs() < 2.0 * took, "{} {seconds}", outcome.seconds);
    assert_eq!(outcome.targets_per_request, 2.0);
    assert_eq!(outcome.target_busy_s[1], 0.0);
    assert!((outcome.node_link_busy_s - 2.0 * took).abs() < 1e-9);
}

#[test]
fn busy_targets_bound_the_time_and_ranks_overlap() {
    let figures = hybrid((4, 10_000.0, 100.0), (1, 1.0, 1e6), None);
    let random = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (1 << 14);
    let requests: Vec<_> =
        (0..800u64).map(|n| ((n % 16) as u32, random(n) * 64 * KIB * 64, 64 * KIB)).collect();
    let placement = ClassPlacement::whole(vec![64 * KIB * 64, 0]);
    let outcome = run(&figures, &load(&requests), &[&placement]);
    // 200 requests per disk if the load is even: 10 ms and 0.66 ms each.
    let even = 200.0 * (10e-3 + 65_536.0 / 100e6);
    assert!((even * 0.99..even * 1.6).contains(&outcome.seconds), "{} {even}", outcome.seconds);
    assert!(outcome.target_busy_s[0] <= outcome.seconds);
    // A single rank keeps one disk busy at a time.
    let alone: Vec<_> = requests.iter().map(|&(_, offset, len)| (0, offset, len)).collect();
    let alone = run(&figures, &load(&alone), &[&placement]);
    assert!(alone.seconds > 3.9 * even, "{} {even}", alone.seconds);
}

#[test]
fn parallel_devices_are_not_slower_for_a_burst() {
    let mut figures = hybrid((1, 1.0, 1e6), (1, 100.0, 1e6), None);
    let depth = |depth, startup_us| Depth { depth, startup_us, mb_s: 1e6 };
    figures.classes[1].read.random = vec![depth(1, 100.0), depth(4, 25.0), depth(16, 10.0)];
    figures.network = Network::new(0.0, 1e6);
    let requests: Vec<_> = (0..16u32).map(|rank| (rank, u64::from(rank) << 30, 4096)).collect();
    let outcome = run(&figures, &load(&requests), &[&ClassPlacement::whole(vec![0, 1 << 20])]);
    assert!((outcome.seconds - 160e-6).abs() < 1e-6, "{}", outcome.seconds);
}

#[test]
fn a_disk_that_reorders_well_still_has_one_head() {
    let plain = disk_with_head(256 * KIB, 0);
    let mut reorders = plain.clone();
    let depth = |depth, startup_us| Depth { depth, startup_us, mb_s: 100.0 };
    reorders.classes[0].read.random = vec![depth(1, 5000.0), depth(4, 2400.0), depth(32, 1100.0)];
    let requests: Vec<_> =
        (0..64u64).map(|n| ((n % 4) as u32, n * 37 % 64 * 100 * 64 * KIB, 64 * KIB)).collect();
    let seconds =
        |figures| run(figures, &load(&requests), &[&ClassPlacement::whole(vec![1 << 30, 0])]).seconds;
    assert!(load(&requests).reads_by_head);
    assert_eq!(seconds(&reorders), seconds(&plain));
}

#[test]
fn buffered_writes_are_flushed_before_the_run_ends() {
    let mut figures = hybrid((1, 1000.0, 100.0), (1, 1.0, 1e6), None);
    figures.classes[0].write.write_buffer = Bytes(1 << 30);
    let request = |n: u64| Request::new(0, 0, Direction::Write, (n * 7 % 50) << 30, 4096, (n, n + 1));
    let requests: Vec<Request> = (0..50).map(request).collect();
    let outcome = run(&figures, &Load::from(&requests, 500), &[&ClassPlacement::whole(vec![1 << 40, 0])]);
    let each = 1e-3 + 4096.0 / 100e6;
    // The trace has ten times as many requests as the sample.
    assert!((outcome.seconds - 500.0 * each).abs() < 0.02 * 500.0 * each, "{}", outcome.seconds);
}

#[test]
fn ranks_synchronize_between_writing_and_reading() {
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
    let outcome = run(&figures, &load, &[&ClassPlacement::whole(vec![4096, 0])]);
    assert!(outcome.seconds > 2e-3);
}

/// Disks that take no time, and a network of 100 MB/s without latency.
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
/// Seconds that a MiB takes on a link of 100 MB/s.
const MIB_S: f64 = 1.048_576e6 / 100e6;

fn near(seconds: f64, expected: f64) -> bool {
    (seconds / expected - 1.0).abs() < 0.01
}

#[test]
fn ranks_that_begin_with_the_same_target_collide() {
    // Two ranks on different nodes each move 4 MiB, half to each of two targets. A connection holds a quarter MiB. Both
    // ranks use the first target first, so its link carries 4 MiB while the other link is idle. Then the other link
    // carries all but the last pieces.
    let figures = network_only(2, MIB / 4);
    for direction in [Direction::Write, Direction::Read] {
        let load = of(direction, &[(0, 0, 4 * MIB), (1, 4 * MIB, 4 * MIB)]);
        let spread = run(&figures, &load, &[&ClassPlacement::whole(vec![2 * MIB, 0])]).seconds;
        // With one target per rank both links carry 4 MiB at the same time.
        let apart = run(&figures, &load, &[&ClassPlacement::whole(vec![4 * MIB, 0])]).seconds;
        assert!(near(apart, 4.0 * MIB_S), "{direction:?}: {apart}");
        assert!((7.0 * MIB_S..8.1 * MIB_S).contains(&spread), "{direction:?}: {spread} of {MIB_S}");
    }
    // Connections that hold a whole request keep both links busy at once.
    let figures = network_only(2, 4 * MIB);
    let load = of(Direction::Write, &[(0, 0, 4 * MIB), (1, 4 * MIB, 4 * MIB)]);
    let outcome = run(&figures, &load, &[&ClassPlacement::whole(vec![2 * MIB, 0])]);
    assert!(near(outcome.seconds, 4.0 * MIB_S), "{outcome:?}");
}

#[test]
fn a_round_begins_when_all_replies_of_the_previous_one_arrived() {
    // 12 MiB to two targets, 8 MiB of it to the first: one message of 4 MiB to each, then another one to the first.
    let figures = network_only(2, 16 * MIB);
    let load = of(Direction::Read, &[(0, 0, 12 * MIB)]);
    let outcome = run(&figures, &load, &[&ClassPlacement::whole(vec![8 * MIB, 0])]);
    // The node's link carries everything, and the second round begins when the first has ended.
    assert!(near(outcome.seconds, 12.0 * MIB_S), "{outcome:?}");
    assert_eq!(outcome.targets_per_request, 2.0);
}

#[test]
fn the_page_cache_answers_reads_of_recent_data() {
    let mut figures = hybrid((1, 1000.0, 100.0), (1, 0.0, 1e6), None);
    figures.network = Network::new(0.0, 1e6);
    let at = |direction, offset, number: u64| {
        Request::new(0, 0, direction, offset * MIB, MIB, (number * 10, number * 10 + 5))
    };
    // 8 MiB are written, then read. The reuse distance of every MiB is 8 MiB.
    let requests: Vec<Request> = (0..8)
        .map(|n| at(Direction::Write, n, n))
        .chain((0..8).map(|n| at(Direction::Read, n, n + 8)))
        .collect();
    let load = Load::from(&requests, 16);
    let placement = ClassPlacement::whole(vec![MIB, 0]);
    let each = 1e-3 / 10.0 + MIB as f64 / 100e6;
    for (memory, reads) in [(16 * MIB, 0.0), (4 * MIB, 8.0)] {
        figures.classes[0].memory = Bytes(memory);
        let seconds = run(&figures, &load, &[&placement]).seconds;
        // Each request jumps, so it takes the whole startup time.
        assert!((seconds - (8.0 + reads) * each).abs() < 2e-3, "{memory}: {seconds}, {each} each");
    }
}

#[test]
fn write_back_merges_adjacent_writes() {
    let mut figures = hybrid((1, 1000.0, 100.0), (1, 0.0, 1e6), None);
    figures.network = Network::new(0.0, 1e6);
    let write = &mut figures.classes[0].write;
    (write.write_buffer, write.write_back_threshold) = (Bytes(1 << 30), Bytes(1 << 20));
    let placement = ClassPlacement::whole(vec![1 << 40, 0]);
    // 256 adjacent pieces of 4 KiB, written in shuffled order, become one request of 1 MiB.
    let pieces =
        |distance: u64| (0..256u64).map(move |n| (0, n * 101 % 256 * distance, 4 * KIB)).collect::<Vec<_>>();
    let dense = run(&figures, &of(Direction::Write, &pieces(4 * KIB)), &[&placement]).seconds;
    assert!(near(dense, 1e-3 + MIB as f64 / 100e6), "{dense}");
    // Distant pieces stay separate requests.
    let sparse = run(&figures, &of(Direction::Write, &pieces(4 * MIB)), &[&placement]).seconds;
    assert!(near(sparse, 256.0 * (1e-3 + 4096.0 / 100e6)), "{sparse}");
}

#[test]
fn a_sync_starts_write_back_below_the_threshold() {
    let mut figures = hybrid((1, 1000.0, 100.0), (1, 0.0, 1e6), None);
    figures.network = Network::new(0.0, 1e6);
    let write = &mut figures.classes[0].write;
    (write.write_buffer, write.write_back_threshold, write.sync_us) =
        (Bytes(1 << 30), Bytes(1 << 29), 5000.0);
    write.scattered = vec![Depth { depth: 1, startup_us: 9000.0, mb_s: 100.0 }];
    let mut requests: Vec<Request> =
        (0..2).map(|n| Request::new(0, 0, Direction::Write, n << 30, MIB, (n * 10, n * 10 + 5))).collect();
    requests.insert(1, Request::new(0, 0, Direction::Write, 0, 0, (6, 9)));
    let load = Load::from(&requests, 2);
    assert_eq!(load.requests(), 2);
    let outcome = run(&figures, &load, &[&ClassPlacement::whole(vec![1 << 40, 0])]);
    // Each write reaches the device alone. The first one also takes the time of its sync.
    let each = 9e-3 + MIB as f64 / 100e6;
    assert!(near(outcome.seconds, 2.0 * each + 5e-3), "{outcome:?}");
}

#[test]
fn writes_during_write_back_are_sorted_in() {
    let mut figures = hybrid((1, 1000.0, 100.0), (1, 0.0, 1e6), None);
    figures.network = Network::new(0.0, 1e6);
    let write = &mut figures.classes[0].write;
    (write.write_buffer, write.write_back_threshold) = (Bytes(1 << 40), Bytes(128 << 20));
    // A shuffled range. Write-back begins when two thirds of it are dirty.
    let pieces: Vec<_> = (0..3072u64).map(|n| (0, n * 1021 % 3072 * 64 * KIB, 64 * KIB)).collect();
    let seconds =
        run(&figures, &of(Direction::Write, &pieces), &[&ClassPlacement::whole(vec![1 << 40, 0])]).seconds;
    // Little of the last third needs a second pass. Submitted all at once it would be 1,024 requests of a millisecond.
    let once = 192.0 * MIB as f64 / 100e6;
    assert!((once..once + 0.3).contains(&seconds), "{seconds} {once}");
}

#[test]
fn each_datafile_is_synced() {
    let mut figures = hybrid((1, 1000.0, 100.0), (1, 0.0, 1e6), None);
    figures.network = Network::new(0.0, 1e6);
    let write = &mut figures.classes[0].write;
    (write.write_buffer, write.write_back_threshold, write.sync_us) =
        (Bytes(1 << 30), Bytes(1 << 29), 5000.0);
    let mut requests: Vec<Request> =
        (0..2).map(|n| Request::new(0, 0, Direction::Write, n * MIB, MIB, (n * 10, n * 10 + 5))).collect();
    requests.push(Request::new(0, 0, Direction::Write, 0, 0, (16, 19)));
    let seconds = |placement: &ClassPlacement| run(&figures, &Load::from(&requests, 2), &[placement]).seconds;
    let bytes = MIB as f64 / 100e6;
    let one = seconds(&ClassPlacement::whole(vec![1 << 40, 0]));
    assert!(near(one, 1e-3 + 2.0 * bytes + 5e-3), "{one}");
    let two = seconds(&ClassPlacement::two(vec![1 << 40, 0], MIB, vec![1 << 30, 0]));
    assert!(near(two, 2.0 * (1e-3 + bytes + 5e-3)), "{two}");
}

#[test]
fn a_sync_waits_only_for_data_written_before_it() {
    let mut figures = hybrid((1, 1000.0, 100.0), (1, 0.0, 1e6), None);
    let write = &mut figures.classes[0].write;
    (write.write_buffer, write.write_back_threshold, write.sync_us) =
        (Bytes(1 << 30), Bytes(1 << 29), 5000.0);
    let write = &figures.classes[0].write;
    let mut target = Target::of(0);
    let piece = |object, number: u64| DatafileRange { object, offset: number * MIB, len: MIB };
    target.buffer_write(0.0, write, piece(1, 0));
    target.buffer_write(0.0, write, piece(2, 0));
    let since = target.synced(1);
    let SyncProgress::Complete(first) = target.sync(0.0, write, 2, target.synced(2)) else {
        panic!("the device is idle")
    };
    // Two syncs wait for the other datafile. More data is written after the first of them has been served.
    assert!(matches!(target.sync(0.0, write, 1, since), SyncProgress::RetryAt(at) if at == first));
    let SyncProgress::Complete(second) = target.sync(first, write, 1, since) else {
        panic!("the device is idle")
    };
    target.buffer_write(first, write, piece(1, 1));
    assert!(matches!(target.sync(first, write, 1, since), SyncProgress::Complete(at) if at == second));
    // A sync requested now waits for the new data, too.
    assert!(
        matches!(target.sync(first, write, 1, target.synced(1)), SyncProgress::RetryAt(at) if at == second)
    );
}

#[test]
fn neighbors_out_of_order_take_their_own_line() {
    let mut figures = hybrid((1, 1000.0, 100.0), (1, 0.0, 1e6), None);
    figures.network = Network::new(0.0, 1e6);
    figures.classes[0].read.near = Some(crate::figures::Line { startup_us: 300.0, mb_s: 100.0 });
    let offsets = [1u64, 0, 3, 2].map(|n| (0, n * 64 * KIB, 64 * KIB));
    let outcome = run(&figures, &of(Direction::Read, &offsets), &[&ClassPlacement::whole(vec![1 << 30, 0])]);
    // The first request jumps (1 ms). The others are near their predecessors.
    let bytes = 4.0 * 65_536.0 / 100e6;
    assert!(near(outcome.seconds, 1e-3 + 3.0 * 300e-6 + bytes), "{outcome:?}");
}

/// A disk of 100 MB/s with a rotation of 10 ms and seeks of 1 ms, behind a network that takes no time.
fn disk_with_head(reads_on: u64, ahead: u64) -> Figures {
    let mut figures = hybrid((1, 1000.0, 100.0), (1, 0.0, 1e6), None);
    figures.network = Network { window: Bytes(1 << 30), ..Network::new(0.0, 1e6) };
    let read = &mut figures.classes[0].read;
    read.sequential = crate::figures::Line { startup_us: 0.0, mb_s: 100.0 };
    read.head = Some(crate::figures::Head {
        rotation_us: 10_000.0,
        seeks: vec![crate::figures::Seek { distance: Bytes(1 << 20), us: 1000.0 }],
        look_ahead: Bytes(reads_on),
        cache_segments: 1,
        overhead_us: 0.0,
        queue_depth: 16,
        read_ahead: Bytes(ahead),
    });
    figures.check().unwrap();
    figures
}

/// Seconds of successive 64 KiB reads at these multiples of 64 KiB.
fn read_at(figures: &Figures, places: &[u64]) -> f64 {
    let requests: Vec<_> = places.iter().map(|place| (0, place * 64 * KIB, 64 * KIB)).collect();
    by_head(figures, &requests)
}

/// Seconds under the head model, even for sequential requests.
fn by_head(figures: &Figures, requests: &[(u32, u64, u64)]) -> f64 {
    let load = Load { reads_by_head: true, ..load(requests) };
    run(figures, &load, &[&ClassPlacement::whole(vec![1 << 30, 0])]).seconds
}

/// Seconds in which 64 KiB pass under the head.
const PIECE_S: f64 = 65_536.0 / 100e6;

fn assert_seconds(seconds: f64, expected: f64) {
    assert!((seconds - expected).abs() < 50e-6, "{seconds}, not {expected}");
}

#[test]
fn look_ahead_is_cached_and_earlier_bytes_take_a_rotation() {
    let figures = disk_with_head(256 * KIB, 0);
    let seek = 1e-3;
    assert_seconds(read_at(&figures, &[100, 101, 102]), seek + 3.0 * PIECE_S);
    // A skipped range passes under the head as well.
    assert_seconds(read_at(&figures, &[100, 103]), seek + 4.0 * PIECE_S);
    // The look-ahead has put it into the cache.
    assert_seconds(read_at(&figures, &[100, 103, 101]), seek + 4.0 * PIECE_S);
    // Earlier bytes return after a rotation minus the distance back.
    assert_seconds(read_at(&figures, &[100, 98]), seek + PIECE_S + 10e-3 - 3.0 * PIECE_S + PIECE_S);
    // If the head cannot settle in time, the bytes pass one rotation later.
    assert_seconds(read_at(&figures, &[100, 100 + 15 + 1]), seek + PIECE_S + 15.0 * PIECE_S + PIECE_S);
    assert_seconds(read_at(&figures, &[100, 100 + 16]), read_at(&figures, &[100, 99 + 17]));
    // The cache keeps one segment of an earlier look-ahead, not two. Nothing else holds data that was read.
    let again = read_at(&figures, &[100, 1000, 100]) - read_at(&figures, &[100, 1000]);
    assert!(again < 50e-6, "{again}");
    let gone = read_at(&figures, &[100, 1000, 2000, 100]) - read_at(&figures, &[100, 1000, 2000]);
    assert!(gone > PIECE_S, "{gone}");
}

#[test]
fn the_request_that_the_head_reaches_first_is_served() {
    let figures = disk_with_head(0, 0);
    let served = |places: &[u64]| {
        // The others arrive while the head seeks to the first one.
        let requests: Vec<_> = places
            .iter()
            .enumerate()
            .map(|(rank, place)| (rank as u32, place * 64 * KIB, 64 * KIB))
            .collect();
        by_head(&figures, &requests)
    };
    // Two later requests pass in one sweep, in whichever order they arrived.
    assert_seconds(served(&[100, 104, 108]), served(&[100, 108, 104]));
    assert_seconds(served(&[100, 108, 104]), 1e-3 + 9.0 * PIECE_S);
}

#[test]
fn a_busy_drive_answers_cached_reads_at_once() {
    let figures = disk_with_head(256 * KIB, 0);
    let service = &figures.classes[0].read;
    let head_figures = service.head.as_ref().unwrap();
    let mut head = Head::default();
    let ask = |head: &mut Head, now: f64, rank: u32, place: u64| {
        let local = DatafileRange { object: 0, offset: place * 64 * KIB, len: 64 * KIB };
        assert!(head.add_rank_read(now, (rank, 0), local, false, service, head_figures));
        let mut done = Vec::new();
        head.take_completed(&mut done);
        done
    };
    assert_eq!(ask(&mut head, 0.0, 0, 100), []);
    let passed = head.start_next(0.0, service, head_figures).unwrap();
    head.finish_current();
    // Two more pieces have passed when the head leaves. During a seek it reads nothing else.
    let leaves = passed + 2.5 * PIECE_S * 1e9;
    assert_eq!(ask(&mut head, leaves, 0, 1000), [(0, 0)]);
    assert!(head.start_next(leaves, service, head_figures).is_some() && head.is_busy());
    assert_eq!(ask(&mut head, leaves + 1.0, 1, 102), [(1, 0)]);
    assert_eq!(ask(&mut head, leaves + 1.0, 2, 103), []);
    // Look-ahead data counts as far as it has passed.
    let passed = leaves + 100.0 * PIECE_S * 1e9;
    head.finish_current();
    assert_eq!(ask(&mut head, passed, 3, 1001), [(3, 0), (0, 0)]);
}

#[test]
fn command_overhead_delays_the_request_but_not_the_head() {
    let seconds = |overhead_us: f64, ranks: u32| {
        let mut figures = disk_with_head(0, 0);
        figures.classes[0].read.head.as_mut().unwrap().overhead_us = overhead_us;
        let requests: Vec<_> = (0..16).map(|n| (n % ranks, u64::from(n) * 300 * KIB, 64 * KIB)).collect();
        by_head(&figures, &requests)
    };
    // Either all requests are queued from the beginning, or each arrives at an idle head after the previous reply.
    assert_seconds(seconds(500.0, 16) - seconds(0.0, 16), 500e-6);
    let one = seconds(20_000.0, 1) - seconds(0.0, 1);
    assert!(one > 15.0 * 20e-3, "{one}");
}

#[test]
fn datafiles_lie_next_to_each_other() {
    let mut figures = disk_with_head(0, 0);
    let seek = |distance, us| crate::figures::Seek { distance: Bytes(distance), us };
    figures.classes[0].read.head.as_mut().unwrap().seeks = vec![seek(1 << 20, 1000.0), seek(1 << 30, 5000.0)];
    let piece = 64 * KIB;
    let placement = ClassPlacement::two(vec![100 * piece, 0], 100 * piece, vec![1 << 40, 0]);
    let seconds_after = |place: u64| {
        let load = load(&[(0, 0, piece), (0, (100 + place) * piece, piece)]);
        run(&figures, &Load { reads_by_head: true, ..load }, &[&placement]).seconds
    };
    // Five pieces after the head's position: time enough for a short seek, but not for one as long as a long datafile.
    let turns = 15_625;
    assert_seconds(seconds_after(6), 5e-3 + 7.0 * PIECE_S);
    assert_seconds(seconds_after(6 + turns), 5e-3 + 7.0 * PIECE_S + 10e-3);
}

#[test]
fn sequential_readers_get_read_ahead() {
    // The rank computes between reads, so that the next piece has passed the head by then.
    let own = 5_000.0;
    let seconds = |ahead| {
        let mut figures = disk_with_head(0, ahead);
        figures.call_us = own;
        read_at(&figures, &(0..64).collect::<Vec<_>>())
    };
    // Without read-ahead the head waits for the next rotation.
    let (without, with) = (seconds(0), seconds(128 * KIB));
    assert!(with < 0.85 * without, "{with} {without}");
}

#[test]
fn reads_that_jump_are_served_by_the_head_and_others_by_lines() {
    let figures = disk_with_head(256 * KIB, 0);
    let mut lines = figures.clone();
    lines.classes[0].read.head = None;
    let served = |requests: &[(u32, u64, u64)]| {
        let load = load(requests);
        let seconds = |figures| run(figures, &load, &[&ClassPlacement::whole(vec![1 << 30, 0])]).seconds;
        assert!(load.reads_by_head || seconds(&figures) == seconds(&lines), "{requests:?}");
        load.reads_by_head && seconds(&figures) != seconds(&lines)
    };
    let of = |requests: u64, place: &dyn Fn(u64) -> (u32, u64)| -> Vec<(u32, u64, u64)> {
        let one = |(rank, place)| (rank, place * 64 * KIB, 64 * KIB);
        (0..requests).map(place).map(one).collect()
    };
    // Sequential streams; interleaved neighbors out of order; random requests; one request per rank.
    assert!(!served(&of(64, &|n| ((n % 4) as u32, n % 4 * 1000 + n / 4))));
    assert!(served(&of(64, &|n| ((n % 4) as u32, n ^ 12))));
    assert!(served(&of(64, &|n| (0, n * 37 % 64 * 100))));
    assert!(!served(&of(4, &|n| (n as u32, n * 1000))));
    // Writes of another rank exclude the head model as well.
    let write = |n: u64| Request::new(1, 0, Direction::Write, n << 30, 64 * KIB, (n * 10, n * 10 + 5));
    let read =
        |n: u64| Request::new(0, 0, Direction::Read, (n * 37 % 64) << 20, 64 * KIB, (n * 10, n * 10 + 5));
    let mixed = |every: u64| -> Vec<Request> {
        (0..64).map(|n| if n % every == 0 { write(n) } else { read(n) }).collect()
    };
    assert!(!Load::from(&mixed(4), 64).reads_by_head && Load::from(&mixed(16), 64).reads_by_head);
}

#[test]
fn reads_in_order_are_served_by_the_head_where_it_is_asked_for() {
    let figures = disk_with_head(256 * KIB, 0);
    let mut lines = figures.clone();
    lines.classes[0].read.head = None;
    let streams: Vec<_> =
        (0..256u64).map(|n| ((n % 4) as u32, (n % 4 * 1000 + n / 4) * 64 * KIB, 64 * KIB)).collect();
    let load = load(&streams).with_reads_by_head();
    let seconds = |figures| run(figures, &load, &[&ClassPlacement::whole(vec![1 << 30, 0])]).seconds;
    assert!(load.reads_by_head && seconds(&figures) != seconds(&lines));
    assert!(load.subsample_long(16).reads_by_head);
    let write = |n: u64| Request::new(0, 0, Direction::Write, n << 20, 64 * KIB, (n * 10, n * 10 + 5));
    let writes: Vec<Request> = (0..16).map(write).collect();
    assert!(!Load::from(&writes, 16).with_reads_by_head().reads_by_head);
}

#[test]
fn long_windows_interrupt_streams_seldom() {
    let requests: Vec<_> =
        (0..8192u64).map(|n| ((n % 2) as u32, (n % 2 * 10_000 + n / 2) * 4 * KIB, 4 * KIB)).collect();
    let load = load(&requests);
    let jumps = |load: &Load| {
        let offset = |index: &u32| load.requests[*index as usize].request.offset;
        let of = |rank: &Vec<u32>| {
            rank.windows(2).filter(|two| offset(&two[1]) != offset(&two[0]) + 4 * KIB).count()
        };
        load.ranks.iter().map(of).sum::<usize>()
    };
    let (short, long) = (load.subsample(1024), load.subsample_long(1024));
    assert_eq!((short.requests(), long.requests()), (1024, 1024));
    assert_eq!((jumps(&short), jumps(&long)), (62, 6));
    let by_head = load.with_reads_by_head().subsample_long(1024);
    assert_eq!((by_head.requests(), jumps(&by_head)), (1024, 0));
}

#[test]
fn averaging_varies_think_times_and_rotation() {
    let mut figures = disk_with_head(256 * KIB, 0);
    let placement = ClassPlacement::whole(vec![1 << 30, 0]);
    // For sequential reads only random think times make runs differ.
    let requests: Vec<_> = (0..64u64).map(|n| ((n % 8) as u32, n * 7 % 64 * 64 * KIB, 64 * KIB)).collect();
    let in_order: Vec<_> = (0..64u64).map(|n| (0, n * 64 * KIB, 64 * KIB)).collect();
    let (turns, ordered) = (load(&requests), load(&in_order));
    assert!(turns.reads_by_head && !ordered.reads_by_head);
    let once = |figures: &Figures, load: &Load| run(figures, load, &[&placement]);
    assert_eq!(run_averaged(&figures, &ordered, &placement), once(&figures, &ordered));
    // With a head, slightly slower and faster rotations do.
    let (several, one) = (run_averaged(&figures, &turns, &placement), once(&figures, &turns));
    assert!(several.seconds != one.seconds, "{several:?} {one:?}");
    assert_eq!(Outcome { seconds: one.seconds, ..several }, one);
    figures.call_us = 5_000.0;
    assert!(run_averaged(&figures, &ordered, &placement).seconds != once(&figures, &ordered).seconds);
}

#[test]
fn resonance_with_the_rotation_does_not_win() {
    let figures = disk_with_head(0, 0);
    let placement = ClassPlacement::whole(vec![1 << 40, 0]);
    let ratio = |place: &dyn Fn(u64) -> u64| {
        let requests: Vec<_> = (0..256).map(|n| (0, place(n) * 64 * KIB, 64 * KIB)).collect();
        let load = load(&requests);
        run_averaged(&figures, &load, &placement).seconds / run(&figures, &load, &[&placement]).seconds
    };
    // 155 pieces of 64 KiB pass in ten rotations and 1.6 ms, and the seek takes 1 ms. The next piece therefore arrives
    // at once, but is missed if a rotation takes 1 % longer.
    let in_step = ratio(&|n| n * 156);
    assert!(in_step > 2.0, "{in_step}");
    let anywhere = ratio(&|n| n * 167 % 256 * 100 + n % 7);
    assert!((0.9..1.1).contains(&anywhere), "{anywhere}");
}

/// A disk of 100 MB/s without startup time that begins to write back at 2 MiB of dirty data, with the given read delay.
fn buffering_disk(waits: Option<crate::figures::ReadDelay>) -> Figures {
    let mut figures = hybrid((1, 0.0, 100.0), (1, 0.0, 1e6), None);
    figures.network = Network::new(0.0, 1e6);
    let class = &mut figures.classes[0];
    (class.write.write_buffer, class.write.write_back_threshold) = (Bytes(1 << 30), Bytes(2 << 20));
    class.read.read_delay = waits;
    figures
}

/// Nanoseconds that 1 MiB takes on it.
const MIB_NS: f64 = MIB as f64 * 10.0;

/// A target with 8 MiB in flight to the device since time 0, and a ninth MiB dirty.
fn written(figures: &Figures) -> Target {
    let mut target = Target::of(0);
    let class = &figures.classes[0];
    let local = |from: u64, mib: u64| DatafileRange { object: 1, offset: from * MIB, len: mib * MIB };
    assert_eq!(target.buffer_write(0.0, &class.write, local(0, 8)), 0.0);
    assert_eq!(target.buffer_write(0.0, &class.write, local(8, 1)), 0.0);
    target
}

/// Completion time of a 1 MiB read requested at `at`, both in units of the time that 1 MiB takes.
fn read_in(target: &mut Target, figures: &Figures, at: f64, place: u64, is_parallel: bool) -> f64 {
    let local = DatafileRange { object: 1, offset: place * MIB, len: MIB };
    target.read(at * MIB_NS, &figures.classes[0], local, is_parallel) / MIB_NS
}

#[test]
fn reads_of_dirty_data_are_answered_from_memory() {
    let figures = buffering_disk(None);
    let mut target = written(&figures);
    // Half of the eight are written: the fifth is being written, the ninth is dirty.
    for place in [5, 7, 8] {
        assert_eq!(read_in(&mut target, &figures, 4.5, place, false), 4.5, "{place}");
    }
    assert!((read_in(&mut target, &figures, 4.5, 4, false) - 5.0).abs() < 1e-6);
    assert!((read_in(&mut target, &figures, 5.0, 1, false) - 6.0).abs() < 1e-6);
    // The page cache holds nothing of a range that was never written.
    assert!(read_in(&mut target, &figures, 9.0, 20, false) > 9.9);
    // All data is on the device in the end, and the reads were in between.
    let end = target.flush_all(30.0 * MIB_NS, &figures.classes[0].write) / MIB_NS;
    assert!((30.0..31.1).contains(&end), "{end}");
    // If a rank reads only its recent writes, the device has nothing but writes.
    let request = |number: u64, direction| {
        Request::new(0, 0, direction, number % 4 * 64 * KIB, 64 * KIB, (number * 10, number * 10 + 5))
    };
    let requests: Vec<_> =
        (0..8).map(|n| request(n, if n < 4 { Direction::Write } else { Direction::Read })).collect();
    let seconds = run(&figures, &Load::from(&requests, 8), &[&ClassPlacement::whole(vec![MIB, 0])]).seconds;
    assert!((seconds - 0.25 * MIB_NS / 1e9).abs() < 1e-5, "{seconds}");
}

#[test]
fn reads_wait_for_write_back_as_long_as_measured() {
    let of = |most: f64, beside: f64| {
        let us = MIB_NS / 1e3;
        buffering_disk(Some(crate::figures::ReadDelay { max_us: most * us, overlap_us: beside * us }))
    };
    let done = |figures: &Figures, is_parallel| read_in(&mut written(figures), figures, 2.0, 0, is_parallel);
    // Six MiB are in flight and the ninth stays dirty; then the read is served.
    assert!((done(&of(100.0, 0.0), false) - 9.0).abs() < 1e-6);
    assert!((done(&of(3.0, 0.0), false) - 6.0).abs() < 1e-6);
    assert!((done(&of(100.0, 2.0), false) - 7.0).abs() < 1e-6);
    assert!((done(&of(0.0, 0.0), false) - 3.0).abs() < 1e-6);
    // The rest is written later, unless the device reads and writes in parallel.
    let end = |figures: &Figures, is_parallel| {
        let mut target = written(figures);
        read_in(&mut target, figures, 2.0, 0, is_parallel);
        target.flush_all(0.0, &figures.classes[0].write) / MIB_NS
    };
    assert!((end(&of(3.0, 0.0), false) - 10.0).abs() < 1e-6);
    assert!((end(&of(3.0, 0.0), true) - 9.0).abs() < 1e-6);
}

#[test]
fn data_in_the_device_cache_is_read_from_the_device() {
    let mut figures = buffering_disk(None);
    figures.classes[0].write.cache = Some(crate::figures::Cache { size: Bytes(3 << 20), mb_s: 200.0 });
    let mut target = written(&figures);
    // The device cache accepts two MiB in the time one is written, and at most three in advance.
    for (at, there) in [(1.5, 3), (2.5, 5), (4.0, 7)] {
        let mut target = target.clone();
        assert_eq!(read_in(&mut target, &figures, at, there, false), at, "{at}");
        assert!(read_in(&mut target, &figures, at, there - 1, false) > at + 0.9, "{at}");
    }
    assert_eq!(read_in(&mut target, &figures, 4.5, 8, false), 4.5);
    // Data below the write-back threshold stays in the page cache.
    assert_eq!(read_in(&mut target, &figures, 7.5, 8, false), 7.5);
}

#[test]
fn all_ranks_synchronize_even_if_the_last_writer_reads_first() {
    let request =
        |rank, direction, place: u64, times| Request::new(rank, 0, direction, place * MIB, MIB, times);
    let mut requests: Vec<_> =
        (0..3).map(|rank| request(rank, Direction::Write, rank.into(), (1, 10))).collect();
    // The first reader reads its own data. The second begins while the first is still reading.
    requests.push(request(2, Direction::Read, 2, (20, 40)));
    requests.push(request(0, Direction::Read, 0, (21, 40)));
    requests.push(request(1, Direction::Read, 1, (22, 40)));
    let epochs = |requests: &[Request]| Load::from(requests, 6).epochs;
    assert_eq!(epochs(&requests), [3, 3]);
    // Their next writes wait only for the next idle point.
    requests.push(request(0, Direction::Write, 1, (23, 50)));
    assert_eq!(epochs(&requests), [3, 4]);
    requests.push(request(1, Direction::Read, 0, (50, 60)));
    assert_eq!(epochs(&requests), [3, 4, 1]);
    // If a request is always in flight, no rank waits.
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

#[test]
fn targets_that_share_a_device_are_one_queue() {
    let mut figures = hybrid((4, 10_000.0, 100.0), (1, 1.0, 1e6), None);
    // No request is near another one.
    const BLOCK: u64 = 4096 * KIB;
    let requests: Vec<_> = (0..64u64).map(|n| ((n % 8) as u32, (n * 37 % 64) * BLOCK, 64 * KIB)).collect();
    let placement = ClassPlacement::whole(vec![BLOCK, 0]);
    let apart = run(&figures, &load(&requests), &[&placement]);
    figures.classes[0].devices = Some(vec![7, 8, 9, 10]);
    assert_eq!(run(&figures, &load(&requests), &[&placement]), apart);
    figures.classes[0].devices = Some(vec![7; 4]);
    let shared = run(&figures, &load(&requests), &[&placement]);
    // 64 random requests on one disk instead of 16 on each of four.
    assert!((2.5..4.5).contains(&(shared.seconds / apart.seconds)), "{} {}", shared.seconds, apart.seconds);
    assert!(shared.target_busy_s[0] <= shared.seconds);
    // Classes share it as well.
    figures.classes[1].devices = Some(vec![7]);
    let other = ClassPlacement::whole(vec![0, BLOCK]);
    assert_eq!(run(&figures, &load(&requests), &[&other]).target_busy_s[1], 0.0);
}

/// A serial program on fast devices: with stripes of 4 KiB each request is 16 messages, which the processors handle one
/// after the other.
#[test]
fn messages_queue_for_the_processors() {
    let mut figures = hybrid((4, 1.0, 2000.0), (1, 1.0, 1e6), None);
    figures.network = Network::new(1.0, 10_000.0);
    let requests: Vec<_> = (0..256u64).map(|n| (0, n * 64 * KIB, 64 * KIB)).collect();
    let seconds = |figures: &crate::figures::Figures, stripe: u64| {
        run(figures, &load(&requests), &[&ClassPlacement::whole(vec![stripe, 0])]).seconds
    };
    assert!(
        seconds(&figures, 16 * KIB) < seconds(&figures, 64 * KIB),
        "parallel devices without a processor"
    );
    figures.processor = Some(crate::figures::Processor { messages_per_s: 20_000.0, cores: 2 });
    let (one, four) = (seconds(&figures, 64 * KIB), seconds(&figures, 16 * KIB));
    assert!(four >= 1024.0 / 20_000.0 && four > 2.0 * one, "{four} {one}");
}
