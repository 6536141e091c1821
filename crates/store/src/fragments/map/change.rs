//! What changes the mapping.

use super::{Entry, FileSlot, Head, Label, Link, Map, NONE};
use crate::datafile::DatafileKey;
use crate::fragments::piece::{Place, State};
use std::collections::BTreeMap;
use weft_core::Timestamp;
use weft_core::ibridge::Class;
use weft_core::ranges::ByteRange;

impl Map {
    /// Maps `extent` to `place`, over whatever was there. It lies there from the first byte to the last.
    pub fn insert(
        &mut self,
        key: DatafileKey,
        extent: ByteRange,
        place: Place,
        label: Label,
        mtime: Timestamp,
    ) {
        let file = self.file(key);
        self.carve(file, extent, |_| true);
        self.add(file, extent, place, label, mtime);
    }

    /// The same where nothing lies that only the log has (or had).
    pub fn insert_below_dirty(
        &mut self,
        key: DatafileKey,
        extent: ByteRange,
        place: Place,
        label: Label,
        mtime: Timestamp,
    ) {
        let file = self.file(key);
        self.carve(file, extent, |label| label.is_spare());
        self.fill(
            file,
            extent,
            |at| {
                let position = place.position.checked_add((at - extent.start()) as u32)?;
                Some(Place { position, ..place })
            },
            label,
            mtime,
        );
        self.drop_if_empty(file);
    }

    /// What nothing is known of in `extent` is lost.
    pub fn insert_lost(&mut self, key: DatafileKey, extent: ByteRange) {
        let label = Label { class: Class::Random, state: State::Lost, gain: 0, puts: 1, is_used: false };
        let place = Place { segment: NONE, position: 0 };
        let file = self.file(key);
        self.fill(file, extent, |_| Some(place), label, Timestamp(0));
    }

    /// Adds to `extent` where nothing is.
    pub(super) fn fill(
        &mut self,
        file: u32,
        extent: ByteRange,
        place: impl Fn(u64) -> Option<Place>,
        label: Label,
        mtime: Timestamp,
    ) {
        let kept: Vec<ByteRange> = self.ids(file, extent).map(|id| self.entry(id).extent()).collect();
        let mut at = extent.start();
        for over in kept.into_iter().map(Some).chain([None]) {
            let end = over.map_or(extent.end(), |over| over.start().min(extent.end()));
            if let Some(gap) = ByteRange::new(at, end)
                && let Some(place) = place(at)
            {
                self.add(file, gap, place, label, mtime);
            }
            at = over.map_or(at, |over| over.end());
        }
    }

    /// Drops what `goes` of `extent`; the number of bytes.
    pub fn remove(&mut self, key: DatafileKey, extent: ByteRange, goes: impl Fn(State) -> bool) -> u64 {
        let Some(&file) = self.by_key.get(&key) else { return 0 };
        let removed = self.carve(file, extent, |label| goes(label.state));
        self.drop_if_empty(file);
        removed
    }

    /// The dirty part of `extent` is on the disk too.
    pub fn clean(&mut self, key: DatafileKey, extent: ByteRange) {
        self.turn(key, extent, State::Clean);
    }

    /// The dirty part of `extent` is lost.
    pub fn lose(&mut self, key: DatafileKey, extent: ByteRange) {
        self.turn(key, extent, State::Lost);
    }

    pub(super) fn turn(&mut self, key: DatafileKey, extent: ByteRange, state: State) {
        let Some(&file) = self.by_key.get(&key) else { return };
        let ids: Vec<u32> = self.ids(file, extent).collect();
        for id in ids {
            if self.entry(id).label.state != State::Dirty {
                continue;
            }
            let id = self.isolate(id, extent);
            self.change(id, |entry| entry.label.state = state);
        }
    }

    /// Drops what is clean in a segment.
    pub fn drop_spare_of(&mut self, segment: u32) {
        let ids: Vec<u32> =
            self.in_segment(segment).filter(|it| it.label.is_spare()).map(|it| it.id).collect();
        ids.into_iter().for_each(|id| self.drop_entry(id));
    }

    /// The room of a segment is used for something else. What only it had is lost.
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

    /// Drops what is clean and `goes`.
    pub fn drop_spare(&mut self, goes: impl Fn(State) -> bool) {
        for class in Class::ALL {
            let ids: Vec<u32> = self.spare(class).filter(|it| goes(it.label.state)).map(|it| it.id).collect();
            ids.into_iter().for_each(|id| self.drop_entry(id));
        }
        // Their segments are empty now.
        self.segments.settle();
    }

    pub(super) fn file(&mut self, key: DatafileKey) -> u32 {
        if let Some(&file) = self.by_key.get(&key) {
            return file;
        }
        let slot = FileSlot { entries: BTreeMap::new(), dirty: 0, clean: 0, lost: 0 };
        let head = Head { key, mtime: Timestamp(0) };
        let file = match self.files_free.pop() {
            Some(file) => {
                self.files[file as usize] = slot;
                *self.heads.get_mut(file) = head;
                file
            }
            None => {
                self.files.push(slot);
                self.heads.push(head);
                (self.files.len() - 1) as u32
            }
        };
        self.by_key.insert(key, file);
        self.came.push(key);
        file
    }

    pub(super) fn drop_if_empty(&mut self, file: u32) {
        if self.files[file as usize].entries.is_empty() {
            let key = self.heads.get(file).key;
            self.by_key.remove(&key);
            self.files_free.push(file);
            self.went.push(key);
        }
    }

    /// Adds where nothing is, joined to the entry before it where they lie side by side.
    pub(super) fn add(&mut self, file: u32, extent: ByteRange, place: Place, label: Label, mtime: Timestamp) {
        let slot = &self.files[file as usize];
        if label.state == State::Dirty {
            let before = self.heads.get(file).mtime;
            self.heads.get_mut(file).mtime = if slot.dirty == 0 { mtime } else { before.max(mtime) };
        }
        let before = slot.entries.range(..extent.start()).next_back().map(|(_, &id)| id);
        if let Some(id) = before
            && self.joins(id, extent, place, label)
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
            place,
            label,
            lru: Link::OUT,
            in_segment: Link::OUT,
        });
    }

    pub(super) fn joins(&self, id: u32, extent: ByteRange, place: Place, label: Label) -> bool {
        let entry = self.entry(id);
        let next = entry.place.position.checked_add(entry.len);
        entry.end() == extent.start()
            && label.state != State::Lost
            && (entry.label.state, entry.label.class) == (label.state, label.class)
            && entry.place.segment == place.segment
            && next == Some(place.position)
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
        self.enter(id);
        id
    }

    pub(super) fn release(&mut self, id: u32) {
        self.leave(id);
        let entry = *self.entry(id);
        self.files[entry.file as usize].entries.remove(&entry.start);
        self.entries.get_mut(id).file = NONE;
        self.entries_free.push(id);
    }

    /// Changes an entry and all accounts of it.
    pub(super) fn change(&mut self, id: u32, change: impl FnOnce(&mut Entry)) {
        self.leave(id);
        let before = self.entry(id).start;
        change(self.entries.get_mut(id));
        let entry = *self.entry(id);
        if entry.start != before {
            let entries = &mut self.files[entry.file as usize].entries;
            entries.remove(&before);
            entries.insert(entry.start, id);
        }
        self.enter(id);
    }

    /// Drops what `goes` of `extent`; the number of bytes.
    pub(super) fn carve(&mut self, file: u32, extent: ByteRange, goes: impl Fn(Label) -> bool) -> u64 {
        let mut removed = 0;
        let mut at = extent;
        loop {
            let Some(id) = self.ids(file, at).find(|&id| goes(self.entry(id).label)) else { break };
            let part = self.entry(id).extent().intersection(extent).expect("they overlap");
            let id = self.isolate(id, extent);
            self.release(id);
            removed += part.len();
            match ByteRange::new(part.end(), extent.end()) {
                Some(rest) => at = rest,
                None => break,
            }
        }
        removed
    }

    /// Splits an entry so that what of it is in `extent` is one of its own, whose number this is.
    pub(super) fn isolate(&mut self, id: u32, extent: ByteRange) -> u32 {
        let entry = *self.entry(id);
        let part = entry.extent().intersection(extent).expect("they overlap");
        let moved = |by: u64| match entry.label.state {
            State::Lost => entry.place,
            _ => Place { position: entry.place.position + by as u32, ..entry.place },
        };
        let of_split = Label { puts: 1, ..entry.label };
        if part.end() < entry.end() {
            self.change(id, |entry| entry.len = (part.end() - entry.start) as u32);
            self.create(Entry {
                start: part.end(),
                len: (entry.end() - part.end()) as u32,
                place: moved(part.end() - entry.start),
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
            place: moved(part.start() - entry.start),
            label: of_split,
            lru: Link::OUT,
            in_segment: Link::OUT,
            ..entry
        })
    }
}
