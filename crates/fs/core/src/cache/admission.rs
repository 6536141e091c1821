//! Admission: the list of filters that decide which requests enter the cache.

use super::{Prefetch, SecondAccess, StreamBypass, StreamMax};
use crate::units::{ByteLen, LocalExtent};

/// A stream of more than one part in this many of the capacity bypasses the cache by default.
const STREAM_DIVISOR: u64 = 4;

/// A request on arrival.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CacheRequest {
    /// Identifies the datafile, as in [`BlockId`](super::BlockId).
    pub file: u64,
    /// Identifies the session of the client: one process or mount.
    pub session: u64,
    /// Range of the datafile.
    pub extent: LocalExtent,
}

/// Decision about a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The bytes enter the cache.
    Admit,
    /// The bytes stay out of it.
    Reject {
        /// Name of the filter that decided.
        filter: &'static str,
    },
}

impl Verdict {
    /// Returns true for [`Verdict::Admit`].
    pub const fn is_admit(self) -> bool {
        matches!(self, Self::Admit)
    }
}

/// A filter, which may veto the admission of a request. A filter sees the requests that the filters before it admit.
pub trait AdmissionFilter: std::fmt::Debug + Send {
    /// Returns the name in reports.
    fn name(&self) -> &'static str;

    /// Records a read that is not wholly in the cache. Returns true if the filter admits it.
    fn read(&mut self, request: &CacheRequest) -> bool;

    /// Records a write. Returns true if the filter admits it.
    fn write(&mut self, request: &CacheRequest) -> bool;

    /// Adapts the filter to a new capacity of the cache.
    fn set_capacity(&mut self, _bytes: u64) {}
}

/// Selection of a cache's filters. [`AdmissionSpec::for_capacity`] returns the default.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AdmissionSpec {
    /// Capacity of the cache in bytes.
    pub capacity: u64,
    /// Whether a read enters the cache at its second access only.
    pub second_access: bool,
    /// Length above which a sequential stream of reads bypasses the cache; `None` for no bound.
    pub read_stream_max: Option<StreamMax>,
    /// Length above which a sequential stream of writes bypasses the cache; `None` for no bound, so that the cache
    /// absorbs bursts.
    pub write_stream_max: Option<StreamMax>,
    /// Maximum length that is read ahead of a reader; zero disables prefetching.
    pub prefetch_max: ByteLen,
}

impl AdmissionSpec {
    /// Returns the default: second access for reads, no bound for streams of writes, a quarter of the capacity for
    /// streams of reads, and no prefetching. A file that is read again and fits the cache is cached although it is read
    /// as a stream.
    pub const fn for_capacity(bytes: u64) -> Self {
        Self {
            capacity: bytes,
            second_access: true,
            read_stream_max: Some(StreamMax::Part(STREAM_DIVISOR)),
            write_stream_max: None,
            prefetch_max: ByteLen::ZERO,
        }
    }

    /// Returns a specification without filters, which admits every request.
    pub const fn all(capacity_bytes: u64) -> Self {
        Self { second_access: false, read_stream_max: None, ..Self::for_capacity(capacity_bytes) }
    }
}

/// The filters of a cache, and how many requests each rejected.
#[derive(Debug)]
pub struct CacheAdmission {
    filters: Vec<(Box<dyn AdmissionFilter>, u64)>,
    prefetch: Option<Prefetch>,
    admitted: u64,
}

impl CacheAdmission {
    /// Returns the filters of a specification. Stream bypass comes first, so that long streams do not fill the ghost
    /// table.
    pub fn new(spec: &AdmissionSpec) -> Self {
        let mut filters: Vec<Box<dyn AdmissionFilter>> = Vec::new();
        if spec.read_stream_max.is_some() || spec.write_stream_max.is_some() {
            filters.push(Box::new(StreamBypass::new(
                spec.read_stream_max,
                spec.write_stream_max,
                spec.capacity,
            )));
        }
        if spec.second_access {
            filters.push(Box::new(SecondAccess::new(spec.capacity)));
        }
        let prefetch = (spec.prefetch_max > ByteLen::ZERO).then(|| Prefetch::new(spec.prefetch_max));
        Self { prefetch, ..Self::of(filters) }
    }

    /// Returns a list of filters, which are asked in this order until one rejects.
    pub fn of(filters: Vec<Box<dyn AdmissionFilter>>) -> Self {
        let filters = filters.into_iter().map(|filter| (filter, 0)).collect();
        Self { filters, prefetch: None, admitted: 0 }
    }

    /// Decides about a read of which the cache lacks some bytes. Call it for misses and partial hits only: a second
    /// access is one that the cache could not serve.
    pub fn read(&mut self, request: CacheRequest) -> Verdict {
        self.decide(|filter| filter.read(&request))
    }

    /// Decides about a write. Call it for every write, except to blocks that must be updated anyway because the cache
    /// holds older bytes of them.
    pub fn write(&mut self, request: CacheRequest) -> Verdict {
        self.decide(|filter| filter.write(&request))
    }

    /// Returns the ranges to read into the cache ahead of the reader; none unless the specification asks for it. Call
    /// it for every read, hits included, in the order of arrival. The ranges may lie behind the end of the datafile.
    pub fn prefetch(&mut self, request: CacheRequest) -> Vec<LocalExtent> {
        self.prefetch.as_mut().map_or_else(Vec::new, |prefetch| prefetch.read(&request))
    }

    /// Adapts the filters to a new capacity of the cache.
    pub fn set_capacity(&mut self, bytes: u64) {
        self.filters.iter_mut().for_each(|(filter, _)| filter.set_capacity(bytes));
    }

    /// Returns the number of requests admitted.
    pub const fn admitted(&self) -> u64 {
        self.admitted
    }

    /// Returns each filter's name and the number of requests it rejected.
    pub fn rejected(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.filters.iter().map(|(filter, rejected)| (filter.name(), *rejected))
    }

    fn decide(&mut self, mut admits: impl FnMut(&mut dyn AdmissionFilter) -> bool) -> Verdict {
        for (filter, rejected) in &mut self.filters {
            if !admits(filter.as_mut()) {
                *rejected += 1;
                return Verdict::Reject { filter: filter.name() };
            }
        }
        self.admitted += 1;
        Verdict::Admit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(session: u64, offset: u64) -> CacheRequest {
        CacheRequest { file: 1, session, extent: LocalExtent::new(offset, 1 << 20) }
    }

    #[test]
    fn verdicts_name_the_filter_and_are_counted() {
        let mut admission = CacheAdmission::new(&AdmissionSpec::for_capacity(16 << 20));
        let read = |admission: &mut CacheAdmission, mib: u64| admission.read(request(1, mib << 20));
        for mib in 0..4 {
            assert_eq!(read(&mut admission, mib), Verdict::Reject { filter: "second-access" }, "{mib}");
        }
        for mib in 4..100 {
            assert_eq!(read(&mut admission, mib), Verdict::Reject { filter: "stream-bypass" }, "{mib}");
        }
        assert!(admission.read(request(2, 1 << 20)).is_admit(), "the stream did not fill the ghost table");
        assert!((0..100).all(|mib| admission.write(request(3, mib << 20)).is_admit()), "a burst of writes");
        assert_eq!(admission.rejected().collect::<Vec<_>>(), [("stream-bypass", 96), ("second-access", 4)]);
        assert_eq!(admission.admitted(), 101);
        assert_eq!(admission.prefetch(request(1, 0)), []);
    }

    #[test]
    fn filters_can_be_left_out() {
        let mut admission = CacheAdmission::new(&AdmissionSpec::all(16 << 20));
        assert!((0..100).all(|mib| admission.read(request(1, mib << 20)).is_admit()));
        assert_eq!(admission.rejected().count(), 0);
        let bounded = AdmissionSpec {
            write_stream_max: Some(StreamMax::Len(ByteLen::from_mib(10))),
            prefetch_max: ByteLen::from_mib(8),
            ..AdmissionSpec::all(16 << 20)
        };
        let mut admission = CacheAdmission::new(&bounded);
        let admitted = (0..100).filter(|mib| admission.write(request(1, mib << 20)).is_admit()).count();
        assert_eq!(admitted, 10);
        let fetched: Vec<_> = (0..3).flat_map(|mib| admission.prefetch(request(1, mib << 20))).collect();
        assert_eq!(fetched, [LocalExtent::new(3 << 20, 4 << 20)]);
    }

    #[test]
    fn a_smaller_cache_has_a_shorter_window() {
        let mut admission = CacheAdmission::new(&AdmissionSpec {
            read_stream_max: None,
            ..AdmissionSpec::for_capacity(16 << 20)
        });
        admission.set_capacity(2 << 20);
        (0..5).for_each(|mib| _ = admission.read(request(1, mib << 20)));
        assert!(!admission.read(request(1, 0)).is_admit());
        assert!(admission.read(request(1, 4 << 20)).is_admit());
    }
}
