//! Memory: the mapped tail, and the word that a fork empties.

use crate::tail::{HALF_LEN, HALVES_AT, SHARDS};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};

/// Length of a mapping, of which only what is used takes memory or disk.
pub const MAP_LEN: usize = HALVES_AT + 2 * SHARDS * HALF_LEN;

/// A word that is 0 in a forked child.
pub fn emptied_at_fork() -> &'static AtomicU32 {
    // SAFETY: a new mapping, which is never unmapped; zeros are a valid word.
    unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let page = libc::mmap(std::ptr::null_mut(), 4096, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
        assert!(page != libc::MAP_FAILED, "a page of memory");
        if libc::madvise(page, 4096, libc::MADV_WIPEONFORK) != 0 {
            // Linux before 4.14: forks by the C library are seen at least.
            OLD.store(page.cast(), Release);
            libc::pthread_atfork(None, None, Some(empty));
        }
        &*page.cast::<AtomicU32>()
    }
}

static OLD: std::sync::atomic::AtomicPtr<u32> = std::sync::atomic::AtomicPtr::new(std::ptr::null_mut());

unsafe extern "C" fn empty() {
    // SAFETY: set before this was registered, never unmapped.
    unsafe { *OLD.load(Acquire) = 0 };
}

/// A tail in memory.
pub struct Mapping {
    base: *mut u8,
    mapped: AtomicBool,
}

// SAFETY: what lies in it is reached by atomic words, or by whoever holds the lock of its part.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `file`, of which the first `len` bytes have their room on the disk. The rest is to be neither read nor written
    /// before it has its own: the file ends somewhere there, no later than it must, for programs may be held to short files.
    pub fn new(file: &File, len: usize) -> io::Result<Self> {
        reserve(file, 0, len)?;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping of a file that was just opened.
        let base = unsafe {
            libc::mmap(std::ptr::null_mut(), MAP_LEN, protection, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { base: base.cast(), mapped: AtomicBool::new(true) })
    }

    /// In a forked child: the memory is the parent's.
    pub fn unmap(&self) {
        if self.mapped.swap(false, AcqRel) {
            // SAFETY: mapped by `new` with this length; nobody reaches it any more.
            unsafe { libc::munmap(self.base.cast(), MAP_LEN) };
        }
    }

    /// A word of 32 bits.
    pub fn half(&self, at: usize) -> &AtomicU32 {
        assert!(at + 4 <= MAP_LEN && at.is_multiple_of(4));
        // SAFETY: within the mapping and aligned.
        unsafe { &*self.base.add(at).cast() }
    }

    /// A word of 64 bits.
    pub fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at + 8 <= MAP_LEN && at.is_multiple_of(8));
        // SAFETY: within the mapping and aligned.
        unsafe { &*self.base.add(at).cast() }
    }

    /// Writes bytes that nobody else reads or writes meanwhile.
    pub fn put(&self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= MAP_LEN);
        // SAFETY: within the mapping; the caller has these bytes for itself.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.base.add(at), bytes.len()) };
    }

    /// Reads bytes that nobody writes meanwhile.
    pub fn get(&self, at: usize, len: usize) -> &[u8] {
        assert!(at + len <= MAP_LEN);
        // SAFETY: within the mapping; the caller has these bytes for itself.
        unsafe { std::slice::from_raw_parts(self.base.add(at), len) }
    }
}

/// Gives a range of the file its room on the disk: a store into a mapping that finds none would end the program.
pub fn reserve(file: &File, from: usize, len: usize) -> io::Result<()> {
    // SAFETY: a plain system call on a descriptor that is open.
    let done = unsafe { libc::fallocate(file.as_raw_fd(), 0, from as i64, len as i64) };
    if done == 0 {
        return Ok(());
    }
    match io::Error::last_os_error() {
        error if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
            use std::os::unix::fs::FileExt;
            (from..from + len)
                .step_by(HALF_LEN)
                .try_for_each(|at| file.write_all_at(&vec![0; HALF_LEN.min(from + len - at)], at as u64))
        }
        error => Err(error),
    }
}
