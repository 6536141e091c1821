//! Where files lie: large stretches, files apart from one another, as file systems with goal blocks place them.

use super::PAGE;
use std::collections::BTreeMap;

/// A part of a request on the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Piece {
    pub at: u64,
    pub len: u64,
}

#[derive(Clone, Debug)]
struct Placed {
    /// Length of its stretches.
    stretch: u64,
    /// Where each lies, by its number in the file.
    stretches: BTreeMap<u64, u64>,
}

/// The room of a device, shared out to files in stretches.
///
/// A file's first stretch takes up to 1/4096 of what is free, so that a few files can grow far before they meet and
/// many still find room. A further one follows the one before it where it can. A file that is used at an offset has
/// room for all before it, so that its bytes lie in the order of their offsets in whatever order they come.
#[derive(Clone, Debug)]
pub(crate) struct Space {
    free: BTreeMap<u64, u64>,
    free_bytes: u64,
    files: BTreeMap<u64, Placed>,
    stretch_max: u64,
    end: u64,
}

/// The least that a file gets.
const STRETCH_MIN: u64 = 64 << 10;

impl Space {
    /// All of a device but the range that is `taken` for the journal.
    pub fn new(capacity: u64, taken: (u64, u64), stretch_max: u64) -> Self {
        let end = capacity / PAGE * PAGE;
        let mut free = BTreeMap::new();
        for (from, to) in [(0, taken.0.min(end)), (taken.1.min(end), end)] {
            if from < to {
                free.insert(from, to - from);
            }
        }
        let free_bytes = free.values().sum();
        Self { free, free_bytes, files: BTreeMap::new(), stretch_max: stretch_max.max(STRETCH_MIN), end }
    }

    /// Takes `len` bytes at `wanted` if that is free, else the first that are; the longest shorter ones failing that
    /// are no help, so `None`.
    fn take(&mut self, wanted: Option<u64>, len: u64) -> Option<u64> {
        if let Some(at) = wanted
            && let Some((&start, &room)) = self.free.range(..=at).next_back()
            && start + room >= at + len
        {
            self.cut_out(start, room, at, len);
            return Some(at);
        }
        let (&start, &room) = self.free.iter().find(|&(_, &room)| room >= len)?;
        self.cut_out(start, room, start, len);
        Some(start)
    }

    fn cut_out(&mut self, start: u64, room: u64, at: u64, len: u64) {
        self.free.remove(&start);
        if at > start {
            self.free.insert(start, at - start);
        }
        if start + room > at + len {
            self.free.insert(at + len, start + room - at - len);
        }
        self.free_bytes -= len;
    }

    fn give_back(&mut self, mut at: u64, mut len: u64) {
        self.free_bytes += len;
        if let Some((&before, &room)) = self.free.range(..at).next_back()
            && before + room == at
        {
            self.free.remove(&before);
            (at, len) = (before, len + room);
        }
        if let Some(room) = self.free.remove(&(at + len)) {
            len += room;
        }
        self.free.insert(at, len);
    }

    /// Appends where a range of a file lies, in pieces of at most `most` bytes, and makes room for what has none;
    /// whether it had to.
    pub fn pieces(&mut self, file: u64, start: u64, end: u64, most: u64, out: &mut Vec<Piece>) -> bool {
        let mut made = false;
        let mut at = start;
        while at < end {
            let stretch = match self.files.get(&file) {
                Some(placed) => placed.stretch,
                None => {
                    let stretch = (self.free_bytes / 4096).clamp(STRETCH_MIN, self.stretch_max) / PAGE * PAGE;
                    self.files.insert(file, Placed { stretch, stretches: BTreeMap::new() });
                    stretch
                }
            };
            let number = at / stretch;
            let place = match self.files[&file].stretches.get(&number) {
                Some(&place) => place,
                None => {
                    made = true;
                    // Not for files with holes larger than the device.
                    let end = self.files[&file].stretches.last_key_value().map_or(0, |(&last, _)| last + 1);
                    if number > end && number - end <= self.free_bytes / stretch {
                        for before in end..number {
                            self.place(file, before, stretch);
                        }
                    }
                    self.place(file, number, stretch)
                }
            };
            let within = at % stretch;
            let upto = end.min(at - within + stretch);
            while at < upto {
                let len = (upto - at).min(most);
                let to = place + at % stretch;
                match out.last_mut() {
                    Some(last) if last.at + last.len == to && last.len + len <= most => last.len += len,
                    _ => out.push(Piece { at: to, len }),
                }
                at += len;
            }
        }
        made
    }

    fn place(&mut self, file: u64, number: u64, stretch: u64) -> u64 {
        let before = number.checked_sub(1).and_then(|before| self.files[&file].stretches.get(&before));
        let wanted = before.map(|at| at + stretch);
        // A device that is too full for its files gives some the same place: times go on, nothing is stored here.
        let at = self.take(wanted, stretch).unwrap_or_else(|| {
            let places = (self.end / stretch).max(1);
            (file.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ number) % places * stretch
        });
        self.files.get_mut(&file).expect("a file that is placed").stretches.insert(number, at);
        at
    }

    /// Frees what lies behind `len` bytes of a file.
    pub fn cut(&mut self, file: u64, len: u64) {
        let Some(placed) = self.files.get_mut(&file) else { return };
        let stretch = placed.stretch;
        let gone = placed.stretches.split_off(&len.div_ceil(stretch));
        if len == 0 {
            self.files.remove(&file);
        }
        for at in gone.into_values() {
            // Not what two files share.
            let is_free =
                self.free.range(..at + stretch).next_back().is_some_and(|(&s, &room)| s + room > at);
            if !is_free {
                self.give_back(at, stretch);
            }
        }
    }
}
