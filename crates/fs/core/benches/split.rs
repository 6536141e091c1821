//! Nanoseconds per split, as one row per case.
//!
//! `cargo bench -p weft-core` measures; `cargo test` runs a few rounds, so that it cannot rot. The control is a
//! division and a remainder by a number that the compiler does not know.

use std::hint::black_box;
use std::time::Instant;
use weft_core::{Access, ByteLen, Extent, FileOffset, Layout, SplitPolicy, SubRequest, TargetId};

const REPEATS: usize = 5;

/// Returns the best of several runs, in nanoseconds per call. `f` takes the number of the call.
fn measure(calls: u64, mut f: impl FnMut(u64)) -> f64 {
    let mut best = f64::INFINITY;
    for _ in 0..REPEATS {
        let start = Instant::now();
        (0..calls).for_each(&mut f);
        best = best.min(start.elapsed().as_nanos() as f64 / calls as f64);
    }
    best
}

fn main() {
    let calls = if std::env::args().any(|arg| arg == "--bench") { 2_000_000 } else { 1_000 };
    let targets: Vec<_> = (0..8).map(TargetId).collect();
    let striped = |stripe| Layout::striped(&targets[..4], ByteLen(stripe)).expect("a valid layout");
    let psa: Vec<_> =
        targets.iter().map(|&t| (t, ByteLen::from_kib(if t.0 < 4 { 120 } else { 8 }))).collect();
    let variable = Layout::variable(&psa).expect("a valid layout");
    let two_part = Layout::two_part(&psa, FileOffset(1 << 30), &targets[..4]).expect("a valid layout");
    let single = Layout::single(TargetId(0));
    let cases = [
        ("one target, 64 KiB", &single, 65_536),
        ("4 x 64 KiB, aligned 64 KiB", &striped(65_536), 65_536),
        ("4 x 64 KiB, 65 KiB", &striped(65_536), 66_560),
        ("4 x 64 KiB, 47,008 B", &striped(65_536), 47_008),
        ("4 x 64 KiB, 1 MiB", &striped(65_536), 1 << 20),
        ("4 x 1 MiB, 47,008 B", &striped(1 << 20), 47_008),
        ("4 x 65,000 B, 47,008 B", &striped(65_000), 47_008),
        ("PSA 8 columns, 47,008 B", &variable, 47_008),
        ("PSA 8 columns, 512 KiB", &variable, 1 << 19),
        ("PSA in two parts, 47,008 B", &two_part, 47_008),
    ];
    let control = measure(calls, |i| {
        black_box((i * 47_008 / black_box(65_000), i * 47_008 % black_box(65_000)));
    });
    println!("{:<30} {:>9} {:>9} {:>11}", "case", "ns/split", "+ pieces", "sub-requests");
    println!("{:<30} {control:>9.1}", "control: one division");
    for (name, layout, len) in cases {
        let mut out: Vec<SubRequest> = Vec::new();
        let policy = SplitPolicy::default();
        let mut subs = 0;
        let split = measure(calls, |i| {
            layout.split_into(Extent::new(black_box(i * len), len), Access::Random, policy, &mut out);
            subs += black_box(&out).len();
        });
        let with_pieces = measure(calls, |i| {
            layout.split_into(Extent::new(black_box(i * len), len), Access::Random, policy, &mut out);
            out.iter().flat_map(SubRequest::pieces).for_each(|piece| {
                black_box(piece);
            });
        });
        let mean = subs as f64 / (calls as usize * REPEATS) as f64;
        println!("{name:<30} {split:>9.1} {with_pieces:>9.1} {mean:>11.2}");
        assert!(mean >= 1.0, "a request of {len} bytes touches a datafile");
    }
}
