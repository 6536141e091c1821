//! The mapping as it was at one moment, for whoever needs longer than others should wait.

use super::{Entry, Head, Label, Map, NONE, Table};
use crate::datafile::DatafileKey;
use crate::fragments::piece::Place;
use crate::fragments::segments::Segment;
use weft_core::Timestamp;
use weft_core::ranges::ByteRange;

/// It. Taking one costs a count for each page of the tables.
pub(in crate::fragments) struct Picture {
    pub segments: Table<Segment>,
    heads: Table<Head>,
    entries: Table<Entry>,
    files_count: u64,
    entries_count: u64,
}

/// Entries of a datafile, in the order of offsets.
pub(in crate::fragments) struct FilePicture<'a> {
    pub key: DatafileKey,
    pub mtime: Timestamp,
    entries: &'a [Placed],
    of: &'a Table<Entry>,
}

/// Where in the order an entry comes: the place of its datafile, its start, its number.
type Placed = (u32, u64, u32);

impl Map {
    /// What is here now. While it lives, each page of the tables that changes is copied once.
    pub fn picture(&self) -> Picture {
        Picture {
            segments: self.segments.picture(),
            heads: self.heads.clone(),
            entries: self.entries.clone(),
            files_count: self.files(),
            entries_count: self.len(),
        }
    }
}

impl Picture {
    pub const fn files_count(&self) -> u64 {
        self.files_count
    }

    pub const fn entries_count(&self) -> u64 {
        self.entries_count
    }

    /// Calls `visit` for each datafile in the order of keys.
    pub fn each_file(&self, mut visit: impl FnMut(FilePicture<'_>)) {
        let mut order: Vec<Placed> = Vec::with_capacity(self.entries_count as usize);
        let mut files = vec![false; self.heads.len()];
        for (id, entry) in (0..).zip(self.entries.iter()).filter(|(_, entry)| entry.file != NONE) {
            files[entry.file as usize] = true;
            order.push((entry.file, entry.start, id));
        }
        let mut by_key: Vec<u32> = (0..).zip(&files).filter(|(_, is)| **is).map(|(file, _)| file).collect();
        by_key.sort_unstable_by_key(|&file| self.heads.get(file).key);
        let mut places = vec![NONE; self.heads.len()];
        (0..).zip(&by_key).for_each(|(place, &file)| places[file as usize] = place);
        order.iter_mut().for_each(|(file, ..)| *file = places[*file as usize]);
        order.sort_unstable();
        for (entries, &file) in order.chunk_by(|a, b| a.0 == b.0).zip(&by_key) {
            let Head { key, mtime } = *self.heads.get(file);
            visit(FilePicture { key, mtime, entries, of: &self.entries });
        }
    }
}

impl FilePicture<'_> {
    /// Extents, where they lie, and what is remembered of them.
    pub fn entries(&self) -> impl Iterator<Item = (ByteRange, Place, Label)> {
        self.entries.iter().map(|&(_, _, id)| {
            let entry = self.of.get(id);
            (entry.extent(), entry.place, entry.label)
        })
    }
}
