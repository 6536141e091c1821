//! Datafiles with checksums: every read verifies them, every write updates them.

use super::{Fault, RawFile, Scrubbed, Upkeep};
use crate::aligned::AlignedBuf;
use crate::datafile::DatafileKey;
use crate::emulate;
use crate::integrity::{BLOCK_BYTES, BlockSums, SUFFIX, Slot, block_sum, blocks_in, touched};
use crate::target::SEAL_IDLE;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use weft_core::{ByteLen, LocalOffset, Nanos, Timestamp};
use weft_env::device::DeviceAction;
use weft_env::mutants::{Mutant, is_seeded};
use weft_env::{Env, File, FileMeta};

/// Maximum number of bytes verified at a time.
const CHUNK_BYTES: u64 = 1 << 20;
/// Maximum length in bytes of a hole punched at a time.
const HOLE_CHUNK_BYTES: u64 = 64 << 20;

/// A change of a range of a datafile.
#[derive(Clone, Copy)]
enum Change<'a> {
    /// New bytes.
    Bytes(&'a [u8]),
    /// A hole of this length.
    Hole(u64),
}

impl Change<'_> {
    const fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Hole(len) => *len,
        }
    }

    /// Returns the checksum of the whole block that begins at byte `at` of the change.
    fn block_sum(&self, at: u64) -> u32 {
        match self {
            Self::Bytes(bytes) => block_sum(&bytes[at as usize..][..BLOCK_BYTES as usize]),
            Self::Hole(_) => block_sum(&[]),
        }
    }

    /// Applies the part of the change that begins at byte `at` to `out`.
    fn put(&self, at: u64, out: &mut [u8]) {
        match self {
            Self::Bytes(bytes) => out.copy_from_slice(&bytes[at as usize..][..out.len()]),
            Self::Hole(_) => out.fill(0),
        }
    }
}

/// An open datafile with checksums.
pub(crate) struct CheckedFile<E: Env> {
    key: DatafileKey,
    raw: RawFile<E>,
    sums: BlockSums<E>,
    upkeep: Arc<Upkeep<E>>,
}

impl<E: Env> CheckedFile<E> {
    /// Returns a file with its checksums.
    pub fn new(key: DatafileKey, raw: RawFile<E>, sums: BlockSums<E>, upkeep: Arc<Upkeep<E>>) -> Self {
        let file = Self { key, raw, sums, upkeep };
        if file.sums.unsealed().is_some() {
            file.note_unsealed();
        }
        file
    }

    /// Returns the file without its checksums.
    pub fn raw(&self) -> &RawFile<E> {
        &self.raw
    }

    /// Returns the times of the first and last change since the blocks were sealed; `None` if all are.
    pub fn unsettled(&self) -> Option<(Nanos, Nanos)> {
        self.sums.unsealed()
    }

    fn note_unsealed(&self) {
        self.upkeep.note_unsettled(self.key, SEAL_IDLE);
    }

    pub async fn meta(&self) -> Result<FileMeta, Fault> {
        let mut meta = self.raw.meta().await?;
        meta.blocks_512 += self.sums.blocks_512().await?;
        Ok(meta)
    }

    pub async fn set_mtime(&self, mtime: Timestamp) -> Result<(), Fault> {
        self.raw.set_mtime(mtime).await
    }

    pub async fn forget(&self) -> Result<(), Fault> {
        self.raw.forget().await
    }

    pub async fn seek_data(&self, offset: LocalOffset) -> Result<Option<LocalOffset>, Fault> {
        self.raw.seek_data(offset).await
    }

    pub async fn seek_hole(&self, offset: LocalOffset) -> Result<LocalOffset, Fault> {
        self.raw.seek_hole(offset).await
    }

    pub async fn read(&self, offset: LocalOffset, buf: &mut [u8]) -> Result<(usize, ByteLen), Fault> {
        let (start, end) = (offset.0, offset.0 + buf.len() as u64);
        let in_flight = self.raw.begin_read(offset, buf.len()).await?;
        let mut at = start;
        while at < end {
            let first = at - at % BLOCK_BYTES;
            let upto = end.min(first + CHUNK_BYTES);
            let part = &mut buf[(at - start) as usize..(upto - start) as usize];
            let is_whole = at == first && upto.is_multiple_of(BLOCK_BYTES);
            let got = if is_whole {
                self.read_blocks(first, part).await?
            } else {
                let mut blocks = AlignedBuf::zeroed((upto.next_multiple_of(BLOCK_BYTES) - first) as usize);
                let skipped = (at - first) as usize;
                let got = self.read_blocks(first, &mut blocks).await?;
                let got = got.saturating_sub(skipped).min(part.len());
                part[..got].copy_from_slice(&blocks[skipped..skipped + got]);
                got
            };
            at += got as u64;
            if at < upto {
                break; // The datafile ends here.
            }
        }
        emulate::finish(in_flight).await;
        let reached = if at == start { 0 } else { at };
        Ok(((at - start) as usize, self.raw.len().await?.max(ByteLen(reached))))
    }

    /// Reads and verifies whole blocks from byte `first` on. Returns fewer bytes at the end of the datafile.
    async fn read_blocks(&self, first: u64, blocks: &mut [u8]) -> Result<usize, Fault> {
        let (got, damaged) = self.verify_blocks(first, blocks).await?;
        match damaged.into_iter().next() {
            None => Ok(got),
            Some(range) => Err(Fault::Damaged(bytes_of(&range))),
        }
    }

    /// Reads whole blocks from byte `first` on. Returns the number of bytes and the damaged blocks.
    async fn verify_blocks(&self, first: u64, blocks: &mut [u8]) -> io::Result<(usize, Vec<Range<u64>>)> {
        let range = touched(first, first + blocks.len() as u64);
        let got = self.raw.read_bytes(LocalOffset(first), blocks).await?;
        let slots = self.sums.slots(range.start..range.start + blocks_in(got as u64)).await?;
        if bad_blocks(&slots, &blocks[..got]).next().is_none() {
            return Ok((got, Vec::new()));
        }
        // A concurrent write may explain the mismatch: repeat the read under the lock.
        let _guard = self.sums.lock(range.clone()).await;
        let got = self.raw.read_bytes(LocalOffset(first), blocks).await?;
        let slots = self.sums.slots(range.start..range.start + blocks_in(got as u64)).await?;
        let mut damaged: Vec<Range<u64>> = Vec::new();
        for bad in bad_blocks(&slots, &blocks[..got]) {
            let block = range.start + bad as u64;
            if self.resolve_mismatch(block, block_bytes(&blocks[..got], bad)).await? {
                continue;
            }
            match damaged.last_mut() {
                Some(last) if last.end == block => last.end = block + 1,
                _ => damaged.push(block..block + 1),
            }
        }
        Ok((got, damaged))
    }

    /// Resolves a block whose bytes do not match its slot. Returns true if it is accepted, after a loss of power, and
    /// false if it is damaged. The caller holds its lock.
    async fn resolve_mismatch(&self, block: u64, bytes: &[u8]) -> io::Result<bool> {
        if self.sums.is_lenient(block) {
            self.upkeep.note_unverified();
            self.sums.put(block, std::iter::once(Slot::stable(block_sum(bytes)))).await?;
            return Ok(true);
        }
        self.upkeep.note_damage(self.key, block);
        Ok(false)
    }

    /// Resolves a block whose bytes do not match its slot, as [`resolve_mismatch`](Self::resolve_mismatch) does.
    ///
    /// # Errors
    /// [`Fault::Damaged`].
    async fn require_accepted(&self, block: u64, bytes: &[u8]) -> Result<(), Fault> {
        match self.resolve_mismatch(block, bytes).await? {
            true => Ok(()),
            false => Err(Fault::Damaged(bytes_of(&(block..block + 1)))),
        }
    }

    pub async fn write(&self, offset: LocalOffset, bytes: &[u8]) -> Result<(), Fault> {
        let in_flight = self.raw.charge().begin(DeviceAction::Write, offset, bytes.len());
        if !bytes.is_empty() {
            self.change(offset, Change::Bytes(bytes)).await?;
        }
        emulate::finish(in_flight).await;
        Ok(())
    }

    pub async fn punch(&self, offset: LocalOffset, len: ByteLen) -> Result<(), Fault> {
        let len = len.min(ByteLen(self.raw.len().await?.0.saturating_sub(offset.0)));
        let in_flight = self.raw.charge().begin(DeviceAction::Discard, offset, len.0 as usize);
        let (mut at, end) = (offset.0, offset.0 + len.0);
        while at < end {
            let upto = end.min((at - at % BLOCK_BYTES).saturating_add(HOLE_CHUNK_BYTES));
            self.change(LocalOffset(at), Change::Hole(upto - at)).await?;
            at = upto;
        }
        emulate::finish(in_flight).await;
        Ok(())
    }

    async fn change(&self, offset: LocalOffset, change: Change<'_>) -> Result<(), Fault> {
        let sums = &self.sums;
        let (start, end) = (offset.0, offset.0 + change.len());
        let range = touched(start, end);
        let _guard = sums.lock(range.clone()).await;
        if sums.unseal(range.clone()).await? {
            self.note_unsealed();
        }
        let mut slots = sums.slots(range.clone()).await?;
        let mut block_buf = AlignedBuf::zeroed(0);
        for (slot, block) in slots.iter_mut().zip(range.clone()) {
            let block_start = block * BLOCK_BYTES;
            let (from, to) = (start.max(block_start), end.min(block_start + BLOCK_BYTES));
            let is_whole = to - from == BLOCK_BYTES;
            if is_whole && slot.is_stable() {
                *slot = Slot { sum: change.block_sum(from - start), previous: slot.sum };
                continue;
            }
            if block_buf.is_empty() {
                block_buf = AlignedBuf::zeroed(BLOCK_BYTES as usize);
            }
            let got = self.raw.read_bytes(LocalOffset(block_start), &mut block_buf).await?;
            let is_good = slot.accepts(&block_buf[..got]);
            if is_whole {
                // After a crash of this write, the block must match its present checksum. A damaged block has none.
                let sum = change.block_sum(from - start);
                let previous = if is_good { block_sum(&block_buf[..got]) } else { sum };
                *slot = Slot { sum, previous };
                continue;
            }
            if !is_good {
                self.require_accepted(block, &block_buf[..got]).await?;
            }
            block_buf[got..].fill(0);
            let previous = block_sum(&block_buf);
            change.put(
                from - start,
                &mut block_buf[(from - block_start) as usize..(to - block_start) as usize],
            );
            let sum = if is_seeded(Mutant::StaleChecksum) { previous } else { block_sum(&block_buf) };
            *slot = Slot { sum, previous };
        }
        sums.put(range.start, slots.iter().copied()).await?;
        // A write that fails here leaves each block in its old or new state; the slots accept both.
        match change {
            Change::Bytes(bytes) => self.raw.write_bytes(offset, bytes).await?,
            Change::Hole(len) => self.raw.punch_bytes(offset, ByteLen(len)).await?,
        }
        Ok(sums.put(range.start, slots.iter().map(|slot| Slot::stable(slot.sum))).await?)
    }

    pub async fn set_len(&self, len: ByteLen) -> Result<(), Fault> {
        let in_flight = self.raw.charge().begin(DeviceAction::Cut, LocalOffset(len.0), 0);
        self.try_set_len(len).await?;
        emulate::finish(in_flight).await;
        Ok(())
    }

    async fn try_set_len(&self, len: ByteLen) -> Result<(), Fault> {
        let (raw, sums) = (&self.raw, &self.sums);
        let cut_block = len.0 / BLOCK_BYTES;
        let _guard = sums.lock(cut_block..u64::MAX).await;
        if raw.len().await? <= len {
            // The checksums already cover the zeros of the extension.
            return Ok(raw.resize(len).await?);
        }
        if sums.unseal_end(cut_block).await? {
            self.note_unsealed();
        }
        let kept = (len.0 % BLOCK_BYTES) as usize;
        if kept == 0 {
            raw.resize(len).await?;
            return Ok(sums.truncate(len).await?);
        }
        let mut block = AlignedBuf::zeroed(BLOCK_BYTES as usize);
        let got = raw.read_bytes(LocalOffset(cut_block * BLOCK_BYTES), &mut block).await?;
        let slots = sums.slots(cut_block..cut_block + 1).await?;
        if !slots[0].accepts(&block[..got]) {
            self.require_accepted(cut_block, &block[..got]).await?;
        }
        let slot = Slot { sum: block_sum(&block[..kept]), previous: block_sum(&block[..got]) };
        sums.put(cut_block, std::iter::once(slot)).await?;
        raw.resize(len).await?;
        sums.put(cut_block, std::iter::once(Slot::stable(slot.sum))).await?;
        Ok(sums.truncate(len).await?)
    }

    /// Seals all blocks: bytes and checksums are on the disk, and from now on every mismatch is damage, also after a
    /// loss of power.
    pub async fn settle(&self) -> Result<(), Fault> {
        let (file, sums) = (self.raw.file(), &self.sums);
        // Sync most of it without blocking other writes.
        file.sync().await?;
        sums.sync().await?;
        let _guard = sums.lock(0..u64::MAX).await;
        let len = self.raw.len().await?;
        for range in sums.lenient(blocks_in(len.0)) {
            self.accept_unverified(range).await?;
        }
        file.sync().await?;
        sums.sync().await?;
        Ok(sums.seal(len).await?)
    }

    /// Computes new checksums of blocks that a loss of power left with a mismatch. The caller holds their lock.
    async fn accept_unverified(&self, range: Range<u64>) -> Result<(), Fault> {
        let mut buf = AlignedBuf::zeroed(CHUNK_BYTES as usize);
        let mut first = range.start;
        while first < range.end {
            let count = (range.end - first).min(CHUNK_BYTES / BLOCK_BYTES);
            let part = &mut buf[..(count * BLOCK_BYTES) as usize];
            let got = self.raw.read_bytes(LocalOffset(first * BLOCK_BYTES), part).await?;
            let slots = self.sums.slots(first..first + blocks_in(got as u64)).await?;
            for bad in bad_blocks(&slots, &part[..got]) {
                let bytes = block_bytes(&part[..got], bad);
                self.require_accepted(first + bad as u64, bytes).await?;
            }
            first += count;
        }
        Ok(())
    }

    /// Verifies up to `budget` bytes from the block of byte `first` on.
    pub async fn scrub(&self, first: u64, budget: u64) -> Result<Scrubbed, Fault> {
        let first = first - first % BLOCK_BYTES;
        let mut done = Scrubbed { damaged: Vec::new(), verified: 0, next: Some(first) };
        let mut buf = AlignedBuf::zeroed(CHUNK_BYTES as usize);
        let in_flight = self.raw.charge().begin(DeviceAction::Read, LocalOffset(first), budget as usize);
        while done.verified < budget
            && let Some(at) = done.next
        {
            let (got, damaged) = self.verify_blocks(at, &mut buf).await?;
            done.verified += got as u64;
            done.next = (got == buf.len()).then_some(at + got as u64);
            damaged.iter().for_each(|blocks| done.add_damage(bytes_of(blocks)));
        }
        emulate::finish(in_flight).await;
        Ok(done)
    }
}

/// Returns the name of a datafile's checksum file, relative to the target.
pub(crate) fn sums_name(key: DatafileKey) -> String {
    key.name() + SUFFIX
}

/// Returns the bytes of a range of blocks.
fn bytes_of(blocks: &Range<u64>) -> Range<u64> {
    blocks.start * BLOCK_BYTES..blocks.end * BLOCK_BYTES
}

/// Returns the indices of the blocks of `bytes` that do not match their slots.
fn bad_blocks<'a>(slots: &'a [Slot], bytes: &'a [u8]) -> impl Iterator<Item = usize> + use<'a> {
    let blocks = bytes.chunks(BLOCK_BYTES as usize).zip(slots).enumerate();
    blocks.filter(|(_, (block, slot))| !slot.accepts(block)).map(|(index, _)| index)
}

/// Returns the bytes of one of several blocks.
fn block_bytes(bytes: &[u8], index: usize) -> &[u8] {
    let rest = &bytes[index * BLOCK_BYTES as usize..];
    &rest[..rest.len().min(BLOCK_BYTES as usize)]
}
