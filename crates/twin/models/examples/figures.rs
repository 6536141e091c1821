//! Prints sequential and random throughput of each profile, and the speed of the model itself.
//!
//! `cargo run --release -p weft-models --example figures`

#[path = "../tests/common/mod.rs"]
mod common;

use common::{Runner, direct_read, direct_write, mb_s};
use std::time::Instant;
use weft_core::random::SplitMix64;
use weft_models::{Profile, profile};

fn main() {
    println!(
        "{:14} {:>9} {:>9} {:>12} {:>12} {:>12} {:>12} {:>10}",
        "profile",
        "seq rd",
        "seq wr",
        "4k rd qd1/s",
        "4k rd qd16/s",
        "4k wr qd1/s",
        "4k wr qd16/s",
        "ns/request"
    );
    for name in profile::names() {
        let profile = Profile::by_name(name).expect("a profile that comes with Weft");
        let span = profile.disk(1).capacity() / 2;
        let fresh = || Runner::new(profile.build(1));
        let len = 256 << 10;
        let seq_read = {
            let mut runner = fresh();
            let (took, _) = runner.run(4, 4000, |i| direct_read(1, i as u64 * len, len));
            mb_s(4000 * len, took)
        };
        let seq_write = {
            let mut runner = fresh();
            let (took, _) = runner.run(8, 8000, |i| direct_write(1, i as u64 * len, len));
            mb_s(8000 * len, took)
        };
        let random = |is_write: bool, depth: usize| {
            let mut runner = fresh();
            let mut dice = SplitMix64::new(7);
            let count = if profile.is_hard_disk() { 5000 } else { 100_000 };
            let warm = match (is_write, profile.is_hard_disk()) {
                (true, true) => 30_000,
                (true, false) => 600_000,
                _ => 100,
            };
            let mut next = |_| {
                let offset = dice.below(span / 4096) * 4096;
                if is_write { direct_write(1, offset, 4096) } else { direct_read(1, offset, 4096) }
            };
            runner.run(depth, warm, &mut next);
            let wall = Instant::now();
            let (took, _) = runner.run(depth, count, next);
            (count as f64 * 1e9 / took as f64, wall.elapsed().as_nanos() as f64 / count as f64)
        };
        let rows = [random(false, 1), random(false, 16), random(true, 1), random(true, 16)];
        println!(
            "{name:14} {seq_read:9.1} {seq_write:9.1} {:12.0} {:12.0} {:12.0} {:12.0} {:10.0}",
            rows[0].0,
            rows[1].0,
            rows[2].0,
            rows[3].0,
            rows.iter().map(|r| r.1).fold(0.0, f64::max)
        );
    }
}
