//! Contents of a simulated file: bytes, or a length only.

use super::content::Content;
use super::pages::PAGE_BYTES;
use crate::Hollow;
use crate::sim::rng::Rng;
use std::io::{IoSlice, IoSliceMut};

/// Contents of a file.
pub enum Body {
    /// Bytes.
    Bytes(Box<Content>),
    /// Length only.
    Length(Length),
}

/// Contents of a file whose bytes do not matter. It occupies space from start to end, also after a hole was punched.
#[derive(Default)]
pub struct Length {
    now: u64,
    medium: u64,
    /// Bytes written through the page cache so far, and those of them that are synced.
    written: u64,
    synced: u64,
}

impl Default for Body {
    fn default() -> Self {
        Self::Bytes(Box::default())
    }
}

/// Data of a write.
pub enum Written {
    /// Bytes.
    Bytes(Vec<u8>),
    /// Number of bytes, whatever their values are.
    Length(u64),
}

impl Written {
    pub fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Length(len) => *len,
        }
    }

    pub fn truncate(&mut self, len: u64) {
        match self {
            Self::Bytes(bytes) => bytes.truncate(len as usize),
            Self::Length(it) => *it = len.min(*it),
        }
    }
}

impl Body {
    pub fn hollow() -> Self {
        Self::Length(Length::default())
    }

    pub fn len(&self) -> u64 {
        match self {
            Self::Bytes(content) => content.pages().len(),
            Self::Length(it) => it.now,
        }
    }

    /// Returns the contents on another disk, all of them durable.
    pub fn copied(&self) -> Self {
        match self {
            Self::Bytes(content) => Self::Bytes(Box::new(content.copied())),
            Self::Length(it) => {
                Self::Length(Length { now: it.now, medium: it.now, written: it.written, synced: it.written })
            }
        }
    }

    /// Returns the number of pages that occupy space.
    pub fn pages(&self) -> u64 {
        match self {
            Self::Bytes(content) => content.pages().count().max(content.reserved_pages()),
            Self::Length(it) => it.now.div_ceil(PAGE_BYTES),
        }
    }

    /// Returns the number of pages that a write would add.
    pub fn missing(&self, offset: u64, len: u64) -> u64 {
        match self {
            Self::Bytes(content) if offset + len <= content.reserved_pages() * PAGE_BYTES => 0,
            Self::Bytes(content) => content.pages().missing(offset, len as usize),
            Self::Length(it) => (offset + len).max(it.now).div_ceil(PAGE_BYTES) - it.now.div_ceil(PAGE_BYTES),
        }
    }

    /// Returns the part of `bufs` that a write to this file stores.
    pub fn gather(&self, bufs: &[IoSlice<'_>]) -> Written {
        let len: usize = bufs.iter().map(|buf| buf.len()).sum();
        match self {
            Self::Length(_) => Written::Length(len as u64),
            Self::Bytes(_) => {
                let mut bytes = Vec::with_capacity(len);
                bufs.iter().for_each(|buf| bytes.extend_from_slice(buf));
                Written::Bytes(bytes)
            }
        }
    }

    /// Fills `buf` from `offset`, up to the end of the file. Returns the number of bytes read.
    pub fn read(&self, offset: u64, buf: &mut IoSliceMut<'_>) -> usize {
        let left = usize::try_from(self.len().saturating_sub(offset)).unwrap_or(usize::MAX);
        let count = left.min(buf.len());
        match self {
            _ if Hollow::holds(buf) => count,
            Self::Bytes(content) => content.pages().read(offset, buf),
            Self::Length(_) => {
                buf[..count].fill(0);
                count
            }
        }
    }

    /// Writes. The bytes of a direct write are on the device, so that a sync need not write them again.
    pub fn write(&mut self, offset: u64, written: Written, is_direct: bool) {
        match (self, written) {
            (Self::Bytes(content), Written::Bytes(bytes)) => content.write(offset, bytes, is_direct),
            (Self::Bytes(content), Written::Length(len)) => {
                content.write(offset, vec![0; len as usize], is_direct);
            }
            (Self::Length(it), written) => {
                it.written += if is_direct { 0 } else { written.len() };
                if written.len() > 0 {
                    it.now = it.now.max(offset + written.len());
                }
            }
        }
    }

    pub fn set_len(&mut self, len: u64) {
        match self {
            Self::Bytes(content) => content.set_len(len),
            Self::Length(it) => {
                it.now = len;
                if len == 0 {
                    // Nothing is left to write.
                    it.synced = it.written;
                }
            }
        }
    }

    /// Extends to `len` and allocates all of its space, without writing bytes.
    pub fn allocate(&mut self, len: u64) {
        match self {
            Self::Bytes(content) => content.allocate(len),
            Self::Length(it) => it.now = it.now.max(len),
        }
    }

    /// Makes a range read as zeros, up to the end of the file.
    pub fn discard(&mut self, offset: u64, len: u64) {
        if let Self::Bytes(content) = self {
            let end = (offset + len).min(content.pages().len());
            content.write(offset, vec![0; end.saturating_sub(offset) as usize], true);
        }
    }

    pub fn unsynced_after(&self, mark: u64) -> u64 {
        match self {
            Self::Bytes(content) => content.unsynced_after(mark),
            Self::Length(it) => it.written.saturating_sub(it.synced.max(mark)),
        }
    }

    pub fn mark(&self) -> u64 {
        match self {
            Self::Bytes(content) => content.mark(),
            Self::Length(it) => it.written,
        }
    }

    pub fn sync_to(&mut self, mark: u64) {
        match self {
            Self::Bytes(content) => content.sync_to(mark),
            Self::Length(it) => {
                it.synced = it.synced.max(mark);
                it.medium = it.now;
            }
        }
    }

    pub fn forget_unsynced(&mut self) {
        match self {
            Self::Bytes(content) => content.forget_unsynced(),
            Self::Length(it) => {
                it.synced = it.written;
                it.medium = it.now;
            }
        }
    }

    pub fn lose_power(&mut self, rng: &mut Rng) {
        match self {
            Self::Bytes(content) => content.lose_power(rng),
            Self::Length(it) => {
                it.synced = it.written;
                if rng.below(2) == 0 {
                    it.now = it.medium;
                }
                it.medium = it.now;
            }
        }
    }
}
