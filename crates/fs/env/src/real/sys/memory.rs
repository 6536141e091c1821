//! Memory that several processes map.

use super::{Fd, call, ftruncate, retry};
use std::io;

/// Seals on memory: it cannot shrink, so that the other side cannot make an access fault.
const SEALS: i32 = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

/// Creates zeroed memory of `len` bytes behind a descriptor, with a sealed length.
pub fn memfd(len: usize) -> io::Result<Fd> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: the name is a C string.
    let fd = retry(|| unsafe { call!(SYS_memfd_create, c"weft".as_ptr(), flags) }).map(Fd::from_call)?;
    ftruncate(&fd, len as u64)?;
    // SAFETY: no memory is involved.
    unsafe { call!(SYS_fcntl, fd.0, libc::F_ADD_SEALS, SEALS) }?;
    Ok(fd)
}

/// Whether the memory behind `fd` can never shrink.
pub fn is_sealed(fd: &Fd) -> bool {
    // SAFETY: no memory is involved.
    unsafe { call!(SYS_fcntl, fd.0, libc::F_GET_SEALS) }
        .is_ok_and(|seals| seals as i32 & libc::F_SEAL_SHRINK != 0)
}

/// Shared mapping of a descriptor's first bytes.
#[derive(Debug)]
pub struct Map {
    start: *mut u8,
    len: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread; its contents are accessed only through raw pointers and
// atomics.
unsafe impl Send for Map {}
// SAFETY: as above.
unsafe impl Sync for Map {}

impl Map {
    /// Maps the first `len` bytes of `fd` for reading and writing.
    pub fn new(fd: &Fd, len: usize) -> io::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the kernel picks a fresh range, so no memory in use changes.
        let start = unsafe { call!(SYS_mmap, 0, len, protection, libc::MAP_SHARED, fd.0, 0) }?;
        Ok(Self { start: start as *mut u8, len })
    }

    /// Returns the start, which is page-aligned.
    pub fn start(&self) -> *mut u8 {
        self.start
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: the range belongs to this mapping, and no borrow of it is left.
        let _ = unsafe { call!(SYS_munmap, self.start, self.len) };
    }
}
