//! Read-ahead into the cache for sequential and strided readers.

use super::BLOCK_LEN;
use super::admission::CacheRequest;
use super::streams::StreamTable;
use crate::units::{ByteLen, LocalExtent};

/// Requests that must follow an order after the first two, which define it.
const HITS_MIN: u32 = 1;
/// The first window, in requests. Each further window is twice as long.
const FIRST_WINDOW_REQUESTS: u64 = 4;
/// Maximum number of ranges that one request causes.
const RANGES_MAX: u64 = 64;

/// Recognizes readers that read on, or skip a constant distance, forward or backward, and tells which ranges they will
/// read next. Several sequential readers of a session may alternate; strided ones may not.
///
/// From the third request on, the window grows from four requests to the maximum. The next window is read when half of
/// the last one is used.
#[derive(Clone, Debug)]
pub struct Prefetch {
    window_max: u64,
    readers: StreamTable<Reader>,
}

#[derive(Clone, Copy, Debug)]
struct Reader {
    start: u64,
    len: u64,
    /// Distance from the start of the previous request; zero after the first.
    step: i128,
    /// Requests in this order after the first two.
    hits: u32,
    /// Length of the last window in bytes.
    window: u64,
    /// For a sequential reader, the end of the last window.
    ahead_to: u64,
    /// For a strided reader, the number of steps ahead that the last window still covers.
    ahead_steps: u64,
}

impl Reader {
    const fn new(start: u64, len: u64) -> Self {
        Self { start, len, step: 0, hits: 0, window: 0, ahead_to: 0, ahead_steps: 0 }
    }

    const fn end(&self) -> u64 {
        self.start.saturating_add(self.len)
    }

    fn is_sequential(&self) -> bool {
        self.step == i128::from(self.len)
    }

    /// Returns the start of the request that is `steps` steps ahead.
    fn predicted(&self, steps: u64) -> Option<u64> {
        u64::try_from(i128::from(self.start).checked_add(self.step.checked_mul(steps.into())?)?).ok()
    }

    /// Returns true if a request at `start` follows the order of the reader.
    fn predicts(&self, start: u64) -> bool {
        start == self.end() || self.step != 0 && self.predicted(1) == Some(start)
    }

    /// Records a request that was predicted.
    fn go_on(self, start: u64, len: u64) -> Self {
        let is_sequential = start == self.end();
        // A sequential reader may change the lengths, but not begin to skip.
        if self.step == 0 || is_sequential != self.is_sequential() {
            let step = i128::from(start) - i128::from(self.start);
            return Self { step: if is_sequential { len.into() } else { step }, ..Self::new(start, len) };
        }
        Self {
            start,
            len,
            step: if is_sequential { len.into() } else { self.step },
            hits: self.hits.saturating_add(1),
            ahead_steps: self.ahead_steps.saturating_sub(1),
            ..self
        }
    }

    fn next_window(&mut self, max: u64) -> u64 {
        let first = self.len.saturating_mul(FIRST_WINDOW_REQUESTS);
        self.window = if self.window == 0 { first } else { self.window.saturating_mul(2) }.min(max);
        self.window
    }

    fn sequential(&mut self, max: u64) -> Vec<LocalExtent> {
        let from = self.ahead_to.max(self.end());
        if from - self.end() > self.window / 2 {
            return Vec::new();
        }
        let to = self.end().saturating_add(self.next_window(max));
        // Whole blocks, but at least some bytes.
        let whole = to / BLOCK_LEN * BLOCK_LEN;
        let to = if whole > from { whole } else { to };
        if to <= from {
            return Vec::new();
        }
        self.ahead_to = to;
        vec![LocalExtent::new(from, to - from)]
    }

    fn strided(&mut self, max: u64) -> Vec<LocalExtent> {
        if self.ahead_steps > self.window / self.len / 2 {
            return Vec::new();
        }
        let steps = (self.next_window(max) / self.len).min(self.ahead_steps + RANGES_MAX);
        let ahead = self.ahead_steps + 1..=steps;
        self.ahead_steps = self.ahead_steps.max(steps);
        ahead.map_while(|steps| Some(LocalExtent::new(self.predicted(steps)?, self.len))).collect()
    }
}

impl Prefetch {
    /// Returns a table without readers. At most `window_max` bytes are read ahead of each.
    pub const fn new(window_max: ByteLen) -> Self {
        Self { window_max: window_max.0, readers: StreamTable::new() }
    }

    /// Records a read, and returns the ranges to read into the cache now. They may lie behind the end of the datafile.
    pub fn read(&mut self, request: &CacheRequest) -> Vec<LocalExtent> {
        let (start, len) = (request.extent.offset.0, request.extent.len.0);
        if len == 0 {
            return Vec::new();
        }
        let max = self.window_max;
        let readers = self.readers.of(request);
        let reader = match readers.take(|reader| reader.predicts(start)) {
            Some(reader) => reader.go_on(start, len),
            // The first step of a strided reader, perhaps.
            None => {
                let step = readers.last().map_or(0, |last| i128::from(start) - i128::from(last.start));
                Reader { step, ..Reader::new(start, len) }
            }
        };
        let reader = readers.push(reader);
        match reader.hits {
            0..HITS_MIN => Vec::new(),
            _ if reader.is_sequential() => reader.sequential(max),
            _ => reader.strided(max),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1024;

    fn request(offset: u64, len: u64) -> CacheRequest {
        CacheRequest { file: 1, session: 1, extent: LocalExtent::new(offset, len) }
    }

    /// Reads at all offsets, and returns the ranges that were prefetched before each read.
    fn read(prefetch: &mut Prefetch, reads: &[(u64, u64)]) -> Vec<Vec<(u64, u64)>> {
        let ranges = |extent: LocalExtent| (extent.offset.0, extent.len.0);
        let of = |&(offset, len): &(u64, u64)| prefetch.read(&request(offset, len));
        reads.iter().map(of).map(|extents| extents.into_iter().map(ranges).collect()).collect()
    }

    /// Returns the reads that no earlier prefetch covers, and the bytes prefetched in vain.
    fn uncovered(window: u64, reads: &[(u64, u64)]) -> (usize, u64) {
        let mut prefetch = Prefetch::new(ByteLen(window));
        let prefetched = read(&mut prefetch, reads);
        let mut covered = crate::RangeSet::new();
        let mut missed = 0;
        for (&(offset, len), ranges) in reads.iter().zip(&prefetched) {
            let range = crate::ByteRange::with_len(offset, len).unwrap();
            missed += usize::from(!covered.contains(range));
            let fetched = ranges.iter().filter_map(|&(offset, len)| crate::ByteRange::with_len(offset, len));
            fetched.for_each(|range| _ = covered.insert(range));
        }
        for &(offset, len) in reads {
            covered.remove(crate::ByteRange::with_len(offset, len).unwrap());
        }
        (missed, covered.iter().map(|range| range.len()).sum())
    }

    #[test]
    fn sequential_readers_miss_only_at_first() {
        for len in [4 * KIB, 47_008, 64 * KIB, 1024 * KIB] {
            let reads: Vec<_> = (0..200).map(|n| (n * len, len)).collect();
            let (missed, in_vain) = uncovered(8 << 20, &reads);
            assert!(missed <= 3 && in_vain <= 8 << 20, "{len}: {missed}, {in_vain}");
        }
        // Lengths that differ.
        let mut at = 0;
        let reads: Vec<_> = (0..100u64)
            .map(|n| {
                let len = 10_000 + n * 7919 % 50_000;
                at += len;
                (at - len, len)
            })
            .collect();
        assert!(uncovered(8 << 20, &reads).0 <= 5);
    }

    #[test]
    fn strided_readers_miss_only_at_first() {
        for (from, step) in [(0, 1 << 20), (5, 300_000), (1 << 30, -(1i64 << 20)), (64 * KIB * 201, -65_536)]
        {
            let reads: Vec<_> = (0..200i64).map(|n| ((from as i64 + n * step) as u64, 64 * KIB)).collect();
            let (missed, in_vain) = uncovered(4 << 20, &reads);
            assert!(missed <= 3 && in_vain <= 4 << 20, "{step}: {missed}, {in_vain}");
        }
    }

    #[test]
    fn windows_grow_to_the_maximum() {
        let mut prefetch = Prefetch::new(ByteLen(1 << 20));
        let reads: Vec<_> = (0..64).map(|n| (n * 64 * KIB, 64 * KIB)).collect();
        let ranges = read(&mut prefetch, &reads);
        assert_eq!(ranges[..3], [vec![], vec![], vec![(192 * KIB, 256 * KIB)]]);
        for (&(offset, len), ranges) in reads.iter().zip(&ranges) {
            for &(from, fetched) in ranges {
                assert!(from + fetched <= offset + len + (1 << 20), "{offset}");
            }
        }
        let most = ranges.iter().flatten().map(|(_, len)| *len).max();
        assert!(most >= Some(512 * KIB), "{most:?}");
        assert!(ranges.iter().filter(|ranges| !ranges.is_empty()).count() < 20, "not one block at a time");
    }

    #[test]
    fn random_and_repeated_reads_prefetch_next_to_nothing() {
        let mut random = crate::random::SplitMix64::new(4);
        let reads: Vec<_> = (0..10_000).map(|_| (random.below(1 << 40), 64 * KIB)).collect();
        let mut prefetch = Prefetch::new(ByteLen(8 << 20));
        assert_eq!(read(&mut prefetch, &reads).concat(), []);
        let again = vec![(1 << 20, 64 * KIB); 100];
        assert_eq!(read(&mut prefetch, &again).concat(), []);
        assert_eq!(read(&mut prefetch, &vec![(1 << 20, 0); 100]).concat(), []);
    }

    #[test]
    fn interleaved_readers_of_one_session_are_recognized() {
        let reads: Vec<_> = (0..100u64)
            .flat_map(|n| [(n * 64 * KIB, 64 * KIB), ((1 << 30) + n * 64 * KIB, 64 * KIB)])
            .collect();
        let (missed, _) = uncovered(1 << 20, &reads);
        assert!(missed <= 12, "{missed}");
    }

    #[test]
    fn readers_at_the_ends_do_not_overflow() {
        let mut prefetch = Prefetch::new(ByteLen(8 << 20));
        let up: Vec<_> = (0..8).map(|n| (u64::MAX - (7 - n) * 65_536, 65_536)).collect();
        let down: Vec<_> = (0..8).map(|n| ((7 - n) << 20, 65_536)).collect();
        for ranges in [read(&mut prefetch, &up), read(&mut prefetch, &down)] {
            assert!(ranges.concat().iter().all(|(offset, len)| offset.checked_add(*len).is_some()));
        }
        let huge: Vec<_> = (0..8).map(|n| (n << 60, u64::MAX)).collect();
        read(&mut prefetch, &huge);
    }
}
