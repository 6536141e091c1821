//! Bytes of one file, as readers see them and as the medium holds them.
//!
//! Assumptions about the medium:
//!
//! * A sector of 512 bytes is written completely or not at all.
//! * Until a sync, sectors reach the medium in any order.
//! * Lengths reach the medium in the order in which they were set.
//! * Bytes that a truncation removed never reappear under a later length.

use super::pages::{PAGE_BYTES, Pages};
use crate::sim::rng::Rng;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

const SECTOR_BYTES: u64 = 512;
/// Maximum number of separate unsynced changes of a file. Beyond it, the oldest ones are written back.
const CHANGES_MAX: usize = 1024;
/// Maximum number of bytes in separate unsynced changes of a file.
const CHANGED_BYTES_MAX: u64 = 16 << 20;

enum Change {
    Write { offset: u64, bytes: Vec<u8>, is_direct: bool },
    SetLen(u64),
}

impl Change {
    fn len_bytes(&self) -> u64 {
        match self {
            Self::Write { bytes, .. } => bytes.len() as u64,
            Self::SetLen(_) => 0,
        }
    }

    /// Number of bytes that a sync writes: none after a direct write, whose bytes are on the device.
    fn sync_bytes(&self) -> u64 {
        match self {
            Self::Write { is_direct: true, .. } => 0,
            _ => self.len_bytes(),
        }
    }
}

/// Bytes of a file in both versions, and the changes between them.
#[derive(Default)]
pub struct Content {
    now: Pages,
    medium: Pages,
    changes: VecDeque<Change>,
    /// Number of changes that have been removed from the front of `changes`.
    durable_changes: u64,
    changed_bytes: u64,
    /// Pages from the start of the file that occupy space whether written or not.
    reserved_pages: u64,
}

impl Content {
    /// Returns the version that readers see.
    pub fn pages(&self) -> &Pages {
        &self.now
    }

    /// Returns the contents on another disk, all of them durable.
    pub fn copied(&self) -> Self {
        let (now, medium) = (self.now.clone(), self.now.clone());
        Self { now, medium, reserved_pages: self.reserved_pages, ..Self::default() }
    }

    /// Returns the number of pages from the start that occupy space whether written or not.
    pub fn reserved_pages(&self) -> u64 {
        self.reserved_pages
    }

    /// Extends to `len` and allocates all of its space.
    pub fn allocate(&mut self, len: u64) {
        if len > self.now.len() {
            self.set_len(len);
        }
        self.reserved_pages = self.reserved_pages.max(len.div_ceil(PAGE_BYTES));
    }

    /// Returns the number of bytes that a sync would write, if those up to `mark` are being written already.
    pub fn unsynced_after(&self, mark: u64) -> u64 {
        let known = usize::try_from(mark.saturating_sub(self.durable_changes)).unwrap_or(usize::MAX);
        self.changes.iter().skip(known).map(Change::sync_bytes).sum()
    }

    /// Writes, and extends the file if necessary.
    pub fn write(&mut self, offset: u64, bytes: Vec<u8>, is_direct: bool) {
        if bytes.is_empty() {
            return;
        }
        self.now.put(offset, &bytes);
        self.now.grow(offset + bytes.len() as u64);
        self.push(Change::Write { offset, bytes, is_direct });
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
            // Write back at least half, as the system does over time.
            let half = self.changed_bytes / 2;
            let (mut count, mut bytes) = (0, 0);
            while count < self.changes.len() && (count <= CHANGES_MAX / 2 || bytes < half) {
                bytes += self.changes[count].len_bytes();
                count += 1;
            }
            self.sync_to(self.durable_changes + count as u64);
        }
    }

    /// Returns the changes that a sync starting now makes durable: pass the result to [`sync_to`](Self::sync_to) at its
    /// end.
    pub fn mark(&self) -> u64 {
        self.durable_changes + self.changes.len() as u64
    }

    /// Makes every change before `mark` durable.
    pub fn sync_to(&mut self, mark: u64) {
        let count = usize::try_from(mark.saturating_sub(self.durable_changes)).unwrap_or(usize::MAX);
        let count = count.min(self.changes.len());
        let is_all = count == self.changes.len();
        let mut touched = BTreeSet::new();
        for change in self.changes.drain(..count) {
            self.durable_changes += 1;
            self.changed_bytes -= change.len_bytes();
            match change {
                Change::Write { offset, bytes, .. } if is_all => {
                    touched.extend(offset / PAGE_BYTES..=(offset + bytes.len() as u64 - 1) / PAGE_BYTES);
                }
                Change::Write { offset, bytes, .. } => {
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

    /// Applies a failed sync: the system marks the pages as clean, so that no later sync writes them. Lengths survive.
    pub fn forget_unsynced(&mut self) {
        self.durable_changes += self.changes.len() as u64;
        self.changed_bytes = 0;
        for change in self.changes.drain(..) {
            match change {
                Change::Write { offset, bytes, .. } => self.medium.grow(offset + bytes.len() as u64),
                Change::SetLen(len) => self.medium.set_len(len),
            }
        }
    }

    /// Applies a power failure: every unsynced sector is old, new, or from any version between.
    pub fn lose_power(&mut self, rng: &mut Rng) {
        let count = self.changes.len() as u64;
        let changes = std::mem::take(&mut self.changes);
        self.durable_changes += count;
        self.changed_bytes = 0;
        let (lens_kept, kept): (u64, Option<u64>) = match rng.below(4) {
            0 => (0, Some(0)),
            1 => (count, Some(count)),
            _ => (rng.below(count + 1), None),
        };
        // A sector that a lost truncation would have freed contains no bytes written after that truncation.
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
                Change::Write { offset, bytes, .. } => {
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
