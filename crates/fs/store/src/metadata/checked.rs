//! The base's file with a checksum per block. Every read is verified, so damage is never mistaken for a missing row.
//!
//! redb overwrites no block that its last commit refers to, except the header in block 0. Blocks are collected until a
//! sync and then written in this order, with a sync after each step:
//!
//! | step | written | purpose |
//! | --- | --- | --- |
//! | 1 | slot of the sums file: parts of the sums that will change | marks their blocks as in flux |
//! | 2 | the blocks | |
//! | 3 | the changed parts of the sums | |
//! | 4 | the other slot: no part in flux, and the new block 0 | commit |
//! | 5 | block 0 | |
//!
//! All blocks that a slot's block 0 refers to therefore have their sums on the disk. After a crash, a start writes
//! block 0 from the newest slot. Blocks that mismatch their sums within parts in flux are incompletely written; no
//! commit refers to them.

use super::base::RESTORE;
use super::engine::BaseCheck;
use super::sums::{BLOCK_LEN, SLOT_LEN, SUMS_PER_PART, SUMS_START, Slot, Sum, Verdict, flip, verdict};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use weft_core::{ByteLen, LocalOffset};
use weft_env::BlockingFile;

/// Maximum number of unwritten blocks in memory: 8 MiB.
const PENDING_BLOCKS_MAX: usize = 2048;
/// Number of blocks that a check reads while it excludes other accesses: 1 MiB.
const CHECK_BLOCKS: u64 = 256;

/// Space in bytes that stays allocated behind the last block that was written. redb leaves holes, and a start on a full
/// device must be able to write some new blocks.
const AHEAD_BYTES: u64 = 2 << 20;

const LEN: u64 = BLOCK_LEN as u64;

type Block = Box<[u8; BLOCK_LEN]>;

/// A file with a checksum per block, kept in another file.
#[derive(Debug)]
pub(super) struct Checked<B> {
    file: B,
    sums: B,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Sums by block number; that of block 0 is unused.
    sums: Vec<Sum>,
    /// Content of block 0 as committed by the newest slot.
    block_0: Block,
    /// Number of the newest slot.
    slot: u64,
    /// Parts of the sums that must be written.
    dirty: BTreeSet<u32>,
    /// Blocks that must be written.
    pending: BTreeMap<u64, Block>,
    /// Blocks found damaged, and whether each can be repaired.
    damaged: BTreeMap<u64, bool>,
    /// Number of bytes from the start whose space is allocated.
    allocated: u64,
}

/// Returns the error of reading a damaged block.
fn damage(block: u64) -> io::Error {
    let what = format!("bytes {} to {} are damaged: {RESTORE}", block * LEN, (block + 1) * LEN - 1);
    io::Error::new(io::ErrorKind::InvalidData, what)
}

impl<B: BlockingFile> Checked<B> {
    /// Loads a file with its checksums. Returns both files as `Err` if the checksums are missing or insufficient.
    pub(super) fn load(file: B, sums: B) -> io::Result<Result<Self, (B, B)>> {
        let (blocks, sums_len) = (file.len()?.0.div_ceil(LEN) as usize, sums.len()?.0);
        if sums_len < SUMS_START {
            return Ok(Err((file, sums)));
        }
        let mut bytes = vec![0; sums_len as usize];
        sums.read_at(&mut bytes, LocalOffset(0))?;
        let slots = [0, 1].map(|slot| Slot::decode(&bytes[slot * SLOT_LEN..(slot + 1) * SLOT_LEN]));
        let mut found = Box::new([0; BLOCK_LEN]);
        read_block(&file, 0, &mut found[..])?;
        let slot = match slots {
            [Some(one), Some(other)] => {
                if one.number > other.number {
                    one
                } else {
                    other
                }
            }
            // A slot torn by a crash leaves block 0 as in the other slot. Otherwise the slot was damaged later.
            [Some(only), None] | [None, Some(only)] if only.block_0 == found => only,
            _ => return Ok(Err((file, sums))),
        };
        let (recorded, _) = bytes[SUMS_START as usize..].as_chunks::<8>();
        let mut recorded: Vec<Sum> = recorded.iter().map(|sum| Sum(u64::from_le_bytes(*sum))).collect();
        // Sums past the end are left from a truncation. Missing sums belong to an extension that was
        // never written.
        let left_over = recorded.iter().skip(blocks).any(|sum| *sum != Sum::UNWRITTEN);
        let end = if left_over { recorded.len().div_ceil(SUMS_PER_PART) } else { 0 };
        let dirty = (blocks / SUMS_PER_PART..end).map(|part| part as u32).collect();
        recorded.resize(blocks, Sum::UNWRITTEN);
        let Slot { number, in_flux, block_0 } = slot;
        let state = State {
            sums: recorded,
            block_0,
            slot: number,
            dirty,
            pending: BTreeMap::new(),
            damaged: BTreeMap::new(),
            allocated: 0,
        };
        let this = Self { file, sums, state: Mutex::new(state) };
        this.recover(&found, in_flux)?;
        Ok(Ok(this))
    }

    /// Completes what a crash interrupted.
    fn recover(&self, found: &[u8; BLOCK_LEN], in_flux: Option<BTreeSet<u32>>) -> io::Result<()> {
        let mut state = self.state.lock();
        if *state.block_0 != *found {
            self.file.write_at(&state.block_0[..], LocalOffset(0))?;
            self.file.sync()?;
        }
        let parts = in_flux.unwrap_or_else(|| (0..state.sums.len().div_ceil(SUMS_PER_PART) as u32).collect());
        let mut bytes = vec![0; BLOCK_LEN];
        for part in parts {
            let from = part as usize * SUMS_PER_PART;
            for block in from.max(1)..(from + SUMS_PER_PART).min(state.sums.len()) {
                read_block(&self.file, block as u64, &mut bytes)?;
                if state.verdict(block as u64, &bytes) != Verdict::Sound {
                    state.set(block as u64, Sum::IN_FLUX);
                }
            }
            // The part stays in flux until it is written.
            state.dirty.insert(part);
        }
        Ok(())
    }

    /// Records the sums of all blocks of a file as it is.
    pub(super) fn record(file: B, sums: B) -> io::Result<Self> {
        sums.set_len(ByteLen(0))?;
        let blocks = file.len()?.0.div_ceil(LEN);
        let mut recorded = Vec::with_capacity(blocks as usize);
        let (mut bytes, mut block_0) = (vec![0; BLOCK_LEN], Box::new([0; BLOCK_LEN]));
        for block in 0..blocks {
            read_block(&file, block, &mut bytes)?;
            if block == 0 {
                block_0.copy_from_slice(&bytes);
            }
            let zeros = bytes.iter().all(|byte| *byte == 0);
            recorded.push(if zeros { Sum::UNWRITTEN } else { Sum::of(&bytes) });
        }
        let state = State {
            dirty: (0..recorded.len().div_ceil(SUMS_PER_PART)).map(|part| part as u32).collect(),
            sums: recorded,
            block_0,
            slot: 0,
            pending: BTreeMap::new(),
            damaged: BTreeMap::new(),
            allocated: 0,
        };
        let this = Self { file, sums, state: Mutex::new(state) };
        {
            let mut state = this.state.lock();
            // Slots last: without them the sums are recorded again.
            this.write_parts(&mut state)?;
            this.write_slot(&mut state)?;
            this.write_slot(&mut state)?;
        }
        Ok(this)
    }

    /// Returns the file.
    pub(super) fn file(&self) -> &B {
        &self.file
    }

    /// Returns the file of the sums.
    pub(super) fn sums(&self) -> &B {
        &self.sums
    }

    /// Drops unwritten blocks, as a crash does, and repeats a failed write of block 0.
    pub(super) fn forget_pending(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        state.pending.clear();
        let mut found = [0; BLOCK_LEN];
        read_block(&self.file, 0, &mut found)?;
        if *state.block_0 != found {
            self.file.write_at(&state.block_0[..], LocalOffset(0))?;
            self.file.sync()?;
            state.damaged.remove(&0);
        }
        Ok(())
    }

    /// Returns the number of damaged blocks that have not been repaired since the start.
    pub(super) fn damaged(&self) -> u64 {
        self.state.lock().damaged.len() as u64
    }

    /// Verifies every block; with `repair`, repairs those that can be repaired.
    pub(super) fn check(&self, repair: bool) -> io::Result<BaseCheck> {
        let mut report = BaseCheck::default();
        let mut next = 0;
        loop {
            let mut state = self.state.lock();
            let blocks = state.sums.len() as u64;
            if next >= blocks {
                return Ok(report);
            }
            let end = blocks.min(next + CHECK_BLOCKS);
            for block in next..end {
                self.check_block(&mut state, block, repair, &mut report)?;
            }
            next = end;
        }
    }

    fn check_block(
        &self,
        state: &mut State,
        block: u64,
        repair: bool,
        report: &mut BaseCheck,
    ) -> io::Result<()> {
        report.blocks += 1;
        let mut bytes = vec![0; BLOCK_LEN];
        read_block(&self.file, block, &mut bytes)?;
        let found = state.verdict(block, &bytes);
        match found {
            Verdict::Sound | Verdict::InFlux => {
                state.damaged.remove(&block);
                return Ok(());
            }
            _ if repair && block == 0 => bytes.copy_from_slice(&state.block_0[..]),
            Verdict::FlippedBit(bit) if repair => flip(&mut bytes, bit),
            Verdict::FlippedSum if repair => {
                state.set(block, Sum::of(&bytes));
                self.write_parts(state)?;
            }
            _ => {}
        }
        let repaired = repair && (block == 0 || found != Verdict::Damaged);
        if repaired {
            self.file.write_at(&bytes, LocalOffset(block * LEN))?;
            self.file.sync()?;
            state.damaged.remove(&block);
        } else {
            state.damaged.insert(block, found != Verdict::Damaged);
        }
        report.damaged.push((block * LEN..(block + 1) * LEN, repaired));
        Ok(())
    }

    /// Writes pending blocks except block 0. The parts with their sums remain to be written.
    fn write_blocks(&self, state: &mut State) -> io::Result<()> {
        let blocks: Vec<u64> = state.pending.keys().copied().filter(|block| *block > 0).collect();
        state.dirty.extend(blocks.iter().map(|block| part_of(*block)));
        if state.dirty.is_empty() {
            return Ok(());
        }
        self.allocate(state, blocks.last().map_or(0, |block| (block + 1) * LEN));
        self.write_slot(state)?;
        if let Err(error) = self.write_runs(state, &blocks) {
            // Any of them may have reached the disk. No commit refers to them.
            blocks.iter().for_each(|block| state.set(*block, Sum::IN_FLUX));
            return Err(error);
        }
        for block in blocks {
            let bytes = state.pending.remove(&block).expect("still pending");
            state.set(block, Sum::of(&bytes[..]));
            state.damaged.remove(&block);
        }
        Ok(())
    }

    /// Allocates the space up to `end`, and some behind it. A full device may have no space for that, but for the blocks.
    fn allocate(&self, state: &mut State, end: u64) {
        if end + AHEAD_BYTES / 2 <= state.allocated {
            return;
        }
        let allocated = end + AHEAD_BYTES;
        let sums_end = SUMS_START + allocated / LEN * 8;
        let reserved =
            self.file.reserve(ByteLen(allocated)).and_then(|()| self.sums.reserve(ByteLen(sums_end)));
        if reserved.is_ok() {
            state.allocated = allocated;
        }
    }

    /// Writes pending blocks in contiguous runs, and syncs.
    fn write_runs(&self, state: &State, blocks: &[u64]) -> io::Result<()> {
        let mut run = Vec::new();
        for (at, block) in blocks.iter().enumerate() {
            run.extend_from_slice(&state.pending[block][..]);
            if blocks.get(at + 1) != Some(&(block + 1)) {
                let start = (block + 1) * LEN - run.len() as u64;
                self.file.write_at(&run, LocalOffset(start))?;
                run.clear();
            }
        }
        self.file.sync()
    }

    fn write_parts(&self, state: &mut State) -> io::Result<()> {
        if state.dirty.is_empty() {
            return Ok(());
        }
        for part in &state.dirty {
            let from = (*part as usize * SUMS_PER_PART).min(state.sums.len());
            let to = (from + SUMS_PER_PART).min(state.sums.len());
            let mut bytes: Vec<u8> =
                state.sums[from..to].iter().flat_map(|sum| sum.0.to_le_bytes()).collect();
            bytes.resize(BLOCK_LEN, 0);
            let at = SUMS_START + u64::from(*part) * LEN;
            self.sums.write_at(&bytes, LocalOffset(at))?;
        }
        self.sums.sync()?;
        state.dirty.clear();
        Ok(())
    }

    /// Overwrites the older slot.
    fn write_slot(&self, state: &mut State) -> io::Result<()> {
        let number = state.slot + 1;
        let slot = Slot { number, in_flux: Some(state.dirty.clone()), block_0: state.block_0.clone() };
        self.sums.write_at(&slot.encode()[..], LocalOffset(number % 2 * SLOT_LEN as u64))?;
        self.sums.sync()?;
        state.slot = number;
        Ok(())
    }

    /// Reads whole blocks without blocking other reads. Returns false if one is being written or is damaged.
    fn read_sound(&self, offset: u64, out: &mut [u8]) -> io::Result<bool> {
        let (first, end) = (offset / LEN, (offset + out.len() as u64) / LEN);
        if first == 0 || !offset.is_multiple_of(LEN) || !out.len().is_multiple_of(BLOCK_LEN) {
            return Ok(false);
        }
        let recorded: Vec<Sum> = {
            let state = self.state.lock();
            if state.sums.len() < end as usize || state.pending.range(first..end).next().is_some() {
                return Ok(false);
            }
            state.sums[first as usize..end as usize].to_vec()
        };
        self.file.read_at(out, LocalOffset(offset))?;
        let (blocks, _) = out.as_chunks::<BLOCK_LEN>();
        Ok(blocks.iter().zip(recorded).all(|(block, sum)| verdict(block, sum) == Verdict::Sound))
    }

    /// Returns the current content of a block.
    fn load_block(&self, state: &mut State, block: u64, bytes: &mut [u8]) -> io::Result<()> {
        if let Some(pending) = state.pending.get(&block) {
            bytes.copy_from_slice(&pending[..]);
            return Ok(());
        }
        read_block(&self.file, block, bytes)?;
        match state.verdict(block, bytes) {
            Verdict::Sound => return Ok(()),
            _ if block == 0 => {
                bytes.copy_from_slice(&state.block_0[..]);
                state.damaged.insert(block, true)
            }
            Verdict::FlippedSum => state.damaged.insert(block, true),
            Verdict::FlippedBit(bit) => {
                flip(bytes, bit);
                state.damaged.insert(block, true)
            }
            Verdict::Damaged | Verdict::InFlux => {
                state.damaged.insert(block, false);
                return Err(damage(block));
            }
        };
        Ok(())
    }
}

/// Returns the part of the sums that contains a block's sum.
fn part_of(block: u64) -> u32 {
    u32::try_from(block / SUMS_PER_PART as u64).expect("a base has fewer than 2^41 blocks")
}

impl State {
    fn set(&mut self, block: u64, sum: Sum) {
        let at = block as usize;
        if self.sums.len() <= at {
            self.sums.resize(at + 1, Sum::UNWRITTEN);
        }
        self.sums[at] = sum;
        self.dirty.insert(part_of(block));
    }

    fn verdict(&self, block: u64, bytes: &[u8]) -> Verdict {
        match block {
            0 if bytes == &self.block_0[..] => Verdict::Sound,
            0 => Verdict::Damaged,
            _ => verdict(bytes, self.sums.get(block as usize).copied().unwrap_or_default()),
        }
    }
}

/// Reads a block; zeros past the end of the file.
fn read_block(file: &impl BlockingFile, block: u64, bytes: &mut [u8]) -> io::Result<()> {
    let available = file.len()?.0.saturating_sub(block * LEN).min(LEN) as usize;
    bytes[available..].fill(0);
    if available > 0 {
        file.read_at(&mut bytes[..available], LocalOffset(block * LEN))?;
    }
    Ok(())
}

/// Iterates over the blocks of a byte range, each with the ranges within the block and within the bytes.
fn parts(offset: u64, len: usize) -> impl Iterator<Item = (u64, Range<usize>, Range<usize>)> {
    let end = offset + len as u64;
    (offset / LEN..end.div_ceil(LEN)).map(move |block| {
        let start = block * LEN;
        let (from, to) = (offset.max(start), end.min(start + LEN));
        let within = (from - start) as usize..(to - start) as usize;
        (block, within, (from - offset) as usize..(to - offset) as usize)
    })
}

/// Storage backend for redb.
#[derive(Debug)]
pub(super) struct Backend<B>(pub std::sync::Arc<Checked<B>>);

impl<B: BlockingFile> redb::StorageBackend for Backend<B> {
    fn len(&self) -> Result<u64, io::Error> {
        self.0.file.len().map(|len| len.0)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), io::Error> {
        let this = &*self.0;
        if this.read_sound(offset, out)? {
            return Ok(());
        }
        if offset + out.len() as u64 > this.file.len()?.0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut state = this.state.lock();
        let mut bytes = [0; BLOCK_LEN];
        for (block, within, of) in parts(offset, out.len()) {
            this.load_block(&mut state, block, &mut bytes)?;
            out[of].copy_from_slice(&bytes[within]);
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<(), io::Error> {
        let this = &*self.0;
        let mut state = this.state.lock();
        let blocks = len.div_ceil(LEN);
        state.pending.retain(|block, _| *block < blocks);
        state.damaged.retain(|block, _| *block < blocks);
        let before = state.sums.len();
        this.file.set_len(ByteLen(len))?;
        state.sums.resize(blocks as usize, Sum::UNWRITTEN);
        // Blocks past the end lose their sums, in case the file grows again. The blocks must be gone before their sums
        // are.
        if before > blocks as usize {
            let parts = blocks as usize / SUMS_PER_PART..before.div_ceil(SUMS_PER_PART);
            state.dirty.extend(parts.map(|part| part as u32));
            this.file.sync()?;
        }
        Ok(())
    }

    fn sync_data(&self) -> Result<(), io::Error> {
        let this = &*self.0;
        let mut state = this.state.lock();
        this.write_blocks(&mut state)?;
        this.write_parts(&mut state)?;
        let Some(block_0) = state.pending.get(&0).cloned() else { return this.file.sync() };
        let before = std::mem::replace(&mut state.block_0, block_0);
        if let Err(error) = this.write_slot(&mut state) {
            state.block_0 = before;
            return Err(error);
        }
        this.file.write_at(&state.block_0[..], LocalOffset(0))?;
        this.file.sync()?;
        state.pending.remove(&0);
        state.damaged.remove(&0);
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), io::Error> {
        let this = &*self.0;
        let mut state = this.state.lock();
        if offset + data.len() as u64 > this.file.len()?.0 {
            this.file.set_len(ByteLen(offset + data.len() as u64))?;
        }
        for (block, within, of) in parts(offset, data.len()) {
            let mut bytes = Box::new([0; BLOCK_LEN]);
            if within.len() < BLOCK_LEN {
                this.load_block(&mut state, block, &mut bytes[..])?;
            }
            bytes[within].copy_from_slice(&data[of]);
            state.pending.insert(block, bytes);
        }
        if state.pending.len() > PENDING_BLOCKS_MAX {
            this.write_blocks(&mut state)?;
        }
        Ok(())
    }
}
