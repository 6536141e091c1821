//! The mapping in memory: which bytes of which datafile lie where. Pure, and the same at run time and when a journal is
//! read again.
//!
//! An entry is a run of bytes that lie side by side in a datafile and in a segment. Entries lie in one table and know one
//! another by their places in it: those of a datafile in the order of offsets, those of a segment in a list, those that
//! may be dropped in a list for each class, the longest unused first. Memory for an entry is [`ENTRY_BYTES`].

mod account;
mod change;
mod picture;
mod table;
#[cfg(test)]
mod tests;
mod verify;

pub(super) use picture::Picture;
pub(super) use table::Table;

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
pub(super) const FILE_BYTES: u64 =
    (size_of::<FileSlot>() + size_of::<Head>() + 2 * size_of::<(DatafileKey, u32)>()) as u64;
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
    /// [`NONE`] for a row that is free.
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
    entries: BTreeMap<u64, u32>,
    dirty: u64,
    clean: u64,
    lost: u64,
}

/// What a checkpoint has to know of a datafile.
#[derive(Clone, Copy)]
struct Head {
    key: DatafileKey,
    mtime: Timestamp,
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
    /// Of the same numbers.
    heads: Table<Head>,
    files_free: Vec<u32>,
    entries: Table<Entry>,
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
            heads: Table::new(),
            files_free: Vec::new(),
            entries: Table::new(),
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

    /// Memory in bytes, roughly.
    pub fn memory(&self) -> u64 {
        self.entries.capacity() as u64 * size_of::<Entry>() as u64
            + self.len() * (ENTRY_BYTES - size_of::<Entry>() as u64)
            + self.files() * FILE_BYTES
            + self.segments.memory()
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

    /// What of a datafile is here.
    pub fn cached(&self, key: DatafileKey) -> Option<Cached> {
        self.by_key.get(&key).map(|&file| self.cached_of(file))
    }

    /// Datafiles behind `after` with what is here of them.
    pub fn cached_after(&self, after: Option<DatafileKey>) -> impl Iterator<Item = (DatafileKey, Cached)> {
        let from = after.map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded);
        let files = self.by_key.range((from, std::ops::Bound::Unbounded));
        files.map(|(&key, &file)| (key, self.cached_of(file)))
    }

    /// Datafiles from `from` on, with the time of writing.
    pub fn keys_from(&self, from: Option<DatafileKey>) -> impl Iterator<Item = (DatafileKey, Timestamp)> {
        let from = from.map_or(std::ops::Bound::Unbounded, std::ops::Bound::Included);
        let files = self.by_key.range((from, std::ops::Bound::Unbounded));
        files.map(|(&key, &file)| (key, self.heads.get(file).mtime))
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
        self.by_key.get(&key).map_or(Timestamp(0), |&file| self.heads.get(file).mtime)
    }

    /// The entries that overlap `extent`, whole, in the order of offsets.
    pub fn overlapping(&self, key: DatafileKey, extent: ByteRange) -> impl Iterator<Item = Mapped> {
        let file = self.by_key.get(&key).copied();
        file.into_iter().flat_map(move |file| self.ids(file, extent)).map(|id| self.mapped(id))
    }

    /// An entry by its number; it must be one.
    pub fn mapped(&self, id: u32) -> Mapped {
        let entry = self.entry(id);
        let key = self.heads.get(entry.file).key;
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

    fn entry(&self, id: u32) -> &Entry {
        self.entries.get(id)
    }

    fn cached_of(&self, file: u32) -> Cached {
        let slot = &self.files[file as usize];
        let end = slot.entries.last_key_value().map_or(0, |(_, &id)| self.entry(id).end());
        let mtime = if slot.dirty > 0 { self.heads.get(file).mtime } else { Timestamp(0) };
        Cached { end: ByteLen(end), mtime, dirty: ByteLen(slot.dirty), clean: ByteLen(slot.clean) }
    }

    /// The numbers of the entries that overlap `extent`.
    fn ids(&self, file: u32, extent: ByteRange) -> impl Iterator<Item = u32> {
        let entries = &self.files[file as usize].entries;
        let before = entries.range(..extent.start()).next_back().map(|(_, &id)| id);
        let before = before.filter(|&id| self.entry(id).end() > extent.start());
        let inside = entries.range(extent.start()..extent.end()).map(|(_, &id)| id);
        before.into_iter().chain(inside)
    }
}

fn some(id: u32) -> Option<u32> {
    (id != NONE).then_some(id)
}
