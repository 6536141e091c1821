//! Measures lookups in mappings of replicas, in real time.
//!
//! ```text
//! cargo run --release -p weft-lab --example lookups
//! ```

use std::hint::black_box;
use std::time::Instant;
use weft_core::Extent;
use weft_core::replicas::{MappedExtent, Mapping};
use weft_workload::Permutation;

/// Length of a request.
const LEN: u64 = 4096;
/// Number of lookups of a measurement, and of measurements, of which the fastest counts.
const LOOKUPS: u64 = 1_000_000;
const MEASUREMENTS: usize = 5;

fn main() {
    let strided = |n: u64| (n % 16 * 65_536 + n / 16) * LEN;
    println!("requests in the mapping | bytes of the mapping | nanoseconds of a lookup");
    for (name, requests, place) in [
        ("none", 0, &strided as &dyn Fn(u64) -> u64),
        ("1048576, strided by 16 processes", 1 << 20, &strided),
        ("4096, random", 4096, &|n| Permutation::new(4096, 1).at(n) * LEN),
        ("1048576, random", 1 << 20, &|n| Permutation::new(1 << 20, 1).at(n) * LEN),
    ] {
        let piece = |n| MappedExtent { start: n * LEN, len: LEN, at: place(n) };
        let mapping = Mapping::of_pieces((0..requests).map(piece).collect()).expect("disjoint pieces");
        let offsets = Permutation::new(requests.max(1 << 20), 2);
        let offsets: Vec<u64> = (0..LOOKUPS).map(|n| offsets.at(n) * LEN).collect();
        let measured = (0..MEASUREMENTS).map(|_| {
            let begin = Instant::now();
            for offset in &offsets {
                black_box(mapping.split(Extent::new(black_box(*offset), LEN)).last());
            }
            begin.elapsed().as_nanos() as f64 / LOOKUPS as f64
        });
        let fastest = measured.fold(f64::INFINITY, f64::min);
        println!("{name} | {} | {fastest:.0}", mapping.encoded_len());
    }
}
