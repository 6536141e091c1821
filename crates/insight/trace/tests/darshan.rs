//! Real Darshan logs, intact and damaged, read with Darshan's own library.
//!
//! Without the library the tests fail. `make test` and `scripts/deps.sh darshan` install it.

mod common;

use common::{Dice, HELPER, all, data, helper, options};
use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};
use weft_trace::darshan::{Helper, summary};
use weft_trace::{Level, OpenOptions, Operation, Record, Source, TraceError, open};

/// Count, bytes, sum of offsets and total time of one direction at one level.
fn sums(records: &[Record], level: Level, op: Operation) -> (u64, u64, u64, u64) {
    let mut sums = (0, 0, 0, 0);
    for record in records.iter().filter(|record| record.level == level && record.op == op) {
        sums.0 += 1;
        sums.1 += record.len.get();
        sums.2 += record.offset.get();
        sums.3 += record.duration().get();
    }
    sums
}

fn read(name: &str) -> (Vec<Record>, weft_trace::AnyStream) {
    let mut stream = open(&data(name), &options()).unwrap_or_else(|error| panic!("{name}: {error}"));
    let (records, error) = all(&mut *stream);
    assert!(error.is_none(), "{name}: {error:?}");
    (records, stream)
}

// Expected numbers come from Darshan's Python interface (darshan 3.5.0, DarshanReport.mod_read_all_dxt_records). They
// are the number of segments, the sums of lengths and of offsets, and the sum of end_time - start_time to the
// microsecond.

#[test]
fn a_log_with_both_levels_matches_darshans_numbers() {
    if common::without_darshan() {
        return;
    }
    let (records, stream) = read("mpi-io-test-32ranks-dxt.darshan");
    let mpi_reads = sums(&records, Level::MpiIo, Operation::Read);
    let mpi_writes = sums(&records, Level::MpiIo, Operation::Write);
    assert_eq!((mpi_reads.0, mpi_reads.1), (128, 2_147_483_648));
    assert_eq!((mpi_writes.0, mpi_writes.1), (128, 2_147_483_648));
    assert_eq!(mpi_reads.2 + mpi_writes.2, 272_730_423_296);
    assert_eq!((mpi_reads.3 + mpi_writes.3 + 500) / 1_000, 227_684_597);
    let reads = sums(&records, Level::Posix, Operation::Read);
    let writes = sums(&records, Level::Posix, Operation::Write);
    assert_eq!((reads.0, reads.1, writes.0, writes.1), (128, 2_147_483_648, 192, 2_147_486_208));
    assert_eq!(reads.2 + writes.2, 272_730_423_296);
    assert_eq!((reads.3 + writes.3 + 500) / 1_000, 56_475_025);
    assert_eq!(records.iter().map(|record| record.rank).collect::<BTreeSet<_>>().len(), 32);
    assert_eq!(
        records.iter().map(|record| record.end.get()).max().map(|end| (end + 500) / 1_000),
        Some(13_641_683)
    );
    let info = stream.info();
    assert_eq!(
        (info.source, info.processes, &*info.program),
        (Source::DarshanDxt, 32, "mpi-io-test -i 4 -v")
    );
    assert_eq!(info.began_unix_ns / 1_000_000_000, 1_622_673_798);
    assert!(stream.names().all_files().any(|name| name.ends_with("/mpi_io_rough_work/test.out")));
    // All operations are independent according to the counters.
    assert!(records.iter().all(|record| !record.collective));
}

#[test]
fn an_unaligned_log_matches_darshans_numbers() {
    if common::without_darshan() {
        return;
    }
    let (records, _) = read("hdf5-diagonal-write-10ranks-dxt.darshan");
    let reads = sums(&records, Level::Posix, Operation::Read);
    let writes = sums(&records, Level::Posix, Operation::Write);
    assert_eq!((records.len(), reads.0, reads.1, writes.0, writes.1), (440, 400, 2_627_610, 40, 16_470));
    assert_eq!((reads.2 + writes.2, (reads.3 + writes.3 + 500) / 1_000), (2_648_090, 2_476_382));
}

#[test]
fn a_log_in_the_other_byte_order_matches_darshans_numbers() {
    if common::without_darshan() {
        return;
    }
    let (records, stream) = read("mpi-io-test-4ranks-ppc64.darshan");
    let reads = sums(&records, Level::Posix, Operation::Read);
    let writes = sums(&records, Level::Posix, Operation::Write);
    assert_eq!((reads.0, reads.1, writes.0, writes.1), (4, 67_108_864, 4, 67_108_864));
    assert_eq!((reads.2 + writes.2, (reads.3 + writes.3 + 500) / 1_000), (201_326_592, 887_098));
    assert_eq!(records.len(), 8, "this version of DXT_MPIIO has no offsets");
    assert!(
        stream.info().notes.iter().any(|note| note.starts_with("DXT_MPIIO")),
        "{:?}",
        stream.info().notes
    );
}

#[test]
fn a_log_without_dxt_is_an_error_but_its_counters_can_be_read() {
    if common::without_darshan() {
        return;
    }
    let path = data("mpi-io-test-4ranks-counters.darshan");
    let error = open(&path, &options()).err().expect("the log has no DXT");
    assert!(matches!(&error, TraceError::NoDxt { modules, .. } if modules.contains("POSIX")), "{error}");
    assert!(error.to_string().contains("DXT_ENABLE_IO_TRACE"), "{error}");
    let log = summary(&path, &helper()).expect("counters");
    let posix = log.counters.iter().find(|counters| counters.module == "POSIX").expect("POSIX");
    // From `darshan-parser --total` on this log.
    let total = &posix.total;
    assert_eq!((posix.files, total.opens, total.reads, total.writes), (1, 16, 4, 4));
    assert_eq!((total.bytes_read, total.bytes_written), (67_108_864, 67_108_864));
    assert_eq!((total.sequential_reads, total.read_sizes[7], total.write_sizes[7]), (3, 4, 4));
}

#[test]
fn a_reconstruction_has_the_totals_of_the_counters() {
    if common::without_darshan() {
        return;
    }
    let path = data("mpi-io-test-4ranks-counters.darshan");
    let mut stream = open(&path, &OpenOptions { reconstruct: true, ..options() }).expect("counters");
    let (records, error) = all(&mut *stream);
    assert!(error.is_none(), "{error:?}");
    let reads = sums(&records, Level::Posix, Operation::Read);
    let writes = sums(&records, Level::Posix, Operation::Write);
    assert_eq!((reads.0, reads.1, writes.0, writes.1), (4, 67_108_864, 4, 67_108_864));
    assert_eq!(records.iter().map(|record| record.rank.0).collect::<BTreeSet<_>>(), (0..4).collect());
    assert!(records.iter().all(|record| record.len.get() == 16 << 20), "the only access size");
    assert_eq!(stream.info().source, Source::DarshanCounters);
    assert!(stream.info().notes.iter().any(|note| note.contains("guesses")));
    // A log with DXT is read as it is, even if reconstruction is allowed.
    let real =
        open(&data("mpi-io-test-32ranks-dxt.darshan"), &OpenOptions { reconstruct: true, ..options() });
    let mut real = real.expect("DXT");
    assert!(real.next().is_some());
    assert_eq!(real.info().source, Source::DarshanDxt);
}

#[test]
fn a_missing_library_is_an_error_with_its_remedy() {
    let nowhere = ["-c", "WEFT_DARSHAN_LIB=/nonexistent/lib.so exec \"$0\" darshan-reader \"$@\"", HELPER]
        .map(Into::into);
    let options = OpenOptions { helper: Helper::program("/bin/sh", nowhere), reconstruct: false };
    let error =
        open(&data("mpi-io-test-32ranks-dxt.darshan"), &options).err().expect("no library").to_string();
    assert!(error.contains("/nonexistent/lib.so") && error.contains("scripts/deps.sh darshan"), "{error}");
    let log =
        ["-c", "WEFT_DARSHAN_LIB=/lib/x86_64-linux-gnu/libc.so.6 exec \"$0\" darshan-reader \"$@\"", HELPER]
            .map(Into::into);
    let options = OpenOptions { helper: Helper::program("/bin/sh", log), reconstruct: false };
    let error =
        open(&data("mpi-io-test-32ranks-dxt.darshan"), &options).err().expect("no library").to_string();
    assert!(error.contains("not found"), "{error}");
}

#[test]
fn dropping_a_stream_ends_its_reader_process() {
    if common::without_darshan() {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let pid = dir.path().join("pid");
    let script = format!("echo $$ > '{}'; exec \"$0\" darshan-reader \"$@\"", pid.display());
    let helper = Helper::program("/bin/sh", ["-c", &script, HELPER].map(Into::into));
    let options = OpenOptions { helper, reconstruct: false };
    let mut stream = open(&data("mpi-io-test-32ranks-dxt.darshan"), &options).expect("a log");
    assert!(stream.next().is_some());
    let pid = std::fs::read_to_string(&pid).expect("it has begun");
    drop(stream);
    assert!(!Path::new(&format!("/proc/{}", pid.trim())).exists(), "process {pid} is still running");
}

/// Reads a damaged log in all modes, which must end in bounded time. Returns whether any mode failed.
fn survive(path: &Path, what: &str) -> bool {
    let begin = Instant::now();
    let mut accepted = true;
    for reconstruct in [false, true] {
        match open(path, &OpenOptions { reconstruct, ..options() }) {
            Ok(mut stream) => {
                let mut count = 0u64;
                for record in stream.by_ref() {
                    count += 1;
                    match record {
                        Ok(record) => assert!(record.end >= record.start, "{what}"),
                        Err(_) => accepted = false,
                    }
                    if count > 2_000_000 {
                        break;
                    }
                }
            }
            Err(error) => {
                assert!(!error.to_string().is_empty());
                accepted = false;
            }
        }
    }
    accepted &= summary(path, &helper()).is_ok();
    assert!(begin.elapsed() < Duration::from_secs(180), "{what}: {:?}", begin.elapsed());
    accepted
}

#[test]
fn damaged_and_truncated_logs_are_errors() {
    if common::without_darshan() {
        return;
    }
    let count: u64 = std::env::var("WEFT_DARSHAN_MUTATIONS").ok().and_then(|n| n.parse().ok()).unwrap_or(40);
    let seed: u64 = std::env::var("WEFT_DARSHAN_SEED").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    let dir = tempfile::tempdir().expect("a directory");
    let mut refused = 0;
    for name in [
        "mpi-io-test-32ranks-dxt.darshan",
        "hdf5-diagonal-write-10ranks-dxt.darshan",
        "mpi-io-test-4ranks-ppc64.darshan",
        "mpi-io-test-4ranks-counters.darshan",
    ] {
        let sound = std::fs::read(data(name)).expect("a log");
        for index in 0..count {
            let mut dice = Dice::new(seed.wrapping_mul(1_000_003).wrapping_add(index));
            let mut bytes = sound.clone();
            match index % 4 {
                0 => bytes.truncate(dice.below(sound.len() as u64) as usize),
                // The header, with offsets, lengths and versions of modules.
                1 => {
                    for _ in 0..=dice.below(4) {
                        let at = dice.below(sound.len().min(1_400) as u64 - 8) as usize & !3;
                        let value = [0, 1, u64::MAX, 1 << 31, dice.any()][dice.below(5) as usize];
                        bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
                    }
                }
                2 => {
                    let at = dice.below(sound.len() as u64) as usize;
                    bytes[at] ^= 1 << dice.below(8);
                }
                _ => {
                    for _ in 0..=dice.below(64) {
                        let at = dice.below(sound.len() as u64) as usize;
                        bytes[at] = dice.next() as u8;
                    }
                }
            }
            let path = dir.path().join("damaged.darshan");
            std::fs::write(&path, &bytes).expect("written");
            let what = format!("{name}, WEFT_DARSHAN_SEED={seed}, mutation {index}");
            refused += u64::from(!survive(&path, &what));
        }
    }
    println!("{refused} of {} were rejected", 4 * count);
    assert!(refused > count, "too little damage is detected: {refused} of {} were rejected", 4 * count);
}
