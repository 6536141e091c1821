//! The fragment log on an SSD that fails, is damaged, or belongs to another target.

use crate::fragments_support::*;
use std::path::{Path, PathBuf};
use weft_core::ByteLen;
use weft_env::sim::{DiskFaults, Sim, SimEnv, SimpleDisk};
use weft_env::{Dir, Env, File, OpenMode};
use weft_store::fragments::{FragmentLog, LogError, LogSpec, OpenLogError, Recovered};

type Log = FragmentLog<SimEnv>;

async fn open(env: &SimEnv, spec: &LogSpec) -> (Log, Recovered) {
    FragmentLog::open(env, spec).await.expect("opens")
}

async fn refused(env: &SimEnv, spec: &LogSpec) -> OpenLogError {
    match FragmentLog::open(env, spec).await {
        Ok(_) => panic!("it opens"),
        Err(error) => error,
    }
}

fn faults(reads: u32, writes: u32, syncs: u32) -> DiskFaults {
    DiskFaults {
        read_errors_per_million: reads,
        write_errors_per_million: writes,
        sync_errors_per_million: syncs,
        ..DiskFaults::default()
    }
}

const ALL: u32 = 1_000_000;
const SSD: &str = "/ssd";

async fn read(log: &Log, file: u64, start: u64, end: u64) -> Result<Vec<u8>, LogError> {
    let pieces = log.find(key(file), range(start, end));
    let [piece] = &pieces[..] else { panic!("{pieces:?}") };
    assert_eq!(piece.extent(), range(start, end));
    let mut bytes = vec![0; (end - start) as usize];
    log.read(piece, &mut bytes).await.map(|()| bytes)
}

/// Flips a bit of a file on a disk.
async fn flip(env: &SimEnv, dir: &str, name: &str, offset: u64) {
    let dir = env.dir(Path::new(dir)).await.expect("the directory");
    let file = dir.open(name, OpenMode::WRITE).await.expect("the file");
    let mut byte = [0];
    file.read_at(&mut [std::io::IoSliceMut::new(&mut byte)], at(offset)).await.expect("read");
    file.write_at(&[std::io::IoSlice::new(&[byte[0] ^ 0x10])], at(offset)).await.expect("written");
}

#[test]
fn dirty_bytes_of_a_failed_ssd_stay_readable_and_stale_ones_never_return() {
    let mut sim = Sim::with_seed(1);
    let node = node(&sim);
    let (env, control) = (node.clone(), sim.control());
    sim.block_on(&node, async move {
        let (log, _) = open(&env, &spec()).await;
        log.put(key(1), at(0), &[1; 8192], dirty(1)).await.expect("room");
        log.put(key(2), at(0), &[2; 4096], dirty(1)).await.expect("room");
        log.sync().await.expect("synced");
        control.set_disk_faults(&env, Path::new(SSD), faults(0, ALL, 0));
        let error = log.put(key(3), at(0), &[3; 10], dirty(1)).await.expect_err("the SSD fails");
        assert!(matches!(error, LogError::Failed { .. }), "{error}");
        assert!(error.to_string().contains("segments/data"), "{error}");
        assert!(log.stats().failed);
        // It is unknown which of the bytes the SSD has stored.
        assert!(matches!(log.sync_datafile(key(1)).await, Err(LogError::Failed { .. })));
        assert_eq!(read(&log, 2, 0, 4096).await.expect("still there"), [2; 4096]);

        // Newer bytes go to the disk; the bytes that they replace must not return.
        log.abandon(key(1), range(0, 4096)).await.expect("the disk works");
        assert_eq!(read(&log, 1, 4096, 8192).await.expect("still there"), [1; 4096]);
        log.close().await.expect("recorded on the disk");

        // Also if the SSD works again.
        control.set_disk_faults(&env, Path::new(SSD), faults(0, 0, 0));
        let (log, recovered) = open(&env, &spec()).await;
        assert_eq!((recovered.dirty, recovered.is_new), (ByteLen(8192), false));
        assert!(!log.overlap(key(1), range(0, 4096)).any);
        assert!(matches!(log.put(key(3), at(0), &[3; 10], dirty(1)).await, Err(LogError::Failed { .. })));
        let pieces = log.dirty_pieces(None, ByteLen(1 << 20));
        for piece in &pieces {
            let mut bytes = vec![0; piece.extent().len() as usize];
            log.read(piece, &mut bytes).await.expect("rescued");
            assert!(bytes.iter().all(|&byte| u64::from(byte) == piece.key().file.0));
        }
        log.mark_clean(&pieces).await.expect("recorded on the disk");
        assert_eq!(log.stats().dirty(), ByteLen(0));
        log.close().await.expect("recorded on the disk");

        // Nothing dirty is left: the log is formatted again.
        let (log, recovered) = open(&env, &spec()).await;
        assert_eq!(recovered, Recovered { is_new: true, ..Recovered::default() });
        log.put(key(3), at(0), &[3; 10], dirty(1)).await.expect("it accepts puts again");
        log.close().await.expect("orderly");
        let (log, recovered) = open(&env, &spec()).await;
        assert_eq!((recovered.dirty, recovered.is_new), (ByteLen(10), false));
        log.close().await.expect("orderly");
    });
}

#[test]
fn dirty_bytes_of_a_replaced_ssd_are_lost_until_overwritten() {
    let mut sim = Sim::with_seed(2);
    let node = node(&sim);
    sim.add_disk(&node, Path::new("/new"), Box::new(SimpleDisk::default()));
    let (env, control) = (node.clone(), sim.control());
    sim.block_on(&node, async move {
        let (log, _) = open(&env, &spec()).await;
        log.put(key(1), at(100), &[1; 5000], dirty(1)).await.expect("room");
        log.put(key(2), at(0), &[2; 4096], dirty(1)).await.expect("room");
        control.set_disk_faults(&env, Path::new(SSD), faults(0, ALL, ALL));
        log.put(key(3), at(0), &[3; 10], dirty(1)).await.expect_err("the SSD fails");
        let pieces = log.dirty_pieces(None, ByteLen(1));
        assert_eq!(pieces[0].key(), key(1));
        log.mark_clean(&log.dirty_pieces(None, ByteLen(1 << 20))[1..]).await.expect("recorded on the disk");
        drop(pieces);
        log.close().await.expect("recorded on the disk");

        let replaced = LogSpec { path: PathBuf::from("/new"), ..spec() };
        for round in 0..2 {
            let (log, recovered) = open(&env, &replaced).await;
            assert_eq!(recovered.is_new, round == 0);
            let lost: Vec<_> = recovered.lost.iter().map(|lost| (lost.key, lost.extent)).collect();
            assert_eq!(lost, [(key(1), range(100, 5100))], "bytes that were written back are not lost");
            assert_eq!((log.lost(9), log.stats().lost), (recovered.lost, ByteLen(5000)));
            assert!(log.overlap(key(1), range(0, 101)).dirty);
            let error = read(&log, 1, 100, 5100).await.expect_err("lost");
            let text = error.to_string();
            assert!(text.contains(&key(1).name()) && text.contains("/new") && text.contains("100"), "{text}");
            assert!(log.dirty_pieces(None, ByteLen(1)).is_empty(), "there is nothing to write back");
            log.close().await.expect("orderly");
        }

        // Overwritten on either device, truncated, or removed, they are no longer lost.
        let (log, _) = open(&env, &replaced).await;
        log.put(key(1), at(100), &[7; 1000], dirty(1)).await.expect("room");
        assert_eq!(read(&log, 1, 100, 1100).await.expect("new"), [7; 1000]);
        log.forget(key(1), range(1100, 2100)).await.expect("the disk gets them");
        assert_eq!(log.stats().lost, ByteLen(3000));
        log.truncate(key(1), ByteLen(3000)).await.expect("truncated");
        assert_eq!(log.lost(9)[0].extent, range(2100, 3000));
        log.remove(key(1)).await.expect("removed");
        assert_eq!(log.stats().lost, ByteLen(0));
        log.close().await.expect("orderly");
    });
}

#[test]
fn an_unreadable_copy_is_dropped_and_unreadable_dirty_bytes_are_lost() {
    let mut sim = Sim::with_seed(3);
    let node = node(&sim);
    let (env, control) = (node.clone(), sim.control());
    sim.block_on(&node, async move {
        let (log, _) = open(&env, &spec()).await;
        log.put(key(1), at(0), &[1; 4096], copy()).await.expect("room");
        log.put(key(1), at(8192), &[2; 4096], dirty(1)).await.expect("room");
        log.put(key(1), at(16384), &[3; 4096], dirty(1)).await.expect("room");
        control.set_disk_faults(&env, Path::new(SSD), faults(ALL, 0, 0));
        assert!(matches!(read(&log, 1, 0, 4096).await, Err(LogError::BadCopy { .. })));
        assert!(!log.overlap(key(1), range(0, 4096)).any, "the disk has it");
        assert!(matches!(read(&log, 1, 8192, 12288).await, Err(LogError::Lost { .. })));
        control.set_disk_faults(&env, Path::new(SSD), faults(0, 0, 0));
        assert!(matches!(read(&log, 1, 8192, 12288).await, Err(LogError::Lost { .. })));
        assert_eq!(read(&log, 1, 16384, 20480).await.expect("its neighbor is intact"), [3; 4096]);
        log.close().await.expect("orderly");
        // A later start tries again.
        let (log, _) = open(&env, &spec()).await;
        assert_eq!(read(&log, 1, 8192, 12288).await.expect("the error was transient"), [2; 4096]);
        log.close().await.expect("orderly");
    });
}

#[test]
fn a_flipped_bit_of_a_payload_is_detected_by_reads_of_any_part() {
    for part in [range(0, 6000), range(0, 10), range(3000, 3001), range(5000, 6000)] {
        let mut sim = Sim::with_seed(4);
        let node = node(&sim);
        let env = node.clone();
        sim.block_on(&node, async move {
            let (log, _) = open(&env, &spec()).await;
            log.put(key(1), at(0), &[9; 6000], dirty(1)).await.expect("room");
            // Split and joined, so that entries and payloads differ.
            log.put(key(1), at(6000), &[8; 6000], dirty(1)).await.expect("room");
            assert_eq!(log.stats().classes[0].entries, 1, "adjacent entries have been joined");
            log.forget(key(1), range(0, 1)).await.expect("nothing");
            flip(&env, SSD, "segments/data", 2999).await;
            let pieces = log.find(key(1), part);
            let mut bytes = vec![0; part.len() as usize];
            let error = log.read(&pieces[0], &mut bytes).await.expect_err("it is damaged");
            assert!(matches!(error, LogError::Lost { .. }), "{error}");
            assert_eq!(read(&log, 1, 6000, 12000).await.expect("well"), [8; 6000]);
        });
    }
}

#[test]
fn damage_in_the_journal_is_detected_or_harmless() {
    // In the synced middle of the journal, so it is unknown what followed.
    let (mut refused_count, mut at_byte) = (0, 0);
    while at_byte < 400 {
        let mut sim = Sim::with_seed(5);
        let node = node(&sim);
        let env = node.clone();
        let is_refused = sim.block_on(&node, async move {
            let (log, _) = open(&env, &spec()).await;
            for number in 0..4 {
                log.put(key(number), at(0), &[number as u8 + 1; 512], dirty(1)).await.expect("room");
                log.sync().await.expect("synced");
            }
            log.close().await.expect("orderly");
            // The second file is the journal since the start.
            let file = file_bytes(&env, "map.1").await;
            let first = file.windows(4).position(|bytes| bytes == b"FLOG").expect("a frame") as u64;
            flip(&env, SSD, "map.1", first + at_byte).await;
            match FragmentLog::open(&env, &spec()).await {
                Ok((log, recovered)) => {
                    assert_eq!(recovered.dirty, ByteLen(4 * 512), "byte {at_byte}: something is missing");
                    for number in 0..4 {
                        assert_eq!(read(&log, number, 0, 512).await.expect("opens"), [number as u8 + 1; 512]);
                    }
                    false
                }
                Err(error) => {
                    assert!(matches!(error, OpenLogError::Damaged { .. }), "{error}");
                    assert!(error.to_string().contains("weft fsck"), "{error}");
                    true
                }
            }
        });
        refused_count += u32::from(is_refused);
        at_byte += 7;
    }
    assert!(refused_count > 50, "{refused_count}");
}

async fn file_bytes(env: &SimEnv, name: &str) -> Vec<u8> {
    let dir = env.dir(Path::new(SSD)).await.expect("the directory");
    let file = dir.open(name, OpenMode::READ).await.expect("the file");
    let mut bytes = vec![0; file.meta().await.expect("meta").len.0 as usize];
    file.read_at(&mut [std::io::IoSliceMut::new(&mut bytes)], at(0)).await.expect("read");
    bytes
}

#[test]
fn foreign_logs_are_rejected_with_the_reason() {
    let mut sim = Sim::with_seed(6);
    let node = node(&sim);
    let env = node.clone();
    sim.block_on(&node, async move {
        let (log, _) = open(&env, &spec()).await;
        let error = refused(&env, &spec()).await;
        assert!(matches!(error, OpenLogError::Locked { .. }), "{error}");
        log.close().await.expect("orderly");
        let other = LogSpec { target: weft_core::TargetId(4), ..spec() };
        let error = refused(&env, &other).await;
        assert!(
            matches!(error, OpenLogError::Foreign { .. }) && error.to_string().contains("target 3"),
            "{error}"
        );
        let other = LogSpec { cluster: "other".to_owned(), ..spec() };
        assert!(matches!(refused(&env, &other).await, OpenLogError::Foreign { .. }));
        flip(&env, SSD, "weft-fragments", 20).await;
        let error = refused(&env, &spec()).await;
        assert!(matches!(error, OpenLogError::Damaged { .. }), "{error}");
        let dir = env.dir(Path::new("/hdd")).await.expect("the directory");
        dir.open("something", OpenMode::CREATE).await.expect("created");
        let wrong = LogSpec { path: PathBuf::from("/hdd"), ..spec() };
        let error = refused(&env, &wrong).await;
        assert!(matches!(&error, OpenLogError::NotEmpty { found, .. } if found == "something"), "{error}");
    });
}
