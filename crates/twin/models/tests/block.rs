//! Tests of the queue in front of a device and of the local file system above it.

mod common;

use common::{Runner, direct_read, direct_write, request};
use weft_core::random::SplitMix64;
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
fn adjacent_waiting_requests_are_merged() {
    for elevator in [Elevator::Noop, Elevator::Deadline] {
        let mut profile = profile();
        profile.block.elevator = elevator;
        profile.block.request_kib = 256;
        let mut runner = Runner::new(profile.build(1));
        runner.submit(&direct_read(1, 500 << 20, 4096));
        // Behind, in front, between, and then more than the largest request holds.
        for part in [1, 0, 3, 2, 4, 5] {
            runner.submit(&direct_read(1, part * 65_536, 65_536));
        }
        assert_eq!(runner.drain().len(), 7, "each merged request ends");
        assert_eq!(sizes(&runner), [(4096, 1), (131_072, 1), (262_144, 1)], "{elevator:?}");
    }
}

#[test]
fn reads_and_writes_are_not_merged_and_large_requests_are_split() {
    let mut profile = profile();
    profile.block.request_kib = 128;
    let mut runner = Runner::new(profile.build(1));
    runner.submit(&direct_read(1, 500 << 20, 4096));
    runner.submit(&direct_read(1, 0, 65_536));
    runner.submit(&direct_write(1, 65_536, 65_536));
    runner.submit(&direct_write(2, 0, 300_000));
    runner.drain();
    // 300,000 bytes are 300,032 bytes in whole sectors.
    assert_eq!(sizes(&runner), [(4096, 1), (37_888, 1), (65_536, 2), (131_072, 2)]);
    let counters = runner.model.counters();
    assert_eq!((counters.reads, counters.writes), (2, 4));
    assert_eq!((counters.read_bytes, counters.write_bytes), (4096 + 65_536, 65_536 + 300_032));
    assert!(counters.busy.0 > 0 && counters.busy.0 <= runner.now);
}

#[test]
fn small_buffered_writes_reach_the_device_as_large_requests() {
    let mut profile = profile();
    profile.block.request_kib = 512;
    let mut runner = Runner::new(profile.build(1));
    for n in 0..256 {
        let took = runner.complete(&request(DeviceAction::Write, 1, n * 4096, 4096, false));
        assert!(took < 10_000, "only a copy into memory: {took} ns");
    }
    assert_eq!(sizes(&runner), [], "nothing has reached the device");
    runner.complete(&request(DeviceAction::Sync, 1, 0, 0, false));
    let sizes = sizes(&runner);
    assert!(sizes.contains(&(524_288, 2)), "1 MiB in two requests, and the journal commit: {sizes:?}");
}

#[test]
fn unsynced_bytes_are_written_back_after_their_age() {
    let mut profile = profile();
    profile.files.write_back_ms = 1000.0;
    let mut runner = Runner::new(profile.build(1));
    runner.complete(&request(DeviceAction::Write, 1, 0, 1_000_000, false));
    assert!((900_000_000..=1_000_000_000).contains(&runner.model.next_event().expect("write-back is due").0));
    runner.drain();
    assert_eq!(runner.model.counters().write_bytes, 1_003_520, "whole pages");
    assert!(runner.model.next_event().is_none(), "then no request is in progress");
}

#[test]
fn writers_wait_at_the_dirty_limit() {
    let mut profile = profile();
    (profile.files.dirty_limit_mib, profile.files.dirty_background_mib) = (16, 8);
    let mut runner = Runner::new(profile.build(1));
    let len = 1 << 20;
    let (took, times) = runner.run(1, 400, |n| request(DeviceAction::Write, 1, n as u64 * len, len, false));
    let mb_s = 400.0 * len as f64 * 1e3 / took as f64;
    assert!((180.0..235.0).contains(&mb_s), "the rate of the disk: {mb_s:.0} MB/s");
    assert!(times[..8].iter().all(|&took| took < 1_000_000), "the first are copies: {:?}", &times[..8]);
}

#[test]
fn a_partly_written_page_is_read_first_unless_in_memory() {
    let mut runner = Runner::new(profile().build(1));
    runner.complete(&direct_write(1, 0, 1 << 20));
    let reads = |runner: &Runner| runner.model.counters().reads;
    runner.complete(&request(DeviceAction::Write, 1, 66_000, 9_000, false));
    assert_eq!(reads(&runner), 2, "the first and the last page");
    runner.complete(&request(DeviceAction::Write, 1, 66_100, 9_000, false));
    assert_eq!(reads(&runner), 2, "both are in memory now");
    runner.complete(&request(DeviceAction::Write, 1, 131_072, 8_192, false));
    runner.complete(&request(DeviceAction::Write, 1, 3 << 20, 100, false));
    assert_eq!(reads(&runner), 2, "whole pages and pages behind the end are not read");
}

#[test]
fn pages_in_write_back_are_read_from_memory() {
    let mut profile = profile();
    profile.files.dirty_background_mib = 1;
    let mut runner = Runner::new(profile.build(1));
    const LEN: u64 = 32 << 20;
    let reads = |runner: &Runner| runner.model.counters().reads;
    runner.complete(&request(DeviceAction::Write, 1, 0, LEN, false));
    let took = runner.complete(&request(DeviceAction::Read, 1, LEN - 8192, 8192, false));
    assert!(took < 1_000_000, "a copy: {took} ns");
    runner.complete(&request(DeviceAction::Write, 1, LEN - 6000, 100, false));
    assert_eq!(reads(&runner), 0, "a page in memory is not read");
    // Write the range again during its write-back. The end of the first write-back must not drop the newer pages from
    // memory.
    runner.complete(&request(DeviceAction::Write, 1, 0, LEN, false));
    while runner.model.counters().write_bytes < LEN + (8 << 20) {
        runner.step();
    }
    runner.complete(&request(DeviceAction::Read, 1, 24 << 20, 8192, false));
    assert_eq!(reads(&runner), 0);

    runner.complete(&request(DeviceAction::Sync, 1, 0, 0, false));
    runner.drain();
    runner.complete(&request(DeviceAction::Read, 1, LEN - 8192, 8192, false));
    assert_eq!(reads(&runner), 1, "pages on the device leave memory without a page cache");
}

#[test]
fn an_unwritten_page_is_a_hole_and_is_not_read() {
    let mut runner = Runner::new(profile().build(1));
    let write = |offset, len| request(DeviceAction::Write, 1, offset, len, false);
    // The end first, as a rank that is ahead of others writes.
    runner.complete(&write(10 << 20, 65_536));
    runner.complete(&write(66_000, 9_000));
    runner.complete(&request(DeviceAction::Sync, 1, 0, 0, false));
    assert_eq!(runner.model.counters().reads, 0, "the pages between are holes");
    runner.model.forget();
    runner.complete(&write(66_000, 9_000));
    assert_eq!(runner.model.counters().reads, 2, "now they are allocated");
    runner.complete(&request(DeviceAction::Cut, 1, 0, 0, false));
    runner.complete(&write(66_000, 9_000));
    assert_eq!(runner.model.counters().reads, 2, "truncated pages are holes again");
    runner.complete(&request(DeviceAction::Sync, 1, 0, 0, false));
    runner.model.forget();
    runner.complete(&request(DeviceAction::Discard, 1, 65_536, 65_536, false));
    runner.complete(&write(66_000, 9_000));
    assert_eq!(runner.model.counters().reads, 2, "discarded pages are holes again");
}

#[test]
fn an_empty_disk_has_holes_that_are_not_read() {
    for is_direct in [false, true] {
        let mut model = profile().build(1);
        model.starts_empty();
        let mut runner = Runner::new(model);
        let read = |offset, len| request(DeviceAction::Read, 1, offset, len, is_direct);
        runner.complete(&read(0, 65_536));
        runner.complete(&direct_write(1, 1 << 20, 8192));
        runner.complete(&read(0, 65_536));
        assert_eq!(runner.model.counters().reads, 0, "the range is a hole");
        runner.complete(&read((1 << 20) - 65_536, 131_072));
        assert_eq!(runner.model.counters().read_bytes, 8192, "only the written pages");
    }
}

#[test]
fn buffered_writes_to_a_file_are_serialized_and_read_a_page_once() {
    let mut profile = profile();
    profile.block.device_depth = 8;
    let reads_of = |writes: &[(u64, u64)]| {
        let mut runner = Runner::new(profile.build(1));
        for file in 1..=2 {
            runner.complete(&direct_write(file, 0, 64 << 20));
        }
        for &(file, offset) in writes {
            runner.submit(&request(DeviceAction::Write, file, offset, 1000, false));
        }
        let begun = runner.model.counters().reads;
        runner.drain();
        (begun, runner.model.counters().reads)
    };
    assert_eq!(reads_of(&[(1, 100), (2, 32 << 20)]), (2, 2));
    assert_eq!(reads_of(&[(1, 100), (1, 32 << 20)]), (1, 2), "the second waits until the first has its page");
    assert_eq!(reads_of(&[(1, 100), (1, 1100), (1, 2100)]), (1, 1), "for any order of writers");
}

#[test]
fn cached_pages_cost_a_copy() {
    let mut profile = profile();
    profile.files.page_cache_mib = 8;
    let mut runner = Runner::new(profile.build(1));
    let read = |offset| request(DeviceAction::Read, 1, offset, 65_536, false);
    assert!(runner.complete(&read(1 << 20)) > 1_000_000);
    // 2 us, and 64 KiB at 5,000 MB/s.
    assert_eq!(runner.complete(&read(1 << 20)), 2_000 + 13_107);
    for n in 0..200 {
        runner.complete(&read((100 + 3 * n) << 20));
    }
    let again = runner.complete(&read(1 << 20));
    assert!(again > 500_000, "the least recently used page was evicted: {again} ns");
    profile.files.page_cache_mib = 0;
    let mut runner = Runner::new(profile.build(1));
    runner.complete(&read(1 << 20));
    assert_ne!(runner.complete(&read(1 << 20)), 2_000 + 13_107, "without a page cache no page stays");
}

#[test]
fn sequential_reads_are_read_ahead() {
    let throughput = |read_ahead_kib| {
        let mut profile = Profile::by_name("sata-ssd").expect("a profile that comes with Weft");
        profile.files.page_cache_mib = 64;
        profile.files.read_ahead_kib = read_ahead_kib;
        let mut runner = Runner::new(profile.build(1));
        runner.complete(&direct_write(1, 0, 64 << 20));
        let (took, _) = runner.run(1, 4000, |n| request(DeviceAction::Read, 1, n as u64 * 4096, 4096, false));
        (4000.0 * 4096.0 * 1e3 / took as f64, runner.model.counters().reads)
    };
    let ((alone, each), (ahead, windows)) = (throughput(0), throughput(128));
    assert_eq!(each, 4000);
    assert!(ahead > 4.0 * alone, "{alone:.0} MB/s alone, {ahead:.0} MB/s with reading ahead");
    assert!(windows < 600, "{windows} requests of 4,000 pages");
}

/// Returns the longest wait of a few requests of one direction among many of the other.
fn longest_among(flood_of_writes: bool) -> u64 {
    let mut profile = profile();
    profile.hdd.as_mut().expect("a hard disk").write_cache_kib = 0;
    let mut runner = Runner::new(profile.build(1));
    let mut dice = SplitMix64::new(9);
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
fn the_deadline_elevator_saves_seeks() {
    let rate = |elevator| {
        let mut profile = profile();
        profile.block.elevator = elevator;
        let mut runner = Runner::new(profile.build(1));
        let mut dice = SplitMix64::new(1);
        let (took, _) = runner.run(64, 1500, |_| direct_read(1, dice.below(200_000) * 1_048_576, 4096));
        1500.0 * 1e9 / took as f64
    };
    let (noop, deadline) = (rate(Elevator::Noop), rate(Elevator::Deadline));
    assert!(deadline > 1.3 * noop, "{noop:.0}/s as they come, {deadline:.0}/s in order");
}

#[test]
fn anticipation_waits_for_a_nearby_request() {
    // Two sequential readers, each requesting the next 64 KiB 100 us after the last reply. Without anticipation, the
    // arm alternates between them.
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
    assert!(patient > 1.5 * eager, "{eager:.1} MB/s, {patient:.1} MB/s with anticipation");
}
