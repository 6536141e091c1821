//! Mixing of 64-bit numbers and a small stream of random numbers: SplitMix64 of Steele, Lea and Flood (OOPSLA 2014).
//! Not for keys.

/// 2^64 divided by the golden ratio, the increment of SplitMix64.
const GOLDEN_GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// Finalizer of SplitMix64: each bit of the result depends on every bit of `value`. Maps 0 to 0.
pub const fn mix64(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// One step of SplitMix64: the hash of `value`, also a good one for 0.
pub const fn splitmix64(value: u64) -> u64 {
    mix64(value.wrapping_add(GOLDEN_GAMMA))
}

/// Converts 64 random bits to a number from 0 to below 1. Uses the upper 53 bits, the precision of the result.
pub const fn unit_f64(bits: u64) -> f64 {
    (bits >> 11) as f64 / (1u64 << 53) as f64
}

/// Stream of random numbers whose whole state is one number.
#[derive(Clone, Debug)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// Returns the stream of `seed`.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next 64 bits.
    pub const fn next_u64(&mut self) -> u64 {
        let value = splitmix64(self.0);
        self.0 = self.0.wrapping_add(GOLDEN_GAMMA);
        value
    }

    /// Returns a number from 0 to below 1.
    pub const fn next_f64(&mut self) -> f64 {
        unit_f64(self.next_u64())
    }

    /// Returns a number below `bound`, which must not be zero.
    ///
    /// # Panics
    /// If `bound` is zero.
    pub const fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "the bound is not zero");
        ((self.next_u64() as u128 * bound as u128) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_matches_the_reference_implementation() {
        // The first values for seed 1234567, from https://rosettacode.org/wiki/Pseudo-random_numbers/Splitmix64.
        let mut stream = SplitMix64::new(1_234_567);
        let expected = [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        assert_eq!(std::array::from_fn(|_| stream.next_u64()), expected);
    }

    #[test]
    fn numbers_below_a_bound_stay_below_it() {
        let mut stream = SplitMix64::new(7);
        for bound in [1, 2, 3, 1000, u64::MAX] {
            assert!((0..100).all(|_| stream.below(bound) < bound), "{bound}");
        }
    }

    #[test]
    fn numbers_of_the_unit_interval_exclude_one() {
        assert_eq!([0, 1 << 63].map(unit_f64), [0.0, 0.5]);
        assert_eq!(unit_f64(u64::MAX), 1.0 - f64::EPSILON / 2.0);
        assert_eq!(SplitMix64::new(7).next_f64(), unit_f64(SplitMix64::new(7).next_u64()));
    }
}
