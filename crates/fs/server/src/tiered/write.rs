//! Writes, truncation, holes and removal of a tiered target.

use super::counters::add;
use super::ssd_tier::{SsdTier, range};
use super::{DiskAdmission, Source, TieredTarget};
use std::sync::atomic::Ordering;
use weft_core::cache::CacheMode;
use weft_core::ibridge::Verdict;
use weft_core::ranges::ByteRange;
use weft_core::{ByteLen, DataClass, LocalExtent, LocalOffset};
use weft_env::Env;
use weft_env::mutants::{Mutant, is_seeded};
use weft_store::aligned::AlignedBuf;
use weft_store::datafile::DatafileKey;
use weft_store::error::DatafileError;
use weft_store::fragments::{LogError, Piece, Tag};
use weft_store::target::Target;
use weft_wire::data::IoHints;

/// The bytes of a source, and the extent of a datafile they belong to.
struct SourceExtent<'a, E: Env> {
    key: DatafileKey,
    start: u64,
    source: Source<'a, E>,
}

impl<E: Env> SourceExtent<'_, E> {
    /// Bytes of `range`, which lies inside.
    fn of(&self, range: ByteRange) -> Source<'_, E> {
        self.source.part(range.start() - self.start, range.len())
    }
}

impl<E: Env> TieredTarget<E> {
    /// Writes all of `source`. After an error some of it may have been written.
    ///
    /// # Errors
    /// Errors of the devices.
    pub async fn write(
        &self,
        key: DatafileKey,
        offset: LocalOffset,
        source: Source<'_, E>,
        hints: &IoHints,
        admission: DiskAdmission<'_, E>,
    ) -> Result<(), DatafileError> {
        let extent = LocalExtent { offset, len: source.len() };
        let (Some(tier), Some(all)) = (&self.tier, range(extent)) else {
            let _permit = self.enter(admission).await;
            return source.to_disk(&self.target, key, offset).await;
        };
        let bytes = SourceExtent { key, start: offset.0, source };
        let _guard = tier.range_locks.lock_for_change(key, all.start(), all.end()).await;
        let arrived = tier.policies.needs_write_times().then(|| tier.env.now());
        let writer = (admission.session, arrived);
        let mode = tier.cache.as_ref().map_or(CacheMode::Off, |cache| cache.config.mode);
        let may_be_cached = mode == CacheMode::WriteBack;
        let verdict = tier.policies.write(&tier.env, key, extent, writer, (hints, may_be_cached));
        let is_counted = verdict == Verdict::Disk && !may_be_cached;
        let mut keeps_copy = false;
        let to_disk = match verdict {
            Verdict::Disk | Verdict::Outgrown { .. } => {
                let is_admitted =
                    tier.cache.as_ref().is_some_and(|cache| cache.write(admission.session, key, extent));
                keeps_copy = is_admitted && mode == CacheMode::WriteThrough;
                let mut is_on_ssd = false;
                if is_admitted && mode == CacheMode::WriteBack {
                    self.target.check_not_removed(key)?;
                    tier.make_room(all.len()).await;
                    is_on_ssd = tier.admit(&bytes, all, DataClass::CACHED, 0).await;
                }
                (!is_on_ssd).then_some(all)
            }
            Verdict::Ssd { class, gain } => {
                self.target.check_not_removed(key)?;
                match tier.admit(&bytes, all, class.into(), gain).await {
                    true => None,
                    false => Some(all),
                }
            }
            Verdict::Edges { head, tail, class, gain } => {
                self.target.check_not_removed(key)?;
                let mut middle = all;
                let edge = |start, end| ByteRange::new(start, end);
                if let Some(head) = edge(all.start(), all.start() + head)
                    && tier.admit(&bytes, head, class.into(), gain).await
                {
                    middle = edge(head.end(), all.end()).expect("the edges leave a middle");
                }
                if let Some(tail) = edge(all.end() - tail, all.end())
                    && tier.admit(&bytes, tail, class.into(), gain).await
                {
                    middle = edge(middle.start(), tail.start()).expect("the edges leave a middle");
                }
                Some(middle)
            }
        };
        match to_disk {
            Some(range) => {
                let began = arrived.map(|at| if is_counted { at } else { tier.env.now() });
                let began = began.map(|at| (at, tier.begin_disk_write()));
                let extent = LocalExtent { offset: LocalOffset(range.start()), len: ByteLen(range.len()) };
                let permit = self.enter(admission).await;
                if !is_counted {
                    tier.policies.served_by_disk(key, extent, true);
                }
                tier.write_to_disk(&self.target, &bytes, range).await?;
                if let Some((began, writing)) = began {
                    tier.policies.took(key, extent, (began, tier.env.now()), writing.count());
                }
                drop(permit);
                if keeps_copy {
                    self.target.check_not_removed(key)?;
                    // A full or failed log keeps no copy; the disk has the bytes.
                    let _ = tier.copy_to_cache(key, range, bytes.of(range)).await;
                } else {
                    tier.refresh_cache(key, range);
                }
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Truncates or extends a datafile. A length of zero does not create a missing one.
    ///
    /// # Errors
    /// Errors of the devices.
    pub async fn set_len(
        &self,
        key: DatafileKey,
        len: ByteLen,
        admission: DiskAdmission<'_, E>,
    ) -> Result<(), DatafileError> {
        let Some(tier) = &self.tier else {
            let _permit = self.enter(admission).await;
            return self.target.set_len(key, len).await;
        };
        let _guard = tier.range_locks.lock_for_change(key, 0, u64::MAX).await;
        let _permit = self.enter(admission).await;
        let _change = tier.durable.begin_change(key);
        let behind = ByteRange::from(len.0).expect("a datafile's length is below the maximum");
        let overlap = tier.log.overlap(key, behind);
        if !overlap.any {
            return self.target.set_len(key, len).await;
        }
        // Dirty bytes behind `len` may cover older bytes of the disk, or may alone make the datafile as long as it is.
        // If power is lost after the log drops them and before the disk has the new length, the older bytes come back
        // or the length is lost. So the disk's new length becomes durable first.
        let on_disk = self.target.meta(key).await?.map_or(ByteLen(0), |meta| meta.len);
        if overlap.dirty && on_disk != len {
            self.target.set_len(key, len).await?;
            self.target.sync(key).await?;
            return tier.truncate(key, len).await;
        }
        tier.truncate(key, len).await?;
        self.target.set_len(key, len).await
    }

    /// Makes a hole: the bytes of `extent` read as zeros, up to the datafile's end.
    ///
    /// Where the log has dirty bytes, it gets zeros that are written back later. So older bytes of the disk never come
    /// back, even after a loss of power.
    ///
    /// # Errors
    /// Errors of the devices, or a file system of the disk without support for holes.
    pub async fn punch(
        &self,
        key: DatafileKey,
        extent: LocalExtent,
        admission: DiskAdmission<'_, E>,
    ) -> Result<(), DatafileError> {
        let (Some(tier), Some(all)) = (&self.tier, range(extent)) else {
            let _permit = self.enter(admission).await;
            return self.target.punch(key, extent.offset, extent.len).await;
        };
        let bytes = SourceExtent { key, start: extent.offset.0, source: Source::Hole(extent.len) };
        let _guard = tier.range_locks.lock_for_change(key, all.start(), all.end()).await;
        let _permit = self.enter(admission).await;
        tier.write_to_disk(&self.target, &bytes, all).await?;
        tier.refresh_cache(key, all);
        Ok(())
    }

    /// Offset of the first byte at or after `offset` that is not in a hole; `None` if there is none.
    ///
    /// # Errors
    /// Errors of the disk.
    pub async fn seek_data(
        &self,
        key: DatafileKey,
        offset: LocalOffset,
    ) -> Result<Option<LocalOffset>, DatafileError> {
        let logged = self.logged(key, offset);
        let on_disk = self.target.seek_data(key, offset).await?;
        Ok(logged.first().map(|piece| LocalOffset(piece.start())).into_iter().chain(on_disk).min())
    }

    /// Offset of the first byte at or after `offset` that is in a hole. All bytes behind the end count as a hole.
    ///
    /// # Errors
    /// Errors of the disk.
    pub async fn seek_hole(
        &self,
        key: DatafileKey,
        offset: LocalOffset,
    ) -> Result<LocalOffset, DatafileError> {
        let mut at = self.target.seek_hole(key, offset).await?;
        for piece in self.logged(key, offset) {
            if at.0 < piece.start() {
                break;
            }
            if at.0 < piece.end() {
                at = self.target.seek_hole(key, LocalOffset(piece.end())).await?;
            }
        }
        Ok(at)
    }

    /// Ranges in the log at or after `offset`, in order.
    fn logged(&self, key: DatafileKey, offset: LocalOffset) -> Vec<ByteRange> {
        match (&self.tier, ByteRange::from(offset.0)) {
            (Some(tier), Some(behind)) => tier.log.extents(key, behind),
            _ => Vec::new(),
        }
    }

    /// Removes a datafile. Succeeds if it does not exist.
    ///
    /// # Errors
    /// Errors of the devices.
    pub async fn remove(
        &self,
        key: DatafileKey,
        admission: DiskAdmission<'_, E>,
    ) -> Result<(), DatafileError> {
        let Some(tier) = &self.tier else {
            let _permit = self.enter(admission).await;
            return self.target.remove(key).await;
        };
        // The disk first: a reader that finds nothing in the log any more must not find older bytes on the disk.
        {
            let _permit = self.enter(admission).await;
            let _change = tier.durable.begin_change(key);
            self.target.remove(key).await?;
        }
        tier.forget(key).await
    }
}

impl<E: Env> SsdTier<E> {
    /// Drops everything about a removed datafile.
    pub(super) async fn forget(&self, key: DatafileKey) -> Result<(), DatafileError> {
        let _guard = self.range_locks.lock_for_change(key, 0, u64::MAX).await;
        self.preloads.forget(key);
        self.prefetches.forget(key);
        match self.log.remove(key).await {
            Err(LogError::Failed { .. }) => self.log.abandon(key, ByteRange::ALL).await?,
            removed => removed?,
        }
        self.forget_cached(key, 0);
        Ok(())
    }

    fn forget_cached(&self, key: DatafileKey, from: u64) {
        if let Some(cache) = &self.cache {
            cache.forget_from(&self.log, key, from);
        }
    }

    /// Drops what the log has from `len` on.
    async fn truncate(&self, key: DatafileKey, len: ByteLen) -> Result<(), DatafileError> {
        match (self.log.truncate(key, len).await, ByteRange::from(len.0)) {
            (Err(LogError::Failed { .. }), Some(behind)) => self.log.abandon(key, behind).await?,
            (cut, _) => cut?,
        }
        self.forget_cached(key, len.0);
        Ok(())
    }

    /// Puts the bytes of `range` into the log; false if the disk has to take them.
    async fn admit(
        &self,
        bytes: &SourceExtent<'_, E>,
        range: ByteRange,
        class: DataClass,
        gain: i64,
    ) -> bool {
        let tag = Tag { class, gain, dirty: true, mtime: self.env.wall() };
        if self.put(bytes, range, tag).await.is_err() {
            return false;
        }
        self.policies.served_by_ssd(class, ByteLen(range.len()));
        self.admitted(class, gain);
        self.refresh_cache(bytes.key, range);
        true
    }

    async fn put(&self, bytes: &SourceExtent<'_, E>, range: ByteRange, tag: Tag) -> Result<(), LogError> {
        {
            let _active = self.begin_log_request();
            self.log_requests.fetch_add(1, Ordering::Relaxed);
            let offset = LocalOffset(range.start());
            bytes.of(range).to_log(&self.log, bytes.key, offset, tag).await?;
        }
        add(&self.counters.bytes_written, range.len());
        self.wake();
        Ok(())
    }

    /// Writes the bytes of `range` to the disk. Where the log has dirty bytes, they are superseded in the log first.
    async fn write_to_disk(
        &self,
        target: &Target<E>,
        bytes: &SourceExtent<'_, E>,
        range: ByteRange,
    ) -> Result<(), DatafileError> {
        let _change = self.durable.begin_change(bytes.key);
        let overlap = self.log.overlap(bytes.key, range);
        let is_given_up = overlap.any && self.supersede(target, bytes, range).await?;
        // The whole range goes to the disk, including the parts the log has: what the disk has under dirty bytes does
        // not count.
        bytes.of(range).to_disk(target, bytes.key, LocalOffset(range.start())).await?;
        if is_given_up {
            // The failed log gives its bytes up only after the newer ones are durable on the disk. The disk may be
            // full. And after a loss of power, the record that the log gave up its bytes could survive while the newer
            // bytes do not.
            if overlap.dirty {
                if matches!(bytes.source, Source::Hole(_)) {
                    self.extend_disk(target, bytes.key, range).await?;
                }
                target.sync(bytes.key).await?;
            }
            self.log.abandon(bytes.key, range).await?;
        }
        Ok(())
    }

    /// Extends the disk's datafile as far as the dirty bytes of `range` make it reach, before they are given up. A hole
    /// does not extend it. The caller holds the range lock, and the range reads as zeros.
    async fn extend_disk(
        &self,
        target: &Target<E>,
        key: DatafileKey,
        range: ByteRange,
    ) -> Result<(), DatafileError> {
        let dirty = self.log.find(key, range).into_iter().filter(Piece::is_dirty);
        let Some(end) = dirty.map(|piece| piece.extent().end()).max() else { return Ok(()) };
        let len = target.meta(key).await?.map_or(ByteLen(0), |meta| meta.len);
        if len.0 < end {
            target.write(key, LocalOffset(end - 1), &[0]).await?;
        }
        Ok(())
    }

    /// Supersedes the dirty bytes of `range` in the log with the newer ones, and forgets the clean ones. Returns true
    /// if the SSD has failed; the log then gives up the range after the disk has the newer bytes.
    async fn supersede(
        &self,
        target: &Target<E>,
        bytes: &SourceExtent<'_, E>,
        range: ByteRange,
    ) -> Result<bool, DatafileError> {
        target.check_not_removed(bytes.key)?;
        match self.try_supersede(target, bytes, range).await {
            Err(DatafileError::Log(LogError::Failed { .. })) => Ok(true),
            other => other.map(|()| false),
        }
    }

    async fn try_supersede(
        &self,
        target: &Target<E>,
        bytes: &SourceExtent<'_, E>,
        range: ByteRange,
    ) -> Result<(), DatafileError> {
        let is_dirty = |piece: &Piece| piece.is_dirty() && !is_seeded(Mutant::HiddenBytes);
        for piece in self.log.find(bytes.key, range).into_iter().filter(is_dirty) {
            let tag = Tag { class: piece.class(), gain: 0, dirty: true, mtime: self.env.wall() };
            match self.put(bytes, piece.extent(), tag).await {
                Err(LogError::Full) => self.write_back_piece(target, piece).await?,
                other => other?,
            }
        }
        if is_seeded(Mutant::UnforgottenCopy) {
            return Ok(());
        }
        let is_cached = || self.log.class_bytes_in(bytes.key, range, DataClass::CACHED).1 > ByteLen(0);
        if is_seeded(Mutant::KeptCacheCopy) && is_cached() {
            return Ok(());
        }
        Ok(self.log.forget(bytes.key, range).await?)
    }

    /// Writes a dirty piece back and syncs it at once. The caller holds the range lock.
    async fn write_back_piece(&self, target: &Target<E>, piece: Piece) -> Result<(), DatafileError> {
        let (key, extent) = (piece.key(), piece.extent());
        let mut dirty = vec![piece];
        while let Some(piece) = dirty.pop() {
            if piece.is_lost() {
                continue; // `forget` drops it
            }
            let mut buf = AlignedBuf::zeroed(piece.extent().len() as usize);
            self.log.read(&piece, &mut buf).await?;
            target.write(key, LocalOffset(piece.extent().start()), &buf).await?;
            target.sync(key).await?;
            self.log.mark_clean(&[piece]).await?;
            if dirty.is_empty() && !is_seeded(Mutant::MissedMove) {
                // The log's cleaner may have moved parts meanwhile; these are still dirty.
                dirty = self.log.find(key, extent);
                dirty.retain(|piece| piece.is_dirty() && !piece.is_lost());
            }
        }
        Ok(())
    }
}
