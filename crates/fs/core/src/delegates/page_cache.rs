//! The cache of one delegate: which pages are in memory, which of their bytes are valid, which wait to be written, what
//! is written next and what is evicted (IODC, section III.E).
//!
//! The owner of the cache does the I/O. It calls a method, copies bytes to or from the buffers while it holds its lock,
//! and reads and writes the file without the lock.
//!
//! | bytes of a page | meaning |
//! | --- | --- |
//! | valid | in memory; newer than or equal to the file |
//! | dirty | valid, and not in the file yet |
//! | in flight | valid; a copy of them is being written. Written again meanwhile, they are dirty as well |
//!
//! Pages with dirty bytes or bytes in flight, and pages for which bytes are being fetched, are never evicted. A page has at most one write in flight, so an older copy
//! never reaches the file after a newer one.

use super::ownership::{FileNumber, PageId, PageIndex};
use crate::ranges::{ByteRange, RangeSet};
use std::collections::{BTreeMap, BTreeSet};

/// A write to the underlying file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct WriteId(u64);

/// State of a page that a fetch from the file began with. A change that makes the fetched bytes old gives the page
/// another state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fetch(u64);

/// Reason to write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    /// Pages whose bytes are all dirty, as soon as there are any.
    Full,
    /// No request has come for a while, or dirty bytes or pages need too much memory: full pages first, then those not
    /// used for the longest time.
    Pressure,
    /// A sync or close: the first dirty bytes of this page from a byte on, and adjacent ones.
    Flush(PageId, u64),
}

/// Adjacent dirty bytes to write to the file at once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WriteBack {
    /// Passed to [`PageCache::written`].
    pub id: WriteId,
    /// Bytes of the file.
    pub range: ByteRange,
    /// Pages that hold them, and the bytes within each page.
    pub parts: Vec<(PageId, ByteRange)>,
}

/// Place for fetched bytes of a page.
#[derive(Debug)]
pub struct Fill<'a, B> {
    /// Buffer of the page.
    pub buffer: &'a mut B,
    /// Bytes that the caller copies: those that were not valid before.
    pub missing: Vec<ByteRange>,
    /// Whether the page has no other valid bytes, so that the caller may replace the buffer instead.
    pub is_alone: bool,
}

/// No page can be added: all others have bytes that are not in the file yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoRoom;

/// Pages of files in the memory of one delegate. `B` is the buffer of a page.
#[derive(Debug)]
pub struct PageCache<B> {
    page_len: u64,
    pages_max: usize,
    write_len_max: u64,
    pages: BTreeMap<PageId, Page<B>>,
    /// Pages with dirty bytes or bytes in flight.
    unwritten: BTreeSet<PageId>,
    /// Pages without such bytes, least recently used first.
    evictable: BTreeSet<(u64, PageId)>,
    /// Pages with dirty bytes and none in flight, least recently used first.
    writable: BTreeSet<(u64, PageId)>,
    /// Those of them whose bytes are all dirty.
    full: BTreeSet<PageId>,
    in_flight: BTreeMap<WriteId, WriteBack>,
    dirty_bytes: u64,
    /// Number of the last use, write or page state.
    last: u64,
}

#[derive(Debug)]
struct Page<B> {
    buffer: B,
    valid: RangeSet,
    dirty: RangeSet,
    writing: Option<ByteRange>,
    used: u64,
    state: Fetch,
    /// Number of fetches under way.
    pins: u32,
}

impl<B> PageCache<B> {
    /// Creates an empty cache of at most `pages_max` pages of `page_len` bytes, whose writes have at most
    /// `write_len_max` bytes, but at least a page.
    ///
    /// # Panics
    /// If a length or the number is zero.
    pub fn new(page_len: u64, pages_max: usize, write_len_max: u64) -> Self {
        assert!(page_len > 0 && pages_max > 0 && write_len_max > 0, "an empty cache");
        Self {
            page_len,
            pages_max,
            write_len_max: write_len_max.max(page_len),
            pages: BTreeMap::new(),
            unwritten: BTreeSet::new(),
            evictable: BTreeSet::new(),
            writable: BTreeSet::new(),
            full: BTreeSet::new(),
            in_flight: BTreeMap::new(),
            dirty_bytes: 0,
            last: 0,
        }
    }

    /// Returns the number of pages in memory.
    pub fn len(&self) -> usize {
        self.pages.len()
    }

    /// Whether no page is in memory.
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// Returns the number of dirty bytes, without those in flight that were not written again.
    pub const fn dirty_bytes(&self) -> u64 {
        self.dirty_bytes
    }

    /// Marks bytes of a page as valid and dirty, and returns the buffer, into which the caller copies them. `create`
    /// makes the buffer of a page that is not in memory.
    ///
    /// # Errors
    /// [`NoRoom`].
    ///
    /// # Panics
    /// If the bytes are not in a page.
    pub fn write(
        &mut self,
        id: PageId,
        bytes: ByteRange,
        create: impl FnOnce() -> B,
    ) -> Result<&mut B, NoRoom> {
        self.use_page(id, create)?;
        let page = self.pages.get_mut(&id).expect("added above");
        assert!(bytes.end() <= self.page_len, "{bytes:?} of a page of {} bytes", self.page_len);
        page.valid.insert(bytes);
        self.dirty_bytes += page.dirty.insert(bytes);
        self.classify(id);
        Ok(&mut self.pages.get_mut(&id).expect("added above").buffer)
    }

    /// Returns the buffer of a page, and those of `bytes` that must be fetched from the file. `create` makes the buffer
    /// of a page that is not in memory.
    ///
    /// # Errors
    /// [`NoRoom`].
    pub fn read(
        &mut self,
        id: PageId,
        bytes: ByteRange,
        create: impl FnOnce() -> B,
    ) -> Result<(&B, Vec<ByteRange>, Fetch), NoRoom> {
        self.use_page(id, create)?;
        self.classify(id);
        let page = &self.pages[&id];
        Ok((&page.buffer, page.valid.gaps(bytes).collect(), page.state))
    }

    /// Marks fetched bytes of a page as valid. `None` if the bytes are old: the caller reads again.
    pub fn fill(&mut self, id: PageId, fetch: Fetch, bytes: ByteRange) -> Option<Fill<'_, B>> {
        let page = self.pages.get_mut(&id).filter(|page| page.state == fetch)?;
        let missing: Vec<ByteRange> = page.valid.gaps(bytes).collect();
        let is_alone = page.valid.is_empty() && page.writing.is_none();
        page.valid.insert(bytes);
        Some(Fill { buffer: &mut page.buffer, missing, is_alone })
    }

    /// Keeps a page in memory while bytes are fetched for it; `unpin` ends that. Otherwise, two fetches could evict each
    /// other's page again and again.
    pub fn pin(&mut self, id: PageId) {
        if let Some(page) = self.pages.get_mut(&id) {
            page.pins += 1;
            self.classify(id);
        }
    }

    /// Ends a [`pin`](Self::pin). A page that was dropped meanwhile has none.
    pub fn unpin(&mut self, id: PageId) {
        if let Some(page) = self.pages.get_mut(&id) {
            page.pins = page.pins.saturating_sub(1);
            self.classify(id);
        }
    }

    /// Returns the buffer of a page in memory.
    pub fn buffer(&self, id: PageId) -> Option<&B> {
        self.pages.get(&id).map(|page| &page.buffer)
    }

    /// Chooses bytes to write. The caller copies them, writes the copy and calls [`written`](Self::written). `None` if
    /// nothing may be written now: with [`Cause::Flush`], bytes may still be in flight.
    pub fn next_write(&mut self, cause: Cause) -> Option<WriteBack> {
        let first = match cause {
            Cause::Full => *self.full.first()?,
            Cause::Pressure => self.full.first().copied().or_else(|| Some(self.writable.first()?.1))?,
            Cause::Flush(id, from) => self.dirty_of(id)?.next_from(from).map(|_| id)?,
        };
        let from = if let Cause::Flush(_, from) = cause { from } else { 0 };
        let range = self.pages[&first].dirty.next_from(from).expect("a writable page has dirty bytes");
        let mut parts = vec![(first, range)];
        if range.start() == 0 {
            self.extend_back(&mut parts);
        }
        self.extend_forward(&mut parts);
        self.last += 1;
        let (start, end) = (parts[0], parts[parts.len() - 1]);
        let at = |id: PageId, byte| id.index.0 * self.page_len + byte;
        let range = ByteRange::new(at(start.0, start.1.start()), at(end.0, end.1.end()));
        let write = WriteBack { id: WriteId(self.last), range: range.expect("parts are not empty"), parts };
        for &(id, bytes) in &write.parts {
            let page = self.pages.get_mut(&id).expect("parts are in memory");
            self.dirty_bytes -= page.dirty.remove(bytes);
            page.writing = Some(bytes);
            self.classify(id);
        }
        self.in_flight.insert(write.id, write.clone());
        Some(write)
    }

    /// Registers the end of a write. After an error, its bytes leave the cache, except those written again meanwhile:
    /// the file may hold any of them. Returns the file and its bytes, for the report of the error.
    ///
    /// # Panics
    /// If the write is not in flight.
    pub fn written(&mut self, id: WriteId, has_succeeded: bool) -> (FileNumber, ByteRange) {
        let write = self.in_flight.remove(&id).expect("the write is in flight");
        for &(id, bytes) in &write.parts {
            let page = self.pages.get_mut(&id).expect("a page with bytes in flight stays");
            page.writing = None;
            if !has_succeeded {
                let old: Vec<ByteRange> = page.dirty.gaps(bytes).collect();
                for range in old {
                    page.valid.remove(range);
                }
                self.last += 1;
                page.state = Fetch(self.last);
            }
            self.classify(id);
        }
        (write.parts[0].0.file, write.range)
    }

    /// Returns the first page of a file from `from` on with bytes that are dirty or in flight. A flush goes through these
    /// pages in ascending order, and waits for each whose bytes are in flight.
    pub fn next_unwritten(&self, file: FileNumber, from: PageIndex) -> Option<PageIndex> {
        Some(self.unwritten.range(PageId::new(file, from)..=last_of(file)).next()?.index)
    }

    /// Whether bytes of the page are dirty or in flight.
    pub fn is_unwritten(&self, id: PageId, bytes: ByteRange) -> bool {
        let is_in_flight = |page: &Page<B>| page.writing.is_some_and(|writing| writing.overlaps(bytes));
        self.pages.get(&id).is_some_and(|page| page.dirty.overlaps(bytes) || is_in_flight(page))
    }

    /// Whether bytes of the page are in flight, so that no others of it can be written.
    pub fn is_in_flight(&self, id: PageId) -> bool {
        self.pages.get(&id).is_some_and(|page| page.writing.is_some())
    }

    /// Whether a page can be written whose bytes are all dirty.
    pub fn has_full(&self) -> bool {
        !self.full.is_empty()
    }

    /// Drops bytes of a file that are in the underlying file, before somebody changes them there.
    ///
    /// # Panics
    /// If some of them are dirty or in flight.
    pub fn forget_range(&mut self, file: FileNumber, range: ByteRange) {
        let page_of = |byte: u64| PageId::new(file, PageIndex(byte / self.page_len));
        let (first, last) = (page_of(range.start()), page_of(range.end() - 1));
        let ids: Vec<PageId> = self.pages.range(first..=last).map(|(id, _)| *id).collect();
        for id in ids {
            let start = id.index.0 * self.page_len;
            let within = |byte: u64| byte.saturating_sub(start).min(self.page_len);
            let cut =
                ByteRange::new(within(range.start()), within(range.end())).expect("the page is touched");
            let page = self.pages.get_mut(&id).expect("listed above");
            let is_unwritten =
                page.dirty.overlaps(cut) || page.writing.is_some_and(|writing| writing.overlaps(cut));
            assert!(!is_unwritten, "bytes of {id} are written before they are dropped");
            page.valid.remove(cut);
            self.last += 1;
            page.state = Fetch(self.last);
            if page.valid.is_empty() {
                self.remove(id);
            }
        }
    }

    /// Changes the maximum number of pages. More pages than that stay until others need room.
    pub fn set_pages_max(&mut self, pages_max: usize) {
        self.pages_max = pages_max.max(1);
    }

    /// Evicts the least recently used page without unwritten bytes; returns false if there is none.
    pub fn evict(&mut self) -> bool {
        let oldest = self.evictable.first().map(|(_, id)| *id);
        oldest.inspect(|id| self.remove(*id)).is_some()
    }

    /// Returns the number of pages of a file, and of its dirty bytes.
    pub fn pages_of(&self, file: FileNumber) -> (usize, u64) {
        let pages = self.pages.range(PageId::new(file, PageIndex(0))..=last_of(file));
        pages.fold((0, 0), |(count, dirty), (_, page)| (count + 1, dirty + page.dirty.bytes()))
    }

    /// Returns one past the last byte of a file that is dirty or in flight.
    pub fn unwritten_end(&self, file: FileNumber) -> Option<u64> {
        let (id, page) = self.unwritten_of(file).next_back().map(|id| (*id, &self.pages[id]))?;
        let dirty = page.dirty.iter().last().map_or(0, ByteRange::end);
        let writing = page.writing.map_or(0, ByteRange::end);
        Some(id.index.0 * self.page_len + dirty.max(writing))
    }

    /// Drops those pages of a file that `is_old` names and that have no unwritten bytes. Returns whether other old pages
    /// remain.
    pub fn forget_clean(&mut self, file: FileNumber, is_old: impl Fn(PageId) -> bool) -> bool {
        let range = PageId::new(file, PageIndex(0))..=last_of(file);
        let old: Vec<PageId> = self.pages.range(range).map(|(id, _)| *id).filter(|id| is_old(*id)).collect();
        let (unwritten, clean): (Vec<_>, Vec<_>) =
            old.into_iter().partition(|id| self.unwritten.contains(id));
        clean.into_iter().for_each(|id| self.remove(id));
        !unwritten.is_empty()
    }

    /// Makes a page the most recently used one, and adds it if it is not in memory.
    fn use_page(&mut self, id: PageId, create: impl FnOnce() -> B) -> Result<(), NoRoom> {
        if !self.pages.contains_key(&id) {
            if self.pages.len() >= self.pages_max {
                let (_, oldest) = *self.evictable.first().ok_or(NoRoom)?;
                self.remove(oldest);
            }
            self.last += 1;
            let state = Fetch(self.last);
            let (valid, dirty) = (RangeSet::default(), RangeSet::default());
            let page = Page { buffer: create(), valid, dirty, writing: None, used: 0, state, pins: 0 };
            self.pages.insert(id, page);
        }
        self.unlist(id);
        self.last += 1;
        self.pages.get_mut(&id).expect("added above").used = self.last;
        Ok(())
    }

    fn remove(&mut self, id: PageId) {
        self.unlist(id);
        self.pages.remove(&id);
    }

    /// Removes a page from the lists by state.
    fn unlist(&mut self, id: PageId) {
        let used = self.pages[&id].used;
        self.evictable.remove(&(used, id));
        self.writable.remove(&(used, id));
        self.full.remove(&id);
        self.unwritten.remove(&id);
    }

    /// Puts a page into the lists of its state.
    fn classify(&mut self, id: PageId) {
        self.unlist(id);
        let page = &self.pages[&id];
        let is_idle = page.writing.is_none();
        match (page.dirty.is_empty(), is_idle) {
            (true, true) => {
                if page.pins == 0 {
                    self.evictable.insert((page.used, id));
                }
                return;
            }
            (false, true) => {
                self.writable.insert((page.used, id));
                if page.dirty.bytes() == self.page_len {
                    self.full.insert(id);
                }
            }
            (_, false) => {}
        }
        self.unwritten.insert(id);
    }

    fn unwritten_of(&self, file: FileNumber) -> impl DoubleEndedIterator<Item = &PageId> {
        self.unwritten.range(PageId::new(file, PageIndex(0))..=last_of(file))
    }

    /// Returns the dirty bytes of a page that can be written now.
    fn dirty_of(&self, id: PageId) -> Option<&RangeSet> {
        self.pages.get(&id).filter(|page| page.writing.is_none()).map(|page| &page.dirty)
    }

    /// Adds the dirty bytes right behind the parts.
    fn extend_forward(&self, parts: &mut Vec<(PageId, ByteRange)>) {
        let mut len: u64 = parts.iter().map(|(_, bytes)| bytes.len()).sum();
        while let Some(&(id, bytes)) = parts.last()
            && bytes.end() == self.page_len
            && let next = PageId::new(id.file, PageIndex(id.index.0 + 1))
            && let Some(more) = self.dirty_of(next).and_then(|dirty| dirty.next_from(0))
            && more.start() == 0
            && len + more.len() <= self.write_len_max
        {
            len += more.len();
            parts.push((next, more));
        }
    }

    /// Adds the dirty bytes right before the parts, up to half of the longest write.
    fn extend_back(&self, parts: &mut Vec<(PageId, ByteRange)>) {
        let mut len = parts[0].1.len();
        let mut before = Vec::new();
        let mut index = parts[0].0.index.0;
        while index > 0
            && let previous = PageId::new(parts[0].0.file, PageIndex(index - 1))
            && let Some(more) = self.dirty_of(previous).and_then(|dirty| dirty.iter().last())
            && more.end() == self.page_len
            && len + more.len() <= self.write_len_max / 2
        {
            len += more.len();
            before.push((previous, more));
            index -= 1;
            if more.start() > 0 {
                break;
            }
        }
        before.reverse();
        parts.splice(0..0, before);
    }
}

/// Returns the last page that a file can have.
const fn last_of(file: FileNumber) -> PageId {
    PageId::new(file, PageIndex(u64::MAX))
}

#[cfg(test)]
mod tests;
