//! Random orders without tables.

/// A seeded permutation of `0..len`, computed one value at a time: a Feistel network over the next even power of two,
/// walked until the value lies inside. Memory does not depend on `len`; the walk takes less than four steps on the
/// average, because the network's domain is less than four times `len`.
#[derive(Clone, Copy, Debug)]
pub struct Permutation {
    len: u64,
    half_bits: u32,
    keys: [u64; ROUNDS],
}

/// Enough for orders to look random; nothing here is secret.
const ROUNDS: usize = 6;

impl Permutation {
    /// The permutation of `0..len` that belongs to `seed`.
    pub fn new(len: u64, seed: u64) -> Self {
        let bits = u64::BITS - len.saturating_sub(1).leading_zeros();
        let half_bits = bits.div_ceil(2).max(1);
        let keys = std::array::from_fn(|round| mix(seed ^ mix(round as u64 + 1)));
        Self { len, half_bits, keys }
    }

    /// Where `index` goes.
    ///
    /// # Panics
    /// When `index` is not below the length.
    pub fn at(&self, index: u64) -> u64 {
        assert!(index < self.len, "index {index} of a permutation of {}", self.len);
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
            (left, right) = (right, left ^ (mix(right ^ key) & mask));
        }
        (left << self.half_bits) | right
    }
}

/// Multiplicative mixing of Steele, Lea and Flood's SplitMix64: a number that looks random for each number.
pub fn mix(index: u64) -> u64 {
    let mut z = index.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_comes_once() {
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
        // One neighbor pair and one fixed point are expected in a random order of any length.
        assert!(neighbors < 10 && same < 10, "{neighbors} neighbors, {same} the same");
    }

    #[test]
    fn huge_lengths_cost_nothing() {
        let len = 1 << 62;
        let permutation = Permutation::new(len, 7);
        assert!((0..1000).map(|i| permutation.at(i)).all(|value| value < len));
    }
}
