//! Seeded random numbers: xoshiro256++, seeded by splitmix64. Not for keys.

/// A stream of random numbers that its seed determines.
#[derive(Clone, Debug)]
pub struct Rng([u64; 4]);

/// One step of splitmix64: a good mixing of 64 bits.
pub(crate) fn mix(value: u64) -> u64 {
    let z = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

impl Rng {
    /// The stream of `seed`.
    pub fn new(seed: u64) -> Self {
        let mut state = seed;
        Self(std::array::from_fn(|_| {
            let word = mix(state);
            state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
            word
        }))
    }

    /// The next 64 bits.
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

    /// A number below `bound`, which must not be zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "no number is below zero");
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// True in `per_million` of a million cases.
    pub fn chance(&mut self, per_million: u32) -> bool {
        per_million > 0 && self.below(1_000_000) < u64::from(per_million)
    }

    /// A stream of its own, determined by this one.
    pub fn fork(&mut self) -> Self {
        Self::new(self.next_u64())
    }

    /// Fills `out`.
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
    fn the_generator_is_the_published_one() {
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
