//! Lookups: which ranges of a datafile are in the log.

use super::piece::State;
use super::{Cached, FragmentLog, Overlap, Piece, read};
use crate::datafile::DatafileKey;
use weft_core::ranges::ByteRange;
use weft_core::{ByteLen, LocalOffset};
use weft_env::Env;

/// Maximum number of entries visited per acquisition of the mapping's lock.
const ENTRIES_PER_LOCK_MAX: u32 = 4096;

impl<E: Env> FragmentLog<E> {
    /// Returns whether bytes of `extent` are in the log. Takes no lock when the datafile has none.
    #[inline]
    pub fn overlap(&self, key: DatafileKey, extent: ByteRange) -> Overlap {
        if !self.0.filter.may_have(key) {
            return Overlap { any: self.0.health.is_journal_stale(), dirty: false };
        }
        let state = self.0.state.lock();
        // A stale journal is brought up to date before the caller writes to the disk.
        let mut overlap = Overlap { any: self.0.health.is_journal_stale(), dirty: false };
        for entry in state.map.overlapping(key, extent) {
            overlap.any = true;
            overlap.dirty |= matches!(entry.label.state, State::Dirty | State::Lost);
        }
        overlap
    }

    /// Returns the pieces of `extent` that are in the log, sorted and disjoint, and marks them as used. Takes no lock
    /// when the datafile has none.
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

    /// Returns the parts of `extent` that are in the log, sorted and disjoint, without marking them as used. Takes no
    /// lock when the datafile has none.
    pub fn extents(&self, key: DatafileKey, extent: ByteRange) -> Vec<ByteRange> {
        if !self.0.filter.may_have(key) {
            return Vec::new();
        }
        let state = self.0.state.lock();
        let entries = state.map.overlapping(key, extent);
        entries.map(|entry| read::piece(&state.map, &entry, extent).extent()).collect()
    }

    /// Returns the state of a datafile; `None`, without a lock, if the log has nothing of it.
    #[inline]
    pub fn cached(&self, key: DatafileKey) -> Option<Cached> {
        if !self.0.filter.may_have(key) {
            return None;
        }
        self.0.state.lock().map.cached(key)
    }

    /// Returns whether any byte of `extent` is in the log, and the end of the datafile's last byte there; `None`,
    /// without a lock, if the log has nothing of the datafile.
    #[inline]
    pub fn overlap_and_end(&self, key: DatafileKey, extent: ByteRange) -> Option<(bool, ByteLen)> {
        if !self.0.filter.may_have(key) {
            return None;
        }
        let state = self.0.state.lock();
        let end = state.map.cached(key)?.end;
        let any = self.0.health.is_journal_stale() || state.map.overlapping(key, extent).next().is_some();
        Some((any, end))
    }

    /// Returns at most `limit` datafiles after `after` that have bytes in the log, in the order of their keys.
    pub fn list(&self, after: Option<DatafileKey>, limit: usize) -> Vec<(DatafileKey, Cached)> {
        self.0.state.lock().map.cached_after(after).take(limit).collect()
    }

    /// Returns the dirty pieces after `after`, in the order of datafile and offset, up to `len_max` bytes but at least
    /// one piece; empty at the end. Does not mark them as used.
    pub fn dirty_pieces(&self, after: Option<(DatafileKey, LocalOffset)>, len_max: ByteLen) -> Vec<Piece> {
        let (mut pieces, mut len) = (Vec::new(), 0);
        let mut from = after;
        loop {
            match self.scan_dirty(from, len_max, &mut pieces, &mut len) {
                Some(next) => from = Some(next),
                None => return pieces,
            }
        }
    }

    /// Collects dirty pieces within one acquisition of the lock. Returns the position to continue from, if any.
    fn scan_dirty(
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
            let from = after.filter(|(datafile, _)| *datafile == key).map_or(0, |(_, offset)| offset.0);
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
                if seen > ENTRIES_PER_LOCK_MAX {
                    return Some((key, LocalOffset(entry.extent.end())));
                }
            }
            if seen > ENTRIES_PER_LOCK_MAX {
                return Some((key, LocalOffset(u64::MAX)));
            }
        }
        None
    }
}
