//! Which number a file has in the part of this process.

use crate::names::{NAME_BYTES_MAX, NAMES_MAX};
use std::collections::BTreeMap;

/// Names that are remembered at most.
const REMEMBERED_MAX: usize = 1 << 15;
/// Bytes of names that are remembered at most.
const REMEMBERED_BYTES_MAX: usize = 4 << 20;

/// Numbers by name. When it is full it forgets all of them: a file that comes again gets a new number.
#[derive(Default)]
pub struct Numbers {
    known: BTreeMap<Box<str>, u32>,
    bytes: usize,
    next: u32,
}

impl Numbers {
    /// How many numbers were given.
    pub fn next(&self) -> u32 {
        self.next
    }

    /// The number of a name that is remembered.
    pub fn get(&self, name: &str) -> Option<u32> {
        self.known.get(name).copied()
    }

    /// Gives a name the next number; `None` when there are none left.
    pub fn add(&mut self, name: &str) -> Option<u32> {
        if self.next >= NAMES_MAX {
            return None;
        }
        if self.known.len() >= REMEMBERED_MAX || self.bytes + name.len() > REMEMBERED_BYTES_MAX {
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

/// A path as the format takes it: text ([`weft_core::escape`]), and cut off where it is too long.
pub fn text(name: &[u8]) -> std::borrow::Cow<'_, str> {
    let mut end = name.len().min(NAME_BYTES_MAX);
    loop {
        let text = weft_core::escaped(&name[..end]);
        // A byte that is none of UTF-8 becomes four.
        if text.len() <= NAME_BYTES_MAX {
            return text;
        }
        end -= (text.len() - NAME_BYTES_MAX).div_ceil(weft_core::escape::ESCAPE_LEN);
    }
}
