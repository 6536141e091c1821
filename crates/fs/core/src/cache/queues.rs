//! Queues of blocks: doubly linked lists in one vector, so that any block can leave its queue in constant time.

use super::BlockId;

/// Position of a block in [`Queues`]; valid until the block is removed.
pub(super) type Slot = u32;

/// End of a list.
const NONE: Slot = Slot::MAX;

/// A queue. The least recently used policy has the main queue alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Queue {
    /// Blocks that have not proven themselves.
    Small,
    /// Blocks that have.
    Main,
    /// Blocks of the small queue that the owner refused to evict during the present search.
    RefusedSmall,
    /// Blocks of the main queue that the owner refused to evict during the present search.
    RefusedMain,
}

const QUEUES: usize = 4;

/// A block in a queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub block: BlockId,
    /// Bytes of the block that the cache holds.
    pub bytes: u32,
    /// Accesses since the block entered its queue, up to the maximum of the policy.
    pub accesses: u8,
    pub queue: Queue,
    older: Slot,
    /// In a free entry, the next free one.
    newer: Slot,
}

#[derive(Clone, Copy, Debug)]
struct Ends {
    oldest: Slot,
    newest: Slot,
    bytes: u64,
}

/// All queues of a cache.
#[derive(Clone, Debug)]
pub(super) struct Queues {
    entries: Vec<Entry>,
    free: Slot,
    ends: [Ends; QUEUES],
}

impl Queues {
    /// Returns empty queues.
    pub const fn new() -> Self {
        let empty = Ends { oldest: NONE, newest: NONE, bytes: 0 };
        Self { entries: Vec::new(), free: NONE, ends: [empty; QUEUES] }
    }

    /// Adds a block at the newest end of a queue.
    pub fn push(&mut self, queue: Queue, block: BlockId, bytes: u32) -> Slot {
        let entry = Entry { block, bytes, accesses: 0, queue, older: NONE, newer: NONE };
        let slot = match self.free {
            NONE => {
                let slot = Slot::try_from(self.entries.len()).ok().filter(|slot| *slot != NONE);
                let slot = slot.expect("fewer than 2^32 - 1 blocks, which take 137 GB of memory");
                self.entries.push(entry);
                slot
            }
            slot => {
                self.free = self.entries[slot as usize].newer;
                self.entries[slot as usize] = entry;
                slot
            }
        };
        self.link(slot);
        slot
    }

    /// Removes a block and returns it.
    pub fn remove(&mut self, slot: Slot) -> Entry {
        self.unlink(slot);
        let entry = self.entries[slot as usize];
        self.entries[slot as usize].newer = self.free;
        self.free = slot;
        entry
    }

    /// Moves a block to the newest end of a queue, possibly its own.
    pub fn move_to(&mut self, queue: Queue, slot: Slot) {
        self.unlink(slot);
        self.entries[slot as usize].queue = queue;
        self.link(slot);
    }

    /// Sets the number of bytes of a block.
    pub fn set_bytes(&mut self, slot: Slot, bytes: u32) {
        let entry = &mut self.entries[slot as usize];
        let sum = &mut self.ends[entry.queue as usize].bytes;
        *sum = *sum - u64::from(entry.bytes) + u64::from(bytes);
        entry.bytes = bytes;
    }

    /// Sets the number of accesses of a block.
    pub fn set_accesses(&mut self, slot: Slot, accesses: u8) {
        self.entries[slot as usize].accesses = accesses;
    }

    /// Returns a block.
    pub fn entry(&self, slot: Slot) -> &Entry {
        &self.entries[slot as usize]
    }

    /// Returns the oldest block of a queue.
    pub const fn oldest(&self, queue: Queue) -> Option<Slot> {
        match self.ends[queue as usize].oldest {
            NONE => None,
            slot => Some(slot),
        }
    }

    /// Returns the number of bytes in a queue.
    pub const fn bytes(&self, queue: Queue) -> u64 {
        self.ends[queue as usize].bytes
    }

    fn link(&mut self, slot: Slot) {
        let Entry { queue, bytes, .. } = self.entries[slot as usize];
        let ends = &mut self.ends[queue as usize];
        let before = std::mem::replace(&mut ends.newest, slot);
        ends.bytes += u64::from(bytes);
        match before {
            NONE => ends.oldest = slot,
            before => self.entries[before as usize].newer = slot,
        }
        let entry = &mut self.entries[slot as usize];
        (entry.older, entry.newer) = (before, NONE);
    }

    fn unlink(&mut self, slot: Slot) {
        let Entry { queue, bytes, older, newer, .. } = self.entries[slot as usize];
        let ends = &mut self.ends[queue as usize];
        ends.bytes -= u64::from(bytes);
        match older {
            NONE => ends.oldest = newer,
            older => self.entries[older as usize].newer = newer,
        }
        match newer {
            NONE => ends.newest = older,
            newer => self.entries[newer as usize].older = older,
        }
    }
}
