//! Removal of entries from the log, and the transition to clean.

use super::map::Mapped;
use super::piece::State;
use super::record::Record;
use super::{FragmentLog, LogError, Piece};
use crate::datafile::DatafileKey;
use weft_core::ranges::ByteRange;
use weft_core::{ByteLen, DataClass};
use weft_env::Env;

/// Maximum number of entries of a removed datafile dropped per acquisition of the mapping's lock; a few tenths of a
/// millisecond.
const REMOVED_PER_LOCK_MAX: usize = 1024;

impl<E: Env> FragmentLog<E> {
    /// Drops clean and lost bytes of `extent`, because the disk is about to get newer ones. Dirty bytes stay. After
    /// this returns, a restart of a killed process does not bring the dropped bytes back.
    ///
    /// # Errors
    /// [`LogError::Failed`]: the disk must not be written there.
    pub async fn forget(&self, key: DatafileKey, extent: ByteRange) -> Result<(), LogError> {
        let record = Record::Forget(key, extent);
        self.drop_entries(key, extent, &record, |state| state != State::Dirty).await
    }

    /// Drops all bytes of `extent`, dirty ones included. Used when the disk gets newer bytes after the log has failed.
    ///
    /// # Errors
    /// [`LogError::Failed`] when not even the fallback journal can be written: the disk must not be written there.
    pub async fn abandon(&self, key: DatafileKey, extent: ByteRange) -> Result<(), LogError> {
        self.drop_entries(key, extent, &Record::Abandon(key, extent), |_| true).await
    }

    /// Drops all bytes from `len` on, because the datafile is truncated. Call it before truncating the disk's file.
    /// Exception: where the disk has bytes under dirty ones, truncate and sync the disk first. Otherwise a loss of
    /// power could keep this record and lose the disk's truncation, and expose bytes that had been overwritten long
    /// before.
    ///
    /// # Errors
    /// [`LogError::Failed`]: the disk's file must not be truncated.
    pub async fn truncate(&self, key: DatafileKey, len: ByteLen) -> Result<(), LogError> {
        let Some(extent) = ByteRange::from(len.0) else { return Ok(()) };
        self.drop_entries(key, extent, &Record::Truncate(key, len.0), |_| true).await
    }

    /// Drops all bytes of a datafile that is removed and whose key is never used again. No other operation on it may
    /// run.
    ///
    /// # Errors
    /// As for [`truncate`](Self::truncate); some bytes may be gone already.
    pub async fn remove(&self, key: DatafileKey) -> Result<(), LogError> {
        // In batches, which need not be atomic: nothing reads a removed datafile. After a crash, the caller repeats
        // the removal, which drops the rest.
        while let Some(part) = self.first_batch(key) {
            self.drop_entries(key, part, &Record::Abandon(key, part), |_| true).await?;
        }
        self.drop_entries(key, ByteRange::ALL, &Record::Remove(key), |_| true).await
    }

    /// Returns the range of the first batch of entries; `None` if the remaining entries fit one batch.
    fn first_batch(&self, key: DatafileKey) -> Option<ByteRange> {
        if !self.0.filter.may_have(key) {
            return None;
        }
        let state = self.0.state.lock();
        let next = state.map.overlapping(key, ByteRange::ALL).nth(REMOVED_PER_LOCK_MAX)?;
        ByteRange::new(0, next.extent.start())
    }

    async fn drop_entries(
        &self,
        key: DatafileKey,
        extent: ByteRange,
        record: &Record,
        goes: impl Fn(State) -> bool,
    ) -> Result<(), LogError> {
        let shared = &*self.0;
        if !shared.filter.may_have(key) && !shared.health.is_journal_stale() {
            return Ok(());
        }
        self.ensure_journal().await?;
        let lsn = {
            let mut state = shared.state.lock();
            if !state.map.overlapping(key, extent).any(|entry| goes(entry.label.state)) {
                return Ok(());
            }
            shared.check_journal()?;
            state.map.remove(key, extent, goes);
            shared.filter.update(&mut state.map);
            state.append(record)
        };
        self.commit_anywhere(lsn).await?;
        self.wake_if_due();
        Ok(())
    }

    /// Drops the clean bytes of a class in `extent`, to make space; returns their number. Other operations on the range
    /// may run: the journal gets the record before the bytes leave the mapping.
    ///
    /// # Errors
    /// [`LogError::Failed`]: the bytes stay.
    pub async fn evict_range(
        &self,
        key: DatafileKey,
        extent: ByteRange,
        class: DataClass,
    ) -> Result<ByteLen, LogError> {
        if !self.0.filter.may_have(key) {
            return Ok(ByteLen(0));
        }
        let victims: Vec<Mapped> = {
            let state = self.0.state.lock();
            let entries = state.map.overlapping(key, extent);
            let evictable = entries.filter(|entry| entry.label.class == class && entry.label.is_evictable());
            evictable.map(|entry| entry.clipped(extent)).collect()
        };
        if victims.is_empty() {
            return Ok(ByteLen(0));
        }
        self.evict(&victims).await?;
        Ok(ByteLen(victims.iter().map(|entry| entry.extent.len()).sum()))
    }

    /// Marks all copies of a datafile as clean, so that they outlive an orderly boot of the machine. The caller has
    /// synced the datafile on the disk, and nothing has read or written it since.
    ///
    /// # Errors
    /// [`LogError::Failed`]: some stay copies.
    pub async fn settle_copies(&self, key: DatafileKey) -> Result<(), LogError> {
        let shared = &*self.0;
        if !shared.filter.may_have(key) {
            return Ok(());
        }
        shared.check_healthy()?;
        let lsn = {
            let mut state = shared.state.lock();
            let entries = state.map.overlapping(key, ByteRange::ALL);
            let copies: Vec<ByteRange> =
                entries.filter(|entry| entry.label.state == State::Copy).map(|entry| entry.extent).collect();
            for extent in copies {
                state.map.clean(key, extent);
                state.append(&Record::Clean(key, extent));
            }
            state.lsn
        };
        self.commit(lsn).await
    }

    /// Returns the clean ranges of a class, least recently used first.
    pub fn clean_ranges(&self, class: DataClass) -> Vec<(DatafileKey, ByteRange)> {
        let state = self.0.state.lock();
        state.map.evictable(class).map(|entry| (entry.key, entry.extent)).collect()
    }

    /// Returns the number of dirty and of clean bytes of a class in `extent`.
    pub fn class_bytes_in(
        &self,
        key: DatafileKey,
        extent: ByteRange,
        class: DataClass,
    ) -> (ByteLen, ByteLen) {
        let (mut dirty, mut clean) = (0, 0);
        if self.0.filter.may_have(key) {
            let state = self.0.state.lock();
            for entry in state.map.overlapping(key, extent).filter(|entry| entry.label.class == class) {
                let len = entry.extent.intersection(extent).map_or(0, |part| part.len());
                match entry.label.state {
                    State::Dirty => dirty += len,
                    State::Clean | State::Copy => clean += len,
                    State::Lost => {}
                }
            }
        }
        (ByteLen(dirty), ByteLen(clean))
    }

    /// Returns the ranges of a class that the log can read, in the order of datafile and offset.
    pub fn ranges_of(&self, class: DataClass) -> Vec<(DatafileKey, ByteRange)> {
        let state = self.0.state.lock();
        let entries =
            state.map.keys_from(None).flat_map(|(key, _)| state.map.overlapping(key, ByteRange::ALL));
        let of_class = entries.filter(|entry| entry.label.class == class && entry.label.state != State::Lost);
        of_class.map(|entry| (entry.key, entry.extent)).collect()
    }

    /// Returns the number of dirty and of clean bytes of a class.
    pub fn class_bytes(&self, class: DataClass) -> (ByteLen, ByteLen) {
        let total = self.0.state.lock().map.classes[class.index()];
        (ByteLen(total.dirty), ByteLen(total.clean))
    }

    /// Returns whether the log has clean copies of a datafile whose source may be only in the disk's cache.
    pub fn has_copies(&self, key: DatafileKey) -> bool {
        if !self.0.filter.may_have(key) {
            return false;
        }
        let state = self.0.state.lock();
        state.map.overlapping(key, ByteRange::ALL).any(|entry| entry.label.state == State::Copy)
    }

    /// Marks pieces as clean where they have not changed. The disk has their bytes and was synced since.
    ///
    /// # Errors
    /// [`LogError::Failed`]: the pieces stay dirty.
    pub async fn mark_clean(&self, pieces: &[Piece]) -> Result<(), LogError> {
        let shared = &*self.0;
        self.ensure_journal().await?;
        let lsn = {
            let mut state = shared.state.lock();
            shared.check_journal()?;
            for piece in pieces {
                for (part, label) in state.map.parts_at(piece.key, piece.extent, piece.location) {
                    if label.state == State::Dirty {
                        state.map.clean(piece.key, part);
                        state.append(&Record::Clean(piece.key, part));
                    }
                }
            }
            state.lsn
        };
        self.commit_anywhere(lsn).await?;
        self.wake_if_due();
        Ok(())
    }
}
