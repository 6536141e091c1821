//! Opens of a file by programs outside of the job, after which its pages are no longer cached.
//!
//! ```text
//! program outside    metadata service           delegate              ranks
//!       open ──────────▶ registered
//!       await ─────────▶ event ──────────────────▶ holds the file ──── requests wait
//!                                                  writes dirty pages
//!                                                  drops all pages
//!       reads ◀───────── done ◀─────────────────── acknowledges ─────── requests go on, past the cache
//! ```
//! The file stays uncached until no rank has it open.

use crate::buffer::{Buffer, Destination, Source};
use crate::service::{Service, Transfer};
use crate::state::{HeldRange, OpenFile, Stop};
use crate::underlying::{Recalls, Underlying};
use std::io::IoSliceMut;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use weft_client::{FileHandle, ReadPiece, WritePiece};
use weft_core::delegates::ownership::FileNumber;
use weft_core::{ByteRange, FileOffset};
use weft_env::{Env, Notify};
use weft_wire::hello::SessionId;
use weft_wire::{Errno, WireError};

/// Session that holds a file for a recall. Sessions of peers are random numbers.
const RECALLER: SessionId = SessionId(0);

/// A piece of a request that goes past the cache.
#[derive(Clone, Copy)]
pub(crate) struct Uncached {
    /// Piece of the request.
    pub(crate) piece: usize,
    /// Bytes of the piece that were done before.
    pub(crate) done: u32,
    pub(crate) offset: u64,
    pub(crate) len: u32,
}

impl<E: Env, U: Underlying<E>> Service<E, U> {
    /// Handles recalls until the delegate ends.
    pub(crate) async fn run_recalls(self: Arc<Self>) {
        let mut done = 0;
        while !self.is_stopping.load(Ordering::SeqCst) {
            match self.underlying.recalls(done).await {
                Recalls::Never => return,
                Recalls::Of(recalls) => {
                    for recall in recalls {
                        self.recall(recall.file).await;
                        done = done.max(recall.number);
                    }
                }
                Recalls::Missed => {
                    done = 0;
                    let lost: Vec<FileNumber> = {
                        let state = self.state.lock();
                        let may_cache = |open: &OpenFile<U::File>| self.may_cache_all(open);
                        state
                            .files
                            .iter()
                            .filter(|(_, open)| !may_cache(open))
                            .map(|(file, _)| *file)
                            .collect()
                    };
                    for file in lost {
                        self.recall(file).await;
                    }
                }
            }
        }
    }

    /// Whether pages may be cached by all handles of a file.
    fn may_cache_all(&self, open: &OpenFile<U::File>) -> bool {
        [&open.reader, &open.writer].into_iter().flatten().all(|handle| self.underlying.may_cache(handle))
    }

    /// Writes and drops all pages of a file, and caches none until no rank has it open.
    pub(crate) async fn recall(&self, file: FileNumber) {
        let range = ByteRange::ALL;
        loop {
            let seen = self.changed.epoch();
            {
                let mut state = self.state.lock();
                let state = &mut *state;
                let Some(open) = state.files.get_mut(&file) else {
                    // The first open is under way, and may have been told before this recall that it may cache.
                    if state.opening.contains(&file) {
                        state.recalled.insert(file);
                    }
                    return;
                };
                if open.is_shared_outside {
                    return;
                }
                if !open.is_held(range) {
                    open.holds.push(HeldRange { session: RECALLER, slot: 0, range });
                    break;
                }
                state.waiting += 1;
            }
            self.wait(seen).await;
        }
        self.write_back(file, range).await;
        let name = {
            let mut state = self.state.lock();
            let Some(page_len) = state.files.get(&file).map(|open| open.page_len) else { return };
            state.pages.of(page_len).forget_range(file, range);
            let Some(open) = state.files.get_mut(&file) else { return };
            open.holds.retain(|held| held.session != RECALLER);
            open.is_shared_outside = true;
            let name = String::from_utf8_lossy(&open.name).into_owned();
            self.wake(&state);
            name
        };
        let text = format!(
            "info: {name} is open outside of the job: its pages are not cached until the job closes it"
        );
        (self.config.hooks.log)(&text);
    }

    /// Writes pieces to the underlying file. `from` is the place of their first byte in the source.
    pub(crate) async fn write_uncached(
        &self,
        transfer: &Transfer<'_>,
        source: &Source<'_, E>,
        from: usize,
        pieces: &[Uncached],
    ) -> Result<(), Stop> {
        let writer = {
            let mut state = self.state.lock();
            state.checked(transfer.file, transfer.session, true)?.writer.clone()
        };
        let writer = writer.ok_or_else(|| not_open_for("writing"))?;
        let len: usize = pieces.iter().map(|piece| piece.len as usize).sum();
        let mut copied = None;
        let bytes = match source {
            Source::Payload(payload) => payload.slice(from..from + len),
            // The rank may not change bytes between two retries of a write.
            Source::Shared(..) => {
                let buffer: &mut Buffer = copied.insert(Buffer::new(&self.env, len));
                source.copy_to(from, buffer, 0..len);
                buffer.slice(0..len)
            }
        };
        let mut at = 0;
        let list: Vec<WritePiece<'_>> = pieces
            .iter()
            .map(|piece| {
                let bytes = &bytes[at..at + piece.len as usize];
                at += piece.len as usize;
                WritePiece { offset: FileOffset(piece.offset), bytes }
            })
            .collect();
        writer
            .write_list(&list)
            .await
            .map_err(|error| Stop::Refused(self.failed("writing past the cache", &error)))?;
        let mut state = self.state.lock();
        state.counters.file_writes += 1;
        state.counters.file_bytes_written += len as u64;
        Ok(())
    }

    /// Reads pieces from the underlying file. `from` is the place of their first byte in the destination. Returns the
    /// number of bytes of each.
    pub(crate) async fn read_uncached(
        &self,
        transfer: &Transfer<'_>,
        to: &mut Destination<'_, E>,
        from: usize,
        pieces: &[Uncached],
    ) -> Result<Vec<usize>, Stop> {
        let reader = {
            let mut state = self.state.lock();
            state.counters.file_reads += 1;
            state.counters.misses += 1;
            state.checked(transfer.file, transfer.session, false)?.reader.clone()
        };
        let reader = reader.ok_or_else(|| not_open_for("reading"))?;
        let len: usize = pieces.iter().map(|piece| piece.len as usize).sum();
        let mut buffer = Buffer::new(&self.env, len);
        let mut rest = buffer.slice_mut(0..len);
        let mut list = Vec::with_capacity(pieces.len());
        for piece in pieces {
            let (part, more) = std::mem::take(&mut rest).split_at_mut(piece.len as usize);
            list.push(ReadPiece { offset: FileOffset(piece.offset), buffer: IoSliceMut::new(part) });
            rest = more;
        }
        let read = reader.read_list(&mut list).await;
        drop(list);
        let read = read.map_err(|error| Stop::Refused(self.failed("reading past the cache", &error)))?;
        let mut at = 0;
        for (piece, read) in pieces.iter().zip(&read) {
            to.copy_from(from + at, &buffer, at..at + read);
            at += piece.len as usize;
        }
        Ok(read)
    }
}

fn not_open_for(access: &str) -> Stop {
    Stop::Refused(WireError::new(Errno::EBADF, format!("no rank has opened the file for {access}")))
}
