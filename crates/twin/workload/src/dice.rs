//! Random distribution of items over parts, without tables.

use std::ops::Range;
use weft_core::random::{splitmix64, unit_f64};

/// Maximum number of items that are distributed one by one.
///
/// For more items the number per side is drawn from a normal distribution.
const EXACT_ITEMS_MAX: u64 = 512;

/// Returns the range of `part` when each of `items` items goes to a random part.
///
/// The ranges of all parts are contiguous and together cover `0..items`.
pub(crate) fn share(items: u64, parts: u64, part: u64, seed: u64) -> Range<u64> {
    assert!(part < parts, "part {part} of {parts}");
    let (mut parts_here, mut items_here) = (0..parts, 0..items);
    while parts_here.end - parts_here.start > 1 {
        let middle = parts_here.start + (parts_here.end - parts_here.start) / 2;
        let (left, right) = (middle - parts_here.start, parts_here.end - middle);
        let key = splitmix64(seed ^ splitmix64(parts_here.start << 32 | parts_here.end));
        let count = binomial(items_here.end - items_here.start, left, right, key);
        let boundary = items_here.start + count;
        if part < middle {
            (parts_here.end, items_here.end) = (middle, boundary);
        } else {
            (parts_here.start, items_here.start) = (middle, boundary);
        }
    }
    items_here
}

/// Draws how many of `items` items go left, each with probability `left / (left + right)`.
fn binomial(items: u64, left: u64, right: u64, seed: u64) -> u64 {
    let all = left + right;
    if items <= EXACT_ITEMS_MAX {
        return (0..items).filter(|item| splitmix64(seed ^ splitmix64(*item)) % all < left).count() as u64;
    }
    // The sum of twelve uniform numbers has mean 6 and variance 1, and is computed identically on every machine.
    let sum: f64 = (0..12).map(|n| unit_f64(splitmix64(seed ^ splitmix64(n)))).sum();
    let chance = left as f64 / all as f64;
    let mean = items as f64 * chance;
    let deviation = (mean * (1.0 - chance)).sqrt();
    ((mean + deviation * (sum - 6.0)).round().max(0.0) as u64).min(items)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_contiguous_and_complete() {
        for (items, parts) in [(0, 3), (1, 1), (7, 3), (128, 4), (100_000, 7), (1 << 40, 8192)] {
            let mut at = 0;
            for part in 0..parts {
                let share = share(items, parts, part, 5);
                assert_eq!(share.start, at);
                at = share.end;
            }
            assert_eq!(at, items);
        }
    }

    #[test]
    fn shares_vary_like_a_binomial_distribution() {
        // 64 or 6,400 items in 4 parts: mean n / 4 and variance n * 1/4 * 3/4.
        for items in [64u64, 6400] {
            let mean = items as f64 / 4.0;
            let counts: Vec<f64> = (0..4000)
                .map(|case| share(items, 4, case % 4, case / 4))
                .map(|range| (range.end - range.start) as f64 - mean)
                .collect();
            let variance = counts.iter().map(|off| off * off).sum::<f64>() / 4000.0;
            let expected = items as f64 * 3.0 / 16.0;
            assert!((variance / expected - 1.0).abs() < 0.15, "{items}: {variance}, not {expected}");
        }
    }
}
