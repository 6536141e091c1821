//! Datafiles with checksums: every read is verified, every write keeps the checksums.

use super::{Module, Target, format};
use crate::aligned::AlignedBuf;
use crate::datafile::{Datafile, DatafileKey};
use crate::emulate;
use crate::error::DatafileError;
use crate::integrity::{BLOCK_BYTES, BlockSums, SUFFIX, Slot, block_sum, blocks_in, touched};
use crate::module_direct;
use std::io::{self, IoSlice, IoSliceMut};
use std::ops::Range;
use std::sync::atomic::Ordering;
use weft_core::{ByteLen, Integrity, LocalOffset};
use weft_env::device::DeviceAction;
use weft_env::plants::{Plant, planted};
use weft_env::{Create, Dir, Env, File, OpenMode};

/// Most bytes that are verified at once.
const CHUNK_BYTES: u64 = 1 << 20;
/// Most damaged blocks that a target remembers, so that each is counted once.
const DAMAGED_MAX: usize = 65_536;

/// Most bytes of a hole that is made at once.
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

    /// Checksum of a whole block that begins `at` this byte of the change.
    fn block_sum(&self, at: u64) -> u32 {
        match self {
            Self::Bytes(bytes) => block_sum(&bytes[at as usize..][..BLOCK_BYTES as usize]),
            Self::Hole(_) => block_sum(&[]),
        }
    }

    /// Puts the part that begins `at` this byte over `out`.
    fn put(&self, at: u64, out: &mut [u8]) {
        match self {
            Self::Bytes(bytes) => out.copy_from_slice(&bytes[at as usize..][..out.len()]),
            Self::Hole(_) => out.fill(0),
        }
    }
}

/// Why bytes could not be verified.
pub(super) enum Unverified {
    /// The device failed.
    Io(io::Error),
    /// Blocks that do not match their checksums.
    Damaged(Range<u64>),
}

impl From<io::Error> for Unverified {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl<E: Env> Target<E> {
    /// Makes a datafile that is missing, with or without checksums: as `wish` says, else as the target's setting says.
    /// A datafile that holds bytes keeps what it has. Called before each write; without checksums it does nothing.
    ///
    /// # Errors
    /// Of the device; [`DatafileError::ChecksumsMissing`].
    #[inline]
    pub async fn prepare(&self, key: DatafileKey, wish: Option<Integrity>) -> Result<(), DatafileError> {
        match self.integrity_of(wish) {
            Integrity::Off => Ok(()),
            Integrity::Crc32c => self.protect(key, wish.is_some()).await,
        }
    }

    /// Setting of new datafiles of a file with this wish.
    #[inline]
    pub fn integrity_of(&self, wish: Option<Integrity>) -> Integrity {
        wish.unwrap_or(self.integrity)
    }

    async fn protect(&self, key: DatafileKey, is_asked_for: bool) -> Result<(), DatafileError> {
        if self.module == Module::Null || self.open.get(key).is_some_and(|datafile| datafile.sums.is_some()) {
            return Ok(());
        }
        if !self.has_sums.load(Ordering::Acquire) {
            let marking = async {
                self.dir.open(format::SUMS, OpenMode::CREATE).await?;
                self.dir.sync("").await
            };
            marking.await.map_err(|error| self.error(key, "note that there are checksums", error))?;
            self.has_sums.store(true, Ordering::Release);
        }
        if self.made(key).await?.sums.is_some() {
            return Ok(());
        }
        let _guard = self.opens(key).await;
        if self.open.get(key).is_some_and(|datafile| datafile.sums.is_some()) {
            return Ok(());
        }
        let mut is_missing = false;
        let adding: Result<(), io::Error> = async {
            let datafile = self.open_file(key, Create::No).await?;
            if datafile.sums.is_some() {
                self.open.replace(datafile);
                return Ok(());
            }
            let len = datafile.file.meta().await?.len;
            if len.0 > 0 {
                is_missing = is_asked_for;
                return Ok(()); // made when the target had another setting, unless the file itself asks for checksums
            }
            let sums = self.open_sums(key, Create::IfMissing, len).await?;
            self.open.replace(Datafile { sums: Some(sums), ..datafile });
            Ok(())
        }
        .await;
        match adding {
            Ok(()) if is_missing => Err(self.checksums_missing(key, "write")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(DatafileError::Removed { path: self.path.join(key.name()).display().to_string() })
            }
            added => added.map_err(|error| self.error(key, "make its checksums", error)),
        }
    }

    /// Refuses to read a datafile that holds bytes without checksums although its file asks for them. Without such a `wish`
    /// it does nothing.
    ///
    /// # Errors
    /// Of the device; [`DatafileError::ChecksumsMissing`].
    #[inline]
    pub async fn require_sums(&self, key: DatafileKey, wish: Option<Integrity>) -> Result<(), DatafileError> {
        match wish {
            Some(Integrity::Crc32c) if self.module != Module::Null => self.look_for_sums(key).await,
            _ => Ok(()),
        }
    }

    async fn look_for_sums(&self, key: DatafileKey) -> Result<(), DatafileError> {
        let Some(datafile) = self.existing(key).await? else { return Ok(()) };
        if datafile.sums.is_some() {
            return Ok(());
        }
        let meta = datafile.file.meta().await.map_err(|error| self.error(key, "read", error))?;
        // The first write may have made the checksums since the look above, before its bytes.
        if meta.len == ByteLen(0) || self.is_checked(key).await? {
            return Ok(());
        }
        Err(self.checksums_missing(key, "read"))
    }

    fn checksums_missing(&self, key: DatafileKey, doing: &'static str) -> DatafileError {
        let path = self.path.join(key.name()).display().to_string();
        DatafileError::ChecksumsMissing { path, target: self.id, doing }
    }

    /// Makes the names of a datafile with checksums and of its checksum file survive a loss of power, so that bytes which
    /// another device keeps for it cannot come back to a datafile without checksums.
    ///
    /// # Errors
    /// Of the device.
    pub async fn sync_sums_name(&self, key: DatafileKey) -> Result<(), DatafileError> {
        let Some(datafile) = self.existing(key).await? else { return Ok(()) };
        if datafile.sums.is_none() || datafile.name_synced.load(Ordering::Acquire) {
            return Ok(());
        }
        let synced = self.dir.sync(&crate::datafile::fan_name(key.fan())).await;
        synced.map_err(|error| self.error(key, "sync the name of its checksums", error))?;
        datafile.name_synced.store(true, Ordering::Release);
        Ok(())
    }

    /// Checksums of an open datafile, if it has any.
    pub(super) async fn sums_of(&self, key: DatafileKey, file: &E::File) -> io::Result<Option<BlockSums<E>>> {
        let len = file.meta().await?.len;
        match self.open_sums(key, Create::No, len).await {
            Ok(sums) => Ok(Some(sums)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether a datafile has checksums. A missing one has none.
    ///
    /// # Errors
    /// Of the device.
    pub async fn is_checked(&self, key: DatafileKey) -> Result<bool, DatafileError> {
        if self.module == Module::Null || !self.has_sums.load(Ordering::Acquire) {
            return Ok(false);
        }
        Ok(self.existing(key).await?.is_some_and(|datafile| datafile.sums.is_some()))
    }

    /// Blocks that were found damaged since the start, each counted once, and blocks that were taken unverified after the
    /// machine had lost power.
    pub fn damage(&self) -> (u64, u64) {
        (self.damaged.lock().len() as u64, self.unverified.load(Ordering::Relaxed))
    }

    /// Opens the checksums of a datafile of `len` bytes.
    pub(super) async fn open_sums(
        &self,
        key: DatafileKey,
        create: Create,
        len: ByteLen,
    ) -> io::Result<BlockSums<E>> {
        let mode = OpenMode { write: true, create, direct: false };
        let file = self.dir.open(&sums_name(key), mode).await?;
        let sums = BlockSums::open(&self.env, file, key, len).await?;
        if sums.unsealed().is_some() {
            self.note_unsealed(key);
        }
        Ok(sums)
    }

    pub(super) async fn read_checked(
        &self,
        datafile: &Datafile<E>,
        sums: &BlockSums<E>,
        offset: LocalOffset,
        buf: &mut [u8],
    ) -> Result<(usize, ByteLen), DatafileError> {
        let (start, end) = (offset.0, offset.0 + buf.len() as u64);
        let charge = self.begin_read(datafile, offset, buf.len()).await;
        let charge = charge.map_err(|error| self.error(datafile.key, "read", error))?;
        let mut at = start;
        while at < end {
            let first = at - at % BLOCK_BYTES;
            let upto = end.min(first + CHUNK_BYTES);
            let part = &mut buf[(at - start) as usize..(upto - start) as usize];
            let is_whole = at == first && upto.is_multiple_of(BLOCK_BYTES);
            let got = if is_whole {
                self.read_blocks(datafile, sums, first, part).await
            } else {
                let mut blocks = AlignedBuf::zeroed((upto.next_multiple_of(BLOCK_BYTES) - first) as usize);
                let got = self.read_blocks(datafile, sums, first, &mut blocks).await;
                got.map(|got| {
                    let skipped = (at - first) as usize;
                    let got = got.saturating_sub(skipped).min(part.len());
                    part[..got].copy_from_slice(&blocks[skipped..skipped + got]);
                    got
                })
            };
            let got = got.map_err(|error| self.unverified(datafile.key, "read", error))?;
            at += got as u64;
            if at < upto {
                break; // the datafile ends here
            }
        }
        emulate::end(charge).await;
        let reached = if at == start { 0 } else { at };
        let meta = datafile.file.meta().await.map_err(|error| self.error(datafile.key, "read", error))?;
        Ok(((at - start) as usize, ByteLen(meta.len.0.max(reached))))
    }

    /// Reads whole blocks from byte `first` on, and verifies them; fewer bytes than `blocks` has where the datafile ends.
    async fn read_blocks(
        &self,
        datafile: &Datafile<E>,
        sums: &BlockSums<E>,
        first: u64,
        blocks: &mut [u8],
    ) -> Result<usize, Unverified> {
        let (got, damaged) = self.verify_blocks(datafile, sums, first, blocks).await?;
        match damaged.into_iter().next() {
            None => Ok(got),
            Some(range) => Err(Unverified::Damaged(range)),
        }
    }

    /// Reads whole blocks from byte `first` on: how many bytes, and which blocks are damaged.
    async fn verify_blocks(
        &self,
        datafile: &Datafile<E>,
        sums: &BlockSums<E>,
        first: u64,
        blocks: &mut [u8],
    ) -> io::Result<(usize, Vec<Range<u64>>)> {
        let range = touched(first, first + blocks.len() as u64);
        let got = self.read_raw(datafile, LocalOffset(first), blocks).await?;
        let slots = sums.slots(range.start..range.start + blocks_in(got as u64)).await?;
        if bad_blocks(&slots, &blocks[..got]).next().is_none() {
            return Ok((got, Vec::new()));
        }
        // A write may have been under way: once more, without any.
        let _guard = sums.lock(range.clone()).await;
        let got = self.read_raw(datafile, LocalOffset(first), blocks).await?;
        let slots = sums.slots(range.start..range.start + blocks_in(got as u64)).await?;
        let mut damaged: Vec<Range<u64>> = Vec::new();
        for bad in bad_blocks(&slots, &blocks[..got]) {
            let block = range.start + bad as u64;
            match self.judge(datafile, sums, block, block_bytes(&blocks[..got], bad)).await {
                Ok(()) => {}
                Err(Unverified::Io(error)) => return Err(error),
                Err(Unverified::Damaged(bad)) => match damaged.last_mut() {
                    Some(last) if last.end == bad.start => last.end = bad.end,
                    _ => damaged.push(bad),
                },
            }
        }
        Ok((got, damaged))
    }

    /// Decides about a block with these bytes that does not match its slot. The caller holds it.
    async fn judge(
        &self,
        datafile: &Datafile<E>,
        sums: &BlockSums<E>,
        block: u64,
        bytes: &[u8],
    ) -> Result<(), Unverified> {
        if sums.is_lenient(block) {
            self.unverified.fetch_add(1, Ordering::Relaxed);
            sums.put(block, std::iter::once(Slot::settled(block_sum(bytes)))).await?;
            return Ok(());
        }
        let mut damaged = self.damaged.lock();
        if damaged.len() < DAMAGED_MAX {
            damaged.insert((datafile.key, block));
        }
        Err(Unverified::Damaged(block..block + 1))
    }

    pub(super) async fn write_checked(
        &self,
        datafile: &Datafile<E>,
        sums: &BlockSums<E>,
        offset: LocalOffset,
        bytes: &[u8],
    ) -> Result<(), DatafileError> {
        if bytes.is_empty() {
            return Ok(());
        }
        let written = self.change_checked(datafile, sums, offset, Change::Bytes(bytes)).await;
        written.map_err(|error| self.unverified(datafile.key, "write", error))
    }

    /// Makes a hole that does not reach behind the end of the datafile.
    pub(super) async fn punch_checked(
        &self,
        datafile: &Datafile<E>,
        sums: &BlockSums<E>,
        offset: LocalOffset,
        len: ByteLen,
    ) -> Result<(), DatafileError> {
        let (mut at, end) = (offset.0, offset.0 + len.0);
        while at < end {
            let upto = end.min((at - at % BLOCK_BYTES).saturating_add(HOLE_CHUNK_BYTES));
            let made = self.change_checked(datafile, sums, LocalOffset(at), Change::Hole(upto - at)).await;
            made.map_err(|error| self.unverified(datafile.key, "punch a hole", error))?;
            at = upto;
        }
        Ok(())
    }

    async fn change_checked(
        &self,
        datafile: &Datafile<E>,
        sums: &BlockSums<E>,
        offset: LocalOffset,
        change: Change<'_>,
    ) -> Result<(), Unverified> {
        let (start, end) = (offset.0, offset.0 + change.len());
        let range = touched(start, end);
        let _guard = sums.lock(range.clone()).await;
        if sums.unseal(range.clone()).await? {
            self.note_unsealed(datafile.key);
        }
        let mut slots = sums.slots(range.clone()).await?;
        let mut block_buf = AlignedBuf::zeroed(0);
        for (slot, block) in slots.iter_mut().zip(range.clone()) {
            let block_start = block * BLOCK_BYTES;
            let (from, to) = (start.max(block_start), end.min(block_start + BLOCK_BYTES));
            let is_whole = to - from == BLOCK_BYTES;
            if is_whole && slot.is_settled() {
                *slot = Slot { sum: change.block_sum(from - start), previous: slot.sum };
                continue;
            }
            if block_buf.is_empty() {
                block_buf = AlignedBuf::zeroed(BLOCK_BYTES as usize);
            }
            let got = self.read_raw(datafile, LocalOffset(block_start), &mut block_buf).await?;
            let is_good = slot.accepts(&block_buf[..got]);
            if is_whole {
                // After a crash of this write the block must match the checksum that it has now. A damaged one has none.
                let sum = change.block_sum(from - start);
                let previous = if is_good { block_sum(&block_buf[..got]) } else { sum };
                *slot = Slot { sum, previous };
                continue;
            }
            if !is_good {
                self.judge(datafile, sums, block, &block_buf[..got]).await?;
            }
            block_buf[got..].fill(0);
            let previous = block_sum(&block_buf);
            change.put(
                from - start,
                &mut block_buf[(from - block_start) as usize..(to - block_start) as usize],
            );
            let sum = if planted(Plant::StaleChecksum) { previous } else { block_sum(&block_buf) };
            *slot = Slot { sum, previous };
        }
        sums.put(range.start, slots.iter().copied()).await?;
        // A write that fails here leaves each block as it was or as it is to be: the slots accept both.
        match (change, self.module) {
            (Change::Bytes(bytes), Module::Direct) => module_direct::write(datafile, offset, bytes).await?,
            (Change::Bytes(bytes), _) => datafile.file.write_at(&[IoSlice::new(bytes)], offset).await?,
            (Change::Hole(len), Module::Direct) => {
                module_direct::punch(datafile, offset, ByteLen(len)).await?;
            }
            (Change::Hole(len), _) => datafile.file.punch(offset, ByteLen(len)).await?,
        }
        Ok(sums.put(range.start, slots.iter().map(|slot| Slot::settled(slot.sum))).await?)
    }

    pub(super) async fn set_len_checked(
        &self,
        datafile: &Datafile<E>,
        sums: &BlockSums<E>,
        len: ByteLen,
    ) -> Result<(), DatafileError> {
        let set = self.try_set_len_checked(datafile, sums, len).await;
        set.map_err(|error| self.unverified(datafile.key, "set the length", error))
    }

    async fn try_set_len_checked(
        &self,
        datafile: &Datafile<E>,
        sums: &BlockSums<E>,
        len: ByteLen,
    ) -> Result<(), Unverified> {
        let cut_block = len.0 / BLOCK_BYTES;
        let _guard = sums.lock(cut_block..u64::MAX).await;
        if datafile.file.meta().await?.len <= len {
            // The zeros that come to it are in the checksums already.
            return Ok(self.set_len_raw(datafile, len).await?);
        }
        if sums.unseal_end(cut_block).await? {
            self.note_unsealed(datafile.key);
        }
        let kept = (len.0 % BLOCK_BYTES) as usize;
        if kept == 0 {
            self.set_len_raw(datafile, len).await?;
            return Ok(sums.cut(len).await?);
        }
        let mut block = AlignedBuf::zeroed(BLOCK_BYTES as usize);
        let got = self.read_raw(datafile, LocalOffset(cut_block * BLOCK_BYTES), &mut block).await?;
        let slots = sums.slots(cut_block..cut_block + 1).await?;
        if !slots[0].accepts(&block[..got]) {
            self.judge(datafile, sums, cut_block, &block[..got]).await?;
        }
        let slot = Slot { sum: block_sum(&block[..kept]), previous: block_sum(&block[..got]) };
        sums.put(cut_block, std::iter::once(slot)).await?;
        self.set_len_raw(datafile, len).await?;
        sums.put(cut_block, std::iter::once(Slot::settled(slot.sum))).await?;
        Ok(sums.cut(len).await?)
    }

    /// Seals a datafile: its bytes and checksums are on the disk, and from then on a mismatch is damage, also after a
    /// loss of power. False when it has no checksums or is missing.
    ///
    /// # Errors
    /// Of the device; damaged bytes.
    pub async fn seal_sums(&self, key: DatafileKey) -> Result<bool, DatafileError> {
        let Some(datafile) = self.existing(key).await? else { return Ok(false) };
        let Some(sums) = &datafile.sums else { return Ok(false) };
        self.try_seal(&datafile, sums).await.map_err(|error| self.unverified(key, "seal", error))?;
        Ok(true)
    }

    async fn try_seal(&self, datafile: &Datafile<E>, sums: &BlockSums<E>) -> Result<(), Unverified> {
        // Most of it while others go on writing.
        datafile.file.sync().await?;
        sums.sync().await?;
        let _guard = sums.lock(0..u64::MAX).await;
        let len = datafile.file.meta().await?.len;
        for range in sums.lenient(blocks_in(len.0)) {
            self.take_as_it_is(datafile, sums, range).await?;
        }
        datafile.file.sync().await?;
        sums.sync().await?;
        Ok(sums.seal(len).await?)
    }

    /// Gives blocks that the machine's loss of power left without their checksum a new one. The caller holds them.
    async fn take_as_it_is(
        &self,
        datafile: &Datafile<E>,
        sums: &BlockSums<E>,
        range: Range<u64>,
    ) -> Result<(), Unverified> {
        let mut buf = AlignedBuf::zeroed(CHUNK_BYTES as usize);
        let mut first = range.start;
        while first < range.end {
            let count = (range.end - first).min(CHUNK_BYTES / BLOCK_BYTES);
            let part = &mut buf[..(count * BLOCK_BYTES) as usize];
            let got = self.read_raw(datafile, LocalOffset(first * BLOCK_BYTES), part).await?;
            let slots = sums.slots(first..first + blocks_in(got as u64)).await?;
            for bad in bad_blocks(&slots, &part[..got]) {
                let bytes = block_bytes(&part[..got], bad);
                self.judge(datafile, sums, first + bad as u64, bytes).await?;
            }
            first += count;
        }
        Ok(())
    }

    pub(super) async fn read_raw(
        &self,
        datafile: &Datafile<E>,
        offset: LocalOffset,
        buf: &mut [u8],
    ) -> io::Result<usize> {
        match self.module {
            Module::Direct => module_direct::read(datafile, offset, buf).await,
            _ => datafile.file.read_at(&mut [IoSliceMut::new(buf)], offset).await,
        }
    }

    async fn set_len_raw(&self, datafile: &Datafile<E>, len: ByteLen) -> io::Result<()> {
        match self.module {
            Module::Direct => module_direct::set_len(datafile, len).await,
            _ => datafile.file.set_len(len).await,
        }
    }

    /// Removes the checksums of a datafile that is gone.
    pub(super) async fn remove_sums(&self, key: DatafileKey) -> io::Result<()> {
        if !self.has_sums.load(Ordering::Acquire) {
            return Ok(());
        }
        self.unsealed.lock().remove(&key);
        match self.dir.remove(&sums_name(key)).await {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }

    fn unverified(&self, key: DatafileKey, doing: &'static str, error: Unverified) -> DatafileError {
        match error {
            Unverified::Io(error) => self.error(key, doing, error),
            Unverified::Damaged(blocks) => DatafileError::Damaged {
                path: self.path.join(key.name()).display().to_string(),
                target: self.id,
                doing,
                start: blocks.start * BLOCK_BYTES,
                end: blocks.end * BLOCK_BYTES,
            },
        }
    }
}

/// Name of a datafile's checksums, relative to the target.
pub(super) fn sums_name(key: DatafileKey) -> String {
    key.name() + SUFFIX
}

/// Indices of the blocks of `bytes` that do not match their slots.
fn bad_blocks<'a>(slots: &'a [Slot], bytes: &'a [u8]) -> impl Iterator<Item = usize> + use<'a> {
    let blocks = bytes.chunks(BLOCK_BYTES as usize).zip(slots).enumerate();
    blocks.filter(|(_, (block, slot))| !slot.accepts(block)).map(|(index, _)| index)
}

/// Bytes of one block among those of several.
fn block_bytes(bytes: &[u8], index: usize) -> &[u8] {
    let rest = &bytes[index * BLOCK_BYTES as usize..];
    &rest[..rest.len().min(BLOCK_BYTES as usize)]
}

/// A datafile with blocks that do not match their checksums, and those that were verified before it.
pub(super) struct Scrubbed {
    pub damaged: Vec<Range<u64>>,
    pub verified: u64,
    pub is_at_end: bool,
}

impl<E: Env> Target<E> {
    /// Verifies up to `budget` bytes of a datafile from byte `first` on, which begins a block.
    pub(super) async fn scrub_datafile(
        &self,
        datafile: &Datafile<E>,
        sums: &BlockSums<E>,
        first: u64,
        budget: u64,
    ) -> io::Result<Scrubbed> {
        let mut done = Scrubbed { damaged: Vec::new(), verified: 0, is_at_end: false };
        let mut buf = AlignedBuf::zeroed(CHUNK_BYTES as usize);
        let charge = self.begin(DeviceAction::Read, datafile.key, LocalOffset(first), budget as usize);
        while done.verified < budget && !done.is_at_end {
            let at = first + done.verified;
            let (got, damaged) = self.verify_blocks(datafile, sums, at, &mut buf).await?;
            done.verified += got as u64;
            done.is_at_end = got < buf.len();
            for bad in damaged {
                match done.damaged.last_mut() {
                    Some(last) if last.end == bad.start => last.end = bad.end,
                    _ => done.damaged.push(bad),
                }
            }
        }
        emulate::end(charge).await;
        Ok(done)
    }
}
