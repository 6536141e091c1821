//! A server with an SSD beside its disk, against a naive model of bytes: random requests of several clients at once,
//! interrupted in all ways. Wherever bytes are stored, reads return the newest bytes, or after an SSD failure an error
//! that names the lost ones.

use crate::support::*;
use crate::tier_support::*;
use parking_lot::Mutex;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use weft_core::ibridge::Policy;
use weft_core::{ByteLen, LocalOffset, Nanos, TargetId};
use weft_env::sim::DiskFaults;
use weft_env::{Env, Notify};
use weft_store::target::Module;
use weft_wire::Errno;
use weft_wire::data::{DataReply, DataRequest};
use weft_wire::status::SsdStatus;

fn plan(seed: u64) -> Plan {
    let policies =
        [Policy::Threshold, Policy::Ibridge, Policy::Static { fragments: 1, random: 2 }, Policy::DETOUR];
    Plan {
        policy: Some(policies[(seed % 4) as usize]),
        cache: None,
        module: if seed % 3 == 2 { Module::Direct } else { Module::Buffered },
        // The small log is always full.
        size: if seed % 5 < 2 { ByteLen(512 << 10) } else { ByteLen(2 << 20) },
    }
}

#[test]
fn reads_return_the_newest_bytes_across_every_end() {
    let mut totals = SsdStatus::default();
    for seed in 0..seeds(8) {
        let plan = plan(seed);
        eprintln!("seed {seed}: {plan:?}");
        let ends = [End::Stop, End::Kill, End::PowerCut, End::Hurry, End::PowerCut];
        let status = live(seed, plan, &ends);
        totals.read_hits += status.read_hits;
        totals.read_partial_hits += status.read_partial_hits;
        totals.bytes_written.0 += status.bytes_written.0;
        totals.bytes_written_back.0 += status.bytes_written_back.0;
        totals.bytes_preloaded.0 += status.bytes_preloaded.0;
        totals.bytes_moved.0 += status.bytes_moved.0;
    }
    eprintln!("{totals:?}");
    assert!(totals.read_hits > 100 && totals.read_partial_hits > 100);
    assert!(totals.bytes_written.0 > 1 << 20 && totals.bytes_written_back.0 > 1 << 20);
    assert!(totals.bytes_preloaded.0 > 1 << 16);
}

#[test]
fn power_may_be_cut_at_any_sync() {
    for seed in 200..200 + seeds(2) {
        let plan = plan(seed);
        eprintln!("seed {seed}: {plan:?}");
        for sync in 0..25 {
            live(seed, plan, &[End::CutAtSync(sync), End::CutAtSync(1 + sync % 5)]);
        }
    }
}

#[test]
fn a_failed_ssd_causes_errors_and_never_old_bytes() {
    for seed in 100..100 + seeds(8) {
        let plan = plan(seed);
        eprintln!("seed {seed}: {plan:?}");
        live(seed, plan, &[End::Kill, End::BadSsd, End::Kill]);
    }
}

/// Possible values of each byte of a datafile: the number of the last acknowledged write, and of the last requested
/// one.
struct Marks {
    answered: Mutex<Vec<u8>>,
    requested: Mutex<Vec<u8>>,
}

#[test]
fn no_read_returns_bytes_older_than_at_its_start() {
    const LEN: u64 = 40_000;
    const WRITERS: u64 = 3;
    for seed in 300..300 + seeds(6) {
        let plan = plan(seed);
        eprintln!("seed {seed}: {plan:?}");
        let mut world = World::new(seed, plan);
        let server = world.start();
        let len = (LEN * WRITERS) as usize;
        let marks =
            Arc::new(Marks { answered: Mutex::new(vec![0; len]), requested: Mutex::new(vec![0; len]) });
        let (left, done) = (Arc::new(AtomicU64::new(WRITERS)), world.compute.notify());
        let part = datafile(0, 1, 0);
        for writer in 0..WRITERS {
            let (env, mut rng, marks) = (world.compute.clone(), world.control.rng(), Arc::clone(&marks));
            let (left, done) = (Arc::clone(&left), done.clone());
            let task = move || async move {
                let mut asker = Asker::connect(&env, 1 + writer, true).await;
                for number in 1..=200_u8 {
                    let len = 1 + if rng.below(3) == 0 { rng.below(LEN - 1) } else { rng.below(6000) };
                    let at = LEN * writer + rng.below(LEN - len + 1);
                    let range = at as usize..(at + len) as usize;
                    marks.requested.lock()[range.clone()].fill(number);
                    let Ok(reply) = asker.write(part, at, &vec![number; len as usize]).await else {
                        panic!("gone")
                    };
                    assert_eq!(reply, DataReply::Written);
                    marks.answered.lock()[range].fill(number);
                    if rng.below(5) == 0 {
                        env.sleep(Nanos::from_ms(rng.below(30))).await;
                    }
                    if rng.below(20) == 0 {
                        let flush = DataRequest::Flush { target: TargetId(0), from: None };
                        let flushed = asker.ask(&flush, &[]).await;
                        assert!(matches!(flushed, Ok((DataReply::Flushed { .. }, _))));
                    }
                }
                left.fetch_sub(1, Ordering::SeqCst);
                done.notify_all();
            };
            world.compute.spawn("writer", task).expect("a task");
        }
        for reader in 0..4 {
            let (env, mut rng, marks) = (world.compute.clone(), world.control.rng(), Arc::clone(&marks));
            let left = Arc::clone(&left);
            let task = move || async move {
                let mut asker = Asker::connect(&env, 10 + reader, true).await;
                while left.load(Ordering::SeqCst) > 0 {
                    let len = 1 + if rng.below(3) == 0 { rng.below(LEN) } else { rng.below(9000) };
                    let at = rng.below(LEN * WRITERS - len + 1);
                    let range = at as usize..(at + len) as usize;
                    let before = marks.answered.lock()[range.clone()].to_vec();
                    let Ok((DataReply::Read { .. }, seen)) = asker.read(part, at, len as u32).await else {
                        panic!("no bytes")
                    };
                    let after = marks.requested.lock()[range].to_vec();
                    for (index, (&oldest, &newest)) in before.iter().zip(&after).enumerate() {
                        let byte = seen.get(index).copied().unwrap_or(0);
                        assert!(
                            (oldest..=newest).contains(&byte),
                            "byte {} was {oldest} and is {byte}",
                            at as usize + index
                        );
                    }
                    if rng.below(3) == 0 {
                        env.sleep(Nanos::from_ms(rng.below(15))).await;
                    }
                }
            };
            world.compute.spawn("reader", task).expect("a task");
        }
        world.sim.block_on(&world.compute, async move {
            loop {
                let seen = done.epoch();
                if left.load(Ordering::SeqCst) == 0 {
                    break;
                }
                done.wait(seen, None).await;
            }
        });
        assert_eq!(server.panics(), 0);
    }
}

#[test]
fn truncated_bytes_do_not_reappear_from_the_disk() {
    for seed in 400..420 {
        let plan = Plan::of(Policy::Threshold, Module::Buffered, ByteLen(2 << 20));
        let mut world = World::new(seed, plan);
        let _server = world.start();
        let env = world.compute.clone();
        world.sim.block_on(&world.compute, async move {
            let mut asker = Asker::connect(&env, 1, true).await;
            let (part, other) = (datafile(0, 1, 0), datafile(0, 2, 0));
            let (cap, other_cap) = (asker.client.cap(1), asker.client.cap(2));
            let sync = |cap, part| DataRequest::Sync { cap, datafiles: vec![part] };
            let requests = [
                (part, vec![1; 60_000], true), // on the disk
                (part, vec![2; 5_000], true),  // on the SSD, over it
                (part, vec![], false),         // gone
                (other, vec![3; 5_000], true), // makes the log write its journal to the SSD
            ];
            for (of, bytes, synced) in requests {
                let reply = match bytes.is_empty() {
                    true => {
                        let cut = DataRequest::SetLens { cap, datafiles: vec![(of, ByteLen(0))] };
                        asker.ask(&cut, &[]).await.map(|(reply, _)| reply)
                    }
                    false => asker.write(of, 0, &bytes).await,
                };
                assert!(matches!(reply, Ok(DataReply::Written | DataReply::Done)));
                let cap = if of == part { cap } else { other_cap };
                if synced {
                    assert!(matches!(asker.ask(&sync(cap, of), &[]).await, Ok((DataReply::Done, _))));
                }
            }
        });
        world.control.power_cut(&world.storage);
        world.storage = world.control.restart(&world.storage);
        let _server = world.start();
        let env = world.compute.clone();
        world.sim.block_on(&world.compute, async move {
            let mut asker = Asker::connect(&env, 2, true).await;
            let Ok((DataReply::Read { .. }, seen)) = asker.read(datafile(0, 1, 0), 0, 5_000).await else {
                panic!("no bytes")
            };
            let whole = seen.iter().all(|&byte| byte == 2 || byte == 0);
            assert!(whole, "seed {seed}: {} bytes, of which some are {:?}", seen.len(), seen.first());
        });
    }
}

#[test]
fn bytes_of_a_failed_ssd_survive_power_failures_until_newer_bytes_do() {
    let mut newer = 0;
    for seed in 500..520 {
        let plan = Plan::of(Policy::Threshold, Module::Buffered, ByteLen(2 << 20));
        let mut world = World::new(seed, plan);
        let _server = world.start();
        let (env, storage, control) = (world.compute.clone(), world.storage.clone(), world.control.clone());
        world.sim.block_on(&world.compute, async move {
            let mut asker = Asker::connect(&env, 1, true).await;
            let part = datafile(0, 1, 0);
            let sync = DataRequest::Sync { cap: asker.client.cap(1), datafiles: vec![part] };
            // On the disk, and on the SSD over it.
            for bytes in [vec![1; 60_000], vec![2; 5_000]] {
                assert!(matches!(asker.write(part, 0, &bytes).await, Ok(DataReply::Written)));
                assert!(matches!(asker.ask(&sync, &[]).await, Ok((DataReply::Done, _))));
            }
            let faults = DiskFaults { write_errors_per_million: 1_000_000, ..DiskFaults::default() };
            control.set_disk_faults(&storage, Path::new("/ssd"), faults);
            assert!(matches!(asker.write(part, 0, &[3; 5_000]).await, Ok(DataReply::Written)));
        });
        world.control.power_cut(&world.storage);
        world.control.set_disk_faults(&world.storage, Path::new("/ssd"), DiskFaults::default());
        world.storage = world.control.restart(&world.storage);
        let _server = world.start();
        let env = world.compute.clone();
        let seen = world.sim.block_on(&world.compute, async move {
            let mut asker = Asker::connect(&env, 2, true).await;
            match asker.read(datafile(0, 1, 0), 0, 5_000).await {
                Ok((DataReply::Read { .. }, seen)) => seen,
                _ => panic!("no bytes"),
            }
        });
        assert!(seen.iter().all(|&byte| byte > 1), "seed {seed}: bytes older than the last sync");
        newer += u32::from(seen[0] == 3);
    }
    assert!(newer > 0, "the newer bytes survive sometimes");
}

#[test]
fn a_hole_leaves_the_length_that_a_failed_ssd_gave_a_datafile() {
    for seed in 700..720 {
        let plan = Plan::of(Policy::Threshold, Module::Buffered, ByteLen(2 << 20));
        let mut world = World::new(seed, plan);
        let _server = world.start();
        let (env, storage, control) = (world.compute.clone(), world.storage.clone(), world.control.clone());
        world.sim.block_on(&world.compute, async move {
            let mut asker = Asker::connect(&env, 1, true).await;
            let part = datafile(0, 1, 0);
            // On the disk, and on the SSD after that.
            for (offset, bytes) in [(0, [1; 60_000].as_slice()), (60_000, &[2; 5_000])] {
                assert!(matches!(asker.write(part, offset, bytes).await, Ok(DataReply::Written)));
            }
            let faults = DiskFaults { write_errors_per_million: 1_000_000, ..DiskFaults::default() };
            control.set_disk_faults(&storage, Path::new("/ssd"), faults);
            // From before the dirty bytes, or from the middle of them, to past their end.
            let from = [59_000, 60_000, 62_000][seed as usize % 3];
            let cap = asker.client.cap(1);
            let punch = DataRequest::Punch { cap, extents: vec![(part, LocalOffset(from), ByteLen(90_000))] };
            assert!(matches!(asker.ask(&punch, &[]).await, Ok((DataReply::Done, _))));
            let lens = DataRequest::GetLens { cap, datafiles: vec![part] };
            let Ok((DataReply::Lens(lens), _)) = asker.ask(&lens, &[]).await else { panic!("no lengths") };
            assert_eq!(lens[0].len, ByteLen(65_000), "seed {seed}");
            let Ok((DataReply::Read { .. }, seen)) = asker.read(part, from, 10_000).await else {
                panic!("no bytes");
            };
            assert_eq!(seen.len() as u64, 65_000 - from);
            assert!(seen.iter().all(|&byte| byte == 0), "seed {seed}: older bytes in the hole");
        });
    }
}

#[test]
fn a_datafile_being_removed_has_its_old_length_or_is_gone() {
    let (mut whole, mut refused) = (0, 0);
    for seed in 600..640 {
        let plan = Plan::of(Policy::Threshold, Module::Buffered, ByteLen(2 << 20));
        let mut world = World::new(seed, plan);
        let server = world.start();
        let env = world.compute.clone();
        let (seen, rejected) = world.sim.block_on(&world.compute, async move {
            let part = datafile(0, 1, 0);
            let mut asker = Asker::connect(&env, 1, true).await;
            // On the disk, and on the SSD after that.
            for (offset, bytes) in [(0, [1; 60_000].as_slice()), (60_000, &[2; 5_000])] {
                assert!(matches!(asker.write(part, offset, bytes).await, Ok(DataReply::Written)));
            }
            let other = env.clone();
            let remove = move || async move {
                let mut asker = Asker::connect(&other, 2, true).await;
                other.sleep(Nanos(1 + seed % 40 * 7_000)).await;
                let remove = DataRequest::Remove { datafiles: vec![part] };
                assert!(matches!(asker.ask(&remove, &[]).await, Ok((DataReply::Done, _))));
            };
            env.spawn("remover", remove).expect("a task");
            let (mut seen, mut rejected) = (0, 0);
            while rejected < 3 {
                let lens = DataRequest::GetLens { cap: asker.client.cap(1), datafiles: vec![part] };
                match asker.ask(&lens, &[]).await {
                    Ok((DataReply::Lens(lens), _)) => {
                        assert_eq!(lens[0].len, ByteLen(65_000), "seed {seed}");
                        seen += 1;
                    }
                    Ok((DataReply::Failed(error), _)) if error.errno == Errno::ESTALE => rejected += 1,
                    Ok((other, _)) => panic!("{other:?}"),
                    Err(_) => panic!("the server has ended"),
                }
            }
            (seen, rejected)
        });
        (whole, refused) = (whole + seen, refused + rejected);
        assert_eq!(server.panics(), 0);
    }
    assert!(whole > 40 && refused > 40, "{whole} and {refused}");
}

#[test]
fn runs_depend_only_on_the_seed() {
    let once = |seed| live(seed, plan(seed), &[End::Kill, End::Stop]);
    assert_eq!(once(5), once(5));
}
