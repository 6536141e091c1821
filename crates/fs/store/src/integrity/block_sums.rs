//! An open checksum file of a datafile.

use super::SLOTS_AT;
use super::block::{block_of, blocks_in};
use super::header::{BadHeader, HEADER_BYTES, Header};
use super::slot::{SLOT_BYTES, Slot};
use crate::datafile::DatafileKey;
use crate::range_lock::{RangeGuard, RangeLocks};
use parking_lot::Mutex;
use std::io::{self, IoSlice, IoSliceMut};
use std::ops::Range;
use weft_core::{ByteLen, LocalOffset, Nanos};
use weft_env::{Env, File};

/// Minimum number of blocks unsealed by one header write: 1 MiB of bytes.
const OPEN_BLOCKS_MIN: u64 = 256;

/// Checksums of a datafile.
pub(crate) struct BlockSums<E: Env> {
    env: E,
    file: E::File,
    /// Block ranges, locked while bytes and their slots change together.
    ranges: RangeLocks<E>,
    /// Locked while the header is written.
    header_writes: RangeLocks<E>,
    state: Mutex<State>,
}

struct State {
    header: Header,
    /// True if the unsealed blocks were written in an earlier boot of the machine.
    is_recovering: bool,
    /// Time of the first change since the last seal.
    unsealed_since: Option<Nanos>,
    changed_at: Nanos,
}

impl<E: Env> BlockSums<E> {
    /// Opens the checksum file of a datafile of `datafile_len` bytes. Initializes it if it is empty.
    ///
    /// # Errors
    /// Errors of the device; `InvalidData` when a later version of Weft wrote the file.
    pub async fn open(env: &E, file: E::File, key: DatafileKey, datafile_len: ByteLen) -> io::Result<Self> {
        let mut bytes = [0; HEADER_BYTES];
        let got = file.read_at(&mut [IoSliceMut::new(&mut bytes)], LocalOffset(0)).await?;
        let boot = env.boot();
        let (header, is_new) = match Header::decode(&bytes[..got]) {
            Ok(header) if header.key == key => (header, false),
            // For an empty datafile the file was created in this boot. Otherwise the checksums were lost, with power
            // or by hand.
            Err(BadHeader::Missing) => {
                let written_in = if datafile_len.0 == 0 { boot } else { !boot };
                (Header::new(key, written_in), true)
            }
            Err(BadHeader::Version(found)) => {
                let why = format!(
                    "its checksums have format version {found}, this program knows {}: install a later Weft",
                    super::header::VERSION
                );
                return Err(io::Error::new(io::ErrorKind::InvalidData, why));
            }
            // Require every block to match its slot: matching blocks are certainly good, and no others are.
            Ok(_) | Err(BadHeader::Damaged(_)) => {
                (Header { sealed_end: u64::MAX, ..Header::new(key, boot) }, false)
            }
        };
        let blocks = blocks_in(datafile_len.0);
        // Slots past the end remain from an interrupted truncation or write.
        let slots_end = ByteLen(SLOTS_AT + blocks * SLOT_BYTES);
        if file.meta().await?.len > slots_end {
            file.set_len(slots_end).await?;
        }
        let is_sealed = header.is_all_sealed(blocks);
        let now = env.tick();
        let state = State {
            header,
            is_recovering: !is_sealed && header.boot != boot,
            unsealed_since: (!is_sealed).then_some(now),
            changed_at: now,
        };
        let sums = Self {
            env: env.clone(),
            file,
            ranges: RangeLocks::new(env),
            header_writes: RangeLocks::new(env),
            state: Mutex::new(state),
        };
        if is_new {
            sums.write_header(&header).await?;
        }
        Ok(sums)
    }

    /// Waits for exclusive access to these blocks and their slots.
    pub async fn lock(&self, blocks: Range<u64>) -> RangeGuard<'_, E> {
        self.ranges.lock(blocks.start, blocks.end).await
    }

    /// Returns true if a block that does not match its slot is accepted as it is: it may have been torn by a loss of
    /// power.
    pub fn is_lenient(&self, block: u64) -> bool {
        let state = self.state.lock();
        state.is_recovering && !state.header.is_sealed(block)
    }

    /// Returns the blocks for which [`is_lenient`](Self::is_lenient) holds, in a datafile of `blocks` blocks.
    pub fn lenient(&self, blocks: u64) -> Vec<Range<u64>> {
        let state = self.state.lock();
        if !state.is_recovering {
            return Vec::new();
        }
        let Header { sealed_end, open_start, open_end, .. } = state.header;
        let ranges =
            [open_start.min(blocks)..open_end.min(sealed_end).min(blocks), sealed_end.min(blocks)..blocks];
        ranges.into_iter().filter(|range| !range.is_empty()).collect()
    }

    /// Returns the times of the first and last change since the last seal; `None` if all blocks are sealed.
    pub fn unsealed(&self) -> Option<(Nanos, Nanos)> {
        let state = self.state.lock();
        state.unsealed_since.map(|since| (since, state.changed_at))
    }

    /// Returns the allocated space of the checksum file in units of 512 bytes.
    pub async fn blocks_512(&self) -> io::Result<u64> {
        Ok(self.file.meta().await?.blocks_512)
    }

    /// Reads the slots of `blocks`.
    pub async fn slots(&self, blocks: Range<u64>) -> io::Result<Vec<Slot>> {
        let count = (blocks.end - blocks.start) as usize;
        let mut bytes = vec![0; count * SLOT_BYTES as usize];
        let mut got = 0;
        while got < bytes.len() {
            let at = LocalOffset(slot_at(blocks.start) + got as u64);
            match self.file.read_at(&mut [IoSliceMut::new(&mut bytes[got..])], at).await? {
                0 => break, // The rest are holes.
                read => got += read,
            }
        }
        let (slots, _) = bytes.as_chunks();
        Ok(slots.iter().map(|bytes| Slot::decode(*bytes)).collect())
    }

    /// Writes the slots of the blocks from `first` on. The caller holds their lock.
    pub async fn put(&self, first: u64, slots: impl Iterator<Item = Slot>) -> io::Result<()> {
        let bytes: Vec<u8> = slots.flat_map(Slot::encode).collect();
        self.file.write_at(&[IoSlice::new(&bytes)], LocalOffset(slot_at(first))).await
    }

    /// Makes it safe to change `blocks`: the sealed ones among them become unsealed durably. Returns true if the
    /// datafile was completely sealed.
    pub async fn unseal(&self, blocks: Range<u64>) -> io::Result<bool> {
        let (was_sealed, is_ready) = {
            let mut state = self.state.lock();
            state.changed_at = self.env.tick();
            let was_sealed = state.unsealed_since.is_none();
            state.unsealed_since.get_or_insert(self.env.tick());
            (was_sealed, state.is_ready(&blocks, self.env.boot()))
        };
        if is_ready {
            return Ok(was_sealed);
        }
        let _guard = self.header_writes.lock(0, 1).await;
        let (header, needs_sync) = {
            let state = self.state.lock();
            if state.is_ready(&blocks, self.env.boot()) {
                return Ok(was_sealed);
            }
            state.opened(&blocks, self.env.boot())
        };
        self.write_header(&header).await?;
        if needs_sync {
            self.file.sync().await?;
        }
        self.state.lock().header = header;
        Ok(was_sealed)
    }

    /// Makes it safe to truncate the datafile at `block`: no block from there on stays sealed, durably. The caller
    /// holds the lock on those blocks. Returns true if the datafile was completely sealed.
    pub async fn unseal_end(&self, block: u64) -> io::Result<bool> {
        let _guard = self.header_writes.lock(0, 1).await;
        let (header, was_sealed) = {
            let mut state = self.state.lock();
            state.changed_at = self.env.tick();
            let was_sealed = state.unsealed_since.is_none();
            state.unsealed_since.get_or_insert(self.env.tick());
            let mut header = state.header;
            if header.sealed_end <= block {
                return Ok(was_sealed);
            }
            if !state.is_recovering {
                header.boot = self.env.boot();
            }
            header.sealed_end = block;
            (header, was_sealed)
        };
        self.write_header(&header).await?;
        self.file.sync().await?;
        self.state.lock().header = header;
        Ok(was_sealed)
    }

    /// Drops the slots past the end of a datafile of `len` bytes. The caller holds their lock.
    pub async fn truncate(&self, len: ByteLen) -> io::Result<()> {
        let slots_end = ByteLen(SLOTS_AT + blocks_in(len.0) * SLOT_BYTES);
        if self.file.meta().await?.len > slots_end {
            self.file.set_len(slots_end).await?;
        }
        Ok(())
    }

    /// Syncs the slots.
    pub async fn sync(&self) -> io::Result<()> {
        self.file.sync().await
    }

    /// Seals a datafile of `len` bytes. The caller holds the lock on all blocks, has synced bytes and slots since, and
    /// has resolved all [lenient](Self::lenient) blocks.
    pub async fn seal(&self, len: ByteLen) -> io::Result<()> {
        let _guard = self.header_writes.lock(0, 1).await;
        let key = self.state.lock().header.key;
        let header = Header { sealed_end: blocks_in(len.0), ..Header::new(key, self.env.boot()) };
        // Not synced: until the header is on the disk, the blocks count as unsealed, which is always safe.
        self.write_header(&header).await?;
        let mut state = self.state.lock();
        state.header = header;
        state.is_recovering = false;
        state.unsealed_since = None;
        Ok(())
    }

    async fn write_header(&self, header: &Header) -> io::Result<()> {
        self.file.write_at(&[IoSlice::new(&header.encode())], LocalOffset(0)).await
    }
}

impl State {
    /// Returns true if `blocks` may be changed under the present header.
    fn is_ready(&self, blocks: &Range<u64>, boot: u64) -> bool {
        let header = &self.header;
        let sealed_part = blocks.start.min(header.sealed_end)..blocks.end.min(header.sealed_end);
        let is_open = sealed_part.is_empty()
            || (header.open_start <= sealed_part.start && sealed_part.end <= header.open_end);
        is_open && (self.is_recovering || header.boot == boot)
    }

    /// Returns the header under which `blocks` may be changed, and whether it must be synced before.
    fn opened(&self, blocks: &Range<u64>, boot: u64) -> (Header, bool) {
        let mut header = self.header;
        if !self.is_recovering {
            header.boot = boot;
        }
        let sealed_part = blocks.start.min(header.sealed_end)..blocks.end.min(header.sealed_end);
        let is_open = sealed_part.is_empty()
            || (header.open_start <= sealed_part.start && sealed_part.end <= header.open_end);
        if is_open {
            return (header, false);
        }
        let was_open = header.open_end - header.open_start;
        let (start, end) = match was_open {
            0 => (sealed_part.start, sealed_part.end),
            _ => (header.open_start.min(sealed_part.start), header.open_end.max(sealed_part.end)),
        };
        // Twice as many as before, so that even scattered writes cost few syncs.
        let len = (end - start).max(was_open.saturating_mul(2)).max(OPEN_BLOCKS_MIN);
        let end = start.saturating_add(len).min(header.sealed_end);
        header.open_start = end.saturating_sub(len).min(start);
        header.open_end = end;
        (header, true)
    }
}

/// Returns the offset of a block's slot.
fn slot_at(block: u64) -> u64 {
    SLOTS_AT + block * SLOT_BYTES
}

/// Returns the blocks that bytes `start..end` touch.
pub(crate) fn touched(start: u64, end: u64) -> Range<u64> {
    block_of(start)..blocks_in(end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_core::{FileId, ObjectId};

    fn sealed(blocks: u64) -> State {
        let key = DatafileKey::new(FileId(1), ObjectId { component: 0, column: 0 });
        let header = Header { sealed_end: blocks, ..Header::new(key, 1) };
        State { header, is_recovering: false, unsealed_since: None, changed_at: Nanos::ZERO }
    }

    #[test]
    fn scattered_writes_to_a_sealed_datafile_cost_few_syncs() {
        const BLOCKS: u64 = 1 << 28; // 1 TiB
        let mut state = sealed(BLOCKS);
        let (mut syncs, mut at) = (0, 12_345_u64);
        for _ in 0..10_000 {
            at = at.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let block = (at >> 20) % BLOCKS;
            if !state.is_ready(&(block..block + 1), 1) {
                let (header, needs_sync) = state.opened(&(block..block + 1), 1);
                syncs += u32::from(needs_sync);
                state.header = header;
            }
            assert!(state.is_ready(&(block..block + 1), 1), "block {block}");
            assert!(!state.header.is_sealed(block), "block {block}");
        }
        assert!(syncs <= 30, "{syncs} syncs");
    }

    #[test]
    fn appends_need_no_sync_and_one_header_write_per_boot() {
        let mut state = sealed(10);
        assert!(state.is_ready(&(10..20), 1));
        assert!(!state.is_ready(&(10..20), 2), "a new boot must be recorded");
        let (header, needs_sync) = state.opened(&(10..20), 2);
        assert!(!needs_sync);
        assert_eq!((header.boot, header.sealed_end, header.open_end), (2, 10, 0));
        state.header = header;
        assert!(state.is_ready(&(10..20), 2));
        assert!(!state.is_ready(&(9..20), 2), "the last block was sealed");
    }

    #[test]
    fn one_write_unseals_its_neighborhood_only() {
        let state = sealed(10_000);
        let (header, needs_sync) = state.opened(&(5000..5001), 1);
        assert!(needs_sync);
        assert_eq!((header.open_start, header.open_end), (5000, 5000 + OPEN_BLOCKS_MIN));
        let (header, _) = state.opened(&(9_999..10_001), 1);
        assert_eq!((header.open_start, header.open_end), (10_000 - OPEN_BLOCKS_MIN, 10_000));
        let (header, _) = sealed(3).opened(&(0..100), 1);
        assert_eq!((header.open_start, header.open_end), (0, 3));
    }
}
