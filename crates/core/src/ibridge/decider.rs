//! The decision about one request.

use super::Class;
use super::average::{DiskRequest, ServiceAverage, Weight};
use super::board::{Board, fragment_return};
use super::curve::ServiceCurve;
use super::detour::{Detour, Price, Scarcity, is_of_the_arm};
use super::memory::Memory;
use super::policy::Policy;
use crate::units::{ByteLen, Nanos, TargetId};

/// After so many reads in a row that memory served, the next ones are taken for such.
const IN_MEMORY: u32 = 16;
/// Of these one in so many shows whether they still are.
const SHOWN: u32 = 32;
/// What is read faster than the disk could by so many times has not been read from it.
const MEMORY: u64 = 4;

/// Below which size a request is small, for each class.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Thresholds {
    /// Pieces of requests that span several datafiles.
    pub fragments_below: ByteLen,
    /// Requests of one piece.
    pub random_below: ByteLen,
}

impl Default for Thresholds {
    /// 20 KiB each, the paper's.
    fn default() -> Self {
        Self { fragments_below: ByteLen::from_kib(20), random_below: ByteLen::from_kib(20) }
    }
}

/// A request at its arrival.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrival<'a> {
    /// What the disk would have to do.
    pub request: DiskRequest,
    /// Sub-requests of its parent, itself included; 0 and 1 are a parent of one piece.
    pub pieces: u32,
    /// Targets of the others, as far as known.
    pub siblings: &'a [TargetId],
}

impl Arrival<'_> {
    /// Which class a small request of this kind has.
    pub const fn kind(&self) -> Class {
        if self.pieces > 1 { Class::Fragment } else { Class::Random }
    }
}

/// Which device is to serve a request. Of a read that is not cached it says whether to keep a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The disk.
    Disk,
    /// The SSD.
    Ssd {
        /// On account of this class.
        class: Class,
        /// The return, in nanoseconds of the disk's time.
        gain: i64,
    },
    /// The disk, for a read; and no copy is worth anything of the bytes right before it that were read of late.
    Outgrown {
        /// So many.
        before: u64,
    },
    /// The disk, but for the first `head` and the last `tail` bytes; together they are less than the request.
    Edges {
        /// Bytes of the head; may be 0.
        head: u64,
        /// Bytes of the tail; may be 0.
        tail: u64,
        /// On account of this class.
        class: Class,
        /// The return of each edge, in nanoseconds of the disk's time.
        gain: i64,
    },
}

/// What a [`Decider`] is told at its start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeciderSpec {
    /// Whose disk it is.
    pub target: TargetId,
    /// Which requests go to the SSD.
    pub policy: Policy,
    /// What is small.
    pub thresholds: Thresholds,
    /// What a new request weighs in T.
    pub weight: Weight,
    /// What the disk takes for a request.
    pub curve: ServiceCurve,
    /// How long a report of another server holds.
    pub stale: Nanos,
    /// Whether the system's memory lies before the disk.
    pub has_memory: bool,
}

/// What the decisions of one target rest on.
#[derive(Clone, Debug)]
pub struct Decider {
    spec: DeciderSpec,
    average: ServiceAverage,
    board: Board,
    detour: Detour,
    scarcity: Scarcity,
    has_pieces: bool,
    memory: Memory,
    /// Reads that might have been copied and came from memory, since the last one that did not.
    in_memory: u32,
    /// Reads since then that were not looked at.
    unseen: u32,
}

impl Decider {
    /// Of a disk that has served nothing yet.
    pub fn new(spec: DeciderSpec) -> Self {
        let (average, board) = (ServiceAverage::new(spec.weight), Board::new(spec.stale));
        Self {
            spec,
            average,
            board,
            detour: Detour::new(),
            scarcity: Scarcity::default(),
            has_pieces: false,
            memory: Memory::default(),
            in_memory: 0,
            unseen: 0,
        }
    }

    /// What it was told at its start.
    pub const fn spec(&self) -> &DeciderSpec {
        &self.spec
    }

    /// T of this disk.
    pub const fn average(&self) -> Nanos {
        self.average.value()
    }

    /// What is known of other disks.
    pub const fn board(&self) -> &Board {
        &self.board
    }

    /// The same, to be brought up to date.
    pub const fn board_mut(&mut self) -> &mut Board {
        &mut self.board
    }

    /// Whether a piece of a larger request has come since this was asked last: only those have siblings, whose T matter.
    pub fn take_pieces(&mut self) -> bool {
        std::mem::take(&mut self.has_pieces)
    }

    /// Process `process` (any number of its own) writes to the disk.
    pub fn heard_of(&mut self, process: u64, now: Nanos) {
        if matches!(self.spec.policy, Policy::Detour { .. }) {
            self.detour.heard_of(process, now);
        }
    }

    /// The class of a small request; `None` when it is not small.
    pub fn class(&self, arrival: &Arrival<'_>) -> Option<Class> {
        let class = arrival.kind();
        let below = match class {
            Class::Fragment => self.spec.thresholds.fragments_below,
            Class::Random => self.spec.thresholds.random_below,
        };
        (arrival.request.len < below).then_some(class)
    }

    /// Equations 1 to 3: the return of serving the request at the SSD, in nanoseconds.
    pub fn gain(&self, arrival: &Arrival<'_>, now: Nanos) -> i64 {
        self.gain_by(arrival, self.way(&arrival.request), now)
    }

    /// What the arm would take to get to a request.
    fn way(&self, request: &DiskRequest) -> Nanos {
        self.average.way(&self.spec.curve, request)
    }

    fn gain_by(&self, arrival: &Arrival<'_>, way: Nanos, now: Nanos) -> i64 {
        let gain = self.average.gain_by(way, &self.spec.curve, &arrival.request);
        if arrival.kind() != Class::Fragment {
            return gain;
        }
        let slowest = self.board.slowest(arrival.siblings, self.spec.target, now);
        fragment_return(gain, self.average.value(), slowest, arrival.pieces.saturating_sub(1))
    }

    /// Which device is to serve the request that arrives at `now`. T stays as it is: what the disk does is told by
    /// [`served_by_disk`](Self::served_by_disk), and what the SSD does leaves it alone (equation 2).
    pub fn decide(&mut self, arrival: &Arrival<'_>, now: Nanos) -> Verdict {
        self.decide_by(arrival, self.way(&arrival.request), now)
    }

    fn decide_by(&mut self, arrival: &Arrival<'_>, way: Nanos, now: Nanos) -> Verdict {
        self.has_pieces |= arrival.pieces > 1;
        let is_small = |policy_admits: fn(i64) -> bool| match self.class(arrival) {
            Some(class) => {
                let gain = self.gain_by(arrival, way, now);
                if policy_admits(gain) { Verdict::Ssd { class, gain } } else { Verdict::Disk }
            }
            None => Verdict::Disk,
        };
        match self.spec.policy {
            Policy::Off => Verdict::Disk,
            Policy::Ibridge | Policy::Static { .. } => {
                let verdict = is_small(|gain| gain > 0);
                if verdict != Verdict::Disk && self.is_for_memory(arrival.request.write) {
                    return Verdict::Disk;
                }
                verdict
            }
            Policy::Threshold => is_small(|_| true),
            Policy::Detour { ns_per_byte, page } => {
                let (curve, request) = (&self.spec.curve, &arrival.request);
                let price = Price { ns_per_byte: self.scarcity.price(ns_per_byte, request.write), page };
                match self.detour.decide(curve, price, request, way, arrival.kind()) {
                    Verdict::Ssd { .. } if !request.write && self.is_in_memory() => Verdict::Disk,
                    verdict => verdict,
                }
            }
        }
    }

    /// Whether the disk serves a request that would go to the SSD by the equations, which know of no memory before it.
    fn is_for_memory(&mut self, write: bool) -> bool {
        self.watches_memory() && if write { self.memory.takes() } else { self.is_in_memory() }
    }

    /// Whether a policy of the paper is to leave to the disk what memory takes there.
    const fn watches_memory(&self) -> bool {
        self.spec.has_memory && matches!(self.spec.policy, Policy::Ibridge | Policy::Static { .. })
    }

    /// The same, and the disk serves what it is to serve as it came: a write that it gets whole, and every read, since
    /// of these only a copy goes to the SSD.
    pub fn arrives(&mut self, arrival: &Arrival<'_>, now: Nanos) -> Verdict {
        // Once for both: it is the dearest of all.
        let way = self.way(&arrival.request);
        let verdict = self.decide_by(arrival, way, now);
        if verdict == Verdict::Disk || !arrival.request.write {
            self.served_by(&arrival.request, way);
        }
        verdict
    }

    /// The disk serves the request: equation 1.
    pub fn served_by_disk(&mut self, request: &DiskRequest) {
        self.served_by(request, self.way(request));
    }

    fn served_by(&mut self, request: &DiskRequest, way: Nanos) {
        self.average.served_by(way, &self.spec.curve, request);
        self.detour.served(request);
    }

    /// So much of the SSD's room, which is `capacity`, holds bytes that lie there alone, and so much any: what is left is
    /// for those to whom it is worth most.
    pub fn filled(&mut self, dirty: ByteLen, all: ByteLen, capacity: ByteLen) {
        self.scarcity = Scarcity::of(dirty, all, capacity);
    }

    /// How long a gap between two copies may be that is copied, too; `None` if gaps are left alone.
    pub fn gap_max(&self) -> Option<ByteLen> {
        let Policy::Detour { ns_per_byte, page } = self.spec.policy else { return None };
        let price = Price { ns_per_byte: self.scarcity.price(ns_per_byte, false), page };
        Some(Detour::gap_max(&self.spec.curve, price))
    }

    /// Whether a copy is worth anything of a read of `len` bytes that took so long: what comes faster than any platter turns
    /// comes from the system's memory, and will again.
    pub fn is_worth_a_copy(&mut self, len: ByteLen, took: Nanos) -> bool {
        let is_asked = matches!(self.spec.policy, Policy::Detour { .. }) || self.watches_memory();
        let is_worth = !is_asked || took.0 >= self.spec.curve.transfer(len, false).0 / MEMORY;
        self.in_memory = if is_worth { 0 } else { self.in_memory.saturating_add(1) };
        is_worth
    }

    /// Whether a read that might be copied need not be looked at, since those before it came from memory.
    fn is_in_memory(&mut self) -> bool {
        if self.in_memory < IN_MEMORY {
            return false;
        }
        self.unseen = (self.unseen + 1) % SHOWN;
        self.unseen > 0
    }

    /// Whether somebody wants to know by [`took`](Self::took) how long the disk takes for writes.
    pub const fn wants_times(&self) -> bool {
        matches!(self.spec.policy, Policy::Detour { page: 1.., .. }) || self.watches_memory()
    }

    /// The disk had a write from `began` to `ended`, with all that it waited for, when there were so many at its end.
    pub fn took(&mut self, request: &DiskRequest, time: (Nanos, Nanos), depth: u32) {
        if self.watches_memory() {
            let took = time.1.saturating_sub(time.0);
            self.memory.wrote(self.is_quick(took, request.len));
        } else if let Policy::Detour { ns_per_byte, page } = self.spec.policy {
            self.detour.took(&self.spec.curve, Price { ns_per_byte, page }, request, time, depth);
        }
    }

    /// The disk has synced for somebody, in this time.
    pub fn synced(&mut self, took: Nanos) {
        if self.watches_memory() {
            self.memory.synced(self.is_quick(took, ByteLen::ZERO));
        }
    }

    /// Whether no arm has moved.
    fn is_quick(&self, took: Nanos, len: ByteLen) -> bool {
        let beyond = took.saturating_sub(self.spec.curve.transfer(len, true));
        !is_of_the_arm(&self.spec.curve, beyond)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::LocalOffset;

    #[test]
    fn reads_that_memory_serves_are_looked_at_now_and_then() {
        let seek = vec![(ByteLen(0), Nanos(0))];
        let curve = ServiceCurve::new(seek, Nanos::from_ms(4), 100_000_000, 100_000_000, ByteLen(0));
        let mut decider = Decider::new(DeciderSpec {
            target: TargetId(0),
            policy: Policy::DETOUR,
            thresholds: Thresholds::default(),
            weight: Weight::default(),
            curve: curve.expect("a disk"),
            stale: Nanos::from_s(1),
            has_memory: true,
        });
        let mut at = 0;
        // A read of 4 KiB somewhere; what it took when it is looked at.
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
        let (memory, disk) = (Nanos(2000), Nanos::from_ms(8));
        let mut looked_at = |took, reads: usize| (0..reads).filter(|_| is_looked_at(took)).count();
        assert_eq!(looked_at(disk, 1000), 1000, "the disk");
        let few = looked_at(memory, 1000);
        assert!((20..=60).contains(&few), "{few}");
        let most = looked_at(disk, 1000);
        assert!(most >= 1000 - SHOWN as usize, "{most}");
    }
}
