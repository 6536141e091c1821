//! Tests of the hard disk model against computation by hand, and of its queue, cache and arm.

mod common;

use common::{Runner, direct_read, direct_write, request};
use weft_core::random::SplitMix64;
use weft_env::device::DeviceAction;
use weft_models::hdd::HddSpec;
use weft_models::{Elevator, Profile};

/// A disk that is easy to compute: one head, one zone, a rotation of 10 ms, and 1,000 sectors on each of 1,954 tracks,
/// so that a sector passes in 10 us. A track switch takes 1 ms, which is also the skew. A command takes 100 us in each
/// direction, and nothing else takes time.
fn plain() -> Profile {
    let mut profile = Profile::by_name("hdd-7200").expect("a profile that comes with Weft");
    profile.hdd = Some(HddSpec {
        capacity_gb: 1.0,
        rpm: 6000,
        heads: 1,
        zones: 1,
        // 512,000 bytes pass in 11 ms.
        outer_mb_s: 512.0 / 11.0,
        inner_mb_s: 512.0 / 11.0,
        head_switch_us: 0.0,
        cylinder_switch_us: 1000.0,
        seek_track_us: 1000.0,
        seek_average_us: 5000.0,
        seek_full_us: 10_000.0,
        write_settle_us: 500.0,
        command_us: 100.0,
        interface_mb_s: 512.0,
        queue_depth: 1,
        queue_age_ms: 1000.0,
        read_ahead_kib: 0,
        segments: 0,
        write_cache_kib: 0,
    });
    profile.block.elevator = Elevator::Noop;
    profile.files.call_us = 0.0;
    profile.files.journal_at = 1.0;
    profile
}

fn with(change: impl FnOnce(&mut HddSpec)) -> Profile {
    let mut profile = plain();
    change(profile.hdd.as_mut().expect("a hard disk"));
    profile
}

const MS: f64 = 1e6;
const TURN: f64 = 10.0 * MS;

/// Returns the nanoseconds of a rotation after which a sector passes the head.
fn angle(sector: u64) -> f64 {
    ((sector % 1000) as f64 * 1e4 + (sector / 1000) as f64 * MS) % TURN
}

/// Seek time from the data sheet's three points, with 1,954 tracks: square root up to a third (651.33), then linear.
fn seek(from: u64, to: u64) -> f64 {
    let distance = (from / 1000).abs_diff(to / 1000) as f64;
    match distance {
        0.0 => 0.0,
        d if d <= 1954.0 / 3.0 => MS + 4.0 * MS / ((1954f64 / 3.0).sqrt() - 1.0) * (d.sqrt() - 1.0),
        d => 5.0 * MS + 5.0 * MS * (d - 1954.0 / 3.0) / (1954.0 * 2.0 / 3.0),
    }
}

#[test]
fn single_requests_take_command_seek_rotation_and_transfer() {
    let mut runner = Runner::new(plain().build(42));
    // The first request reveals the initial angle: 0.1 ms, wait for sector 0, 8 sectors, 0.1 ms.
    let first = runner.complete(&direct_read(1, 0, 4096)) as f64;
    let turned = TURN - (first - 0.1 * MS - 0.08 * MS - 0.1 * MS);
    let phase = (turned - 0.1 * MS).rem_euclid(TURN);
    let mut head = 8;
    let mut checked = 0;
    for (n, sector) in
        [40u64, 1_000, 700_123, 1_400_000, 300, 999_992, 1_200_500, 8, 650_000].into_iter().enumerate()
    {
        for is_write in [false, true] {
            runner.now += 137_003 * (n as u64 + 1);
            let start = runner.now as f64;
            let len = 8 * (n as u64 % 3 + 1);
            let moved =
                seek(head, sector) + if is_write && seek(head, sector) > 0.0 { 0.5 * MS } else { 0.0 };
            let there = start + 0.1 * MS + moved;
            let wait = (angle(sector) - (there + phase) % TURN).rem_euclid(TURN);
            // A transfer that continues on the next track takes the switch of 1 ms.
            let crossings = ((sector + len - 1) / 1000 - sector / 1000) as f64;
            let wanted = 0.1 * MS + moved + wait + len as f64 * 1e4 + crossings * MS + 0.1 * MS;
            let asked = if is_write { direct_write } else { direct_read };
            let took = runner.complete(&asked(1, sector * 512, len * 512)) as f64;
            assert!((took - wanted).abs() < 5_000.0, "sector {sector}: {took} ns, by hand {wanted} ns");
            head = sector + len - 1;
            checked += 1;
        }
    }
    assert_eq!(checked, 18);
}

/// Returns operations per second of random 4 KiB requests over the whole disk.
fn random(profile: &Profile, depth: usize, is_write: bool, warm: usize) -> f64 {
    let disk = profile.disk(3);
    let span = disk.capacity() / 8 * 7;
    let mut runner = Runner::new(Box::new(disk));
    let mut dice = SplitMix64::new(11);
    let mut next = |_| {
        let offset = dice.below(span / 4096) * 4096;
        if is_write { direct_write(1, offset, 4096) } else { direct_read(1, offset, 4096) }
    };
    runner.run(depth, warm, &mut next);
    let (took, _) = runner.run(depth, 2000, next);
    2000.0 * 1e9 / took as f64
}

#[test]
fn single_random_reads_take_a_seek_and_half_a_rotation() {
    for name in ["ibridge-hdd", "thesis-hdd", "hdd-nearline", "hdd-7200"] {
        let profile = Profile::by_name(name).expect("a profile that comes with Weft");
        let hdd = profile.hdd.clone().expect("a hard disk");
        // Seeks between random cylinders take a little less than a seek over the mean distance.
        let by_hand = 1e6 / (hdd.seek_average_us + 60e6 / f64::from(hdd.rpm) / 2.0 + 2.0 * hdd.command_us);
        let found = random(&profile, 1, false, 10);
        assert!((0.95..1.15).contains(&(found / by_hand)), "{name}: {found:.0}/s, by hand {by_hand:.0}/s");
    }
}

#[test]
fn the_nearline_disk_is_near_its_data_sheet_with_a_queue_of_sixteen() {
    // Seagate Exos X18: 170 random reads and 550 random writes of 4 KiB per second with the write cache on. The
    // tolerance covers a cache that reorders more or fewer writes than the firmware of the data sheet.
    let profile = Profile::by_name("hdd-nearline").expect("a profile that comes with Weft");
    let reads = random(&profile, 16, false, 10);
    assert!((136.0..=221.0).contains(&reads), "{reads:.0} reads/s of 170");
    let writes = random(&profile, 16, true, 20_000);
    assert!((330.0..=715.0).contains(&writes), "{writes:.0} writes/s of 550");
}

#[test]
fn a_command_queue_shortens_seeks() {
    let profile = |depth| with(|hdd| hdd.queue_depth = depth);
    let (one, many) = (random(&profile(1), 32, false, 10), random(&profile(32), 32, false, 10));
    assert!(many > 2.0 * one, "{one:.0}/s without a queue, {many:.0}/s with one");
}

#[test]
fn distant_requests_do_not_starve() {
    let profile = with(|hdd| (hdd.queue_depth, hdd.queue_age_ms) = (32, 300.0));
    let mut runner = Runner::new(profile.build(1));
    let far = runner.submit(&direct_read(1, 800 << 20, 4096));
    let mut dice = SplitMix64::new(5);
    // Requests at the other edge keep the queue full.
    for _ in 0..20 {
        runner.submit(&direct_read(1, dice.below(50) * 4096, 4096));
    }
    let took = loop {
        let ended = runner.step();
        if let Some((_, took)) = ended.iter().find(|&&(ticket, _)| ticket == far) {
            break *took;
        }
        for _ in &ended {
            runner.submit(&direct_read(1, dice.below(50) * 4096, 4096));
        }
        assert!(runner.now < 2_000_000_000, "the far request starves");
    };
    assert!(took < 350_000_000, "served after 300 ms: {took} ns");
}

/// Returns 10^6 bytes per second of 4 KiB requests one after another.
fn one_by_one(profile: &Profile) -> f64 {
    let mut runner = Runner::new(profile.build(1));
    let (took, _) = runner.run(1, 2000, |n| direct_read(1, n as u64 * 4096, 4096));
    2000.0 * 4096.0 * 1e3 / took as f64
}

#[test]
fn read_ahead_saves_a_rotation_per_small_request() {
    let without = one_by_one(&plain());
    // 4 KiB in each rotation of 10 ms.
    assert!((0.38..0.42).contains(&without), "{without:.2} MB/s without look-ahead");
    let with = one_by_one(&with(|hdd| (hdd.read_ahead_kib, hdd.segments) = (512, 4)));
    // 0.108 ms for a reply from memory gives 38 MB/s, less the occasional waits for the platters.
    assert!((20.0..38.0).contains(&with), "{with:.2} MB/s with look-ahead");
}

#[test]
fn read_ahead_data_is_dropped_when_overwritten() {
    let profile = with(|hdd| (hdd.read_ahead_kib, hdd.segments) = (512, 4));
    let mut runner = Runner::new(profile.build(1));
    runner.complete(&direct_read(1, 0, 4096));
    runner.now += 100_000_000;
    let hit = runner.complete(&direct_read(1, 262_144, 4096));
    // 0.1 ms, and 4 KiB at 512 MB/s.
    assert_eq!(hit, 108_000);
    runner.complete(&direct_write(1, 262_144, 4096));
    let miss = runner.complete(&direct_read(1, 262_144, 4096));
    assert!(miss > 5_000_000, "a turn later: {miss} ns");
}

#[test]
fn a_write_cache_answers_at_once_and_a_sync_waits_for_the_platters() {
    let cached = with(|hdd| hdd.write_cache_kib = 8192);
    let mut runner = Runner::new(cached.build(1));
    let took = runner.complete(&direct_write(1, 500 << 20, 4096));
    assert_eq!(took, 108_000, "0.1 ms, and 4 KiB at 512 MB/s");
    // A seek over half of the tracks, up to a rotation, and the journal records the file's new space.
    let sync = runner.complete(&request(DeviceAction::Sync, 1, 0, 0, false));
    assert!((5_000_000..60_000_000).contains(&sync), "{sync} ns");
    let again = runner.complete(&request(DeviceAction::Sync, 1, 0, 0, false));
    assert!(again <= 200_000, "nothing is left to flush: {again} ns");
    // Once the cache is full, writes wait for the arm.
    let full = random(&cached, 1, true, 5000);
    assert!((60.0..1000.0).contains(&full), "{full:.0}/s");
}

#[test]
fn disks_of_one_profile_differ_in_their_initial_angle() {
    let took = |seed| Runner::new(plain().build(seed)).complete(&direct_read(1, 100_000, 4096));
    assert_eq!(took(1), took(1));
    assert_ne!(took(1), took(2));
}
