//! Random permutations without tables.

use weft_core::random::splitmix64;

/// A seeded permutation of `0..len`, computed one value at a time.
///
/// A Feistel network permutes the next even power of two; values outside of `0..len` are mapped again (cycle walking).
/// The domain is less than four times `len`, so a lookup takes fewer than four steps on average. Memory is constant.
#[derive(Clone, Copy, Debug)]
pub struct Permutation {
    len: u64,
    half_bits: u32,
    keys: [u64; ROUNDS],
}

/// Number of rounds: enough for orders that look random. The permutation is not meant to be secret.
const ROUNDS: usize = 6;

impl Permutation {
    /// Creates the permutation of `0..len` for `seed`.
    pub fn new(len: u64, seed: u64) -> Self {
        let bits = u64::BITS - len.saturating_sub(1).leading_zeros();
        let half_bits = bits.div_ceil(2).max(1);
        let keys = std::array::from_fn(|round| splitmix64(seed ^ splitmix64(round as u64 + 1)));
        Self { len, half_bits, keys }
    }

    /// Returns the image of `index`.
    ///
    /// # Panics
    /// Panics if `index` is not less than the length.
    pub fn at(&self, index: u64) -> u64 {
        assert!(index < self.len, "index {index} in a permutation of {}", self.len);
        let mut value = index;
        loop {
            value = self.network(value);
            if value < self.len {
                return value;
            }
        }
    }

    fn network(&self, value: u64) -> u64 {
        let mask = (1u64 << self.half_bits) - 1;
        let (mut left, mut right) = (value >> self.half_bits, value & mask);
        for key in self.keys {
            (left, right) = (right, left ^ (splitmix64(right ^ key) & mask));
        }
        (left << self.half_bits) | right
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_occurs_once() {
        for len in [1, 2, 3, 4, 5, 16, 17, 63, 64, 65, 1000, 4097] {
            for seed in 0..3 {
                let permutation = Permutation::new(len, seed);
                let mut seen: Vec<u64> = (0..len).map(|index| permutation.at(index)).collect();
                seen.sort_unstable();
                assert!(seen.iter().copied().eq(0..len), "len {len} seed {seed}");
            }
        }
    }

    #[test]
    fn order_looks_random_and_depends_on_the_seed() {
        let len = 10_000;
        let (a, b) = (Permutation::new(len, 1), Permutation::new(len, 2));
        let neighbors = (1..len).filter(|&i| a.at(i) == a.at(i - 1) + 1).count();
        let same = (0..len).filter(|&i| a.at(i) == b.at(i)).count();
        // A random order of any length has about one fixed point and one pair of neighbors.
        assert!(neighbors < 10 && same < 10, "{neighbors} neighbors, {same} fixed points");
    }

    #[test]
    fn huge_lengths_need_no_memory() {
        let len = 1 << 62;
        let permutation = Permutation::new(len, 7);
        assert!((0..1000).map(|i| permutation.at(i)).all(|value| value < len));
    }
}
