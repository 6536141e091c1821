//! The fragment log against a naive model of bytes, with reopening, kills and losses of power.

use crate::fragments_support::*;
use std::cell::RefCell;
use std::io::{IoSlice, IoSliceMut};
use std::path::Path;
use weft_core::{ByteLen, DataClass, Nanos};
use weft_env::sim::{DiskFaults, Payload, Sim, SimConfig};
use weft_env::{Dir, Env, File, OpenMode};
use weft_store::fragments::{FragmentLog, LogError, LogSpec, OpenLogError, SEGMENTS, Tag};

#[test]
fn puts_are_readable_at_once_and_after_a_restart() {
    simulate(1, |env| async move {
        let (log, recovered) = FragmentLog::open(&env, &spec()).await.expect("created");
        assert!(recovered.is_new);
        log.put(key(1), at(100), b"hello", dirty(1)).await.expect("room");
        log.put(key(1), at(102), b"LL", dirty(2)).await.expect("room");
        assert_eq!(
            bytes_of(&log, key(1), 98..107).await,
            [None, None, Some(b'h'), Some(b'e'), Some(b'L'), Some(b'L'), Some(b'o'), None, None]
        );
        let cached = log.cached(key(1)).expect("some");
        assert_eq!((cached.end, cached.dirty), (ByteLen(105), ByteLen(5)));
        assert_eq!(log.stats().classes[DataClass::FRAGMENT.index()].dirty, ByteLen(5));
        log.close().await.expect("orderly");
        let (log, recovered) = FragmentLog::open(&env, &spec()).await.expect("opens");
        assert_eq!((recovered.dirty, recovered.torn), (ByteLen(5), 0));
        assert_eq!(bytes_of(&log, key(1), 100..105).await, b"heLLo".map(Some));
        log.close().await.expect("orderly");
    });
}

#[test]
fn a_log_that_does_not_fit_on_the_ssd_says_so() {
    let mut sim = Sim::with_seed(4);
    let node = node(&sim);
    let faults = DiskFaults { capacity_bytes: 100_000, ..DiskFaults::default() };
    sim.set_disk_faults(&node, Path::new("/ssd"), faults);
    let env = node.clone();
    sim.block_on(&node, async move {
        let Err(error) = FragmentLog::open(&env, &spec()).await else { panic!("there is no space") };
        let said = error.to_string();
        assert!(said.starts_with("/ssd: format the fragment log: ") && said.contains("free space"), "{said}");
    });
}

#[test]
fn sizes_change_when_nothing_is_dirty() {
    simulate(2, |env| async move {
        let (log, _) = FragmentLog::open(&env, &spec_of(16)).await.expect("created");
        log.put(key(1), at(0), &[1; 100], dirty(1)).await.expect("room");
        log.put(key(2), at(0), &[2; 100], copy()).await.expect("room");
        log.close().await.expect("orderly");
        let (log, recovered) = FragmentLog::open(&env, &spec_of(20)).await.expect("opens");
        assert!(!recovered.is_new);
        assert_eq!(log.stats().segments, 16, "it has bytes that the disk does not have");
        log.mark_clean(&log.dirty_pieces(None, ByteLen(1))).await.expect("clean");
        log.close().await.expect("orderly");
        let (log, recovered) = FragmentLog::open(&env, &spec_of(20)).await.expect("formatted again");
        assert!(recovered.is_new);
        assert_eq!((log.stats().segments, log.spec().size), (20, ByteLen(20 * SEGMENT_LEN)));
        assert!(log.find(key(1), range(0, 100)).is_empty());
        log.close().await.expect("orderly");
    });
}

#[test]
fn pinned_pieces_are_not_overwritten() {
    simulate(3, |env| async move {
        let (log, _) = FragmentLog::open(&env, &spec()).await.expect("created");
        log.put(key(0), at(0), &[7; 4096], dirty(1)).await.expect("room");
        let held = log.find(key(0), range(0, 4096));
        log.remove(key(0)).await.expect("removed");
        // Fill the whole log several times.
        for round in 0..400u64 {
            let bytes = [round as u8; 8192];
            while log.put(key(1), at(round % 20 * 8192), &bytes, dirty(1)).await.is_err() {
                env.sleep(Nanos::from_ms(1)).await;
            }
        }
        let mut bytes = [0; 4096];
        log.read(&held[0], &mut bytes).await.expect("still there");
        assert_eq!(bytes, [7; 4096]);
        drop(held);
        assert!(log.stats().put.0 > 3 * log.spec().size.0);
        log.close().await.expect("orderly");
    });
}

#[test]
fn a_log_of_version_1_is_read_and_becomes_version_2() {
    simulate(14, |env| async move {
        let (log, _) = FragmentLog::open(&env, &spec()).await.expect("created");
        let random = Tag { class: DataClass::RANDOM, ..copy() };
        log.put(key(1), at(0), &[1; 4096], dirty(1)).await.expect("room");
        log.put(key(1), at(8192), &[2; 4096], random).await.expect("room");
        log.close().await.expect("orderly");
        let dir = env.dir(&spec().path).await.expect("the log");
        let identity = dir.open("weft-fragments", OpenMode::WRITE).await.expect("an identity");
        let mut bytes = [0; 44];
        identity.read_at(&mut [IoSliceMut::new(&mut bytes)], at(0)).await.expect("read");
        assert_eq!(bytes[8], 2);
        // The fields are the same.
        bytes[8] = 1;
        let crc = crc32fast::hash(&bytes[..40]);
        bytes[40..].copy_from_slice(&crc.to_le_bytes());
        identity.write_at(&[IoSlice::new(&bytes)], at(0)).await.expect("written");
        let (log, found) = FragmentLog::open(&env, &spec()).await.expect("version 1");
        assert_eq!((found.is_new, found.dirty, found.clean), (false, ByteLen(4096), ByteLen(4096)));
        assert_eq!(log.class_bytes(DataClass::FRAGMENT).0, ByteLen(4096));
        assert_eq!(log.class_bytes(DataClass::RANDOM).1, ByteLen(4096));
        let cached = Tag { class: DataClass::CACHED, ..copy() };
        log.put(key(2), at(0), &[3; 4096], cached).await.expect("room");
        let identity = dir.open("weft-fragments", OpenMode::READ).await.expect("an identity");
        identity.read_at(&mut [IoSliceMut::new(&mut bytes)], at(0)).await.expect("read");
        assert_eq!(bytes[8], 2, "before the first record that version 1 does not know");
        assert_eq!(
            log.evict_range(key(2), range(1024, 2048), DataClass::CACHED).await.ok(),
            Some(ByteLen(1024))
        );
        assert_eq!(log.extents(key(2), range(0, 4096)), [range(0, 1024), range(2048, 4096)]);
        log.close().await.expect("orderly");
    });
}

#[test]
fn a_log_that_must_exist_is_not_formatted() {
    simulate(15, |env| async move {
        let must_exist = LogSpec { must_exist: true, ..spec() };
        let Err(gone) = FragmentLog::open(&env, &must_exist).await else { panic!("formatted") };
        assert!(matches!(gone, OpenLogError::Gone { .. }), "{gone}");
        let (log, _) = FragmentLog::open(&env, &spec()).await.expect("created");
        log.close().await.expect("orderly");
        let (log, found) = FragmentLog::open(&env, &must_exist).await.expect("it exists");
        assert!(!found.is_new);
        log.close().await.expect("orderly");
    });
}

#[test]
fn a_full_class_evicts_its_own_clean_bytes_only() {
    simulate(4, |env| async move {
        let (log, _) = FragmentLog::open(&env, &spec()).await.expect("created");
        log.set_quotas([ByteLen(64 << 10), ByteLen(32 << 10), ByteLen(0)]);
        let random = Tag { class: DataClass::RANDOM, ..copy() };
        for number in 0..8 {
            log.put(key(1), at(number * 10_000), &[1; 4096], random).await.expect("room");
        }
        log.put(key(2), at(0), &[2; 4096], copy()).await.expect("room");
        // The first entry has been used, so the second one is evicted.
        assert_eq!(log.find(key(1), range(0, 4096)).len(), 1);
        for number in 8..12 {
            log.put(key(1), at(number * 10_000), &[1; 4096], random).await.expect("others go");
        }
        assert!(log.overlap(key(1), range(0, 4096)).any, "it was used");
        assert!(!log.overlap(key(1), range(10_000, 14_096)).any, "it was not");
        assert!(log.overlap(key(2), range(0, 4096)).any, "it belongs to another class");
        let bytes = |class: DataClass| log.stats().classes[class.index()];
        assert!(bytes(DataClass::RANDOM).clean <= ByteLen(32 << 10));
        assert_eq!(bytes(DataClass::RANDOM).gain / 1000, 999, "nearly a millisecond, in units of 1,024 ns");

        for number in 0..16 {
            let put = log.put(key(3), at(number * 10_000), &[3; 4096], dirty(1)).await;
            assert_eq!(put.is_ok(), number < 16, "up to the quota: clean bytes have been evicted");
        }
        assert!(!log.overlap(key(2), range(0, 4096)).any);
        let full = log.put(key(3), at(1 << 20), &[3; 4096], dirty(1)).await;
        assert!(matches!(full, Err(LogError::Full)));
        log.put(key(3), at(0), &[4; 4096], dirty(1))
            .await
            .expect("dirty bytes can be overwritten in the log only");
        log.mark_clean(&log.dirty_pieces(None, ByteLen(1 << 20))).await.expect("clean");
        log.put(key(3), at(1 << 20), &[3; 4096], dirty(1)).await.expect("clean bytes are evicted");

        log.set_quotas([ByteLen(8192), ByteLen(8192), ByteLen(0)]);
        env.sleep(Nanos::from_ms(5)).await;
        assert!(log.stats().clean() <= ByteLen(2 * 8192), "{:?}", log.stats());
        log.close().await.expect("orderly");
    });
}

#[test]
fn lengths_are_kept_without_payload_bytes() {
    let config = SimConfig { seed: 5, payload: Payload::Lengths, ..SimConfig::default() };
    let mut sim = Sim::new(config);
    let mut machine = node(&sim);
    sim.keep_lengths(&machine, Path::new("/ssd"), SEGMENTS, &[]);
    for life in 0..3 {
        let env = machine.clone();
        sim.block_on(&machine, async move {
            let (log, recovered) = FragmentLog::open(&env, &spec()).await.expect("opens");
            assert_eq!((recovered.dirty, recovered.torn), (ByteLen(if life == 0 { 0 } else { 30_000 }), 0));
            let payload = env.hollow(30_000).expect("a buffer");
            log.put(key(1), at(0), &payload, dirty(1)).await.expect("room");
            // A small payload arrives with bytes, which are not kept either.
            log.put(key(1), at(100), &[1; 50], dirty(1)).await.expect("room");
            for round in 0..200 {
                let _ = log.put(key(2), at(round % 7 * 4096), &payload[..8192], copy()).await;
            }
            let mut buf = env.hollow(30_000).expect("a buffer");
            for piece in log.find(key(1), range(0, 30_000)) {
                log.read(&piece, &mut buf[..piece.extent().len() as usize]).await.expect("opens");
            }
            log.sync().await.expect("synced");
        });
        sim.power_cut(&machine);
        machine = sim.restart(&machine);
    }
}

#[test]
fn puts_during_a_checkpoint_are_in_it_or_after_it() {
    let mut checkpoints = 0;
    for seed in 0..20 {
        let done = RefCell::new(Vec::new());
        let opened = RefCell::new(None);
        let mut sim = Sim::with_seed(seed);
        let machine = node(&sim);
        let env = machine.clone();
        let log =
            sim.block_on(
                &machine,
                async move { FragmentLog::open(&env, &spec_of(64)).await.expect("created").0 },
            );
        opened.replace(Some(log.clone()));
        for task in 0..4u64 {
            let (log, done) = (log.clone(), &done);
            sim.start(&machine, "putter", async move {
                for number in 0..100 {
                    let bytes = [task as u8 * 50 + number as u8 % 50; 24];
                    log.put(key(task), at(number * 100), &bytes, dirty(1)).await.expect("room");
                    done.borrow_mut().push((task, number));
                }
            });
        }
        drop(log);
        // Some tasks are killed in between.
        sim.run_for(Nanos(200_000 * (1 + seed)));
        checkpoints += opened.take().map_or(0, |log: FragmentLog<_>| log.stats().checkpoints);
        sim.kill(&machine);
        let machine = sim.restart(&machine);
        let (env, done) = (machine.clone(), done.take());
        assert!(!done.is_empty());
        sim.block_on(&machine, async move {
            let (log, _) = FragmentLog::open(&env, &spec_of(64)).await.expect("opens");
            for (task, number) in done {
                let start = number * 100;
                let found = bytes_of(&log, key(task), start..start + 24).await;
                assert_eq!(
                    found,
                    [Some(task as u8 * 50 + number as u8 % 50); 24],
                    "seed {seed}: {task} {number}"
                );
            }
        });
    }
    assert!(checkpoints > 10, "{checkpoints}");
}
