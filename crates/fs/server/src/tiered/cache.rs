//! The read and write cache of one target: which requests it takes, and which blocks leave it.
//!
//! The decisions are those of [`weft_core::cache`]. The bytes are those of class `cached` in the log. The order of
//! eviction is in memory; a start builds it again from the log's mapping.

use super::counters::add;
use super::policy::{file_number, session_number};
use super::ssd_tier::SsdTier;
use super::{Source, TieredTarget};
use crate::config::CacheConfig;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use weft_core::cache::{AdmissionSpec, BLOCK_LEN, BlockId, CacheAdmission, CacheRequest, Eviction};
use weft_core::random::splitmix64;
use weft_core::ranges::ByteRange;
use weft_core::{ByteLen, DataClass, LocalExtent, LocalOffset};
use weft_env::Env;
use weft_store::datafile::DatafileKey;
use weft_store::fragments::{FragmentLog, LogError};
use weft_wire::hello::SessionId;

/// Number of requests to the SSD above which reads are not copied to it at once.
const COPIES_MAX: u32 = 8;
/// Part of the share that clean blocks leave free: one in this number. Otherwise the log would find no segment that is
/// worth compacting, and would drop blocks in another order than the cache's.
const FREE_DIVISOR: u64 = 8;
/// Number of names of datafiles without blocks that are kept before they are dropped.
const IDLE_NAMES_MAX: usize = 4096;

/// Decisions of the cache of one target.
pub(super) struct Cache {
    pub config: CacheConfig,
    state: Mutex<CacheState>,
}

struct CacheState {
    admission: CacheAdmission,
    eviction: Eviction,
    /// Datafiles of the blocks in `eviction`, by number.
    names: BTreeMap<u64, DatafileKey>,
    /// Length of `names` after idle ones were last dropped.
    names_kept: usize,
}

/// Decision about a read.
pub(super) struct ReadDecision {
    /// Whether the bytes that the log lacks enter the cache.
    pub admits: bool,
    /// Ranges to read into the cache ahead of the reader.
    pub ahead: Vec<LocalExtent>,
}

impl Cache {
    /// Creates the cache with the blocks that the log has.
    pub fn new<E: Env>(config: &CacheConfig, quota: ByteLen, log: &FragmentLog<E>) -> Self {
        let capacity = capacity(quota);
        let spec = AdmissionSpec { prefetch_max: config.prefetch, ..AdmissionSpec::for_capacity(capacity) };
        let state = CacheState {
            admission: CacheAdmission::new(&spec),
            eviction: Eviction::new(config.eviction, capacity),
            names: BTreeMap::new(),
            names_kept: 0,
        };
        let cache = Self { config: config.clone(), state: Mutex::new(state) };
        let mut last = None;
        for (key, extent) in log.ranges_of(DataClass::CACHED) {
            // Most blocks have several ranges.
            let end = extent.end().div_ceil(BLOCK_LEN);
            if last != Some((key, end)) || extent.start() / BLOCK_LEN + 1 < end {
                cache.refresh(log, key, extent);
            }
            last = Some((key, end));
        }
        cache
    }

    /// Adapts the cache to a new quota.
    pub fn set_capacity(&self, quota: ByteLen) {
        let mut state = self.state.lock();
        let capacity = capacity(quota);
        if state.eviction.capacity() != capacity {
            state.eviction.set_capacity(capacity);
            state.admission.set_capacity(capacity);
        }
    }

    /// Records a read, `is_hit` if the log has all of it, and decides about the bytes that the log lacks.
    pub fn read(
        &self,
        session: SessionId,
        key: DatafileKey,
        extent: LocalExtent,
        is_hit: bool,
    ) -> ReadDecision {
        let request = request(session, key, extent);
        let mut state = self.state.lock();
        for block in BlockId::of(request.file, extent) {
            state.eviction.touch(block);
        }
        let ahead = state.admission.prefetch(request);
        let admits = !is_hit && state.admission.read(request).is_admit();
        ReadDecision { admits, ahead }
    }

    /// Whether the cache takes a write.
    pub fn write(&self, session: SessionId, key: DatafileKey, extent: LocalExtent) -> bool {
        let request = request(session, key, extent);
        let mut state = self.state.lock();
        for block in BlockId::of(request.file, extent) {
            state.eviction.touch(block);
        }
        state.admission.write(request).is_admit()
    }

    /// Adapts the order of eviction to the bytes that the log has in the blocks of `extent`.
    pub fn refresh<E: Env>(&self, log: &FragmentLog<E>, key: DatafileKey, extent: ByteRange) {
        let file = file_id(key);
        let of_file = LocalExtent { offset: LocalOffset(extent.start()), len: ByteLen(extent.len()) };
        let mut state = self.state.lock();
        for block in BlockId::of(file, of_file) {
            let Some(range) = range_of(block) else { continue };
            let (dirty, clean) = log.class_bytes_in(key, range, DataClass::CACHED);
            let bytes = u32::try_from(dirty.0 + clean.0).unwrap_or(u32::MAX);
            if bytes > 0 && *state.names.entry(file).or_insert(key) != key {
                // Two datafiles with one number: the log evicts the second one's bytes in the order of their use.
                continue;
            }
            state.eviction.set_bytes(block, bytes);
        }
        if state.names.len() > state.names_kept + IDLE_NAMES_MAX {
            let CacheState { eviction, names, .. } = &mut *state;
            names.retain(|&file, _| eviction.has_file(file));
            state.names_kept = state.names.len();
        }
    }

    /// Drops the blocks of a datafile from `from` on, after a truncation or a removal.
    pub fn forget_from<E: Env>(&self, log: &FragmentLog<E>, key: DatafileKey, from: u64) {
        let file = file_id(key);
        let first = BlockId::at(file, from);
        {
            let mut state = self.state.lock();
            if state.names.get(&file) != Some(&key) {
                return;
            }
            state.eviction.remove_from(first);
            if from == 0 {
                state.names.remove(&file);
                return;
            }
        }
        // The block at the new end may keep some bytes.
        if let Some(range) = range_of(first) {
            self.refresh(log, key, range);
        }
    }

    /// Next block to evict, so that `len` more bytes fit; `None` if they fit or only dirty blocks are left.
    fn victim<E: Env>(&self, log: &FragmentLog<E>, len: u64) -> Option<(DatafileKey, ByteRange)> {
        let mut state = self.state.lock();
        let CacheState { eviction, names, .. } = &mut *state;
        let has_no_dirty = |block: BlockId| {
            let (Some(&key), Some(range)) = (names.get(&block.file), range_of(block)) else { return true };
            log.class_bytes_in(key, range, DataClass::CACHED).0 == ByteLen(0)
        };
        let block = eviction.victim_for(len, has_no_dirty)?;
        Some((*names.get(&block.file)?, range_of(block)?))
    }

    /// Number of blocks, and number of requests that no filter admitted.
    pub fn counts(&self) -> (u64, u64) {
        let state = self.state.lock();
        (state.eviction.blocks() as u64, state.admission.rejected().map(|(_, count)| count).sum())
    }
}

/// Bytes that the order of eviction keeps.
const fn capacity(quota: ByteLen) -> u64 {
    quota.0 - quota.0 / FREE_DIVISOR
}

/// Number of a datafile in [`BlockId`].
fn file_id(key: DatafileKey) -> u64 {
    splitmix64(file_number(key) ^ splitmix64(key.file.0))
}

fn request(session: SessionId, key: DatafileKey, extent: LocalExtent) -> CacheRequest {
    CacheRequest { file: file_id(key), session: session_number(session), extent }
}

/// Range of a block in its datafile.
fn range_of(block: BlockId) -> Option<ByteRange> {
    ByteRange::with_len(block.index.checked_mul(BLOCK_LEN)?, BLOCK_LEN)
}

impl<E: Env> SsdTier<E> {
    /// Whether a read may be copied to the cache at once.
    pub(super) fn may_copy_to_cache(&self) -> bool {
        self.active_log_requests.load(std::sync::atomic::Ordering::Relaxed) < COPIES_MAX
    }

    /// Evicts blocks of the cache until `len` more bytes fit its share, as far as clean ones are left.
    pub(super) async fn make_room(&self, len: u64) {
        let Some(cache) = &self.cache else { return };
        while self.log.class_bytes(DataClass::CACHED).1 > ByteLen(0)
            && let Some((key, range)) = cache.victim(&self.log, len)
        {
            match self.log.evict_range(key, range, DataClass::CACHED).await {
                Ok(bytes) => add(&self.counters.bytes_evicted, bytes.0),
                // A failed log takes nothing more.
                Err(_) => return,
            }
        }
    }

    /// Adapts the cache to the log after bytes of `range` were put, dropped or written back.
    pub(super) fn refresh_cache(&self, key: DatafileKey, range: ByteRange) {
        if let Some(cache) = &self.cache {
            cache.refresh(&self.log, key, range);
        }
    }

    /// Puts bytes that the disk has into the cache, where the log has none. The caller holds the range lock, and the
    /// disk has had no newer bytes since.
    ///
    /// # Errors
    /// [`LogError::Failed`]: nothing more can be put.
    pub(super) async fn copy_to_cache(
        &self,
        key: DatafileKey,
        range: ByteRange,
        source: Source<'_, E>,
    ) -> Result<u64, LogError> {
        let taken = self.log.extents(key, range);
        let mut copied = 0;
        for part in super::coalesce::gaps(range, taken, |_| false) {
            self.make_room(part.len()).await;
            let part_source = source.part(part.start() - range.start(), part.len());
            match self.put_copy(key, part, part_source, DataClass::CACHED, 0).await? {
                0 => break,
                len => copied += len,
            }
        }
        self.refresh_cache(key, range);
        Ok(copied)
    }
}

impl<E: Env> TieredTarget<E> {
    /// Makes the copies of all datafiles outlast an orderly boot of the machine: syncs their sources on the disk.
    pub(super) async fn settle_copies(&self, tier: &SsdTier<E>, may_go_on: impl Fn() -> bool) {
        let mut after = None;
        while let Some(&(key, _)) = tier.log.list(after, 1).first() {
            after = Some(key);
            if !may_go_on() {
                return;
            }
            if !tier.log.has_copies(key) {
                continue;
            }
            // A late request must not write and copy bytes in between.
            let _guard = tier.range_locks.lock(key, 0, u64::MAX).await;
            // An error leaves the copies as they are; they are dropped at the next boot.
            if self.sync_disk(key).await.is_ok() {
                let _ = tier.log.settle_copies(key).await;
            }
        }
    }
}
