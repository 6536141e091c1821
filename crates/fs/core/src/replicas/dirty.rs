//! Regions of a replica that were written since it was last synchronized with its file.

/// Maximum number of regions of a replica.
pub const REGIONS_MAX: u64 = 4096;
/// Shortest region in bytes.
const REGION_LEN_MIN: u64 = 1 << 20;

/// Returns the length of a region of a replica of `len` bytes: a power of two, at least 1 MiB.
pub fn region_len(len: u64) -> u64 {
    len.div_ceil(REGIONS_MAX).max(REGION_LEN_MIN).checked_next_power_of_two().unwrap_or(1 << 63)
}

/// A set of regions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DirtyRegions {
    region_len: u64,
    words: Vec<u64>,
}

impl DirtyRegions {
    /// Returns the empty set for a replica of `len` bytes.
    pub fn new(len: u64) -> Self {
        let region_len = region_len(len);
        let words = len.div_ceil(region_len).div_ceil(64) as usize;
        Self { region_len, words: vec![0; words] }
    }

    /// Removes all regions.
    pub fn clear(&mut self) {
        self.words.fill(0);
    }

    /// Returns the set with this [`bitmap`](Self::bitmap), for a replica of `len` bytes. Numbers after its end are ignored.
    pub fn from_bitmap(len: u64, bitmap: &[u8]) -> Self {
        let mut this = Self::new(len);
        for (byte, number) in bitmap.iter().zip((0u64..).step_by(8)) {
            (0..8).filter(|bit| byte & (1 << bit) != 0).for_each(|bit| this.insert(number + bit));
        }
        this
    }

    /// Returns a bit for each region, least significant first, without zeros at the end.
    pub fn bitmap(&self) -> Vec<u8> {
        let mut bytes: Vec<u8> = self.words.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.truncate(bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1));
        bytes
    }

    /// One past the highest number that the set may contain.
    pub fn number_end(&self) -> u64 {
        64 * self.words.len() as u64
    }

    /// Length of a region in bytes.
    pub fn region_len(&self) -> u64 {
        self.region_len
    }

    /// Numbers of the regions of a range of the replica.
    pub fn regions(&self, at: u64, len: u64) -> std::ops::Range<u64> {
        if len == 0 {
            return 0..0;
        }
        at / self.region_len..(at.saturating_add(len) - 1) / self.region_len + 1
    }

    /// Whether the set contains region `number`.
    pub fn contains(&self, number: u64) -> bool {
        self.words.get((number / 64) as usize).is_some_and(|word| word & (1 << (number % 64)) != 0)
    }

    /// Inserts region `number`. Numbers after the end of the replica are ignored.
    pub fn insert(&mut self, number: u64) {
        if let Some(word) = self.words.get_mut((number / 64) as usize) {
            *word |= 1 << (number % 64);
        }
    }

    /// Removes the last region. For a mutant.
    pub fn remove_last(&mut self) {
        if let Some(word) = self.words.iter_mut().rev().find(|word| **word != 0) {
            *word &= !(1 << (63 - word.leading_zeros()));
        }
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    /// Number of regions in the set.
    pub fn count(&self) -> u64 {
        self.words.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    /// Whether a range of the replica touches a region of the set.
    pub fn touches(&self, at: u64, len: u64) -> bool {
        self.regions(at, len).any(|number| self.contains(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_are_few_and_not_short() {
        assert_eq!(region_len(0), 1 << 20);
        assert_eq!(region_len(4 << 30), 1 << 20);
        assert_eq!(region_len((4 << 30) + 1), 2 << 20);
        let mut dirty = DirtyRegions::new(10 << 20);
        assert!(dirty.is_empty() && dirty.regions(5, 0).is_empty());
        assert_eq!(dirty.regions((1 << 20) - 1, 2), 0..2);
        dirty.insert(1);
        assert!(dirty.touches((1 << 20) - 1, 2) && !dirty.touches(0, 1 << 20));
        assert_eq!((dirty.count(), dirty.contains(1), dirty.contains(1000)), (1, true, false));
        dirty.insert(9);
        assert_eq!(dirty.bitmap(), [2, 2]);
        assert_eq!(DirtyRegions::from_bitmap(10 << 20, &[2, 2]), dirty);
        assert_eq!(DirtyRegions::from_bitmap(10 << 20, &[2, 2, 0, 0, 0, 0, 0, 0, 1]), dirty, "after the end");
    }
}
