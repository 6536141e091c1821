//! Segments of a log: allocation, state, and checksums of the payloads in them.
//!
//! ```text
//!         allocate            no space left            compaction emptied it       Free record durable
//!   Free -----------> Open -------------------> Full ---------------------> Freed ---------------------> Free
//!                                                                                    (generation + 1)
//! ```
//!
//! A payload's checksum is seeded with its location and the segment's generation. Bytes that an earlier generation
//! left at the same location therefore never verify.

use super::map::{NONE, Table};
use super::piece::{Location, Pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use weft_core::ByteLen;

/// Maximum length in bytes of a chunk, the unit of checksums. A read of any part of a chunk reads all of it.
pub(super) const CHUNK_LEN_MAX: usize = 64 << 10;
/// Minimum mean length in bytes of the chunks of a segment. Limits the memory for checksums.
const CHUNK_LEN_MEAN_MIN: u32 = 1024;

/// Bytes of a segment that were written by one put, with their checksum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Chunk {
    pub position: u32,
    pub len: u32,
    /// See [`check`]. Zero where the environment keeps payload lengths only.
    pub check: u32,
}

/// Returns the checksum of a payload, seeded with its location and generation, so that stale bytes at the same
/// location do not match.
pub(super) fn check(bytes: &[u8], location: Location, generation: u32) -> u32 {
    let mut seed = u64::from(location.segment) << 32 | u64::from(location.position);
    seed ^= u64::from(generation).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    xxhash_rust::xxh3::xxh3_64_with_seed(bytes, seed) as u32
}

/// State of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SegmentState {
    /// Empty; can be filled.
    Free,
    /// Being filled.
    Open,
    /// Filled.
    Full,
    /// Empty; can be filled once all journal records and payloads up to this LSN are durable.
    Freed(u64),
}

#[derive(Clone)]
pub(super) struct Segment {
    pub state: SegmentState,
    /// Number of times that the segment has been freed.
    pub generation: u32,
    /// Offset of the first byte that has not been allocated.
    pub fill: u32,
    /// Bytes that entries refer to.
    pub live: u64,
    /// Live bytes that the disk does not have.
    pub dirty: u64,
    /// Sequence number of filling: the count of segments that became full, this one included.
    pub filled: u64,
    /// First entry in the list of entries of this segment.
    pub entries: u32,
    /// Chunks in the order of positions.
    pub chunks: Arc<Vec<Chunk>>,
    pins: Arc<AtomicU32>,
}

impl Segment {
    fn new() -> Self {
        Self {
            state: SegmentState::Free,
            generation: 0,
            fill: 0,
            live: 0,
            dirty: 0,
            filled: 0,
            entries: NONE,
            chunks: Arc::default(),
            pins: Arc::default(),
        }
    }

    /// Adds a chunk out of order; [`Segments::classify_after_replay`] sorts them.
    pub fn add_chunk(&mut self, chunk: Chunk) {
        Arc::make_mut(&mut self.chunks).push(chunk);
    }

    pub fn pin(&self) -> Pin {
        Pin::new(&self.pins)
    }

    /// Returns true while the segment is being read or written.
    pub fn is_pinned(&self) -> bool {
        self.pins.load(Ordering::Acquire) > 0
    }

    /// Returns the generation that the segment gets when it is freed.
    pub fn next_generation(&self) -> u32 {
        self.generation.wrapping_add(1)
    }

    /// Returns generation and chunks as the journal has them.
    pub fn journaled(&self) -> (u32, &[Chunk]) {
        match self.state {
            SegmentState::Freed(_) => (self.next_generation(), &[]),
            _ => (self.generation, &self.chunks),
        }
    }

    /// Returns the chunks that overlap `position..end`.
    pub fn chunks_of(&self, position: u32, end: u32) -> &[Chunk] {
        let from = self.chunks.partition_point(|chunk| chunk.position + chunk.len <= position);
        let to = self.chunks.partition_point(|chunk| chunk.position < end);
        self.chunks.get(from..to).unwrap_or_default()
    }
}

/// Priority of an allocation. A higher one may use more of the reserved segments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Priority {
    /// A put that the disk can take instead.
    Ordinary,
    /// A put over dirty bytes, which only the log can take.
    Overwrite,
    /// Compaction, which frees more than it allocates.
    Cleaning,
}

/// All segments of a log.
pub(super) struct Segments {
    all: Table<Segment>,
    len: u32,
    free: Vec<u32>,
    /// Segments being filled: one by puts, and one by compaction.
    open: [Option<u32>; 2],
    reserve: usize,
    filled: u64,
}

impl Segments {
    pub fn new(count: u32, len: u32) -> Self {
        let mut all = Table::new();
        (0..count).for_each(|_| all.push(Segment::new()));
        // Segments with low numbers are used first.
        let free = (0..count).rev().collect();
        Self { all, len, free, open: [None; 2], reserve: (count as usize / 16).clamp(2, 64), filled: 0 }
    }

    pub fn count(&self) -> u32 {
        self.all.len() as u32
    }

    pub fn len(&self) -> u32 {
        self.len
    }

    pub fn get(&self, segment: u32) -> &Segment {
        self.all.get(segment)
    }

    pub fn get_mut(&mut self, segment: u32) -> &mut Segment {
        self.all.get_mut(segment)
    }

    pub fn iter(&self) -> impl Iterator<Item = (u32, &Segment)> {
        (0..).zip(self.all.iter())
    }

    /// Returns a copy-on-write snapshot of all segments.
    pub fn snapshot(&self) -> Table<Segment> {
        self.all.clone()
    }

    pub fn free_count(&self) -> usize {
        self.free.len()
    }

    /// Returns the number of free segments below which compaction starts.
    pub fn free_target(&self) -> usize {
        self.reserve + (self.all.len() / 32).clamp(1, 64)
    }

    /// Returns true when compaction should free segments.
    pub fn is_low(&self) -> bool {
        self.free.len() < self.free_target()
    }

    /// Returns the bytes that may be live at once. A share of each segment must be dead, or compaction would gain
    /// nothing.
    pub fn capacity(&self) -> ByteLen {
        let usable = self.all.len() - self.reserve - self.open.len();
        ByteLen(usable as u64 * u64::from(self.len) * 7 / 8)
    }

    pub fn memory(&self) -> u64 {
        let chunks: usize = self.all.iter().map(|segment| segment.chunks.capacity()).sum();
        (self.all.len() * size_of::<Segment>() + chunks * size_of::<Chunk>()) as u64
    }

    /// Allocates `len` bytes; `None` if this priority may not use the remaining segments.
    pub fn take(&mut self, len: u32, priority: Priority) -> Option<(Location, Pin)> {
        debug_assert!(len > 0 && len <= self.len);
        let head = usize::from(priority == Priority::Cleaning);
        let chunks_max = (self.len / CHUNK_LEN_MEAN_MIN) as usize;
        let fits = |segment: &Segment| {
            segment.fill.checked_add(len).is_some_and(|end| end <= self.len)
                && segment.chunks.len() < chunks_max
        };
        let segment = match self.open[head] {
            Some(open) if fits(self.get(open)) => open,
            _ => {
                let floor = match priority {
                    Priority::Ordinary => self.reserve,
                    Priority::Overwrite => self.reserve / 2,
                    Priority::Cleaning => 0,
                };
                if self.free.len() <= floor {
                    return None;
                }
                let next = self.free.pop()?;
                if let Some(full) = self.open[head].replace(next) {
                    self.filled += 1;
                    let filled = self.filled;
                    let full = self.get_mut(full);
                    (full.state, full.filled) = (SegmentState::Full, filled);
                    Arc::make_mut(&mut full.chunks).shrink_to_fit();
                }
                let segment = self.get_mut(next);
                (segment.state, segment.fill) = (SegmentState::Open, 0);
                segment.chunks = Arc::default();
                next
            }
        };
        let it = self.get_mut(segment);
        let position = it.fill;
        it.fill += len;
        let pin = it.pin();
        Some((Location { segment, position }, pin))
    }

    /// Adds the chunk of an allocation that has been written.
    pub fn written(&mut self, location: Location, len: u32, check: u32) {
        let chunks = Arc::make_mut(&mut self.get_mut(location.segment).chunks);
        let at = chunks.partition_point(|chunk| chunk.position < location.position);
        chunks.insert(at, Chunk { position: location.position, len, check });
    }

    /// Marks a segment as empty.
    pub fn freed(&mut self, segment: u32, lsn: u64) {
        let it = self.get_mut(segment);
        debug_assert_eq!(it.live, 0);
        // Concurrent reads still need the checksums.
        it.state = SegmentState::Freed(lsn);
    }

    /// Returns the empty, unpinned segments whose `Free` record is at or before `lsn`.
    pub fn freed_before(&self, lsn: u64) -> Vec<u32> {
        let is_ready =
            |it: &Segment| matches!(it.state, SegmentState::Freed(at) if at <= lsn) && !it.is_pinned();
        self.iter().filter(|(_, it)| is_ready(it)).map(|(index, _)| index).collect()
    }

    /// Lets segments be filled again.
    pub fn make_free(&mut self, segments: &[u32]) {
        for &segment in segments {
            let it = self.get_mut(segment);
            debug_assert!(!it.is_pinned());
            it.generation = it.next_generation();
            (it.state, it.fill, it.chunks) = (SegmentState::Free, 0, Arc::default());
            self.free.push(segment);
        }
        // Keep low numbers first, whatever the order of freeing.
        self.free.sort_unstable_by(|a, b| b.cmp(a));
    }

    /// Returns the free segments that have been filled before.
    pub fn free_and_used(&self) -> Vec<u32> {
        self.free.iter().copied().filter(|&segment| self.get(segment).generation > 0).collect()
    }

    /// Classifies the segments after replay: those with live bytes are full, the rest are free.
    pub fn classify_after_replay(&mut self) {
        self.open = [None; 2];
        self.free.clear();
        for index in (0..self.count()).rev() {
            let segment = self.all.get_mut(index);
            Arc::make_mut(&mut segment.chunks).sort_unstable_by_key(|chunk| chunk.position);
            if segment.live > 0 {
                segment.state = SegmentState::Full;
            } else {
                segment.state = SegmentState::Free;
                // An unfreed segment whose bytes are all dead gets a new generation.
                segment.generation = segment.generation.wrapping_add(u32::from(!segment.chunks.is_empty()));
                segment.chunks = Arc::default();
                self.free.push(index);
            }
        }
    }
}
