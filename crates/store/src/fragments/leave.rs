//! What leaves the log, or becomes clean.

use super::piece::State;
use super::record::Record;
use super::{FragmentLog, LogError, Piece};
use crate::datafile::DatafileKey;
use weft_core::ByteLen;
use weft_core::ranges::ByteRange;
use weft_env::Env;

/// So many entries of a removed datafile go while nobody else gets at the mapping: some tenths of a millisecond.
const REMOVED_AT_ONCE: usize = 1024;

impl<E: Env> FragmentLog<E> {
    /// Drops what is clean or lost of `extent`, because the disk is about to get newer bytes there. Dirty bytes stay.
    /// When this returns a killed process does not bring them back.
    ///
    /// # Errors
    /// [`LogError::Failed`]: then the disk must not be written there.
    pub async fn forget(&self, key: DatafileKey, extent: ByteRange) -> Result<(), LogError> {
        let record = Record::Forget(key, extent);
        self.drop_some(key, extent, &record, |state| state != State::Dirty).await
    }

    /// Drops everything of `extent`, dirty bytes too: after the log has failed, when the disk gets newer ones there.
    ///
    /// # Errors
    /// [`LogError::Failed`] when not even the disk takes the note: then it must not be written there.
    pub async fn give_up(&self, key: DatafileKey, extent: ByteRange) -> Result<(), LogError> {
        self.drop_some(key, extent, &Record::GiveUp(key, extent), |_| true).await
    }

    /// The datafile is cut to `len` (or made longer, which changes nothing here): bytes behind are gone. To be said before the
    /// disk is told; but where dirty bytes go and the disk has some under them, the disk is cut and synced before: a loss
    /// of power might keep this cut and not that of the disk, and uncover what had been overwritten long ago.
    ///
    /// # Errors
    /// [`LogError::Failed`]: then the disk must not be told.
    pub async fn cut(&self, key: DatafileKey, len: ByteLen) -> Result<(), LogError> {
        let Some(extent) = ByteRange::from(len.0) else { return Ok(()) };
        self.drop_some(key, extent, &Record::Cut(key, len.0), |_| true).await
    }

    /// The datafile is removed, and none of this key comes again. Nobody else may be at it.
    ///
    /// # Errors
    /// As [`cut`](Self::cut); then some of it may be gone.
    pub async fn remove(&self, key: DatafileKey) -> Result<(), LogError> {
        // Nobody will read it, so that it does not matter how much of it is gone should this end in the middle. Who removes it
        // asks again then, and finds the rest.
        while let Some(part) = self.first_part(key) {
            self.drop_some(key, part, &Record::GiveUp(key, part), |_| true).await?;
        }
        self.drop_some(key, ByteRange::ALL, &Record::Remove(key), |_| true).await
    }

    /// The part with the first entries of a datafile, unless these are all.
    fn first_part(&self, key: DatafileKey) -> Option<ByteRange> {
        if !self.0.filter.may_have(key) {
            return None;
        }
        let state = self.0.state.lock();
        let next = state.map.overlapping(key, ByteRange::ALL).nth(REMOVED_AT_ONCE)?;
        ByteRange::new(0, next.extent.start())
    }

    async fn drop_some(
        &self,
        key: DatafileKey,
        extent: ByteRange,
        record: &Record,
        goes: impl Fn(State) -> bool,
    ) -> Result<(), LogError> {
        let shared = &*self.0;
        if !shared.filter.may_have(key) && !shared.health.is_behind() {
            return Ok(());
        }
        self.exile().await?;
        let point = {
            let mut state = shared.state.lock();
            if !state.map.overlapping(key, extent).any(|entry| goes(entry.label.state)) {
                return Ok(());
            }
            shared.journals()?;
            state.map.remove(key, extent, goes);
            shared.filter.follow(&mut state.map);
            state.append(record)
        };
        self.commit_anywhere(point).await?;
        self.hint();
        Ok(())
    }

    /// The disk has these pieces and has been synced since: they are clean, where they have not changed meanwhile.
    ///
    /// # Errors
    /// [`LogError::Failed`]: then they stay dirty.
    pub async fn written_back(&self, pieces: &[Piece]) -> Result<(), LogError> {
        let shared = &*self.0;
        self.exile().await?;
        let point = {
            let mut state = shared.state.lock();
            shared.journals()?;
            for piece in pieces {
                for (part, label) in state.map.still(piece.key, piece.extent, piece.place) {
                    if label.state == State::Dirty {
                        state.map.clean(piece.key, part);
                        state.append(&Record::Clean(piece.key, part));
                    }
                }
            }
            state.point
        };
        self.commit_anywhere(point).await?;
        self.hint();
        Ok(())
    }
}
