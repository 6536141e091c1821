//! Weft's own policy: what a request costs the arm, and not how it stands to the average; and of writes that the disk
//! takes, the edges that do not fill a page, if these were seen to cost time.

use super::Class;
use super::average::DiskRequest;
use super::crowd::Crowd;
use super::curve::ServiceCurve;
use super::decider::Verdict;
use super::runs::{NEAR, Runs, Standing};
use crate::units::{ByteLen, Nanos};

/// So many writes in a row go to the disk, though they would go to the SSD, to learn what that costs now: one alone would
/// find an idle disk.
const PROBES: u32 = 32;
/// They take about one part of so many of the time.
const PROBES_PART: u64 = 64;
/// How short room is, in sixteenths of it.
const PARTS: u32 = 16;
/// Beyond so many of them the price of a byte that lies here alone doubles with each.
const DIRTY_FREE: u32 = 4;
/// Beyond so many of them, with copies, each adds the price once more to what a copy costs: five times when all is full.
const COPIES_FREE: u32 = 12;
/// An edge costs no more than so many rotations: writers that wait for each other are not to be counted twice.
const ROTATIONS_MAX: u64 = 4;

/// What writes are seen to take beyond their transfer is not the arm's doing when it is less than this part of half a turn: it
/// is memory, and processors that are busy.
const ARM_PART: u64 = 4;
/// Of what whole pages take at the disk so much of its standard error may be chance.
const CHANCE_PART: u64 = 4;
/// After a read that goes back a little so many are taken to come in no order.
const UNORDERED: u32 = 16;
/// Whoever writes after such a time without writes may be others than those before.
const QUIET: Nanos = Nanos::from_s(1);
/// Of so many neighbors that wait together two are served for one movement of the arm, of twice as many three: the system sorts
/// and joins them.
const TOGETHER: u64 = 12;

/// What the policy knows of one disk.
#[derive(Clone, Debug)]
pub(super) struct Detour {
    runs: Runs,
    /// Where the disk's last request ended.
    head: Option<(u64, u64)>,
    /// Where it will have ended once reads find the copies that are being made.
    kept: Option<(u64, u64)>,
    /// Whether a copy is made of the read that the disk serves now.
    is_copied: bool,
    /// So many reads more are taken to come in no order.
    unordered: u32,
    /// What the arm took to get to the reads that go on from one to the next, and how many bytes they are by now.
    reading: (Nanos, u64),
    crowd: Crowd,
    ragged: Mean,
    whole: Mean,
    /// How many writes waited.
    depth: Mean,
    /// When somebody wrote last.
    heard: Nanos,
    /// When the disk was last done with a write.
    done: Nanos,
    /// What the SSD took since the last probes, in nanoseconds of its way.
    credit: u64,
    /// Probes to come.
    probes: u32,
    /// Whether writes without edges went to the SSD of late, near others.
    is_away: bool,
}

/// The mean of so many values (nanoseconds, or requests) as there are probes; it stays until there are as many again. Were it to follow
/// each time, the first one, for which the arm had come from elsewhere, would take the next ones away from the disk.
#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    of_last: Option<u64>,
    /// The standard error of that.
    error: u64,
    sum: u64,
    squares: u128,
    count: u32,
}

impl Mean {
    fn add(&mut self, value: u64) {
        (self.sum, self.count) = (self.sum.saturating_add(value), self.count + 1);
        self.squares = self.squares.saturating_add(u128::from(value).pow(2));
        if self.count == PROBES {
            let mean = self.sum / u64::from(PROBES);
            let variance = (self.squares / u128::from(PROBES)).saturating_sub(u128::from(mean).pow(2));
            let error = (variance / u128::from(PROBES)).isqrt() as u64; // no more than the largest value
            *self = Self { of_last: Some(mean), error, ..Self::default() };
        }
    }

    /// What was counted under other circumstances counts no more.
    fn begin(&mut self) {
        (self.sum, self.squares, self.count) = (0, 0, 0);
    }
}

/// The figures of the policy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Price {
    /// What a byte on the SSD must save, in nanoseconds of the disk's time.
    pub ns_per_byte: u32,
    /// Bytes of a page; 0 knows none.
    pub page: u32,
}

/// How short room on the SSD is: the price of a byte doubles with each sixteenth of it that dirty bytes take beyond a
/// quarter. What reads copy there pays more from three quarters on that hold anything: a copy drives out another.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Scarcity {
    doublings: u32,
    copies: u32,
}

impl Scarcity {
    /// With so many dirty bytes, and so many bytes at all, where there is room for `capacity`.
    pub fn of(dirty: ByteLen, all: ByteLen, capacity: ByteLen) -> Self {
        let parts = |len: ByteLen| {
            let parts = u128::from(len.0) * u128::from(PARTS) / u128::from(capacity.0.max(1));
            parts.min(u128::from(PARTS)) as u32
        };
        let beyond = |len: ByteLen, free: u32| parts(len).saturating_sub(free);
        Self { doublings: beyond(dirty, DIRTY_FREE), copies: beyond(all, COPIES_FREE) }
    }

    /// The price of a byte for a write, or for a read.
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
    /// Of a disk that has served nothing.
    pub fn new() -> Self {
        Self {
            runs: Runs::new(),
            head: None,
            kept: None,
            is_copied: false,
            unordered: 0,
            reading: (Nanos::ZERO, 0),
            crowd: Crowd::new(),
            ragged: Mean::default(),
            whole: Mean::default(),
            depth: Mean::default(),
            heard: Nanos::ZERO,
            done: Nanos::ZERO,
            credit: 0,
            // What comes first shows what the disk takes.
            probes: PROBES,
            is_away: false,
        }
    }

    /// A process writes. When there are more of them than before, and when nobody wrote for a while, what the disk takes is
    /// found out anew: they may wait in one queue, and be served together.
    pub fn heard_of(&mut self, process: u64, now: Nanos) {
        let was_quiet = now.saturating_sub(self.heard) > QUIET;
        self.heard = self.heard.max(now);
        if self.crowd.add(process) || was_quiet {
            (self.ragged, self.whole, self.depth) = Default::default();
            (self.credit, self.probes) = (0, PROBES);
        }
    }

    /// The disk serves a request.
    pub fn served(&mut self, request: &DiskRequest) {
        self.head = Some((request.file, request.offset.0.saturating_add(request.len.0)));
        if !std::mem::take(&mut self.is_copied) || self.unordered > 0 {
            self.kept = self.head;
        }
    }

    /// The disk had a write from `began` to `ended`. What it took is the time since it was done with another: when `depth`
    /// of them wait, their waiting is not counted once for each, and what the system gains by sorting and joining them is.
    pub fn took(
        &mut self,
        curve: &ServiceCurve,
        price: Price,
        request: &DiskRequest,
        (began, ended): (Nanos, Nanos),
        depth: u32,
    ) {
        self.depth.add(depth.into());
        let time = ended.saturating_sub(began.max(self.done));
        self.done = self.done.max(ended);
        let beyond = time.saturating_sub(curve.transfer(request.len, true));
        match pages(request, price.page) {
            Pages::Whole => self.whole.add(beyond.0),
            Pages::Some { .. } | Pages::None => self.ragged.add(beyond.0),
        }
    }

    /// How long a gap between two copies may be to be worth a copy, too: what is left there takes the arm two ways, there and
    /// on from there. It goes over the SSD once, where the price is that of a write, which goes twice.
    pub fn gap_max(curve: &ServiceCurve, price: Price) -> ByteLen {
        let way = curve.seek(curve.elsewhere()).saturating_add(curve.rotation());
        ByteLen(way.0.saturating_mul(2 * 2) / u64::from(price.ns_per_byte.max(1)))
    }

    /// What a write with edges takes longer than one without.
    fn edge_cost(&self, curve: &ServiceCurve) -> Nanos {
        let Some(ragged) = self.ragged.of_last else { return Nanos::ZERO };
        let more = Nanos(ragged.saturating_sub(self.whole.of_last.unwrap_or(0)));
        seen(curve, more.0).min(Nanos(curve.rotation().0.saturating_mul(ROTATIONS_MAX)))
    }

    /// Which device is to serve a request to which the arm would take `way`.
    pub fn decide(
        &mut self,
        curve: &ServiceCurve,
        price: Price,
        request: &DiskRequest,
        way: Nanos,
        class: Class,
    ) -> Verdict {
        self.is_copied = false;
        let is_part = self.runs.join(request) != Standing::Alone;
        if request.len == ByteLen::ZERO {
            return Verdict::Disk;
        }
        let pages = if request.write { pages(request, price.page) } else { Pages::Whole };
        let position = match request.write {
            // It may join its neighbors in the queue, as long as there would be one if all went to the disk; and it costs no
            // more than such writes were seen to, which is next to nothing in memory.
            true if is_part => {
                Nanos(way.0.saturating_mul(TOGETHER) / (TOGETHER + self.depth.of_last.unwrap_or(0)))
                    .min(seen(curve, self.whole_cost(pages)))
            }
            true => way,
            false => {
                let (cost, before) = self.jump(curve, request, way);
                self.reading = (cost, before.saturating_add(request.len.0));
                cost
            }
        };
        let edge = if pages == Pages::Whole { Nanos::ZERO } else { self.edge_cost(curve) };
        // All of it where that pays for the page that would have to be read, too: edges come back from the SSD one by one.
        let all = if request.write { request.len.0 } else { self.reading.1 };
        let cost = position.saturating_add(edge);
        let pays = price.pays_for(cost, all);
        if request.write && is_part && pages == Pages::Whole {
            self.is_away = pays;
        }
        let verdict = match pages {
            _ if pays => Verdict::Ssd { class, gain: signed(cost) },
            Pages::Some { head, tail } if price.pays_for(edge, head.max(tail)) => {
                Verdict::Edges { head, tail, class, gain: signed(edge) }
            }
            _ if request.write => return Verdict::Disk,
            _ => return self.outgrown(price, request.len.0),
        };
        self.is_copied = !request.write;
        // While it is being found out, what begins runs goes to the disk like what goes on from there.
        let is_measured = request.write && (is_part || edge > Nanos::ZERO || self.probes > 0);
        if is_measured && self.is_probe(price, request.len, cost) {
            return Verdict::Disk;
        }
        verdict
    }

    /// What a write without edges is seen to take beyond its transfer. Those that fill their pages leave the disk only when it
    /// is more than chance that they are better off elsewhere: a few alone come back from the SSD one by one.
    fn whole_cost(&self, pages: Pages) -> u64 {
        let mean = self.whole.of_last.unwrap_or(0);
        let is_to_leave = pages == Pages::Whole && !self.is_away;
        if is_to_leave { mean.saturating_sub(self.whole.error / CHANCE_PART) } else { mean }
    }

    /// The disk serves a read of `len` bytes. Of readers in order no copy is worth anything of what it goes on from, either: for
    /// this one the arm would have to get there in any case.
    fn outgrown(&self, price: Price, len: u64) -> Verdict {
        let (cost, bytes) = self.reading;
        let before = bytes - len;
        let was_copied = before > 0 && price.pays_for(cost, before);
        if was_copied && self.unordered == 0 { Verdict::Outgrown { before } } else { Verdict::Disk }
    }

    /// What the arm takes to get to a read, which is `way` from where it is, and how many bytes before it that has brought.
    fn jump(&mut self, curve: &ServiceCurve, request: &DiskRequest, way: Nanos) -> (Nanos, u64) {
        let at = (request.file, request.offset.0);
        let reach = request.len.0.saturating_mul(NEAR);
        let goes_back =
            self.head.is_some_and(|(file, head)| file == at.0 && at.1 < head && head - at.1 < reach);
        // To where it was before a jump, or a little ahead.
        let returns = self.kept != self.head
            && self.kept.is_some_and(|(file, kept)| file == at.0 && at.1 >= kept && at.1 - kept < reach);
        self.unordered = if goes_back && !returns { UNORDERED } else { self.unordered.saturating_sub(1) };
        // Readers in order return to where they were before a jump of which the SSD gets a copy. Many at once return to nothing,
        // and of what lies near to each other each device would get every other piece.
        if self.unordered == 0
            && let Some((file, kept)) = self.kept
            && file == at.0
            && let Some(ahead) = at.1.checked_sub(kept)
            && self.head != Some(at)
        {
            // What lies a little ahead it passes over.
            let jump = curve.seek(ByteLen(ahead)).saturating_add(curve.rotation());
            return (jump.min(curve.transfer(ByteLen(ahead), false)), 0);
        }
        // Who jumps and goes on from there is one long request: without its beginning the rest would have to jump.
        if self.head == Some(at) { self.reading } else { (way, 0) }
    }

    /// Whether a write goes to the disk to show what it takes there, where it was seen to take `cost` beyond its transfer.
    fn is_probe(&mut self, price: Price, len: ByteLen, cost: Nanos) -> bool {
        if self.probes == 0 {
            self.credit = self.credit.saturating_add(len.0.saturating_mul(price.ns_per_byte.into()));
            if self.credit < cost.0.saturating_mul(u64::from(PROBES) * PROBES_PART) {
                return false;
            }
            (self.credit, self.probes) = (0, PROBES);
            self.ragged.begin();
            self.whole.begin();
            self.depth.begin();
        }
        self.probes -= 1;
        true
    }
}

/// Whether a time beyond the transfer is the arm's doing.
pub(super) fn is_of_the_arm(curve: &ServiceCurve, beyond: Nanos) -> bool {
    beyond.0 >= curve.rotation().0 / ARM_PART
}

/// What of a time that was seen is the arm's.
fn seen(curve: &ServiceCurve, time: u64) -> Nanos {
    if is_of_the_arm(curve, Nanos(time)) { Nanos(time) } else { Nanos::ZERO }
}

/// How a request lies on pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Pages {
    /// It fills all that it touches.
    Whole,
    /// It fills some, and has so many bytes before the first and behind the last of them.
    Some { head: u64, tail: u64 },
    /// It fills none.
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

    /// Half a turn of 4 ms, no seeks, 100 MB/s.
    fn curve() -> ServiceCurve {
        let seek = vec![(ByteLen(0), Nanos(0))];
        ServiceCurve::new(seek, Nanos::from_ms(4), 100_000_000, 100_000_000, ByteLen(0)).unwrap()
    }

    fn write(offset: u64, len: u64) -> DiskRequest {
        DiskRequest { file: 1, offset: LocalOffset(offset), len: ByteLen(len), write: true }
    }

    /// Of a disk of which it is known what it takes.
    fn learned() -> Detour {
        Detour { probes: 0, ..Detour::new() }
    }

    fn decide(detour: &mut Detour, request: &DiskRequest) -> Verdict {
        detour.decide(&curve(), PRICE, request, curve().rotation(), Class::Random)
    }

    #[test]
    fn a_write_of_its_own_goes_where_its_bytes_are_worth_the_rotation() {
        let mut detour = learned();
        // 4 ms at 100 ns a byte are 40,000 bytes.
        let gain = 4_000_000;
        assert_eq!(decide(&mut detour, &write(0, 39_999)), Verdict::Ssd { class: Class::Random, gain });
        assert_eq!(decide(&mut detour, &write(1 << 20, 40_000)), Verdict::Disk);
        assert_eq!(decide(&mut detour, &write((1 << 20) + 40_000, 100)), Verdict::Disk, "joins its neighbor");
        assert_eq!(decide(&mut detour, &write(5 << 20, 0)), Verdict::Disk, "nothing to write");
    }

    fn read(offset: u64, len: u64) -> DiskRequest {
        DiskRequest { write: false, ..write(offset, len) }
    }

    /// The SSD has nothing of it yet.
    fn miss(detour: &mut Detour, request: &DiskRequest) -> Verdict {
        let verdict = decide(detour, request);
        detour.served(request);
        verdict
    }

    #[test]
    fn a_read_waits_for_the_arm_unless_it_goes_on_where_the_disk_was() {
        let mut detour = learned();
        detour.served(&read(0, 4096));
        assert_eq!(miss(&mut detour, &read(4096, 4096)), Verdict::Disk);
        // 4 ms at 100 ns a byte are 40,000 bytes.
        let ssd = Verdict::Ssd { class: Class::Random, gain: 4_000_000 };
        assert_eq!(miss(&mut detour, &read(1 << 20, 39_999)), ssd);
        assert_eq!(miss(&mut detour, &read(2 << 20, 40_000)), Verdict::Disk);
        // What goes on from a jump belongs to it, as long as all of it is worth the jump.
        assert_eq!(miss(&mut detour, &read(4 << 20, 20_000)), ssd);
        assert_eq!(miss(&mut detour, &read((4 << 20) + 20_000, 19_999)), ssd);
        let outgrown = Verdict::Outgrown { before: 39_999 };
        assert_eq!(miss(&mut detour, &read((4 << 20) + 39_999, 1)), outgrown, "all of it is the disk's");
        assert_eq!(miss(&mut detour, &read((4 << 20) + 40_000, 1)), Verdict::Disk, "as was said");
        detour.served(&read(0, 4096));
        assert_eq!(miss(&mut detour, &DiskRequest { file: 2, ..read(4096, 4096) }), ssd);
    }

    #[test]
    fn who_returns_from_what_was_copied_has_not_been_away() {
        let mut detour = learned();
        detour.served(&read(0, 1 << 20));
        let ssd = Verdict::Ssd { class: Class::Random, gain: 4_000_000 };
        for at in 1..100 {
            assert_eq!(miss(&mut detour, &read(at << 30, 4096)), ssd, "{at}");
            assert_eq!(miss(&mut detour, &read(at << 20, 1 << 20)), Verdict::Disk, "{at}");
        }
        // A little ahead: 20,000 bytes pass in 0.2 ms, which 4,096 bytes are not worth.
        assert_eq!(miss(&mut detour, &read((100 << 20) + 20_000, 4096)), Verdict::Disk);
    }

    #[test]
    fn who_returns_is_in_order_wherever_he_was() {
        let mut detour = learned();
        detour.served(&read(0, 1 << 20));
        let ssd = Verdict::Ssd { class: Class::Random, gain: 4_000_000 };
        // Not far ahead: whoever read there next would go back a little from there.
        assert_eq!(miss(&mut detour, &read(5 << 20, 4096)), ssd);
        assert_eq!(miss(&mut detour, &read(1 << 20, 1 << 20)), Verdict::Disk);
        assert_eq!(miss(&mut detour, &read((2 << 20) + 20_000, 4096)), Verdict::Disk, "it passes over that");
    }

    #[test]
    fn of_what_many_read_nothing_is_left_out() {
        let mut detour = learned();
        detour.served(&read(1 << 20, 4096));
        let ssd = Verdict::Ssd { class: Class::Random, gain: 4_000_000 };
        assert_eq!(miss(&mut detour, &read((1 << 20) - 20_000, 20_000)), ssd, "goes back");
        assert_eq!(
            miss(&mut detour, &read(1 << 20, 20_000)),
            Verdict::Disk,
            "not worth it, and no reason to undo"
        );
    }

    #[test]
    fn gaps_are_filled_as_far_as_two_ways_of_the_arm_are_worth() {
        let gap = |ns_per_byte| Detour::gap_max(&curve(), Price { ns_per_byte, page: 0 });
        assert_eq!([gap(100), gap(500), gap(1)], [160_000, 32_000, 16_000_000].map(ByteLen));
        gap(0);
    }

    #[test]
    fn what_many_read_in_no_order_is_not_torn_apart() {
        let mut detour = learned();
        detour.served(&read(0, 4096));
        let mut copied = 0;
        for at in 1..200_u64 {
            // Neighbors by turns.
            let request = read((at ^ 1) * 4096, 4096);
            copied += u32::from(miss(&mut detour, &request) != Verdict::Disk);
        }
        assert!(copied > 190, "{copied}");
    }

    /// The disk is busy with one such write after the other.
    fn took(detour: &mut Detour, request: &DiskRequest, time: u64) {
        for _ in 0..PROBES {
            let began = detour.done;
            detour.took(&curve(), PRICE, request, (began, Nanos(began.0 + time)), 1);
        }
    }

    #[test]
    fn edges_go_to_the_ssd_when_they_were_seen_to_cost_time() {
        let mut detour = learned();
        let unaligned = write(1000, 1 << 20);
        assert_eq!(decide(&mut detour, &unaligned), Verdict::Disk, "nothing is known");
        // 10.48576 ms are the transfer of 1 MiB.
        took(&mut detour, &unaligned, 18_485_760);
        took(&mut detour, &write(0, 1 << 20), 11_485_760);
        let edges = Verdict::Edges { head: 3096, tail: 1000, class: Class::Random, gain: 7_000_000 };
        assert_eq!(decide(&mut detour, &unaligned), edges);
        assert_eq!(decide(&mut detour, &write(0, 1 << 20)), Verdict::Disk, "no edges");
        // What fills no page costs what an edge does, and what writes without edges were seen to.
        let inside = Verdict::Ssd { class: Class::Random, gain: 8_000_000 };
        assert_eq!(decide(&mut detour, &write(5000, 5000)), inside, "part of a run");
        // From then on they cost nothing: writes to memory.
        took(&mut detour, &unaligned, 20_000);
        assert_eq!(decide(&mut detour, &unaligned), Verdict::Disk);
    }

    #[test]
    fn joining_a_neighbor_is_free_only_where_it_was_seen_to_be() {
        let mut detour = learned();
        decide(&mut detour, &write(0, 1 << 20));
        assert_eq!(decide(&mut detour, &write(1 << 20, 8192)), Verdict::Disk);
        // Past the page cache every write waits for the platters.
        took(&mut detour, &write(0, 1 << 20), 60_000_000);
        let ssd = Verdict::Ssd { class: Class::Random, gain: 3_692_307 };
        assert_eq!(decide(&mut detour, &write((1 << 20) + 8192, 8192)), ssd, "no more than the arm takes");
        assert_eq!(
            decide(&mut detour, &write((1 << 20) + 16_384, 1 << 16)),
            Verdict::Disk,
            "too large for that"
        );
    }

    #[test]
    fn whole_pages_leave_the_disk_only_when_they_gain_beyond_chance() {
        let mut detour = learned();
        decide(&mut detour, &write(0, 1 << 20));
        let ssd = Verdict::Ssd { class: Class::Random, gain: 2_000_000 };
        let price = |ns_per_byte| Price { ns_per_byte, page: 4096 };
        // 10.48576 ms are the transfer. One in four takes 8 ms more, the others none: 2 +- 0.6 ms.
        let spread = |detour: &mut Detour, dear: u64| {
            for at in 0..PROBES {
                let took = 10_485_760 + if at % 4 == 0 { dear } else { 0 };
                let began = detour.done;
                detour.took(&curve(), PRICE, &write(0, 1 << 20), (began, Nanos(began.0 + took)), 0);
            }
        };
        let decide_at = |detour: &mut Detour, ns| {
            detour.decide(&curve(), price(ns), &write(1 << 20, 1 << 13), curve().rotation(), Class::Random)
        };
        spread(&mut detour, 8_000_000);
        assert_eq!(detour.whole.of_last, Some(2_000_000));
        assert!((610_000..620_000).contains(&detour.whole.error), "{}", detour.whole.error);
        // 8192 bytes at 235 ns are 1.925 ms: less than the mean, and within a quarter of what chance gives.
        assert_eq!(decide_at(&mut detour, 235), Verdict::Disk);
        // As much, each time.
        took(&mut detour, &write(0, 1 << 20), 10_485_760 + 2_000_000);
        assert_eq!(decide_at(&mut detour, 235), ssd);
        // Who has left stays away until it does not pay any more.
        spread(&mut detour, 8_000_000);
        assert_eq!(decide_at(&mut detour, 235), ssd);
        assert_eq!(decide_at(&mut detour, 246), Verdict::Disk);
        assert_eq!(decide_at(&mut detour, 235), Verdict::Disk);
        // More than chance: 1.802 ms.
        assert_eq!(decide_at(&mut detour, 220), Verdict::Ssd { class: Class::Random, gain: 1_846_907 });
    }

    #[test]
    fn what_memory_takes_is_not_the_arm_s_doing() {
        let mut detour = learned();
        decide(&mut detour, &write(0, 1 << 20));
        took(&mut detour, &write(1000, 1 << 20), 10_485_760 + 1_900_000);
        took(&mut detour, &write(0, 1 << 20), 10_485_760 + 999_999);
        assert_eq!(decide(&mut detour, &write(1 << 20, 4096)), Verdict::Disk);
        assert_eq!(decide(&mut detour, &write(1 << 20, 8192 + 100)), Verdict::Disk, "nor what edges do");
    }

    #[test]
    fn who_waits_in_a_queue_counts_from_where_the_one_before_was_done() {
        let mut detour = learned();
        let whole = |at: u64| write(at << 20, 1 << 20);
        // All at once, done one after the other, 1 ms beyond their transfer each.
        for at in 0..u64::from(PROBES) {
            let ended = Nanos(5 + (at + 1) * 11_485_760);
            detour.took(&curve(), PRICE, &whole(at), (Nanos(5), ended), 1);
        }
        assert_eq!(detour.whole.of_last, Some(1_000_000));
        // Then an idle disk: the time between does not count.
        for at in 0..u64::from(PROBES) {
            let began = Nanos::from_s(100 + at);
            detour.took(&curve(), PRICE, &whole(at), (began, Nanos(began.0 + 12_485_760)), 1);
        }
        assert_eq!(detour.whole.of_last, Some(2_000_000));
    }

    #[test]
    fn room_grows_dear_as_it_grows_short() {
        let price = |dirty| Scarcity::of(ByteLen(dirty), ByteLen(dirty), ByteLen(1600)).price(20, true);
        assert_eq!([0, 499, 500, 600, 800, 1200, 1600].map(price), [20, 20, 40, 80, 320, 20 << 8, 20 << 12]);
        let copy = |all| Scarcity::of(ByteLen(0), ByteLen(all), ByteLen(1600)).price(20, false);
        assert_eq!([0, 1299, 1300, 1500, 1600, 9999].map(copy), [20, 20, 40, 80, 100, 100]);
        assert_eq!(
            Scarcity::of(ByteLen(0), ByteLen(1600), ByteLen(1600)).price(20, true),
            20,
            "copies give way"
        );
        assert_eq!(Scarcity::of(ByteLen(5), ByteLen(5), ByteLen(0)).price(u32::MAX, false), u32::MAX, "held");
    }

    #[test]
    fn neighbors_that_wait_together_share_the_arm() {
        let decide_among = |depth, at: u64| {
            let mut detour = learned();
            decide(&mut detour, &write(0, 1 << 20));
            for _ in 0..PROBES {
                let began = detour.done;
                let time = (began, Nanos(began.0 + 60_000_000));
                detour.took(&curve(), PRICE, &write(0, 1 << 20), time, depth);
            }
            decide(&mut detour, &write((1 << 20) + at, 10_000))
        };
        let ssd = |gain| Verdict::Ssd { class: Class::Random, gain };
        // 4 ms for one, 2 ms for each of twelve; 10,000 bytes are worth 1 ms.
        assert_eq!(decide_among(0, 5000), ssd(4_000_000));
        assert_eq!(decide_among(12, 5000), ssd(2_000_000));
        assert_eq!(decide_among(36, 5000), Verdict::Disk);
        assert_eq!(decide_among(36, 90_000_000), ssd(4_000_000), "nobody else is there");
    }

    #[test]
    fn what_the_disk_takes_is_found_out_anew_when_more_write() {
        let mut detour = learned();
        decide(&mut detour, &write(0, 1 << 20));
        detour.heard_of(1, Nanos(5));
        took(&mut detour, &write(0, 1 << 20), 60_000_000);
        let next = write(1 << 20, 8192);
        assert_eq!(decide(&mut detour, &next), Verdict::Ssd { class: Class::Random, gain: 3_692_307 });
        detour.heard_of(2, Nanos(5));
        assert_eq!(decide(&mut detour, &next), Verdict::Disk);
        took(&mut detour, &write(0, 1 << 20), 60_000_000);
        detour.probes = 0;
        detour.heard_of(1, Nanos::from_s(1));
        assert!(decide(&mut detour, &next) != Verdict::Disk, "nothing is new");
        detour.heard_of(1, Nanos::from_s(3));
        assert_eq!(decide(&mut detour, &next), Verdict::Disk, "after a time without writes");
    }

    #[test]
    fn an_edge_costs_some_turns_at_the_most() {
        let mut detour = learned();
        took(&mut detour, &write(1, 1 << 20), 10_000_000_000);
        assert_eq!(detour.edge_cost(&curve()), Nanos::from_ms(16));
    }

    #[test]
    fn now_and_then_the_disk_shows_what_it_takes() {
        let mut detour = learned();
        let unaligned = write(1000, 1 << 20);
        took(&mut detour, &unaligned, 30_000_000);
        detour.probes = PROBES;
        let first: Vec<_> = (0..PROBES).map(|_| decide(&mut detour, &unaligned)).collect();
        assert_eq!(first, vec![Verdict::Disk; PROBES as usize], "the first ones");
        // The way of 1 MiB over the SSD is 100 ms, an edge costs 16: 32 probes after each 313.
        let verdicts: Vec<_> = (0..3 * (312 + 32)).map(|_| decide(&mut detour, &unaligned)).collect();
        let disk = |of: &[Verdict]| of.iter().filter(|verdict| **verdict == Verdict::Disk).count();
        assert_eq!(disk(&verdicts), 3 * 32);
        assert_eq!(disk(&verdicts[..312]), 0);
        assert_eq!(disk(&verdicts[312..312 + 32]), 32, "in a row: one alone would find an idle disk");
    }

    proptest! {
        #[test]
        fn what_is_left_without_edges_fills_its_pages(
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
    fn the_ends_of_the_numbers_are_no_trouble() {
        let mut detour = learned();
        for (offset, len) in [(u64::MAX, 1), (u64::MAX, 0), (u64::MAX - 5, 5), (1, u64::MAX), (0, u64::MAX)] {
            decide(&mut detour, &write(offset, len));
            detour.served(&write(offset, len));
            detour.took(&curve(), PRICE, &write(offset, len), (Nanos(0), Nanos(u64::MAX)), u32::MAX);
        }
    }
}
