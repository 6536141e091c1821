//! Pages of one file in the kernel, and changes of the file that bypass them.
//!
//! The kernel writes whole pages back, and drops the pages of a range before and after a write by a descriptor. In
//! between, a program can read such a page again through a mapping, and store into it. If the kernel reads the page
//! before the write reaches the servers, the page has old bytes in the range of the write. Its writeback would undo the
//! write.
//!
//! So a change in progress remembers the bytes that the kernel's pages have in its range. A writeback writes only those
//! bytes of the range that differ from them, which are stores of a program. All other bytes of the page have no newer
//! value elsewhere. After the change, the mount drops the pages that the kernel may have read before it.
//!
//! Nothing is remembered of files without pages: [`FilePages::begin`] and [`FilePages::applied`] then take two locks.

use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use std::collections::BTreeMap;
use std::ops::Range;
use weft_core::{ByteRange, RangeSet};

/// Unit in which the kernel reads and writes back.
const PAGE: u64 = 4096;
/// Maximum number of separate ranges of pages remembered for a file; beyond it, the gaps between them count as read.
const FILLED_MAX: usize = 4096;
/// Maximum length of one read of the bytes before a change.
const READ_LEN_MAX: u64 = 1 << 20;

/// Pages of one file that the kernel may have. `F` is an open file.
pub struct FilePages<F> {
    /// Held for reading by each writeback, and for writing when a change begins, so that no writeback from before a
    /// change is applied after it. Acquired before `state`.
    writebacks: RwLock<()>,
    state: Mutex<State<F>>,
}

struct State<F> {
    /// Number of opens for writing. The kernel drops all pages after such an open, so that earlier reads do not count.
    writers: u32,
    /// Opens for reading and writing. Only their mappings can be stored into.
    mappable: BTreeMap<u64, F>,
    /// Pages that the kernel may have read since then.
    filled: RangeSet,
    changes: Vec<Change>,
    next: u64,
}

/// A change in progress.
struct Change {
    number: u64,
    range: ByteRange,
    /// Contents of the kernel's pages, without stores.
    before: BTreeMap<u64, Box<[u8]>>,
    /// Once the change is applied, pages that the kernel read afterwards.
    filled_after: Option<RangeSet>,
}

impl Change {
    /// Remembers what the kernel gets for pages from `start` on.
    fn remember(&mut self, start: u64, bytes: &[u8]) {
        for (page, content) in (start / PAGE..).zip(bytes.chunks(PAGE as usize)) {
            if overlaps(self.range, page * PAGE, (page + 1) * PAGE) {
                let mut whole = vec![0; PAGE as usize];
                whole[..content.len()].copy_from_slice(content);
                self.before.insert(page, whole.into());
            }
        }
    }

    /// Replaces the remembered contents of pages by what the kernel writes back.
    fn written_back(&mut self, offset: u64, bytes: &[u8]) {
        let end = offset + bytes.len() as u64;
        for (&page, content) in self.before.range_mut(offset / PAGE..end.div_ceil(PAGE)) {
            let (from, to) = ((page * PAGE).max(offset), ((page + 1) * PAGE).min(end));
            let written = &bytes[(from - offset) as usize..(to - offset) as usize];
            content[(from - page * PAGE) as usize..(to - page * PAGE) as usize].copy_from_slice(written);
        }
    }

    /// Returns whether `byte` at `at`, which the kernel writes back, is unchanged since before the change.
    fn is_before(&self, at: u64, byte: u8) -> bool {
        let of_page = |content: &[u8]| content[(at % PAGE) as usize] == byte;
        self.range.start() <= at
            && at < self.range.end()
            && self.before.get(&(at / PAGE)).is_some_and(|content| of_page(content))
    }
}

/// Whether the range shares a byte with `start..end`.
fn overlaps(range: ByteRange, start: u64, end: u64) -> bool {
    ByteRange::new(start, end).is_some_and(|other| range.overlaps(other))
}

/// Returns the range of all pages that contain bytes of `range`.
fn pages_of(range: ByteRange) -> ByteRange {
    let end = range.end().checked_next_multiple_of(PAGE).unwrap_or(u64::MAX);
    ByteRange::new(range.start() / PAGE * PAGE, end).unwrap_or(range)
}

impl<F> Default for FilePages<F> {
    fn default() -> Self {
        let state = State {
            writers: 0,
            mappable: BTreeMap::new(),
            filled: RangeSet::new(),
            changes: Vec::new(),
            next: 0,
        };
        Self { writebacks: RwLock::default(), state: Mutex::new(state) }
    }
}

impl<F> State<F> {
    fn fill(&mut self, pages: ByteRange) {
        self.filled.insert(pages);
        if self.filled.count() > FILLED_MAX {
            let first = self.filled.iter().next().map_or(0, ByteRange::start);
            let last = self.filled.iter().last().map_or(u64::MAX, ByteRange::end);
            ByteRange::new(first, last).map(|all| self.filled.insert(all));
        }
        for change in &mut self.changes {
            if let Some(after) = &mut change.filled_after {
                after.insert(pages);
            }
        }
    }
}

impl<F> FilePages<F> {
    /// Registers an open for writing, before the kernel learns of it. `mappable` is its number and the open file if it is
    /// also for reading.
    pub fn opened(&self, mappable: Option<(u64, F)>) {
        let mut state = self.state.lock();
        state.writers += 1;
        state.mappable.extend(mappable);
    }

    /// Registers the end of an open for writing.
    pub fn closed(&self, number: u64) {
        let mut state = self.state.lock();
        state.writers = state.writers.saturating_sub(1);
        let closed = state.mappable.remove(&number);
        if state.writers == 0 {
            state.filled.clear();
        }
        drop(state);
        // This may send messages.
        drop(closed);
    }

    /// Whether the kernel may have pages of a file that is open for writing.
    pub fn has_pages(&self) -> bool {
        !self.state.lock().filled.is_empty()
    }

    /// Registers that the kernel reads pages. If a change of them is in progress, also calls `read` with a buffer, and
    /// remembers the bytes, which the caller passes to the kernel. Otherwise returns `None`; the caller then reads.
    pub fn filling<E>(
        &self,
        offset: u64,
        buffer: &mut [u8],
        read: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Option<Result<usize, E>> {
        let range = ByteRange::new(offset, offset.saturating_add(buffer.len() as u64))?;
        let mut state = self.state.lock();
        if state.writers == 0 {
            return None;
        }
        state.fill(pages_of(range));
        if !state.changes.iter().any(|change| pages_of(change.range).overlaps(range)) {
            return None;
        }
        let got = read(buffer);
        if let Ok(got) = &got {
            buffer[*got..].fill(0);
            state.changes.iter_mut().for_each(|change| change.remember(offset, buffer));
        }
        Some(got)
    }

    /// Begins a change of `range`. Reads with `read` the bytes that the kernel's pages may have in it. Returns the number
    /// of the change.
    ///
    /// # Errors
    /// Errors of `read`; there is no change then.
    pub fn begin<E>(
        &self,
        range: ByteRange,
        mut read: impl FnMut(&F, u64, &mut [u8]) -> Result<usize, E>,
    ) -> Result<u64, E> {
        let _no_writebacks = self.writebacks.write();
        let state = &mut *self.state.lock();
        let number = state.next;
        state.next += 1;
        let mut change = Change { number, range, before: BTreeMap::new(), filled_after: None };
        let pages = pages_of(range);
        // Without such an open there are no stores, and no writebacks.
        let file = state.mappable.values().next();
        for (filled, file) in state.filled.overlapping(pages).zip(std::iter::repeat(file)) {
            let (Some(filled), Some(file)) = (filled.intersection(pages), file) else { continue };
            let (mut at, mut read_len) = (filled.start(), READ_LEN_MAX);
            while at < filled.end() {
                let mut buffer = vec![0; (filled.end() - at).min(read_len) as usize];
                match read(file, at, &mut buffer) {
                    Ok(got) => {
                        // The kernel has zeros after the end of the file.
                        buffer[got..].fill(0);
                        change.remember(at, &buffer);
                        at += buffer.len() as u64;
                    }
                    // The kernel has no page of bytes that cannot be read, and the change replaces them.
                    Err(_)
                        if buffer.len() as u64 == PAGE && range.start() <= at && at + PAGE <= range.end() =>
                    {
                        at += PAGE;
                    }
                    Err(error) if read_len == PAGE => return Err(error),
                    // One page at a time from here on.
                    Err(_) => read_len = PAGE,
                }
            }
        }
        state.changes.push(change);
        Ok(number)
    }

    /// Registers that a change of `range` has been applied. Returns the pages that must be dropped before
    /// [`Self::ended`]. If there are none, the change has ended.
    pub fn applied(&self, number: u64, range: Option<ByteRange>) -> Option<ByteRange> {
        let mut state = self.state.lock();
        let pages = range.map(pages_of).filter(|pages| state.filled.overlaps(*pages));
        if pages.is_none() {
            state.changes.retain(|change| change.number != number);
        } else if let Some(change) = state.changes.iter_mut().find(|change| change.number == number) {
            change.filled_after = Some(RangeSet::new());
        }
        pages
    }

    /// Ends a change whose pages have been dropped.
    pub fn ended(&self, number: u64, pages: ByteRange) {
        let mut state = self.state.lock();
        let Some(index) = state.changes.iter().position(|change| change.number == number) else { return };
        let change = state.changes.swap_remove(index);
        state.filled.remove(pages);
        change.filled_after.iter().flat_map(RangeSet::iter).for_each(|pages| {
            state.filled.insert(pages);
        });
    }

    /// Calls `write` with the parts of `bytes`, a writeback at `offset`, that have to be written.
    pub fn write_back<R>(&self, offset: u64, bytes: &[u8], write: impl FnOnce(&[Range<usize>]) -> R) -> R {
        let _no_begin: RwLockReadGuard<'_, ()> = self.writebacks.read();
        let mut state = self.state.lock();
        let end = offset.saturating_add(bytes.len() as u64);
        if !state.changes.iter().any(|change| overlaps(change.range, offset, end)) {
            drop(state);
            let all = 0..bytes.len();
            return write(std::slice::from_ref(&all));
        }
        let mut parts: Vec<Range<usize>> = Vec::new();
        for (index, &byte) in bytes.iter().enumerate() {
            if state.changes.iter().any(|change| change.is_before(offset + index as u64, byte)) {
                continue;
            }
            match parts.last_mut() {
                Some(last) if last.end == index => last.end += 1,
                _ => parts.push(index..index + 1),
            }
        }
        // From now on, the old value is a store as well.
        state.changes.iter_mut().for_each(|change| change.written_back(offset, bytes));
        write(&parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    type Server = RefCell<Vec<u8>>;

    fn range(start: u64, end: u64) -> ByteRange {
        ByteRange::new(start, end).expect("a range")
    }

    fn read(server: &Server, at: u64, buffer: &mut [u8]) -> Result<usize, ()> {
        let server = server.borrow();
        let from = (at as usize).min(server.len());
        let len = buffer.len().min(server.len() - from);
        buffer[..len].copy_from_slice(&server[from..from + len]);
        Ok(len)
    }

    /// Pages of a file of two pages that is open for reading and writing.
    fn pages(server: &Server) -> FilePages<&Server> {
        let pages = FilePages::default();
        pages.opened(Some((1, server)));
        pages
    }

    /// Reads a page as the kernel does.
    fn fill(pages: &FilePages<&Server>, server: &Server, page: u64) -> Vec<u8> {
        let mut buffer = vec![0; PAGE as usize];
        let read_page = |buffer: &mut [u8]| read(server, page * PAGE, buffer);
        if pages.filling(page * PAGE, &mut buffer, read_page).is_none() {
            read(server, page * PAGE, &mut buffer).expect("read");
        }
        buffer
    }

    fn write_back(pages: &FilePages<&Server>, server: &Server, page: u64, bytes: &[u8]) {
        pages.write_back(page * PAGE, bytes, |parts| {
            for part in parts {
                let at = (page * PAGE) as usize;
                server.borrow_mut()[at + part.start..at + part.end].copy_from_slice(&bytes[part.clone()]);
            }
        });
    }

    #[test]
    fn a_writeback_keeps_the_bytes_of_a_change_in_progress() {
        let server = RefCell::new(vec![1; 2 * PAGE as usize]);
        let pages = pages(&server);
        for filled_before in [true, false] {
            server.borrow_mut().fill(1);
            let early = filled_before.then(|| fill(&pages, &server, 0));
            let change = pages.begin(range(100, 200), |server, at, buffer| read(server, at, buffer));
            let change = change.expect("read");
            let mut page = early.unwrap_or_else(|| fill(&pages, &server, 0));
            server.borrow_mut()[100..200].fill(2);
            (page[99], page[150]) = (7, 8);
            write_back(&pages, &server, 0, &page);
            let changed =
                [server.borrow()[99], server.borrow()[100], server.borrow()[150], server.borrow()[199]];
            assert_eq!(changed, [7, 2, 8, 2]);
            // A store of the old value is a store.
            page[150] = 1;
            write_back(&pages, &server, 0, &page);
            assert_eq!(server.borrow()[150], 1);
            assert_eq!(pages.applied(change, Some(range(100, 200))), Some(range(0, PAGE)));
            pages.ended(change, range(0, PAGE));
            assert!(!pages.has_pages());
        }
    }

    #[test]
    fn a_page_that_cannot_be_read_can_be_overwritten_but_not_changed_in_part() {
        let server = RefCell::new(vec![1; 2 * PAGE as usize]);
        let pages = pages(&server);
        (0..2).for_each(|page| drop(fill(&pages, &server, page)));
        let begin = |changed| {
            pages.begin(changed, |server, at, buffer| {
                let is_damaged = at < 2 * PAGE && at + buffer.len() as u64 > PAGE;
                if is_damaged { Err(()) } else { read(server, at, buffer) }
            })
        };
        assert_eq!(begin(range(PAGE + 1, PAGE + 2)), Err(()));
        let change = begin(range(PAGE - 1, 2 * PAGE)).expect("the damaged page is replaced");
        // The page before it was remembered.
        server.borrow_mut()[PAGE as usize - 1] = 2;
        write_back(&pages, &server, 0, &[1; PAGE as usize]);
        assert_eq!(server.borrow()[PAGE as usize - 1], 2);
        pages.applied(change, Some(range(PAGE - 1, 2 * PAGE)));
    }

    #[test]
    fn pages_read_after_a_change_have_to_be_dropped_by_the_next() {
        let server = RefCell::new(vec![1; 2 * PAGE as usize]);
        let pages = pages(&server);
        let begin = |at| {
            pages.begin(range(at, at + 10), |server, at, buffer| read(server, at, buffer)).expect("read")
        };
        let first = begin(0);
        assert_eq!(pages.applied(first, Some(range(0, 10))), None, "no page was read");
        fill(&pages, &server, 0);
        let second = begin(5);
        assert_eq!(pages.applied(second, Some(range(5, 15))), Some(range(0, PAGE)));
        fill(&pages, &server, 0);
        pages.ended(second, range(0, PAGE));
        let third = begin(PAGE);
        assert_eq!(pages.applied(third, Some(range(PAGE, PAGE + 10))), None, "another page");
        let fourth = begin(0);
        assert_eq!(pages.applied(fourth, Some(range(0, 10))), Some(range(0, PAGE)));
        pages.ended(fourth, range(0, PAGE));
        assert!(!pages.has_pages());
    }

    #[test]
    fn files_without_writers_remember_nothing() {
        let server = RefCell::new(vec![1; 10]);
        let pages: FilePages<&Server> = FilePages::default();
        fill(&pages, &server, 0);
        assert!(!pages.has_pages());
        pages.opened(Some((1, &server)));
        assert_eq!(fill(&pages, &server, 0)[..11], [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0]);
        assert!(pages.has_pages());
        pages.closed(1);
        assert!(!pages.has_pages());
    }
}
