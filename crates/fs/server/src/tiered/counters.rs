//! Counters of one SSD tier.

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use weft_core::{ByteLen, Nanos};

/// Window over which the writeback rate is averaged.
const WINDOW: Nanos = Nanos::from_s(10);

/// Counts since the start.
#[derive(Default)]
pub(super) struct Counters {
    pub read_hits: AtomicU64,
    pub read_partial_hits: AtomicU64,
    pub read_misses: AtomicU64,
    pub bytes_read: AtomicU64,
    pub bytes_written: AtomicU64,
    pub bytes_written_back: AtomicU64,
    pub bytes_preloaded: AtomicU64,
    /// Bytes of reads that the cache had, and bytes that the disk read.
    pub bytes_hit: AtomicU64,
    pub bytes_missed: AtomicU64,
    pub bytes_evicted: AtomicU64,
    pub bytes_prefetched: AtomicU64,
    /// Time and bytes of each writeback within [`WINDOW`].
    recent: Mutex<VecDeque<(Nanos, u64)>>,
}

pub(super) fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}

impl Counters {
    pub fn wrote_back(&self, bytes: u64, now: Nanos) {
        add(&self.bytes_written_back, bytes);
        let mut recent = self.recent.lock();
        recent.push_back((now, bytes));
        forget_old(&mut recent, now);
    }

    /// Bytes written back per second, averaged over [`WINDOW`].
    pub fn written_back_per_s(&self, now: Nanos) -> ByteLen {
        let mut recent = self.recent.lock();
        forget_old(&mut recent, now);
        let sum: u64 = recent.iter().map(|(_, bytes)| bytes).sum();
        ByteLen(sum / (WINDOW.0 / 1_000_000_000))
    }
}

fn forget_old(recent: &mut VecDeque<(Nanos, u64)>, now: Nanos) {
    while recent.front().is_some_and(|(at, _)| now.saturating_sub(*at) > WINDOW) {
        recent.pop_front();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_covers_the_last_ten_seconds() {
        let counters = Counters::default();
        counters.wrote_back(1000, Nanos::from_s(1));
        counters.wrote_back(3000, Nanos::from_s(9));
        assert_eq!(counters.written_back_per_s(Nanos::from_s(10)), ByteLen(400));
        assert_eq!(counters.written_back_per_s(Nanos::from_s(15)), ByteLen(300));
        assert_eq!(counters.written_back_per_s(Nanos::from_s(60)), ByteLen(0));
        assert_eq!(counters.bytes_written_back.into_inner(), 4000);
    }
}
