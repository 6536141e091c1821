//! Puts: reserve space, write the payload, append a record.

use super::journal::PAYLOADS_NUMBER;
use super::map::{Label, Mapped};
use super::piece::{Location, Pin, State as PieceState, Tag};
use super::record::{Put, Record};
use super::segments::{CHUNK_LEN_MAX, Priority, check};
use super::{FragmentLog, LogError, PAYLOADS, State};
use crate::datafile::DatafileKey;
use crate::emulate;
use std::io::IoSlice;
use weft_core::DataClass;
use weft_core::LocalOffset;
use weft_core::ranges::ByteRange;
use weft_env::device::DeviceAction;
use weft_env::{Env, File, Shared as _};

/// Minimum number of entries evicted at a time, or at most this fraction of the class's entries.
const EVICTED_MIN: u64 = 16;
const EVICTED_DIVISOR: u64 = 16;

/// Space that was allocated for a part of a put.
struct Allocation {
    extent: ByteRange,
    location: Location,
    generation: u32,
    _pin: Pin,
}

/// Result of reserving space for a put.
enum Reservation {
    Allocated(Vec<Allocation>),
    /// Space will be available after these entries have been evicted.
    AfterEviction(Vec<Mapped>),
}

impl<E: Env> FragmentLog<E> {
    /// Puts bytes into the log. On return they are the newest bytes of their range and survive the death of the
    /// process; after a sync they survive a loss of power. Clean bytes ([`Tag::dirty`] is false) are stored only where
    /// no dirty ones are.
    ///
    /// # Errors
    /// [`LogError::Full`] and [`LogError::Failed`]. Nothing has changed, and the caller writes to the disk instead.
    pub async fn put(
        &self,
        key: DatafileKey,
        offset: LocalOffset,
        bytes: &[u8],
        tag: Tag,
    ) -> Result<(), LogError> {
        let shared = &*self.0;
        let Some(extent) = ByteRange::with_len(offset.0, bytes.len() as u64) else { return Ok(()) };
        assert!(extent.end() <= crate::target::DATAFILE_LEN_MAX, "the caller checks offsets");
        let reservation = self.reserve(key, extent, tag)?;
        let allocations = match reservation {
            Reservation::Allocated(allocations) => allocations,
            Reservation::AfterEviction(victims) => {
                self.evict(&victims).await?;
                match self.reserve(key, extent, tag)? {
                    Reservation::Allocated(allocations) => allocations,
                    Reservation::AfterEviction(_) => return Err(LogError::Full),
                }
            }
        };
        let mut checks = Vec::with_capacity(allocations.len());
        for part in &allocations {
            let bytes = &bytes[(part.extent.start() - offset.0) as usize..][..part.extent.len() as usize];
            checks.push(self.write_payload(part.location, part.generation, bytes).await?);
        }
        let state = if tag.dirty { PieceState::Dirty } else { PieceState::Copy };
        let label =
            Label { class: tag.class, state, gain: Label::gain_of(tag.gain), puts: 1, is_used: false };
        let lsn = {
            let mut state = shared.state.lock();
            shared.check_healthy()?;
            for (part, &check) in allocations.iter().zip(&checks) {
                let Allocation { extent, location, generation, .. } = *part;
                state.append_put(&Put { key, extent, label, mtime: tag.mtime, location, generation, check });
            }
            state.put += extent.len();
            shared.filter.update(&mut state.map);
            state.lsn
        };
        self.commit(lsn).await?;
        self.wake_if_due();
        Ok(())
    }

    /// Puts bytes of a shared memory area, as [`put`](Self::put) does.
    ///
    /// # Errors
    /// As for [`put`](Self::put).
    ///
    /// # Panics
    /// When the range is outside `shared`.
    pub async fn put_shared(
        &self,
        key: DatafileKey,
        offset: LocalOffset,
        shared: &E::Shared,
        from: usize,
        len: usize,
        tag: Tag,
    ) -> Result<(), LogError> {
        assert!(from.checked_add(len).is_some_and(|end| end <= shared.len()), "inside the shared area");
        // Copied, because the client may change the bytes between computing the checksum and writing them.
        let mut copy = vec![0; len];
        shared.copy_out(from, &mut copy);
        self.put(key, offset, &copy, tag).await
    }

    /// Writes a payload to allocated space and returns its checksum.
    pub(super) async fn write_payload(
        &self,
        location: Location,
        generation: u32,
        bytes: &[u8],
    ) -> Result<u32, LogError> {
        let shared = &*self.0;
        let offset = shared.offset(location);
        let in_flight = shared.begin(DeviceAction::Write, PAYLOADS_NUMBER, offset, bytes.len());
        let written = shared.payloads.write_at(&[IoSlice::new(bytes)], LocalOffset(offset)).await;
        written.map_err(|error| shared.fail(PAYLOADS, "write", &error))?;
        emulate::finish(in_flight).await;
        Ok(if shared.has_bytes { check(bytes, location, generation) } else { 0 })
    }

    fn reserve(&self, key: DatafileKey, extent: ByteRange, tag: Tag) -> Result<Reservation, LogError> {
        let shared = &*self.0;
        let mut state = shared.state.lock();
        shared.check_healthy()?;
        let class = tag.class;
        let count = extent.len().div_ceil(CHUNK_LEN_MAX as u64);
        let (mut same_class, mut all, mut dirty) = (0, 0, 0);
        if shared.filter.may_have(key) {
            for entry in state.map.overlapping(key, extent) {
                let len = entry.extent.intersection(extent).expect("found by it").len();
                all += len;
                same_class += if entry.label.class == class { len } else { 0 };
                dirty += if entry.label.state == PieceState::Dirty { len } else { 0 };
            }
        }
        // Newer bytes over dirty ones can go nowhere else.
        let is_overwrite = tag.dirty && dirty == extent.len();
        let map = &state.map;
        let over = |bytes: u64, gone: u64, max: u64| (bytes + extent.len()).saturating_sub(gone + max);
        let over_class = over(map.classes[class.index()].bytes(), same_class, state.quotas[class.index()]);
        let over_all = over(map.bytes(), all, map.segments.capacity().0);
        // Limit the class to the same share of entries as of bytes, or small pieces would take all entries.
        let (quota, capacity) = (state.quotas[class.index()], map.segments.capacity().0.max(1));
        let entries_quota =
            (u128::from(quota) * u128::from(shared.entries_max) / u128::from(capacity)) as u64;
        let class_entries =
            (map.classes[class.index()].entries + count + 1).saturating_sub(entries_quota.max(1));
        let over_entries = (map.len() + count + 1).saturating_sub(shared.entries_max).max(class_entries);
        if !is_overwrite && (over_class > 0 || over_all > 0 || over_entries > 0) {
            // Evict from this class first; from the others only when this class is within its limits.
            let mut bytes = over_class.max(over_all);
            let mut entries =
                over_entries.max(EVICTED_MIN.min(map.classes[class.index()].entries / EVICTED_DIVISOR));
            let mut victims = Vec::new();
            let is_class_full = over_class > 0 || class_entries > 0;
            let others = DataClass::ALL.into_iter().filter(|other| *other != class && !is_class_full);
            for entry in std::iter::once(class).chain(others).flat_map(|class| map.evictable(class)) {
                if bytes == 0 && entries == 0 {
                    break;
                }
                if entry.key == key && entry.extent.overlaps(extent) {
                    continue;
                }
                bytes = bytes.saturating_sub(entry.extent.len());
                entries = entries.saturating_sub(1);
                victims.push(entry);
            }
            if bytes > 0 || (over_entries > 0 && (victims.len() as u64) < over_entries) {
                return Err(LogError::Full);
            }
            return Ok(Reservation::AfterEviction(victims));
        }
        let priority = if is_overwrite { Priority::Overwrite } else { Priority::Ordinary };
        match state.take(extent, priority) {
            Some(allocations) => Ok(Reservation::Allocated(allocations)),
            None => {
                drop(state);
                self.wake();
                Err(LogError::Full)
            }
        }
    }

    /// Evicts clean entries. The journal gets `Forget` before they leave the mapping. Otherwise the disk could receive
    /// newer bytes without a `Forget`, and a restart of a killed process would bring the old entry back.
    pub(super) async fn evict(&self, victims: &[Mapped]) -> Result<(), LogError> {
        let shared = &*self.0;
        let lsn = {
            let mut state = shared.state.lock();
            for entry in victims {
                for (part, label) in state.map.parts_at(entry.key, entry.extent, entry.location) {
                    if label.state != PieceState::Dirty {
                        state.append(&Record::Forget(entry.key, part));
                    }
                }
            }
            state.lsn
        };
        self.commit(lsn).await?;
        let mut state = shared.state.lock();
        for entry in victims {
            for (part, _) in state.map.parts_at(entry.key, entry.extent, entry.location) {
                let gone = state.map.remove(entry.key, part, |state| state != PieceState::Dirty);
                state.evicted += gone;
            }
        }
        shared.filter.update(&mut state.map);
        Ok(())
    }
}

impl State {
    /// Allocates space for `extent` in parts; `None` if there is not enough.
    fn take(&mut self, extent: ByteRange, priority: Priority) -> Option<Vec<Allocation>> {
        let segments = &mut self.map.segments;
        let len_max = CHUNK_LEN_MAX.min(segments.len() as usize) as u64;
        let mut allocations = Vec::with_capacity(1);
        let mut at = extent.start();
        while let Some(rest) = ByteRange::new(at, extent.end()) {
            let part = ByteRange::with_len(at, rest.len().min(len_max))?;
            let (location, pin) = segments.take(part.len() as u32, priority)?;
            let generation = segments.get(location.segment).generation;
            allocations.push(Allocation { extent: part, location, generation, _pin: pin });
            at = part.end();
        }
        Some(allocations)
    }

    /// Records the new location of bytes that were moved.
    pub(super) fn append_move(&mut self, put: &Put) {
        self.append(&Record::Put(*put));
        let label = Label { is_used: false, ..put.label };
        self.map.segments.written(put.location, put.extent.len() as u32, put.check);
        self.map.insert(put.key, put.extent, put.location, label, put.mtime);
    }

    /// Adds a put to the mapping and the journal.
    pub(super) fn append_put(&mut self, put: &Put) {
        self.append(&Record::Put(*put));
        let Put { key, extent, label, mtime, location, check, .. } = *put;
        self.map.segments.written(location, extent.len() as u32, check);
        match label.state {
            PieceState::Clean | PieceState::Copy => {
                self.map.insert_below_dirty(key, extent, location, label, mtime)
            }
            PieceState::Dirty | PieceState::Lost => self.map.insert(key, extent, location, label, mtime),
        }
    }
}
