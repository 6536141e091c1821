//! Admission at the second access: data that is read once never costs the SSD a write.

use super::admission::{AdmissionFilter, CacheRequest};
use super::ghost::{Ghosts, PAGE_LEN, PageMask};
use super::{BLOCK_LEN, BlockId};

/// Window between two accesses, in capacities of the cache. Data that returns later would not stay in the cache until
/// its third access.
const WINDOW_CAPACITIES: u64 = 2;

/// Admits a read if all its pages were accessed before, within a window of other accesses. Writes are admitted, and
/// count as an access. Pages have 4 KiB, so that the next part of a block is not a second access to it.
#[derive(Clone, Debug)]
pub struct SecondAccess {
    ghosts: Ghosts,
}

impl SecondAccess {
    /// Returns a filter for a cache of a capacity in bytes. The window is twice the capacity; the filter's memory is
    /// bounded in proportion.
    pub fn new(capacity_bytes: u64) -> Self {
        Self { ghosts: Ghosts::new(capacity_bytes.saturating_mul(WINDOW_CAPACITIES)) }
    }

    /// Notes the pages of a request. Returns true if all were noted before.
    fn note(&mut self, request: &CacheRequest) -> bool {
        let mut is_second = true;
        for block in BlockId::of(request.file, request.extent) {
            let pages = pages(request, block);
            is_second &= self.ghosts.pages(block) & pages == pages;
            self.ghosts.note(block, pages);
        }
        is_second
    }
}

/// Returns the pages of a block that a request touches.
fn pages(request: &CacheRequest, block: BlockId) -> PageMask {
    let (offset, len) = (request.extent.offset.0, request.extent.len.0);
    let start = block.index * BLOCK_LEN;
    let first = offset.saturating_sub(start) / PAGE_LEN;
    let last = offset.saturating_add(len - 1).min(start + (BLOCK_LEN - 1)).saturating_sub(start) / PAGE_LEN;
    (PageMask::MAX >> (PageMask::BITS as u64 - 1 - (last - first))) << first
}

impl AdmissionFilter for SecondAccess {
    fn name(&self) -> &'static str {
        "second-access"
    }

    fn read(&mut self, request: &CacheRequest) -> bool {
        self.note(request)
    }

    fn write(&mut self, request: &CacheRequest) -> bool {
        self.note(request);
        true
    }

    fn set_capacity(&mut self, bytes: u64) {
        self.ghosts.set_window(bytes.saturating_mul(WINDOW_CAPACITIES));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::LocalExtent;

    const CAPACITY: u64 = 100 * BLOCK_LEN;

    fn request(offset: u64, len: u64) -> CacheRequest {
        CacheRequest { file: 1, session: 1, extent: LocalExtent::new(offset, len) }
    }

    #[test]
    fn masks_have_a_bit_for_each_page() {
        let mask = |offset, len, index| pages(&request(offset, len), BlockId { file: 1, index });
        assert_eq!(mask(0, 1, 0), 1);
        assert_eq!(mask(4095, 2, 0), 0b11);
        assert_eq!(mask(0, BLOCK_LEN, 0), WHOLE);
        assert_eq!(mask(BLOCK_LEN - 1, 2, 0), 1 << 15);
        assert_eq!(mask(BLOCK_LEN - 1, 2, 1), 1);
        assert_eq!(mask(1, 9 * BLOCK_LEN, 4), WHOLE);
        assert_eq!(mask(u64::MAX - 1, 1, u64::MAX / BLOCK_LEN), 1 << 15);
    }

    const WHOLE: PageMask = PageMask::MAX;

    #[test]
    fn a_read_is_admitted_when_all_its_bytes_were_accessed_before() {
        let mut filter = SecondAccess::new(CAPACITY);
        assert!(!filter.read(&request(0, 8192)));
        assert!(!filter.read(&request(8192, 8192)), "the next part of the block");
        assert!(filter.read(&request(4096, 8192)), "parts of both");
        assert!(!filter.read(&request(12_288, 8192)), "half of it is new");
        assert!(filter.read(&request(12_288, 8192)));
        assert!(!filter.read(&request(BLOCK_LEN, 3 * BLOCK_LEN)));
        assert!(filter.read(&request(BLOCK_LEN, 3 * BLOCK_LEN)));
        assert!(
            filter.write(&request(1 << 30, 1)) && filter.read(&request(1 << 30, 1)),
            "a write is an access"
        );
        assert!(!filter.read(&CacheRequest { file: 2, ..request(0, 4096) }), "another datafile");
    }

    #[test]
    fn the_second_access_must_come_within_twice_the_capacity() {
        for (others, admitted) in [(150, true), (200, false)] {
            let mut filter = SecondAccess::new(CAPACITY);
            filter.read(&request(0, BLOCK_LEN));
            for index in 1..=others {
                assert!(!filter.read(&request(index * BLOCK_LEN, BLOCK_LEN)));
            }
            assert_eq!(filter.read(&request(0, BLOCK_LEN)), admitted, "{others}");
        }
        let mut filter = SecondAccess::new(CAPACITY);
        filter.set_capacity(CAPACITY / 10);
        filter.read(&request(0, BLOCK_LEN));
        (1..=20).for_each(|index| _ = filter.read(&request(index * BLOCK_LEN, BLOCK_LEN)));
        assert!(!filter.read(&request(0, BLOCK_LEN)), "a smaller cache");
    }
}
