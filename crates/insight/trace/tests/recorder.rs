//! The merge returns every recorded operation, for any number of threads and any end of the process.

mod common;

use common::Dice;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use weft_recorder::clock::{Anchor, monotonic_ns};
use weft_recorder::tail::{SHARDS_MAX, SLOTS_PER_BUFFER};
use weft_recorder::{Event, Options, Recorder};
use weft_trace::merge::{Merged, merge};
use weft_trace::wtrace::Reader;
use weft_trace::{Level, Operation, Record, RecordStream};

fn recorder(dir: &Path, rank: Option<u32>) -> Recorder {
    Recorder::new(Options { dir: dir.to_owned(), rank, on_end: |line| panic!("{line}") })
}

/// The parts of an event that must survive recording and merging.
type EventKey = (String, Operation, Level, bool, u64, u64);

fn any_event(dice: &mut Dice, recorder: &Recorder, files: u64) -> (Event, EventKey) {
    let name = format!("/data/{}", dice.below(files));
    let file = recorder.file(name.as_bytes()).expect("it records");
    let op = Operation::ALL[dice.below(11) as usize];
    let level = if dice.below(2) == 0 { Level::Posix } else { Level::MpiIo };
    let collective = dice.below(2) == 0;
    let placed = op.moves_bytes() || op == Operation::Truncate;
    let offset = if placed { dice.below(1 << 40) } else { 0 };
    let len = if op.moves_bytes() { dice.below(1 << 24) } else { 0 };
    let start = monotonic_ns();
    let event = Event { file, op, level, collective, offset, len, start, end: monotonic_ns() };
    (event, (name, op, level, collective, offset, len))
}

fn merged(dir: &Path) -> (Merged, Vec<Record>, Reader) {
    let out = dir.join("out.wtrace");
    let mut ticks = Vec::new();
    let merged = merge(dir, &out, "a program", |at, of| ticks.push((at, of))).expect("merged");
    assert!(ticks.is_sorted() && ticks.iter().all(|(at, of)| at <= of), "{ticks:?}");
    assert_eq!(ticks.len() as u64, merged.records / 65_536 * 2, "read and written");
    let mut reader = Reader::open(&out).expect("a trace");
    let records: Vec<_> = reader.by_ref().map(|record| record.expect("sound")).collect();
    assert!(records.is_sorted_by_key(|record| record.start));
    assert_eq!(records.len() as u64, merged.records);
    (merged, records, reader)
}

fn event_key(record: &Record, reader: &Reader) -> EventKey {
    let name = reader.names().file_name(record.file).expect("named").to_owned();
    (name, record.op, record.level, record.collective, record.offset.get(), record.len.get())
}

fn counted(all: impl IntoIterator<Item = EventKey>) -> BTreeMap<EventKey, usize> {
    let mut counts = BTreeMap::new();
    all.into_iter().for_each(|told| *counts.entry(told).or_default() += 1);
    counts
}

#[test]
fn everything_that_many_threads_record_comes_out_once() {
    for seed in 0..4 {
        println!("seed {seed}");
        let dir = tempfile::tempdir().expect("a directory");
        let recorder = recorder(dir.path(), Some(3));
        let expected = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            // More threads than shards, with enough operations each to fill buffers.
            for thread in 0..2 * SHARDS_MAX as u64 + 1 {
                let (recorder, expected) = (&recorder, &expected);
                scope.spawn(move || {
                    let mut dice = Dice::new(seed * 1000 + thread);
                    let mut own = Vec::new();
                    for index in 0..1000 + dice.below(SLOTS_PER_BUFFER as u64 * 2) {
                        let (event, told) = any_event(&mut dice, recorder, 50);
                        assert!(recorder.record(&event));
                        own.push(told);
                        if thread == 0 && index % 1001 == 0 {
                            recorder.flush().expect("room");
                        }
                    }
                    expected.lock().expect("whole").append(&mut own);
                });
            }
        });
        let (merged, records, reader) = merged(dir.path());
        assert_eq!((merged.ranks, merged.processes, merged.files), (1, 1, 50));
        assert_eq!(merged.notes, Vec::<String>::new());
        let expected = expected.into_inner().expect("whole");
        assert_eq!(records.len(), expected.len());
        assert!(counted(records.iter().map(|record| event_key(record, &reader))) == counted(expected));
        assert!(records.iter().all(|record| record.rank.0 == 3));
        let host = reader.names().host_name(records[0].host).expect("a host");
        assert_eq!(host, weft_recorder::clock::host_name());
        assert_eq!((&*reader.info().program, reader.info().processes), ("a program", 4));
    }
}

#[test]
fn more_names_than_the_table_caches() {
    let dir = tempfile::tempdir().expect("a directory");
    let recorder = recorder(dir.path(), None);
    let write = |number: u64| {
        let file = recorder.file(format!("/{number}").as_bytes()).expect("it records");
        let (start, op) = (monotonic_ns(), Operation::Write);
        let event = Event {
            file,
            op,
            level: Level::Posix,
            collective: false,
            offset: number,
            len: 1,
            start,
            end: start,
        };
        assert!(recorder.record(&event));
    };
    (0..70_000).for_each(write);
    (0..70_000).step_by(1000).for_each(write);
    let (merged, records, reader) = merged(dir.path());
    assert_eq!((merged.files, merged.records, merged.damaged), (70_000, 70_070, false));
    for record in &records {
        assert_eq!(reader.names().file_name(record.file), Some(&*format!("/{}", record.offset.get())));
    }
}

/// Runs `work` in a forked child, which then kills itself with `SIGKILL`.
fn killed_child(work: impl FnOnce()) -> i32 {
    // SAFETY: the child takes no lock that another thread of this test could hold, then exits.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            work();
            libc::raise(libc::SIGKILL);
        }
        assert!(child > 0);
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &mut status, 0), child);
        assert!(libc::WIFSIGNALED(status), "{status}");
        child
    }
}

#[test]
fn a_forked_child_has_files_of_its_own_and_a_killed_one_loses_nothing() {
    for seed in 0..6u64 {
        println!("seed {seed}");
        let dir = tempfile::tempdir().expect("a directory");
        Anchor::of_host(dir.path()).expect("room");
        let recorder = recorder(dir.path(), None);
        let mut dice = Dice::new(seed);
        let mut expected = Vec::new();
        let some = |dice: &mut Dice, count: u64, expected: &mut Vec<EventKey>| {
            for _ in 0..count {
                let (event, told) = any_event(dice, &recorder, 5);
                assert!(recorder.record(&event));
                expected.push(told);
            }
        };
        let counts = [dice.below(3000), dice.below(5000), dice.below(3000)];
        some(&mut dice, counts[0], &mut expected);
        // The child's random numbers equal those of a copy of its generator.
        let mut copy = Dice::new(seed + 100);
        killed_child(|| some(&mut Dice::new(seed + 100), counts[1], &mut Vec::new()));
        let in_child: Vec<EventKey> = {
            let scratch = tempfile::tempdir().expect("a directory");
            let other = self::recorder(scratch.path(), None);
            (0..counts[1]).map(|_| any_event(&mut copy, &other, 5).1).collect()
        };
        some(&mut dice, counts[2], &mut expected);
        let (merged, records, reader) = merged(dir.path());
        assert_eq!(merged.notes, Vec::<String>::new());
        let of = |rank| records.iter().filter(move |record| record.rank.0 == rank);
        // Ranks are numbered in the order of process starts.
        let (parent, child) = if counts[0] == 0 { (1, 0) } else { (0, 1) };
        assert!(counted(of(parent).map(|record| event_key(record, &reader))) == counted(expected));
        assert!(counted(of(child).map(|record| event_key(record, &reader))) == counted(in_child));
    }
}

/// Exits with a status that differs from a successful child's.
fn return_wrong() -> ! {
    // SAFETY: ends the process.
    unsafe { libc::_exit(1) }
}

#[test]
fn files_of_a_parent_are_not_those_of_its_child() {
    let dir = tempfile::tempdir().expect("a directory");
    let recorder = recorder(dir.path(), None);
    let file = recorder.file(b"/a").expect("it records");
    assert!(recorder.is_current(file));
    killed_child(|| {
        if recorder.is_current(file) {
            return_wrong();
        }
        let other = recorder.file(b"/b").expect("it records");
        if !recorder.is_current(other) || recorder.is_current(file) {
            return_wrong();
        }
    });
    assert!(recorder.is_current(file));
}

/// A part file may end anywhere, for example when the disk is full; the tail says which records are missing.
#[test]
fn a_part_file_truncated_anywhere_yields_its_complete_blocks() {
    let dir = tempfile::tempdir().expect("a directory");
    let recorder = recorder(dir.path(), Some(0));
    let mut dice = Dice::new(5);
    for _ in 0..3 * SLOTS_PER_BUFFER + 10 {
        let (event, _) = any_event(&mut dice, &recorder, 5);
        assert!(recorder.record(&event));
    }
    let part = std::fs::read_dir(dir.path())
        .expect("listed")
        .map(|entry| entry.expect("listed").path())
        .find(|path| path.extension().is_some_and(|extension| extension == "wtrace"))
        .expect("a part");
    let bytes = std::fs::read(&part).expect("read");
    let mut before = 0;
    for cut in (0..bytes.len()).step_by(997) {
        std::fs::write(&part, &bytes[..cut]).expect("written");
        let (merged, records, _) = merged(dir.path());
        assert!(records.len() >= before, "cut at {cut}");
        // Records of the tail are returned if the names of their files are.
        assert!(merged.damaged || records.len() % SLOTS_PER_BUFFER == 10, "cut at {cut}: {:?}", merged.notes);
        before = records.len();
    }
    std::fs::write(&part, &bytes).expect("written");
    assert_eq!(merged(dir.path()).1.len(), 3 * SLOTS_PER_BUFFER + 10);
}

#[test]
fn invalid_tails_are_reported_and_skipped() {
    let dir = tempfile::tempdir().expect("a directory");
    let recorder = recorder(dir.path(), Some(0));
    let (event, _) = any_event(&mut Dice::new(1), &recorder, 1);
    assert!(recorder.record(&event));
    std::fs::write(dir.path().join("x.1.0.wtail"), b"something else").expect("written");
    // More names than any trace may have must not cause an allocation.
    let entries = std::fs::read_dir(dir.path()).expect("a directory");
    let mut paths = entries.map(|entry| entry.expect("read").path());
    let is_tail = |path: &std::path::PathBuf| path.extension().is_some_and(|end| end == "wtail");
    let tail = paths.find(|path| is_tail(path) && !path.ends_with("x.1.0.wtail")).expect("the recorder's");
    let mut bytes = std::fs::read(&tail).expect("read");
    bytes[72..76].fill(0xff);
    std::fs::write(dir.path().join("x.2.0.wtail"), bytes).expect("written");
    let (merged, records, _) = merged(dir.path());
    assert_eq!(records.len(), 1);
    for (note, name) in merged.notes.iter().zip(["x.1.0.wtail", "x.2.0.wtail"]) {
        assert!(merged.damaged && note.contains(name), "{:?}", merged.notes);
    }
    assert_eq!(merged.notes.len(), 2);
}

#[test]
fn a_process_without_free_descriptors_loses_records_and_continues() {
    let dir = tempfile::tempdir().expect("a directory");
    let recorder = recorder(dir.path(), None);
    let limited = |most: u64| {
        let limit = libc::rlimit { rlim_cur: most, rlim_max: 4096 };
        // SAFETY: the pointer is valid; the process is a child of this test.
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) };
    };
    killed_child(|| {
        let mut dice = Dice::new(1);
        let mut some = |count: usize| {
            for _ in 0..count {
                let event = any_event(&mut dice, &recorder, 3).0;
                if !recorder.record(&event) {
                    return_wrong();
                }
            }
        };
        // Two of five buffers find no free descriptor.
        some(2 * SLOTS_PER_BUFFER);
        limited(0);
        some(2 * SLOTS_PER_BUFFER);
        limited(1024);
        some(SLOTS_PER_BUFFER + 7);
    });
    let (merged, records, _) = merged(dir.path());
    assert_eq!(records.len(), 3 * SLOTS_PER_BUFFER + 7);
    let note = format!("{} operations could not be recorded", 2 * SLOTS_PER_BUFFER);
    assert!(!merged.damaged && merged.notes[0].ends_with(&note), "{:?}", merged.notes);
}

#[test]
fn a_missing_directory_ends_tracing_with_one_line() {
    use std::sync::atomic::{AtomicU32, Ordering};
    static CALLS: AtomicU32 = AtomicU32::new(0);
    let on_end = |line: &str| {
        assert!(line.contains("No such file or directory"), "{line}");
        CALLS.fetch_add(1, Ordering::Relaxed);
    };
    let dir = tempfile::tempdir().expect("a directory");
    let recorder = Recorder::new(Options { dir: dir.path().join("never"), rank: None, on_end });
    for _ in 0..3 {
        assert!(recorder.file(b"/a").is_none());
    }
    assert_eq!((CALLS.load(Ordering::Relaxed), recorder.is_recording()), (1, false));
    // The directory may also vanish while recording.
    let recorder = Recorder::new(Options { dir: dir.path().to_owned(), rank: None, on_end });
    let event = any_event(&mut Dice::new(1), &recorder, 3).0;
    assert!(recorder.record(&event));
    drop(dir);
    let recorded = (0..3 * SLOTS_PER_BUFFER).filter(|_| recorder.record(&event)).count();
    // Records fit as long as the tail has allocated space, although no merge will read them.
    assert!((1..SLOTS_PER_BUFFER).contains(&recorded), "{recorded}");
    assert_eq!(CALLS.load(Ordering::Relaxed), 2);
}

/// Compilers and shell scripts start thousands of short processes.
#[test]
fn disk_use_grows_from_a_few_blocks_to_the_whole_tail() {
    use std::os::unix::fs::MetadataExt;
    let dir = tempfile::tempdir().expect("a directory");
    let taken = || {
        let entries = std::fs::read_dir(dir.path()).expect("a directory");
        let tails = entries.map(|entry| entry.expect("one").path());
        let tails = tails.filter(|path| path.extension().is_some_and(|extension| extension == "wtail"));
        tails.map(|path| path.metadata().expect("the tail file").blocks() * 512).sum::<u64>()
    };
    let recorder = recorder(dir.path(), None);
    let mut dice = Dice::new(3);
    let mut record = |count: usize, files| {
        let all = (0..count).map(|_| any_event(&mut dice, &recorder, files).0);
        assert_eq!(all.filter(|event| recorder.record(event)).count(), count);
    };
    record(100, 10);
    let little = taken();
    assert!((8 << 10..32 << 10).contains(&little), "{little}");
    record(3 * SLOTS_PER_BUFFER, 20_000);
    let much = taken();
    assert!((150 << 10..260 << 10).contains(&much), "{much}");
    let (merged, records, _) = merged(dir.path());
    assert_eq!((records.len(), merged.notes), (100 + 3 * SLOTS_PER_BUFFER, Vec::new()));
}

#[test]
fn known_ranks_are_kept_and_other_processes_numbered_after_them() {
    let dir = tempfile::tempdir().expect("a directory");
    let some = |recorder: &Recorder, name: &str, count: usize| {
        let file = recorder.file(name.as_bytes()).expect("it records");
        let (op, level, at) = (Operation::Stat, Level::Posix, monotonic_ns());
        let event = Event { file, op, level, collective: false, offset: 0, len: 0, start: at, end: at };
        assert!((0..count).all(|_| recorder.record(&event)));
    };
    // The launcher has no rank, one process has a rank from the environment, one learns it later from MPI.
    let recorders =
        [recorder(dir.path(), None), recorder(dir.path(), Some(4)), recorder(dir.path(), Some(7))];
    for (recorder, name) in recorders.iter().zip(["/launcher", "/four", "/mpi"]) {
        some(recorder, name, SLOTS_PER_BUFFER + 1);
    }
    recorders[2].set_rank(2);
    some(&recorders[2], "/mpi", 1);
    let (merged, records, reader) = merged(dir.path());
    assert_eq!((merged.ranks, merged.processes, reader.info().processes), (3, 3, 6));
    let mut counts = BTreeMap::new();
    for record in &records {
        let name = reader.names().file_name(record.file).expect("named").to_owned();
        *counts.entry((name, record.rank.0)).or_insert(0) += 1;
    }
    let per_buffer = SLOTS_PER_BUFFER;
    let expected =
        [("/four", 4, per_buffer + 1), ("/launcher", 5, per_buffer + 1), ("/mpi", 2, per_buffer + 2)];
    assert_eq!(counts, BTreeMap::from(expected.map(|(name, rank, count)| ((name.to_owned(), rank), count))));
}
