//! Tests of the SSD model against computation by hand, and of the cost of garbage collection.

mod common;

use common::{Runner, direct_read, direct_write, request};
use weft_core::random::SplitMix64;
use weft_env::device::DeviceAction;
use weft_models::ssd::SsdSpec;
use weft_models::{Elevator, Profile};

/// Two channels of two dies, and pages of 16 KiB that take 50 us to read and 500 us to program. A channel moves 4 KiB
/// in 40.96 us, the interface in 10.24 us. A command takes 5 us of the controller and 10 us of latency.
fn plain() -> Profile {
    let mut profile = Profile::by_name("nvme").expect("a profile that comes with Weft");
    profile.ssd = Some(SsdSpec {
        capacity_gb: 1.0,
        spare: 0.15,
        used: 0.0,
        channels: 2,
        dies_per_channel: 2,
        page_kib: 16,
        map_kib: 4,
        pages_per_block: 64,
        read_us: 50.0,
        program_us: 500.0,
        erase_us: 2000.0,
        suspend_us: 0.0,
        channel_mb_s: 100.0,
        interface_mb_s: 400.0,
        command_us: 5.0,
        latency_us: 10.0,
        queue_depth: 32,
        buffer_kib: 256,
        is_power_safe: false,
        flush_us: 20.0,
    });
    profile.block.elevator = Elevator::Noop;
    profile.files.call_us = 0.0;
    profile
}

fn with(change: impl FnOnce(&mut SsdSpec)) -> Profile {
    let mut profile = plain();
    change(profile.ssd.as_mut().expect("a solid-state disk"));
    profile
}

#[test]
fn a_read_takes_command_flash_channel_and_interface() {
    let mut runner = Runner::new(plain().build(1));
    assert_eq!(runner.complete(&direct_read(1, 0, 4096)), 5_000 + 50_000 + 40_960 + 10_240 + 10_000);
    // Four pages on four dies: each channel moves two pages (163,840 ns each). The first ones cross the interface
    // meanwhile, the last one (40,960 ns) afterwards.
    runner.now += 1_000_000;
    assert_eq!(runner.complete(&direct_read(1, 0, 65_536)), 5_000 + 50_000 + 2 * 163_840 + 40_960 + 10_000);
}

#[test]
fn dies_work_in_parallel_and_one_die_serially() {
    let times = |offsets: [u64; 2]| {
        let mut runner = Runner::new(plain().build(1));
        for offset in offsets {
            runner.submit(&direct_read(1, offset, 4096));
        }
        runner.drain();
        runner.now
    };
    let alone = 5_000 + 50_000 + 40_960 + 10_240 + 10_000;
    // Another die on another channel: it starts 5 us later, and the interface moves one after the other.
    assert_eq!(times([0, 16_384]), alone + 10_240);
    // The same die: its 50 us again, after it has waited since the first began.
    assert_eq!(times([0, 4096]), alone + 50_000);
}

#[test]
fn writes_are_acknowledged_until_the_buffer_is_full() {
    let mut runner = Runner::new(plain().build(1));
    assert_eq!(runner.complete(&direct_write(1, 0, 4096)), 5_000 + 10_240 + 10_000);
    // Then the rate of the flash: the channels move 200 MB/s. Four dies program 64 KiB in 500 us (131 MB/s), each after
    // its page has crossed the channel (163.84 us): 98.7 MB/s.
    let (took, _) = runner.run(8, 2000, |n| direct_write(1, (n as u64 + 1) * 65_536, 65_536));
    let mb_s = 2000.0 * 65_536.0 * 1e3 / took as f64;
    assert!((95.0..135.0).contains(&mb_s), "{mb_s:.1} MB/s");
}

#[test]
fn a_flush_waits_for_the_programs_unless_the_buffer_survives() {
    let sync = |is_power_safe| {
        let mut runner = Runner::new(with(|ssd| ssd.is_power_safe = is_power_safe).build(1));
        // The second sync has no new space that the journal must record.
        runner.complete(&direct_write(1, 0, 65_536));
        runner.complete(&request(DeviceAction::Sync, 1, 0, 0, false));
        runner.now += 10_000_000;
        runner.complete(&direct_write(1, 0, 4096));
        runner.complete(&request(DeviceAction::Sync, 1, 0, 0, false))
    };
    // The page with the 4 KiB crosses its channel and is programmed: 163.84 + 500 us, less the 10 us for which the
    // reply to the write was already on its way.
    let by_hand = 5_000 + 163_840 + 500_000 + 20_000 + 10_000;
    assert!(sync(false).abs_diff(by_hand) <= 30_000, "{} ns, by hand {by_hand}", sync(false));
    assert_eq!(sync(true), 5_000 + 20_000 + 10_000);
}

/// Returns the rate of overwriting the whole device in 10^6 bytes per second, in random or sequential order.
fn overwrite(profile: &Profile, is_random: bool, count: usize) -> f64 {
    let disk = profile.disk(1);
    let span = disk.capacity() / 4096 - 40_000;
    let mut runner = Runner::new(Box::new(disk));
    let mut dice = SplitMix64::new(3);
    let mut next = |n: usize| {
        let at = if is_random { dice.below(span) } else { n as u64 % span };
        direct_write(1, at * 4096, 4096)
    };
    runner.run(16, count, &mut next);
    let (took, _) = runner.run(16, count, next);
    count as f64 * 4096.0 * 1e3 / took as f64
}

#[test]
fn random_overwriting_costs_moves_of_valid_pages() {
    // 15 % additional flash: 1/1.15 of it is valid, except the four erased blocks. (1 - exp(-A)) / A = 0.87..0.89 gives
    // A = 0.25..0.29. The oldest block is exp(-A) = 0.75..0.78 valid, so each host unit moves 3 to 3.5 others. Each of
    // these is read and programmed again, which leaves 1/5 or less of the rate of a new device.
    let fresh = overwrite(&plain(), true, 20_000);
    let used = overwrite(&with(|ssd| ssd.used = 1.0), true, 150_000);
    let ratio = fresh / used;
    assert!((3.5..7.0).contains(&ratio), "{fresh:.1} MB/s fresh, {used:.1} MB/s used: {ratio:.2}");
    // With more spare space, half of the flash is valid, exp(-A) = 0.2, and a quarter of a unit moves per host unit.
    let spacious = overwrite(&with(|ssd| (ssd.used, ssd.spare) = (1.0, 1.0)), true, 150_000);
    assert!(spacious > 2.5 * used && spacious < fresh * 1.05, "{spacious:.1} MB/s with much spare room");
}

#[test]
fn the_data_sheets_of_used_drives_follow_from_their_spare_room() {
    // Steady-state random writes: Samsung PM9A3 200,000/s, PM883 28,000/s.
    for (name, published, tolerance) in [("nvme", 200_000.0, 0.25), ("sata-ssd", 28_000.0, 0.25)] {
        let mut profile = Profile::by_name(name).expect("a profile that comes with Weft");
        profile.ssd.as_mut().expect("a solid-state disk").used = 1.0;
        let found = overwrite(&profile, true, 120_000) / 4096.0 * 1e6;
        let error = (found - published) / published;
        assert!(error.abs() < tolerance, "{name}: {found:.0} writes/s of {published}");
    }
}

#[test]
fn a_coarse_map_reads_the_rest_of_small_random_writes() {
    let coarse = with(|ssd| ssd.map_kib = 16);
    let in_order = overwrite(&coarse, false, 20_000);
    let at_random = overwrite(&coarse, true, 20_000);
    // 16 KiB are read and programmed for each 4 KiB.
    assert!(in_order > 4.0 * at_random, "{in_order:.1} MB/s in order, {at_random:.1} MB/s at random");
}

#[test]
fn a_suspended_program_lets_a_read_through() {
    let read = |suspend_us| {
        let mut runner = Runner::new(with(|ssd| ssd.suspend_us = suspend_us).build(1));
        runner.run(8, 64, |n| direct_write(1, n as u64 * 65_536, 65_536));
        runner.complete(&direct_read(2, 0, 4096))
    };
    assert!(read(20.0) < read(0.0), "{} and {} ns", read(20.0), read(0.0));
    assert!(read(20.0) < 400_000);
}

#[test]
fn a_deep_queue_reaches_the_random_reads_of_data_sheets() {
    // Maximum random reads of 4 KiB: Samsung PM9A3 and PM883, Intel X25-E.
    for (name, depth, published) in
        [("nvme", 512, 900_000.0), ("sata-ssd", 32, 98_000.0), ("thesis-ssd", 31, 35_000.0)]
    {
        let profile = Profile::by_name(name).expect("a profile that comes with Weft");
        let mut runner = Runner::new(profile.build(1));
        let mut dice = SplitMix64::new(5);
        let span = 8 << 30;
        let (took, _) = runner.run(depth, 30_000, |_| direct_read(1, dice.below(span / 4096) * 4096, 4096));
        let found = 30_000.0 * 1e9 / took as f64;
        let error = (found - published) / published;
        assert!(error.abs() < 0.10, "{name}: {found:.0} reads/s of {published}");
    }
}
