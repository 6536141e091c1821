//! The memory mapping of a tail file, and a word that reads 0 after a fork.

use crate::tail::{BUFFER_LEN, BUFFERS_OFFSET, SHARDS_MAX};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering::*};

/// Length of the mapping in bytes. Only pages in use occupy memory or disk blocks.
pub const MAP_LEN: usize = BUFFERS_OFFSET + 2 * SHARDS_MAX * BUFFER_LEN;

/// Allocates a word that the kernel clears in a forked child.
pub fn zeroed_on_fork() -> &'static AtomicU32 {
    // SAFETY: a new anonymous mapping that is never unmapped; all-zero bytes are a valid `AtomicU32`.
    unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let page = libc::mmap(std::ptr::null_mut(), 4096, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
        assert!(page != libc::MAP_FAILED, "a page of memory");
        if libc::madvise(page, 4096, libc::MADV_WIPEONFORK) != 0 {
            // Linux before 4.14 has no MADV_WIPEONFORK. A fork handler covers at least forks through the C library.
            WORD_TO_CLEAR.store(page.cast(), Release);
            libc::pthread_atfork(None, None, Some(clear_word));
        }
        &*page.cast::<AtomicU32>()
    }
}

static WORD_TO_CLEAR: AtomicPtr<u32> = AtomicPtr::new(std::ptr::null_mut());

unsafe extern "C" fn clear_word() {
    // SAFETY: `WORD_TO_CLEAR` is set before this handler is registered, and the word is never unmapped.
    unsafe { *WORD_TO_CLEAR.load(Acquire) = 0 };
}

/// A tail file mapped into memory.
pub struct Mapping {
    base: *mut u8,
    mapped: AtomicBool,
}

// SAFETY: the mapping is accessed through atomics, or under the lock that guards the accessed range.
unsafe impl Send for Mapping {}
// SAFETY: see `Send`.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `file` and allocates its first `len` bytes on the disk.
    ///
    /// The caller must not access other ranges before it has allocated them with [`reserve`]. The file is only as long
    /// as its allocated ranges, because a program may run under a file size limit.
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

    /// Unmaps the parent's file in a forked child.
    pub fn unmap(&self) {
        if self.mapped.swap(false, AcqRel) {
            // SAFETY: mapped by `new` with this length; no thread accesses the mapping any more.
            unsafe { libc::munmap(self.base.cast(), MAP_LEN) };
        }
    }

    /// Returns the 32-bit word at a byte offset.
    pub fn u32_at(&self, at: usize) -> &AtomicU32 {
        assert!(at + 4 <= MAP_LEN && at.is_multiple_of(4));
        // SAFETY: within the mapping and aligned.
        unsafe { &*self.base.add(at).cast() }
    }

    /// Returns the 64-bit word at a byte offset.
    pub fn u64_at(&self, at: usize) -> &AtomicU64 {
        assert!(at + 8 <= MAP_LEN && at.is_multiple_of(8));
        // SAFETY: within the mapping and aligned.
        unsafe { &*self.base.add(at).cast() }
    }

    /// Writes bytes. The caller must have exclusive access to the range.
    pub fn put(&self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= MAP_LEN);
        // SAFETY: within the mapping; the caller has exclusive access to the range.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.base.add(at), bytes.len()) };
    }

    /// Returns bytes. The caller must ensure that no thread writes to the range meanwhile.
    pub fn get(&self, at: usize, len: usize) -> &[u8] {
        assert!(at + len <= MAP_LEN);
        // SAFETY: within the mapping; the caller ensures that no thread writes to the range.
        unsafe { std::slice::from_raw_parts(self.base.add(at), len) }
    }
}

/// Allocates disk blocks for a range of the file.
///
/// A store into a mapped page without a disk block would kill the program with SIGBUS if the disk is full.
pub fn reserve(file: &File, from: usize, len: usize) -> io::Result<()> {
    // SAFETY: a system call on an open descriptor.
    let done = unsafe { libc::fallocate(file.as_raw_fd(), 0, from as i64, len as i64) };
    if done == 0 {
        return Ok(());
    }
    match io::Error::last_os_error() {
        error if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
            use std::os::unix::fs::FileExt;
            (from..from + len)
                .step_by(BUFFER_LEN)
                .try_for_each(|at| file.write_all_at(&vec![0; BUFFER_LEN.min(from + len - at)], at as u64))
        }
        error => Err(error),
    }
}
