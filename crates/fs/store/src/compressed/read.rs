//! Reads, and verification.

use super::Compressed;
use super::buffer::ReadBuffer;
use super::cache::CacheKey;
use super::chunks::{Chunk, Layer};
use super::codec::Codec;
use super::record::{Piece, UNIT_BYTES, Version};
use crate::content::{Fault, Scrubbed};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use weft_core::ranges::ByteRange;
use weft_core::{ByteLen, LocalOffset, Nanos};
use weft_env::Env;
use weft_env::mutants::{Mutant, is_seeded};

/// Maximum number of stored bytes that are read at once.
const READ_BYTES: u64 = 1 << 20;
/// Number of stored bytes that are read at once for a sequential reader of shorter parts.
const AHEAD_BYTES: u64 = 256 << 10;
/// Number of consecutive chunks after which a reader counts as sequential.
const SEQUENTIAL_CHUNKS: u32 = 3;
/// Maximum number of bytes of the datafile that are read under one look at the map.
const BATCH_BYTES: u64 = 4 << 20;

/// Reason why a part of the datafile could not be read.
pub(super) enum Unread {
    /// The device failed.
    Io(io::Error),
    /// The stored bytes of this chunk do not match their checksum.
    Mismatch(u64),
}

impl From<io::Error> for Unread {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Position of the last reader.
///
/// Without this, a sequential reader of one chunk at a time costs the disk a request for each chunk, although chunks are
/// shorter on the disk than in the datafile.
#[derive(Default)]
pub(super) struct ReadPosition {
    /// Chunk after the last one read.
    next: u64,
    /// Number of consecutive chunks read before it.
    onward: u32,
}

impl ReadPosition {
    /// Registers a read of the chunks `first` to `last`. Returns whether the reader is sequential.
    fn is_sequential(&mut self, first: u64, last: u64) -> bool {
        match first {
            _ if first == self.next => self.onward = self.onward.saturating_add(1),
            // Another part of the last chunk.
            _ if first + 1 == self.next => self.onward = self.onward.saturating_add(u32::from(last > first)),
            _ => self.onward = 0,
        }
        self.next = last + 1;
        self.onward >= SEQUENTIAL_CHUNKS
    }
}

/// Chunks with versions in adjacent places, and nothing over them.
struct Run {
    first: u64,
    versions: Vec<Version>,
    /// Number of units of all versions.
    units: u64,
}

impl Run {
    /// Adds the next chunk, if its version is adjacent.
    fn push(&mut self, version: Version) -> bool {
        let is_next = self.versions.first().is_none_or(|first| first.at + self.units == version.at);
        let fits = is_next && (self.units + version.units()) * UNIT_BYTES <= READ_BYTES;
        if fits || self.versions.is_empty() {
            self.versions.push(version);
            self.units += version.units();
        }
        fits
    }
}

impl<E: Env> Compressed<E> {
    pub async fn read(&self, offset: LocalOffset, buf: &mut [u8]) -> Result<(usize, ByteLen), Fault> {
        Box::pin(self.read_all(offset.0, buf)).await
    }

    async fn read_all(&self, start: u64, buf: &mut [u8]) -> Result<(usize, ByteLen), Fault> {
        let len = self.state.lock().chunks.len();
        let count = len.saturating_sub(start).min(buf.len() as u64) as usize;
        let mut done = 0;
        while done < count {
            let at = start + done as u64;
            let batch = (BATCH_BYTES - at % BATCH_BYTES).min((count - done) as u64) as usize;
            self.read_verified(at, &mut buf[done..done + batch]).await?;
            done += batch;
        }
        Ok((count, ByteLen(len)))
    }

    /// Reads bytes before the end of the datafile.
    async fn read_verified(&self, at: u64, buf: &mut [u8]) -> Result<(), Fault> {
        match self.read_unlocked(at, buf).await {
            Ok(()) => return Ok(()),
            Err(Unread::Io(error)) => return Err(error.into()),
            Err(Unread::Mismatch(_)) => {}
        }
        // The space may have been used again since the look at the map: repeat the read under the lock.
        let chunks = self.chunks_of(at, at + buf.len() as u64);
        let _guard = self.locks.lock(chunks.start, chunks.end).await;
        match self.read_unlocked(at, buf).await {
            Ok(()) => Ok(()),
            Err(Unread::Io(error)) => Err(error.into()),
            Err(Unread::Mismatch(chunk)) => Err(self.damaged(chunk)),
        }
    }

    async fn read_unlocked(&self, at: u64, buf: &mut [u8]) -> Result<(), Unread> {
        let end = at + buf.len() as u64;
        let mut chunk = at / self.chunk_len;
        let last = (end - 1) / self.chunk_len;
        let is_sequential = self.read_position.lock().is_sequential(chunk, last);
        while chunk <= last {
            if self.fill_from_memory(chunk, at, buf).await {
                chunk += 1;
                continue;
            }
            let mut run = Run { first: chunk, versions: Vec::new(), units: 0 };
            let single = {
                let state = self.state.lock();
                let mut next = chunk;
                while next <= last
                    && let Some(Some(version)) = state.chunks.bare(next)
                    && run.push(version)
                {
                    next += 1;
                }
                if is_sequential && next > last {
                    while run.units * UNIT_BYTES < AHEAD_BYTES
                        && let Some(Some(version)) = state.chunks.bare(next)
                        && !self.cache.ahead.contains(&self.cache_key(next, version))
                        && run.push(version)
                    {
                        next += 1;
                    }
                }
                match run.versions.is_empty() {
                    true => Some(state.chunks.get(chunk)),
                    false => None,
                }
            };
            if let Some(single) = single {
                let (start, part) = self.part_of(chunk, at, buf);
                self.fill(chunk, &single, start, part).await?;
                chunk += 1;
            } else {
                self.read_run(&run, at, buf).await?;
                chunk += run.versions.len() as u64;
            }
        }
        Ok(())
    }

    /// Fills the part of `buf` that is in a chunk, if its version is in memory.
    async fn fill_from_memory(&self, chunk: u64, at: u64, buf: &mut [u8]) -> bool {
        let Some(Some(version)) = self.state.lock().chunks.bare(chunk) else { return false };
        let key = self.cache_key(chunk, version);
        let (start, part) = self.part_of(chunk, at, buf);
        let is_whole = start == 0 && part.len() >= version.len as usize;
        if !is_whole && let Some(bytes) = self.cache.decompressed.get(&key) {
            self.copy_part(&bytes, start, part);
            return true;
        }
        let stored = self.cache.ahead.take(&key).filter(|stored| self.coder.matches(stored, version.crc));
        let Some(stored) = stored else { return false };
        let is_valid = self.unpack(chunk, version, &stored, start, part);
        self.spend(self.coder.decoding_time(version.codec, version.len as usize)).await;
        is_valid
    }

    /// Returns the part of `buf`, which begins at byte `at` of the datafile, that is in a chunk, and where it begins
    /// within the chunk.
    fn part_of<'a>(&self, chunk: u64, at: u64, buf: &'a mut [u8]) -> (u32, &'a mut [u8]) {
        let chunk_start = chunk * self.chunk_len;
        let (start, end) = (at.max(chunk_start), (at + buf.len() as u64).min(chunk_start + self.chunk_len));
        ((start - chunk_start) as u32, &mut buf[(start - at) as usize..(end - at) as usize])
    }

    /// Reads the parts of `buf` that are in the chunks of a run.
    async fn read_run(&self, run: &Run, at: u64, buf: &mut [u8]) -> Result<(), Unread> {
        if let [version] = run.versions[..] {
            let (start, part) = self.part_of(run.first, at, buf);
            return self.fill_version(run.first, version, start, part).await;
        }
        let place = run.versions[0].at * UNIT_BYTES;
        let (from, to) =
            (run.first * self.chunk_len, (run.first + run.versions.len() as u64) * self.chunk_len);
        let is_plain = run
            .versions
            .iter()
            .all(|version| version.codec == Codec::Raw && u64::from(version.len) == self.chunk_len);
        if is_plain && at <= from && to <= at + buf.len() as u64 {
            // The stored bytes are those of the datafile.
            let part = &mut buf[(from - at) as usize..(to - at) as usize];
            let got = self.container.read_at(part, LocalOffset(place)).await?;
            for (index, (version, bytes)) in
                run.versions.iter().zip(part.chunks(self.chunk_len as usize)).enumerate()
            {
                let is_whole = (index + 1) * self.chunk_len as usize <= got;
                if !is_whole || !self.coder.matches(bytes, version.crc) {
                    return Err(Unread::Mismatch(run.first + index as u64));
                }
            }
            return Ok(());
        }
        let mut stored = ReadBuffer::new((run.units * UNIT_BYTES) as usize);
        let got = self.container.read_at(&mut stored, LocalOffset(place)).await?;
        // The last version may end within its last unit.
        let stored = &stored[..got];
        let (mut offset, mut time) = (0, Nanos::ZERO);
        for (chunk, version) in (run.first..).zip(&run.versions) {
            let bytes = stored.get(offset..offset + version.stored as usize);
            offset += (version.units() * UNIT_BYTES) as usize;
            if chunk * self.chunk_len >= at + buf.len() as u64 {
                // Read ahead. Verified when it is used.
                if let Some(bytes) = bytes {
                    self.cache.ahead.put(self.cache_key(chunk, *version), Arc::new(bytes.to_vec()));
                }
                continue;
            }
            let bytes = bytes.filter(|bytes| self.coder.matches(bytes, version.crc));
            let bytes = bytes.ok_or(Unread::Mismatch(chunk))?;
            let (start, part) = self.part_of(chunk, at, buf);
            if !self.unpack(chunk, *version, bytes, start, part) {
                return Err(Unread::Mismatch(chunk));
            }
            time = time.saturating_add(self.coder.decoding_time(version.codec, version.len as usize));
        }
        self.spend(time).await;
        Ok(())
    }

    /// Fills `part`, which begins at byte `start` of a chunk, from its version and layers.
    pub(super) async fn fill(
        &self,
        chunk: u64,
        stack: &Chunk,
        start: u32,
        part: &mut [u8],
    ) -> Result<(), Unread> {
        let end = start + part.len() as u32;
        let wanted = ByteRange::new(start.into(), end.into()).expect("a part is not empty");
        match stack.version {
            Some(version) => {
                let below = wanted.intersection(ByteRange::new(0, version.len.into()).expect("not empty"));
                if below.is_some_and(|below| !stack.is_covered(below)) {
                    self.fill_version(chunk, version, start, part).await?;
                } else {
                    self.coder.clear(part);
                }
            }
            None => self.coder.clear(part),
        }
        for layer in &stack.layers {
            let Some(common) = layer.range().intersection(wanted) else { continue };
            let within = common.start() as usize - start as usize..common.end() as usize - start as usize;
            match layer {
                Layer::Zeros { .. } => self.coder.clear(&mut part[within]),
                // The seeded mutant reads what was there before.
                Layer::Piece(_) if is_seeded(Mutant::LostOverlay) => {}
                Layer::Piece(piece) => {
                    let bytes = self.read_piece(chunk, piece).await?;
                    let from = common.start() as usize - piece.start as usize;
                    self.coder.copy(&bytes[from..from + within.len()], &mut part[within.clone()]);
                }
            }
        }
        Ok(())
    }

    /// Fills `part`, which begins at byte `start` of a chunk, from its version.
    async fn fill_version(
        &self,
        chunk: u64,
        version: Version,
        start: u32,
        part: &mut [u8],
    ) -> Result<(), Unread> {
        let is_whole = start == 0 && part.len() >= version.len as usize;
        if !is_whole && let Some(bytes) = self.cache.decompressed.get(&self.cache_key(chunk, version)) {
            self.copy_part(&bytes, start, part);
            return Ok(());
        }
        if is_whole && version.codec == Codec::Raw {
            let (bytes, rest) = part.split_at_mut(version.len as usize);
            self.coder.clear(rest);
            return self.read_stored(chunk, version.at, version.crc, bytes).await;
        }
        let mut stored = ReadBuffer::new(version.stored as usize);
        self.read_stored(chunk, version.at, version.crc, &mut stored).await?;
        match self.unpack(chunk, version, &stored, start, part) {
            true => self.spend(self.coder.decoding_time(version.codec, version.len as usize)).await,
            false => return Err(Unread::Mismatch(chunk)),
        }
        Ok(())
    }

    /// Decompresses verified bytes of a version, and fills `part`, which begins at byte `start` of the chunk. Returns
    /// false if they are invalid.
    fn unpack(&self, chunk: u64, version: Version, stored: &[u8], start: u32, part: &mut [u8]) -> bool {
        let len = version.len as usize;
        if start == 0 && part.len() >= len {
            let (bytes, rest) = part.split_at_mut(len);
            self.coder.clear(rest);
            return self.coder.decode(version.codec, stored, bytes);
        }
        let mut bytes = vec![0; len];
        if !self.coder.decode(version.codec, stored, &mut bytes) {
            return false;
        }
        self.copy_part(&bytes, start, part);
        // The next part is likely to be read soon.
        self.cache.decompressed.put(self.cache_key(chunk, version), Arc::new(bytes));
        true
    }

    fn cache_key(&self, chunk: u64, version: Version) -> CacheKey {
        CacheKey { pair: self.pair, chunk, version }
    }

    async fn read_piece(&self, chunk: u64, piece: &Piece) -> Result<ReadBuffer, Unread> {
        let mut bytes = ReadBuffer::new(piece.len as usize);
        self.read_stored(chunk, piece.at, piece.crc, &mut bytes).await?;
        Ok(bytes)
    }

    /// Reads and verifies stored bytes of a chunk.
    async fn read_stored(&self, chunk: u64, at: u64, crc: u32, bytes: &mut [u8]) -> Result<(), Unread> {
        let got = self.container.read_at(bytes, LocalOffset(at * UNIT_BYTES)).await?;
        match got == bytes.len() && self.coder.matches(bytes, crc) {
            true => Ok(()),
            false => Err(Unread::Mismatch(chunk)),
        }
    }

    /// Verifies chunks from byte `first` on, up to about `budget` stored bytes.
    pub async fn scrub(&self, first: u64, budget: u64) -> Result<Scrubbed, Fault> {
        let mut done = Scrubbed { damaged: Vec::new(), verified: 0, next: None };
        let mut from = first / self.chunk_len;
        let mut buf = vec![0; self.chunk_len as usize];
        loop {
            let next = self.state.lock().chunks.next_stored(from);
            let Some(chunk) = next else { return Ok(done) };
            if done.verified >= budget {
                done.next = Some(chunk * self.chunk_len);
                return Ok(done);
            }
            done.verified += match self.verify(chunk, &mut buf).await {
                Ok(verified) => verified,
                Err(Unread::Io(error)) => return Err(error.into()),
                Err(Unread::Mismatch(_)) => {
                    if let Fault::Damaged(bytes) = self.damaged(chunk) {
                        done.add_damage(bytes);
                    }
                    self.chunk_len
                }
            };
            from = chunk + 1;
        }
    }

    /// Verifies everything that is stored of a chunk, hidden or not. Returns the number of bytes.
    async fn verify(&self, chunk: u64, buf: &mut [u8]) -> Result<u64, Unread> {
        let _guard = self.locks.lock(chunk, chunk + 1).await;
        let stack = self.state.lock().chunks.get(chunk);
        let mut verified = 0;
        if let Some(version) = stack.version {
            let mut stored = ReadBuffer::new(version.stored as usize);
            self.read_stored(chunk, version.at, version.crc, &mut stored).await?;
            if !self.coder.decode(version.codec, &stored, &mut buf[..version.len as usize]) {
                return Err(Unread::Mismatch(chunk));
            }
            verified += u64::from(version.stored);
        }
        for layer in &stack.layers {
            if let Layer::Piece(piece) = layer {
                verified += self.read_piece(chunk, piece).await?.len() as u64;
            }
        }
        Ok(verified)
    }

    /// Returns the bytes `range` of a chunk that the caller has locked.
    pub(super) async fn assemble(
        &self,
        chunk: u64,
        stack: &Chunk,
        range: Range<u32>,
    ) -> Result<Vec<u8>, Fault> {
        let mut bytes = vec![0; (range.end - range.start) as usize];
        match self.fill(chunk, stack, range.start, &mut bytes).await {
            Ok(()) => Ok(bytes),
            Err(Unread::Io(error)) => Err(error.into()),
            Err(Unread::Mismatch(chunk)) => Err(self.damaged(chunk)),
        }
    }

    /// Copies the bytes of a chunk from byte `start` on to `part`; those behind its end are zeros.
    fn copy_part(&self, bytes: &[u8], start: u32, part: &mut [u8]) {
        let found = bytes.get(start as usize..).unwrap_or_default();
        let count = found.len().min(part.len());
        self.coder.copy(&found[..count], &mut part[..count]);
        self.coder.clear(&mut part[count..]);
    }
}
