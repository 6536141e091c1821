//! Memory that stands for payloads whose bytes nobody looks at.
//!
//! A simulation that asks only how long things take moves no payload bytes. Its programs still need buffers to name: a
//! [`Hollow`] is a piece of one large reserved range of addresses that is never touched, so that any number of any
//! length costs no memory. The simulated world knows such buffers by their addresses, and carries and stores their
//! lengths only.

use parking_lot::Mutex;
use std::ops::{Deref, DerefMut};
use std::sync::OnceLock;

/// Addresses reserved; memory is taken only where somebody writes.
const REGION_LEN: usize = 1 << 42;
/// The smallest piece. Pieces begin at a multiple of it, so that they fit direct I/O.
const PIECE_MIN: usize = 4096;
const CLASSES: usize = (REGION_LEN / PIECE_MIN).ilog2() as usize + 1;

/// A range of addresses of which each part belongs to one [`Hollow`] at a time.
struct Region {
    start: usize,
    pieces: Mutex<Pieces>,
}

struct Pieces {
    /// From here on nothing has been given out.
    fresh: usize,
    /// Given back, by the logarithm of their length.
    free: [Vec<usize>; CLASSES],
}

/// Reserved when the first buffer is asked for; `None` when the system refused.
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
        // SAFETY: the range is ours. A failure only makes the processes of a crash or a fork larger.
        unsafe { libc::madvise(start, REGION_LEN, libc::MADV_DONTDUMP) };
        let pieces = Pieces { fresh: 0, free: std::array::from_fn(|_| Vec::new()) };
        Some(Self { start: start.expose_provenance(), pieces: Mutex::new(pieces) })
    }
}

fn class_of(len: usize) -> usize {
    (len.max(PIECE_MIN).next_power_of_two() / PIECE_MIN).ilog2() as usize
}

/// A buffer whose bytes mean nothing: a program may name it in reads and writes, and should not touch it. It behaves as
/// any other memory if touched, but what it holds then is arbitrary.
#[derive(Debug)]
pub struct Hollow {
    start: usize,
    len: usize,
}

impl Hollow {
    /// A buffer of `len` bytes; `None` when the system reserves no addresses for it.
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
        // SAFETY: the range is mapped for the life of the process, initialized (with zeros), and ours alone.
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
        let region = region().expect("this came from it");
        region.pieces.lock().free[class_of(self.len)].push(self.start - region.start);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_apart_and_used_again() {
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
