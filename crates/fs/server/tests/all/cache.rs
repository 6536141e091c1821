//! The read and write cache on an SSD beside a disk, against a naive model of bytes: random requests of several clients
//! at once, interrupted in all ways. Reads return the newest bytes. A cache that has copies only never loses any.

use crate::support::*;
use crate::tier_support::*;
use std::path::Path;
use weft_core::cache::{CacheMode, EvictionPolicy};
use weft_core::ibridge::Policy;
use weft_core::{ByteLen, Nanos, TargetId};
use weft_env::sim::{DiskFaults, SimpleDisk};
use weft_env::{Dir, Env};
use weft_server::Server;
use weft_store::target::Module;
use weft_wire::data::{DataReply, DataRequest};
use weft_wire::status::{CacheStatus, SsdStatus, StatusReply, StatusRequest};

const MODES: [CacheMode; 3] = [CacheMode::Read, CacheMode::WriteThrough, CacheMode::WriteBack];

/// All modes, with and without iBridge.
fn plan(seed: u64) -> Plan {
    let policies = [None, Some(Policy::Ibridge), None, Some(Policy::DETOUR)];
    Plan {
        cache: Some((MODES[(seed % 3) as usize], EvictionPolicy::ALL[(seed / 3 % 2) as usize])),
        policy: policies[(seed / 3 % 4) as usize],
        module: if seed % 5 == 2 { Module::Direct } else { Module::Buffered },
        // The small log is always full.
        size: if seed % 4 < 2 { ByteLen(512 << 10) } else { ByteLen(2 << 20) },
    }
}

fn alone(mode: CacheMode, size: ByteLen) -> Plan {
    Plan { policy: None, cache: Some((mode, EvictionPolicy::S3Fifo)), module: Module::Buffered, size }
}

fn add(totals: &mut CacheStatus, status: &SsdStatus) {
    let cache = status.cache.clone().unwrap_or_default();
    totals.bytes_hit.0 += cache.bytes_hit.0;
    totals.bytes_evicted.0 += cache.bytes_evicted.0;
    totals.bytes_prefetched.0 += cache.bytes_prefetched.0;
    totals.rejected += cache.rejected;
}

#[test]
fn reads_return_the_newest_bytes_across_every_end() {
    let mut totals = CacheStatus::default();
    for seed in 0..seeds(12) {
        let plan = plan(seed);
        eprintln!("seed {seed}: {plan:?}");
        add(
            &mut totals,
            &live(seed, plan, &[End::Stop, End::Kill, End::PowerCut, End::Hurry, End::PowerCut]),
        );
    }
    eprintln!("{totals:?}");
    assert!(totals.bytes_hit.0 > 1 << 20 && totals.bytes_evicted.0 > 1 << 20 && totals.rejected > 100);
}

#[test]
fn power_may_be_cut_at_any_sync() {
    for seed in 200..200 + seeds(3) {
        let plan = plan(seed);
        eprintln!("seed {seed}: {plan:?}");
        for sync in 0..20 {
            live(seed, plan, &[End::CutAtSync(sync), End::CutAtSync(1 + sync % 5)]);
        }
    }
}

#[test]
fn a_failed_ssd_causes_errors_only_if_it_had_the_only_copy() {
    for seed in 100..100 + seeds(9) {
        let plan = plan(seed);
        eprintln!("seed {seed}: {plan:?}");
        live(seed, plan, &[End::Kill, End::BadSsd, End::Kill]);
    }
}

#[test]
fn modes_may_change_at_every_start() {
    for seed in 300..300 + seeds(6) {
        let mut world = World::new(seed, plan(seed));
        for life in 0..6 {
            let plan = plan(seed + life * 5);
            eprintln!("seed {seed}, life {life}: {plan:?}");
            world.plan = Plan { size: world.plan.size, ..plan };
            let end = [End::Kill, End::Stop, End::PowerCut][(life % 3) as usize];
            let server = world.start();
            world.work(&server, end);
            let _again = world.start();
            let count = |model: &Model| match end {
                End::PowerCut => model.versions.len(),
                _ => 1 + usize::from(model.in_doubt),
            };
            world.check(count, &format!("seed {seed}, life {life}"));
            world.control.kill(&world.storage);
            world.storage = world.control.restart(&world.storage);
        }
    }
}

/// Reads or writes `count` ranges of 16 KiB, and returns the status of the SSD.
fn serve(world: &mut World, session: u64, writes: bool, ranges: Vec<u64>) -> SsdStatus {
    const LEN: u64 = 16 << 10;
    let env = world.compute.clone();
    world.sim.block_on(&world.compute, async move {
        let mut asker = Asker::connect(&env, session, true).await;
        for number in ranges {
            let (part, bytes) = (datafile(0, 1, 0), pattern(LEN as usize, number));
            if writes {
                assert!(matches!(asker.write(part, number * LEN, &bytes).await, Ok(DataReply::Written)));
            } else {
                let Ok((DataReply::Read { .. }, seen)) = asker.read(part, number * LEN, LEN as u32).await
                else {
                    panic!("no bytes")
                };
                assert!(seen == bytes, "range {number}");
            }
        }
        env.sleep(Nanos::from_ms(50)).await;
        let StatusReply::Status(status) = asker.client.status(StatusRequest::Status).await else {
            panic!("no status")
        };
        status.targets[0].ssd.clone().expect("an SSD")
    })
}

fn cache_of(status: &SsdStatus) -> CacheStatus {
    status.cache.clone().expect("a cache")
}

#[test]
fn reads_are_kept_at_the_second_access_and_stay_across_restarts() {
    for mode in MODES {
        let mut world = World::new(1, alone(mode, ByteLen(4 << 20)));
        let server = world.start();
        // Beyond the cache's capacity, so that the first ranges have left it.
        serve(&mut world, 1, true, (0..600).collect());
        let hot: Vec<u64> = (0..40).map(|number| number * 7 % 97).collect();
        serve(&mut world, 2, false, hot.clone());
        serve(&mut world, 2, false, hot.clone());
        let before = cache_of(&serve(&mut world, 2, false, vec![]));
        let after = cache_of(&serve(&mut world, 2, false, hot.clone()));
        let hit = after.bytes_hit.0 - before.bytes_hit.0;
        // The log may have dropped a few copies to free a segment.
        let most = 36 * (16 << 10);
        assert!(hit >= most, "{mode}: the third access hits {hit} bytes");
        // An orderly end and another boot.
        world.sim.block_on(&world.storage, async move { server.stop().await });
        world.control.power_cut(&world.storage);
        world.storage = world.control.restart(&world.storage);
        let _server = world.start();
        let again = cache_of(&serve(&mut world, 3, false, hot.clone()));
        assert!(again.bytes_hit.0 >= most, "{mode}: an orderly boot: {again:?}");
        // A killed server: nothing proves that the SSD still has all notes about newer bytes on the disk.
        world.control.kill(&world.storage);
        world.storage = world.control.restart(&world.storage);
        let _server = world.start();
        let again = cache_of(&serve(&mut world, 4, false, hot));
        assert!(again.bytes_hit.0 < most, "{mode}: a kill: {again:?}");
    }
}

#[test]
fn written_bytes_are_where_the_mode_says() {
    for mode in MODES {
        let mut world = World::new(2, alone(mode, ByteLen(8 << 20)));
        let _server = world.start();
        let written = (0..64).map(|number| number * 5 % 64).collect::<Vec<_>>();
        let status = serve(&mut world, 1, true, written.clone());
        let cached = status.class("cached");
        match mode {
            CacheMode::Read | CacheMode::Off => assert_eq!(cached.bytes, ByteLen(0)),
            CacheMode::WriteThrough => assert_eq!((cached.bytes.0, status.dirty.0), (64 * (16 << 10), 0)),
            CacheMode::WriteBack => {
                assert_eq!(cached.bytes.0, 64 * (16 << 10));
                assert_eq!(status.bytes_written.0, 64 * (16 << 10));
            }
        }
        assert_eq!(status.policy, "off");
        assert_eq!(status.partition, "cache 100 %");
        let hits = cache_of(&serve(&mut world, 2, false, written)).bytes_hit.0;
        assert_eq!(hits > 0, mode != CacheMode::Read, "{mode}");
    }
}

#[test]
fn bytes_are_read_ahead_of_a_sequential_reader() {
    let mut world = World::new(7, alone(CacheMode::Read, ByteLen(8 << 20)));
    let _server = world.start();
    serve(&mut world, 1, true, (0..64).collect());
    let env = world.compute.clone();
    world.sim.block_on(&world.compute, async move {
        let mut asker = Asker::connect(&env, 2, true).await;
        for number in 0..64 {
            // The program works on what it has read.
            env.sleep(Nanos::from_ms(3)).await;
            let Ok((DataReply::Read { .. }, seen)) =
                asker.read(datafile(0, 1, 0), number * (16 << 10), 16 << 10).await
            else {
                panic!("no bytes")
            };
            assert!(seen == pattern(16 << 10, number), "range {number}");
        }
    });
    let cache = cache_of(&serve(&mut world, 3, false, vec![]));
    assert!(cache.bytes_prefetched.0 > 16 * (16 << 10), "{cache:?}");
    assert!(cache.bytes_hit.0 > 32 * (16 << 10), "{cache:?}");
}

#[test]
fn a_scan_leaves_the_hot_set() {
    let mut world = World::new(3, alone(CacheMode::Read, ByteLen(4 << 20)));
    let _server = world.start();
    serve(&mut world, 1, true, (0..2600).collect());
    let hot: Vec<u64> = (0..100).map(|number| number * 13 % 1301).collect();
    for _ in 0..4 {
        serve(&mut world, 2, false, hot.clone());
    }
    let ratio = |world: &mut World| {
        let before = cache_of(&serve(world, 2, false, vec![]));
        let after = cache_of(&serve(world, 2, false, hot.clone()));
        let (hit, missed) =
            (after.bytes_hit.0 - before.bytes_hit.0, after.bytes_missed.0 - before.bytes_missed.0);
        100 * hit / (hit + missed)
    };
    let before = ratio(&mut world);
    // Ten times the size of the cache.
    serve(&mut world, 3, false, (0..2560).collect());
    let after = ratio(&mut world);
    assert!(before >= 95 && after + 5 >= before, "{before} % before the scan, {after} % after");
}

#[test]
fn a_missing_ssd_of_a_cache_with_copies_only_does_not_stop_the_server() {
    for mode in [CacheMode::Read, CacheMode::WriteThrough] {
        let mut world = World::new(4, alone(mode, ByteLen(4 << 20)));
        let _server = world.start();
        serve(&mut world, 1, true, (0..40).collect());
        serve(&mut world, 2, false, (0..40).collect());
        serve(&mut world, 2, false, (0..40).collect());
        world.control.kill(&world.storage);
        let gone = DiskFaults {
            read_errors_per_million: 1_000_000,
            write_errors_per_million: 1_000_000,
            ..DiskFaults::default()
        };
        world.control.set_disk_faults(&world.storage, Path::new("/ssd"), gone);
        world.storage = world.control.restart(&world.storage);
        let _server = world.start();
        let status = serve(&mut world, 3, false, (0..40).collect());
        assert!(status.failed.is_some_and(|why| why.contains("/ssd/log")), "{mode}");
        assert!(status.cache.is_none());
        // Newer bytes on the disk alone; the SSD comes back with older copies.
        let env = world.compute.clone();
        world.sim.block_on(&world.compute, async move {
            let mut asker = Asker::connect(&env, 4, true).await;
            let written = asker.write(datafile(0, 1, 0), 0, &[9; 16 << 10]).await;
            assert!(matches!(written, Ok(DataReply::Written)));
        });
        world.control.kill(&world.storage);
        world.control.set_disk_faults(&world.storage, Path::new("/ssd"), DiskFaults::default());
        world.storage = world.control.restart(&world.storage);
        let _server = world.start();
        let env = world.compute.clone();
        world.sim.block_on(&world.compute, async move {
            let mut asker = Asker::connect(&env, 5, true).await;
            let Ok((DataReply::Read { .. }, seen)) = asker.read(datafile(0, 1, 0), 0, 16 << 10).await else {
                panic!("no bytes")
            };
            assert!(seen.iter().all(|&byte| byte == 9), "{mode}: copies that are older than the disk");
        });
    }
}

/// Starts the server, and returns the error that refuses the start.
fn refusal(world: &mut World) -> String {
    let (env, config) = (world.storage.clone(), server_config(world.plan));
    let started = world.sim.block_on(&world.storage, async move { Server::start(env, config).await });
    started.err().expect("refused").to_string()
}

#[test]
fn a_replaced_or_removed_ssd_with_the_only_copy_is_refused() {
    let mut world = World::new(5, alone(CacheMode::WriteBack, ByteLen(4 << 20)));
    let _server = world.start();
    serve(&mut world, 1, true, (0..40).collect());
    world.control.kill(&world.storage);
    world.storage = world.control.restart(&world.storage);
    // Another, empty SSD is mounted at the same place.
    let blank = world.control.blank_disk(Box::new(SimpleDisk::default()));
    let right = world.control.swap_disk(&world.storage, Path::new("/ssd"), blank);
    let env = world.storage.clone();
    world.sim.block_on(&world.storage, async move {
        let root = env.dir(Path::new("/ssd")).await.expect("a disk");
        root.make_dir("log").await.expect("a folder");
    });
    let why = refusal(&mut world);
    assert!(why.contains("/ssd/log: no fragment log is here") && why.contains("/hdd/t0/beside"), "{why}");
    // The section was removed.
    let plan = world.plan;
    world.plan.cache = None;
    let why = refusal(&mut world);
    assert!(why.contains("[server.target.cache]") && why.contains("/ssd/log"), "{why}");
    // The right SSD is back.
    world.control.swap_disk(&world.storage, Path::new("/ssd"), right);
    world.plan = plan;
    let _server = world.start();
    serve(&mut world, 2, false, (0..40).collect());
}

#[test]
fn bytes_lost_with_a_write_back_cache_are_named() {
    let mut world = World::new(6, alone(CacheMode::WriteBack, ByteLen(4 << 20)));
    let _server = world.start();
    let (env, storage, control) = (world.compute.clone(), world.storage.clone(), world.control.clone());
    world.sim.block_on(&world.compute, async move {
        let mut asker = Asker::connect(&env, 1, true).await;
        let part = datafile(0, 1, 0);
        assert!(matches!(asker.write(part, 0, &[1; 50_000]).await, Ok(DataReply::Written)));
        let faults = DiskFaults {
            write_errors_per_million: 1_000_000,
            read_errors_per_million: 1_000_000,
            ..DiskFaults::default()
        };
        control.set_disk_faults(&storage, Path::new("/ssd"), faults);
        // The disk gets these, after a note of what the SSD has.
        assert!(matches!(asker.write(part, 20_000, &[2; 5_000]).await, Ok(DataReply::Written)));
        let (reply, _) = asker.read(part, 0, 10_000).await.ok().expect("a reply");
        let DataReply::Failed(error) = reply else { panic!("{reply:?}") };
        assert!(error.detail.contains("from 0") && error.detail.contains("/ssd/log"), "{error}");
        let (reply, seen) = asker.read(part, 20_000, 5_000).await.ok().expect("a reply");
        assert!(matches!(reply, DataReply::Read { .. }) && seen.iter().all(|&byte| byte == 2));
        let flush = DataRequest::Flush { target: TargetId(0), from: None };
        let _ = asker.ask(&flush, &[]).await;
        let StatusReply::Status(status) = asker.client.status(StatusRequest::Status).await else {
            panic!("no status")
        };
        let ssd = status.targets[0].ssd.clone().expect("an SSD");
        assert!(ssd.failed.is_some() && ssd.lost > ByteLen(0), "{ssd:?}");
    });
}

#[test]
fn runs_depend_only_on_the_seed() {
    let once = |seed| live(seed, plan(seed), &[End::Kill, End::Stop]);
    assert_eq!(once(5), once(5));
}
