//! Shared memory: a sealed memory file, mapped into both processes.

use super::sys::{self, Fd, Map};
use crate::Shared;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Maximum length of memory accepted from a peer, in bytes.
const LEN_MAX: u64 = 1 << 32;
const PAGE_BYTES: usize = 4096;
const TMPFS_MAGIC: i64 = 0x0102_1994;

/// Memory shared with another process. A seal prevents that it shrinks, so that the other side cannot make an access
/// fault.
#[derive(Clone, Debug)]
pub struct RealShared(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    map: Map,
    fd: Fd,
}

impl RealShared {
    pub(super) fn new(len: usize, fd_floor: i32) -> io::Result<Self> {
        let len = len.max(1).checked_next_multiple_of(PAGE_BYTES).ok_or(io::ErrorKind::OutOfMemory)?;
        let fd = sys::memfd(len)?.lifted(fd_floor);
        Ok(Self(Arc::new(Inner { map: Map::new(&fd, len)?, fd })))
    }

    /// Maps received memory if access to it is safe.
    pub(super) fn received(fd: Fd, len_min: usize) -> io::Result<Self> {
        let refuse = |why| Err(io::Error::new(io::ErrorKind::InvalidData, why));
        if !sys::is_sealed(&fd) {
            return refuse("the peer sent shared memory without a seal against shrinking");
        }
        // Memory of huge pages can be sealed, too, but an access faults if the machine has none left.
        if sys::statfs(&fd)?.f_type as i64 != TMPFS_MAGIC {
            return refuse("the peer sent shared memory of huge pages");
        }
        let len = sys::statx(&fd)?.stx_size;
        if len < len_min.max(1) as u64 || len > LEN_MAX {
            return refuse("the peer sent shared memory of the wrong length");
        }
        let len = usize::try_from(len).map_err(|_| io::ErrorKind::OutOfMemory)?;
        Ok(Self(Arc::new(Inner { map: Map::new(&fd, len)?, fd })))
    }

    pub(super) fn raw_fd(&self) -> i32 {
        self.0.fd.as_raw_fd()
    }

    /// Returns the start of `len` bytes at `offset`.
    ///
    /// # Panics
    /// Outside the area.
    pub(super) fn at(&self, offset: usize, len: usize) -> *mut u8 {
        let inside = offset.checked_add(len).is_some_and(|end| end <= self.0.map.len());
        assert!(inside, "{len} bytes at {offset} are outside {} shared bytes", self.0.map.len());
        self.0.map.start().wrapping_add(offset)
    }
}

impl Shared for RealShared {
    fn len(&self) -> usize {
        self.0.map.len()
    }

    fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is page-aligned, lives as long as `self`, never shrinks, and any bytes are a valid word.
        // The other side changes words only by atomic accesses, or bytes that are untrusted.
        unsafe { std::slice::from_raw_parts(self.0.map.start().cast(), self.0.map.len() / 8) }
    }

    fn copy_in(&self, offset: usize, bytes: &[u8]) {
        let to = self.at(offset, bytes.len());
        // SAFETY: the range is inside the mapping, which no Rust reference to bytes ever covers.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) }
    }

    fn copy_out(&self, offset: usize, out: &mut [u8]) {
        let from = self.at(offset, out.len());
        // SAFETY: the range is inside the mapping. The other side may write at the same time, which makes the bytes
        // arbitrary; they are documented as untrusted.
        unsafe { std::ptr::copy_nonoverlapping(from, out.as_mut_ptr(), out.len()) }
    }
}
