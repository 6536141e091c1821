//! The policy `detour`: serves a request from the SSD when that saves enough disk time per byte.
//!
//! ```text
//!                         request
//!                            |
//!               read         |         write
//!         +------------------+------------------+
//!    cost = positioning time          cost = positioning time,
//!    of the sequential run            less if neighbors share a seek,
//!    that it belongs to               plus the measured cost of its edges
//!         |                                     |
//!    cost > price * bytes of the run?    cost > price * bytes of the write?
//!     yes |         | no                   yes |         | no
//!       Ssd   Outgrown or Disk               Ssd   edges worth it? Edges : Disk
//!                                              |
//!                                   probe due? then Disk, to measure its cost
//! ```
//!
//! | term | meaning | source |
//! | --- | --- | --- |
//! | positioning time | seek plus rotational delay | [`ServiceCurve`] |
//! | price | nanoseconds of disk time that a byte on the SSD must save | [`Price`], raised by [`Scarcity`] |
//! | edge | part of a write before its first or after its last whole page | [`pages`] |
//! | cost of edges | mean time of writes with edges minus that of whole-page writes | [`Mean`] |
//! | shared seek | adjacent writes in the queue need fewer seeks than requests | [`MERGE_QUEUE_DEPTH`] |
//! | probe | a series of writes sent to the disk to measure its present cost | [`PROBE_WRITES`] |
//!
//! # Writes
//!
//! The positioning time from the curve is an upper bound. Writes near a recent run also cost no more than such writes
//! were measured to cost: next to nothing while the page cache absorbs them, and less than a seek while the scheduler
//! merges them.
//!
//! Measurements become outdated when the number of writing processes doubles, and after [`IDLE_RESET`] without writes.
//! Then [`PROBE_WRITES`] consecutive writes go to the disk. So they do from time to time, when the bytes sent to the
//! SSD since the last probes outweigh the cost of new ones [`PROBE_TIME_DIVISOR`] times.
//!
//! # Reads
//!
//! A read that continues where the disk's previous request ended belongs to a sequential run, and the positioning time
//! of the run is compared with all bytes of the run. When a run outgrows that, its earlier copies are useless as well
//! ([`Verdict::Outgrown`]): the disk has to seek there in any case.
//!
//! A reader that returns from a copied jump finds the disk's head where it left it, once reads hit the copy. Such a
//! return is therefore free. This does not hold while reads arrive in no order, as those of many processes do
//! ([`UNORDERED_READS`]).

use super::Class;
use super::average::DiskRequest;
use super::curve::ServiceCurve;
use super::decider::Verdict;
use super::runs::{Adjacency, NEAR_FACTOR, Runs};
use super::writer_count::WriterCount;
use crate::units::{ByteLen, Nanos};

/// Number of consecutive writes sent to the disk instead of the SSD to measure the disk's current cost. A single write
/// would find the disk idle and underestimate it.
const PROBE_WRITES: u32 = 32;
/// Probes take about one part in this many of the disk's time.
const PROBE_TIME_DIVISOR: u64 = 64;
/// Number of equal parts in which the fill level of the SSD is measured.
const FILL_PARTS: u32 = 16;
/// Fill level, in parts, above which each part of dirty bytes doubles the price.
const DIRTY_PARTS_FREE: u32 = 4;
/// Fill level, in parts, above which each part adds the price once more for copies; five times the price on a full
/// SSD.
const COPY_PARTS_FREE: u32 = 12;
/// Maximum cost of an edge, in rotational delays, so that writers waiting for one another are not counted several
/// times.
const EDGE_ROTATIONS_MAX: u64 = 4;

/// A measured time beyond the transfer that is below this fraction of the rotational delay is not a seek, but the page
/// cache or a busy processor.
const SEEK_DIVISOR: u64 = 4;
/// This fraction of the standard error is subtracted from the mean time of whole-page writes, as possible chance.
const CHANCE_DIVISOR: u64 = 4;
/// Number of reads after a short backward jump that are assumed to be unordered.
const UNORDERED_READS: u32 = 16;
/// Time without writes after which the writers may have changed, so that measurements are discarded.
const IDLE_RESET: Nanos = Nanos::from_s(1);
/// Queue depth at which the scheduler merges two adjacent requests into one seek; three at twice the depth.
const MERGE_QUEUE_DEPTH: u64 = 12;

/// State of the policy for one disk.
#[derive(Clone, Debug)]
pub(super) struct Detour {
    runs: Runs,
    /// End of the disk's last request.
    head: Option<(u64, u64)>,
    /// Position where the head would be if reads hit the copies that are being made.
    resume_at: Option<(u64, u64)>,
    /// True if the read that the disk is serving is also copied.
    is_copying: bool,
    /// Number of further reads that are assumed to be unordered.
    unordered: u32,
    /// Positioning time of the current sequential run of reads, and its length in bytes.
    run: (Nanos, u64),
    writers: WriterCount,
    unaligned_writes: Mean,
    whole_pages: Mean,
    /// Mean queue depth at the end of writes.
    depth: Mean,
    /// Time of the last write.
    last_write: Nanos,
    /// Time when the disk last completed a write.
    last_completion: Nanos,
    /// Bytes sent to the SSD since the last probes, valued at the price in nanoseconds.
    probe_credit_ns: u64,
    /// Number of probes still to send.
    probes_left: u32,
    /// True if whole-page writes near others recently went to the SSD.
    is_diverted: bool,
}

/// Mean of the last [`PROBE_WRITES`] values (nanoseconds, or requests). It is constant until as many new values are
/// complete. A running mean would follow the first value, which includes the seek from elsewhere, and divert the
/// following writes from the disk.
#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    mean: Option<u64>,
    /// Standard error of the mean.
    error: u64,
    sum: u64,
    squares: u128,
    count: u32,
}

impl Mean {
    fn add(&mut self, value: u64) {
        (self.sum, self.count) = (self.sum.saturating_add(value), self.count + 1);
        self.squares = self.squares.saturating_add(u128::from(value).pow(2));
        if self.count == PROBE_WRITES {
            let mean = self.sum / u64::from(PROBE_WRITES);
            let variance = (self.squares / u128::from(PROBE_WRITES)).saturating_sub(u128::from(mean).pow(2));
            let error = (variance / u128::from(PROBE_WRITES)).isqrt() as u64; // no more than the largest value
            *self = Self { mean: Some(mean), error, ..Self::default() };
        }
    }

    /// Discards incomplete values that were collected under other conditions.
    fn begin(&mut self) {
        (self.sum, self.squares, self.count) = (0, 0, 0);
    }
}

/// Parameters of the policy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Price {
    /// Disk time in nanoseconds that each byte on the SSD must save.
    pub ns_per_byte: u32,
    /// Page size in bytes; 0 disables the treatment of edges.
    pub page: u32,
}

/// Scarcity of space on the SSD. The price doubles with each sixteenth of the capacity that dirty bytes take beyond a
/// quarter. Copies of reads cost more when more than three quarters are in use, because a copy then evicts another.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Scarcity {
    doublings: u32,
    copies: u32,
}

impl Scarcity {
    /// Computes the scarcity from dirty bytes, all bytes and capacity.
    pub fn of(dirty: ByteLen, all: ByteLen, capacity: ByteLen) -> Self {
        let parts = |len: ByteLen| {
            let parts = u128::from(len.0) * u128::from(FILL_PARTS) / u128::from(capacity.0.max(1));
            parts.min(u128::from(FILL_PARTS)) as u32
        };
        let beyond = |len: ByteLen, free: u32| parts(len).saturating_sub(free);
        Self { doublings: beyond(dirty, DIRTY_PARTS_FREE), copies: beyond(all, COPY_PARTS_FREE) }
    }

    /// Returns the price of a byte for a write or a read.
    pub fn price(self, ns_per_byte: u32, write: bool) -> u32 {
        let times = if write { 1 } else { 1 + self.copies };
        ns_per_byte.saturating_mul(1 << self.doublings).saturating_mul(times)
    }
}

impl Price {
    fn pays_for(self, saved: Nanos, len: u64) -> bool {
        u128::from(saved.0) > u128::from(len) * u128::from(self.ns_per_byte)
    }
}

impl Detour {
    /// Returns the state of a disk that has served nothing.
    pub fn new() -> Self {
        Self {
            runs: Runs::new(),
            head: None,
            resume_at: None,
            is_copying: false,
            unordered: 0,
            run: (Nanos::ZERO, 0),
            writers: WriterCount::new(),
            unaligned_writes: Mean::default(),
            whole_pages: Mean::default(),
            depth: Mean::default(),
            last_write: Nanos::ZERO,
            last_completion: Nanos::ZERO,
            probe_credit_ns: 0,
            // The first writes measure the disk.
            probes_left: PROBE_WRITES,
            is_diverted: false,
        }
    }

    /// Records a writing process. When the number of processes has grown, or after a time without writes, the disk's
    /// cost is measured again: the writers may share a queue, and seeks.
    pub fn observe_writer(&mut self, process: u64, now: Nanos) {
        let was_idle = now.saturating_sub(self.last_write) > IDLE_RESET;
        self.last_write = self.last_write.max(now);
        if self.writers.add(process) || was_idle {
            (self.unaligned_writes, self.whole_pages, self.depth) = Default::default();
            (self.probe_credit_ns, self.probes_left) = (0, PROBE_WRITES);
        }
    }

    /// Records that the disk serves a request.
    pub fn served(&mut self, request: &DiskRequest) {
        self.head = Some((request.file, request.offset.0.saturating_add(request.len.0)));
        if !std::mem::take(&mut self.is_copying) || self.unordered > 0 {
            self.resume_at = self.head;
        }
    }

    /// Records that the disk served a write from `began` to `ended`. Its cost is the time since the disk completed
    /// another write. With `depth` writes in the queue, waiting is therefore not counted repeatedly, and the gain from
    /// merging is included.
    pub fn observe_write(
        &mut self,
        curve: &ServiceCurve,
        price: Price,
        request: &DiskRequest,
        (began, ended): (Nanos, Nanos),
        depth: u32,
    ) {
        self.depth.add(depth.into());
        let time = ended.saturating_sub(began.max(self.last_completion));
        self.last_completion = self.last_completion.max(ended);
        let beyond = time.saturating_sub(curve.transfer(request.len, true));
        match pages(request, price.page) {
            Pages::Whole => self.whole_pages.add(beyond.0),
            Pages::Some { .. } | Pages::None => self.unaligned_writes.add(beyond.0),
        }
    }

    /// Returns the maximum length of a gap between two copies that is worth copying. Leaving it costs two positioning
    /// times: to the gap, and onwards. A gap is written to the SSD once, but the price assumes that bytes are written
    /// and read back.
    pub fn gap_max(curve: &ServiceCurve, price: Price) -> ByteLen {
        let positioning_time = curve.seek(curve.cross_file_distance()).saturating_add(curve.rotation());
        ByteLen(positioning_time.0.saturating_mul(2 * 2) / u64::from(price.ns_per_byte.max(1)))
    }

    /// Returns how much longer a write with edges takes than one without.
    fn edge_cost(&self, curve: &ServiceCurve) -> Nanos {
        let Some(unaligned_writes) = self.unaligned_writes.mean else { return Nanos::ZERO };
        let more = Nanos(unaligned_writes.saturating_sub(self.whole_pages.mean.unwrap_or(0)));
        seen(curve, more.0).min(Nanos(curve.rotation().0.saturating_mul(EDGE_ROTATIONS_MAX)))
    }

    /// Selects the device for a request with a positioning time of `positioning_time`.
    pub fn decide(
        &mut self,
        curve: &ServiceCurve,
        price: Price,
        request: &DiskRequest,
        positioning_time: Nanos,
        class: Class,
    ) -> Verdict {
        self.is_copying = false;
        let is_part = self.runs.join(request) != Adjacency::Isolated;
        if request.len == ByteLen::ZERO {
            return Verdict::Disk;
        }
        let pages = if request.write { pages(request, price.page) } else { Pages::Whole };
        let position = match request.write {
            // Neighbors in the queue may share a seek, if all of them went to the disk. The cost is at most what such
            // writes were measured to cost.
            true if is_part => {
                let divisor = MERGE_QUEUE_DEPTH + self.depth.mean.unwrap_or(0);
                Nanos(positioning_time.0.saturating_mul(MERGE_QUEUE_DEPTH) / divisor)
                    .min(seen(curve, self.whole_cost(pages)))
            }
            true => positioning_time,
            false => {
                let (cost, before) = self.jump(curve, request, positioning_time);
                self.run = (cost, before.saturating_add(request.len.0));
                cost
            }
        };
        let edge = if pages == Pages::Whole { Nanos::ZERO } else { self.edge_cost(curve) };
        // All of the request, where that pays for reading the incomplete page too: edges are written back one by one.
        let all = if request.write { request.len.0 } else { self.run.1 };
        let cost = position.saturating_add(edge);
        let pays = price.pays_for(cost, all);
        if request.write && is_part && pages == Pages::Whole {
            self.is_diverted = pays;
        }
        let verdict = match pages {
            _ if pays => Verdict::Ssd { class, gain: signed(cost) },
            Pages::Some { head, tail } if price.pays_for(edge, head.max(tail)) => {
                Verdict::Edges { head, tail, class, gain: signed(edge) }
            }
            _ if request.write => return Verdict::Disk,
            _ => return self.outgrown(price, request.len.0),
        };
        self.is_copying = !request.write;
        // During a measurement, writes that begin runs go to the disk like those that continue them.
        let is_measured = request.write && (is_part || edge > Nanos::ZERO || self.probes_left > 0);
        if is_measured && self.is_probe(price, request.len, cost) {
            return Verdict::Disk;
        }
        verdict
    }

    /// Returns the measured cost of whole-page writes beyond their transfer. They leave the disk only if the gain
    /// exceeds chance, because a few isolated ones would be written back one by one, each with a seek.
    fn whole_cost(&self, pages: Pages) -> u64 {
        let mean = self.whole_pages.mean.unwrap_or(0);
        let may_leave = pages == Pages::Whole && !self.is_diverted;
        if may_leave { mean.saturating_sub(self.whole_pages.error / CHANCE_DIVISOR) } else { mean }
    }

    /// Returns the verdict for a read of `len` bytes that the disk serves. For an ordered reader, copies of the run
    /// before it are useless too, because the disk has to seek there in any case.
    fn outgrown(&self, price: Price, len: u64) -> Verdict {
        let (cost, bytes) = self.run;
        let before = bytes - len;
        let was_copied = before > 0 && price.pays_for(cost, before);
        if was_copied && self.unordered == 0 { Verdict::Outgrown { before } } else { Verdict::Disk }
    }

    /// Returns the positioning time of a read within its run, and the number of bytes of the run before it.
    /// `positioning_time` is that from the present position of the head.
    fn jump(&mut self, curve: &ServiceCurve, request: &DiskRequest, positioning_time: Nanos) -> (Nanos, u64) {
        let at = (request.file, request.offset.0);
        let reach = request.len.0.saturating_mul(NEAR_FACTOR);
        let goes_back =
            self.head.is_some_and(|(file, head)| file == at.0 && at.1 < head && head - at.1 < reach);
        // Returns to the position before a copied jump, or slightly ahead of it.
        let returns = self.resume_at != self.head
            && self.resume_at.is_some_and(|(file, resume_at)| {
                file == at.0 && at.1 >= resume_at && at.1 - resume_at < reach
            });
        self.unordered =
            if goes_back && !returns { UNORDERED_READS } else { self.unordered.saturating_sub(1) };
        // An ordered reader returns to the position before a jump whose bytes are copied. With many readers at once
        // there is no such position, and each device would get every other of the adjacent pieces.
        if self.unordered == 0
            && let Some((file, resume_at)) = self.resume_at
            && file == at.0
            && let Some(ahead) = at.1.checked_sub(resume_at)
            && self.head != Some(at)
        {
            // Passes over a short distance ahead instead of seeking.
            let jump = curve.seek(ByteLen(ahead)).saturating_add(curve.rotation());
            return (jump.min(curve.transfer(ByteLen(ahead), false)), 0);
        }
        // A jump and the reads that continue it are one long request: without its beginning, the rest would require a
        // seek.
        if self.head == Some(at) { self.run } else { (positioning_time, 0) }
    }

    /// Returns true if a write goes to the disk as a probe. `cost` is its estimated time beyond the transfer.
    fn is_probe(&mut self, price: Price, len: ByteLen, cost: Nanos) -> bool {
        if self.probes_left == 0 {
            self.probe_credit_ns =
                self.probe_credit_ns.saturating_add(len.0.saturating_mul(price.ns_per_byte.into()));
            if self.probe_credit_ns < cost.0.saturating_mul(u64::from(PROBE_WRITES) * PROBE_TIME_DIVISOR) {
                return false;
            }
            (self.probe_credit_ns, self.probes_left) = (0, PROBE_WRITES);
            self.unaligned_writes.begin();
            self.whole_pages.begin();
            self.depth.begin();
        }
        self.probes_left -= 1;
        true
    }
}

/// Returns true if a time beyond the transfer is long enough for a seek.
pub(super) fn is_seek(curve: &ServiceCurve, beyond: Nanos) -> bool {
    beyond.0 >= curve.rotation().0 / SEEK_DIVISOR
}

/// Returns a measured time if it is long enough for a seek, else zero.
fn seen(curve: &ServiceCurve, time: u64) -> Nanos {
    if is_seek(curve, Nanos(time)) { Nanos(time) } else { Nanos::ZERO }
}

/// Alignment of a request to pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Pages {
    /// It consists of whole pages.
    Whole,
    /// It contains whole pages, with this many bytes before the first and after the last of them.
    Some { head: u64, tail: u64 },
    /// It contains no whole page.
    None,
}

fn pages(request: &DiskRequest, page: u32) -> Pages {
    let (start, page) = (request.offset.0, u64::from(page));
    let Some(end) = start.checked_add(request.len.0).filter(|_| page > 0) else { return Pages::Whole };
    let (Some(first), last) = (start.checked_next_multiple_of(page), end - end % page) else {
        return Pages::None;
    };
    match (first - start, end - last) {
        (0, 0) => Pages::Whole,
        (head, tail) if first < last => Pages::Some { head, tail },
        _ => Pages::None,
    }
}

fn signed(time: Nanos) -> i64 {
    i64::try_from(time.0).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::LocalOffset;
    use proptest::prelude::*;

    const PRICE: Price = Price { ns_per_byte: 100, page: 4096 };

    /// Rotational delay of 4 ms, no seek time, 100 MB/s.
    fn curve() -> ServiceCurve {
        let seek = vec![(ByteLen(0), Nanos(0))];
        ServiceCurve::new(seek, Nanos::from_ms(4), 100_000_000, 100_000_000, ByteLen(0)).unwrap()
    }

    fn write(offset: u64, len: u64) -> DiskRequest {
        DiskRequest { file: 1, offset: LocalOffset(offset), len: ByteLen(len), write: true }
    }

    /// A disk whose cost has been measured.
    fn measured() -> Detour {
        Detour { probes_left: 0, ..Detour::new() }
    }

    fn decide(detour: &mut Detour, request: &DiskRequest) -> Verdict {
        detour.decide(&curve(), PRICE, request, curve().rotation(), Class::Random)
    }

    #[test]
    fn an_isolated_write_goes_to_the_ssd_if_it_saves_enough() {
        let mut detour = measured();
        // 4 ms at 100 ns per byte are 40,000 bytes.
        let gain = 4_000_000;
        assert_eq!(decide(&mut detour, &write(0, 39_999)), Verdict::Ssd { class: Class::Random, gain });
        assert_eq!(decide(&mut detour, &write(1 << 20, 40_000)), Verdict::Disk);
        assert_eq!(decide(&mut detour, &write((1 << 20) + 40_000, 100)), Verdict::Disk, "joins its neighbor");
        assert_eq!(decide(&mut detour, &write(5 << 20, 0)), Verdict::Disk, "an empty write");
    }

    fn read(offset: u64, len: u64) -> DiskRequest {
        DiskRequest { write: false, ..write(offset, len) }
    }

    /// A read that is not in the log.
    fn miss(detour: &mut Detour, request: &DiskRequest) -> Verdict {
        let verdict = decide(detour, request);
        detour.served(request);
        verdict
    }

    #[test]
    fn a_read_costs_a_seek_unless_it_is_sequential() {
        let mut detour = measured();
        detour.served(&read(0, 4096));
        assert_eq!(miss(&mut detour, &read(4096, 4096)), Verdict::Disk);
        // 4 ms at 100 ns per byte are 40,000 bytes.
        let ssd = Verdict::Ssd { class: Class::Random, gain: 4_000_000 };
        assert_eq!(miss(&mut detour, &read(1 << 20, 39_999)), ssd);
        assert_eq!(miss(&mut detour, &read(2 << 20, 40_000)), Verdict::Disk);
        // Sequential reads after a jump belong to it, as long as all of them are worth the jump.
        assert_eq!(miss(&mut detour, &read(4 << 20, 20_000)), ssd);
        assert_eq!(miss(&mut detour, &read((4 << 20) + 20_000, 19_999)), ssd);
        let outgrown = Verdict::Outgrown { before: 39_999 };
        assert_eq!(
            miss(&mut detour, &read((4 << 20) + 39_999, 1)),
            outgrown,
            "the whole run stays on the disk"
        );
        assert_eq!(miss(&mut detour, &read((4 << 20) + 40_000, 1)), Verdict::Disk, "still outgrown");
        detour.served(&read(0, 4096));
        assert_eq!(miss(&mut detour, &DiskRequest { file: 2, ..read(4096, 4096) }), ssd);
    }

    #[test]
    fn returning_from_a_copied_jump_is_free() {
        let mut detour = measured();
        detour.served(&read(0, 1 << 20));
        let ssd = Verdict::Ssd { class: Class::Random, gain: 4_000_000 };
        for at in 1..100 {
            assert_eq!(miss(&mut detour, &read(at << 30, 4096)), ssd, "{at}");
            assert_eq!(miss(&mut detour, &read(at << 20, 1 << 20)), Verdict::Disk, "{at}");
        }
        // Slightly ahead: passing over 20,000 bytes takes 0.2 ms, which 4,096 bytes are not worth.
        assert_eq!(miss(&mut detour, &read((100 << 20) + 20_000, 4096)), Verdict::Disk);
    }

    #[test]
    fn a_return_is_ordered_from_any_distance() {
        let mut detour = measured();
        detour.served(&read(0, 1 << 20));
        let ssd = Verdict::Ssd { class: Class::Random, gain: 4_000_000 };
        // A short jump: from there, the return looks like a short step back.
        assert_eq!(miss(&mut detour, &read(5 << 20, 4096)), ssd);
        assert_eq!(miss(&mut detour, &read(1 << 20, 1 << 20)), Verdict::Disk);
        assert_eq!(
            miss(&mut detour, &read((2 << 20) + 20_000, 4096)),
            Verdict::Disk,
            "it passes over the gap"
        );
    }

    #[test]
    fn interleaved_readers_keep_their_copies() {
        let mut detour = measured();
        detour.served(&read(1 << 20, 4096));
        let ssd = Verdict::Ssd { class: Class::Random, gain: 4_000_000 };
        assert_eq!(miss(&mut detour, &read((1 << 20) - 20_000, 20_000)), ssd, "a backward jump");
        assert_eq!(
            miss(&mut detour, &read(1 << 20, 20_000)),
            Verdict::Disk,
            "not worth a copy, and earlier copies stay"
        );
    }

    #[test]
    fn gaps_are_copied_up_to_the_worth_of_two_seeks() {
        let gap = |ns_per_byte| Detour::gap_max(&curve(), Price { ns_per_byte, page: 0 });
        assert_eq!([gap(100), gap(500), gap(1)], [160_000, 32_000, 16_000_000].map(ByteLen));
        gap(0);
    }

    #[test]
    fn unordered_neighbors_are_all_copied() {
        let mut detour = measured();
        detour.served(&read(0, 4096));
        let mut copied = 0;
        for at in 1..200_u64 {
            // Swapped pairs of neighbors.
            let request = read((at ^ 1) * 4096, 4096);
            copied += u32::from(miss(&mut detour, &request) != Verdict::Disk);
        }
        assert!(copied > 190, "{copied}");
    }

    /// The disk serves such writes back to back.
    fn observe_write(detour: &mut Detour, request: &DiskRequest, time: u64) {
        for _ in 0..PROBE_WRITES {
            let began = detour.last_completion;
            detour.observe_write(&curve(), PRICE, request, (began, Nanos(began.0 + time)), 1);
        }
    }

    #[test]
    fn edges_go_to_the_ssd_when_measured_to_cost_time() {
        let mut detour = measured();
        let unaligned = write(1000, 1 << 20);
        assert_eq!(decide(&mut detour, &unaligned), Verdict::Disk, "nothing measured yet");
        // The transfer of 1 MiB takes 10.48576 ms.
        observe_write(&mut detour, &unaligned, 18_485_760);
        observe_write(&mut detour, &write(0, 1 << 20), 11_485_760);
        let edges = Verdict::Edges { head: 3096, tail: 1000, class: Class::Random, gain: 7_000_000 };
        assert_eq!(decide(&mut detour, &unaligned), edges);
        assert_eq!(decide(&mut detour, &write(0, 1 << 20)), Verdict::Disk, "no edges");
        // A write without a whole page costs an edge plus what whole-page writes cost.
        let inside = Verdict::Ssd { class: Class::Random, gain: 8_000_000 };
        assert_eq!(decide(&mut detour, &write(5000, 5000)), inside, "part of a run");
        // Now they cost nothing: the page cache absorbs them.
        observe_write(&mut detour, &unaligned, 20_000);
        assert_eq!(decide(&mut detour, &unaligned), Verdict::Disk);
    }

    #[test]
    fn joining_a_neighbor_is_free_only_where_measured() {
        let mut detour = measured();
        decide(&mut detour, &write(0, 1 << 20));
        assert_eq!(decide(&mut detour, &write(1 << 20, 8192)), Verdict::Disk);
        // With direct I/O, every write waits for the rotation.
        observe_write(&mut detour, &write(0, 1 << 20), 60_000_000);
        let ssd = Verdict::Ssd { class: Class::Random, gain: 3_692_307 };
        assert_eq!(decide(&mut detour, &write((1 << 20) + 8192, 8192)), ssd, "at most the positioning time");
        assert_eq!(decide(&mut detour, &write((1 << 20) + 16_384, 1 << 16)), Verdict::Disk, "too large");
    }

    #[test]
    fn whole_pages_leave_the_disk_only_for_a_gain_beyond_chance() {
        let mut detour = measured();
        decide(&mut detour, &write(0, 1 << 20));
        let ssd = Verdict::Ssd { class: Class::Random, gain: 2_000_000 };
        let price = |ns_per_byte| Price { ns_per_byte, page: 4096 };
        // The transfer takes 10.48576 ms. One in four takes 8 ms more: 2 +- 0.6 ms.
        let spread = |detour: &mut Detour, dear: u64| {
            for at in 0..PROBE_WRITES {
                let duration = 10_485_760 + if at % 4 == 0 { dear } else { 0 };
                let began = detour.last_completion;
                detour.observe_write(
                    &curve(),
                    PRICE,
                    &write(0, 1 << 20),
                    (began, Nanos(began.0 + duration)),
                    0,
                );
            }
        };
        let decide_at = |detour: &mut Detour, ns| {
            detour.decide(&curve(), price(ns), &write(1 << 20, 1 << 13), curve().rotation(), Class::Random)
        };
        spread(&mut detour, 8_000_000);
        assert_eq!(detour.whole_pages.mean, Some(2_000_000));
        assert!((610_000..620_000).contains(&detour.whole_pages.error), "{}", detour.whole_pages.error);
        // 8192 bytes at 235 ns are 1.925 ms: below the mean, but within a quarter of its standard error.
        assert_eq!(decide_at(&mut detour, 235), Verdict::Disk);
        // The same mean without variance.
        observe_write(&mut detour, &write(0, 1 << 20), 10_485_760 + 2_000_000);
        assert_eq!(decide_at(&mut detour, 235), ssd);
        // Once they have left, they stay away until that no longer pays.
        spread(&mut detour, 8_000_000);
        assert_eq!(decide_at(&mut detour, 235), ssd);
        assert_eq!(decide_at(&mut detour, 246), Verdict::Disk);
        assert_eq!(decide_at(&mut detour, 235), Verdict::Disk);
        // Beyond chance: 1.802 ms.
        assert_eq!(decide_at(&mut detour, 220), Verdict::Ssd { class: Class::Random, gain: 1_846_907 });
    }

    #[test]
    fn times_of_the_page_cache_are_not_seeks() {
        let mut detour = measured();
        decide(&mut detour, &write(0, 1 << 20));
        observe_write(&mut detour, &write(1000, 1 << 20), 10_485_760 + 1_900_000);
        observe_write(&mut detour, &write(0, 1 << 20), 10_485_760 + 999_999);
        assert_eq!(decide(&mut detour, &write(1 << 20, 4096)), Verdict::Disk);
        assert_eq!(
            decide(&mut detour, &write(1 << 20, 8192 + 100)),
            Verdict::Disk,
            "nor do edges cost a seek"
        );
    }

    #[test]
    fn queued_writes_count_from_the_previous_completion() {
        let mut detour = measured();
        let whole = |at: u64| write(at << 20, 1 << 20);
        // All queued at once, completed one by one, each 1 ms beyond its transfer.
        for at in 0..u64::from(PROBE_WRITES) {
            let ended = Nanos(5 + (at + 1) * 11_485_760);
            detour.observe_write(&curve(), PRICE, &whole(at), (Nanos(5), ended), 1);
        }
        assert_eq!(detour.whole_pages.mean, Some(1_000_000));
        // Then an idle disk: the time between writes does not count.
        for at in 0..u64::from(PROBE_WRITES) {
            let began = Nanos::from_s(100 + at);
            detour.observe_write(&curve(), PRICE, &whole(at), (began, Nanos(began.0 + 12_485_760)), 1);
        }
        assert_eq!(detour.whole_pages.mean, Some(2_000_000));
    }

    #[test]
    fn the_price_rises_as_space_runs_short() {
        let price = |dirty| Scarcity::of(ByteLen(dirty), ByteLen(dirty), ByteLen(1600)).price(20, true);
        assert_eq!([0, 499, 500, 600, 800, 1200, 1600].map(price), [20, 20, 40, 80, 320, 20 << 8, 20 << 12]);
        let copy = |all| Scarcity::of(ByteLen(0), ByteLen(all), ByteLen(1600)).price(20, false);
        assert_eq!([0, 1299, 1300, 1500, 1600, 9999].map(copy), [20, 20, 40, 80, 100, 100]);
        assert_eq!(
            Scarcity::of(ByteLen(0), ByteLen(1600), ByteLen(1600)).price(20, true),
            20,
            "copies are evicted"
        );
        assert_eq!(
            Scarcity::of(ByteLen(5), ByteLen(5), ByteLen(0)).price(u32::MAX, false),
            u32::MAX,
            "saturates"
        );
    }

    #[test]
    fn queued_neighbors_share_a_seek() {
        let decide_among = |depth, at: u64| {
            let mut detour = measured();
            decide(&mut detour, &write(0, 1 << 20));
            for _ in 0..PROBE_WRITES {
                let began = detour.last_completion;
                let time = (began, Nanos(began.0 + 60_000_000));
                detour.observe_write(&curve(), PRICE, &write(0, 1 << 20), time, depth);
            }
            decide(&mut detour, &write((1 << 20) + at, 10_000))
        };
        let ssd = |gain| Verdict::Ssd { class: Class::Random, gain };
        // 4 ms alone, 2 ms each at depth 12; 10,000 bytes are worth 1 ms.
        assert_eq!(decide_among(0, 5000), ssd(4_000_000));
        assert_eq!(decide_among(12, 5000), ssd(2_000_000));
        assert_eq!(decide_among(36, 5000), Verdict::Disk);
        assert_eq!(decide_among(36, 90_000_000), ssd(4_000_000), "no neighbors");
    }

    #[test]
    fn the_disk_is_measured_again_when_writers_increase() {
        let mut detour = measured();
        decide(&mut detour, &write(0, 1 << 20));
        detour.observe_writer(1, Nanos(5));
        observe_write(&mut detour, &write(0, 1 << 20), 60_000_000);
        let next = write(1 << 20, 8192);
        assert_eq!(decide(&mut detour, &next), Verdict::Ssd { class: Class::Random, gain: 3_692_307 });
        detour.observe_writer(2, Nanos(5));
        assert_eq!(decide(&mut detour, &next), Verdict::Disk);
        observe_write(&mut detour, &write(0, 1 << 20), 60_000_000);
        detour.probes_left = 0;
        detour.observe_writer(1, Nanos::from_s(1));
        assert!(decide(&mut detour, &next) != Verdict::Disk, "nothing has changed");
        detour.observe_writer(1, Nanos::from_s(3));
        assert_eq!(decide(&mut detour, &next), Verdict::Disk, "after a time without writes");
    }

    #[test]
    fn the_cost_of_an_edge_is_bounded() {
        let mut detour = measured();
        observe_write(&mut detour, &write(1, 1 << 20), 10_000_000_000);
        assert_eq!(detour.edge_cost(&curve()), Nanos::from_ms(16));
    }

    #[test]
    fn probes_recur() {
        let mut detour = measured();
        let unaligned = write(1000, 1 << 20);
        observe_write(&mut detour, &unaligned, 30_000_000);
        detour.probes_left = PROBE_WRITES;
        let first: Vec<_> = (0..PROBE_WRITES).map(|_| decide(&mut detour, &unaligned)).collect();
        assert_eq!(first, vec![Verdict::Disk; PROBE_WRITES as usize], "the first ones");
        // 1 MiB is worth 100 ms on the SSD, an edge costs 16 ms: 32 probes after each 313 writes.
        let verdicts: Vec<_> = (0..3 * (312 + 32)).map(|_| decide(&mut detour, &unaligned)).collect();
        let disk = |of: &[Verdict]| of.iter().filter(|verdict| **verdict == Verdict::Disk).count();
        assert_eq!(disk(&verdicts), 3 * 32);
        assert_eq!(disk(&verdicts[..312]), 0);
        assert_eq!(
            disk(&verdicts[312..312 + 32]),
            32,
            "consecutive, because a single one would find an idle disk"
        );
    }

    proptest! {
        #[test]
        fn writes_without_their_edges_are_whole_pages(
            offset in 0..1u64 << 40, len in 1..1u64 << 21, page in prop::sample::select(vec![512, 4096, 1 << 16]),
        ) {
            let is_whole = |bytes: u64| bytes.is_multiple_of(u64::from(page));
            let whole = |offset, len| is_whole(offset) && is_whole(len);
            match pages(&write(offset, len), page) {
                Pages::Whole => prop_assert!(whole(offset, len)),
                Pages::Some { head, tail } => {
                    prop_assert!(head + tail > 0 && head < page.into() && tail < page.into());
                    prop_assert!(head + tail < len && whole(offset + head, len - head - tail));
                }
                Pages::None => {
                    prop_assert!(!whole(offset, len));
                    let first = offset.next_multiple_of(page.into());
                    prop_assert!(first + u64::from(page) > offset + len);
                }
            }
        }
    }

    #[test]
    fn extreme_values_do_not_overflow() {
        let mut detour = measured();
        for (offset, len) in [(u64::MAX, 1), (u64::MAX, 0), (u64::MAX - 5, 5), (1, u64::MAX), (0, u64::MAX)] {
            decide(&mut detour, &write(offset, len));
            detour.served(&write(offset, len));
            detour.observe_write(&curve(), PRICE, &write(offset, len), (Nanos(0), Nanos(u64::MAX)), u32::MAX);
        }
    }
}
