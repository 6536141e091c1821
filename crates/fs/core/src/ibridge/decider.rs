//! The decision for each request.

use super::Class;
use super::average::{DiskRequest, ServiceAverage, Weight};
use super::curve::ServiceCurve;
use super::detour::{Detour, Price, Scarcity, is_seek};
use super::page_cache::PageCache;
use super::peer_averages::{PeerAverages, fragment_return};
use super::policy::Policy;
use crate::units::{ByteLen, Nanos, TargetId};

/// Number of consecutive reads served from the page cache after which further reads are assumed to be.
const CACHED_READS_MIN: u32 = 16;
/// While they are, one read in this many is measured again.
const MEASURE_INTERVAL: u32 = 32;
/// A read faster than the disk's transfer time by this factor was served from the page cache.
const CACHE_SPEEDUP: u64 = 4;

/// Sizes below which a request is small, per class.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Thresholds {
    /// Limit for pieces of requests that span several datafiles.
    pub fragments_below: ByteLen,
    /// Limit for requests of one piece.
    pub random_below: ByteLen,
}

impl Default for Thresholds {
    /// 20 KiB each, as in the paper.
    fn default() -> Self {
        Self { fragments_below: ByteLen::from_kib(20), random_below: ByteLen::from_kib(20) }
    }
}

/// A request on arrival.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrival<'a> {
    /// The request as the disk would see it.
    pub request: DiskRequest,
    /// Number of sub-requests of the parent, this one included; 0 and 1 both mean a single piece.
    pub pieces: u32,
    /// Targets of the other pieces, as far as known.
    pub siblings: &'a [TargetId],
}

impl Arrival<'_> {
    /// Returns the class that the request has if it is small.
    pub const fn kind(&self) -> Class {
        if self.pieces > 1 { Class::Fragment } else { Class::Random }
    }
}

/// Device that serves a request. For a read that is not in the log, `Ssd` means that a copy is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The disk.
    Disk,
    /// The SSD.
    Ssd {
        /// Class whose quota is charged.
        class: Class,
        /// Return in nanoseconds of disk time.
        gain: i64,
    },
    /// The disk, for a read. Copies of the preceding sequential reads are not worthwhile either.
    Outgrown {
        /// Number of bytes immediately before the read whose copies should be dropped.
        before: u64,
    },
    /// The disk, except the first `head` and the last `tail` bytes, which together are less than the request.
    Edges {
        /// Bytes at the head; may be 0.
        head: u64,
        /// Bytes at the tail; may be 0.
        tail: u64,
        /// Class whose quota is charged.
        class: Class,
        /// Return of each edge, in nanoseconds of disk time.
        gain: i64,
    },
}

/// Parameters of a [`Decider`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeciderSpec {
    /// Target of the disk.
    pub target: TargetId,
    /// Policy that selects requests for the SSD.
    pub policy: Policy,
    /// Size limits of small requests.
    pub thresholds: Thresholds,
    /// Weight of a new request in T.
    pub weight: Weight,
    /// Service curve of the disk.
    pub curve: ServiceCurve,
    /// Time for which a report of another server stays valid.
    pub stale: Nanos,
    /// True if the disk is accessed through the page cache.
    pub has_page_cache: bool,
}

/// Decision state of a target.
#[derive(Clone, Debug)]
pub struct Decider {
    spec: DeciderSpec,
    average: ServiceAverage,
    peer_averages: PeerAverages,
    detour: Detour,
    scarcity: Scarcity,
    has_pieces: bool,
    page_cache: PageCache,
    /// Consecutive reads eligible for a copy that were served from the page cache.
    cached_reads: u32,
    /// Reads since the last one that was measured.
    unmeasured: u32,
}

impl Decider {
    /// Returns the state of a disk that has served nothing.
    pub fn new(spec: DeciderSpec) -> Self {
        let (average, peer_averages) = (ServiceAverage::new(spec.weight), PeerAverages::new(spec.stale));
        Self {
            spec,
            average,
            peer_averages,
            detour: Detour::new(),
            scarcity: Scarcity::default(),
            has_pieces: false,
            page_cache: PageCache::default(),
            cached_reads: 0,
            unmeasured: 0,
        }
    }

    /// Returns the parameters.
    pub const fn spec(&self) -> &DeciderSpec {
        &self.spec
    }

    /// Returns T of this disk.
    pub const fn average(&self) -> Nanos {
        self.average.value()
    }

    /// Returns the known T of other disks.
    pub const fn peer_averages(&self) -> &PeerAverages {
        &self.peer_averages
    }

    /// Returns the known T of other disks, for updates.
    pub const fn peer_averages_mut(&mut self) -> &mut PeerAverages {
        &mut self.peer_averages
    }

    /// Returns true if a piece of a larger request has arrived since the last call. Only such pieces have siblings,
    /// whose T matter.
    pub fn take_pieces(&mut self) -> bool {
        std::mem::take(&mut self.has_pieces)
    }

    /// Records that `process`, an arbitrary id, writes to the disk.
    pub fn observe_writer(&mut self, process: u64, now: Nanos) {
        if matches!(self.spec.policy, Policy::Detour { .. }) {
            self.detour.observe_writer(process, now);
        }
    }

    /// Returns the class of a small request; `None` if the request is not small.
    pub fn class(&self, arrival: &Arrival<'_>) -> Option<Class> {
        let class = arrival.kind();
        let below = match class {
            Class::Fragment => self.spec.thresholds.fragments_below,
            Class::Random => self.spec.thresholds.random_below,
        };
        (arrival.request.len < below).then_some(class)
    }

    /// Equations 1 to 3: returns the return of serving the request from the SSD, in nanoseconds.
    pub fn gain(&self, arrival: &Arrival<'_>, now: Nanos) -> i64 {
        self.gain_with(arrival, self.positioning_time(&arrival.request), now)
    }

    /// Returns the positioning time of a request.
    fn positioning_time(&self, request: &DiskRequest) -> Nanos {
        self.average.positioning_time(&self.spec.curve, request)
    }

    fn gain_with(&self, arrival: &Arrival<'_>, positioning_time: Nanos, now: Nanos) -> i64 {
        let gain = self.average.gain_with(positioning_time, &self.spec.curve, &arrival.request);
        if arrival.kind() != Class::Fragment {
            return gain;
        }
        let slowest = self.peer_averages.slowest(arrival.siblings, self.spec.target, now);
        fragment_return(gain, self.average.value(), slowest, arrival.pieces.saturating_sub(1))
    }

    /// Selects the device for a request that arrives at `now`. Does not change T:
    /// [`served_by_disk`](Self::served_by_disk) reports what the disk serves, and the SSD leaves T unchanged (equation
    /// 2).
    pub fn decide(&mut self, arrival: &Arrival<'_>, now: Nanos) -> Verdict {
        self.decide_with(arrival, self.positioning_time(&arrival.request), now)
    }

    fn decide_with(&mut self, arrival: &Arrival<'_>, positioning_time: Nanos, now: Nanos) -> Verdict {
        self.has_pieces |= arrival.pieces > 1;
        let is_small = |policy_admits: fn(i64) -> bool| match self.class(arrival) {
            Some(class) => {
                let gain = self.gain_with(arrival, positioning_time, now);
                if policy_admits(gain) { Verdict::Ssd { class, gain } } else { Verdict::Disk }
            }
            None => Verdict::Disk,
        };
        match self.spec.policy {
            Policy::Off => Verdict::Disk,
            Policy::Ibridge | Policy::Static { .. } => {
                let verdict = is_small(|gain| gain > 0);
                if verdict != Verdict::Disk && self.is_absorbed(arrival.request.write) {
                    return Verdict::Disk;
                }
                verdict
            }
            Policy::Threshold => is_small(|_| true),
            Policy::Detour { ns_per_byte, page } => {
                let (curve, request) = (&self.spec.curve, &arrival.request);
                let price = Price { ns_per_byte: self.scarcity.price(ns_per_byte, request.write), page };
                match self.detour.decide(curve, price, request, positioning_time, arrival.kind()) {
                    Verdict::Ssd { .. } if !request.write && self.is_likely_cached() => Verdict::Disk,
                    verdict => verdict,
                }
            }
        }
    }

    /// Returns true if the disk serves a request that the equations assign to the SSD, because they ignore the page
    /// cache.
    fn is_absorbed(&mut self, write: bool) -> bool {
        self.considers_page_cache()
            && if write { self.page_cache.absorbs_next() } else { self.is_likely_cached() }
    }

    /// Returns true if a policy of the paper should leave to the disk what the page cache absorbs.
    const fn considers_page_cache(&self) -> bool {
        self.spec.has_page_cache && matches!(self.spec.policy, Policy::Ibridge | Policy::Static { .. })
    }

    /// Selects the device, and records the request if the disk serves it unchanged: a whole write, or any read,
    /// because the SSD receives only a copy of a read.
    pub fn arrives(&mut self, arrival: &Arrival<'_>, now: Nanos) -> Verdict {
        // Computed once for both uses, because it dominates the cost.
        let positioning_time = self.positioning_time(&arrival.request);
        let verdict = self.decide_with(arrival, positioning_time, now);
        if verdict == Verdict::Disk || !arrival.request.write {
            self.served_with(&arrival.request, positioning_time);
        }
        verdict
    }

    /// Records that the disk serves the request (equation 1).
    pub fn served_by_disk(&mut self, request: &DiskRequest) {
        self.served_with(request, self.positioning_time(request));
    }

    fn served_with(&mut self, request: &DiskRequest, positioning_time: Nanos) {
        self.average.served_with(positioning_time, &self.spec.curve, request);
        self.detour.served(request);
    }

    /// Updates the fill level of the SSD: dirty bytes, all bytes, and capacity. Scarce space goes to the requests with
    /// the highest return.
    pub fn set_fill_level(&mut self, dirty: ByteLen, all: ByteLen, capacity: ByteLen) {
        self.scarcity = Scarcity::of(dirty, all, capacity);
    }

    /// Returns the maximum length of a gap between two copies that is copied too; `None` if the policy leaves gaps.
    pub fn gap_max(&self) -> Option<ByteLen> {
        let Policy::Detour { ns_per_byte, page } = self.spec.policy else { return None };
        let price = Price { ns_per_byte: self.scarcity.price(ns_per_byte, false), page };
        Some(Detour::gap_max(&self.spec.curve, price))
    }

    /// Returns true if a read of `len` bytes that took this long is worth a copy. A read faster than any disk was
    /// served from the page cache, and will be again.
    pub fn is_worth_a_copy(&mut self, len: ByteLen, took: Nanos) -> bool {
        let is_asked = matches!(self.spec.policy, Policy::Detour { .. }) || self.considers_page_cache();
        let is_worth = !is_asked || took.0 >= self.spec.curve.transfer(len, false).0 / CACHE_SPEEDUP;
        self.cached_reads = if is_worth { 0 } else { self.cached_reads.saturating_add(1) };
        is_worth
    }

    /// Returns true if a read eligible for a copy need not be measured, because previous ones were served from the
    /// page cache.
    fn is_likely_cached(&mut self) -> bool {
        if self.cached_reads < CACHED_READS_MIN {
            return false;
        }
        self.unmeasured = (self.unmeasured + 1) % MEASURE_INTERVAL;
        self.unmeasured > 0
    }

    /// Returns true if the policy uses the write times reported by [`observe_write`](Self::observe_write).
    pub const fn needs_write_times(&self) -> bool {
        matches!(self.spec.policy, Policy::Detour { page: 1.., .. }) || self.considers_page_cache()
    }

    /// Records that the disk served a write from `began` to `ended`, waiting included; `depth` is the queue depth at
    /// its end.
    pub fn observe_write(&mut self, request: &DiskRequest, time: (Nanos, Nanos), depth: u32) {
        if self.considers_page_cache() {
            let took = time.1.saturating_sub(time.0);
            self.page_cache.observe_write(self.is_fast(took, request.len));
        } else if let Policy::Detour { ns_per_byte, page } = self.spec.policy {
            self.detour.observe_write(&self.spec.curve, Price { ns_per_byte, page }, request, time, depth);
        }
    }

    /// Records a sync of the disk and its duration.
    pub fn observe_sync(&mut self, took: Nanos) {
        if self.considers_page_cache() {
            self.page_cache.observe_sync(self.is_fast(took, ByteLen::ZERO));
        }
    }

    /// Returns true if the time beyond the transfer is too short for a movement of the arm.
    fn is_fast(&self, took: Nanos, len: ByteLen) -> bool {
        let beyond = took.saturating_sub(self.spec.curve.transfer(len, true));
        !is_seek(&self.spec.curve, beyond)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::LocalOffset;

    #[test]
    fn cached_reads_are_measured_occasionally() {
        let seek = vec![(ByteLen(0), Nanos(0))];
        let curve = ServiceCurve::new(seek, Nanos::from_ms(4), 100_000_000, 100_000_000, ByteLen(0));
        let mut decider = Decider::new(DeciderSpec {
            target: TargetId(0),
            policy: Policy::DETOUR,
            thresholds: Thresholds::default(),
            weight: Weight::default(),
            curve: curve.expect("a disk"),
            stale: Nanos::from_s(1),
            has_page_cache: true,
        });
        let mut at = 0;
        // Decides a read of 4 KiB at a new offset, and reports its time if it is measured.
        let mut is_looked_at = |took| {
            at += 1 << 20;
            let request = DiskRequest { file: 1, offset: LocalOffset(at), len: ByteLen(4096), write: false };
            let verdict = decider.decide(&Arrival { request, pieces: 1, siblings: &[] }, Nanos::ZERO);
            let is = verdict != Verdict::Disk;
            if is {
                decider.is_worth_a_copy(ByteLen(4096), took);
            }
            is
        };
        let (page_cache, disk) = (Nanos(2000), Nanos::from_ms(8));
        let mut looked_at = |took, reads: usize| (0..reads).filter(|_| is_looked_at(took)).count();
        assert_eq!(looked_at(disk, 1000), 1000, "the disk");
        let few = looked_at(page_cache, 1000);
        assert!((20..=60).contains(&few), "{few}");
        let most = looked_at(disk, 1000);
        assert!(most >= 1000 - MEASURE_INTERVAL as usize, "{most}");
    }
}
