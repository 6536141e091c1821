//! Reads and writes of pages that this delegate owns.

use crate::buffer::{Buffer, Destination, Source};
use crate::recall::Uncached;
use crate::service::{Service, Transfer};
use crate::state::{State, Stop};
use crate::underlying::Underlying;
use std::io::IoSliceMut;
use std::sync::Arc;
use weft_client::FileHandle;
use weft_core::delegates::ownership::{PageId, PageIndex};
use weft_core::delegates::page_cache::{Fetch, NoRoom};
use weft_core::{ByteRange, FileOffset};
use weft_env::mutants::{Mutant, is_seeded};
use weft_env::{Env, Notify};
use weft_wire::delegate::{DelegateReply, FilePiece};
use weft_wire::{Errno, WireError};

/// Progress in a list of pieces.
#[derive(Clone, Copy, Default)]
struct Cursor {
    piece: usize,
    /// Bytes of that piece that are done.
    done: u32,
    /// Bytes of all pieces that are done.
    total: usize,
}

/// The part of a piece within one page.
struct Part {
    id: PageId,
    /// Bytes of the page.
    within: ByteRange,
}

impl Cursor {
    /// Returns the next part; `None` at the end.
    fn next(&mut self, transfer: &Transfer<'_>, page_len: u64) -> Option<Part> {
        loop {
            let FilePiece { offset, len } = *transfer.pieces.get(self.piece)?;
            if self.done == len {
                (self.piece, self.done) = (self.piece + 1, 0);
                continue;
            }
            let at = offset + u64::from(self.done);
            let start = at % page_len;
            let left = u64::from(len - self.done).min(page_len - start);
            let id = PageId::new(transfer.file, PageIndex(at / page_len));
            let within = ByteRange::with_len(start, left).expect("a part of a page is not empty");
            return Some(Part { id, within });
        }
    }

    fn advance(&mut self, part: &Part) {
        self.done += part.within.len() as u32;
        self.total += part.within.len() as usize;
    }

    /// Returns the rest of the pieces, and advances to the end.
    fn take_rest(&mut self, transfer: &Transfer<'_>) -> Vec<Uncached> {
        let mut rest = Vec::new();
        while let Some(FilePiece { offset, len }) = transfer.pieces.get(self.piece) {
            if *len > self.done {
                let len = len - self.done;
                rest.push(Uncached {
                    piece: self.piece,
                    done: self.done,
                    offset: offset + u64::from(self.done),
                    len,
                });
                self.total += len as usize;
            }
            (self.piece, self.done) = (self.piece + 1, 0);
        }
        rest
    }
}

/// Reason why a read stops in the middle.
enum ReadStop {
    Stop(Stop),
    /// Bytes of this page must be fetched.
    Fetch(PageId),
}

impl From<Stop> for ReadStop {
    fn from(stop: Stop) -> Self {
        Self::Stop(stop)
    }
}

impl<E: Env, U: Underlying<E>> Service<E, U> {
    /// Serves a write.
    pub(crate) async fn write(&self, transfer: &Transfer<'_>, source: &Source<'_, E>) -> DelegateReply {
        if transfer.session.is_some() && self.peers.is_some() {
            return self.route_write(transfer, source).await;
        }
        if let Some(reply) = self.refuse_old_grants(transfer).await {
            return reply;
        }
        let written = self.write_local(transfer, source).await;
        written.map_or_else(|stop| self.stopped(stop), |()| DelegateReply::Done)
    }

    /// Writes pieces into pages of this delegate.
    pub(crate) async fn write_local(
        &self,
        transfer: &Transfer<'_>,
        source: &Source<'_, E>,
    ) -> Result<(), Stop> {
        let mut cursor = Cursor::default();
        let mut is_counted = false;
        loop {
            let seen = self.changed.epoch();
            let stop = {
                let mut state = self.state.lock();
                self.count_request(&mut state, transfer, &mut is_counted);
                let stopped = self.write_parts(&mut state, transfer, source, &mut cursor);
                self.wake_writers(&state);
                match stopped {
                    Ok(()) => {
                        state.counters.bytes_written += cursor.total as u64;
                        return Ok(());
                    }
                    Err(stop) => {
                        state.waiting += u32::from(matches!(stop, Stop::Wait));
                        stop
                    }
                }
            };
            match stop {
                Stop::Wait => self.wait(seen).await,
                Stop::NoRoom => self.make_room(seen).await,
                Stop::Uncached => {
                    let from = cursor.total;
                    let rest = cursor.take_rest(transfer);
                    self.write_uncached(transfer, source, from, &rest).await?;
                }
                other => return Err(other),
            }
        }
    }

    /// Writes as many parts as possible without waiting.
    fn write_parts(
        &self,
        state: &mut State<E, U::File>,
        transfer: &Transfer<'_>,
        source: &Source<'_, E>,
        cursor: &mut Cursor,
    ) -> Result<(), Stop> {
        let page_len = state.checked(transfer.file, transfer.session, true)?.page_len;
        while let Some(part) = cursor.next(transfer, page_len) {
            self.check_free(state, &part, page_len)?;
            self.check_cached(state, transfer)?;
            let range = part.within.start() as usize..part.within.end() as usize;
            let from = cursor.total;
            let written = state.pages.write(page_len, (part.id, part.within), |page| {
                source.copy_to(from, page, range);
            });
            written.map_err(|NoRoom| Stop::NoRoom)?;
            cursor.advance(&part);
        }
        Ok(())
    }

    /// Stops a request for a range that a session holds.
    fn check_free(&self, state: &State<E, U::File>, part: &Part, page_len: u64) -> Result<(), Stop> {
        let Some(open) = state.files.get(&part.id.file).filter(|open| !open.holds.is_empty()) else {
            return Ok(());
        };
        let start = part.id.index.0 * page_len + part.within.start();
        let range = ByteRange::with_len(start, part.within.len()).expect("a part is not empty");
        if open.is_held(range) && !is_seeded(Mutant::UnawaitedHold) { Err(Stop::Wait) } else { Ok(()) }
    }

    /// Stops a request for a file whose pages are not cached. Its parts from here on must not be held.
    fn check_cached(&self, state: &State<E, U::File>, transfer: &Transfer<'_>) -> Result<(), Stop> {
        let Some(open) = state.files.get(&transfer.file).filter(|open| open.is_shared_outside) else {
            return Ok(());
        };
        let is_held = |piece: &FilePiece| {
            ByteRange::with_len(piece.offset, u64::from(piece.len)).is_some_and(|range| open.is_held(range))
        };
        if transfer.pieces.iter().any(is_held) { Err(Stop::Wait) } else { Err(Stop::Uncached) }
    }

    fn count_request(&self, state: &mut State<E, U::File>, transfer: &Transfer<'_>, is_counted: &mut bool) {
        state.last_request = self.env.tick();
        if !std::mem::replace(is_counted, true) {
            state.counters.requests += 1;
            state.counters.pieces += transfer.pieces.len() as u64;
        }
    }

    /// Serves a read.
    pub(crate) async fn read(&self, transfer: &Transfer<'_>, to: &mut Destination<'_, E>) -> DelegateReply {
        if transfer.session.is_some() && self.peers.is_some() {
            return self.route_read(transfer, to).await;
        }
        if let Some(reply) = self.refuse_old_grants(transfer).await {
            return reply;
        }
        match self.read_local(transfer, to).await {
            Ok(known) => DelegateReply::Read { known: short_form(known, transfer.pieces) },
            Err(stop) => self.stopped(stop),
        }
    }

    /// Reads pieces from pages of this delegate. Returns for each piece the number of bytes up to the last known one;
    /// unknown bytes before it are zeros.
    pub(crate) async fn read_local(
        &self,
        transfer: &Transfer<'_>,
        to: &mut Destination<'_, E>,
    ) -> Result<Vec<u32>, Stop> {
        let mut cursor = Cursor::default();
        let mut known = vec![0; transfer.pieces.len()];
        let mut is_counted = false;
        // A page whose fetch has reached the end of the underlying file. Its missing bytes are unknown, unless the page was
        // dropped since, while the request waited for a hold.
        let mut ended = None;
        loop {
            let seen = self.changed.epoch();
            let stop = {
                let mut state = self.state.lock();
                self.count_request(&mut state, transfer, &mut is_counted);
                let stopped = self.read_parts(&mut state, transfer, to, (&mut cursor, &mut known), ended);
                match stopped {
                    Ok(()) => {
                        state.counters.bytes_read += cursor.total as u64;
                        return Ok(known);
                    }
                    Err(ReadStop::Stop(Stop::Wait)) => {
                        state.waiting += 1;
                        ReadStop::Stop(Stop::Wait)
                    }
                    Err(stop) => stop,
                }
            };
            match stop {
                ReadStop::Stop(Stop::Wait) => self.wait(seen).await,
                ReadStop::Stop(Stop::NoRoom) => self.make_room(seen).await,
                ReadStop::Stop(Stop::Uncached) => {
                    let from = cursor.total;
                    let rest = cursor.take_rest(transfer);
                    let read = self.read_uncached(transfer, to, from, &rest).await?;
                    for (piece, read) in rest.iter().zip(read).filter(|(_, read)| *read > 0) {
                        known[piece.piece] = piece.done + read as u32;
                    }
                }
                ReadStop::Stop(other) => return Err(other),
                ReadStop::Fetch(id) => {
                    ended = self.fetch(id).await.map_err(Stop::Refused)?.map(|fetch| (id, fetch));
                }
            }
        }
    }

    fn read_parts(
        &self,
        state: &mut State<E, U::File>,
        transfer: &Transfer<'_>,
        to: &mut Destination<'_, E>,
        (cursor, known): (&mut Cursor, &mut [u32]),
        ended: Option<(PageId, Fetch)>,
    ) -> Result<(), ReadStop> {
        let page_len = state.checked(transfer.file, transfer.session, false)?.page_len;
        while let Some(part) = cursor.next(transfer, page_len) {
            self.check_free(state, &part, page_len)?;
            self.check_cached(state, transfer)?;
            let is_fetching = state.fetching.contains(&part.id);
            let read = state.pages.read(page_len, part.id, part.within);
            let (page, gaps, fetch) = read.map_err(|NoRoom| Stop::NoRoom)?;
            let is_end = ended == Some((part.id, fetch));
            if !gaps.is_empty() && is_fetching {
                return Err(Stop::Wait.into());
            }
            if !gaps.is_empty() && !is_end {
                state.counters.misses += 1;
                state.fetching.insert(part.id);
                return Err(ReadStop::Fetch(part.id));
            }
            let (start, end) = (part.within.start(), part.within.end());
            to.copy_from(cursor.total, page, start as usize..end as usize);
            for gap in &gaps {
                to.zero(cursor.total + (gap.start() - start) as usize, gap.len() as usize);
            }
            // The last known byte of the part: before the last gap, if that reaches the end.
            let last = gaps.last().filter(|gap| gap.end() == end).map_or(end, |gap| gap.start());
            if last > start {
                known[cursor.piece] = cursor.done + (last - start) as u32;
            }
            state.counters.hits += u64::from(!is_end);
            self.note_access(state, transfer, &part.id);
            cursor.advance(&part);
        }
        Ok(())
    }

    /// Reads the missing bytes of a page from the underlying file. Returns the state of the page if the file
    /// ends in it. The caller has entered the page in [`State::fetching`].
    pub(crate) async fn fetch(&self, id: PageId) -> Result<Option<Fetch>, WireError> {
        let result = self.fetch_page(id).await;
        let mut state = self.state.lock();
        state.fetching.remove(&id);
        self.wake(&state);
        result
    }

    async fn fetch_page(&self, id: PageId) -> Result<Option<Fetch>, WireError> {
        loop {
            let seen = self.changed.epoch();
            let prepared = {
                let mut state = self.state.lock();
                let prepared = Self::prepare_fetch(&mut state, id)?;
                state.waiting += u32::from(matches!(prepared, Prepared::Held));
                prepared
            };
            let Fetching { reader, range, fetch, mut buffer, page_len } = match prepared {
                Prepared::Nothing => return Ok(None),
                Prepared::Held => {
                    self.wait(seen).await;
                    continue;
                }
                Prepared::NoRoom => {
                    self.make_room(seen).await;
                    continue;
                }
                Prepared::Fetch(fetching) => fetching,
            };
            let part = buffer.slice_mut(range.start() as usize..range.end() as usize);
            let read = read_fully(&reader, part, id.index.0 * page_len + range.start()).await;
            let mut state = self.state.lock();
            state.pages.of(page_len).unpin(id);
            let read = match read {
                Ok(read) => read as u64,
                Err(error) => {
                    state.pages.keep(page_len, buffer);
                    return Err(self.failed("reading the underlying file", &error));
                }
            };
            if !state.files.contains_key(&id.file) {
                return Ok(None);
            }
            let is_filled = match ByteRange::with_len(range.start(), read) {
                Some(bytes) => state.pages.fill(page_len, (id, fetch), bytes, buffer),
                None => {
                    state.pages.keep(page_len, buffer);
                    true
                }
            };
            if is_filled {
                return Ok((read < range.len()).then_some(fetch));
            }
        }
    }

    fn prepare_fetch(state: &mut State<E, U::File>, id: PageId) -> Result<Prepared<U::File>, WireError> {
        let Some(open) = state.files.get(&id.file).filter(|open| !open.is_shared_outside) else {
            return Ok(Prepared::Nothing);
        };
        let page_len = open.page_len;
        let start = id.index.0 * page_len;
        // The holder is changing the underlying file: bytes read now may be old.
        if ByteRange::with_len(start, page_len).is_none_or(|range| open.is_held(range)) {
            return Ok(Prepared::Held);
        }
        let Some(reader) = open.reader.clone() else {
            let detail = "no rank has opened the file for reading".to_owned();
            return Err(WireError::new(Errno::EBADF, detail));
        };
        let whole = ByteRange::new(0, page_len).expect("a page is not empty");
        let Ok((_, gaps, fetch)) = state.pages.read(page_len, id, whole) else { return Ok(Prepared::NoRoom) };
        let (Some(first), Some(last)) = (gaps.first(), gaps.last()) else {
            return Ok(Prepared::Nothing);
        };
        let range = ByteRange::new(first.start(), last.end()).expect("gaps are not empty");
        state.pages.of(page_len).pin(id);
        let buffer = state.pages.buffer(page_len);
        state.counters.file_reads += 1;
        Ok(Prepared::Fetch(Fetching { reader, range, fetch, buffer, page_len }))
    }
}

/// Next step of a fetch.
enum Prepared<F> {
    /// No byte is missing, or the file is not open or not cached any more.
    Nothing,
    /// A session holds a part of the page.
    Held,
    /// All pages have unwritten bytes.
    NoRoom,
    Fetch(Fetching<F>),
}

/// A read of the underlying file.
struct Fetching<F> {
    reader: Arc<F>,
    /// Bytes of the page.
    range: ByteRange,
    fetch: Fetch,
    buffer: Buffer,
    page_len: u64,
}

async fn read_fully<F: FileHandle>(
    file: &Arc<F>,
    buffer: &mut [u8],
    offset: u64,
) -> Result<usize, weft_client::Error> {
    let mut done = 0;
    while done < buffer.len() {
        let mut rest = [IoSliceMut::new(&mut buffer[done..])];
        let read = file.read_at(&mut rest, FileOffset(offset + done as u64)).await?;
        if read == 0 {
            break;
        }
        done += read;
    }
    Ok(done)
}

/// Returns the known lengths in the form of the reply: empty if all pieces are known.
pub(crate) fn short_form(known: Vec<u32>, pieces: &[FilePiece]) -> Vec<u32> {
    let is_whole = known.iter().zip(pieces).all(|(known, piece)| *known == piece.len);
    if is_whole { Vec::new() } else { known }
}
