//! Things dealt to parts by dice, without tables.

use crate::permutation::mix;
use std::ops::Range;

/// Up to so many things are dealt one by one; of more, the number is drawn from the normal distribution.
const ONE_BY_ONE: u64 = 512;

/// `things` in a random order are divided between `parts` as if each went to a part by dice: the range of `part`.
/// Ranges of all parts follow each other; together they are `0..things`.
pub(crate) fn share(things: u64, parts: u64, part: u64, seed: u64) -> Range<u64> {
    assert!(part < parts, "part {part} of {parts}");
    let (mut parts_here, mut things_here) = (0..parts, 0..things);
    while parts_here.end - parts_here.start > 1 {
        let middle = parts_here.start + (parts_here.end - parts_here.start) / 2;
        let (left, right) = (middle - parts_here.start, parts_here.end - middle);
        let key = mix(seed ^ mix(parts_here.start << 32 | parts_here.end));
        let count = binomial(things_here.end - things_here.start, left, right, key);
        let boundary = things_here.start + count;
        if part < middle {
            (parts_here.end, things_here.end) = (middle, boundary);
        } else {
            (parts_here.start, things_here.start) = (middle, boundary);
        }
    }
    things_here
}

/// How many of `things` go left, when each does in `left` of `left + right` cases.
fn binomial(things: u64, left: u64, right: u64, seed: u64) -> u64 {
    let all = left + right;
    if things <= ONE_BY_ONE {
        return (0..things).filter(|thing| mix(seed ^ mix(*thing)) % all < left).count() as u64;
    }
    // Twelve numbers between 0 and 1 have a sum of mean 6 and variance 1, and arithmetic that is the same everywhere.
    let sum: f64 = (0..12).map(|n| (mix(seed ^ mix(n)) >> 11) as f64 / (1u64 << 53) as f64).sum();
    let chance = left as f64 / all as f64;
    let mean = things as f64 * chance;
    let deviation = (mean * (1.0 - chance)).sqrt();
    ((mean + deviation * (sum - 6.0)).round().max(0.0) as u64).min(things)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_follow_each_other_and_are_everything() {
        for (things, parts) in [(0, 3), (1, 1), (7, 3), (128, 4), (100_000, 7), (1 << 40, 8192)] {
            let mut at = 0;
            for part in 0..parts {
                let share = share(things, parts, part, 5);
                assert_eq!(share.start, at);
                at = share.end;
            }
            assert_eq!(at, things);
        }
    }

    #[test]
    fn shares_vary_as_those_of_dice() {
        // 64 or 6,400 things between 4: a mean of n / 4 and a variance of n * 1/4 * 3/4.
        for things in [64u64, 6400] {
            let mean = things as f64 / 4.0;
            let counts: Vec<f64> = (0..4000)
                .map(|case| share(things, 4, case % 4, case / 4))
                .map(|range| (range.end - range.start) as f64 - mean)
                .collect();
            let variance = counts.iter().map(|off| off * off).sum::<f64>() / 4000.0;
            let expected = things as f64 * 3.0 / 16.0;
            assert!((variance / expected - 1.0).abs() < 0.15, "{things}: {variance}, not {expected}");
        }
    }
}
