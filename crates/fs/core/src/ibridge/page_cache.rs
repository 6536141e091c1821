//! Detects whether the page cache absorbs writes to a disk, in which case the SSD gains nothing.

/// Number of consecutive fast writes after which further writes are assumed to be absorbed.
const FAST_WRITES_MIN: u32 = 16;
/// Maximum of the counter of fast writes.
const FAST_WRITES_MAX: u32 = 2 * FAST_WRITES_MIN;
/// While writes are not absorbed, one write in this many goes to the disk to detect a change.
const PROBE_INTERVAL: u32 = 32;

/// Observations of writes to the disk.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct PageCache {
    /// Counter of recent fast writes.
    fast_writes: u32,
    /// Writes since the last one that was sent to the disk for detection.
    since_probe: u32,
    /// True if the disk received a write since its last sync.
    is_written: bool,
}

impl PageCache {
    /// Records a write to the disk. A single slow write among many fast ones may have waited for a processor; two of
    /// them count.
    pub fn observe_write(&mut self, is_fast: bool) {
        self.is_written = true;
        self.observe(is_fast);
    }

    /// Records a sync of the disk. A process that syncs its writes waits for the disk, even if the page cache absorbed
    /// them.
    pub fn observe_sync(&mut self, is_fast: bool) {
        if std::mem::take(&mut self.is_written) && !is_fast {
            self.observe(false);
        }
    }

    fn observe(&mut self, is_fast: bool) {
        self.fast_writes =
            if is_fast { (self.fast_writes + 1).min(FAST_WRITES_MAX) } else { self.fast_writes / 2 };
    }

    /// Returns true if the next write that could go to the SSD should go to the disk.
    pub fn absorbs_next(&mut self) -> bool {
        self.since_probe = (self.since_probe + 1) % PROBE_INTERVAL;
        self.fast_writes >= FAST_WRITES_MIN || self.since_probe == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns how many of these writes go to the disk, which serves each fast or slowly.
    fn to_disk(page_cache: &mut PageCache, writes: u32, is_fast: bool, has_sync: bool) -> u32 {
        let mut count = 0;
        for _ in 0..writes {
            if page_cache.absorbs_next() {
                count += 1;
                page_cache.observe_write(is_fast);
                if has_sync {
                    page_cache.observe_sync(false);
                }
            }
        }
        count
    }

    #[test]
    fn writes_stay_on_the_disk_while_the_page_cache_absorbs_them() {
        let mut page_cache = PageCache::default();
        assert_eq!(to_disk(&mut page_cache, 16 * 32, true, false), 16, "one in 32 is sent for detection");
        assert_eq!(to_disk(&mut page_cache, 1000, true, false), 1000);
        page_cache.observe_write(false);
        assert!(page_cache.absorbs_next(), "a single one may have waited for a processor");
        page_cache.observe_write(false);
        assert_eq!(to_disk(&mut page_cache, 32, false, false), 1, "the page cache is full");
    }

    #[test]
    fn one_write_in_32_goes_to_a_slow_disk() {
        assert_eq!(to_disk(&mut PageCache::default(), 3200, false, false), 100);
    }

    #[test]
    fn synced_writes_wait_for_the_disk() {
        assert_eq!(to_disk(&mut PageCache::default(), 3200, true, true), 100);
        // A single sync after many writes is no evidence, however many processes request it.
        let mut page_cache = PageCache::default();
        to_disk(&mut page_cache, 1000, true, false);
        (0..100).for_each(|_| page_cache.observe_sync(false));
        assert_eq!(to_disk(&mut page_cache, 1000, true, false), 1000);
    }
}
