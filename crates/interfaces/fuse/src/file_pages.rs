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
//! The remembered bytes must be exactly those that the kernel gets. So a change waits, before it begins, for reads of its pages in
//! progress. Reads that begin later remember their bytes themselves.
//!
//! Nothing is remembered of files without pages: [`FilePages::begin`] and [`FilePages::applied`] then take two locks.

use parking_lot::{Condvar, Mutex, RwLock, RwLockReadGuard};
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
    /// Held for reading by each writeback, and for writing when a change begins: a writeback that began before a change
    /// ends before it. Acquired before `state`.
    writebacks: RwLock<()>,
    state: Mutex<State<F>>,
    /// Notified when a read in progress ends.
    read_ended: Condvar,
}

struct State<F> {
    /// Number of opens for writing. The kernel drops all pages after such an open, so that earlier reads do not count.
    writers: u32,
    /// Opens for reading and writing. Only their mappings can be stored into.
    mappable: BTreeMap<u64, F>,
    /// Pages that the kernel may have read since then.
    filled: RangeSet,
    /// Reads for pages in progress whose bytes nobody remembers, because no change of them had begun.
    reading: Vec<ByteRange>,
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
            reading: Vec::new(),
            changes: Vec::new(),
            next: 0,
        };
        Self { writebacks: RwLock::default(), state: Mutex::new(state), read_ended: Condvar::new() }
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

    /// Remembers the contents of the kernel's pages for the change `number` of `range`.
    fn remember_before<E>(
        &mut self,
        number: u64,
        range: ByteRange,
        mut read: impl FnMut(&F, u64, &mut [u8]) -> Result<usize, E>,
    ) -> Result<(), E> {
        let Some(file) = self.mappable.values().next() else { return Ok(()) };
        let pages = pages_of(range);
        let mut change = Change { number, range, before: BTreeMap::new(), filled_after: None };
        for filled in self.filled.overlapping(pages).filter_map(|filled| filled.intersection(pages)) {
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
        if let Some(own) = self.changes.iter_mut().find(|own| own.number == number) {
            *own = change;
        }
        Ok(())
    }
}

/// How a read for pages is served.
pub enum Filling<'a, F, E> {
    /// The caller reads and answers before it drops this.
    Begun(Reading<'a, F>),
    /// Result of the read.
    Done(Result<usize, E>),
}

/// A read for pages in progress, until dropped.
pub struct Reading<'a, F>(Option<(&'a FilePages<F>, ByteRange)>);

impl<F> Drop for Reading<'_, F> {
    fn drop(&mut self) {
        let Some((pages, range)) = self.0 else { return };
        let mut state = pages.state.lock();
        if let Some(index) = state.reading.iter().position(|reading| *reading == range) {
            state.reading.swap_remove(index);
        }
        drop(state);
        pages.read_ended.notify_all();
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

    /// Registers that the kernel reads pages. If a change of them is in progress, calls `read` with a buffer, remembers the
    /// bytes, and returns its result; the caller passes the bytes to the kernel.
    pub fn filling<E>(
        &self,
        offset: u64,
        buffer: &mut [u8],
        read: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Filling<'_, F, E> {
        let Some(range) = ByteRange::new(offset, offset.saturating_add(buffer.len() as u64)) else {
            return Filling::Begun(Reading(None));
        };
        let mut state = self.state.lock();
        if state.writers == 0 {
            return Filling::Begun(Reading(None));
        }
        let pages = pages_of(range);
        state.fill(pages);
        if !state.changes.iter().any(|change| pages_of(change.range).overlaps(pages)) {
            state.reading.push(pages);
            return Filling::Begun(Reading(Some((self, pages))));
        }
        let got = read(buffer);
        if let Ok(got) = &got {
            buffer[*got..].fill(0);
            state.changes.iter_mut().for_each(|change| change.remember(offset, buffer));
        }
        Filling::Done(got)
    }

    /// Begins a change of `range`, after reads of its pages in progress. Reads with `read` the bytes that the kernel's pages
    /// may have in it. Returns the number of the change.
    ///
    /// # Errors
    /// Errors of `read`; there is no change then.
    pub fn begin<E>(
        &self,
        range: ByteRange,
        read: impl FnMut(&F, u64, &mut [u8]) -> Result<usize, E>,
    ) -> Result<u64, E> {
        let _no_writebacks = self.writebacks.write();
        let mut state = self.state.lock();
        let number = state.next;
        state.next += 1;
        // Reads that begin from here on remember their bytes, so the wait ends.
        state.changes.push(Change { number, range, before: BTreeMap::new(), filled_after: None });
        let pages = pages_of(range);
        // Without such an open there are no stores, and no writebacks. The kernel drops all pages when there is one.
        while !state.mappable.is_empty() && state.reading.iter().any(|reading| reading.overlaps(pages)) {
            self.read_ended.wait(&mut state);
        }
        let remembered = state.remember_before(number, range, read);
        if remembered.is_err() {
            state.changes.retain(|change| change.number != number);
        }
        remembered.map(|()| number)
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
        // Reads and writebacks of other pages need not wait; the kernel does not read these pages meanwhile.
        drop(state);
        write(&parts)
    }
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
