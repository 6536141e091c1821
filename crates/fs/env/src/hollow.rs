//! Buffers that stand for payloads whose contents do not matter.
//!
//! A simulation that measures only time moves no payload bytes, but its programs still need buffers to pass to calls. A
//! [`Hollow`] is a piece of one large reserved address range that is never touched, so that buffers of any number and
//! length need no memory. The simulated world recognizes such buffers by their addresses, and carries and stores only
//! their lengths.

use parking_lot::Mutex;
use std::ops::{Deref, DerefMut};
use std::sync::OnceLock;

/// Length of the reserved address range in bytes. The system allocates memory only for pages that are touched.
const REGION_LEN: usize = 1 << 42;
/// Minimum length of a piece in bytes. Pieces start at multiples of it, as direct I/O requires.
const PIECE_MIN: usize = 4096;
const CLASSES: usize = (REGION_LEN / PIECE_MIN).ilog2() as usize + 1;

/// Address range each part of which belongs to one [`Hollow`] at a time.
struct Region {
    start: usize,
    pieces: Mutex<Pieces>,
}

struct Pieces {
    /// Start of the part that has never been allocated.
    fresh: usize,
    /// Freed pieces, by the logarithm of their length.
    free: [Vec<usize>; CLASSES],
}

/// Reserved for the first buffer; `None` if the system refused.
static REGION: OnceLock<Option<Region>> = OnceLock::new();

fn region() -> Option<&'static Region> {
    REGION.get_or_init(Region::reserve).as_ref()
}

impl Region {
    fn reserve() -> Option<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: the kernel picks a fresh range, so no memory in use changes.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), REGION_LEN, protection, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return None;
        }
        // SAFETY: the range belongs to this process. A failure only makes core dumps and forks larger.
        unsafe { libc::madvise(start, REGION_LEN, libc::MADV_DONTDUMP) };
        let pieces = Pieces { fresh: 0, free: std::array::from_fn(|_| Vec::new()) };
        Some(Self { start: start.expose_provenance(), pieces: Mutex::new(pieces) })
    }
}

fn class_of(len: usize) -> usize {
    (len.max(PIECE_MIN).next_power_of_two() / PIECE_MIN).ilog2() as usize
}

/// Buffer whose contents are undefined. A program may pass it to reads and writes but should not touch it; if touched,
/// it behaves as ordinary memory with arbitrary contents.
#[derive(Debug)]
pub struct Hollow {
    start: usize,
    len: usize,
}

impl Hollow {
    /// Allocates a buffer of `len` bytes; `None` if the system cannot reserve addresses.
    pub fn new(len: usize) -> Option<Self> {
        let region = region()?;
        if len > REGION_LEN / 2 {
            return None;
        }
        let class = class_of(len);
        let mut pieces = region.pieces.lock();
        let at = match pieces.free[class].pop() {
            Some(at) => at,
            None => {
                let at = pieces.fresh;
                let end = at.checked_add(PIECE_MIN << class).filter(|&end| end <= REGION_LEN)?;
                pieces.fresh = end;
                at
            }
        };
        Some(Self { start: region.start + at, len })
    }

    /// Whether `bytes` lie in such a buffer.
    #[inline]
    pub fn holds(bytes: &[u8]) -> bool {
        let at = bytes.as_ptr().addr();
        REGION.get().and_then(Option::as_ref).is_some_and(|region| at.wrapping_sub(region.start) < REGION_LEN)
    }
}

impl Deref for Hollow {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the range is mapped for the life of the process, initialized (with zeros), and owned by this buffer.
        unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance(self.start), self.len) }
    }
}

impl DerefMut for Hollow {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(std::ptr::with_exposed_provenance_mut(self.start), self.len) }
    }
}

impl Drop for Hollow {
    fn drop(&mut self) {
        let region = region().expect("the region that this buffer came from");
        region.pieces.lock().free[class_of(self.len)].push(self.start - region.start);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_disjoint_and_reused() {
        let mut a = Hollow::new(5000).expect("addresses");
        let mut b = Hollow::new(8192).expect("addresses");
        assert_eq!((a.len(), b.len()), (5000, 8192));
        a.fill(1);
        b.fill(2);
        assert!(a.iter().all(|&byte| byte == 1) && b.iter().all(|&byte| byte == 2));
        assert!(Hollow::holds(&a) && Hollow::holds(&b[8191..]) && !Hollow::holds(&[0; 10]));
        assert!(a.as_ptr().addr().is_multiple_of(PIECE_MIN));
        assert_eq!(Hollow::new(0).expect("addresses").len(), 0);
        assert!(Hollow::new(usize::MAX).is_none());
    }

    #[test]
    fn addresses_cost_no_memory() {
        let many: Vec<_> = (0..1000).map(|_| Hollow::new(1 << 30).expect("addresses")).collect();
        assert_eq!(many.iter().map(|it| it.len()).sum::<usize>(), 1000 << 30);
    }
}
