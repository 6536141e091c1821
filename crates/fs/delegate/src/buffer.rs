//! Memory of pages and payloads, and copies between them.

use std::ops::Range;
use weft_env::{Env, Hollow, Shared};

/// Memory of a page or a payload.
pub(crate) enum Buffer {
    /// Bytes.
    Bytes(Box<[u8]>),
    /// Used where payloads are lengths only.
    Hollow(Hollow),
}

impl Buffer {
    /// Allocates `len` bytes.
    pub(crate) fn new<E: Env>(env: &E, len: usize) -> Self {
        env.hollow(len).map_or_else(|| Self::Bytes(vec![0; len].into_boxed_slice()), Self::Hollow)
    }

    /// Returns bytes of the buffer to pass on; those of a hollow buffer are never read.
    pub(crate) fn slice(&self, range: Range<usize>) -> &[u8] {
        match self {
            Self::Bytes(bytes) => &bytes[range],
            Self::Hollow(hollow) => &hollow[range],
        }
    }

    /// Returns bytes of the buffer to be filled.
    pub(crate) fn slice_mut(&mut self, range: Range<usize>) -> &mut [u8] {
        match self {
            Self::Bytes(bytes) => &mut bytes[range],
            Self::Hollow(hollow) => &mut hollow[range],
        }
    }

    /// Copies `source` to `at`.
    pub(crate) fn copy_from(&mut self, at: usize, source: &[u8]) {
        if let Self::Bytes(bytes) = self {
            bytes[at..at + source.len()].copy_from_slice(source);
        }
    }
}

/// Source of the bytes of a write.
pub(crate) enum Source<'a, E: Env> {
    /// Payload of a message.
    Payload(&'a Buffer),
    /// Part of the connection's shared area, from an offset.
    Shared(&'a E::Shared, usize),
}

impl<E: Env> Source<'_, E> {
    /// Copies bytes from `from` on into a part of a page.
    pub(crate) fn copy_to(&self, from: usize, page: &mut Buffer, part: Range<usize>) {
        let Buffer::Bytes(page) = page else { return };
        match self {
            Self::Payload(payload) => {
                page[part.clone()].copy_from_slice(payload.slice(from..from + part.len()))
            }
            Self::Shared(area, base) => area.copy_out(base + from, &mut page[part]),
        }
    }
}

/// Destination of the bytes of a read.
pub(crate) enum Destination<'a, E: Env> {
    /// Payload of a message.
    Payload(&'a mut Buffer),
    /// Part of the connection's shared area, from an offset.
    Shared(&'a E::Shared, usize),
}

impl<E: Env> Destination<'_, E> {
    /// Copies a part of a page to `to`.
    pub(crate) fn copy_from(&mut self, to: usize, page: &Buffer, part: Range<usize>) {
        let Buffer::Bytes(page) = page else { return };
        self.put(to, &page[part]);
    }

    /// Copies bytes to `to`.
    pub(crate) fn put(&mut self, to: usize, bytes: &[u8]) {
        match self {
            Self::Payload(payload) => payload.copy_from(to, bytes),
            Self::Shared(area, base) => area.copy_in(*base + to, bytes),
        }
    }

    /// Stores `len` zeros at `to`.
    pub(crate) fn zero(&mut self, to: usize, len: usize) {
        const ZEROS: [u8; 4096] = [0; 4096];
        if let Self::Payload(Buffer::Hollow(_)) = self {
            return;
        }
        for at in (0..len).step_by(ZEROS.len()) {
            self.put(to + at, &ZEROS[..ZEROS.len().min(len - at)]);
        }
    }
}
