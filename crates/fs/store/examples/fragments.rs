//! The cost of the fragment log on this machine: `cargo run --release -p weft-store --example fragments [directory]`.
#![allow(clippy::disallowed_methods)] // Measures real time.

use std::path::{Path, PathBuf};
use std::time::Instant;
use weft_core::DataClass;
use weft_core::ranges::ByteRange;
use weft_core::{ByteLen, FileId, LocalOffset, ObjectId, TargetId, Timestamp};
use weft_env::real::{RealEnv, block_on};
use weft_store::datafile::DatafileKey;
use weft_store::fragments::{FragmentLog, LogSpec, Tag};

const ENTRIES: u64 = 200_000;
const PUTS: u64 = 100_000;

fn key(file: u64) -> DatafileKey {
    DatafileKey::new(FileId(file), ObjectId { component: 0, column: 0 })
}

fn tag(dirty: bool) -> Tag {
    Tag { class: DataClass::FRAGMENT, gain: 1000, dirty, mtime: Timestamp(1) }
}

fn spec(path: &Path, size: ByteLen) -> LogSpec {
    LogSpec {
        path: path.to_owned(),
        target: TargetId(1),
        cluster: "bench".to_owned(),
        target_path: path.parent().expect("inside of the other").to_owned(),
        size,
        segment_len: LogSpec::SEGMENT_LEN,
        entry_len: LogSpec::ENTRY_LEN,
        must_exist: false,
        emulate: None,
    }
}

fn open(path: &Path, size: ByteLen) -> FragmentLog<RealEnv> {
    block_on(FragmentLog::open(&RealEnv::new(), &spec(path, size))).expect("opens").0
}

fn main() {
    let dir = tempdir(std::env::args().nth(1).map_or_else(std::env::temp_dir, PathBuf::from));
    let path = dir.join("log");
    std::fs::create_dir(&path).expect("created");
    let size = ByteLen::from_mib(1024);
    let log = open(&path, size);

    let extent = ByteRange::with_len(1 << 20, 65_536).expect("bytes");
    let per = |what: &str, count: u64, began: Instant| {
        println!("{what}: {:.0} ns", began.elapsed().as_nanos() as f64 / count as f64);
    };
    let began = Instant::now();
    for number in 0..10_000_000u64 {
        std::hint::black_box(log.overlap(key(std::hint::black_box(number & 1)), extent));
    }
    per("overlap, nothing of the datafile", 10_000_000, began);
    let began = Instant::now();
    for number in 0..10_000_000u64 {
        std::hint::black_box(log.find(key(std::hint::black_box(number & 1)), extent));
    }
    per("find, nothing of the datafile", 10_000_000, began);

    for (len, threads) in [(1024usize, 1u64), (4096, 1), (16_384, 1), (4096, 4)] {
        let began = Instant::now();
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let log = &log;
                scope.spawn(move || {
                    let bytes = vec![7; len];
                    for number in 0..PUTS / threads / 4 {
                        let offset = LocalOffset(number * 65_536);
                        block_on(log.put(key(100 + thread), offset, &bytes, tag(true))).expect("room");
                    }
                });
            }
        });
        per(&format!("put of {len} bytes, {threads} threads"), PUTS / 4, began);
        let began = Instant::now();
        block_on(log.sync()).expect("synced");
        println!("  and a sync: {:.1} ms", began.elapsed().as_secs_f64() * 1e3);
        let mut buf = vec![0; len];
        let began = Instant::now();
        for number in 0..PUTS / threads / 4 {
            let of = ByteRange::with_len(number * 65_536, len as u64).expect("bytes");
            let pieces = log.find(key(100), of);
            block_on(log.read(&pieces[0], &mut buf)).expect("opens");
        }
        per("  found and read", PUTS / threads / 4, began);
        let file = |thread| key(100 + thread);
        (0..threads).for_each(|thread| block_on(log.remove(file(thread))).expect("removed"));
    }

    let bytes = [1; 16];
    for number in 0..ENTRIES {
        let offset = LocalOffset((number / 1000) * 8192);
        block_on(log.put(key(number % 1000), offset, &bytes, tag(true))).expect("room");
    }
    let stats = log.stats();
    let entries: u64 = stats.classes.iter().map(|class| class.entries).sum();
    println!(
        "{entries} entries take {:.1} MiB, {} bytes each",
        stats.memory.0 as f64 / 1048576.0,
        stats.memory.0 / entries
    );
    println!("{} checkpoints, journal of {} bytes", stats.checkpoints, stats.journal.0);
    block_on(log.close()).expect("closed");
    drop(log);
    let began = Instant::now();
    let log = open(&path, size);
    let took = began.elapsed().as_secs_f64();
    println!(
        "open with {entries} entries: {:.1} ms, {:.2} s per million",
        took * 1e3,
        took * 1e6 / entries as f64
    );
    block_on(log.close()).expect("closed");
    std::fs::remove_dir_all(&dir).expect("removed");
}

fn tempdir(parent: PathBuf) -> PathBuf {
    let dir = parent.join(format!("weft-fragments-{}", std::process::id()));
    std::fs::create_dir(&dir).expect("a directory");
    dir
}
