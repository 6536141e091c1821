//! Longest waits for the fragment log's mapping during a checkpoint and during the removal of a datafile with many
//! entries.
//!
//! `cargo run --release -p weft-store --example fragments_wait [directory]`
#![allow(clippy::disallowed_methods)] // Measures real time.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use weft_core::DataClass;
use weft_core::ranges::ByteRange;
use weft_core::{ByteLen, FileId, LocalOffset, ObjectId, TargetId, Timestamp};
use weft_env::real::{RealEnv, block_on};
use weft_store::datafile::DatafileKey;
use weft_store::fragments::{FragmentLog, LogSpec, Tag};

const ENTRIES: u64 = 500_000;
const DATAFILES: u64 = 1000;
const PUT_LEN: u64 = 16;
/// Puts into a datafile of its own.
const REMOVED: u64 = 250_000;
/// Number of attempts to observe concurrent puts without a checkpoint.
const ATTEMPTS: u32 = 10;

fn key(number: u64) -> DatafileKey {
    DatafileKey::new(FileId(number % DATAFILES), ObjectId { component: 0, column: 0 })
}

fn offset(number: u64) -> LocalOffset {
    LocalOffset(number / DATAFILES * 8192)
}

fn put_at(log: &FragmentLog<RealEnv>, key: DatafileKey, offset: LocalOffset) {
    let tag = Tag { class: DataClass::FRAGMENT, gain: 1000, dirty: true, mtime: Timestamp(1) };
    block_on(log.put(key, offset, &[1; PUT_LEN as usize], tag)).expect("room");
}

fn put(log: &FragmentLog<RealEnv>, number: u64) {
    put_at(log, key(number), offset(number));
}

/// Longest waits of a thread that looks up entries continuously.
#[derive(Default)]
struct Waits {
    lookups: u64,
    above_1_ms: u64,
    longest: Duration,
}

impl Waits {
    /// Looks up entries until `stop`.
    fn watch(log: &FragmentLog<RealEnv>, stop: &AtomicBool) -> Self {
        let mut waits = Self::default();
        while !stop.load(Ordering::Relaxed) {
            let number = waits.lookups % ENTRIES;
            let extent = ByteRange::with_len(offset(number).0, PUT_LEN).expect("bytes");
            let began = Instant::now();
            let overlap = log.overlap(key(number), extent);
            let took = began.elapsed();
            assert!(overlap.any, "it is there");
            waits.lookups += 1;
            waits.above_1_ms += u64::from(took > Duration::from_millis(1));
            waits.longest = waits.longest.max(took);
        }
        waits
    }

    /// Looks up entries while `work` runs.
    fn during(log: &FragmentLog<RealEnv>, work: impl FnOnce()) -> Self {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let watcher = scope.spawn(|| Self::watch(log, &stop));
            work();
            stop.store(true, Ordering::Relaxed);
            watcher.join().expect("watches")
        })
    }

    fn tell(&self, what: &str) {
        let Self { lookups, above_1_ms, longest } = self;
        println!(
            "{what}: longest wait {:.3} ms, {above_1_ms} of {lookups} above 1 ms",
            longest.as_secs_f64() * 1e3
        );
    }
}

fn main() {
    let parent = std::env::args().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let dir = parent.join(format!("weft-fragments-wait-{}", std::process::id()));
    let path = dir.join("log");
    std::fs::create_dir_all(&path).expect("a directory");
    let spec = LogSpec {
        path,
        target: TargetId(1),
        cluster: "wait".to_owned(),
        target_path: dir.clone(),
        size: ByteLen::from_mib(3072),
        segment_len: LogSpec::SEGMENT_LEN,
        entry_len: LogSpec::ENTRY_LEN,
        must_exist: false,
        emulate: None,
    };
    let (log, _) = block_on(FragmentLog::open(&RealEnv::new(), &spec)).expect("opens");
    (0..ENTRIES).for_each(|number| put(&log, number));
    let stats = log.stats();
    let entries: u64 = stats.classes.iter().map(|class| class.entries).sum();
    println!("{entries} entries of {} datafiles, {} checkpoints so far", stats.datafiles, stats.checkpoints);

    // Overwriting does not change the number of entries.
    let mut number = 0;
    let mut put_some = |count: u64| {
        (number..number + count).for_each(|number| put(&log, number % ENTRIES));
        number += count;
    };
    let put_until_checkpoint = |put_some: &mut dyn FnMut(u64)| {
        let checkpoints = log.stats().checkpoints;
        while log.stats().checkpoints == checkpoints {
            put_some(1000);
        }
    };
    // Without a checkpoint, for comparison. The log decides when the next one is due, so measure right after one, and
    // repeat if one occurred.
    let without = (0..ATTEMPTS).find_map(|_| {
        put_until_checkpoint(&mut put_some);
        let checkpoints = log.stats().checkpoints;
        let waits = Waits::during(&log, || put_some(100_000));
        (log.stats().checkpoints == checkpoints).then_some(waits)
    });
    match without {
        Some(waits) => waits.tell("while others put"),
        None => println!("while others put: a checkpoint was made each of {ATTEMPTS} times"),
    }
    let waits = Waits::during(&log, || put_until_checkpoint(&mut put_some));
    waits.tell("while others put and a checkpoint is made");
    let removed = DatafileKey::new(FileId(DATAFILES), ObjectId { component: 0, column: 0 });
    (0..REMOVED).for_each(|number| put_at(&log, removed, LocalOffset(number * 8192)));
    let began = Instant::now();
    let waits = Waits::during(&log, || block_on(log.remove(removed)).expect("removed"));
    waits.tell(&format!("while {REMOVED} entries go, in {:.0} ms", began.elapsed().as_secs_f64() * 1e3));
    block_on(log.close()).expect("closed");
    std::fs::remove_dir_all(&dir).expect("removed");
}
