//! Buffers for stored bytes, kept for reuse: the system takes longer to map and clear new memory than to copy as many
//! bytes.

use parking_lot::Mutex;
use std::ops::{Deref, DerefMut};

/// Maximum number of idle buffers of the process, of each kind.
const IDLE_MAX: usize = 8;
/// Capacity in bytes up to which a buffer is kept: enough for the stored bytes of one write or read.
const CAPACITY_MAX: usize = 5 << 19;

type Idle = Mutex<Vec<Vec<u8>>>;

static TO_WRITE: Idle = Mutex::new(Vec::new());
static TO_READ: Idle = Mutex::new(Vec::new());

fn take(idle: &Idle) -> Vec<u8> {
    idle.lock().pop().unwrap_or_default()
}

fn give(idle: &Idle, bytes: &mut Vec<u8>) {
    if (1..=CAPACITY_MAX).contains(&bytes.capacity()) {
        let mut idle = idle.lock();
        if idle.len() < IDLE_MAX {
            idle.push(std::mem::take(bytes));
        }
    }
}

/// Bytes to write, appended one after another.
#[derive(Default)]
pub(super) struct WriteBuffer(Vec<u8>);

impl WriteBuffer {
    /// Returns an empty buffer.
    pub fn empty() -> Self {
        let mut bytes = take(&TO_WRITE);
        bytes.clear();
        Self(bytes)
    }
}

impl Deref for WriteBuffer {
    type Target = Vec<u8>;

    fn deref(&self) -> &Vec<u8> {
        &self.0
    }
}

impl DerefMut for WriteBuffer {
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        &mut self.0
    }
}

impl Drop for WriteBuffer {
    fn drop(&mut self) {
        give(&TO_WRITE, &mut self.0);
    }
}

/// Room for bytes to read, with any values before.
pub(super) struct ReadBuffer {
    /// At least `len` bytes. The others stay, so that they need not be cleared again.
    bytes: Vec<u8>,
    len: usize,
}

impl ReadBuffer {
    /// Returns room for `len` bytes.
    pub fn new(len: usize) -> Self {
        let mut bytes = take(&TO_READ);
        if bytes.len() < len {
            bytes.resize(len, 0);
        }
        Self { bytes, len }
    }
}

impl Deref for ReadBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl DerefMut for ReadBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.len]
    }
}

impl Drop for ReadBuffer {
    fn drop(&mut self) {
        give(&TO_READ, &mut self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_have_the_requested_length() {
        let mut first = WriteBuffer::empty();
        first.extend_from_slice(b"bytes");
        drop(first);
        assert!(WriteBuffer::empty().is_empty());
        for len in [0, 3, 9, 1 << 20, 2] {
            let mut room = ReadBuffer::new(len);
            assert_eq!((room.len(), room.iter_mut().count()), (len, len));
        }
        drop(ReadBuffer::new(CAPACITY_MAX + 1));
        let all: Vec<ReadBuffer> = (0..2 * IDLE_MAX).map(|_| ReadBuffer::new(100)).collect();
        drop(all);
        for idle in [TO_READ.lock(), TO_WRITE.lock()] {
            assert!(idle.len() <= IDLE_MAX && idle.iter().all(|bytes| bytes.capacity() <= CAPACITY_MAX));
        }
    }
}
