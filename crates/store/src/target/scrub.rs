//! Verifying what lies on a target, and sealing what has been idle.

use super::{Module, Target};
use crate::datafile::DatafileKey;
use crate::error::DatafileError;
use crate::integrity::BLOCK_BYTES;
use std::sync::atomic::Ordering;
use weft_core::{ByteLen, LocalOffset, Nanos};
use weft_env::{Env, File};

/// A datafile is sealed when nothing has changed it for this time: longer than the system keeps changed pages, so that
/// sealing finds little left to write.
pub const SEAL_IDLE: Nanos = Nanos::from_s(45);
/// A datafile that never rests is sealed this long after its first change.
pub const SEAL_AFTER: Nanos = Nanos::from_s(300);
/// Most datafiles that are remembered for sealing; those beyond are sealed by a scrub.
const UNSEALED_MAX: usize = 65_536;
/// Most datafiles that one step of a scrub looks at.
const DATAFILES_STEP: usize = 256;
/// Most datafiles that are sealed at once.
const SEALS_STEP: usize = 32;

/// Bytes of a datafile that do not match their checksums.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Damage {
    /// The datafile.
    pub key: DatafileKey,
    /// First byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
}

/// Result of one step of a scrub.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ScrubStep {
    /// Where to go on; `None` at the end.
    pub next: Option<(DatafileKey, LocalOffset)>,
    /// Bytes that were verified.
    pub verified: ByteLen,
    /// Datafiles with checksums that this step came to the end of.
    pub checked: u64,
    /// Datafiles that hold bytes without checksums, which this step passed over.
    pub unchecked: Vec<DatafileKey>,
    /// Damaged ranges.
    pub damaged: Vec<Damage>,
}

impl<E: Env> Target<E> {
    /// Verifies about `budget` bytes of the datafiles with checksums, in the order of their keys, from byte `from` of one
    /// on; `None` begins. Reads from the disk, not from memory, where the system allows.
    ///
    /// # Errors
    /// Of the device.
    pub async fn scrub(
        &self,
        from: Option<(DatafileKey, LocalOffset)>,
        budget: ByteLen,
    ) -> Result<ScrubStep, DatafileError> {
        let mut step = ScrubStep::default();
        if self.module == Module::Null {
            return Ok(step);
        }
        let has_sums = self.has_sums.load(Ordering::Acquire);
        let mut first = 0;
        let mut keys = Vec::new();
        let mut after = None;
        if let Some((key, offset)) = from {
            keys.push(key);
            first = offset.0 - offset.0 % BLOCK_BYTES;
            after = Some(key);
        }
        keys.extend(self.list(after, DATAFILES_STEP).await?.into_iter().map(|(key, _)| key));
        let last = keys.last().copied();
        for key in keys {
            if step.verified >= budget {
                step.next = Some((key, LocalOffset(first)));
                return Ok(step);
            }
            let first = std::mem::take(&mut first);
            if !has_sums {
                self.note_unchecked(&mut step, key).await?;
                continue;
            }
            let Some(datafile) = self.existing_or_removed(key).await? else { continue };
            let Some(sums) = &datafile.sums else {
                self.note_unchecked(&mut step, key).await?;
                continue;
            };
            if first == 0 {
                let forgotten = datafile.file.forget().await;
                forgotten.map_err(|error| self.error(key, "forget what memory holds", error))?;
            }
            let left = budget.0 - step.verified.0;
            let done = self.scrub_datafile(&datafile, sums, first, left).await;
            let done = done.map_err(|error| self.error(key, "read", error))?;
            step.verified.0 += done.verified;
            let is_sound = done.damaged.is_empty();
            step.damaged.extend(done.damaged.into_iter().map(|blocks| Damage {
                key,
                start: blocks.start * BLOCK_BYTES,
                end: blocks.end * BLOCK_BYTES,
            }));
            if !done.is_at_end {
                step.next = Some((key, LocalOffset(first + done.verified)));
                return Ok(step);
            }
            step.checked += 1;
            if is_sound && self.is_idle(sums.unsealed(), Nanos::from_s(1)) {
                self.seal_sums(key).await?;
            }
        }
        if let Some(last) = last {
            step.next = self.list(Some(last), 1).await?.first().map(|(key, _)| (*key, LocalOffset(0)));
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

    /// Seals datafiles that have been idle for [`SEAL_IDLE`], or were not sealed for [`SEAL_AFTER`]; how many. To be called
    /// every few seconds. Costs nothing on a target without checksums.
    pub async fn seal_idle(&self) -> usize {
        if !self.has_sums.load(Ordering::Acquire) {
            return 0;
        }
        let now = self.env.tick();
        let due = |(key, at): (&DatafileKey, &Nanos)| (*at <= now).then_some(*key);
        let due: Vec<DatafileKey> = self.unsealed.lock().iter().filter_map(due).take(SEALS_STEP).collect();
        let mut sealed = 0;
        for key in due {
            // Before it is sealed: a write meanwhile notes it again.
            self.unsealed.lock().remove(&key);
            // One that is not open has been idle for long.
            let is_open = self.open.get(key).is_some();
            let Ok(Some(datafile)) = self.existing_or_removed(key).await else { continue };
            let Some((since, changed)) = datafile.sums.as_ref().and_then(|sums| sums.unsealed()) else {
                continue;
            };
            let at = changed.saturating_add(SEAL_IDLE).min(since.saturating_add(SEAL_AFTER));
            if is_open && at > now {
                self.unsealed.lock().insert(key, at);
                continue;
            }
            // An error shows on the next read or sync as well; until then the datafile counts as unsealed.
            sealed += usize::from(self.seal_sums(key).await.unwrap_or(false));
        }
        sealed
    }

    /// Whether [`seal_idle`](Self::seal_idle) has something to do.
    pub fn has_idle(&self) -> bool {
        self.has_sums.load(Ordering::Acquire) && {
            let now = self.env.tick();
            self.unsealed.lock().values().any(|at| *at <= now)
        }
    }

    /// Datafiles that wait to be sealed.
    pub fn unsealed_count(&self) -> usize {
        self.unsealed.lock().len()
    }

    pub(super) fn note_unsealed(&self, key: DatafileKey) {
        let mut unsealed = self.unsealed.lock();
        if unsealed.len() < UNSEALED_MAX {
            unsealed.entry(key).or_insert(self.env.tick().saturating_add(SEAL_IDLE));
        }
    }

    fn is_idle(&self, unsealed: Option<(Nanos, Nanos)>, idle: Nanos) -> bool {
        unsealed.is_some_and(|(_, changed)| self.env.tick().saturating_sub(changed) >= idle)
    }
}
