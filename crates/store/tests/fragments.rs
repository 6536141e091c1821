//! The fragment log against a naive model of bytes, with reopening, kills and loss of power.

mod fragments_support;

use fragments_support::*;
use std::cell::RefCell;
use std::path::Path;
use weft_core::ibridge::Class;
use weft_core::{ByteLen, Nanos};
use weft_env::Env;
use weft_env::sim::{Payload, Sim, SimConfig};
use weft_store::fragments::{FragmentLog, LogError, SEGMENTS, Tag};

#[test]
fn what_was_put_is_read_again_and_after_a_restart() {
    let mut sim = Sim::with_seed(1);
    let node = node(&sim);
    let env = node.clone();
    sim.block_on(&node, async move {
        let (log, recovered) = FragmentLog::open(&env, &spec()).await.expect("made");
        assert!(recovered.is_new);
        log.put(key(1), at(100), b"hello", dirty(1)).await.expect("room");
        log.put(key(1), at(102), b"LL", dirty(2)).await.expect("room");
        assert_eq!(
            bytes_of(&log, key(1), 98..107).await,
            [None, None, Some(b'h'), Some(b'e'), Some(b'L'), Some(b'L'), Some(b'o'), None, None]
        );
        let cached = log.cached(key(1)).expect("some");
        assert_eq!((cached.end, cached.dirty), (ByteLen(105), ByteLen(5)));
        assert_eq!(log.stats().classes[Class::Fragment.index()].dirty, ByteLen(5));
        log.close().await.expect("orderly");
        let (log, recovered) = FragmentLog::open(&env, &spec()).await.expect("there");
        assert_eq!((recovered.dirty, recovered.torn), (ByteLen(5), 0));
        assert_eq!(bytes_of(&log, key(1), 100..105).await, b"heLLo".map(Some));
        log.close().await.expect("orderly");
    });
}

#[test]
fn other_sizes_are_taken_when_nothing_is_dirty() {
    let mut sim = Sim::with_seed(2);
    let node = node(&sim);
    let env = node.clone();
    sim.block_on(&node, async move {
        let (log, _) = FragmentLog::open(&env, &spec_of(16)).await.expect("made");
        log.put(key(1), at(0), &[1; 100], dirty(1)).await.expect("room");
        log.put(key(2), at(0), &[2; 100], copy()).await.expect("room");
        log.close().await.expect("orderly");
        let (log, recovered) = FragmentLog::open(&env, &spec_of(20)).await.expect("there");
        assert!(!recovered.is_new);
        assert_eq!(log.stats().segments, 16, "it has bytes that the disk does not have");
        log.written_back(&log.dirty_runs(None, ByteLen(1))).await.expect("clean");
        log.close().await.expect("orderly");
        let (log, recovered) = FragmentLog::open(&env, &spec_of(20)).await.expect("made anew");
        assert!(recovered.is_new);
        assert_eq!((log.stats().segments, log.spec().size), (20, ByteLen(20 * SEGMENT_LEN)));
        assert!(log.find(key(1), range(0, 100)).is_empty());
        log.close().await.expect("orderly");
    });
}

#[test]
fn pieces_that_somebody_holds_are_not_overwritten() {
    let mut sim = Sim::with_seed(3);
    let node = node(&sim);
    let env = node.clone();
    sim.block_on(&node, async move {
        let (log, _) = FragmentLog::open(&env, &spec()).await.expect("made");
        log.put(key(0), at(0), &[7; 4096], dirty(1)).await.expect("room");
        let held = log.find(key(0), range(0, 4096));
        log.remove(key(0)).await.expect("removed");
        // The whole log several times over.
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
fn a_class_that_has_its_share_gives_way_to_itself_and_dirty_bytes_to_nobody() {
    let mut sim = Sim::with_seed(4);
    let node = node(&sim);
    let env = node.clone();
    sim.block_on(&node, async move {
        let (log, _) = FragmentLog::open(&env, &spec()).await.expect("made");
        log.set_quotas([ByteLen(64 << 10), ByteLen(32 << 10)]);
        let random = Tag { class: Class::Random, ..copy() };
        for number in 0..8 {
            log.put(key(1), at(number * 10_000), &[1; 4096], random).await.expect("room");
        }
        log.put(key(2), at(0), &[2; 4096], copy()).await.expect("room");
        // The first is used, so that it is the second that goes.
        assert_eq!(log.find(key(1), range(0, 4096)).len(), 1);
        for number in 8..12 {
            log.put(key(1), at(number * 10_000), &[1; 4096], random).await.expect("others go");
        }
        assert!(log.overlap(key(1), range(0, 4096)).any, "it was used");
        assert!(!log.overlap(key(1), range(10_000, 14_096)).any, "it was not");
        assert!(log.overlap(key(2), range(0, 4096)).any, "it is of another class");
        let bytes = |class: Class| log.stats().classes[class.index()];
        assert!(bytes(Class::Random).clean <= ByteLen(32 << 10));
        assert_eq!(bytes(Class::Random).gain / 1000, 999, "nearly a millisecond, in units of 1,024 ns");

        for number in 0..16 {
            let put = log.put(key(3), at(number * 10_000), &[3; 4096], dirty(1)).await;
            assert_eq!(put.is_ok(), number < 16, "up to the share: what is clean has gone");
        }
        assert!(!log.overlap(key(2), range(0, 4096)).any);
        let full = log.put(key(3), at(1 << 20), &[3; 4096], dirty(1)).await;
        assert!(matches!(full, Err(LogError::Full)));
        log.put(key(3), at(0), &[4; 4096], dirty(1)).await.expect("over dirty bytes there is no other place");
        log.written_back(&log.dirty_runs(None, ByteLen(1 << 20))).await.expect("clean");
        log.put(key(3), at(1 << 20), &[3; 4096], dirty(1)).await.expect("what is clean goes");

        log.set_quotas([ByteLen(8192), ByteLen(8192)]);
        env.sleep(Nanos::from_ms(5)).await;
        assert!(log.stats().clean() <= ByteLen(2 * 8192), "{:?}", log.stats());
        log.close().await.expect("orderly");
    });
}

#[test]
fn lengths_are_kept_where_payloads_have_no_bytes() {
    let config = SimConfig { seed: 5, payload: Payload::Lengths, ..SimConfig::default() };
    let mut sim = Sim::new(config);
    let mut machine = node(&sim);
    sim.keep_lengths(&machine, Path::new("/ssd"), SEGMENTS);
    for life in 0..3 {
        let env = machine.clone();
        sim.block_on(&machine, async move {
            let (log, recovered) = FragmentLog::open(&env, &spec()).await.expect("opens");
            assert_eq!((recovered.dirty, recovered.torn), (ByteLen(if life == 0 { 0 } else { 30_000 }), 0));
            let payload = env.hollow(30_000).expect("a buffer");
            log.put(key(1), at(0), &payload, dirty(1)).await.expect("room");
            // A small one comes with bytes, which are not kept all the same.
            log.put(key(1), at(100), &[1; 50], dirty(1)).await.expect("room");
            for round in 0..200 {
                let _ = log.put(key(2), at(round % 7 * 4096), &payload[..8192], copy()).await;
            }
            let mut buf = env.hollow(30_000).expect("a buffer");
            for piece in log.find(key(1), range(0, 30_000)) {
                log.read(&piece, &mut buf[..piece.extent().len() as usize]).await.expect("there");
            }
            log.sync().await.expect("synced");
        });
        sim.power_cut(&machine);
        machine = sim.restart(&machine);
    }
}

#[test]
fn puts_that_meet_a_checkpoint_are_in_it_or_behind_it() {
    let mut checkpoints = 0;
    for seed in 0..20 {
        let done = RefCell::new(Vec::new());
        let opened = RefCell::new(None);
        let mut sim = Sim::with_seed(seed);
        let machine = node(&sim);
        let env = machine.clone();
        let log = sim
            .block_on(&machine, async move { FragmentLog::open(&env, &spec_of(64)).await.expect("made").0 });
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
        // Some are killed on the way.
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
