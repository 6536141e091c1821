//! Space allocation: files in large extents, apart from each other, like file systems with goal blocks.

use super::PAGE;
use std::collections::BTreeMap;

/// A part of a request on the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Piece {
    pub at: u64,
    pub len: u64,
}

#[derive(Clone, Debug)]
struct FileExtents {
    /// Length of its extents.
    extent_len: u64,
    /// Address of each extent by its number in the file.
    extents: BTreeMap<u64, u64>,
}

/// The space of a device, allocated to files in extents.
///
/// The extent length of a file is 1/4096 of the free space when the file is created, within bounds. A few files can
/// then grow far before they meet, and many files still fit. Each extent follows the previous one if possible. An
/// access at an offset allocates all extents before it, so that the order of writes does not change the order on the
/// device.
#[derive(Clone, Debug)]
pub(crate) struct Space {
    free: BTreeMap<u64, u64>,
    free_bytes: u64,
    files: BTreeMap<u64, FileExtents>,
    extent_max: u64,
    end: u64,
}

/// Minimum length of an extent in bytes.
const EXTENT_MIN: u64 = 64 << 10;

impl Space {
    /// All space of a device except the range `taken` by the journal.
    pub fn new(capacity: u64, taken: (u64, u64), extent_max: u64) -> Self {
        let end = capacity / PAGE * PAGE;
        let mut free = BTreeMap::new();
        for (from, to) in [(0, taken.0.min(end)), (taken.1.min(end), end)] {
            if from < to {
                free.insert(from, to - from);
            }
        }
        let free_bytes = free.values().sum();
        Self { free, free_bytes, files: BTreeMap::new(), extent_max: extent_max.max(EXTENT_MIN), end }
    }

    /// Takes `len` bytes at `wanted` if these are free, else the first free range that is long enough.
    fn take(&mut self, wanted: Option<u64>, len: u64) -> Option<u64> {
        if let Some(at) = wanted
            && let Some((&start, &len_free)) = self.free.range(..=at).next_back()
            && start + len_free >= at + len
        {
            self.take_range(start, len_free, at, len);
            return Some(at);
        }
        let (&start, &len_free) = self.free.iter().find(|&(_, &len_free)| len_free >= len)?;
        self.take_range(start, len_free, start, len);
        Some(start)
    }

    fn take_range(&mut self, start: u64, len_free: u64, at: u64, len: u64) {
        self.free.remove(&start);
        if at > start {
            self.free.insert(start, at - start);
        }
        if start + len_free > at + len {
            self.free.insert(at + len, start + len_free - at - len);
        }
        self.free_bytes -= len;
    }

    fn free_range(&mut self, mut at: u64, mut len: u64) {
        self.free_bytes += len;
        if let Some((&before, &len_free)) = self.free.range(..at).next_back()
            && before + len_free == at
        {
            self.free.remove(&before);
            (at, len) = (before, len + len_free);
        }
        if let Some(len_free) = self.free.remove(&(at + len)) {
            len += len_free;
        }
        self.free.insert(at, len);
    }

    /// Appends the device addresses of a file's range, in pieces of at most `most` bytes. Allocates missing extents and
    /// returns whether there were any.
    pub fn pieces(&mut self, file: u64, start: u64, end: u64, most: u64, out: &mut Vec<Piece>) -> bool {
        let mut made = false;
        let mut at = start;
        while at < end {
            let extent_len = match self.files.get(&file) {
                Some(file_extents) => file_extents.extent_len,
                None => {
                    let extent_len =
                        (self.free_bytes / 4096).clamp(EXTENT_MIN, self.extent_max) / PAGE * PAGE;
                    self.files.insert(file, FileExtents { extent_len, extents: BTreeMap::new() });
                    extent_len
                }
            };
            let number = at / extent_len;
            let place = match self.files[&file].extents.get(&number) {
                Some(&place) => place,
                None => {
                    made = true;
                    // A hole larger than the device gets no extents.
                    let end = self.files[&file].extents.last_key_value().map_or(0, |(&last, _)| last + 1);
                    if number > end && number - end <= self.free_bytes / extent_len {
                        for before in end..number {
                            self.place(file, before, extent_len);
                        }
                    }
                    self.place(file, number, extent_len)
                }
            };
            let within = at % extent_len;
            let up_to = end.min(at - within + extent_len);
            while at < up_to {
                let len = (up_to - at).min(most);
                let to = place + at % extent_len;
                match out.last_mut() {
                    Some(last) if last.at + last.len == to && last.len + len <= most => last.len += len,
                    _ => out.push(Piece { at: to, len }),
                }
                at += len;
            }
        }
        made
    }

    fn place(&mut self, file: u64, number: u64, extent_len: u64) -> u64 {
        let before = number.checked_sub(1).and_then(|before| self.files[&file].extents.get(&before));
        let wanted = before.map(|at| at + extent_len);
        // On a full device, some extents share an address. The model stores no data, so only times are affected.
        let at = self.take(wanted, extent_len).unwrap_or_else(|| {
            let places = (self.end / extent_len).max(1);
            (file.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ number) % places * extent_len
        });
        self.files.get_mut(&file).expect("a file with space").extents.insert(number, at);
        at
    }

    /// Frees the extents behind `len` bytes of a file.
    pub fn cut(&mut self, file: u64, len: u64) {
        let Some(file_extents) = self.files.get_mut(&file) else { return };
        let extent_len = file_extents.extent_len;
        let gone = file_extents.extents.split_off(&len.div_ceil(extent_len));
        if len == 0 {
            self.files.remove(&file);
        }
        for at in gone.into_values() {
            // An address that two files share is already free.
            let is_free = self
                .free
                .range(..at + extent_len)
                .next_back()
                .is_some_and(|(&s, &len_free)| s + len_free > at);
            if !is_free {
                self.free_range(at, extent_len);
            }
        }
    }
}
