//! The queue in front of a device, and the local file system above it.

mod common;

use common::{Dice, Runner, direct_read, direct_write, request};
use weft_env::device::DeviceAction;
use weft_models::{Elevator, Profile};

fn profile() -> Profile {
    let mut profile = Profile::by_name("hdd-7200").expect("a profile that comes with Weft");
    profile.block.device_depth = 1;
    profile
}

fn sizes(runner: &Runner) -> Vec<(u64, u64)> {
    runner.model.counters().block_sizes.into_iter().collect()
}

#[test]
fn neighbors_that_wait_become_one_request() {
    for elevator in [Elevator::Noop, Elevator::Deadline] {
        let mut profile = profile();
        profile.block.elevator = elevator;
        profile.block.request_kib = 256;
        let mut runner = Runner::new(profile.build(1));
        runner.submit(&direct_read(1, 500 << 20, 4096));
        // Behind, in front, and between; then more than the largest request holds.
        for part in [1, 0, 3, 2, 4, 5] {
            runner.submit(&direct_read(1, part * 65_536, 65_536));
        }
        assert_eq!(runner.settle().len(), 7, "each of the merged ends");
        assert_eq!(sizes(&runner), [(4096, 1), (131_072, 1), (262_144, 1)], "{elevator:?}");
    }
}

#[test]
fn reads_and_writes_are_not_merged_and_large_ones_are_cut() {
    let mut profile = profile();
    profile.block.request_kib = 128;
    let mut runner = Runner::new(profile.build(1));
    runner.submit(&direct_read(1, 500 << 20, 4096));
    runner.submit(&direct_read(1, 0, 65_536));
    runner.submit(&direct_write(1, 65_536, 65_536));
    runner.submit(&direct_write(2, 0, 300_000));
    runner.settle();
    // 300,000 bytes in sectors are 300,032.
    assert_eq!(sizes(&runner), [(4096, 1), (37_888, 1), (65_536, 2), (131_072, 2)]);
    let counters = runner.model.counters();
    assert_eq!((counters.reads, counters.writes), (2, 4));
    assert_eq!((counters.read_bytes, counters.write_bytes), (4096 + 65_536, 65_536 + 300_032));
    assert!(counters.busy.0 > 0 && counters.busy.0 <= runner.now);
}

#[test]
fn small_buffered_writes_reach_the_device_as_large_ones() {
    let mut profile = profile();
    profile.block.request_kib = 512;
    let mut runner = Runner::new(profile.build(1));
    for n in 0..256 {
        let took = runner.one(&request(DeviceAction::Write, 1, n * 4096, 4096, false));
        assert!(took < 10_000, "a copy into memory: {took} ns");
    }
    assert_eq!(sizes(&runner), [], "nothing has reached the device");
    runner.one(&request(DeviceAction::Sync, 1, 0, 0, false));
    let sizes = sizes(&runner);
    assert!(sizes.contains(&(524_288, 2)), "1 MiB in two requests, and the journal's: {sizes:?}");
}

#[test]
fn what_nobody_syncs_is_written_back_after_its_time() {
    let mut profile = profile();
    profile.files.write_back_ms = 1000.0;
    let mut runner = Runner::new(profile.build(1));
    runner.one(&request(DeviceAction::Write, 1, 0, 1_000_000, false));
    assert!((900_000_000..=1_000_000_000).contains(&runner.model.next_event().expect("write-back is due").0));
    runner.settle();
    assert_eq!(runner.model.counters().write_bytes, 1_003_520, "whole pages");
    assert!(runner.model.next_event().is_none(), "and then the device is at rest");
}

#[test]
fn writers_wait_when_memory_is_full_of_what_is_not_written_back() {
    let mut profile = profile();
    (profile.files.dirty_limit_mib, profile.files.dirty_background_mib) = (16, 8);
    let mut runner = Runner::new(profile.build(1));
    let len = 1 << 20;
    let (took, times) = runner.run(1, 400, |n| request(DeviceAction::Write, 1, n as u64 * len, len, false));
    let mb_s = 400.0 * len as f64 * 1e3 / took as f64;
    assert!((180.0..235.0).contains(&mb_s), "what the disk takes: {mb_s:.0} MB/s");
    assert!(times[..8].iter().all(|&took| took < 1_000_000), "the first are copies: {:?}", &times[..8]);
}

#[test]
fn a_page_written_in_part_is_read_first_unless_it_is_in_memory() {
    let mut runner = Runner::new(profile().build(1));
    runner.one(&direct_write(1, 0, 1 << 20));
    let reads = |runner: &Runner| runner.model.counters().reads;
    runner.one(&request(DeviceAction::Write, 1, 66_000, 9_000, false));
    assert_eq!(reads(&runner), 2, "the first and the last page");
    runner.one(&request(DeviceAction::Write, 1, 66_100, 9_000, false));
    assert_eq!(reads(&runner), 2, "they are here now");
    runner.one(&request(DeviceAction::Write, 1, 131_072, 8_192, false));
    runner.one(&request(DeviceAction::Write, 1, 3 << 20, 100, false));
    assert_eq!(reads(&runner), 2, "whole pages, and what is behind the end, need no reading");
}

#[test]
fn what_is_on_its_way_to_the_device_is_read_from_memory_until_it_is_there() {
    let mut profile = profile();
    profile.files.dirty_background_mib = 1;
    let mut runner = Runner::new(profile.build(1));
    const LEN: u64 = 32 << 20;
    let reads = |runner: &Runner| runner.model.counters().reads;
    runner.one(&request(DeviceAction::Write, 1, 0, LEN, false));
    let took = runner.one(&request(DeviceAction::Read, 1, LEN - 8192, 8192, false));
    assert!(took < 1_000_000, "a copy: {took} ns");
    runner.one(&request(DeviceAction::Write, 1, LEN - 6000, 100, false));
    assert_eq!(reads(&runner), 0, "of a page that is in memory nothing need be read");
    // Written again while it was on its way: that it has come there does not take what is to follow from memory.
    runner.one(&request(DeviceAction::Write, 1, 0, LEN, false));
    while runner.model.counters().write_bytes < LEN + (8 << 20) {
        runner.step();
    }
    runner.one(&request(DeviceAction::Read, 1, 24 << 20, 8192, false));
    assert_eq!(reads(&runner), 0);

    runner.one(&request(DeviceAction::Sync, 1, 0, 0, false));
    runner.settle();
    runner.one(&request(DeviceAction::Read, 1, LEN - 8192, 8192, false));
    assert_eq!(reads(&runner), 1, "what is there is no longer in memory: there is no page cache");
}

#[test]
fn a_page_that_was_never_written_is_a_hole_and_is_not_read() {
    let mut runner = Runner::new(profile().build(1));
    let write = |offset, len| request(DeviceAction::Write, 1, offset, len, false);
    // The end first, as a process does that is ahead of others.
    runner.one(&write(10 << 20, 65_536));
    runner.one(&write(66_000, 9_000));
    runner.one(&request(DeviceAction::Sync, 1, 0, 0, false));
    assert_eq!(runner.model.counters().reads, 0, "the pages between lie nowhere");
    runner.model.forget();
    runner.one(&write(66_000, 9_000));
    assert_eq!(runner.model.counters().reads, 2, "now they do");
    runner.one(&request(DeviceAction::Cut, 1, 0, 0, false));
    runner.one(&write(66_000, 9_000));
    assert_eq!(runner.model.counters().reads, 2, "what was cut off is a hole again");
    runner.one(&request(DeviceAction::Sync, 1, 0, 0, false));
    runner.model.forget();
    runner.one(&request(DeviceAction::Discard, 1, 65_536, 65_536, false));
    runner.one(&write(66_000, 9_000));
    assert_eq!(runner.model.counters().reads, 2, "and so is what does not matter any more");
}

#[test]
fn a_disk_that_starts_empty_has_holes_that_no_read_fetches() {
    for is_direct in [false, true] {
        let mut model = profile().build(1);
        model.starts_empty();
        let mut runner = Runner::new(model);
        let read = |offset, len| request(DeviceAction::Read, 1, offset, len, is_direct);
        runner.one(&read(0, 65_536));
        runner.one(&direct_write(1, 1 << 20, 8192));
        runner.one(&read(0, 65_536));
        assert_eq!(runner.model.counters().reads, 0, "nothing lies there");
        runner.one(&read((1 << 20) - 65_536, 131_072));
        assert_eq!(runner.model.counters().read_bytes, 8192, "what was written, and nothing around it");
    }
}

#[test]
fn buffered_writes_to_a_file_take_turns_and_bring_a_page_once() {
    let mut profile = profile();
    profile.block.device_depth = 8;
    let reads_of = |writes: &[(u64, u64)]| {
        let mut runner = Runner::new(profile.build(1));
        for file in 1..=2 {
            runner.one(&direct_write(file, 0, 64 << 20));
        }
        for &(file, offset) in writes {
            runner.submit(&request(DeviceAction::Write, file, offset, 1000, false));
        }
        let begun = runner.model.counters().reads;
        runner.settle();
        (begun, runner.model.counters().reads)
    };
    assert_eq!(reads_of(&[(1, 100), (2, 32 << 20)]), (2, 2));
    assert_eq!(
        reads_of(&[(1, 100), (1, 32 << 20)]),
        (1, 2),
        "the second has to wait until the first has its page"
    );
    assert_eq!(reads_of(&[(1, 100), (1, 1100), (1, 2100)]), (1, 1), "whoever writes to it");
}

#[test]
fn what_memory_holds_costs_a_copy() {
    let mut profile = profile();
    profile.files.page_cache_mib = 8;
    let mut runner = Runner::new(profile.build(1));
    let read = |offset| request(DeviceAction::Read, 1, offset, 65_536, false);
    assert!(runner.one(&read(1 << 20)) > 1_000_000);
    // 2 us, and 64 KiB at 5,000 MB/s.
    assert_eq!(runner.one(&read(1 << 20)), 2_000 + 13_107);
    for n in 0..200 {
        runner.one(&read((100 + 3 * n) << 20));
    }
    let again = runner.one(&read(1 << 20));
    assert!(again > 500_000, "the longest unused left: {again} ns");
    profile.files.page_cache_mib = 0;
    let mut runner = Runner::new(profile.build(1));
    runner.one(&read(1 << 20));
    assert_ne!(runner.one(&read(1 << 20)), 2_000 + 13_107, "without a page cache nothing stays");
}

#[test]
fn a_file_that_is_read_in_order_is_read_ahead() {
    let throughput = |read_ahead_kib| {
        let mut profile = Profile::by_name("sata-ssd").expect("a profile that comes with Weft");
        profile.files.page_cache_mib = 64;
        profile.files.read_ahead_kib = read_ahead_kib;
        let mut runner = Runner::new(profile.build(1));
        runner.one(&direct_write(1, 0, 64 << 20));
        let (took, _) = runner.run(1, 4000, |n| request(DeviceAction::Read, 1, n as u64 * 4096, 4096, false));
        (4000.0 * 4096.0 * 1e3 / took as f64, runner.model.counters().reads)
    };
    let ((alone, each), (ahead, windows)) = (throughput(0), throughput(128));
    assert_eq!(each, 4000);
    assert!(ahead > 4.0 * alone, "{alone:.0} MB/s alone, {ahead:.0} MB/s with reading ahead");
    assert!(windows < 600, "{windows} requests of 4,000 pages");
}

/// The longest wait of a few requests of one kind among a flood of the other.
fn longest_among(flood_of_writes: bool) -> u64 {
    let mut profile = profile();
    profile.hdd.as_mut().expect("a hard disk").write_cache_kib = 0;
    let mut runner = Runner::new(profile.build(1));
    let mut dice = Dice(9);
    let mut make = |is_write: bool| {
        let offset = dice.below(100_000) * 4096;
        if is_write { direct_write(1, offset, 4096) } else { direct_read(1, offset, 4096) }
    };
    for _ in 0..64 {
        runner.submit(&make(flood_of_writes));
    }
    let (mut longest, mut ended) = (0, 0);
    let mut watched = runner.submit(&make(!flood_of_writes));
    while ended < 20 {
        for (ticket, took) in runner.step() {
            let is_watched = ticket == watched;
            if is_watched {
                (longest, ended) = (took.max(longest), ended + 1);
            }
            let next = runner.submit(&make(flood_of_writes != is_watched));
            if is_watched {
                watched = next;
            }
        }
    }
    longest
}

#[test]
fn neither_reads_nor_writes_starve() {
    let (read, write) = (longest_among(true), longest_among(false));
    assert!(read < 600_000_000, "a read among writes: {read} ns");
    assert!(write < 1_500_000_000, "a write among reads: {write} ns");
}

#[test]
fn the_elevator_goes_one_way_and_saves_seeks() {
    let rate = |elevator| {
        let mut profile = profile();
        profile.block.elevator = elevator;
        let mut runner = Runner::new(profile.build(1));
        let mut dice = Dice(1);
        let (took, _) = runner.run(64, 1500, |_| direct_read(1, dice.below(200_000) * 1_048_576, 4096));
        1500.0 * 1e9 / took as f64
    };
    let (noop, deadline) = (rate(Elevator::Noop), rate(Elevator::Deadline));
    assert!(deadline > 1.3 * noop, "{noop:.0}/s as they come, {deadline:.0}/s in order");
}

#[test]
fn an_idle_device_waits_for_a_near_request_only_if_told_to() {
    // Two programs read in order, each asking for the next 64 KiB 100 us after it got the last: without patience the
    // arm goes to and fro.
    let throughput = |anticipation_us| {
        let mut profile = profile();
        profile.block.anticipation_us = anticipation_us;
        let mut runner = Runner::new(profile.build(1));
        let places = [0, 400_000_000];
        let mut next = [0, 0];
        let mut owner = std::collections::BTreeMap::new();
        let mut pending: Vec<(u64, usize)> = vec![(0, 0), (0, 1)];
        let mut ended = 0;
        while ended < 400 {
            let due = pending.iter().copied().min().filter(|&(at, _)| {
                runner.model.next_event().is_none_or(|event| at <= event.0.max(runner.now))
            });
            if let Some((at, who)) = due {
                pending.retain(|&entry| entry != (at, who));
                runner.now = runner.now.max(at);
                let ticket = runner.submit(&direct_read(1, places[who] + next[who] * 65_536, 65_536));
                next[who] += 1;
                owner.insert(ticket, who);
                continue;
            }
            for (ticket, _) in runner.step() {
                pending.push((runner.now + 100_000, owner[&ticket]));
                ended += 1;
            }
        }
        400.0 * 65_536.0 * 1e3 / runner.now as f64
    };
    let (eager, patient) = (throughput(0.0), throughput(2_000.0));
    assert!(patient > 1.5 * eager, "{eager:.1} MB/s, {patient:.1} MB/s with patience");
}
