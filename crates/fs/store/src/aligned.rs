//! Page-aligned memory, as direct I/O requires.

use std::ops::{Deref, DerefMut};

const ALIGN: usize = 4096;

/// Zeroed bytes that begin at a multiple of 4,096.
pub struct AlignedBuf {
    // Longer than `len`, so that an aligned part fits. Never grows, because growing would move it.
    memory: Vec<u8>,
    start: usize,
    len: usize,
}

impl AlignedBuf {
    /// Returns `len` zeros. Pages are allocated when they are first touched.
    pub fn zeroed(len: usize) -> Self {
        let memory = vec![0; len + ALIGN - 1];
        let start = memory.as_ptr().align_offset(ALIGN);
        assert!(start < ALIGN, "bytes can be aligned");
        Self { memory, start, len }
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.len]
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_begins_at_a_page() {
        for len in [0, 1, 4096, 70_000] {
            let buf = AlignedBuf::zeroed(len);
            assert_eq!(buf.as_ptr().addr() % ALIGN, 0);
            assert_eq!(buf.len(), len);
        }
    }
}
