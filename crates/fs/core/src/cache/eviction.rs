//! Order of eviction: S3-FIFO of Yang, Zhang, Qiu, Yue and Rashmi (SOSP 2023), and least recently used as a baseline.
//!
//! ```text
//!   new block ---> small queue, a tenth of the bytes --- oldest, accessed twice or more ---> main queue <--+
//!                        |                                                                    |   oldest,  |
//!                        | oldest, accessed less                                              |   accessed |
//!                        v                                                                    +------------+
//!   evicted <----- ghost queue: keys of as many bytes as the main queue may hold        oldest, not accessed: evicted
//!                        |
//!   new block whose key is in the ghost queue ---> main queue
//! ```
//!
//! The queues are first in, first out; an access only counts, up to 3. Each round through the main queue takes one
//! access away. Sizes are in bytes, because blocks differ in fill.

use super::BlockId;
use super::ghost::{Ghosts, pages_of_len};
use super::queues::{Entry, Queue, Queues, Slot};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// The small queue gets one part in this many of the capacity.
const SMALL_DIVISOR: u64 = 10;
/// Maximum of the count of accesses.
const ACCESSES_MAX: u8 = 3;
/// Accesses in the small queue that move a block to the main queue.
const ACCESSES_TO_MAIN: u8 = 2;

/// Policy that selects the block to evict.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum EvictionPolicy {
    /// Small, main and ghost queue, each first in, first out.
    #[default]
    S3Fifo,
    /// Least recently used.
    Lru,
}

/// Error: the text is not a policy of eviction.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0:?} is not a policy of eviction: use s3-fifo or lru")]
pub struct EvictionPolicyError(pub String);

impl EvictionPolicy {
    /// All policies.
    pub const ALL: [Self; 2] = [Self::S3Fifo, Self::Lru];

    /// Returns the name of the policy in cluster files and reports.
    pub const fn word(self) -> &'static str {
        match self {
            Self::S3Fifo => "s3-fifo",
            Self::Lru => "lru",
        }
    }
}

impl fmt::Display for EvictionPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

impl FromStr for EvictionPolicy {
    type Err = EvictionPolicyError;

    fn from_str(text: &str) -> Result<Self, EvictionPolicyError> {
        let named = Self::ALL.into_iter().find(|policy| policy.word() == text);
        named.ok_or_else(|| EvictionPolicyError(text.to_owned()))
    }
}

/// Blocks in a cache, in the order of their eviction.
#[derive(Clone, Debug)]
pub struct Eviction {
    policy: EvictionPolicy,
    capacity: u64,
    index: BTreeMap<BlockId, Slot>,
    queues: Queues,
    /// Keys evicted from the small queue.
    ghosts: Ghosts,
}

impl Eviction {
    /// Returns an empty cache of a capacity in bytes.
    pub fn new(policy: EvictionPolicy, capacity_bytes: u64) -> Self {
        let mut eviction = Self {
            policy,
            capacity: 0,
            index: BTreeMap::new(),
            queues: Queues::new(),
            ghosts: Ghosts::new(0),
        };
        eviction.set_capacity(capacity_bytes);
        eviction
    }

    /// Returns the capacity in bytes.
    pub const fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Changes the capacity. Blocks beyond a smaller one are evicted by the next calls of [`victim`](Self::victim).
    pub fn set_capacity(&mut self, bytes: u64) {
        self.capacity = bytes;
        self.ghosts.set_window(bytes - bytes / SMALL_DIVISOR);
    }

    /// Returns the bytes in the cache.
    pub const fn bytes(&self) -> u64 {
        self.queues.bytes(Queue::Small) + self.queues.bytes(Queue::Main)
    }

    /// Returns the number of blocks in the cache.
    pub fn blocks(&self) -> usize {
        self.index.len()
    }

    /// Returns the bytes of a block in the cache; `None` if the block is not in it.
    pub fn bytes_of(&self, block: BlockId) -> Option<u32> {
        self.index.get(&block).map(|slot| self.queues.entry(*slot).bytes)
    }

    /// Records an access. Returns true if the block is in the cache.
    pub fn touch(&mut self, block: BlockId) -> bool {
        let Some(&slot) = self.index.get(&block) else { return false };
        match self.policy {
            EvictionPolicy::S3Fifo => {
                let accesses = self.queues.entry(slot).accesses;
                self.queues.set_accesses(slot, (accesses + 1).min(ACCESSES_MAX));
            }
            EvictionPolicy::Lru => self.queues.move_to(Queue::Main, slot),
        }
        true
    }

    /// Records that the cache stored `bytes` more of a block. This is no access: a block that fills in several steps
    /// is not more popular for that. A new block without bytes is ignored.
    pub fn insert(&mut self, block: BlockId, bytes: u32) {
        let before = self.bytes_of(block).unwrap_or(0);
        self.set_bytes(block, before.saturating_add(bytes));
    }

    /// Records how many bytes of a block the cache holds, after bytes were added, or dropped by a truncation or an
    /// overwrite. A block without bytes leaves the cache.
    pub fn set_bytes(&mut self, block: BlockId, bytes: u32) {
        match self.index.get(&block) {
            _ if bytes == 0 => self.remove(block),
            Some(&slot) => self.queues.set_bytes(slot, bytes),
            None => {
                let queue = self.queue_for_new(block);
                let slot = self.queues.push(queue, block, bytes);
                self.index.insert(block, slot);
            }
        }
    }

    fn queue_for_new(&mut self, block: BlockId) -> Queue {
        match self.policy {
            EvictionPolicy::S3Fifo if self.ghosts.pages(block) == 0 => Queue::Small,
            EvictionPolicy::S3Fifo => {
                self.ghosts.remove(block);
                Queue::Main
            }
            EvictionPolicy::Lru => Queue::Main,
        }
    }

    /// Removes a block whose bytes were dropped. Nothing happens if it is not in the cache.
    pub fn remove(&mut self, block: BlockId) {
        if let Some(slot) = self.index.remove(&block) {
            self.queues.remove(slot);
        }
    }

    /// Returns whether the cache has a block of a datafile.
    pub fn has_file(&self, file: u64) -> bool {
        let all = BlockId { file, index: 0 }..=BlockId { file, index: u64::MAX };
        self.index.range(all).next().is_some()
    }

    /// Removes all blocks of a datafile.
    pub fn remove_file(&mut self, file: u64) {
        self.remove_from(BlockId { file, index: 0 });
    }

    /// Removes a block and all later ones of its datafile, after a truncation.
    pub fn remove_from(&mut self, first: BlockId) {
        while let Some((&block, _)) = self.index.range(first..).next() {
            if block.file != first.file {
                break;
            }
            self.remove(block);
        }
    }

    /// Removes and returns the next block to evict; `None` if the cache is within its capacity, or if `may_evict`
    /// refuses all blocks. The owner drops the returned block's bytes.
    ///
    /// A call asks about each block at most once. A refused block, one with dirty bytes for instance, is kept and goes
    /// to the newest end of its queue, so that later calls do not ask about it again soon.
    pub fn victim(&mut self, may_evict: impl FnMut(BlockId) -> bool) -> Option<BlockId> {
        self.victim_for(0, may_evict)
    }

    /// Like [`victim`](Self::victim), until `needed` bytes more fit. Makes room before the bytes are stored.
    pub fn victim_for(&mut self, needed: u64, mut may_evict: impl FnMut(BlockId) -> bool) -> Option<BlockId> {
        if self.bytes().saturating_add(needed) <= self.capacity {
            return None;
        }
        let victim = loop {
            let Some((queue, slot)) = self.oldest() else { break None };
            let Entry { block, bytes, .. } = *self.queues.entry(slot);
            if may_evict(block) {
                if queue == Queue::Small {
                    self.ghosts.note(block, pages_of_len(bytes));
                }
                self.remove(block);
                break Some(block);
            }
            let aside = if queue == Queue::Small { Queue::RefusedSmall } else { Queue::RefusedMain };
            self.queues.move_to(aside, slot);
        };
        for (aside, home) in [(Queue::RefusedSmall, Queue::Small), (Queue::RefusedMain, Queue::Main)] {
            while let Some(slot) = self.queues.oldest(aside) {
                self.queues.move_to(home, slot);
            }
        }
        victim
    }

    /// Returns the next candidate and its queue, after it moved those that have another round before them.
    fn oldest(&mut self) -> Option<(Queue, Slot)> {
        loop {
            let small = self.queues.oldest(Queue::Small);
            let is_small_due = self.queues.bytes(Queue::Small) >= self.capacity / SMALL_DIVISOR;
            let main = self.queues.oldest(Queue::Main);
            match (small.filter(|_| is_small_due || main.is_none()), main) {
                (Some(slot), _) if self.queues.entry(slot).accesses >= ACCESSES_TO_MAIN => {
                    self.queues.set_accesses(slot, 0);
                    self.queues.move_to(Queue::Main, slot);
                }
                (Some(slot), _) => return Some((Queue::Small, slot)),
                (None, Some(slot)) => match self.queues.entry(slot).accesses {
                    0 => return Some((Queue::Main, slot)),
                    accesses => {
                        self.queues.set_accesses(slot, accesses - 1);
                        self.queues.move_to(Queue::Main, slot);
                    }
                },
                (None, None) => return None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const KIB: u64 = 1024;

    fn block(index: u64) -> BlockId {
        BlockId { file: index % 3, index: index / 3 }
    }

    /// Evicts until the cache is within its capacity.
    fn shrink(cache: &mut Eviction) -> Vec<BlockId> {
        std::iter::from_fn(|| cache.victim(|_| true)).collect()
    }

    #[test]
    fn policies_round_trip() {
        for policy in EvictionPolicy::ALL {
            assert_eq!(policy.to_string().parse(), Ok(policy));
        }
        let error = "fifo".parse::<EvictionPolicy>().unwrap_err().to_string();
        assert!(error.contains("s3-fifo or lru"), "{error}");
    }

    #[test]
    fn lru_evicts_the_block_idle_for_longest() {
        let mut cache = Eviction::new(EvictionPolicy::Lru, 3 * KIB);
        (0..3).for_each(|index| cache.insert(block(index), 1024));
        assert!(cache.touch(block(0)) && !cache.touch(block(9)));
        assert_eq!(cache.victim(|_| true), None, "the cache is exactly full");
        cache.insert(block(3), 1);
        assert_eq!(shrink(&mut cache), [block(1)]);
        cache.insert(block(2), 1024);
        assert_eq!(shrink(&mut cache), [block(2)], "filling a block is no access");
    }

    #[test]
    fn s3_fifo_keeps_what_is_accessed_again() {
        let mut cache = Eviction::new(EvictionPolicy::S3Fifo, 40 * KIB);
        (0..10).for_each(|index| cache.insert(block(index), 4096));
        // One access is a coincidence, two are not.
        cache.touch(block(0));
        cache.touch(block(1));
        cache.touch(block(1));
        (10..13).for_each(|index| cache.insert(block(index), 4096));
        assert_eq!(shrink(&mut cache), [block(0), block(2), block(3)]);
        // A block that returns soon enters the main queue, and a scan does not reach it there.
        cache.insert(block(0), 4096);
        for index in 20..30 {
            cache.insert(block(index), 4096);
            shrink(&mut cache);
        }
        assert!(cache.touch(block(0)) && cache.touch(block(1)));
        assert!((20..30).all(|index| cache.bytes_of(block(index)).is_some() == (index >= 22)));
    }

    #[test]
    fn blocks_of_different_fill_count_by_their_bytes() {
        for policy in EvictionPolicy::ALL {
            let mut cache = Eviction::new(policy, 64 * KIB);
            cache.insert(block(0), 40 << 10);
            (1..25).for_each(|index| cache.insert(block(index), 1024));
            assert_eq!((cache.bytes(), cache.victim(|_| true)), (64 * KIB, None), "{policy}");
            cache.insert(block(24), 10 << 10);
            assert_eq!(cache.bytes_of(block(24)), Some(11 << 10));
            assert_eq!(shrink(&mut cache), [block(0)], "{policy}: one large block makes room");
            cache.set_bytes(block(24), 512);
            assert_eq!(cache.bytes(), 23 * KIB + 512, "{policy}");
            cache.set_bytes(block(24), 0);
            assert_eq!((cache.bytes(), cache.bytes_of(block(24))), (23 * KIB, None), "{policy}");
            cache.insert(block(99), 0);
            assert_eq!(cache.blocks(), 23, "{policy}");
        }
    }

    #[test]
    fn room_is_made_before_bytes_are_stored() {
        for policy in EvictionPolicy::ALL {
            let mut cache = Eviction::new(policy, 8 * KIB);
            (0..8).for_each(|index| cache.insert(block(index), 1024));
            let room = std::iter::from_fn(|| cache.victim_for(3 * KIB, |_| true)).collect::<Vec<_>>();
            assert_eq!(room, [block(0), block(1), block(2)], "{policy}");
            assert!(std::iter::from_fn(|| cache.victim_for(u64::MAX, |_| true)).count() == 5, "{policy}");
        }
    }

    #[test]
    fn dirty_blocks_stay_and_are_asked_about_once() {
        for policy in EvictionPolicy::ALL {
            let mut cache = Eviction::new(policy, 8 * KIB);
            (0..20).for_each(|index| cache.insert(block(index), 1024));
            (0..20).filter(|index| index % 5 == 0).for_each(|index| {
                (0..3).for_each(|_| _ = cache.touch(block(index)));
            });
            let mut asked = Vec::new();
            let refuse = |block| {
                asked.push(block);
                false
            };
            assert_eq!(cache.victim(refuse), None, "{policy}");
            assert_eq!(asked.len(), 20, "{policy}");
            assert_eq!(asked.into_iter().collect::<BTreeSet<_>>().len(), 20, "{policy}");
            assert_eq!((cache.bytes(), cache.blocks()), (20 * KIB, 20), "{policy}");
            let victims: Vec<_> = std::iter::from_fn(|| cache.victim(|block| block.index == 1)).collect();
            assert_eq!(victims.into_iter().collect::<BTreeSet<_>>(), (3..6).map(block).collect(), "{policy}");
            assert_eq!(shrink(&mut cache).len(), 9, "{policy}");
        }
    }

    #[test]
    fn a_datafile_leaves_as_a_whole_or_from_a_block_on() {
        for policy in EvictionPolicy::ALL {
            let mut cache = Eviction::new(policy, 1 << 20);
            (0..30).for_each(|index| cache.insert(block(index), 1024));
            cache.remove_from(BlockId { file: 1, index: 4 });
            assert_eq!(cache.blocks(), 24, "{policy}");
            assert!(
                cache.touch(BlockId { file: 1, index: 3 }) && !cache.touch(BlockId { file: 1, index: 4 })
            );
            cache.remove_file(1);
            cache.remove_file(7);
            assert_eq!((cache.blocks(), cache.bytes()), (20, 20 * KIB), "{policy}");
            assert!((0..30).all(|index| cache.touch(block(index)) == (index % 3 != 1)), "{policy}");
        }
    }

    /// Reference implementation with plain lists, the oldest block first.
    #[derive(Default)]
    struct Model {
        small: Vec<(BlockId, u32, u8)>,
        main: Vec<(BlockId, u32, u8)>,
        ghosts: Vec<BlockId>,
    }

    impl Model {
        fn bytes(&self) -> u64 {
            self.small.iter().chain(&self.main).map(|(_, bytes, _)| u64::from(*bytes)).sum()
        }

        fn find(&mut self, block: BlockId) -> Option<&mut (BlockId, u32, u8)> {
            self.small.iter_mut().chain(&mut self.main).find(|(other, ..)| *other == block)
        }

        fn retain(&mut self, keep: impl Fn(&BlockId) -> bool) {
            self.small.retain(|(block, ..)| keep(block));
            self.main.retain(|(block, ..)| keep(block));
        }

        fn touch(&mut self, policy: EvictionPolicy, block: BlockId) -> bool {
            let Some(found) = self.find(block) else { return false };
            found.2 = (found.2 + 1).min(3);
            if policy == EvictionPolicy::Lru {
                let at = self.main.iter().position(|(other, ..)| *other == block).unwrap();
                let found = self.main.remove(at);
                self.main.push(found);
            }
            true
        }

        fn insert(&mut self, policy: EvictionPolicy, block: BlockId, bytes: u32) {
            if let Some(found) = self.find(block) {
                found.1 += bytes;
            } else if policy == EvictionPolicy::Lru || self.ghosts.contains(&block) {
                self.ghosts.retain(|other| *other != block);
                self.main.push((block, bytes, 0));
            } else {
                self.small.push((block, bytes, 0));
            }
        }

        /// As the figure at the top of the file says.
        fn victim(
            &mut self,
            policy: EvictionPolicy,
            capacity: u64,
            clean: impl Fn(BlockId) -> bool,
        ) -> Option<BlockId> {
            let (mut small, mut main) = (Vec::new(), Vec::new());
            let mut victim = None;
            while self.bytes() + sum(&small) + sum(&main) > capacity {
                let is_small =
                    !self.small.is_empty() && (sum(&self.small) >= capacity / 10 || self.main.is_empty());
                let from = if is_small { &mut self.small } else { &mut self.main };
                if from.is_empty() {
                    break;
                }
                let (block, bytes, accesses) = from.remove(0);
                match (is_small, accesses) {
                    (true, 2..) => self.main.push((block, bytes, 0)),
                    (false, 1..) if policy == EvictionPolicy::S3Fifo => {
                        self.main.push((block, bytes, accesses - 1));
                    }
                    _ if !clean(block) && is_small => small.push((block, bytes, accesses)),
                    _ if !clean(block) => main.push((block, bytes, accesses)),
                    _ => {
                        if is_small {
                            self.ghosts.push(block);
                        }
                        victim = Some(block);
                        break;
                    }
                }
            }
            self.small.append(&mut small);
            self.main.append(&mut main);
            victim
        }
    }

    fn sum(blocks: &[(BlockId, u32, u8)]) -> u64 {
        blocks.iter().map(|(_, bytes, _)| u64::from(*bytes)).sum()
    }

    #[derive(Clone, Copy, Debug)]
    enum Op {
        Access(u64, u32),
        Insert(u64, u32),
        Remove(u64),
        RemoveFile(u64),
        Capacity(u64),
        Victims(u64),
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            12 => (0u64..40, 1u32..=65_536).prop_map(|(index, bytes)| Op::Access(index, bytes)),
            2 => (0u64..40, 1u32..=65_536).prop_map(|(index, bytes)| Op::Insert(index, bytes)),
            1 => (0u64..40).prop_map(Op::Remove),
            1 => (0u64..40).prop_map(Op::RemoveFile),
            // Never so small that ghost entries expire; `ghost.rs` tests that.
            1 => (40u64..64).prop_map(|blocks| Op::Capacity((blocks * 10) << 10)),
            8 => (0u64..8).prop_map(Op::Victims),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]
        #[test]
        fn both_policies_match_the_reference(ops in prop::collection::vec(op(), 1..250)) {
            for policy in EvictionPolicy::ALL {
                let mut capacity = 500 << 10;
                let (mut cache, mut model) = (Eviction::new(policy, capacity), Model::default());
                // No ghost entry expires, as in the model.
                cache.ghosts.set_window(1 << 40);
                cache.ghosts.preallocate();
                for op in &ops {
                    match *op {
                        Op::Access(index, bytes) => {
                            let hit = cache.touch(block(index));
                            prop_assert_eq!(hit, model.touch(policy, block(index)));
                            if !hit {
                                cache.insert(block(index), bytes);
                                model.insert(policy, block(index), bytes);
                            }
                        }
                        Op::Insert(index, bytes) => {
                            cache.insert(block(index), bytes);
                            model.insert(policy, block(index), bytes);
                        }
                        Op::Remove(index) => {
                            cache.remove(block(index));
                            model.retain(|other| *other != block(index));
                        }
                        Op::RemoveFile(file) => {
                            cache.remove_file(file);
                            model.retain(|other| other.file != file);
                        }
                        Op::Capacity(bytes) => {
                            capacity = bytes;
                            cache.set_capacity(bytes);
                            cache.ghosts.set_window(1 << 40);
                        }
                        Op::Victims(dirty) => {
                            let clean = |block: BlockId| block.index % 8 >= dirty;
                            loop {
                                let victim = cache.victim(clean);
                                prop_assert_eq!(victim, model.victim(policy, capacity, clean));
                                prop_assert_eq!(cache.bytes(), model.bytes());
                                if victim.is_none() {
                                    break;
                                }
                            }
                            let clean_left = cache.index.keys().any(|block| clean(*block));
                            prop_assert!(cache.bytes() <= capacity || !clean_left);
                        }
                    }
                    let left: u64 = (0..120).filter_map(|index| cache.bytes_of(block(index))).map(u64::from).sum();
                    prop_assert_eq!(left, cache.bytes());
                }
            }
        }
    }
}
