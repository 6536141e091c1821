//! The fragment log with real files and threads.

use crate::fragments_support::*;
use std::path::Path;
use weft_core::{ByteLen, LocalOffset};
use weft_env::real::{RealEnv, block_on};
use weft_env::sim::Rng;
use weft_store::fragments::{FragmentLog, LogError, LogSpec};

const THREADS: u64 = 4;
const FILE_LEN: usize = 128 << 10;

fn open(dir: &Path) -> FragmentLog<RealEnv> {
    let spec = LogSpec { path: dir.join("log"), target_path: dir.join("target"), ..spec_of(24) };
    block_on(FragmentLog::open(&RealEnv::new(), &spec)).expect("opens").0
}

/// Each thread has a datafile of its own, whose disk is an array. The log must have the last bytes put.
fn hammer(log: &FragmentLog<RealEnv>, thread: u64, truth: &mut [Option<u8>]) {
    let mut rng = Rng::new(thread);
    let key = key(thread);
    for _ in 0..600 {
        let len = 1 + rng.below(8000) as usize;
        let at = rng.below((FILE_LEN - len) as u64) as usize;
        let of = range(at as u64, (at + len) as u64);
        match rng.below(10) {
            0..5 => {
                let byte = rng.below(256) as u8;
                match block_on(log.put(key, LocalOffset(at as u64), &vec![byte; len], dirty(1))) {
                    Ok(()) => truth[at..at + len].fill(Some(byte)),
                    Err(LogError::Full) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            5 => {
                // This disk keeps nothing, so the content is unknown from here on.
                let pieces = log.find(key, of);
                block_on(log.mark_clean(&pieces)).expect("recorded");
                block_on(log.forget(key, of)).expect("dropped");
                assert!(!log.overlap(key, of).any);
                truth[at..at + len].fill(None);
            }
            6 => block_on(log.sync_datafile(key)).expect("synced"),
            7 if rng.below(8) == 0 => {
                block_on(log.truncate(key, ByteLen(at as u64))).expect("truncated");
                truth[at..].fill(None);
            }
            _ => {
                let found = block_on(bytes_of(log, key, of.start()..of.end()));
                assert_eq!(found, truth[at..at + len], "thread {thread} {of}");
            }
        }
    }
}

/// Reads any pieces while other threads compact and evict.
fn read_pieces(log: &FragmentLog<RealEnv>, thread: u64) {
    let mut rng = Rng::new(thread);
    for _ in 0..2000 {
        let start = rng.below(FILE_LEN as u64);
        for piece in log.find(key(rng.below(THREADS)), range(start, start + 20_000)) {
            let mut bytes = vec![0; piece.extent().len() as usize];
            block_on(log.read(&piece, &mut bytes)).expect("a piece stays readable while it exists");
        }
    }
}

#[test]
fn threads_find_their_puts_during_compaction() {
    let dir = tempfile::tempdir().expect("a directory");
    for folder in ["log", "target"] {
        std::fs::create_dir(dir.path().join(folder)).expect("created");
    }
    let mut truths = vec![vec![None; FILE_LEN]; THREADS as usize];
    let mut moved = 0;
    for _ in 0..3 {
        let log = open(dir.path());
        for (truth, thread) in truths.iter().zip(0..) {
            assert_eq!(&block_on(bytes_of(&log, key(thread), 0..FILE_LEN as u64)), truth);
        }
        std::thread::scope(|scope| {
            (10..12).for_each(|thread| {
                let log = &log;
                scope.spawn(move || read_pieces(log, thread));
            });
            for (truth, thread) in truths.iter_mut().zip(0..) {
                let log = &log;
                scope.spawn(move || hammer(log, thread, truth));
            }
        });
        moved += log.stats().moved.0;
        block_on(log.close()).expect("orderly");
    }
    assert!(moved > 0, "nothing was compacted");
}
