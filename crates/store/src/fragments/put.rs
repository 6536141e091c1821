//! Taking bytes: room, one write of the payload, one record.

use super::journal::PAYLOADS_NUMBER;
use super::map::{Label, Mapped};
use super::piece::{Pin, Place, State as PieceState, Tag};
use super::record::{Put, Record};
use super::segments::{CHUNK_LEN_MAX, Want, check};
use super::{FragmentLog, LogError, PAYLOADS, State};
use crate::datafile::DatafileKey;
use crate::emulate;
use std::io::IoSlice;
use weft_core::LocalOffset;
use weft_core::ibridge::Class;
use weft_core::ranges::ByteRange;
use weft_env::device::DeviceAction;
use weft_env::{Env, File, Shared as _};

/// So many entries go at once when some have to, or this part of a class.
const EVICTED_MIN: u64 = 16;
const EVICTED_PART: u64 = 16;

/// Room that was given out for a part of a put.
struct Part {
    extent: ByteRange,
    place: Place,
    generation: u32,
    _pin: Pin,
}

/// What a put finds.
enum Room {
    Here(Vec<Part>),
    /// When these have gone.
    After(Vec<Mapped>),
}

impl<E: Env> FragmentLog<E> {
    /// Takes bytes. From here on they are the newest of their range, and survive the end of the process; the loss of
    /// power after a sync. Clean ones ([`Tag::dirty`]) are taken only where no dirty ones lie.
    ///
    /// # Errors
    /// [`LogError::Full`] and [`LogError::Failed`]: nothing has changed, and the disk has to take them.
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
        let room = self.find_room(key, extent, tag)?;
        let parts = match room {
            Room::Here(parts) => parts,
            Room::After(spare) => {
                self.evict(&spare).await?;
                match self.find_room(key, extent, tag)? {
                    Room::Here(parts) => parts,
                    Room::After(_) => return Err(LogError::Full),
                }
            }
        };
        let mut checks = Vec::with_capacity(parts.len());
        for part in &parts {
            let bytes = &bytes[(part.extent.start() - offset.0) as usize..][..part.extent.len() as usize];
            checks.push(self.write_payload(part.place, part.generation, bytes).await?);
        }
        let state = if tag.dirty { PieceState::Dirty } else { PieceState::Copy };
        let label =
            Label { class: tag.class, state, gain: Label::gain_of(tag.gain), puts: 1, is_used: false };
        let point = {
            let mut state = shared.state.lock();
            shared.fine()?;
            for (part, &check) in parts.iter().zip(&checks) {
                let Part { extent, place, generation, .. } = *part;
                state.enter(&Put { key, extent, label, mtime: tag.mtime, place, generation, check });
            }
            state.put += extent.len();
            shared.filter.follow(&mut state.map);
            state.point
        };
        self.commit(point).await?;
        self.hint();
        Ok(())
    }

    /// The same from shared memory.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    ///
    /// # Panics
    /// Outside `shared`: the caller checks.
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
        // Copied, because the client may change the bytes between their check and their write.
        let mut copy = vec![0; len];
        shared.copy_out(from, &mut copy);
        self.put(key, offset, &copy, tag).await
    }

    /// Writes a payload where room was given out; its check.
    pub(super) async fn write_payload(
        &self,
        place: Place,
        generation: u32,
        bytes: &[u8],
    ) -> Result<u32, LogError> {
        let shared = &*self.0;
        let offset = shared.offset(place);
        let charge = shared.begin(DeviceAction::Write, PAYLOADS_NUMBER, offset, bytes.len());
        let written = shared.payloads.write_at(&[IoSlice::new(bytes)], LocalOffset(offset)).await;
        written.map_err(|error| shared.fail(PAYLOADS, "write", &error))?;
        emulate::end(charge).await;
        Ok(if shared.has_bytes { check(bytes, place, generation) } else { 0 })
    }

    fn find_room(&self, key: DatafileKey, extent: ByteRange, tag: Tag) -> Result<Room, LogError> {
        let shared = &*self.0;
        let mut state = shared.state.lock();
        shared.fine()?;
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
        // Over dirty bytes there is no other place for newer ones.
        let must = tag.dirty && dirty == extent.len();
        let map = &state.map;
        let over = |bytes: u64, gone: u64, max: u64| (bytes + extent.len()).saturating_sub(gone + max);
        let over_class = over(map.classes[class.index()].bytes(), same_class, state.quotas[class.index()]);
        let over_all = over(map.bytes(), all, map.segments.capacity().0);
        // The class has the same share of the entries as of the room: else small pieces would take them all.
        let (quota, capacity) = (state.quotas[class.index()], map.segments.capacity().0.max(1));
        let entries_quota =
            (u128::from(quota) * u128::from(shared.entries_max) / u128::from(capacity)) as u64;
        let class_entries =
            (map.classes[class.index()].entries + count + 1).saturating_sub(entries_quota.max(1));
        let over_entries = (map.len() + count + 1).saturating_sub(shared.entries_max).max(class_entries);
        if !must && (over_class > 0 || over_all > 0 || over_entries > 0) {
            // Of this class, unless it is the others that take too much.
            let mut bytes = over_class.max(over_all);
            let mut entries =
                over_entries.max(EVICTED_MIN.min(map.classes[class.index()].entries / EVICTED_PART));
            let mut spare = Vec::new();
            let is_class_full = over_class > 0 || class_entries > 0;
            let others = Class::ALL.into_iter().filter(|other| *other != class && !is_class_full);
            for entry in std::iter::once(class).chain(others).flat_map(|class| map.spare(class)) {
                if bytes == 0 && entries == 0 {
                    break;
                }
                if entry.key == key && entry.extent.overlaps(extent) {
                    continue;
                }
                bytes = bytes.saturating_sub(entry.extent.len());
                entries = entries.saturating_sub(1);
                spare.push(entry);
            }
            if bytes > 0 || (over_entries > 0 && (spare.len() as u64) < over_entries) {
                return Err(LogError::Full);
            }
            return Ok(Room::After(spare));
        }
        let want = if must { Want::Overwrite } else { Want::Ordinary };
        match state.take(extent, want) {
            Some(parts) => Ok(Room::Here(parts)),
            None => {
                drop(state);
                self.wake();
                Err(LogError::Full)
            }
        }
    }

    /// Lets clean entries go. The journal has it before they do: else the disk might get newer bytes for one of them and
    /// a killed process bring it back.
    pub(super) async fn evict(&self, spare: &[Mapped]) -> Result<(), LogError> {
        let shared = &*self.0;
        let point = {
            let mut state = shared.state.lock();
            for entry in spare {
                for (part, label) in state.map.still(entry.key, entry.extent, entry.place) {
                    if label.state != PieceState::Dirty {
                        state.append(&Record::Forget(entry.key, part));
                    }
                }
            }
            state.point
        };
        self.commit(point).await?;
        let mut state = shared.state.lock();
        for entry in spare {
            for (part, _) in state.map.still(entry.key, entry.extent, entry.place) {
                let gone = state.map.remove(entry.key, part, |state| state != PieceState::Dirty);
                state.evicted += gone;
            }
        }
        shared.filter.follow(&mut state.map);
        Ok(())
    }
}

impl State {
    /// Room for `extent` in parts; `None` when there is not enough.
    fn take(&mut self, extent: ByteRange, want: Want) -> Option<Vec<Part>> {
        let segments = &mut self.map.segments;
        let len_max = CHUNK_LEN_MAX.min(segments.len() as usize) as u64;
        let mut parts = Vec::with_capacity(1);
        let mut at = extent.start();
        while let Some(rest) = ByteRange::new(at, extent.end()) {
            let part = ByteRange::with_len(at, rest.len().min(len_max))?;
            let (place, pin) = segments.take(part.len() as u32, want)?;
            let generation = segments.get(place.segment).generation;
            parts.push(Part { extent: part, place, generation, _pin: pin });
            at = part.end();
        }
        Some(parts)
    }

    /// Takes bytes that were moved into mapping and journal.
    pub(super) fn relocate(&mut self, put: &Put) {
        self.append(&Record::Put(*put));
        let label = Label { is_used: false, ..put.label };
        self.map.segments.written(put.place, put.extent.len() as u32, put.check);
        self.map.insert(put.key, put.extent, put.place, label, put.mtime);
    }

    /// Takes a put into mapping and journal.
    pub(super) fn enter(&mut self, put: &Put) {
        self.append(&Record::Put(*put));
        let Put { key, extent, label, mtime, place, check, .. } = *put;
        self.map.segments.written(place, extent.len() as u32, check);
        match label.state {
            PieceState::Clean | PieceState::Copy => {
                self.map.insert_below_dirty(key, extent, place, label, mtime)
            }
            PieceState::Dirty | PieceState::Lost => self.map.insert(key, extent, place, label, mtime),
        }
    }
}
