//! Memory shared between simulated processes of one machine.

use crate::Shared;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

const PAGE_BYTES: usize = 4096;
const WORD_BYTES: usize = 8;

/// Shared memory of the simulated world.
#[derive(Clone, Debug)]
pub struct SimShared(Arc<[AtomicU64]>);

impl SimShared {
    pub(super) fn new(len: usize) -> Self {
        let words = len.max(1).next_multiple_of(PAGE_BYTES) / WORD_BYTES;
        Self((0..words).map(|_| AtomicU64::new(0)).collect())
    }

    /// Calls `f` for each word that the range touches, with the bytes of the word inside the range and their position
    /// in the range.
    fn each_word(
        &self,
        offset: usize,
        len: usize,
        mut f: impl FnMut(&AtomicU64, std::ops::Range<usize>, usize),
    ) {
        let inside = offset.checked_add(len).is_some_and(|end| end <= self.len());
        assert!(inside, "{len} bytes at {offset} are outside {} shared bytes", self.len());
        let mut done = 0;
        while done < len {
            let at = (offset + done) % WORD_BYTES;
            let count = (WORD_BYTES - at).min(len - done);
            f(&self.0[(offset + done) / WORD_BYTES], at..at + count, done);
            done += count;
        }
    }
}

impl Shared for SimShared {
    fn len(&self) -> usize {
        self.0.len() * WORD_BYTES
    }

    fn words(&self) -> &[AtomicU64] {
        &self.0
    }

    fn copy_in(&self, offset: usize, bytes: &[u8]) {
        self.each_word(offset, bytes.len(), |word, inside, at| {
            let mut value = word.load(SeqCst).to_ne_bytes();
            let count = inside.len();
            value[inside].copy_from_slice(&bytes[at..at + count]);
            word.store(u64::from_ne_bytes(value), SeqCst);
        });
    }

    fn copy_out(&self, offset: usize, out: &mut [u8]) {
        self.each_word(offset, out.len(), |word, inside, at| {
            let count = inside.len();
            out[at..at + count].copy_from_slice(&word.load(SeqCst).to_ne_bytes()[inside]);
        });
    }
}
