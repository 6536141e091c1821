//! The page cache: which pages of files are in memory, with second-chance eviction.

use super::PAGE;
use std::collections::{BTreeMap, VecDeque};

/// Number of pages in a chunk, one bit each.
const CHUNK_PAGES: u64 = 64;
const CHUNK: u64 = CHUNK_PAGES * PAGE;

#[derive(Clone, Copy, Debug)]
struct Chunk {
    pages: u64,
    is_used: bool,
}

/// Minimum size in bytes. Even a system without a page cache holds the pages being written.
const BYTES_MIN: u64 = 4 << 20;

/// The page cache. With a limit of zero, reads never hit it, and it only keeps partly written pages.
#[derive(Clone, Debug)]
pub(crate) struct PageCache {
    chunks: BTreeMap<(u64, u64), Chunk>,
    /// Chunks in order of eviction. A chunk used since it was queued is queued again instead.
    order: VecDeque<(u64, u64)>,
    pages: u64,
    pages_max: u64,
    is_off: bool,
}

impl PageCache {
    pub fn new(bytes: u64) -> Self {
        let pages_max = bytes.max(BYTES_MIN) / PAGE;
        Self { chunks: BTreeMap::new(), order: VecDeque::new(), pages: 0, pages_max, is_off: bytes == 0 }
    }

    /// Returns each chunk of a range with the bits of its pages.
    fn chunks(start: u64, end: u64) -> impl Iterator<Item = (u64, u64)> {
        let (first, last) = (start / PAGE, end.div_ceil(PAGE));
        (first / CHUNK_PAGES..last.div_ceil(CHUNK_PAGES)).map(move |chunk| {
            let low = first.saturating_sub(chunk * CHUNK_PAGES);
            let high = (last - chunk * CHUNK_PAGES).min(CHUNK_PAGES);
            let up_to = if high == CHUNK_PAGES { u64::MAX } else { (1 << high) - 1 };
            (chunk, up_to & !((1u64 << low) - 1))
        })
    }

    pub fn insert(&mut self, file: u64, start: u64, end: u64) {
        if !self.is_off {
            self.keep(file, start, end);
        }
    }

    /// Keeps partly written pages for the next write to them.
    pub fn keep(&mut self, file: u64, start: u64, end: u64) {
        if start >= end {
            return;
        }
        for (number, bits) in Self::chunks(start, end) {
            let order = &mut self.order;
            let chunk = self.chunks.entry((file, number)).or_insert_with(|| {
                order.push_back((file, number));
                Chunk { pages: 0, is_used: false }
            });
            self.pages += u64::from((bits & !chunk.pages).count_ones());
            chunk.pages |= bits;
            chunk.is_used = true;
        }
        while self.pages > self.pages_max {
            let Some(key) = self.order.pop_front() else { break };
            let Some(chunk) = self.chunks.get_mut(&key) else { continue };
            if std::mem::take(&mut chunk.is_used) && self.order.len() > 1 {
                self.order.push_back(key);
            } else {
                self.pages -= u64::from(chunk.pages.count_ones());
                self.chunks.remove(&key);
            }
        }
    }

    /// Appends the parts of a range of whole pages that are not in memory.
    pub fn gaps(&mut self, file: u64, start: u64, end: u64, out: &mut Vec<(u64, u64)>) {
        if self.is_off {
            out.push((start, end));
            return;
        }
        for (number, bits) in Self::chunks(start, end) {
            let present = self.chunks.get_mut(&(file, number)).map_or(0, |chunk| {
                chunk.is_used = true;
                chunk.pages
            });
            let mut missing = bits & !present;
            while missing != 0 {
                let low = missing.trailing_zeros();
                let count = (missing >> low).trailing_ones();
                let from = number * CHUNK + u64::from(low) * PAGE;
                let to = from + u64::from(count) * PAGE;
                match out.last_mut() {
                    Some(last) if last.1 == from => last.1 = to,
                    _ => out.push((from, to)),
                }
                missing &= if low + count == 64 { 0 } else { u64::MAX << (low + count) };
            }
        }
    }

    /// Drops all pages.
    pub fn clear(&mut self) {
        self.chunks.clear();
        self.order.clear();
        self.pages = 0;
    }

    /// Whether the page at `at` is in memory.
    pub fn has(&self, file: u64, at: u64) -> bool {
        let page = at / PAGE;
        let chunk = self.chunks.get(&(file, page / CHUNK_PAGES));
        chunk.is_some_and(|chunk| chunk.pages >> (page % CHUNK_PAGES) & 1 == 1)
    }

    /// Drops the pages behind `len` bytes of a file.
    pub fn cut(&mut self, file: u64, len: u64) {
        let first = len.div_ceil(PAGE);
        let gone: Vec<_> =
            self.chunks.range((file, first / CHUNK_PAGES)..=(file, u64::MAX)).map(|(&k, _)| k).collect();
        for key in gone {
            let keep = (first.saturating_sub(key.1 * CHUNK_PAGES)).min(CHUNK_PAGES);
            let kept = if keep == CHUNK_PAGES { u64::MAX } else { (1u64 << keep) - 1 };
            let chunk = self.chunks.get_mut(&key).expect("just listed");
            self.pages -= u64::from((chunk.pages & !kept).count_ones());
            chunk.pages &= kept;
            if chunk.pages == 0 {
                self.chunks.remove(&key);
            }
        }
    }
}
