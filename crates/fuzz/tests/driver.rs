//! The driver finds what is planted, and finds it again from its seed.

use std::time::Duration;
use weft_fuzz::driver::{Options, run};
use weft_fuzz::{Outcome, TARGETS, Target};

fn planted(data: &[u8]) -> Outcome {
    // A length that is believed: the kind of fault that this is for.
    match data.first_chunk::<4>().map(|len| u32::from_le_bytes(*len)) {
        Some(len) if len as usize > data.len() => panic!("a length of {len} was believed"),
        Some(_) => Outcome::Accepted,
        None => Outcome::Refused,
    }
}

fn options() -> Options {
    let crash_dir = std::env::temp_dir().join(format!("weft-fuzz-test-{}", std::process::id()));
    Options { time: Duration::from_secs(20), seed: 1, crash_dir }
}

#[test]
fn a_planted_fault_is_found_shortened_and_kept() {
    let target = Target {
        name: "planted",
        run: planted,
        seeds: || vec![[&[4, 0, 0, 0], &[7u8; 60][..]].concat()],
        ..TARGETS[0]
    };
    let options = options();
    let crash = run(&target, &options).expect_err("the planted fault");
    assert!(crash.message.contains("was believed"), "{}", crash.message);
    assert!(crash.input.len() <= 8, "{} bytes are more than the fault needs", crash.input.len());
    assert_eq!(std::fs::read(&crash.file).expect("the crash file"), crash.input);
    let again = run(&target, &options).expect_err("the planted fault again");
    assert_eq!(again, crash, "the same seed finds the same input");
    std::fs::remove_dir_all(&options.crash_dir).expect("a directory of this test");
}
