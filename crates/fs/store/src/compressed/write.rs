//! Writes.

use super::Compressed;
use super::buffer::WriteBuffer;
use super::chunks::{Chunk, Layer};
use super::journal::Cause;
use super::record::{Extent, Piece, Record, UNIT_BYTES, Version, units_of};
use crate::content::Fault;
use crate::error::is_full;
use weft_core::ranges::ByteRange;
use weft_core::{LocalOffset, Nanos};
use weft_env::Env;

/// Number of bytes of the datafile that are written under one lock and with one frame, at least one chunk.
const BATCH_BYTES: u64 = 1 << 20;
/// Maximum number of layers of a chunk. A write that reaches it folds the chunk.
pub(super) const LAYERS_MAX: usize = 64;

/// Chunks that were compressed and are to be stored, one behind the other.
#[derive(Default)]
pub(super) struct Packed {
    /// Stored bytes, each version from a whole unit on.
    bytes: WriteBuffer,
    /// Chunks and their versions, with places relative to the first one.
    versions: Vec<(u64, Version)>,
    /// Processor time of the compression, where it is modeled.
    time: Nanos,
}

impl Packed {
    /// Returns the chunk and its version, if there is only one.
    pub fn single(&self) -> Option<(u64, Version)> {
        match self.versions[..] {
            [single] => Some(single),
            _ => None,
        }
    }

    /// Returns the processor time of the compression, where it is modeled.
    pub const fn time(&self) -> Nanos {
        self.time
    }
}

impl<E: Env> Compressed<E> {
    pub async fn write(&self, offset: LocalOffset, bytes: &[u8]) -> Result<(), Fault> {
        if bytes.is_empty() {
            return Ok(());
        }
        Box::pin(self.write_all(offset.0, bytes)).await
    }

    async fn write_all(&self, start: u64, bytes: &[u8]) -> Result<(), Fault> {
        let batch_len = BATCH_BYTES.max(self.chunk_len);
        let mut done = 0;
        while done < bytes.len() {
            let at = start + done as u64;
            let batch = (batch_len - at % batch_len).min((bytes.len() - done) as u64) as usize;
            self.write_batch(at, &bytes[done..done + batch]).await?;
            done += batch;
        }
        self.relieve().await;
        Ok(())
    }

    async fn write_batch(&self, at: u64, bytes: &[u8]) -> Result<(), Fault> {
        let chunks = self.chunks_of(at, at + bytes.len() as u64);
        let _guard = self.locks.lock(chunks.start, chunks.end).await;
        let mut reserved = Vec::new();
        let written = self.write_locked(at, bytes, &mut reserved).await;
        if written.is_err() {
            self.unreserve(reserved);
        }
        written
    }

    /// Writes to chunks that the caller has locked. `reserved` is the space that was allocated, also on an error.
    async fn write_locked(&self, at: u64, bytes: &[u8], reserved: &mut Vec<Extent>) -> Result<(), Fault> {
        let end = at + bytes.len() as u64;
        let (mut records, mut packed) = (Vec::new(), Packed::default());
        for chunk in self.chunks_of(at, end) {
            let chunk_start = chunk * self.chunk_len;
            let (from, to) = (at.max(chunk_start), end.min(chunk_start + self.chunk_len));
            let part = &bytes[(from - at) as usize..(to - at) as usize];
            if part.len() as u64 == self.chunk_len {
                self.pack(chunk, part, &mut packed, &mut records);
            } else {
                let start = (from - chunk_start) as u32;
                records.extend(self.overlay(chunk, start, part, &mut packed, reserved).await?);
            }
        }
        self.spend(packed.time).await;
        self.store(packed, &mut records, reserved).await?;
        self.commit(records, end, Cause::Program).await
    }

    /// Frees space that no record names, unless a failed frame may have named it.
    pub(super) fn unreserve(&self, reserved: Vec<Extent>) {
        if !self.journal.is_broken() {
            let mut state = self.state.lock();
            reserved.into_iter().for_each(|extent| state.space.unreserve(extent));
        }
    }

    /// Compresses the bytes of a chunk, from its start on.
    pub(super) fn pack(&self, chunk: u64, bytes: &[u8], packed: &mut Packed, records: &mut Vec<Record>) {
        if self.coder.is_zero(bytes) {
            packed.time = packed.time.saturating_add(self.coder.encoding_time(None, bytes.len()));
            self.upkeep.note_compressed(bytes.len() as u64, 0);
            if !self.state.lock().chunks.is_hole(chunk) {
                records.push(Record::Hole { chunk, count: 1 });
            }
            return;
        }
        if packed.versions.is_empty() {
            packed.bytes = WriteBuffer::empty();
        }
        let start = packed.bytes.len();
        let codec = self.coder.encode(bytes, &mut packed.bytes);
        packed.time = packed.time.saturating_add(self.coder.encoding_time(Some(codec), bytes.len()));
        let stored = &packed.bytes[start..];
        let version = Version {
            at: start as u64 / UNIT_BYTES,
            stored: stored.len() as u32,
            len: bytes.len() as u32,
            crc: self.coder.sum(stored),
            codec,
        };
        self.upkeep.note_compressed(bytes.len() as u64, stored.len() as u64);
        let end = packed.bytes.len().next_multiple_of(UNIT_BYTES as usize);
        packed.bytes.resize(end, 0);
        packed.versions.push((chunk, version));
    }

    /// Stores chunks, and appends the records that name them.
    pub(super) async fn store(
        &self,
        packed: Packed,
        records: &mut Vec<Record>,
        reserved: &mut Vec<Extent>,
    ) -> Result<(), Fault> {
        let units = packed.bytes.len() as u64 / UNIT_BYTES;
        if units == 0 {
            return Ok(());
        }
        if packed.versions.len() > 1 && self.state.lock().space.is_fragmented(units) {
            for &(chunk, version) in &packed.versions {
                let bytes = &packed.bytes[(version.at * UNIT_BYTES) as usize..][..version.stored as usize];
                let at = self.put(bytes, reserved).await?;
                records.push(Record::Version { chunk, version: Version { at, ..version } });
            }
            return Ok(());
        }
        let at = self.put(&packed.bytes, reserved).await?;
        records.extend(packed.versions.iter().map(|&(chunk, version)| Record::Version {
            chunk,
            version: Version { at: at + version.at, ..version },
        }));
        Ok(())
    }

    /// Writes bytes to free space, and returns the first unit.
    async fn put(&self, bytes: &[u8], reserved: &mut Vec<Extent>) -> Result<u64, Fault> {
        let units = units_of(bytes.len() as u32);
        let mut may_retry = true;
        loop {
            let extent = self.state.lock().space.allocate(units);
            match self.container.write_at(bytes, LocalOffset(extent.offset())).await {
                Ok(()) => {
                    reserved.push(extent);
                    return Ok(extent.at);
                }
                Err(error) => {
                    self.state.lock().space.unreserve(extent);
                    if !may_retry || !is_full(&error) || !self.release().await {
                        return Err(error.into());
                    }
                    may_retry = false;
                }
            }
        }
    }

    /// Releases space that the durable map still names, and free space that holds blocks. Returns false if there is none.
    pub async fn release(&self) -> bool {
        let (pending, dirty) = {
            let state = self.state.lock();
            (state.space.pending_units(), state.space.dirty_units())
        };
        if pending == 0 && dirty == 0 {
            return false;
        }
        // The failed write reports the error.
        let is_released = pending == 0 || self.sync().await.is_ok();
        self.punch_free(0, usize::MAX).await;
        is_released
    }

    /// Lays `bytes` over a part of a chunk from byte `start` on. Returns the record, unless nothing changes or the
    /// chunk was packed.
    async fn overlay(
        &self,
        chunk: u64,
        start: u32,
        bytes: &[u8],
        packed: &mut Packed,
        reserved: &mut Vec<Extent>,
    ) -> Result<Option<Record>, Fault> {
        let len = bytes.len() as u32;
        let (stack, datafile_len) = {
            let state = self.state.lock();
            (state.chunks.get(chunk), state.chunks.len())
        };
        if self.completes(&stack, start, start + len) {
            // Behind the end of the datafile there are only zeros.
            let before = datafile_len.saturating_sub(chunk * self.chunk_len).min(stack.end().into());
            let end = (start + len).max(before as u32);
            let mut whole = self.assemble_around(chunk, &stack, start..start + len, end).await?;
            self.coder.copy(bytes, &mut whole[start as usize..(start + len) as usize]);
            let mut records = Vec::new();
            self.pack(chunk, &whole, packed, &mut records);
            return Ok(records.pop());
        }
        if self.coder.is_zero(bytes) {
            let hides = start < stack.end();
            return Ok(hides.then_some(Record::Zeros { chunk, start, len }));
        }
        if let Some(Layer::Piece(top)) = stack.layers.last()
            && top.end() == start
            && let Some(piece) = self.grow(top, bytes, reserved).await?
        {
            return Ok(Some(Record::Piece { chunk, piece }));
        }
        let at = self.put(bytes, reserved).await?;
        Ok(Some(Record::Piece { chunk, piece: Piece { start, len, at, crc: self.coder.sum(bytes) } }))
    }

    /// Returns true if a write of bytes `start..end` should fold its chunk: layers then cover all of it, or there are
    /// too many.
    fn completes(&self, stack: &Chunk, start: u32, end: u32) -> bool {
        if stack.layers.len() >= LAYERS_MAX {
            return true;
        }
        if stack.layers.is_empty() {
            return false;
        }
        let covers = |from: u32, to: u32| {
            ByteRange::new(from.into(), to.into()).is_none_or(|range| stack.is_covered(range))
        };
        covers(0, start) && covers(end, self.chunk_len as u32)
    }

    /// Returns the first `end` bytes of a chunk, except those of `hole`, which the caller fills.
    async fn assemble_around(
        &self,
        chunk: u64,
        stack: &Chunk,
        hole: std::ops::Range<u32>,
        end: u32,
    ) -> Result<Vec<u8>, Fault> {
        let mut whole = Vec::with_capacity(end as usize);
        if hole.start > 0 {
            whole = self.assemble(chunk, stack, 0..hole.start).await?;
        }
        whole.resize(hole.end as usize, 0);
        if hole.end < end {
            whole.append(&mut self.assemble(chunk, stack, hole.end..end).await?);
        }
        Ok(whole)
    }

    /// Writes `bytes` behind a piece. Returns the longer piece; `None` if the space there is in use.
    async fn grow(
        &self,
        piece: &Piece,
        bytes: &[u8],
        reserved: &mut Vec<Extent>,
    ) -> Result<Option<Piece>, Fault> {
        let grown = Piece {
            len: piece.len + bytes.len() as u32,
            crc: self.coder.sum_behind(piece.crc, bytes),
            ..*piece
        };
        let extent = piece.extent();
        let more = Extent { at: extent.end(), units: grown.units() - piece.units() };
        if !self.state.lock().space.extend(extent, more.units) {
            return Ok(None);
        }
        let offset = LocalOffset(extent.offset() + u64::from(piece.len));
        if let Err(error) = self.container.write_at(bytes, offset).await {
            self.state.lock().space.unreserve(more);
            return match is_full(&error) {
                true => Ok(None),
                false => Err(error.into()),
            };
        }
        if more.units > 0 {
            reserved.push(more);
        }
        Ok(Some(grown))
    }

    /// Does the work that a change has made necessary: folds an overlay that has reached its bound, releases space.
    /// The change itself has succeeded, so errors are left to the operations that follow.
    pub(super) async fn relieve(&self) {
        let _ = self.fold_bounded().await;
        if self.needs_sync() {
            let _ = self.sync().await;
        }
    }
}
