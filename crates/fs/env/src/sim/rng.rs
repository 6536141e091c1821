//! Seeded random numbers: xoshiro256++, seeded by SplitMix64. Not for keys.

use weft_core::random::SplitMix64;

/// Stream of random numbers that its seed determines.
#[derive(Clone, Debug)]
pub struct Rng([u64; 4]);

impl Rng {
    /// Returns the stream of `seed`.
    pub fn new(seed: u64) -> Self {
        let mut words = SplitMix64::new(seed);
        Self(std::array::from_fn(|_| words.next_u64()))
    }

    /// Returns the next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        let s = &mut self.0;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// Returns a number below `bound`, which must not be zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "the bound is not zero");
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// Returns true with the probability `per_million` / 1,000,000.
    pub fn chance(&mut self, per_million: u32) -> bool {
        per_million > 0 && self.below(1_000_000) < u64::from(per_million)
    }

    /// Derives an independent stream from this one.
    pub fn fork(&mut self) -> Self {
        Self::new(self.next_u64())
    }

    /// Fills `out` with random bytes.
    pub fn fill(&mut self, out: &mut [u8]) {
        for chunk in out.chunks_mut(8) {
            chunk.copy_from_slice(&self.next_u64().to_le_bytes()[..chunk.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Rng;

    #[test]
    fn the_generator_matches_the_reference_implementation() {
        // First values of xoshiro256++ for the state 1, 2, 3, 4, from its reference implementation.
        let mut rng = Rng([1, 2, 3, 4]);
        let first: Vec<u64> = (0..4).map(|_| rng.next_u64()).collect();
        assert_eq!(first, [41_943_041, 58_720_359, 3_588_806_011_781_223, 3_591_011_842_654_386]);
    }

    #[test]
    fn numbers_stay_below_their_bound_and_reach_it() {
        let mut rng = Rng::new(1);
        let mut seen = [false; 7];
        (0..1000).for_each(|_| seen[rng.below(7) as usize] = true);
        assert_eq!(seen, [true; 7]);
    }
}
