//! Ghost table: recent keys without their bytes, in bounded memory.
//!
//! A hash table of buckets of eight. A slot has 32 bits of the key's hash, which also select the bucket; the time at
//! which it was noted; and one bit for each page of the block. Time is counted in pages noted. A key expires when a
//! window of later pages was noted. A full bucket loses its oldest key. When that happens often the table doubles, up
//! to its bound. Two keys with equal hash bits are taken for one: of a million keys, one in four thousand.

use super::{BLOCK_LEN, BlockId};

/// Slots in a bucket.
const WAYS: usize = 8;
/// Minimum number of slots.
const SLOTS_MIN: usize = 1024;
/// Bound of the number of slots for each block of the window.
const SLOTS_PER_BLOCK: u64 = 8;
/// The table doubles when it lost one key in this many slots during a window.
const LOST_DIVISOR: usize = 64;
/// Maximum window in pages. Beyond it the counter of 32 bits would be ambiguous.
const WINDOW_PAGES_MAX: u64 = 1 << 30;

/// Length of a page, the unit of the window.
pub(super) const PAGE_LEN: u64 = BLOCK_LEN / 16;
/// Pages of a whole block.
const WHOLE_BLOCK: PageMask = PageMask::MAX;

/// Set of pages of a block, one bit each.
pub(super) type PageMask = u16;

/// Returns as many pages as a block with `bytes` bytes has, at least one.
pub(super) fn pages_of_len(bytes: u32) -> PageMask {
    let pages = u64::from(bytes).div_ceil(PAGE_LEN).clamp(1, u64::from(PageMask::BITS));
    WHOLE_BLOCK >> (u64::from(PageMask::BITS) - pages)
}

#[derive(Clone, Copy, Default, Debug)]
struct Key {
    hash: u32,
    noted_at: u32,
    /// Zero in an empty slot.
    pages: PageMask,
}

/// Recent keys.
#[derive(Clone, Debug)]
pub(super) struct Ghosts {
    slots: Vec<Key>,
    /// Pages noted so far, modulo 2^32.
    now: u32,
    window_pages: u32,
    slots_max: usize,
    /// Unexpired keys lost since `lost_since`.
    lost: usize,
    lost_since: u32,
}

impl Ghosts {
    /// Returns an empty table whose keys expire after `window_bytes` of other keys.
    pub fn new(window_bytes: u64) -> Self {
        let mut ghosts =
            Self { slots: Vec::new(), now: 0, window_pages: 0, slots_max: SLOTS_MIN, lost: 0, lost_since: 0 };
        ghosts.set_window(window_bytes);
        ghosts
    }

    /// Changes the window. A smaller one expires keys; a larger one may revive some.
    pub fn set_window(&mut self, window_bytes: u64) {
        let pages = (window_bytes / PAGE_LEN).clamp(1, WINDOW_PAGES_MAX);
        self.window_pages = pages as u32;
        let blocks = pages.div_ceil(BLOCK_LEN / PAGE_LEN);
        // A power of two, rounded down.
        let slots = 1u64 << (blocks * SLOTS_PER_BLOCK).ilog2();
        self.slots_max = usize::try_from(slots).unwrap_or(usize::MAX / 2 + 1).max(SLOTS_MIN);
    }

    /// Returns the pages of a block that were noted within the window.
    pub fn pages(&self, block: BlockId) -> PageMask {
        let hash = (block.hash() >> 32) as u32;
        let Some(bucket) = self.slots.get(self.bucket(hash)) else { return 0 };
        let same = |key: &&Key| key.hash == hash && !self.has_expired(key);
        bucket.iter().find(same).map_or(0, |key| key.pages)
    }

    /// Notes pages of a block, and keeps the block for another window.
    pub fn note(&mut self, block: BlockId, pages: PageMask) {
        if pages == 0 {
            return;
        }
        if self.slots.is_empty() {
            self.slots = vec![Key::default(); SLOTS_MIN];
        }
        let known = self.pages(block);
        self.now = self.now.wrapping_add((pages & !known).count_ones());
        let hash = (block.hash() >> 32) as u32;
        let key = Key { hash, noted_at: self.now, pages: pages | known };
        let bucket = self.bucket(hash);
        // The key itself, else an empty or expired slot, else the oldest key.
        let rank = |slot: &usize| {
            let old = &self.slots[*slot];
            (old.pages != 0 && old.hash == hash, self.age(old))
        };
        let slot = bucket.max_by_key(rank).expect("a bucket has slots");
        let lost = std::mem::replace(&mut self.slots[slot], key);
        if lost.hash != hash && !self.has_expired(&lost) {
            if self.now.wrapping_sub(self.lost_since) >= self.window_pages {
                (self.lost, self.lost_since) = (0, self.now);
            }
            self.lost += 1;
            if self.lost > self.slots.len() / LOST_DIVISOR && self.slots.len() < self.slots_max {
                self.grow();
            }
        }
    }

    /// Forgets a block.
    pub fn remove(&mut self, block: BlockId) {
        let hash = (block.hash() >> 32) as u32;
        let bucket = self.bucket(hash);
        for key in self.slots.get_mut(bucket).into_iter().flatten().filter(|key| key.hash == hash) {
            *key = Key::default();
        }
    }

    /// Allocates enough slots that tests with few keys lose none.
    #[cfg(test)]
    pub fn preallocate(&mut self) {
        self.slots = vec![Key::default(); 1 << 12];
    }

    /// Returns the number of unexpired keys.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.slots.iter().filter(|key| !self.has_expired(key)).count()
    }

    /// Returns the number of slots, and its bound.
    #[cfg(test)]
    pub const fn slots(&self) -> (usize, usize) {
        (self.slots.len(), self.slots_max)
    }

    /// Returns the slots for a hash. The leading bits select the bucket, so that a doubled table splits each.
    fn bucket(&self, hash: u32) -> std::ops::Range<usize> {
        let buckets = self.slots.len() / WAYS;
        let bucket = ((u64::from(hash) * buckets as u64) >> 32) as usize;
        bucket * WAYS..(bucket + 1) * WAYS
    }

    /// Returns the pages noted since the key; the maximum for an empty slot.
    const fn age(&self, key: &Key) -> u32 {
        if key.pages == 0 { u32::MAX } else { self.now.wrapping_sub(key.noted_at) }
    }

    const fn has_expired(&self, key: &Key) -> bool {
        self.age(key) >= self.window_pages
    }

    fn grow(&mut self) {
        let double = vec![Key::default(); self.slots.len() * 2];
        let old = std::mem::replace(&mut self.slots, double);
        self.lost = 0;
        let live: Vec<Key> = old.into_iter().filter(|key| !self.has_expired(key)).collect();
        for key in live {
            let bucket = self.bucket(key.hash);
            if let Some(slot) = self.slots[bucket].iter_mut().find(|slot| slot.pages == 0) {
                *slot = key;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::SplitMix64;

    fn block(index: u64) -> BlockId {
        BlockId { file: 5, index }
    }

    #[test]
    fn keys_expire_after_a_window_of_others() {
        let mut ghosts = Ghosts::new(4 * BLOCK_LEN);
        assert_eq!(ghosts.pages(block(0)), 0, "an empty table");
        ghosts.remove(block(0));
        for index in 0..4 {
            ghosts.note(block(index), WHOLE_BLOCK);
        }
        assert!((0..4).all(|index| ghosts.pages(block(index)) == WHOLE_BLOCK));
        assert_eq!(ghosts.pages(BlockId { file: 6, index: 0 }), 0, "the datafile is part of the key");
        ghosts.note(block(4), 1);
        assert_eq!(ghosts.pages(block(0)), WHOLE_BLOCK, "a page is not a block");
        ghosts.note(block(4), WHOLE_BLOCK);
        assert_eq!((ghosts.pages(block(0)), ghosts.pages(block(1))), (0, WHOLE_BLOCK));
        // A key that is noted again stays, and takes no time.
        ghosts.note(block(1), 2);
        (5..7).for_each(|index| ghosts.note(block(index), WHOLE_BLOCK));
        assert_eq!((ghosts.pages(block(2)), ghosts.pages(block(1))), (0, WHOLE_BLOCK));
        ghosts.remove(block(1));
        assert_eq!(ghosts.pages(block(1)), 0);
        assert_eq!(ghosts.len(), 4);
    }

    #[test]
    fn a_length_has_pages() {
        let lens = [0, 1, 4096, 4097, 65_536, u32::MAX];
        assert_eq!(lens.map(pages_of_len), [1, 1, 1, 0b11, WHOLE_BLOCK, WHOLE_BLOCK]);
    }

    #[test]
    fn pages_of_a_block_add_up() {
        let mut ghosts = Ghosts::new(4 * BLOCK_LEN);
        ghosts.note(block(0), 0b11);
        ghosts.note(block(0), 0b110);
        assert_eq!(ghosts.pages(block(0)), 0b111);
        ghosts.note(block(0), 0);
        assert_eq!(ghosts.pages(block(0)), 0b111);
    }

    #[test]
    fn the_table_is_bounded_and_loses_few_keys() {
        let blocks = 10_000;
        let mut ghosts = Ghosts::new(blocks * BLOCK_LEN);
        let mut random = SplitMix64::new(3);
        for index in 0..20 * blocks {
            ghosts.note(block(index), WHOLE_BLOCK);
            // Some pages of few blocks do not overflow the table, either.
            ghosts.note(BlockId { file: random.below(1 << 40), index }, 1);
            if index % 1000 == 0 {
                let (slots, slots_max) = ghosts.slots();
                assert!(slots <= slots_max && slots_max as u64 <= 8 * blocks, "{slots} of {slots_max}");
            }
        }
        assert!(ghosts.len() as u64 <= 2 * blocks);
        // Of one page noted beside each whole block, a window holds 16/17.
        let known = (0..blocks * 16 / 17).filter(|back| ghosts.pages(block(20 * blocks - 1 - back)) != 0);
        let known = known.count() as u64;
        assert!(known * 100 >= blocks * 16 / 17 * 98, "{known}");
        assert!((0..10 * blocks).all(|index| ghosts.pages(block(index)) == 0), "expired keys are forgotten");
    }

    #[test]
    fn a_changing_window_keeps_recent_keys() {
        let mut ghosts = Ghosts::new(1000 * BLOCK_LEN);
        (0..1000).for_each(|index| ghosts.note(block(index), WHOLE_BLOCK));
        let live = |ghosts: &Ghosts| (0..1000).filter(|index| ghosts.pages(block(*index)) != 0).count();
        let all = live(&ghosts);
        assert!(all > 950, "{all}");
        ghosts.set_window(100 * BLOCK_LEN);
        assert!((95..=100).contains(&live(&ghosts)), "{}", live(&ghosts));
        ghosts.set_window(1000 * BLOCK_LEN);
        assert_eq!(live(&ghosts), all);
        ghosts.set_window(u64::MAX);
        ghosts.set_window(0);
        assert!(live(&ghosts) <= 1);
    }

    #[test]
    fn the_counter_wraps() {
        let mut ghosts = Ghosts::new(4 * BLOCK_LEN);
        ghosts.now = u32::MAX - 20;
        (0..4).for_each(|index| ghosts.note(block(index), WHOLE_BLOCK));
        assert!((0..4).all(|index| ghosts.pages(block(index)) == WHOLE_BLOCK));
        ghosts.note(block(4), WHOLE_BLOCK);
        assert_eq!(ghosts.pages(block(0)), 0);
    }
}
