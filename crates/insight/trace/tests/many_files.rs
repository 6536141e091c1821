//! A replay needs little memory per file. A test binary of its own, since it measures its process.

use weft_trace::Operation;
use weft_trace::replay::{Done, Tally};

/// Resident memory of this process in bytes.
fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("VmRSS");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
}

#[test]
fn a_file_takes_less_than_a_kilobyte_even_while_tallies_are_merged() {
    const FILES: u32 = 100_000;
    let before = memory();
    let of = |files: std::ops::Range<u32>| {
        let mut tally = Tally::default();
        for file in files {
            for op in [Operation::Create, Operation::Write, Operation::Close] {
                let took = u64::from(file % 1000);
                let done = Done { bytes: 7, short: false, refused: false, begin_ns: 0, end_ns: took };
                tally.add(op, file, &done);
            }
        }
        tally
    };
    let mut all = of(0..FILES / 2);
    // Both parts use some of the files.
    all.merge(of(FILES / 2 - 1000..FILES));
    let taken = memory() - before;
    assert_eq!(all.operations(), 3 * u64::from(FILES + 1000));
    assert_eq!((all.files.len(), all.bytes()), (FILES as usize, 21 * u64::from(FILES + 1000)));
    let twice = &all.files[&(FILES / 2 - 1)];
    assert!(twice.iter().map(|(op, _)| *op).is_sorted() && twice.len() == 3);
    assert!(twice.iter().all(|(_, of)| (of.bytes, of.latency.count()) == (14, 2)));
    println!("{} bytes for each file", taken / u64::from(FILES));
    assert!(taken < 900 * u64::from(FILES), "{taken} bytes");
}
