//! Hit ratios of the policies under scans and Zipf workloads.

use super::*;
use crate::random::SplitMix64;

/// Blocks that the cache holds.
const CACHE_BLOCKS: u64 = 1000;
const CAPACITY: u64 = CACHE_BLOCKS * BLOCK_LEN;

fn block(file: u64, index: u64) -> CacheRequest {
    CacheRequest { file, session: file, extent: LocalExtent::new(index * BLOCK_LEN, BLOCK_LEN) }
}

/// Reads a hot set of nine tenths of the cache at random, during and after a scan of ten times the cache. Returns the
/// hit ratios of the hot set before the scan, during it, and for as long afterwards.
fn scan(policy: EvictionPolicy, admission: &AdmissionSpec, hot_reads_per_block: u64) -> [f64; 3] {
    const SCANNED: u64 = 10 * CACHE_BLOCKS;
    let mut cache = Simulation::new(policy, admission);
    let mut random = SplitMix64::new(17);
    let mut hot = |cache: &mut Simulation, reads: u64| {
        let before = cache.reads();
        (0..reads).for_each(|_| cache.read(block(1, random.below(CACHE_BLOCKS * 9 / 10))));
        cache.reads().since(before)
    };
    hot(&mut cache, 30 * CACHE_BLOCKS);
    let before = hot(&mut cache, SCANNED);
    let mut during = HitRatio::default();
    for index in 0..SCANNED {
        cache.read(block(2, index));
        during += hot(&mut cache, hot_reads_per_block);
    }
    // The first reads after the scan would miss what it swept away.
    let after = hot(&mut cache, CACHE_BLOCKS * 9 / 10);
    [before, during, after].map(HitRatio::ratio)
}

#[test]
fn a_scan_of_ten_caches_hardly_lowers_the_hit_ratio_of_a_hot_set() {
    let no_stream = AdmissionSpec { read_stream_max: None, ..AdmissionSpec::for_capacity(CAPACITY) };
    for hot_reads in [0, 1, 4] {
        for admission in [no_stream, AdmissionSpec::for_capacity(CAPACITY)] {
            let [before, during, after] = scan(EvictionPolicy::S3Fifo, &admission, hot_reads);
            assert!(before > 0.99, "{hot_reads}: {before}");
            assert!(hot_reads == 0 || before - during <= 0.05, "{hot_reads}: {before} {during}");
            assert!(before - after <= 0.05, "{hot_reads}: {before} {after}");
        }
    }
    // The test can fail: the baseline without filters loses the whole set.
    let [before, _, after] = scan(EvictionPolicy::Lru, &AdmissionSpec::all(CAPACITY), 0);
    assert!(before > 0.99 && after < 0.6, "{before} {after}");
}

#[test]
fn s3_fifo_hits_as_often_as_lru_under_zipf() {
    let blocks = 20_000;
    for skew in [0.6, 0.8, 0.9, 1.0, 1.1, 1.2] {
        for part in [1000, 100, 20, 5] {
            let ratio = |policy| {
                let admission = AdmissionSpec::all(blocks / part * BLOCK_LEN);
                let mut cache = Simulation::new(policy, &admission);
                let (zipf, mut random) = (Zipf::new(blocks, skew).expect("a skew"), SplitMix64::new(5));
                (0..100_000).for_each(|_| cache.read(block(1, zipf.sample(&mut random))));
                cache.reads().ratio()
            };
            let [s3_fifo, lru] = EvictionPolicy::ALL.map(ratio);
            assert!(s3_fifo >= lru, "skew {skew}, 1/{part}: {s3_fifo} and {lru}");
        }
    }
}

#[test]
fn zipf_numbers_have_their_probabilities() {
    let count = 50;
    for skew in [0.0, 0.6, 1.0, 1.2] {
        let (zipf, mut random) = (Zipf::new(count, skew).expect("a skew"), SplitMix64::new(11));
        let mut seen = vec![0u32; count as usize];
        let samples = 400_000;
        (0..samples).for_each(|_| seen[zipf.sample(&mut random) as usize] += 1);
        let sum: f64 = (1..=count).map(|number| (number as f64).powf(-skew)).sum();
        for (number, seen) in seen.into_iter().enumerate() {
            let expected = (number as f64 + 1.0).powf(-skew) / sum * f64::from(samples);
            let error = 5.0 * expected.sqrt();
            assert!((f64::from(seen) - expected).abs() < error, "{skew} {number}: {seen}, not {expected}");
        }
    }
    assert!(Zipf::new(0, 1.0).is_none() && Zipf::new(1, f64::NAN).is_none() && Zipf::new(1, -0.1).is_none());
    assert_eq!(Zipf::new(1, 0.9).expect("one number").sample(&mut SplitMix64::new(0)), 0);
}

#[test]
fn simulations_are_deterministic() {
    let run = || {
        let mut cache = Simulation::new(EvictionPolicy::S3Fifo, &AdmissionSpec::for_capacity(CAPACITY));
        let (zipf, mut random) = (Zipf::new(9999, 0.9).expect("a skew"), SplitMix64::new(1));
        for _ in 0..20_000 {
            let request = block(random.below(3), zipf.sample(&mut random));
            if random.below(4) == 0 { cache.write(request) } else { cache.read(request) }
        }
        (cache.reads(), cache.writes(), cache.stored())
    };
    assert_eq!(run(), run());
    assert!(run().0.hits > 1000 && run().1.hits > 300, "{:?}", run());
}
