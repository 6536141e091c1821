//! One file's bytes as its readers see them and as the medium holds them.
//!
//! Assumptions about the medium: a sector of 512 bytes is written whole or not at all; sectors reach the medium in
//! any order until a sync; lengths reach it in the order in which they were set; what a cut removed never comes
//! back under a later length.

use super::pages::{PAGE_BYTES, Pages};
use crate::sim::rng::Rng;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

const SECTOR_BYTES: u64 = 512;
/// Unsynced changes that a file keeps apart; older ones have been written back by then.
const CHANGES_MAX: usize = 1024;
/// Unsynced bytes that a file keeps apart.
const CHANGED_BYTES_MAX: u64 = 16 << 20;

enum Change {
    Write { offset: u64, bytes: Vec<u8> },
    SetLen(u64),
}

impl Change {
    fn len_bytes(&self) -> u64 {
        match self {
            Self::Write { bytes, .. } => bytes.len() as u64,
            Self::SetLen(_) => 0,
        }
    }
}

/// A file's bytes in both versions, and the changes between them.
#[derive(Default)]
pub struct Content {
    now: Pages,
    medium: Pages,
    changes: VecDeque<Change>,
    /// The number of changes that have left `changes` at its front.
    settled: u64,
    changed_bytes: u64,
    /// Pages from the beginning that take room whether they were written or not.
    reserved_pages: u64,
}

impl Content {
    /// What readers see.
    pub fn pages(&self) -> &Pages {
        &self.now
    }

    /// The contents on another disk: everything is on the medium.
    pub fn copied(&self) -> Self {
        let (now, medium) = (self.now.clone(), self.now.clone());
        Self { now, medium, reserved_pages: self.reserved_pages, ..Self::default() }
    }

    /// Pages from the beginning that take room whether they were written or not.
    pub fn reserved_pages(&self) -> u64 {
        self.reserved_pages
    }

    /// Extends to `len` with room for all of it.
    pub fn allocate(&mut self, len: u64) {
        if len > self.now.len() {
            self.set_len(len);
        }
        self.reserved_pages = self.reserved_pages.max(len.div_ceil(PAGE_BYTES));
    }

    /// Bytes that a sync would have to write.
    pub fn unsynced_bytes(&self) -> u64 {
        self.changed_bytes
    }

    /// Writes, making the file longer where needed.
    pub fn write(&mut self, offset: u64, bytes: Vec<u8>) {
        if bytes.is_empty() {
            return;
        }
        self.now.put(offset, &bytes);
        self.now.grow(offset + bytes.len() as u64);
        self.push(Change::Write { offset, bytes });
    }

    /// Cuts or extends.
    pub fn set_len(&mut self, len: u64) {
        self.now.set_len(len);
        self.reserved_pages = self.reserved_pages.min(len.div_ceil(PAGE_BYTES));
        self.push(Change::SetLen(len));
    }

    fn push(&mut self, change: Change) {
        self.changed_bytes += change.len_bytes();
        self.changes.push_back(change);
        if self.changes.len() > CHANGES_MAX || self.changed_bytes > CHANGED_BYTES_MAX {
            // As the system does in its own time: at least half is written back.
            let half = self.changed_bytes / 2;
            let (mut count, mut bytes) = (0, 0);
            while count < self.changes.len() && (count <= CHANGES_MAX / 2 || bytes < half) {
                bytes += self.changes[count].len_bytes();
                count += 1;
            }
            self.sync_to(self.settled + count as u64);
        }
    }

    /// What a sync that starts now has to make durable: pass it to [`sync_to`](Self::sync_to) when it ends.
    pub fn mark(&self) -> u64 {
        self.settled + self.changes.len() as u64
    }

    /// Makes every change before `mark` durable.
    pub fn sync_to(&mut self, mark: u64) {
        let count = usize::try_from(mark.saturating_sub(self.settled)).unwrap_or(usize::MAX);
        let count = count.min(self.changes.len());
        let is_all = count == self.changes.len();
        let mut touched = BTreeSet::new();
        for change in self.changes.drain(..count) {
            self.settled += 1;
            self.changed_bytes -= change.len_bytes();
            match change {
                Change::Write { offset, bytes } if is_all => {
                    touched.extend(offset / PAGE_BYTES..=(offset + bytes.len() as u64 - 1) / PAGE_BYTES);
                }
                Change::Write { offset, bytes } => {
                    self.medium.put(offset, &bytes);
                    self.medium.grow(offset + bytes.len() as u64);
                }
                Change::SetLen(len) => {
                    self.medium.set_len(len);
                    touched.insert(len / PAGE_BYTES);
                }
            }
        }
        if is_all {
            touched.into_iter().for_each(|page| self.medium.share(page, &self.now));
            self.medium.grow(self.now.len());
        }
    }

    /// After a failed sync: the system takes the pages for clean, so no later sync writes them. Lengths survive.
    pub fn forget_unsynced(&mut self) {
        self.settled += self.changes.len() as u64;
        self.changed_bytes = 0;
        for change in self.changes.drain(..) {
            match change {
                Change::Write { offset, bytes } => self.medium.grow(offset + bytes.len() as u64),
                Change::SetLen(len) => self.medium.set_len(len),
            }
        }
    }

    /// Loss of power: every unsynced sector is old, new, or anything between.
    pub fn lose_power(&mut self, rng: &mut Rng) {
        let count = self.changes.len() as u64;
        let changes = std::mem::take(&mut self.changes);
        self.settled += count;
        self.changed_bytes = 0;
        let (lens_kept, kept): (u64, Option<u64>) = match rng.below(4) {
            0 => (0, Some(0)),
            1 => (count, Some(count)),
            _ => (rng.below(count + 1), None),
        };
        // A sector that a lost cut would have freed has nothing of what was written after that cut.
        let lost_cuts: Vec<(u64, u64)> = (0..count)
            .skip(lens_kept as usize)
            .filter_map(|index| match changes[index as usize] {
                Change::SetLen(len) => Some((index, len)),
                Change::Write { .. } => None,
            })
            .collect();
        let mut sectors_kept: BTreeMap<u64, u64> = BTreeMap::new();
        let mut sector_kept = |sector: u64| {
            *sectors_kept.entry(sector).or_insert_with(|| {
                let end = (sector + 1) * SECTOR_BYTES;
                let cut = lost_cuts.iter().find(|(_, len)| *len < end).map_or(count, |(index, _)| *index);
                kept.unwrap_or_else(|| rng.below(count + 1)).min(cut)
            })
        };
        let mut result = std::mem::take(&mut self.medium);
        for (index, change) in changes.into_iter().enumerate() {
            let index = index as u64;
            match change {
                Change::SetLen(len) if index < lens_kept => result.set_len(len),
                Change::SetLen(_) => {}
                Change::Write { offset, bytes } => {
                    let mut done = 0;
                    while done < bytes.len() {
                        let at = offset + done as u64;
                        let part = ((SECTOR_BYTES - at % SECTOR_BYTES) as usize).min(bytes.len() - done);
                        if index < sector_kept(at / SECTOR_BYTES) {
                            result.put(at, &bytes[done..done + part]);
                        }
                        done += part;
                    }
                    if index < lens_kept {
                        result.grow(offset + bytes.len() as u64);
                    }
                }
            }
        }
        result.set_len(result.len());
        self.reserved_pages = self.reserved_pages.min(result.len().div_ceil(PAGE_BYTES));
        self.now = result.clone();
        self.medium = result;
    }
}
