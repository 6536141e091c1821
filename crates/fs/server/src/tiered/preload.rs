//! Preloading: clean copies of ranges that reads missed, made while the devices are idle.

use super::coalesce::gaps;
use super::counters::add;
use super::range_locks::ChangeCount;
use super::ssd_tier::SsdTier;
use super::{Source, TieredTarget};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use weft_core::ranges::ByteRange;
use weft_core::{ByteLen, DataClass, LocalOffset, Nanos};
use weft_env::Env;
use weft_store::datafile::DatafileKey;
use weft_store::error::DatafileError;
use weft_store::fragments::{LogError, Piece, Tag};

/// Maximum number of ranges queued for preloading, 6 MB of memory.
const QUEUED_RANGES_MAX: usize = 65_536;
/// Reads up to this length are copied right after the answer, if the SSD is idle, because the next request on the
/// connection waits for the copy. Longer ranges are queued and read again later.
const IMMEDIATE_COPY_LEN_MAX: u64 = 32 << 10;
/// Longest range copied in one step.
const COPY_LEN_MAX: u64 = 1 << 20;

/// A read of the disk that the SSD should serve next time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Miss {
    pub class: DataClass,
    pub gain: i64,
    /// Change count of the datafile before the read.
    pub(super) changes: ChangeCount,
    /// Least length of the datafile according to the log.
    pub(super) end: ByteLen,
    /// Time the disk took, its wait included.
    pub(super) took: Nanos,
}

impl Miss {
    /// Whether a read of `len` bytes may be copied from the buffer it was read into. The cache copies longer reads too:
    /// the disk may never be idle, and reading the bytes again would cost it as much as the read did.
    pub fn is_short(&self, len: usize) -> bool {
        let max = if self.class == DataClass::CACHED { COPY_LEN_MAX } else { IMMEDIATE_COPY_LEN_MAX };
        len as u64 <= max
    }
}

/// Position at which a range begins.
type Start = (DatafileKey, u64);
/// Length, class and gain of a queued range.
type QueuedCopy = (u64, DataClass, i64);

/// Ranges queued for preloading, in the order of datafile and offset.
#[derive(Default)]
pub(super) struct PreloadQueue {
    all: Mutex<BTreeMap<Start, QueuedCopy>>,
}

impl PreloadQueue {
    fn add(&self, key: DatafileKey, range: ByteRange, class: DataClass, gain: i64) {
        let mut all = self.all.lock();
        if all.len() < QUEUED_RANGES_MAX {
            all.insert((key, range.start()), (range.len(), class, gain));
        }
    }

    pub fn is_empty(&self) -> bool {
        self.all.lock().is_empty()
    }

    /// Cancels ranges that begin in `from..to`.
    pub fn cancel(&self, key: DatafileKey, from: u64, to: u64) {
        let mut all = self.all.lock();
        while let Some((&at, _)) = all.range((key, from)..(key, to)).next() {
            all.remove(&at);
        }
    }

    /// Drops all ranges of a removed datafile.
    pub fn forget(&self, key: DatafileKey) {
        let mut all = self.all.lock();
        if !all.is_empty() {
            all.retain(|(queued, _), _| *queued != key);
        }
    }

    /// Takes the next range, extended to the one behind it if the gap between them is at most `gap_max`. At most
    /// [`COPY_LEN_MAX`] bytes are returned; the rest is queued again.
    fn next(
        &self,
        after: Option<Start>,
        gap_max: Option<ByteLen>,
    ) -> Option<(DatafileKey, ByteRange, DataClass, i64)> {
        use std::ops::Bound::{Excluded, Unbounded};
        let mut all = self.all.lock();
        let behind =
            after.and_then(|after| all.range((Excluded(after), Unbounded)).next().map(|next| *next.0));
        let at = behind.or_else(|| all.keys().next().copied())?;
        let (mut len, class, gain) = all.remove(&at)?;
        if let Some(gap_max) = gap_max
            && let Some((&behind, _)) = all.range((at.0, at.1 + 1)..=(at.0, u64::MAX)).next()
            && behind.1 - at.1 <= len.saturating_add(gap_max.0)
        {
            len = len.max(behind.1 - at.1);
            if len > COPY_LEN_MAX {
                let rest = (at.0, at.1 + COPY_LEN_MAX);
                all.entry(rest).or_insert((len - COPY_LEN_MAX, class, gain));
                len = COPY_LEN_MAX;
            }
        }
        Some((at.0, ByteRange::with_len(at.1, len)?, class, gain))
    }
}

impl<E: Env> TieredTarget<E> {
    /// Preloads a missed read after the client was answered: at once if the SSD is idle, else later.
    pub async fn preload(&self, miss: &Miss, key: DatafileKey, offset: LocalOffset, bytes: &[u8]) {
        let Some((tier, range)) = self.range_worth_copying(miss, offset, bytes.len()) else { return };
        let is_free = if miss.class == DataClass::CACHED { tier.may_copy_to_cache() } else { tier.is_idle() };
        if miss.is_short(bytes.len()) && is_free {
            let _guard = tier.range_locks.lock(key, range.start(), range.end()).await;
            if tier.range_locks.change_count(key) == miss.changes && self.may_copy(tier, key) {
                // A full log keeps no copy, and a failed log reports itself.
                let _ = tier.copy(key, range, bytes, miss.class, miss.gain).await;
                return;
            }
        }
        tier.queue_preload(miss, key, range);
    }

    /// Queues a missed read of `len` bytes that are no longer in memory.
    pub fn preload_later(&self, miss: &Miss, key: DatafileKey, offset: LocalOffset, len: usize) {
        if let Some((tier, range)) = self.range_worth_copying(miss, offset, len) {
            tier.queue_preload(miss, key, range);
        }
    }

    fn range_worth_copying(
        &self,
        miss: &Miss,
        offset: LocalOffset,
        len: usize,
    ) -> Option<(&SsdTier<E>, ByteRange)> {
        let tier = self.tier.as_ref()?;
        let range = ByteRange::with_len(offset.0, len as u64)?;
        let is_worth =
            miss.class == DataClass::CACHED || tier.policies.is_worth_a_copy(ByteLen(range.len()), miss.took);
        is_worth.then_some((tier, range))
    }

    /// Preloads the next queued range after `after`. Returns its position; `None` if the queue is empty.
    pub(super) async fn copy_next(
        &self,
        tier: &SsdTier<E>,
        after: Option<Start>,
        buf: &mut [u8],
    ) -> Result<Option<Start>, DatafileError> {
        let gap_max = tier.policies.gap_max();
        let Some(next) = tier.preloads.next(after, gap_max) else { return Ok(None) };
        let (key, range, ..) = next;
        self.copy_range(tier, next, gap_max, buf).await?;
        Ok(Some((key, range.start())))
    }

    /// Reads the next range ahead of its reader. Returns false if there is none.
    pub(super) async fn prefetch_next(
        &self,
        tier: &SsdTier<E>,
        buf: &mut [u8],
    ) -> Result<bool, DatafileError> {
        let Some(next) = tier.prefetches.next(None, None) else { return Ok(false) };
        let copied = self.copy_range(tier, next, None, buf).await?;
        add(&tier.counters.bytes_prefetched, copied);
        Ok(true)
    }

    /// Copies a range of the disk to the log, as far as the log lacks it. Returns the number of bytes copied.
    async fn copy_range(
        &self,
        tier: &SsdTier<E>,
        (key, range, class, gain): (DatafileKey, ByteRange, DataClass, i64),
        gap_max: Option<ByteLen>,
        buf: &mut [u8],
    ) -> Result<u64, DatafileError> {
        if range.len() > COPY_LEN_MAX.min(buf.len() as u64) {
            return Ok(0);
        }
        let _guard = tier.range_locks.lock(key, range.start(), range.end()).await;
        if !self.may_copy(tier, key) {
            return Ok(0);
        }
        let pieces = tier.log.find(key, range);
        let fills_gaps = gap_max.is_some() || class == DataClass::CACHED;
        if !fills_gaps && tier.log.overlap(key, range).any {
            return Ok(0);
        }
        let mut copied = 0;
        for part in gaps(range, pieces.iter().map(Piece::extent), |_| false) {
            let buf = &mut buf[..part.len() as usize];
            let (count, _) = self.target.read(key, LocalOffset(part.start()), buf).await?;
            if let Some(part) = ByteRange::with_len(part.start(), count as u64) {
                copied += tier.copy(key, part, &buf[..count], class, gain).await?;
            }
        }
        Ok(copied)
    }

    /// Whether the log may take bytes of a datafile. The caller holds a lock on a range of it. A removal marks the
    /// datafile as removed first, drops it from the log when no range is locked, and removes it from the disk last. A
    /// failed log takes nothing, so the disk need not be read for it.
    fn may_copy(&self, tier: &SsdTier<E>, key: DatafileKey) -> bool {
        tier.log.failure().is_none() && self.target.check_not_removed(key).is_ok()
    }

    /// Length of the buffer for [`copy_next`](Self::copy_next).
    pub(super) const COPY_LEN: usize = COPY_LEN_MAX as usize;
}

impl<E: Env> SsdTier<E> {
    /// Queues a missed range.
    fn queue_preload(&self, miss: &Miss, key: DatafileKey, range: ByteRange) {
        self.preloads.add(key, range, miss.class, miss.gain);
        self.wake();
    }

    /// Queues a range that a reader is expected to read, if the log lacks some of it.
    pub(super) fn prefetch(&self, key: DatafileKey, range: ByteRange) {
        let missing = gaps(range, self.log.extents(key, range), |_| false);
        if missing.is_empty() {
            return;
        }
        for part in missing {
            let mut at = part.start();
            while let Some(rest) = ByteRange::new(at, part.end()) {
                let Some(step) = ByteRange::with_len(at, rest.len().min(COPY_LEN_MAX)) else { break };
                self.prefetches.add(key, step, DataClass::CACHED, 0);
                at = step.end();
            }
        }
        self.wake();
    }

    /// Copies bytes of the disk into the log as clean, and returns the number copied. The cache fills the gaps of
    /// `range`; another class takes `range` only if the log has none of it. The caller holds the range lock.
    async fn copy(
        &self,
        key: DatafileKey,
        range: ByteRange,
        bytes: &[u8],
        class: DataClass,
        gain: i64,
    ) -> Result<u64, LogError> {
        let source = Source::Bytes(bytes);
        let copied = if class == DataClass::CACHED {
            self.copy_to_cache(key, range, source).await?
        } else if self.log.overlap(key, range).any {
            0
        } else {
            self.put_copy(key, range, source, class, gain).await?
        };
        add(&self.counters.bytes_preloaded, copied);
        Ok(copied)
    }

    /// Puts bytes that the disk has into the log, which has none of `range`. Returns their number; 0 if the log is
    /// full.
    pub(super) async fn put_copy(
        &self,
        key: DatafileKey,
        range: ByteRange,
        source: Source<'_, E>,
        class: DataClass,
        gain: i64,
    ) -> Result<u64, LogError> {
        let tag = Tag { class, gain, dirty: false, mtime: self.env.wall() };
        let put = {
            let _active = self.begin_log_request();
            source.to_log(&self.log, key, LocalOffset(range.start()), tag).await
        };
        match put {
            Ok(()) => {
                self.admitted(class, gain);
                Ok(range.len())
            }
            Err(LogError::Full) => Ok(0),
            Err(error) => Err(error),
        }
    }

    /// Whether any preload is queued.
    pub(super) fn has_preloads(&self) -> bool {
        !self.preloads.is_empty()
    }

    /// Bytes that are only on the SSD.
    pub(crate) fn dirty(&self) -> ByteLen {
        self.log.fill_level().0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_core::{FileId, ObjectId};

    fn key(file: u64) -> DatafileKey {
        DatafileKey { file: FileId(file), object: ObjectId { component: 0, column: 0 } }
    }

    fn queue(all: &[(u64, u64, u64)]) -> PreloadQueue {
        let preloads = PreloadQueue::default();
        for &(file, from, to) in all {
            preloads.add(key(file), ByteRange::new(from, to).expect("bytes"), DataClass::RANDOM, 1);
        }
        preloads
    }

    /// All ranges in the order in which they would be copied.
    fn copied(preloads: &PreloadQueue, gap_max: Option<u64>) -> Vec<(u64, u64, u64)> {
        let (mut all, mut after) = (Vec::new(), None);
        while let Some((key, range, ..)) = preloads.next(after, gap_max.map(ByteLen)) {
            after = Some((key, range.start()));
            all.push((key.file.0, range.start(), range.end()));
        }
        all
    }

    #[test]
    fn short_gaps_between_copies_are_copied_too() {
        let all =
            [(1, 0, 10), (1, 15, 20), (1, 26, 30), (2, 31, 32), (2, 31 + COPY_LEN_MAX, 40 + COPY_LEN_MAX)];
        assert_eq!(copied(&queue(&all), None), all);
        let joined =
            [(1, 0, 15), (1, 15, 20), (1, 26, 30), (2, 31, 32), (2, 31 + COPY_LEN_MAX, 40 + COPY_LEN_MAX)];
        assert_eq!(copied(&queue(&all), Some(5)), joined);
        // A range that is too long for one step is copied in several.
        let from = 31 + COPY_LEN_MAX;
        let joined = [(1, 0, 15), (1, 15, 26), (1, 26, 30), (2, 31, from), (2, from, from + 9)];
        assert_eq!(copied(&queue(&all), Some(COPY_LEN_MAX)), joined);
        let long = [(1, 0, 10), (1, 2 * COPY_LEN_MAX + 5, 2 * COPY_LEN_MAX + 6)];
        let steps =
            [(0, COPY_LEN_MAX), (COPY_LEN_MAX, 2 * COPY_LEN_MAX), (2 * COPY_LEN_MAX, 2 * COPY_LEN_MAX + 5)];
        let steps = steps.map(|(from, to)| (1, from, to)).into_iter().chain([long[1]]);
        assert_eq!(copied(&queue(&long), Some(3 * COPY_LEN_MAX)), steps.collect::<Vec<_>>());
        // A range that overlaps the next one keeps its own end.
        assert_eq!(copied(&queue(&[(1, 0, 10), (1, 5, 7)]), Some(1)), [(1, 0, 10), (1, 5, 7)]);
    }

    #[test]
    fn canceled_ranges_are_not_copied() {
        let all = queue(&[(1, 0, 10), (1, 10, 20), (1, 20, 30), (2, 10, 20)]);
        all.cancel(key(1), 10, 20);
        all.cancel(key(1), 25, 25);
        assert_eq!(copied(&all, None), [(1, 0, 10), (1, 20, 30), (2, 10, 20)]);
    }
}
