//! Bytes of a file as a sparse map of pages, which versions share.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes per page.
pub const PAGE_BYTES: u64 = 4096;

type Page = [u8; PAGE_BYTES as usize];

/// Contents and length of one version of a file. Pages that were never written read as zeros.
#[derive(Clone, Default)]
pub struct Pages {
    map: BTreeMap<u64, Arc<Page>>,
    len: u64,
}

/// Splits a range into its parts by page: page, offset in the page, offset in the range, length.
fn split(offset: u64, len: usize) -> impl Iterator<Item = (u64, usize, usize, usize)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = offset + done as u64;
        let inside = (at % PAGE_BYTES) as usize;
        let count = (PAGE_BYTES as usize - inside).min(len - done);
        let part = (at / PAGE_BYTES, inside, done, count);
        done += count;
        (count > 0).then_some(part)
    })
}

impl Pages {
    /// Returns the length in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns the number of pages that occupy space.
    pub fn count(&self) -> u64 {
        self.map.len() as u64
    }

    /// Returns the number of pages that a write of `len` bytes at `offset` would add.
    pub fn missing(&self, offset: u64, len: usize) -> u64 {
        split(offset, len).filter(|(page, ..)| !self.map.contains_key(page)).count() as u64
    }

    /// Fills `out` from `offset`, up to the end of the file. Returns the number of bytes read.
    pub fn read(&self, offset: u64, out: &mut [u8]) -> usize {
        let count = usize::try_from(self.len.saturating_sub(offset)).unwrap_or(usize::MAX).min(out.len());
        for (page, inside, at, len) in split(offset, count) {
            match self.map.get(&page) {
                Some(bytes) => out[at..at + len].copy_from_slice(&bytes[inside..inside + len]),
                None => out[at..at + len].fill(0),
            }
        }
        count
    }

    /// Writes without changing the length. Bytes after the end must be cut before the file grows.
    pub fn put(&mut self, offset: u64, bytes: &[u8]) {
        for (page, inside, at, len) in split(offset, bytes.len()) {
            let to = self.map.entry(page).or_insert_with(|| Arc::new([0; PAGE_BYTES as usize]));
            Arc::make_mut(to)[inside..inside + len].copy_from_slice(&bytes[at..at + len]);
        }
    }

    /// Extends the file to at least `len`.
    pub fn grow(&mut self, len: u64) {
        self.len = self.len.max(len);
    }

    /// Cuts or extends; bytes after the new end read as zeros if the file grows again.
    pub fn set_len(&mut self, len: u64) {
        self.map.split_off(&len.div_ceil(PAGE_BYTES));
        let inside = (len % PAGE_BYTES) as usize;
        if inside > 0
            && let Some(last) = self.map.get_mut(&(len / PAGE_BYTES))
            && last[inside..].iter().any(|&byte| byte != 0)
        {
            Arc::make_mut(last)[inside..].fill(0);
        }
        self.len = len;
    }

    /// Takes one page from another version.
    pub fn share(&mut self, page: u64, from: &Self) {
        match from.map.get(&page) {
            Some(bytes) => self.map.insert(page, Arc::clone(bytes)),
            None => self.map.remove(&page),
        };
    }
}
