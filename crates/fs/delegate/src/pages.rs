//! Pages of all files in the memory of one delegate, and the memory bound.
//!
//! Files may have pages of different lengths: there is one [`PageCache`] for each length, and all share the memory.

use crate::buffer::Buffer;
use std::collections::BTreeMap;
use std::sync::Arc;
use weft_core::ByteRange;
use weft_core::delegates::ownership::{FileNumber, PageId};
use weft_core::delegates::page_cache::{Cause, Fetch, Fill, NoRoom, PageCache, WriteBack};
use weft_env::Env;

/// Longest write to an underlying file, in bytes.
const WRITE_LEN_MAX: u64 = 4 << 20;
/// Most unused buffers that are kept for later pages.
const SPARE_BUFFERS_MAX: usize = 32;

/// Memory of a page. A write in flight shares it, so that the bytes are not copied; a change of the page meanwhile makes
/// a copy.
pub(crate) type PageBuffer = Arc<Buffer>;

/// Pages of all files.
pub(crate) struct Pages<E: Env> {
    env: E,
    memory_max: u64,
    by_len: BTreeMap<u64, PageCache<PageBuffer>>,
    spare: BTreeMap<u64, Vec<Buffer>>,
}

impl<E: Env> Pages<E> {
    pub(crate) fn new(env: &E, memory_max: u64) -> Self {
        Self { env: env.clone(), memory_max, by_len: BTreeMap::new(), spare: BTreeMap::new() }
    }

    /// Bytes of all pages in memory.
    pub(crate) fn memory(&self) -> u64 {
        self.by_len.iter().map(|(len, cache)| len * cache.len() as u64).sum()
    }

    /// Number of pages in memory.
    pub(crate) fn count(&self) -> u64 {
        self.by_len.values().map(|cache| cache.len() as u64).sum()
    }

    /// Dirty bytes of all pages.
    pub(crate) fn dirty(&self) -> u64 {
        self.by_len.values().map(PageCache::dirty_bytes).sum()
    }

    /// Whether a page can be written whose bytes are all dirty.
    pub(crate) fn has_full(&self) -> bool {
        self.by_len.values().any(PageCache::has_full)
    }

    /// Returns the cache of pages of a length.
    pub(crate) fn of(&mut self, page_len: u64) -> &mut PageCache<PageBuffer> {
        let pages_max = usize::try_from(self.memory_max / page_len).unwrap_or(usize::MAX).max(1);
        self.by_len.entry(page_len).or_insert_with(|| PageCache::new(page_len, pages_max, WRITE_LEN_MAX))
    }

    /// Gives the cache of a length the memory that the others leave, and takes some of theirs if that is less than one
    /// page.
    fn balance(&mut self, page_len: u64) {
        if self.by_len.len() < 2 {
            return;
        }
        let own = self.of(page_len).len() as u64 * page_len;
        let mut others = self.memory() - own;
        if others + own + page_len > self.memory_max {
            let is_other = |(len, _): &(&u64, &mut PageCache<PageBuffer>)| **len != page_len;
            for (len, cache) in self.by_len.iter_mut().filter(is_other) {
                while others + page_len > self.memory_max && cache.evict() {
                    others -= len;
                }
            }
        }
        let pages_max = self.memory_max.saturating_sub(others) / page_len;
        self.of(page_len).set_pages_max(pages_max as usize);
    }

    /// Marks a part of a page as dirty, and lets `fill` copy the bytes.
    pub(crate) fn write(
        &mut self,
        page_len: u64,
        (id, part): (PageId, ByteRange),
        fill: impl FnOnce(&mut Buffer),
    ) -> Result<(), NoRoom> {
        self.balance(page_len);
        let Self { env, by_len, spare, .. } = self;
        let cache = by_len.get_mut(&page_len).expect("made by the open");
        let page = cache.write(id, part, || new_page(env, spare, page_len))?;
        if Arc::get_mut(page).is_none() {
            let copy = copy_of(env, page, page_len);
            *page = Arc::new(copy);
        }
        fill(Arc::get_mut(page).expect("not shared"));
        Ok(())
    }

    /// Returns a page, and its bytes of `part` that are not in memory.
    pub(crate) fn read(
        &mut self,
        page_len: u64,
        id: PageId,
        part: ByteRange,
    ) -> Result<(&PageBuffer, Vec<ByteRange>, Fetch), NoRoom> {
        self.balance(page_len);
        let Self { env, by_len, spare, .. } = self;
        let cache = by_len.get_mut(&page_len).expect("made by the open");
        cache.read(id, part, || new_page(env, spare, page_len))
    }

    /// Stores fetched bytes: `fetched` contains the bytes of the page from `bytes.start()` on, at their places. Returns
    /// false if they are old.
    pub(crate) fn fill(
        &mut self,
        page_len: u64,
        (id, fetch): (PageId, Fetch),
        bytes: ByteRange,
        fetched: Buffer,
    ) -> bool {
        let Self { env, by_len, spare, .. } = self;
        let cache = by_len.get_mut(&page_len).expect("made by the open");
        let Some(Fill { buffer, missing, is_alone }) = cache.fill(id, fetch, bytes) else {
            keep(spare, page_len, fetched);
            return false;
        };
        if is_alone {
            let unused = std::mem::replace(buffer, Arc::new(fetched));
            if let Ok(unused) = Arc::try_unwrap(unused) {
                keep(spare, page_len, unused);
            }
            return true;
        }
        if Arc::get_mut(buffer).is_none() {
            *buffer = Arc::new(copy_of(env, buffer, page_len));
        }
        let page = Arc::get_mut(buffer).expect("not shared");
        for part in missing {
            page.copy_from(part.start() as usize, fetched.slice(part.start() as usize..part.end() as usize));
        }
        keep(spare, page_len, fetched);
        true
    }

    /// Returns an unused buffer for fetched bytes of a page.
    pub(crate) fn buffer(&mut self, page_len: u64) -> Buffer {
        let spare = self.spare.get_mut(&page_len).and_then(Vec::pop);
        spare.unwrap_or_else(|| Buffer::new(&self.env, page_len as usize))
    }

    /// Keeps a buffer for a later page.
    pub(crate) fn keep(&mut self, page_len: u64, buffer: Buffer) {
        keep(&mut self.spare, page_len, buffer);
    }

    /// Chooses bytes to write, with their memory.
    pub(crate) fn next_write(&mut self, cause: Cause, page_len: Option<u64>) -> Option<PendingWrite> {
        for (len, cache) in &mut self.by_len {
            if page_len.is_some_and(|wanted| wanted != *len) {
                continue;
            }
            if let Some(write) = cache.next_write(cause) {
                let buffer =
                    |id: PageId| Arc::clone(cache.buffer(id).expect("a page of a write is in memory"));
                let parts = write.parts.iter().map(|(id, part)| (buffer(*id), *part)).collect();
                return Some(PendingWrite { page_len: *len, write, parts });
            }
        }
        None
    }

    /// Registers the end of a write.
    pub(crate) fn written(&mut self, pending: PendingWrite, has_succeeded: bool) -> (FileNumber, ByteRange) {
        let PendingWrite { page_len, write, parts } = pending;
        let ended = self.of(page_len).written(write.id, has_succeeded);
        for (buffer, _) in parts {
            // A page that was changed meanwhile has other memory.
            if let Ok(buffer) = Arc::try_unwrap(buffer) {
                self.keep(page_len, buffer);
            }
        }
        ended
    }

    /// Frees buffers that no page uses.
    pub(crate) fn trim(&mut self) {
        self.spare.clear();
    }
}

/// A write that was chosen, with its memory.
pub(crate) struct PendingWrite {
    page_len: u64,
    pub(crate) write: WriteBack,
    /// Memory of the pages, and the bytes of each.
    pub(crate) parts: Vec<(PageBuffer, ByteRange)>,
}

fn new_page<E: Env>(env: &E, spare: &mut BTreeMap<u64, Vec<Buffer>>, page_len: u64) -> PageBuffer {
    let buffer = spare.get_mut(&page_len).and_then(Vec::pop);
    Arc::new(buffer.unwrap_or_else(|| Buffer::new(env, page_len as usize)))
}

fn copy_of<E: Env>(env: &E, page: &Buffer, page_len: u64) -> Buffer {
    let mut copy = Buffer::new(env, page_len as usize);
    if let Buffer::Bytes(bytes) = page {
        copy.copy_from(0, bytes);
    }
    copy
}

fn keep(spare: &mut BTreeMap<u64, Vec<Buffer>>, page_len: u64, buffer: Buffer) {
    let list = spare.entry(page_len).or_default();
    if list.len() < SPARE_BUFFERS_MAX {
        list.push(buffer);
    }
}
