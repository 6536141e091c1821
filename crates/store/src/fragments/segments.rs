//! The segments of a log: which are free, which is being filled, and the checks of what lies in them.

use super::map::{NONE, Table};
use super::piece::{Pin, Place};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use weft_core::ByteLen;

/// The longest run of bytes that has one check: what a read of a part has to read at the most.
pub(super) const CHUNK_LEN_MAX: usize = 64 << 10;
/// On average a chunk takes so many bytes of its segment at the least: it bounds the memory for checks.
const CHUNK_LEN_MEAN_MIN: u32 = 1024;

/// Bytes of a segment that were put together, up to the next chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Chunk {
    pub position: u32,
    pub len: u32,
    /// See [`check`]; `None` where payloads have lengths only.
    pub check: u32,
}

/// The check of a payload: over its bytes, and where they lie at which time, so that what was left there by others is
/// not taken for it.
pub(super) fn check(bytes: &[u8], place: Place, generation: u32) -> u32 {
    let mut seed = u64::from(place.segment) << 32 | u64::from(place.position);
    seed ^= u64::from(generation).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    xxhash_rust::xxh3::xxh3_64_with_seed(bytes, seed) as u32
}

/// What a segment is used for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Use {
    /// Can be filled.
    Free,
    /// Is being filled.
    Open,
    /// Has been filled.
    Full,
    /// Nothing lies in it; free when the journal up to this point is durable, with all payloads.
    Freed(u64),
}

#[derive(Clone)]
pub(super) struct Segment {
    pub used_as: Use,
    /// How often it has been freed.
    pub generation: u32,
    /// From here on nothing has been given out.
    pub fill: u32,
    /// Bytes that entries map to.
    pub live: u64,
    /// Those of them that the disk does not have.
    pub dirty: u64,
    /// How many segments had been filled before it.
    pub filled: u64,
    /// The first entry of the list of those that lie here.
    pub entries: u32,
    /// In the order of positions.
    pub chunks: Arc<Vec<Chunk>>,
    pins: Arc<AtomicU32>,
}

impl Segment {
    fn new() -> Self {
        Self {
            used_as: Use::Free,
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

    /// In any order, before [`Segments::settle`].
    pub fn add_chunk(&mut self, chunk: Chunk) {
        Arc::make_mut(&mut self.chunks).push(chunk);
    }

    pub fn pin(&self) -> Pin {
        Pin::new(&self.pins)
    }

    /// Whether somebody reads or writes it now.
    pub fn is_pinned(&self) -> bool {
        self.pins.load(Ordering::Acquire) > 0
    }

    /// Its generation when it has been emptied.
    pub fn next_generation(&self) -> u32 {
        self.generation.wrapping_add(1)
    }

    /// Generation and chunks as the journal has them.
    pub fn journaled(&self) -> (u32, &[Chunk]) {
        match self.used_as {
            Use::Freed(_) => (self.next_generation(), &[]),
            _ => (self.generation, &self.chunks),
        }
    }

    /// The chunks that hold bytes of `position..end`.
    pub fn chunks_of(&self, position: u32, end: u32) -> &[Chunk] {
        let from = self.chunks.partition_point(|chunk| chunk.position + chunk.len <= position);
        let to = self.chunks.partition_point(|chunk| chunk.position < end);
        self.chunks.get(from..to).unwrap_or_default()
    }
}

/// Who asks for room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Want {
    /// Somebody for whom there is the disk.
    Ordinary,
    /// Somebody who writes over dirty bytes.
    Overwrite,
    /// Cleaning, which gives back more than it takes.
    Cleaning,
}

/// All segments.
pub(super) struct Segments {
    all: Table<Segment>,
    len: u32,
    free: Vec<u32>,
    /// Being filled: by those who put, and by cleaning.
    open: [Option<u32>; 2],
    reserve: usize,
    filled: u64,
}

impl Segments {
    pub fn new(count: u32, len: u32) -> Self {
        let mut all = Table::new();
        (0..count).for_each(|_| all.push(Segment::new()));
        // The lowest first.
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

    /// All of them as they are now.
    pub fn picture(&self) -> Table<Segment> {
        self.all.clone()
    }

    pub fn free_count(&self) -> usize {
        self.free.len()
    }

    /// So many are freed ahead of need.
    pub fn free_wanted(&self) -> usize {
        self.reserve + (self.all.len() / 32).clamp(1, 64)
    }

    /// Whether there is need.
    pub fn is_low(&self) -> bool {
        self.free.len() < self.free_wanted()
    }

    /// Bytes that may be live at once: some of each segment must be dead, or cleaning would gain nothing.
    pub fn capacity(&self) -> ByteLen {
        let usable = self.all.len() - self.reserve - self.open.len();
        ByteLen(usable as u64 * u64::from(self.len) * 7 / 8)
    }

    pub fn memory(&self) -> u64 {
        let chunks: usize = self.all.iter().map(|segment| segment.chunks.capacity()).sum();
        (self.all.len() * size_of::<Segment>() + chunks * size_of::<Chunk>()) as u64
    }

    /// Gives out `len` bytes; `None` when there is no room for this purpose.
    pub fn take(&mut self, len: u32, want: Want) -> Option<(Place, Pin)> {
        debug_assert!(len > 0 && len <= self.len);
        let head = usize::from(want == Want::Cleaning);
        let chunks_max = (self.len / CHUNK_LEN_MEAN_MIN) as usize;
        let fits = |segment: &Segment| {
            segment.fill.checked_add(len).is_some_and(|end| end <= self.len)
                && segment.chunks.len() < chunks_max
        };
        let segment = match self.open[head] {
            Some(open) if fits(self.get(open)) => open,
            _ => {
                let floor = match want {
                    Want::Ordinary => self.reserve,
                    Want::Overwrite => self.reserve / 2,
                    Want::Cleaning => 0,
                };
                if self.free.len() <= floor {
                    return None;
                }
                let next = self.free.pop()?;
                if let Some(full) = self.open[head].replace(next) {
                    self.filled += 1;
                    let filled = self.filled;
                    let full = self.get_mut(full);
                    (full.used_as, full.filled) = (Use::Full, filled);
                    Arc::make_mut(&mut full.chunks).shrink_to_fit();
                }
                let segment = self.get_mut(next);
                (segment.used_as, segment.fill) = (Use::Open, 0);
                segment.chunks = Arc::default();
                next
            }
        };
        let it = self.get_mut(segment);
        let position = it.fill;
        it.fill += len;
        let pin = it.pin();
        Some((Place { segment, position }, pin))
    }

    /// Bytes have been written that were given out.
    pub fn written(&mut self, place: Place, len: u32, check: u32) {
        let chunks = Arc::make_mut(&mut self.get_mut(place.segment).chunks);
        let at = chunks.partition_point(|chunk| chunk.position < place.position);
        chunks.insert(at, Chunk { position: place.position, len, check });
    }

    /// Nothing lies in it any more.
    pub fn freed(&mut self, segment: u32, point: u64) {
        let it = self.get_mut(segment);
        debug_assert_eq!(it.live, 0);
        // Its checks stay for those who read there still.
        it.used_as = Use::Freed(point);
    }

    /// The segments in which nothing lies, and which nobody reads, when everything up to `point` is durable.
    pub fn freed_before(&self, point: u64) -> Vec<u32> {
        let is_ready = |it: &Segment| matches!(it.used_as, Use::Freed(at) if at <= point) && !it.is_pinned();
        self.iter().filter(|(_, it)| is_ready(it)).map(|(index, _)| index).collect()
    }

    /// They can be filled again.
    pub fn make_free(&mut self, segments: &[u32]) {
        for &segment in segments {
            let it = self.get_mut(segment);
            debug_assert!(!it.is_pinned());
            it.generation = it.next_generation();
            (it.used_as, it.fill, it.chunks) = (Use::Free, 0, Arc::default());
            self.free.push(segment);
        }
        // The lowest first, whatever the order of freeing.
        self.free.sort_unstable_by(|a, b| b.cmp(a));
    }

    /// The free segments that have been filled before.
    pub fn free_and_used(&self) -> Vec<u32> {
        self.free.iter().copied().filter(|&segment| self.get(segment).generation > 0).collect()
    }

    /// After the journal was read: what has anything in it is full, the rest free.
    pub fn settle(&mut self) {
        self.open = [None; 2];
        self.free.clear();
        for index in (0..self.count()).rev() {
            let segment = self.all.get_mut(index);
            Arc::make_mut(&mut segment.chunks).sort_unstable_by_key(|chunk| chunk.position);
            if segment.live > 0 {
                segment.used_as = Use::Full;
            } else {
                segment.used_as = Use::Free;
                // Of a new one in which something lay.
                segment.generation = segment.generation.wrapping_add(u32::from(!segment.chunks.is_empty()));
                segment.chunks = Arc::default();
                self.free.push(index);
            }
        }
    }
}
