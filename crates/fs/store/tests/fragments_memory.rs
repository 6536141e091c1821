//! Memory of a full fragment log: the figure in docs/reference/limits.md.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};
use weft_core::DataClass;
use weft_core::{ByteLen, FileId, LocalOffset, ObjectId, TargetId, Timestamp};
use weft_env::real::{RealEnv, block_on};
use weft_store::datafile::DatafileKey;
use weft_store::fragments::{FragmentLog, LogError, LogSpec, Tag};

/// Documented limit in bytes per possible entry: 40 MiB per GiB.
const ENTRY_BYTES_MAX: u64 = 160;

/// Maximum time in which a segment reaches the disk.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(10);

static LIVE: AtomicUsize = AtomicUsize::new(0);

struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

// SAFETY: every call passes unchanged to the system's allocator; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size(), Relaxed);
        // SAFETY: the caller upholds the system allocator's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as for `alloc`.
        unsafe { System.dealloc(at, layout) }
    }
}

#[test]
fn a_log_full_of_the_smallest_pieces_stays_within_its_memory_limit() {
    let dir = tempfile::tempdir().expect("a directory");
    for folder in ["log", "target"] {
        std::fs::create_dir(dir.path().join(folder)).expect("created");
    }
    let size = ByteLen::from_mib(64);
    let spec = LogSpec {
        path: dir.path().join("log"),
        target: TargetId(1),
        cluster: "test".to_owned(),
        target_path: dir.path().join("target"),
        size,
        segment_len: ByteLen::from_mib(1),
        entry_len: LogSpec::ENTRY_LEN,
        must_exist: false,
        emulate: None,
    };
    let before = LIVE.load(Relaxed);
    let (log, _) = block_on(FragmentLog::open(&RealEnv::new(), &spec)).expect("created");
    let tag = Tag { class: DataClass::RANDOM, gain: 1, dirty: true, mtime: Timestamp(1) };
    let entries_max = size.0 / LogSpec::ENTRY_LEN.0;
    let mut taken = 0;
    loop {
        // Scattered over many datafiles, so that none are adjacent.
        let key = DatafileKey::new(FileId(taken % 100), ObjectId::default());
        match block_on(log.put(key, LocalOffset(taken / 100 * 4096), &[1; 20], tag)) {
            Ok(()) => taken += 1,
            Err(LogError::Full) => break,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(taken <= entries_max && taken > entries_max * 9 / 10, "{taken} of {entries_max}");
    // A segment that is still being written has a buffer until it is on the disk.
    let begun = Instant::now();
    let live = loop {
        let live = (LIVE.load(Relaxed) - before) as u64;
        if live < ENTRY_BYTES_MAX * entries_max || begun.elapsed() > FLUSH_TIMEOUT {
            break live;
        }
        std::thread::yield_now();
    };
    let said = log.stats().memory.0;
    println!("{taken} entries: {live} bytes, {} each; said: {said}", live / taken);
    assert!(live < ENTRY_BYTES_MAX * entries_max, "{} bytes for each entry", live / taken);
    assert!(said > live / 2 && said < live * 2, "said {said}, it is {live}");
    block_on(log.close()).expect("orderly");
}
