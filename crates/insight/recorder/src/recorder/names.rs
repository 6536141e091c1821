//! Numbers of file names in the part file of this process.

use crate::names::{NAME_BYTES_MAX, NAMES_MAX};
use std::collections::BTreeMap;

/// Maximum number of names kept in memory.
const CACHED_NAMES_MAX: usize = 1 << 15;
/// Maximum total length of the names kept in memory, in bytes.
const CACHED_NAME_BYTES_MAX: usize = 4 << 20;

/// Maps file names to their numbers in the part file.
///
/// A full table is cleared to bound memory. A file that is used again afterwards gets a second number.
#[derive(Default)]
pub struct FileNumbers {
    known: BTreeMap<Box<str>, u32>,
    bytes: usize,
    next: u32,
}

impl FileNumbers {
    /// Number of names added so far, which is also the next number.
    pub fn next(&self) -> u32 {
        self.next
    }

    /// Returns the number of a name that is in memory.
    pub fn get(&self, name: &str) -> Option<u32> {
        self.known.get(name).copied()
    }

    /// Assigns the next number to a name; `None` when all numbers are used.
    pub fn add(&mut self, name: &str) -> Option<u32> {
        if self.next >= NAMES_MAX {
            return None;
        }
        if self.known.len() >= CACHED_NAMES_MAX || self.bytes + name.len() > CACHED_NAME_BYTES_MAX {
            self.known.clear();
            self.bytes = 0;
        }
        let number = self.next;
        self.next += 1;
        self.bytes += name.len();
        self.known.insert(name.into(), number);
        Some(number)
    }
}

/// Converts a path to the format's escaped text ([`weft_core::escape`]), truncated to [`NAME_BYTES_MAX`].
pub fn text(name: &[u8]) -> std::borrow::Cow<'_, str> {
    let mut end = name.len().min(NAME_BYTES_MAX);
    loop {
        let text = weft_core::escaped(&name[..end]);
        // Each byte that is not UTF-8 becomes an escape of four characters.
        if text.len() <= NAME_BYTES_MAX {
            return text;
        }
        end -= (text.len() - NAME_BYTES_MAX).div_ceil(weft_core::escape::ESCAPE_LEN);
    }
}
