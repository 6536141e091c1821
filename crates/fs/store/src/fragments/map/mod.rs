//! The in-memory mapping from ranges of datafiles to locations in segments. Pure: run time and replay use the same
//! code.
//!
//! ```text
//! by_key   | datafile     -> file number
//! files    | file number  -> start offset -> entry number
//! entries  | entry number -> range, location, label, links   (copy-on-write pages)
//! segments | segment      -> first of its entries, chunks    (copy-on-write pages)
//! lru      | class        -> clean entries, least recently used first
//! ```
//!
//! An entry is a range that is contiguous both in its datafile and in its segment. Each entry takes [`ENTRY_BYTES`] of
//! memory.

mod account;
mod change;
mod snapshot;
mod table;
#[cfg(test)]
mod tests;
mod verify;

pub(super) use snapshot::MapSnapshot;
pub(super) use table::Table;

use super::piece::{Cached, Location, State};
use super::segments::Segments;
use crate::datafile::DatafileKey;
use std::collections::BTreeMap;
use weft_core::DataClass;
use weft_core::ranges::ByteRange;
use weft_core::{ByteLen, Timestamp};

/// Marks the absence of an entry.
pub(super) const NONE: u32 = u32::MAX;
/// Memory of an entry: its row in the table, and its slot in the index of its datafile (nodes of a B-tree are two
/// thirds full).
pub(super) const ENTRY_BYTES: u64 = (size_of::<Entry>() + (size_of::<(u64, u32)>() * 3).div_ceil(2)) as u64;
/// Memory of a datafile.
pub(super) const FILE_BYTES: u64 =
    (size_of::<FileSlot>() + size_of::<FileHeader>() + 2 * size_of::<(DatafileKey, u32)>()) as u64;
/// Unit in which gains are stored, in nanoseconds.
const GAIN_UNIT_NS: i64 = 1024;

/// Attributes of an entry, without its location.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Label {
    pub class: DataClass,
    pub state: State,
    /// Mean return per put, in units of [`GAIN_UNIT_NS`].
    pub gain: i32,
    /// Number of puts merged into the entry.
    pub puts: u16,
    /// True if the entry has been found since it was put.
    pub is_used: bool,
}

impl Label {
    pub fn gain_of(ns: i64) -> i32 {
        (ns / GAIN_UNIT_NS).clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as i32
    }

    fn weight(self) -> i64 {
        i64::from(self.gain) * i64::from(self.puts)
    }

    /// Returns true if the entry may be dropped.
    pub fn is_evictable(self) -> bool {
        matches!(self.state, State::Clean | State::Copy)
    }
}

/// A copy of an entry, with its number and datafile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Mapped {
    pub id: u32,
    pub key: DatafileKey,
    pub extent: ByteRange,
    pub location: Location,
    pub label: Label,
}

impl Mapped {
    /// Returns the part of the entry inside `extent`, which it overlaps.
    pub fn clipped(&self, extent: ByteRange) -> Self {
        let part = self.extent.intersection(extent).expect("found by it");
        let location = match self.label.state {
            State::Lost => self.location,
            _ => Location {
                position: self.location.position + (part.start() - self.extent.start()) as u32,
                ..self.location
            },
        };
        Self { extent: part, location, ..*self }
    }
}

#[derive(Clone, Copy)]
pub(super) struct Entry {
    start: u64,
    len: u32,
    /// [`NONE`] for an unused row.
    file: u32,
    location: Location,
    label: Label,
    /// Links in the LRU list of the class and in the list of the segment.
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

/// Attributes of a datafile that a checkpoint records.
#[derive(Clone, Copy)]
struct FileHeader {
    key: DatafileKey,
    mtime: Timestamp,
}

/// Counters of one class.
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

    /// Returns the mean return per put in nanoseconds.
    pub fn gain(&self) -> i64 {
        (self.gains.checked_div(i128::from(self.puts)).unwrap_or(0) * i128::from(GAIN_UNIT_NS)) as i64
    }
}

#[derive(Clone, Copy)]
struct List {
    head: u32,
    tail: u32,
}

/// The mapping of a log.
pub(super) struct Map {
    by_key: BTreeMap<DatafileKey, u32>,
    files: Vec<FileSlot>,
    /// Indexed by file number, as `files` is.
    headers: Table<FileHeader>,
    files_free: Vec<u32>,
    entries: Table<Entry>,
    entries_free: Vec<u32>,
    lru: [List; DataClass::COUNT],
    pub segments: Segments,
    pub classes: [ClassTotal; DataClass::COUNT],
    pub lost: u64,
    /// Datafiles added and removed since the filter was last updated.
    pub files_added: Vec<DatafileKey>,
    pub files_removed: Vec<DatafileKey>,
}

impl Map {
    pub fn new(segments: Segments) -> Self {
        Self {
            by_key: BTreeMap::new(),
            files: Vec::new(),
            headers: Table::new(),
            files_free: Vec::new(),
            entries: Table::new(),
            entries_free: Vec::new(),
            lru: [List { head: NONE, tail: NONE }; DataClass::COUNT],
            segments,
            classes: Default::default(),
            lost: 0,
            files_added: Vec::new(),
            files_removed: Vec::new(),
        }
    }

    /// Returns the number of entries.
    pub fn len(&self) -> u64 {
        (self.entries.len() - self.entries_free.len()) as u64
    }

    pub fn files(&self) -> u64 {
        self.by_key.len() as u64
    }

    /// Returns the bytes of all classes.
    pub fn bytes(&self) -> u64 {
        self.classes.iter().map(ClassTotal::bytes).sum()
    }

    /// Returns the bytes that the disk does not have.
    pub fn bytes_dirty(&self) -> u64 {
        self.classes.iter().map(|class| class.dirty).sum()
    }

    /// Calls `visit` for every dirty or lost range.
    pub fn for_each_dirty(&self, mut visit: impl FnMut(DatafileKey, ByteRange)) {
        for (key, _) in self.keys_from(None) {
            let entries = self.overlapping(key, ByteRange::ALL);
            let dirty = entries.filter(|entry| matches!(entry.label.state, State::Dirty | State::Lost));
            dirty.for_each(|entry| visit(key, entry.extent));
        }
    }

    /// Returns the approximate memory in bytes.
    pub fn memory(&self) -> u64 {
        self.entries.capacity() as u64 * size_of::<Entry>() as u64
            + self.len() * (ENTRY_BYTES - size_of::<Entry>() as u64)
            + self.files() * FILE_BYTES
            + self.segments.memory()
    }

    /// Returns the parts of `extent` that are still mapped to `location`, with their labels.
    pub fn parts_at(
        &self,
        key: DatafileKey,
        extent: ByteRange,
        location: Location,
    ) -> Vec<(ByteRange, Label)> {
        let same = |it: &Mapped| {
            let there = u64::from(it.location.position) + extent.start();
            let here = u64::from(location.position) + it.extent.start();
            it.label.state != State::Lost && it.location.segment == location.segment && there == here
        };
        let parts = self.overlapping(key, extent).filter(same);
        parts.map(|it| (it.extent.intersection(extent).expect("they overlap"), it.label)).collect()
    }

    /// Returns the state of a datafile; `None` if it has no bytes in the log.
    pub fn cached(&self, key: DatafileKey) -> Option<Cached> {
        self.by_key.get(&key).map(|&file| self.cached_of(file))
    }

    /// Iterates over the datafiles after `after`, with their states.
    pub fn cached_after(&self, after: Option<DatafileKey>) -> impl Iterator<Item = (DatafileKey, Cached)> {
        let from = after.map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded);
        let files = self.by_key.range((from, std::ops::Bound::Unbounded));
        files.map(|(&key, &file)| (key, self.cached_of(file)))
    }

    /// Iterates over the datafiles from `from` on, with their modification times.
    pub fn keys_from(&self, from: Option<DatafileKey>) -> impl Iterator<Item = (DatafileKey, Timestamp)> {
        let from = from.map_or(std::ops::Bound::Unbounded, std::ops::Bound::Included);
        let files = self.by_key.range((from, std::ops::Bound::Unbounded));
        files.map(|(&key, &file)| (key, self.headers.get(file).mtime))
    }

    /// Returns true if a datafile has dirty bytes.
    pub fn is_dirty(&self, key: DatafileKey) -> bool {
        self.by_key.get(&key).is_some_and(|&file| self.files[file as usize].dirty > 0)
    }

    /// Returns true if a datafile has lost bytes.
    pub fn is_lost(&self, key: DatafileKey) -> bool {
        self.by_key.get(&key).is_some_and(|&file| self.files[file as usize].lost > 0)
    }

    /// Returns the newest modification time among a datafile's dirty entries.
    pub fn mtime(&self, key: DatafileKey) -> Timestamp {
        self.by_key.get(&key).map_or(Timestamp(0), |&file| self.headers.get(file).mtime)
    }

    /// Iterates over the entries that overlap `extent`, unclipped, in the order of offsets.
    pub fn overlapping(&self, key: DatafileKey, extent: ByteRange) -> impl Iterator<Item = Mapped> {
        let file = self.by_key.get(&key).copied();
        file.into_iter().flat_map(move |file| self.ids(file, extent)).map(|id| self.mapped(id))
    }

    /// Returns the entry with a number that is in use.
    pub fn mapped(&self, id: u32) -> Mapped {
        let entry = self.entry(id);
        let key = self.headers.get(entry.file).key;
        Mapped { id, key, extent: entry.extent(), location: entry.location, label: entry.label }
    }

    /// Iterates over the entries of a segment.
    pub fn in_segment(&self, segment: u32) -> impl Iterator<Item = Mapped> {
        let head = self.segments.get(segment).entries;
        std::iter::successors(some(head), |&id| some(self.entry(id).in_segment.next))
            .map(|id| self.mapped(id))
    }

    /// Iterates over the clean entries of a class, least recently used first.
    pub fn evictable(&self, class: DataClass) -> impl Iterator<Item = Mapped> {
        let head = self.lru[class.index()].head;
        std::iter::successors(some(head), |&id| some(self.entry(id).lru.next)).map(|id| self.mapped(id))
    }

    fn entry(&self, id: u32) -> &Entry {
        self.entries.get(id)
    }

    fn cached_of(&self, file: u32) -> Cached {
        let slot = &self.files[file as usize];
        let end = slot.entries.last_key_value().map_or(0, |(_, &id)| self.entry(id).end());
        let mtime = if slot.dirty > 0 { self.headers.get(file).mtime } else { Timestamp(0) };
        Cached { end: ByteLen(end), mtime, dirty: ByteLen(slot.dirty), clean: ByteLen(slot.clean) }
    }

    /// Iterates over the numbers of the entries that overlap `extent`.
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
