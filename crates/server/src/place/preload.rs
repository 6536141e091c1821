//! Copies of what reads missed, made when the devices have nothing else to do.

use super::Placed;
use super::bridge::Bridge;
use super::counters::add;
use super::ranges::Changes;
use super::span::gaps;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use weft_core::ibridge::Class;
use weft_core::ranges::ByteRange;
use weft_core::{ByteLen, LocalOffset, Nanos};
use weft_env::Env;
use weft_store::datafile::DatafileKey;
use weft_store::error::DatafileError;
use weft_store::fragments::{LogError, Piece, Tag};

/// The most ranges remembered for a later copy: 6 MB of memory.
const WISHES_MAX: usize = 65_536;
/// Up to here bytes are copied as they have just been read, if the SSD is idle: whoever asks next on the same connection
/// waits for it. Longer ones are read once more when nobody asks.
const KEEP_MAX: u64 = 32 << 10;
/// The longest range copied at a time.
const COPY_MAX: u64 = 1 << 20;

/// A read that the SSD should have had.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Miss {
    pub class: Class,
    pub gain: i64,
    /// Of the datafile, before it was read.
    pub(super) changes: Changes,
    /// So far the log knew the datafile to reach.
    pub(super) end: ByteLen,
    /// How long the disk took, with all that it waited for.
    pub(super) took: Nanos,
}

impl Miss {
    /// Whether a copy of `len` bytes may be made of what has just been read.
    pub const fn wants_bytes(&self, len: usize) -> bool {
        len as u64 <= KEEP_MAX
    }
}

/// Where bytes begin that are to be copied.
type Start = (DatafileKey, u64);
/// How many, on account of what, with which return.
type Wish = (u64, Class, i64);

/// What is to be copied later, in the order of datafile and offset.
#[derive(Default)]
pub(super) struct Wishes {
    all: Mutex<BTreeMap<Start, Wish>>,
}

impl Wishes {
    fn add(&self, key: DatafileKey, range: ByteRange, class: Class, gain: i64) {
        let mut all = self.all.lock();
        if all.len() < WISHES_MAX {
            all.insert((key, range.start()), (range.len(), class, gain));
        }
    }

    pub fn is_empty(&self) -> bool {
        self.all.lock().is_empty()
    }

    /// What begins from `from` on and before `to` is not to be copied after all.
    pub fn take_back(&self, key: DatafileKey, from: u64, to: u64) {
        let mut all = self.all.lock();
        while let Some((&at, _)) = all.range((key, from)..(key, to)).next() {
            all.remove(&at);
        }
    }

    /// The datafile is gone.
    pub fn forget(&self, key: DatafileKey) {
        let mut all = self.all.lock();
        if !all.is_empty() {
            all.retain(|(wished, _), _| *wished != key);
        }
    }

    /// The next one, up to the one behind it if the gap between them is no longer than `gap_max`, and not more than can be copied
    /// at a time: what is left of it is the next one then.
    fn next(
        &self,
        after: Option<Start>,
        gap_max: Option<ByteLen>,
    ) -> Option<(DatafileKey, ByteRange, Class, i64)> {
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
            if len > COPY_MAX {
                let rest = (at.0, at.1 + COPY_MAX);
                all.entry(rest).or_insert((len - COPY_MAX, class, gain));
                len = COPY_MAX;
            }
        }
        Some((at.0, ByteRange::with_len(at.1, len)?, class, gain))
    }
}

impl<E: Env> Placed<E> {
    /// A read of `bytes` missed, and the client has been answered: the SSD gets them now if it is idle, else later.
    pub async fn keep(&self, miss: &Miss, key: DatafileKey, offset: LocalOffset, bytes: &[u8]) {
        let Some((bridge, range)) = self.worth_a_copy(miss, offset, bytes.len()) else { return };
        if miss.wants_bytes(bytes.len()) && bridge.is_idle() {
            let _guard = bridge.ranges.hold(key, range.start(), range.end()).await;
            if bridge.ranges.changes(key) == miss.changes && self.may_copy(key) {
                // Without room it is not kept, and a log that fails says so by itself.
                let _ = bridge.copy(key, range, bytes, miss.class, miss.gain).await;
                return;
            }
        }
        bridge.wish(miss, key, range);
    }

    /// A read of `len` bytes missed that are not here any more: the SSD gets them later.
    pub fn keep_later(&self, miss: &Miss, key: DatafileKey, offset: LocalOffset, len: usize) {
        if let Some((bridge, range)) = self.worth_a_copy(miss, offset, len) {
            bridge.wish(miss, key, range);
        }
    }

    fn worth_a_copy(&self, miss: &Miss, offset: LocalOffset, len: usize) -> Option<(&Bridge<E>, ByteRange)> {
        let bridge = self.bridge.as_ref()?;
        let range = ByteRange::with_len(offset.0, len as u64)?;
        bridge.policies.is_worth_a_copy(ByteLen(range.len()), miss.took).then_some((bridge, range))
    }

    /// Copies one of the ranges that reads missed, after `after` if there is one; where it was, `None` when there is none.
    pub(super) async fn copy_next(
        &self,
        bridge: &Bridge<E>,
        after: Option<Start>,
        buf: &mut [u8],
    ) -> Result<Option<Start>, DatafileError> {
        let gap_max = bridge.policies.gap_max();
        let Some((key, range, class, gain)) = bridge.wishes.next(after, gap_max) else { return Ok(None) };
        let done = Some((key, range.start()));
        if range.len() > COPY_MAX.min(buf.len() as u64) {
            return Ok(done);
        }
        let _guard = bridge.ranges.hold(key, range.start(), range.end()).await;
        if !self.may_copy(key) {
            return Ok(done);
        }
        let pieces = bridge.log.find(key, range);
        if gap_max.is_none() && bridge.log.overlap(key, range).any {
            return Ok(done);
        }
        for part in gaps(range, pieces.iter().map(Piece::extent), |_| false) {
            let buf = &mut buf[..part.len() as usize];
            let (count, _) = self.target.read(key, LocalOffset(part.start()), buf).await?;
            if let Some(part) = ByteRange::with_len(part.start(), count as u64) {
                bridge.copy(key, part, &buf[..count], class, gain).await?;
            }
        }
        Ok(done)
    }

    /// Whether the log may get anything of a datafile of which the caller holds a range: who removes one buries it first, takes
    /// it out of the log when nobody holds any of it, and off the disk last.
    fn may_copy(&self, key: DatafileKey) -> bool {
        self.target.check_not_removed(key).is_ok()
    }

    /// The longest buffer that [`copy_next`](Self::copy_next) needs.
    pub(super) const COPY_LEN: usize = COPY_MAX as usize;
}

impl<E: Env> Bridge<E> {
    /// What missed is to be copied when nobody asks.
    fn wish(&self, miss: &Miss, key: DatafileKey, range: ByteRange) {
        self.wishes.add(key, range, miss.class, miss.gain);
        self.has_work();
    }

    /// Puts a copy of what the disk has into the log. The range is the caller's.
    async fn copy(
        &self,
        key: DatafileKey,
        range: ByteRange,
        bytes: &[u8],
        class: Class,
        gain: i64,
    ) -> Result<(), LogError> {
        if self.log.overlap(key, range).any {
            return Ok(());
        }
        let tag = Tag { class, gain, dirty: false, mtime: self.env.wall() };
        let put = {
            let _busy = self.busy();
            self.log.put(key, LocalOffset(range.start()), bytes, tag).await
        };
        match put {
            Ok(()) => {
                add(&self.counters.bytes_preloaded, range.len());
                self.admitted(class, gain);
                Ok(())
            }
            Err(LogError::Full) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Whether reads have left anything to copy.
    pub(super) fn has_wishes(&self) -> bool {
        !self.wishes.is_empty()
    }

    /// Bytes that lie on the SSD alone.
    pub(crate) fn dirty(&self) -> ByteLen {
        self.log.filled().0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_core::{FileId, ObjectId};

    fn key(file: u64) -> DatafileKey {
        DatafileKey { file: FileId(file), object: ObjectId { component: 0, column: 0 } }
    }

    fn wishes(all: &[(u64, u64, u64)]) -> Wishes {
        let wishes = Wishes::default();
        for &(file, from, to) in all {
            wishes.add(key(file), ByteRange::new(from, to).expect("bytes"), Class::Random, 1);
        }
        wishes
    }

    /// All that would be copied, in this order.
    fn copied(wishes: &Wishes, gap_max: Option<u64>) -> Vec<(u64, u64, u64)> {
        let (mut all, mut after) = (Vec::new(), None);
        while let Some((key, range, ..)) = wishes.next(after, gap_max.map(ByteLen)) {
            after = Some((key, range.start()));
            all.push((key.file.0, range.start(), range.end()));
        }
        all
    }

    #[test]
    fn short_gaps_between_copies_are_copied_too() {
        let all = [(1, 0, 10), (1, 15, 20), (1, 26, 30), (2, 31, 32), (2, 31 + COPY_MAX, 40 + COPY_MAX)];
        assert_eq!(copied(&wishes(&all), None), all);
        let joined = [(1, 0, 15), (1, 15, 20), (1, 26, 30), (2, 31, 32), (2, 31 + COPY_MAX, 40 + COPY_MAX)];
        assert_eq!(copied(&wishes(&all), Some(5)), joined);
        // More than can be copied at a time is copied in steps.
        let from = 31 + COPY_MAX;
        let joined = [(1, 0, 15), (1, 15, 26), (1, 26, 30), (2, 31, from), (2, from, from + 9)];
        assert_eq!(copied(&wishes(&all), Some(COPY_MAX)), joined);
        let long = [(1, 0, 10), (1, 2 * COPY_MAX + 5, 2 * COPY_MAX + 6)];
        let steps = [(0, COPY_MAX), (COPY_MAX, 2 * COPY_MAX), (2 * COPY_MAX, 2 * COPY_MAX + 5)];
        let steps = steps.map(|(from, to)| (1, from, to)).into_iter().chain([long[1]]);
        assert_eq!(copied(&wishes(&long), Some(3 * COPY_MAX)), steps.collect::<Vec<_>>());
        // Who overlaps another ends where it ends.
        assert_eq!(copied(&wishes(&[(1, 0, 10), (1, 5, 7)]), Some(1)), [(1, 0, 10), (1, 5, 7)]);
    }

    #[test]
    fn what_is_taken_back_is_not_copied() {
        let all = wishes(&[(1, 0, 10), (1, 10, 20), (1, 20, 30), (2, 10, 20)]);
        all.take_back(key(1), 10, 20);
        all.take_back(key(1), 25, 25);
        assert_eq!(copied(&all, None), [(1, 0, 10), (1, 20, 30), (2, 10, 20)]);
    }
}
