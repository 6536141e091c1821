//! The driver finds a seeded bug, and finds it again with the same seed.

use std::time::Duration;
use weft_fuzz::driver::{Options, run};
use weft_fuzz::{Outcome, TARGETS, Target};

fn seeded_fault(data: &[u8]) -> Outcome {
    // Trusts a length field: a typical bug of decoders.
    match data.first_chunk::<4>().map(|len| u32::from_le_bytes(*len)) {
        Some(len) if len as usize > data.len() => panic!("trusted the length {len}"),
        Some(_) => Outcome::Accepted,
        None => Outcome::Refused,
    }
}

fn options() -> Options {
    let crash_dir = std::env::temp_dir().join(format!("weft-fuzz-test-{}", std::process::id()));
    Options { time: Duration::from_secs(20), seed: 1, crash_dir }
}

#[test]
fn a_seeded_bug_is_found_shortened_and_saved() {
    let target = Target {
        name: "seeded",
        run: seeded_fault,
        seeds: || vec![[&[4, 0, 0, 0], &[7u8; 60][..]].concat()],
        ..TARGETS[0]
    };
    let options = options();
    let crash = run(&target, &options).expect_err("the seeded bug");
    assert!(crash.message.contains("trusted the length"), "{}", crash.message);
    assert!(crash.input.len() <= 8, "{} bytes are more than the bug needs", crash.input.len());
    assert_eq!(std::fs::read(&crash.file).expect("the crash file"), crash.input);
    let again = run(&target, &options).expect_err("the seeded bug");
    assert_eq!(again, crash, "the same seed finds the same input");
    std::fs::remove_dir_all(&options.crash_dir).expect("the test's own directory");
}
