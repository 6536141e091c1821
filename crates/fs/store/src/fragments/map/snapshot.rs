//! Snapshots of the mapping, for work that takes too long to hold the lock.

use super::{Entry, FileHeader, Label, Map, NONE, Table};
use crate::datafile::DatafileKey;
use crate::fragments::piece::Location;
use crate::fragments::segments::Segment;
use weft_core::Timestamp;
use weft_core::ranges::ByteRange;

/// The mapping at one moment. Taking a snapshot costs one reference count per page.
pub(in crate::fragments) struct MapSnapshot {
    pub segments: Table<Segment>,
    headers: Table<FileHeader>,
    entries: Table<Entry>,
    files_count: u64,
    entries_count: u64,
}

/// A datafile in a snapshot, with its entries in the order of offsets.
pub(in crate::fragments) struct DatafileSnapshot<'a> {
    pub key: DatafileKey,
    pub mtime: Timestamp,
    entries: &'a [EntryOrder],
    table: &'a Table<Entry>,
}

/// Sort key of an entry: index of its datafile in key order, start offset, entry number.
type EntryOrder = (u32, u64, u32);

impl Map {
    /// Takes a snapshot. While it exists, each page is copied before its first change.
    pub fn snapshot(&self) -> MapSnapshot {
        MapSnapshot {
            segments: self.segments.snapshot(),
            headers: self.headers.clone(),
            entries: self.entries.clone(),
            files_count: self.files(),
            entries_count: self.len(),
        }
    }
}

impl MapSnapshot {
    pub const fn files_count(&self) -> u64 {
        self.files_count
    }

    pub const fn entries_count(&self) -> u64 {
        self.entries_count
    }

    /// Calls `visit` for each datafile in the order of keys.
    pub fn for_each_datafile(&self, mut visit: impl FnMut(DatafileSnapshot<'_>)) {
        let mut order: Vec<EntryOrder> = Vec::with_capacity(self.entries_count as usize);
        let mut files = vec![false; self.headers.len()];
        for (id, entry) in (0..).zip(self.entries.iter()).filter(|(_, entry)| entry.file != NONE) {
            files[entry.file as usize] = true;
            order.push((entry.file, entry.start, id));
        }
        let mut by_key: Vec<u32> = (0..).zip(&files).filter(|(_, is)| **is).map(|(file, _)| file).collect();
        by_key.sort_unstable_by_key(|&file| self.headers.get(file).key);
        let mut ranks = vec![NONE; self.headers.len()];
        (0..).zip(&by_key).for_each(|(rank, &file)| ranks[file as usize] = rank);
        order.iter_mut().for_each(|(file, ..)| *file = ranks[*file as usize]);
        order.sort_unstable();
        for (entries, &file) in order.chunk_by(|a, b| a.0 == b.0).zip(&by_key) {
            let FileHeader { key, mtime } = *self.headers.get(file);
            visit(DatafileSnapshot { key, mtime, entries, table: &self.entries });
        }
    }
}

impl DatafileSnapshot<'_> {
    /// Iterates over ranges, locations and labels.
    pub fn entries(&self) -> impl Iterator<Item = (ByteRange, Location, Label)> {
        self.entries.iter().map(|&(_, _, id)| {
            let entry = self.table.get(id);
            (entry.extent(), entry.location, entry.label)
        })
    }
}
