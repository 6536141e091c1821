//! Files that this process has mapped through the private mount.
//!
//! While a file is mapped, reads and writes of this process, and of its forked children, go through the descriptor behind
//! the mapping. Thus they use the kernel's pages, as on a local file system: a stored byte can be read, and a written byte
//! is in the memory.

use super::{done, open};
use crate::errno::Res;
use crate::lock::Lock;
use crate::sys;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use weft_env::real::RealFile;

/// File with a mapping.
pub struct Mapped {
    inode: u64,
    file: RealFile,
}

/// Addresses at which a file is mapped.
struct Region {
    start: usize,
    end: usize,
    mapped: Arc<Mapped>,
}

static REGIONS: Lock<Vec<Region>> = Lock::new(Vec::new());
/// Number of regions.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Resets the lock in a forked child, which has its parent's mappings.
pub fn after_fork_in_child() {
    // SAFETY: the holder does not exist in this process. A list left in the middle of a change is a list of regions.
    unsafe { REGIONS.reset() };
}

/// Whether any file is mapped.
#[inline]
pub fn any() -> bool {
    COUNT.load(Ordering::Acquire) != 0
}

/// Returns the mapped file with this inode number.
pub fn of(inode: u64) -> Option<Arc<Mapped>> {
    if !any() {
        return None;
    }
    REGIONS.lock().iter().find(|region| region.mapped.inode == inode).map(|region| Arc::clone(&region.mapped))
}

/// Opens the file of `token` for mappings. The error says why that is impossible.
pub fn begin(inode: u64, token: &[u8]) -> Result<Arc<Mapped>, String> {
    Ok(Arc::new(Mapped { inode, file: open(token)? }))
}

/// Records a mapping of `len` bytes at `start`.
pub fn insert(start: usize, len: usize, mapped: Arc<Mapped>) {
    remove(start, len);
    let mut regions = REGIONS.lock();
    regions.push(Region { start, end: start.saturating_add(len), mapped });
    COUNT.store(regions.len(), Ordering::Release);
}

/// Records that nothing is mapped from Weft at these addresses any more.
pub fn remove(start: usize, len: usize) {
    if !any() {
        return;
    }
    let end = start.saturating_add(len);
    let mut ended = Vec::new();
    let mut regions = REGIONS.lock();
    let mut at = 0;
    while at < regions.len() {
        let (first, last) = (regions[at].start, regions[at].end);
        if last <= start || end <= first {
            at += 1;
            continue;
        }
        let region = regions.swap_remove(at);
        for (first, last) in [(first, start), (end, last)] {
            if first < last {
                regions.push(Region { start: first, end: last, mapped: Arc::clone(&region.mapped) });
            }
        }
        ended.push(region);
    }
    COUNT.store(regions.len(), Ordering::Release);
    drop(regions);
    // The last region of a file closes it, without the lock.
    drop(ended);
}

/// Records that a mapping was moved or has another length.
pub fn moved(from: usize, from_len: usize, to: usize, to_len: usize) {
    let found = {
        let regions = REGIONS.lock();
        let region = regions.iter().find(|region| (region.start..region.end).contains(&from));
        region.map(|region| Arc::clone(&region.mapped))
    };
    if let Some(mapped) = found {
        remove(from, from_len);
        insert(to, to_len, mapped);
    }
}

impl Mapped {
    /// Returns the descriptor to map.
    pub fn fd(&self) -> i32 {
        self.file.as_raw_fd()
    }

    pub fn read_at(&self, bufs: &mut [IoSliceMut<'_>], offset: u64) -> Res<usize> {
        done(sys::preadv(self.fd(), bufs, offset))
    }

    pub fn write_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> Res<usize> {
        done(sys::pwritev(self.fd(), bufs, offset))
    }

    /// Makes the kernel's pages equal to bytes that were appended at `offset` past them.
    pub fn appended(&self, bufs: &[IoSlice<'_>], offset: u64) -> Res<()> {
        self.write_at(bufs, offset).map(drop)
    }

    pub fn truncate(&self, len: u64) -> Res<()> {
        Ok(sys::ftruncate(self.fd(), len as i64)?)
    }

    pub fn punch(&self, offset: u64, len: u64) -> Res<()> {
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        Ok(sys::fallocate(self.fd(), mode, offset as i64, len as i64)?)
    }

    /// Writes changed pages and syncs the file.
    pub fn sync(&self) -> Res<()> {
        Ok(sys::fsync(self.fd())?)
    }
}
