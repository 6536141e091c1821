//! Changes of the mapping.

use super::{Entry, FileHeader, FileSlot, Label, Link, Map, NONE};
use crate::datafile::DatafileKey;
use crate::fragments::piece::{Location, State};
use std::collections::BTreeMap;
use weft_core::DataClass;
use weft_core::Timestamp;
use weft_core::ranges::ByteRange;

impl Map {
    /// Maps `extent` to a contiguous location, replacing earlier entries.
    pub fn insert(
        &mut self,
        key: DatafileKey,
        extent: ByteRange,
        location: Location,
        label: Label,
        mtime: Timestamp,
    ) {
        let file = self.file(key);
        self.remove_where(file, extent, |_| true);
        self.add(file, extent, location, label, mtime);
    }

    /// Maps `extent` to a location, except where dirty or lost bytes are.
    pub fn insert_below_dirty(
        &mut self,
        key: DatafileKey,
        extent: ByteRange,
        location: Location,
        label: Label,
        mtime: Timestamp,
    ) {
        let file = self.file(key);
        self.remove_where(file, extent, |label| label.is_evictable());
        self.fill(
            file,
            extent,
            |at| {
                let position = location.position.checked_add((at - extent.start()) as u32)?;
                Some(Location { position, ..location })
            },
            label,
            mtime,
        );
        self.drop_if_empty(file);
    }

    /// Marks the unmapped parts of `extent` as lost.
    pub fn insert_lost(&mut self, key: DatafileKey, extent: ByteRange) {
        let label = Label { class: DataClass::RANDOM, state: State::Lost, gain: 0, puts: 1, is_used: false };
        let location = Location { segment: NONE, position: 0 };
        let file = self.file(key);
        self.fill(file, extent, |_| Some(location), label, Timestamp(0));
    }

    /// Maps the unmapped parts of `extent`.
    pub(super) fn fill(
        &mut self,
        file: u32,
        extent: ByteRange,
        location: impl Fn(u64) -> Option<Location>,
        label: Label,
        mtime: Timestamp,
    ) {
        let kept: Vec<ByteRange> = self.ids(file, extent).map(|id| self.entry(id).extent()).collect();
        let mut at = extent.start();
        for over in kept.into_iter().map(Some).chain([None]) {
            let end = over.map_or(extent.end(), |over| over.start().min(extent.end()));
            if let Some(gap) = ByteRange::new(at, end)
                && let Some(location) = location(at)
            {
                self.add(file, gap, location, label, mtime);
            }
            at = over.map_or(at, |over| over.end());
        }
    }

    /// Drops the bytes of `extent` whose state satisfies `goes`; returns their number.
    pub fn remove(&mut self, key: DatafileKey, extent: ByteRange, goes: impl Fn(State) -> bool) -> u64 {
        let Some(&file) = self.by_key.get(&key) else { return 0 };
        let removed = self.remove_where(file, extent, |label| goes(label.state));
        self.drop_if_empty(file);
        removed
    }

    /// Marks the dirty and copied parts of `extent` as clean.
    pub fn clean(&mut self, key: DatafileKey, extent: ByteRange) {
        self.set_state(key, extent, State::Clean, |state| matches!(state, State::Dirty | State::Copy));
    }

    /// Marks the dirty part of `extent` as lost.
    pub fn lose(&mut self, key: DatafileKey, extent: ByteRange) {
        self.set_state(key, extent, State::Lost, |state| state == State::Dirty);
    }

    fn set_state(
        &mut self,
        key: DatafileKey,
        extent: ByteRange,
        state: State,
        changes: impl Fn(State) -> bool,
    ) {
        let Some(&file) = self.by_key.get(&key) else { return };
        let ids: Vec<u32> = self.ids(file, extent).collect();
        for id in ids {
            if !changes(self.entry(id).label.state) {
                continue;
            }
            let id = self.split_out(id, extent);
            self.change(id, |entry| entry.label.state = state);
        }
    }

    /// Drops the clean entries of a segment.
    pub fn drop_evictable_of(&mut self, segment: u32) {
        let ids: Vec<u32> =
            self.in_segment(segment).filter(|it| it.label.is_evictable()).map(|it| it.id).collect();
        ids.into_iter().for_each(|id| self.drop_entry(id));
    }

    /// Empties a segment that will be reused. Its dirty bytes become lost.
    pub fn empty_segment(&mut self, segment: u32) {
        loop {
            let id = self.segments.get(segment).entries;
            if id == NONE {
                return;
            }
            match self.entry(id).label.state {
                State::Dirty => self.change(id, |entry| entry.label.state = State::Lost),
                _ => self.drop_entry(id),
            }
        }
    }

    /// Drops one entry.
    pub fn drop_entry(&mut self, id: u32) {
        let file = self.entry(id).file;
        self.release(id);
        self.drop_if_empty(file);
    }

    /// Drops the clean entries whose state satisfies `goes`.
    pub fn drop_evictable(&mut self, goes: impl Fn(State) -> bool) {
        for class in DataClass::ALL {
            let ids: Vec<u32> =
                self.evictable(class).filter(|it| goes(it.label.state)).map(|it| it.id).collect();
            ids.into_iter().for_each(|id| self.drop_entry(id));
        }
        // Their segments may be empty now.
        self.segments.classify_after_replay();
    }

    pub(super) fn file(&mut self, key: DatafileKey) -> u32 {
        if let Some(&file) = self.by_key.get(&key) {
            return file;
        }
        let slot = FileSlot { entries: BTreeMap::new(), dirty: 0, clean: 0, lost: 0 };
        let head = FileHeader { key, mtime: Timestamp(0) };
        let file = match self.files_free.pop() {
            Some(file) => {
                self.files[file as usize] = slot;
                *self.headers.get_mut(file) = head;
                file
            }
            None => {
                self.files.push(slot);
                self.headers.push(head);
                (self.files.len() - 1) as u32
            }
        };
        self.by_key.insert(key, file);
        self.files_added.push(key);
        file
    }

    pub(super) fn drop_if_empty(&mut self, file: u32) {
        if self.files[file as usize].entries.is_empty() {
            let key = self.headers.get(file).key;
            self.by_key.remove(&key);
            self.files_free.push(file);
            self.files_removed.push(key);
        }
    }

    /// Maps an unmapped range. Extends the preceding entry if both are adjacent in datafile and segment.
    pub(super) fn add(
        &mut self,
        file: u32,
        extent: ByteRange,
        location: Location,
        label: Label,
        mtime: Timestamp,
    ) {
        let slot = &self.files[file as usize];
        if label.state == State::Dirty {
            let before = self.headers.get(file).mtime;
            self.headers.get_mut(file).mtime = if slot.dirty == 0 { mtime } else { before.max(mtime) };
        }
        let before = slot.entries.range(..extent.start()).next_back().map(|(_, &id)| id);
        if let Some(id) = before
            && self.is_adjacent(id, extent, location, label)
        {
            self.change(id, |entry| {
                entry.len += extent.len() as u32;
                let puts = i64::from(entry.label.puts) + i64::from(label.puts);
                entry.label.gain = ((entry.label.weight() + label.weight()) / puts) as i32;
                entry.label.puts = puts.min(i64::from(u16::MAX)) as u16;
            });
            return;
        }
        let len = u32::try_from(extent.len()).expect("entries are shorter than a segment");
        self.create(Entry {
            start: extent.start(),
            len,
            file,
            location,
            label,
            lru: Link::OUT,
            in_segment: Link::OUT,
        });
    }

    pub(super) fn is_adjacent(&self, id: u32, extent: ByteRange, location: Location, label: Label) -> bool {
        let entry = self.entry(id);
        let next = entry.location.position.checked_add(entry.len);
        entry.end() == extent.start()
            && label.state != State::Lost
            && (entry.label.state, entry.label.class) == (label.state, label.class)
            && entry.location.segment == location.segment
            && next == Some(location.position)
    }

    pub(super) fn create(&mut self, entry: Entry) -> u32 {
        let id = match self.entries_free.pop() {
            Some(id) => {
                *self.entries.get_mut(id) = entry;
                id
            }
            None => {
                self.entries.push(entry);
                (self.entries.len() - 1) as u32
            }
        };
        self.files[entry.file as usize].entries.insert(entry.start, id);
        self.link(id);
        id
    }

    pub(super) fn release(&mut self, id: u32) {
        self.unlink(id);
        let entry = *self.entry(id);
        self.files[entry.file as usize].entries.remove(&entry.start);
        self.entries.get_mut(id).file = NONE;
        self.entries_free.push(id);
    }

    /// Changes an entry and updates all counters and lists.
    pub(super) fn change(&mut self, id: u32, change: impl FnOnce(&mut Entry)) {
        self.unlink(id);
        let before = self.entry(id).start;
        change(self.entries.get_mut(id));
        let entry = *self.entry(id);
        if entry.start != before {
            let entries = &mut self.files[entry.file as usize].entries;
            entries.remove(&before);
            entries.insert(entry.start, id);
        }
        self.link(id);
    }

    /// Drops the bytes of `extent` whose label satisfies `goes`; returns their number.
    pub(super) fn remove_where(&mut self, file: u32, extent: ByteRange, goes: impl Fn(Label) -> bool) -> u64 {
        let mut removed = 0;
        let mut at = extent;
        loop {
            let Some(id) = self.ids(file, at).find(|&id| goes(self.entry(id).label)) else { break };
            let part = self.entry(id).extent().intersection(extent).expect("they overlap");
            let id = self.split_out(id, extent);
            self.release(id);
            removed += part.len();
            match ByteRange::new(part.end(), extent.end()) {
                Some(rest) => at = rest,
                None => break,
            }
        }
        removed
    }

    /// Splits an entry so that its part inside `extent` becomes an entry; returns that entry's number.
    pub(super) fn split_out(&mut self, id: u32, extent: ByteRange) -> u32 {
        let entry = *self.entry(id);
        let part = entry.extent().intersection(extent).expect("they overlap");
        let moved = |by: u64| match entry.label.state {
            State::Lost => entry.location,
            _ => Location { position: entry.location.position + by as u32, ..entry.location },
        };
        let of_split = Label { puts: 1, ..entry.label };
        if part.end() < entry.end() {
            self.change(id, |entry| entry.len = (part.end() - entry.start) as u32);
            self.create(Entry {
                start: part.end(),
                len: (entry.end() - part.end()) as u32,
                location: moved(part.end() - entry.start),
                label: of_split,
                lru: Link::OUT,
                in_segment: Link::OUT,
                ..entry
            });
        }
        if part.start() == entry.start {
            return id;
        }
        self.change(id, |entry| entry.len = (part.start() - entry.start) as u32);
        self.create(Entry {
            start: part.start(),
            len: part.len() as u32,
            location: moved(part.start() - entry.start),
            label: of_split,
            lru: Link::OUT,
            in_segment: Link::OUT,
            ..entry
        })
    }
}
