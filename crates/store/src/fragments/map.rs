//! The mapping in memory: which bytes of which datafile lie where. Pure, and the same at run time and when a journal is
//! read again.
//!
//! An entry is a run of bytes that lie side by side in a datafile and in a segment. Entries lie in one table and know one
//! another by their places in it: those of a datafile in the order of offsets, those of a segment in a list, those that
//! may be dropped in a list for each class, the longest unused first. Memory for an entry is [`ENTRY_BYTES`].

use super::piece::{Cached, Place, State};
use super::segments::Segments;
use crate::datafile::DatafileKey;
use std::collections::BTreeMap;
use weft_core::ibridge::Class;
use weft_core::ranges::ByteRange;
use weft_core::{ByteLen, Timestamp};

/// No entry.
pub(super) const NONE: u32 = u32::MAX;
/// Memory of an entry: its row in the table, and its place in the order of its datafile (a node of a B-tree is two
/// thirds full).
pub(super) const ENTRY_BYTES: u64 = (size_of::<Entry>() + (size_of::<(u64, u32)>() * 3).div_ceil(2)) as u64;
/// Memory of a datafile.
pub(super) const FILE_BYTES: u64 = (size_of::<FileSlot>() + 2 * size_of::<(DatafileKey, u32)>()) as u64;
/// Gains are kept in units of so many nanoseconds.
const GAIN_UNIT_NS: i64 = 1024;

/// What is remembered of bytes beside where they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Label {
    pub class: Class,
    pub state: State,
    /// Mean return of what was put, in units of [`GAIN_UNIT_NS`].
    pub gain: i32,
    /// How many puts it came by.
    pub puts: u16,
    /// Somebody has found it since it came.
    pub is_used: bool,
}

impl Label {
    pub fn gain_of(ns: i64) -> i32 {
        (ns / GAIN_UNIT_NS).clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as i32
    }

    fn weight(self) -> i64 {
        i64::from(self.gain) * i64::from(self.puts)
    }

    /// May be dropped.
    fn is_spare(self) -> bool {
        matches!(self.state, State::Clean | State::Copy)
    }
}

/// An entry as others see it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Mapped {
    pub id: u32,
    pub key: DatafileKey,
    pub extent: ByteRange,
    pub place: Place,
    pub label: Label,
}

#[derive(Clone, Copy)]
pub(super) struct Entry {
    start: u64,
    len: u32,
    file: u32,
    place: Place,
    label: Label,
    /// Neighbors in the list of the class, and then in that of the segment.
    lru: Link,
    pub(super) in_segment: Link,
}

#[derive(Clone, Copy)]
pub(super) struct Link {
    pub prev: u32,
    pub next: u32,
}

impl Link {
    const OUT: Self = Self { prev: NONE, next: NONE };
}

impl Entry {
    fn end(&self) -> u64 {
        self.start + u64::from(self.len)
    }

    fn extent(&self) -> ByteRange {
        ByteRange::new(self.start, self.end()).expect("entries hold bytes")
    }
}

struct FileSlot {
    key: DatafileKey,
    entries: BTreeMap<u64, u32>,
    mtime: Timestamp,
    dirty: u64,
    clean: u64,
    lost: u64,
}

/// Bytes and entries of one class.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct ClassTotal {
    pub dirty: u64,
    pub clean: u64,
    pub entries: u64,
    gains: i128,
    puts: u64,
}

impl ClassTotal {
    pub fn bytes(&self) -> u64 {
        self.dirty + self.clean
    }

    /// Mean return in nanoseconds.
    pub fn gain(&self) -> i64 {
        (self.gains.checked_div(i128::from(self.puts)).unwrap_or(0) * i128::from(GAIN_UNIT_NS)) as i64
    }
}

#[derive(Clone, Copy)]
struct List {
    head: u32,
    tail: u32,
}

/// The mapping.
pub(super) struct Map {
    by_key: BTreeMap<DatafileKey, u32>,
    files: Vec<FileSlot>,
    files_free: Vec<u32>,
    entries: Vec<Entry>,
    entries_free: Vec<u32>,
    lru: [List; Class::ALL.len()],
    pub segments: Segments,
    pub classes: [ClassTotal; Class::ALL.len()],
    pub lost: u64,
    /// Datafiles that came and went since the last look, for whoever keeps a filter of them.
    pub came: Vec<DatafileKey>,
    pub went: Vec<DatafileKey>,
}

impl Map {
    pub fn new(segments: Segments) -> Self {
        Self {
            by_key: BTreeMap::new(),
            files: Vec::new(),
            files_free: Vec::new(),
            entries: Vec::new(),
            entries_free: Vec::new(),
            lru: [List { head: NONE, tail: NONE }; Class::ALL.len()],
            segments,
            classes: Default::default(),
            lost: 0,
            came: Vec::new(),
            went: Vec::new(),
        }
    }

    /// Entries in use.
    pub fn len(&self) -> u64 {
        (self.entries.len() - self.entries_free.len()) as u64
    }

    pub fn files(&self) -> u64 {
        self.by_key.len() as u64
    }

    /// Bytes of all classes.
    pub fn bytes(&self) -> u64 {
        self.classes.iter().map(ClassTotal::bytes).sum()
    }

    /// Bytes that the disk does not have.
    pub fn bytes_dirty(&self) -> u64 {
        self.classes.iter().map(|class| class.dirty).sum()
    }

    /// Calls `visit` for everything that the disk does not have, lost or not.
    pub fn each_dirty(&self, mut visit: impl FnMut(DatafileKey, ByteRange)) {
        for (key, _) in self.keys_from(None) {
            let entries = self.overlapping(key, ByteRange::ALL);
            let dirty = entries.filter(|entry| matches!(entry.label.state, State::Dirty | State::Lost));
            dirty.for_each(|entry| visit(key, entry.extent));
        }
    }

    /// What nothing is known of in `extent` is lost.
    pub fn insert_lost(&mut self, key: DatafileKey, extent: ByteRange) {
        let label = Label { class: Class::Random, state: State::Lost, gain: 0, puts: 1, is_used: false };
        let place = Place { segment: NONE, position: 0 };
        let file = self.file(key);
        self.fill(file, extent, |_| Some(place), label, Timestamp(0));
    }

    /// Memory in bytes, roughly.
    pub fn memory(&self) -> u64 {
        self.entries.capacity() as u64 * size_of::<Entry>() as u64
            + self.len() * (ENTRY_BYTES - size_of::<Entry>() as u64)
            + self.files() * FILE_BYTES
            + self.segments.memory()
    }

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

    /// Adds to `extent` where nothing is.
    fn fill(
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

    fn turn(&mut self, key: DatafileKey, extent: ByteRange, state: State) {
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

    /// What is at `place` of `extent` still: parts, with their labels.
    pub fn still(&self, key: DatafileKey, extent: ByteRange, place: Place) -> Vec<(ByteRange, Label)> {
        let same = |it: &Mapped| {
            let there = u64::from(it.place.position) + extent.start();
            let here = u64::from(place.position) + it.extent.start();
            it.label.state != State::Lost && it.place.segment == place.segment && there == here
        };
        let parts = self.overlapping(key, extent).filter(same);
        parts.map(|it| (it.extent.intersection(extent).expect("they overlap"), it.label)).collect()
    }

    /// Drops one entry.
    pub fn drop_entry(&mut self, id: u32) {
        let file = self.entry(id).file;
        self.release(id);
        self.drop_if_empty(file);
    }

    /// What of a datafile is here.
    pub fn cached(&self, key: DatafileKey) -> Option<Cached> {
        self.by_key.get(&key).map(|&file| self.files[file as usize].cached(&self.entries))
    }

    /// Datafiles behind `after` with what is here of them.
    pub fn cached_after(&self, after: Option<DatafileKey>) -> impl Iterator<Item = (DatafileKey, Cached)> {
        let from = after.map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded);
        let files = self.by_key.range((from, std::ops::Bound::Unbounded));
        files.map(|(&key, &file)| (key, self.files[file as usize].cached(&self.entries)))
    }

    /// Datafiles from `from` on, with the time of writing.
    pub fn keys_from(&self, from: Option<DatafileKey>) -> impl Iterator<Item = (DatafileKey, Timestamp)> {
        let from = from.map_or(std::ops::Bound::Unbounded, std::ops::Bound::Included);
        let files = self.by_key.range((from, std::ops::Bound::Unbounded));
        files.map(|(&key, &file)| (key, self.files[file as usize].mtime))
    }

    /// Whether a datafile has any dirty bytes.
    pub fn is_dirty(&self, key: DatafileKey) -> bool {
        self.by_key.get(&key).is_some_and(|&file| self.files[file as usize].dirty > 0)
    }

    /// Whether a datafile has any lost bytes.
    pub fn is_lost(&self, key: DatafileKey) -> bool {
        self.by_key.get(&key).is_some_and(|&file| self.files[file as usize].lost > 0)
    }

    /// The newest time of writing of a datafile's dirty entries.
    pub fn mtime(&self, key: DatafileKey) -> Timestamp {
        self.by_key.get(&key).map_or(Timestamp(0), |&file| self.files[file as usize].mtime)
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

    /// The entries that overlap `extent`, whole, in the order of offsets.
    pub fn overlapping(&self, key: DatafileKey, extent: ByteRange) -> impl Iterator<Item = Mapped> {
        let file = self.by_key.get(&key).copied();
        file.into_iter().flat_map(move |file| self.ids(file, extent)).map(|id| self.mapped(id))
    }

    /// An entry by its number; it must be one.
    pub fn mapped(&self, id: u32) -> Mapped {
        let entry = self.entry(id);
        let key = self.files[entry.file as usize].key;
        Mapped { id, key, extent: entry.extent(), place: entry.place, label: entry.label }
    }

    /// Entries of a segment.
    pub fn in_segment(&self, segment: u32) -> impl Iterator<Item = Mapped> {
        let head = self.segments.get(segment).entries;
        std::iter::successors(some(head), |&id| some(self.entry(id).in_segment.next))
            .map(|id| self.mapped(id))
    }

    /// Entries of a class that may be dropped, the longest unused first.
    pub fn spare(&self, class: Class) -> impl Iterator<Item = Mapped> {
        let head = self.lru[class.index()].head;
        std::iter::successors(some(head), |&id| some(self.entry(id).lru.next)).map(|id| self.mapped(id))
    }

    /// Somebody used an entry.
    pub fn touch(&mut self, id: u32) {
        self.entries[id as usize].label.is_used = true;
        if self.entry(id).label.is_spare() && self.lru[self.entry(id).label.class.index()].tail != id {
            self.unlink_lru(id);
            self.link_lru(id);
        }
    }

    /// Panics where accounts, lists and entries do not agree. For tests.
    pub fn verify(&self) {
        let mut totals = [ClassTotal::default(); Class::ALL.len()];
        let (mut count, mut lost) = (0, 0);
        let mut in_segments = vec![(0, 0); self.segments.count() as usize];
        for (key, &file) in &self.by_key {
            let slot = &self.files[file as usize];
            assert!(slot.key == *key && !slot.entries.is_empty());
            let (mut end, mut sums) = (0, [0; 3]);
            for (&start, &id) in &slot.entries {
                let entry = self.entry(id);
                assert!(
                    entry.file == file && entry.start == start && entry.len > 0 && start >= end,
                    "{key:?}"
                );
                end = entry.end();
                count += 1;
                let len = u64::from(entry.len);
                match entry.label.state {
                    State::Lost => {
                        sums[2] += len;
                        lost += len;
                        continue;
                    }
                    State::Dirty => sums[0] += len,
                    State::Clean | State::Copy => sums[1] += len,
                }
                let total = &mut totals[entry.label.class.index()];
                total.entries += 1;
                total.gains += i128::from(entry.label.weight());
                total.puts += u64::from(entry.label.puts);
                let segment = &mut in_segments[entry.place.segment as usize];
                segment.0 += len;
                if entry.label.state == State::Dirty {
                    total.dirty += len;
                    segment.1 += len;
                } else {
                    total.clean += len;
                }
            }
            assert_eq!([slot.dirty, slot.clean, slot.lost], sums);
        }
        assert_eq!((count, lost), (self.len(), self.lost));
        assert_eq!(totals, self.classes);
        for class in Class::ALL {
            let spare: Vec<Mapped> = self.spare(class).collect();
            assert!(spare.iter().all(|it| it.label.class == class && it.label.is_spare()));
            assert_eq!(spare.iter().map(|it| it.extent.len()).sum::<u64>(), totals[class.index()].clean);
        }
        for (index, segment) in self.segments.iter() {
            assert_eq!((segment.live, segment.dirty), in_segments[index as usize]);
            let listed: u64 = self.in_segment(index).map(|it| it.extent.len()).sum();
            assert_eq!(listed, segment.live);
        }
    }

    fn entry(&self, id: u32) -> &Entry {
        &self.entries[id as usize]
    }

    fn file(&mut self, key: DatafileKey) -> u32 {
        if let Some(&file) = self.by_key.get(&key) {
            return file;
        }
        let slot =
            FileSlot { key, entries: BTreeMap::new(), mtime: Timestamp(0), dirty: 0, clean: 0, lost: 0 };
        let file = match self.files_free.pop() {
            Some(file) => {
                self.files[file as usize] = slot;
                file
            }
            None => {
                self.files.push(slot);
                (self.files.len() - 1) as u32
            }
        };
        self.by_key.insert(key, file);
        self.came.push(key);
        file
    }

    fn drop_if_empty(&mut self, file: u32) {
        let slot = &self.files[file as usize];
        if slot.entries.is_empty() {
            let key = slot.key;
            self.by_key.remove(&key);
            self.files_free.push(file);
            self.went.push(key);
        }
    }

    /// The numbers of the entries that overlap `extent`.
    fn ids(&self, file: u32, extent: ByteRange) -> impl Iterator<Item = u32> {
        let entries = &self.files[file as usize].entries;
        let before = entries.range(..extent.start()).next_back().map(|(_, &id)| id);
        let before = before.filter(|&id| self.entry(id).end() > extent.start());
        let inside = entries.range(extent.start()..extent.end()).map(|(_, &id)| id);
        before.into_iter().chain(inside)
    }

    /// Adds where nothing is, joined to the entry before it where they lie side by side.
    fn add(&mut self, file: u32, extent: ByteRange, place: Place, label: Label, mtime: Timestamp) {
        let slot = &mut self.files[file as usize];
        if label.state == State::Dirty {
            slot.mtime = if slot.dirty == 0 { mtime } else { slot.mtime.max(mtime) };
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

    fn joins(&self, id: u32, extent: ByteRange, place: Place, label: Label) -> bool {
        let entry = self.entry(id);
        let next = entry.place.position.checked_add(entry.len);
        entry.end() == extent.start()
            && label.state != State::Lost
            && (entry.label.state, entry.label.class) == (label.state, label.class)
            && entry.place.segment == place.segment
            && next == Some(place.position)
    }

    fn create(&mut self, entry: Entry) -> u32 {
        let id = match self.entries_free.pop() {
            Some(id) => {
                self.entries[id as usize] = entry;
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

    fn release(&mut self, id: u32) {
        self.leave(id);
        let entry = *self.entry(id);
        self.files[entry.file as usize].entries.remove(&entry.start);
        self.entries_free.push(id);
    }

    /// Changes an entry and all accounts of it.
    fn change(&mut self, id: u32, change: impl FnOnce(&mut Entry)) {
        self.leave(id);
        let before = self.entry(id).start;
        change(&mut self.entries[id as usize]);
        let entry = *self.entry(id);
        if entry.start != before {
            let entries = &mut self.files[entry.file as usize].entries;
            entries.remove(&before);
            entries.insert(entry.start, id);
        }
        self.enter(id);
    }

    /// Drops what `goes` of `extent`; the number of bytes.
    fn carve(&mut self, file: u32, extent: ByteRange, goes: impl Fn(Label) -> bool) -> u64 {
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
    fn isolate(&mut self, id: u32, extent: ByteRange) -> u32 {
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

    fn enter(&mut self, id: u32) {
        let entry = *self.entry(id);
        let len = u64::from(entry.len);
        let slot = &mut self.files[entry.file as usize];
        match entry.label.state {
            State::Dirty => slot.dirty += len,
            State::Clean | State::Copy => slot.clean += len,
            State::Lost => {
                slot.lost += len;
                self.lost += len;
                return;
            }
        }
        let total = &mut self.classes[entry.label.class.index()];
        total.entries += 1;
        total.gains += i128::from(entry.label.weight());
        total.puts += u64::from(entry.label.puts);
        let is_dirty = entry.label.state == State::Dirty;
        if is_dirty {
            total.dirty += len
        } else {
            total.clean += len
        }
        let segment = self.segments.get_mut(entry.place.segment);
        segment.live += len;
        segment.dirty += if is_dirty { len } else { 0 };
        let head = std::mem::replace(&mut segment.entries, id);
        self.entries[id as usize].in_segment = Link { prev: NONE, next: head };
        if head != NONE {
            self.entries[head as usize].in_segment.prev = id;
        }
        if !is_dirty {
            self.link_lru(id);
        }
    }

    fn leave(&mut self, id: u32) {
        let entry = *self.entry(id);
        let len = u64::from(entry.len);
        let slot = &mut self.files[entry.file as usize];
        match entry.label.state {
            State::Dirty => slot.dirty -= len,
            State::Clean | State::Copy => slot.clean -= len,
            State::Lost => {
                slot.lost -= len;
                self.lost -= len;
                return;
            }
        }
        let total = &mut self.classes[entry.label.class.index()];
        total.entries -= 1;
        total.gains -= i128::from(entry.label.weight());
        total.puts -= u64::from(entry.label.puts);
        let is_dirty = entry.label.state == State::Dirty;
        if is_dirty {
            total.dirty -= len
        } else {
            total.clean -= len
        }
        let segment = self.segments.get_mut(entry.place.segment);
        segment.live -= len;
        segment.dirty -= if is_dirty { len } else { 0 };
        let Link { prev, next } = entry.in_segment;
        match prev {
            NONE => segment.entries = next,
            prev => self.entries[prev as usize].in_segment.next = next,
        }
        if next != NONE {
            self.entries[next as usize].in_segment.prev = prev;
        }
        if !is_dirty {
            self.unlink_lru(id);
        }
    }

    fn link_lru(&mut self, id: u32) {
        let list = &mut self.lru[self.entries[id as usize].label.class.index()];
        let tail = std::mem::replace(&mut list.tail, id);
        match tail {
            NONE => list.head = id,
            tail => self.entries[tail as usize].lru.next = id,
        }
        self.entries[id as usize].lru = Link { prev: tail, next: NONE };
    }

    fn unlink_lru(&mut self, id: u32) {
        let entry = &self.entries[id as usize];
        let (Link { prev, next }, class) = (entry.lru, entry.label.class.index());
        match prev {
            NONE => self.lru[class].head = next,
            prev => self.entries[prev as usize].lru.next = next,
        }
        match next {
            NONE => self.lru[class].tail = prev,
            next => self.entries[next as usize].lru.prev = prev,
        }
    }
}

fn some(id: u32) -> Option<u32> {
    (id != NONE).then_some(id)
}

impl FileSlot {
    fn cached(&self, entries: &[Entry]) -> Cached {
        let end = self.entries.last_key_value().map_or(0, |(_, &id)| entries[id as usize].end());
        let mtime = if self.dirty > 0 { self.mtime } else { Timestamp(0) };
        Cached { end: ByteLen(end), mtime, dirty: ByteLen(self.dirty), clean: ByteLen(self.clean) }
    }
}
