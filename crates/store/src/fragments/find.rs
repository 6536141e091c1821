//! What of a datafile lies in the log.

use super::piece::State;
use super::{Cached, FragmentLog, Overlap, Piece, read};
use crate::datafile::DatafileKey;
use weft_core::ranges::ByteRange;
use weft_core::{ByteLen, LocalOffset};
use weft_env::Env;

/// So many entries are looked at while others wait.
const LOOKED_AT_MAX: u32 = 4096;

impl<E: Env> FragmentLog<E> {
    /// What of `extent` lies here. Near free when nothing of the datafile does.
    #[inline]
    pub fn overlap(&self, key: DatafileKey, extent: ByteRange) -> Overlap {
        if !self.0.filter.may_have(key) {
            return Overlap { any: self.0.health.is_behind(), dirty: false };
        }
        let state = self.0.state.lock();
        // Who takes this for something has the journal written before he goes on.
        let mut overlap = Overlap { any: self.0.health.is_behind(), dirty: false };
        for entry in state.map.overlapping(key, extent) {
            overlap.any = true;
            overlap.dirty |= matches!(entry.label.state, State::Dirty | State::Lost);
        }
        overlap
    }

    /// The pieces of `extent` that lie here, sorted and disjoint; they count as used. Near free when nothing of the
    /// datafile does.
    #[inline]
    pub fn find(&self, key: DatafileKey, extent: ByteRange) -> Vec<Piece> {
        if !self.0.filter.may_have(key) {
            return Vec::new();
        }
        let mut state = self.0.state.lock();
        let map = &mut state.map;
        let found: Vec<_> = map.overlapping(key, extent).collect();
        found
            .into_iter()
            .map(|entry| {
                map.touch(entry.id);
                read::piece(map, &entry, extent)
            })
            .collect()
    }

    /// The parts of `extent` that lie here, sorted and disjoint; they do not count as used. Near free when nothing of the
    /// datafile does.
    pub fn extents(&self, key: DatafileKey, extent: ByteRange) -> Vec<ByteRange> {
        if !self.0.filter.may_have(key) {
            return Vec::new();
        }
        let state = self.0.state.lock();
        let entries = state.map.overlapping(key, extent);
        entries.map(|entry| read::piece(&state.map, &entry, extent).extent()).collect()
    }

    /// What of a datafile lies here; `None` for nothing, which is near free.
    #[inline]
    pub fn cached(&self, key: DatafileKey) -> Option<Cached> {
        if !self.0.filter.may_have(key) {
            return None;
        }
        self.0.state.lock().map.cached(key)
    }

    /// Whether anything of `extent` lies here, and how far the datafile reaches by what does; `None` when nothing of it
    /// does, which is near free.
    #[inline]
    pub fn look(&self, key: DatafileKey, extent: ByteRange) -> Option<(bool, ByteLen)> {
        if !self.0.filter.may_have(key) {
            return None;
        }
        let state = self.0.state.lock();
        let end = state.map.cached(key)?.end;
        let any = self.0.health.is_behind() || state.map.overlapping(key, extent).next().is_some();
        Some((any, end))
    }

    /// At most `limit` datafiles after `after` with anything here, in the order of their keys.
    pub fn list(&self, after: Option<DatafileKey>, limit: usize) -> Vec<(DatafileKey, Cached)> {
        self.0.state.lock().map.cached_after(after).take(limit).collect()
    }

    /// Dirty pieces behind `after`, in the order of datafile and offset, until there are `len_max` bytes of them (and
    /// one at least); empty at the end. They do not count as used.
    pub fn dirty_runs(&self, after: Option<(DatafileKey, LocalOffset)>, len_max: ByteLen) -> Vec<Piece> {
        let (mut pieces, mut len) = (Vec::new(), 0);
        let mut from = after;
        loop {
            match self.look_for_dirty(from, len_max, &mut pieces, &mut len) {
                Some(next) => from = Some(next),
                None => return pieces,
            }
        }
    }

    /// The same for as long as nobody else should have to wait; where to go on.
    fn look_for_dirty(
        &self,
        after: Option<(DatafileKey, LocalOffset)>,
        len_max: ByteLen,
        pieces: &mut Vec<Piece>,
        len: &mut u64,
    ) -> Option<(DatafileKey, LocalOffset)> {
        let state = self.0.state.lock();
        let map = &state.map;
        let mut seen = 0;
        for (key, _) in map.keys_from(after.map(|(key, _)| key)) {
            seen += 1;
            let from = after.filter(|(of, _)| *of == key).map_or(0, |(_, offset)| offset.0);
            let extent = ByteRange::from(from).filter(|_| map.is_dirty(key));
            for entry in extent.into_iter().flat_map(|extent| map.overlapping(key, extent)) {
                seen += 1;
                if entry.label.state == State::Dirty {
                    let piece = read::piece(map, &entry, extent?);
                    if *len > 0 && *len + piece.extent.len() > len_max.0 {
                        return None;
                    }
                    *len += piece.extent.len();
                    pieces.push(piece);
                }
                if seen > LOOKED_AT_MAX {
                    return Some((key, LocalOffset(entry.extent.end())));
                }
            }
            if seen > LOOKED_AT_MAX {
                return Some((key, LocalOffset(u64::MAX)));
            }
        }
        None
    }
}
