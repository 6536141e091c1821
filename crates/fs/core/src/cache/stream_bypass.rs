//! Bypass for long sequential streams: the disk serves them well, and they would sweep the cache.

use super::admission::{AdmissionFilter, CacheRequest};
use super::streams::StreamTable;
use crate::units::ByteLen;

/// A request continues a stream within this multiple of its own length of the stream's end, because a client has
/// several requests in flight, which may overtake each other.
const REACH_FACTOR: u64 = 8;

/// Length of a stream beyond which it bypasses the cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StreamMax {
    /// A length in bytes.
    Len(ByteLen),
    /// One part in this many of the cache's capacity; zero counts as one.
    Part(u64),
}

impl StreamMax {
    /// Returns the length for a cache of a capacity in bytes.
    const fn len(self, capacity_bytes: u64) -> u64 {
        match self {
            Self::Len(len) => len.0,
            Self::Part(0) => capacity_bytes,
            Self::Part(parts) => capacity_bytes / parts,
        }
    }
}

/// Rejects the requests of a stream beyond a length. Streams are recognized for each datafile and session, reads and
/// writes separately.
#[derive(Clone, Debug)]
pub struct StreamBypass {
    reads: Option<Bound>,
    writes: Option<Bound>,
}

#[derive(Clone, Debug)]
struct Bound {
    max: StreamMax,
    len_max: u64,
    streams: StreamTable<Stream>,
}

#[derive(Clone, Copy, Debug)]
struct Stream {
    start: u64,
    /// Greatest end of its requests.
    end: u64,
    /// Sum of the lengths of its requests.
    bytes: u64,
}

impl Stream {
    /// Returns the length. Neither gaps nor repeated bytes count.
    fn len(&self) -> u64 {
        self.bytes.min(self.end - self.start)
    }
}

impl StreamBypass {
    /// Returns a filter that rejects reads and writes of longer streams than these, for a cache of a capacity in bytes;
    /// `None` for no bound.
    pub fn new(reads: Option<StreamMax>, writes: Option<StreamMax>, capacity_bytes: u64) -> Self {
        let bound =
            |max: StreamMax| Bound { max, len_max: max.len(capacity_bytes), streams: StreamTable::new() };
        Self { reads: reads.map(bound), writes: writes.map(bound) }
    }
}

impl Bound {
    /// Records a request. Returns true if its stream is still short.
    fn admits(&mut self, request: &CacheRequest) -> bool {
        let (start, len) = (request.extent.offset.0, request.extent.len.0);
        let (end, reach) = (start.saturating_add(len), len.saturating_mul(REACH_FACTOR));
        let streams = self.streams.of(request);
        let stream = streams.take(|stream| stream.end.abs_diff(start) <= reach);
        let stream = streams.push(stream.unwrap_or(Stream { start, end: start, bytes: 0 }));
        (stream.start, stream.end) = (stream.start.min(start), stream.end.max(end));
        stream.bytes = stream.bytes.saturating_add(len);
        stream.len() <= self.len_max
    }
}

impl AdmissionFilter for StreamBypass {
    fn name(&self) -> &'static str {
        "stream-bypass"
    }

    fn read(&mut self, request: &CacheRequest) -> bool {
        self.reads.as_mut().is_none_or(|bound| bound.admits(request))
    }

    fn write(&mut self, request: &CacheRequest) -> bool {
        self.writes.as_mut().is_none_or(|bound| bound.admits(request))
    }

    fn set_capacity(&mut self, bytes: u64) {
        for bound in [&mut self.reads, &mut self.writes].into_iter().flatten() {
            bound.len_max = bound.max.len(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::LocalExtent;

    const KIB: u64 = 1024;

    fn request(session: u64, offset: u64, len: u64) -> CacheRequest {
        CacheRequest { file: 1, session, extent: LocalExtent::new(offset, len) }
    }

    /// Returns a filter with a bound of 1 MiB for reads.
    fn filter() -> StreamBypass {
        StreamBypass::new(Some(StreamMax::Len(ByteLen::from_mib(1))), None, 1 << 30)
    }

    #[test]
    fn a_stream_is_rejected_beyond_its_bound() {
        let mut filter = filter();
        for n in 0..100 {
            let admitted = filter.read(&request(1, n * 64 * KIB, 64 * KIB));
            assert_eq!(admitted, n < 16, "{n}");
            assert!(filter.write(&request(1, n * 64 * KIB, 64 * KIB)), "writes have no bound");
        }
        assert!(filter.read(&request(2, 100 * 64 * KIB, 64 * KIB)), "another session is no part of it");
        assert!(filter.read(&CacheRequest { file: 2, ..request(1, 100 * 64 * KIB, 64 * KIB) }));
        assert!(!filter.read(&request(1, 100 * 64 * KIB, 64 * KIB)));
        assert!(!filter.read(&request(1, 101 * 64 * KIB, 0)), "an empty request changes nothing");
    }

    #[test]
    fn a_part_of_the_capacity_follows_it() {
        let mut filter = StreamBypass::new(Some(StreamMax::Part(4)), None, 4 << 20);
        let admitted = |filter: &mut StreamBypass, session| {
            (0..100).filter(|n| filter.read(&request(session, n * 64 * KIB, 64 * KIB))).count()
        };
        assert_eq!(admitted(&mut filter, 1), 16);
        filter.set_capacity(8 << 20);
        assert_eq!(admitted(&mut filter, 2), 32);
        assert_eq!(StreamMax::Part(0).len(7), 7);
    }

    #[test]
    fn a_stream_may_begin_anywhere_and_be_reordered() {
        let mut filter = filter();
        // Four requests in flight, the last of them first.
        let rejected = (0..64u64).filter(|n| {
            let n = n / 4 * 4 + (3 - n % 4);
            !filter.read(&request(1, (1 << 30) + n * 64 * KIB, 64 * KIB))
        });
        assert!((40..=56).contains(&rejected.count()));
    }

    #[test]
    fn interleaved_streams_of_one_session_are_recognized() {
        let mut filter = filter();
        for n in 0..40 {
            for stream in 0..8u64 {
                let admitted = filter.read(&request(1, (stream << 30) + n * 64 * KIB, 64 * KIB));
                assert_eq!(admitted, n < 16, "{n} of {stream}");
            }
        }
    }

    #[test]
    fn random_and_repeated_reads_are_no_stream() {
        let (mut filter, mut random) = (filter(), crate::random::SplitMix64::new(9));
        for n in 0..10_000 {
            assert!(filter.read(&request(1, random.below(1 << 40), 64 * KIB)), "{n}");
            assert!(filter.read(&request(2, random.below(8) * 64 * KIB, 64 * KIB)), "{n}");
        }
    }

    #[test]
    fn offsets_at_the_end_do_not_overflow() {
        let mut filter = filter();
        for _ in 0..4 {
            filter.read(&request(1, u64::MAX - 1, u64::MAX));
            filter.read(&request(1, 0, u64::MAX));
        }
    }
}
