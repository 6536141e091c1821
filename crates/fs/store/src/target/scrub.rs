//! Scrubbing: verifies the datafiles of a target, and settles idle ones.

use super::{DATAFILE_LEN_MAX, Module, Target};
use crate::datafile::{Datafile, DatafileKey};
use crate::error::DatafileError;
use std::sync::atomic::Ordering;
use weft_core::{ByteLen, LocalOffset, Nanos};
use weft_env::Env;

/// Idle time after which a datafile is sealed: longer than the system keeps dirty pages, so that sealing finds little
/// left to write.
pub const SEAL_IDLE: Nanos = Nanos::from_s(45);
/// Time after the first change when a datafile is sealed although it is never idle.
pub const SEAL_AFTER: Nanos = Nanos::from_s(300);
/// Idle time after which the overlay of a compressed datafile is folded: longer than the pauses within a burst of small
/// writes, and short enough that most overlays never reach the disk.
pub const FOLD_IDLE: Nanos = Nanos::from_s(5);
/// Maximum number of datafiles per step of a scrub.
const DATAFILES_STEP: usize = 256;
/// Maximum number of datafiles sealed per call.
const SEALS_STEP: usize = 32;

/// A range of a datafile that does not match its checksums.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Damage {
    /// Datafile.
    pub key: DatafileKey,
    /// First byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
}

/// Result of a step of a scrub.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ScrubStep {
    /// Position to continue from; `None` at the end.
    pub next: Option<(DatafileKey, LocalOffset)>,
    /// Number of bytes verified.
    pub verified: ByteLen,
    /// Number of datafiles with checksums, or compressed, that this step completed.
    pub checked: u64,
    /// Datafiles that hold bytes without checksums; they are skipped.
    pub unchecked: Vec<DatafileKey>,
    /// Damaged ranges.
    pub damaged: Vec<Damage>,
}

impl<E: Env> Target<E> {
    /// Verifies about `budget` bytes of datafiles with checksums and of compressed ones, in the order of keys, from a
    /// datafile and offset on; `None` starts at the first. Reads from the disk instead of the page cache where the
    /// system allows it.
    ///
    /// # Errors
    /// Errors of the device.
    pub async fn scrub(
        &self,
        from: Option<(DatafileKey, LocalOffset)>,
        budget: ByteLen,
    ) -> Result<ScrubStep, DatafileError> {
        let mut step = ScrubStep::default();
        if self.module == Module::Null {
            return Ok(step);
        }
        let mut first = 0;
        let mut keys = Vec::new();
        let mut after = None;
        if let Some((key, offset)) = from {
            keys.push(key);
            first = offset.0;
            after = Some(key);
        }
        keys.extend(self.list_keys(after, DATAFILES_STEP).await?);
        let last = keys.last().copied();
        for key in keys {
            if step.verified >= budget {
                step.next = Some((key, LocalOffset(first)));
                return Ok(step);
            }
            let first = std::mem::take(&mut first);
            if !self.has_side_files() {
                self.note_unchecked(&mut step, key).await?;
                continue;
            }
            let datafile = match self.open_unless_removed(key).await {
                Err(DatafileError::MapMissing { .. } | DatafileError::MapDamaged { .. }) => {
                    step.damaged.push(Damage { key, start: 0, end: DATAFILE_LEN_MAX });
                    step.checked += 1;
                    continue;
                }
                Ok(None) => continue,
                Ok(Some(datafile)) => datafile,
                Err(error) => return Err(error),
            };
            if !datafile.content.is_verified() {
                self.note_unchecked(&mut step, key).await?;
                continue;
            }
            if first == 0 {
                let forgotten = datafile.content.forget().await;
                forgotten.map_err(|fault| self.fault(key, "drop its cached pages", fault))?;
            }
            let left = budget.0 - step.verified.0;
            let done = datafile.content.scrub(first, left).await;
            let Some(done) = done.map_err(|fault| self.fault(key, "read", fault))? else { continue };
            step.verified.0 += done.verified;
            let is_sound = done.damaged.is_empty();
            let damaged = done.damaged.into_iter();
            step.damaged.extend(damaged.map(|bytes| Damage { key, start: bytes.start, end: bytes.end }));
            if let Some(next) = done.next {
                step.next = Some((key, LocalOffset(next)));
                return Ok(step);
            }
            step.checked += 1;
            if is_sound && self.is_idle(datafile.content.unsettled(), Nanos::from_s(1)) {
                self.settle_open(key, &datafile).await?;
            }
        }
        if let Some(last) = last {
            step.next = self.list_keys(Some(last), 1).await?.first().map(|key| (*key, LocalOffset(0)));
        }
        Ok(step)
    }

    async fn note_unchecked(&self, step: &mut ScrubStep, key: DatafileKey) -> Result<(), DatafileError> {
        let meta = match self.meta(key).await {
            Err(DatafileError::Removed { .. }) => None,
            meta => meta?,
        };
        if meta.is_some_and(|meta| meta.len > ByteLen(0)) {
            step.unchecked.push(key);
        }
        Ok(())
    }

    /// Settles datafiles that have been idle for [`SEAL_IDLE`], or unsettled for [`SEAL_AFTER`]; returns their number.
    /// Folds the overlays of compressed ones after [`FOLD_IDLE`]. Call it every few seconds. Free on a target of plain
    /// datafiles.
    pub async fn seal_idle(&self) -> usize {
        if !self.has_side_files() {
            return 0;
        }
        let now = self.env.tick();
        let mut settled = 0;
        for key in self.upkeep.due(SEALS_STEP) {
            // Removed before settling, because a concurrent write adds it again.
            self.upkeep.forget(key);
            // A datafile that is not open has been idle for long.
            let is_open = self.open.get(key).is_some();
            let Ok(Some(datafile)) = self.open_unless_removed(key).await else { continue };
            let Some((since, changed)) = datafile.content.unsettled() else { continue };
            let at = changed.saturating_add(SEAL_IDLE).min(since.saturating_add(SEAL_AFTER));
            if is_open && at > now {
                let fold_at = datafile.content.fold_idle().await;
                self.upkeep.postpone(key, fold_at.map_or(at, |fold_at| at.min(fold_at)));
                continue;
            }
            // The next read or sync reports an error too. Until then the datafile counts as unsettled.
            settled += usize::from(self.settle_open(key, &datafile).await.is_ok());
        }
        settled
    }

    /// Settles a datafile at once, as [`seal_idle`](Self::seal_idle) does when it has been idle. From now on every
    /// mismatch of its checksums is damage, also after a loss of power, and all of a compressed datafile is compressed.
    /// Returns false if it is missing or plain.
    ///
    /// # Errors
    /// Errors of the device; damaged bytes.
    pub async fn settle(&self, key: DatafileKey) -> Result<bool, DatafileError> {
        let Some(datafile) = self.open_existing(key).await? else { return Ok(false) };
        if !datafile.content.is_verified() {
            return Ok(false);
        }
        self.settle_open(key, &datafile).await.map(|()| true)
    }

    async fn settle_open(&self, key: DatafileKey, datafile: &Datafile<E>) -> Result<(), DatafileError> {
        Box::pin(datafile.content.settle()).await.map_err(|fault| self.fault(key, "seal", fault))
    }

    /// Returns true if [`seal_idle`](Self::seal_idle) has work.
    pub fn has_idle(&self) -> bool {
        self.has_side_files() && self.upkeep.has_due()
    }

    /// Returns the number of datafiles that wait to be settled.
    pub fn unsettled_count(&self) -> usize {
        self.upkeep.unsettled_count()
    }

    /// Returns true if datafiles may have further files beside them.
    pub(super) fn has_side_files(&self) -> bool {
        self.has_sums.load(Ordering::Acquire) || self.has_compressed.load(Ordering::Acquire)
    }

    fn is_idle(&self, unsettled: Option<(Nanos, Nanos)>, idle: Nanos) -> bool {
        unsettled.is_some_and(|(_, changed)| self.env.tick().saturating_sub(changed) >= idle)
    }
}
