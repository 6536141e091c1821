//! How much memory a full fragment log takes: the figure of docs/ibridge.md.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};
use weft_core::ibridge::Class;
use weft_core::{ByteLen, FileId, LocalOffset, ObjectId, TargetId, Timestamp};
use weft_env::real::{RealEnv, block_on};
use weft_store::datafile::DatafileKey;
use weft_store::fragments::{FragmentLog, LogError, LogSpec, Tag};

/// What is promised, in bytes for each entry that there may be: 40 MiB for each GiB.
const ENTRY_BYTES_MAX: u64 = 160;

/// So long a segment may take to the disk.
const PATIENCE: Duration = Duration::from_secs(10);

static LIVE: AtomicUsize = AtomicUsize::new(0);

struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

// SAFETY: every call goes to the system's allocator unchanged; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size(), Relaxed);
        // SAFETY: the caller's contract is the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }
}

#[test]
fn a_log_full_of_the_smallest_pieces_takes_no_more_memory_than_promised() {
    let dir = tempfile::tempdir().expect("a directory");
    for folder in ["log", "target"] {
        std::fs::create_dir(dir.path().join(folder)).expect("made");
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
        emulate: None,
    };
    let before = LIVE.load(Relaxed);
    let (log, _) = block_on(FragmentLog::open(&RealEnv::new(), &spec)).expect("made");
    let tag = Tag { class: Class::Random, gain: 1, dirty: true, mtime: Timestamp(1) };
    let entries_max = size.0 / LogSpec::ENTRY_LEN.0;
    let mut taken = 0;
    loop {
        // Scattered over many datafiles, so that none are neighbors.
        let key = DatafileKey::new(FileId(taken % 100), ObjectId::default());
        match block_on(log.put(key, LocalOffset(taken / 100 * 4096), &[1; 20], tag)) {
            Ok(()) => taken += 1,
            Err(LogError::Full) => break,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(taken <= entries_max && taken > entries_max * 9 / 10, "{taken} of {entries_max}");
    // A segment that is still being written has a buffer of its own until it is on the disk.
    let begun = Instant::now();
    let live = loop {
        let live = (LIVE.load(Relaxed) - before) as u64;
        if live < ENTRY_BYTES_MAX * entries_max || begun.elapsed() > PATIENCE {
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
