//! Weft's own policy: what a request costs the arm, and not how it stands to the average; and of writes that the disk
//! takes, the edges that do not fill a page, if these were seen to cost time.

use super::Class;
use super::average::DiskRequest;
use super::curve::ServiceCurve;
use super::decider::Verdict;
use super::runs::Runs;
use crate::units::{ByteLen, Nanos};

/// Of so many writes whose edges would go to the SSD one goes to the disk as it is, to learn what that costs now.
const PROBE: u32 = 512;
/// What a new time weighs in the mean of its kind: one part of so many.
const TIMES: u64 = 8;
/// A read pays so many times the price: the disk reads ahead, and a file that lies on both devices in parts is read more
/// slowly than from either.
const READS: u32 = 5;
/// An edge costs no more than so many rotations: writers that wait for each other are not to be counted twice.
const ROTATIONS_MAX: u64 = 4;

/// What the policy knows of one disk.
#[derive(Clone, Debug)]
pub(super) struct Detour {
    runs: Runs,
    /// Where the disk's last request ended.
    head: Option<(u64, u64)>,
    ragged: Mean,
    whole: Mean,
    probe: u32,
}

/// A mean of times that forgets, in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
struct Mean(Option<u64>);

impl Mean {
    fn add(&mut self, time: Nanos) {
        self.0 = Some(self.0.map_or(time.0, |mean| mean - mean / TIMES + time.0 / TIMES));
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

/// How short room on the SSD is: the price of a byte doubles with each sixteenth of it that is taken beyond a quarter.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Scarcity {
    doublings: u32,
}

impl Scarcity {
    pub fn of(dirty: ByteLen, capacity: ByteLen) -> Self {
        let sixteenths = u128::from(dirty.0) * 16 / u128::from(capacity.0.max(1));
        Self { doublings: (sixteenths.min(16) as u32).saturating_sub(4) }
    }

    pub fn price(self, ns_per_byte: u32) -> u32 {
        ns_per_byte.saturating_mul(1 << self.doublings)
    }
}

impl Price {
    fn pays_for(self, saved: Nanos, len: u64) -> bool {
        u128::from(saved.0) > u128::from(len) * u128::from(self.ns_per_byte)
    }
}

impl Detour {
    /// Of a disk that has served nothing.
    pub const fn new() -> Self {
        Self { runs: Runs::new(), head: None, ragged: Mean(None), whole: Mean(None), probe: 0 }
    }

    /// The disk serves a request.
    pub fn served(&mut self, request: &DiskRequest) {
        self.head = Some((request.file, request.offset.0.saturating_add(request.len.0)));
    }

    /// The disk took `time` for a write.
    pub fn took(&mut self, curve: &ServiceCurve, price: Price, request: &DiskRequest, time: Nanos) {
        let beyond = time.saturating_sub(curve.transfer(request.len, true));
        match pages(request, price.page) {
            Pages::Whole => self.whole.add(beyond),
            Pages::Some { .. } | Pages::None => self.ragged.add(beyond),
        }
    }

    /// What a write with edges takes longer than one without.
    fn edge_cost(&self, curve: &ServiceCurve) -> Nanos {
        let Mean(Some(ragged)) = self.ragged else { return Nanos::ZERO };
        let more = Nanos(ragged.saturating_sub(self.whole.0.unwrap_or(0)));
        more.min(Nanos(curve.rotation().0.saturating_mul(ROTATIONS_MAX)))
    }

    /// Which device is to serve a request for which the arm would move over `distance`.
    pub fn decide(
        &mut self,
        curve: &ServiceCurve,
        price: Price,
        request: &DiskRequest,
        distance: ByteLen,
        class: Class,
    ) -> Verdict {
        let is_part = self.runs.join(request);
        if request.len == ByteLen::ZERO {
            return Verdict::Disk;
        }
        let position = curve.seek(distance).saturating_add(curve.rotation());
        let position = match request.write {
            // It may join its neighbors in memory or in the queue: then it costs what such writes were seen to.
            true if is_part => position.min(Nanos(self.whole.0.unwrap_or(0))),
            false if self.head == Some((request.file, request.offset.0)) => Nanos::ZERO,
            _ => position,
        };
        let times = if request.write { 1 } else { READS };
        let price = Price { ns_per_byte: price.ns_per_byte.saturating_mul(times), ..price };
        let pages = if request.write { pages(request, price.page) } else { Pages::Whole };
        let edge = if pages == Pages::Whole { Nanos::ZERO } else { self.edge_cost(curve) };
        let verdict = match pages {
            Pages::None if price.pays_for(position.saturating_add(edge), request.len.0) => {
                Verdict::Ssd { class, gain: signed(position.saturating_add(edge)) }
            }
            _ if price.pays_for(position, request.len.0) => {
                Verdict::Ssd { class, gain: signed(position.saturating_add(edge)) }
            }
            Pages::Some { head, tail } if price.pays_for(edge, head.max(tail)) => {
                Verdict::Edges { head, tail, class, gain: signed(edge) }
            }
            _ => return Verdict::Disk,
        };
        if edge > Nanos::ZERO {
            self.probe = (self.probe + 1) % PROBE;
            if self.probe == 0 {
                return Verdict::Disk;
            }
        }
        verdict
    }
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

    fn decide(detour: &mut Detour, request: &DiskRequest) -> Verdict {
        detour.decide(&curve(), PRICE, request, ByteLen(0), Class::Random)
    }

    #[test]
    fn a_write_of_its_own_goes_where_its_bytes_are_worth_the_rotation() {
        let mut detour = Detour::new();
        // 4 ms at 100 ns a byte are 40,000 bytes.
        let gain = 4_000_000;
        assert_eq!(decide(&mut detour, &write(0, 39_999)), Verdict::Ssd { class: Class::Random, gain });
        assert_eq!(decide(&mut detour, &write(1 << 20, 40_000)), Verdict::Disk);
        assert_eq!(decide(&mut detour, &write((1 << 20) + 40_000, 100)), Verdict::Disk, "joins its neighbor");
        assert_eq!(decide(&mut detour, &write(5 << 20, 0)), Verdict::Disk, "nothing to write");
    }

    #[test]
    fn a_read_waits_for_the_arm_unless_it_goes_on_where_the_disk_was() {
        let mut detour = Detour::new();
        let read = |offset, len| DiskRequest { write: false, ..write(offset, len) };
        detour.served(&read(0, 4096));
        assert_eq!(decide(&mut detour, &read(4096, 4096)), Verdict::Disk);
        // 4 ms at five times 100 ns a byte are 8,000 bytes.
        let ssd = Verdict::Ssd { class: Class::Random, gain: 4_000_000 };
        assert_eq!(decide(&mut detour, &read(8192, 7999)), ssd, "the disk has not been there");
        assert_eq!(decide(&mut detour, &read(8192, 8000)), Verdict::Disk);
        assert_eq!(decide(&mut detour, &DiskRequest { file: 2, ..read(4096, 4096) }), ssd);
    }

    #[test]
    fn edges_go_to_the_ssd_when_they_were_seen_to_cost_time() {
        let mut detour = Detour::new();
        let unaligned = write(1000, 1 << 20);
        assert_eq!(decide(&mut detour, &unaligned), Verdict::Disk, "nothing is known");
        // 10.48576 ms are the transfer of 1 MiB.
        detour.took(&curve(), PRICE, &unaligned, Nanos(18_485_760));
        detour.took(&curve(), PRICE, &write(0, 1 << 20), Nanos(11_485_760));
        let edges = Verdict::Edges { head: 3096, tail: 1000, class: Class::Random, gain: 7_000_000 };
        assert_eq!(decide(&mut detour, &unaligned), edges);
        assert_eq!(decide(&mut detour, &write(0, 1 << 20)), Verdict::Disk, "no edges");
        // What fills no page costs what an edge does, and what writes without edges were seen to.
        let inside = Verdict::Ssd { class: Class::Random, gain: 8_000_000 };
        assert_eq!(decide(&mut detour, &write(5000, 5000)), inside, "part of a run");
        // From then on they cost nothing: writes to memory.
        for _ in 0..64 {
            detour.took(&curve(), PRICE, &unaligned, Nanos(20_000));
        }
        assert_eq!(decide(&mut detour, &unaligned), Verdict::Disk);
    }

    #[test]
    fn joining_a_neighbor_is_free_only_where_it_was_seen_to_be() {
        let mut detour = Detour::new();
        decide(&mut detour, &write(0, 1 << 20));
        assert_eq!(decide(&mut detour, &write(1 << 20, 8192)), Verdict::Disk);
        // Past the page cache every write waits for the platters.
        detour.took(&curve(), PRICE, &write(0, 1 << 20), Nanos(60_000_000));
        let ssd = Verdict::Ssd { class: Class::Random, gain: 4_000_000 };
        assert_eq!(decide(&mut detour, &write((1 << 20) + 8192, 8192)), ssd, "no more than the arm takes");
        assert_eq!(
            decide(&mut detour, &write((1 << 20) + 16_384, 1 << 16)),
            Verdict::Disk,
            "too large for that"
        );
    }

    #[test]
    fn room_grows_dear_as_it_grows_short() {
        let price = |dirty| Scarcity::of(ByteLen(dirty), ByteLen(1600)).price(20);
        assert_eq!([0, 499, 500, 600, 800, 1200, 1600].map(price), [20, 20, 40, 80, 320, 20 << 8, 20 << 12]);
        assert_eq!(Scarcity::of(ByteLen(5), ByteLen(0)).price(u32::MAX), u32::MAX, "held");
    }

    #[test]
    fn writers_that_wait_for_each_other_do_not_count_twice() {
        let mut detour = Detour::new();
        detour.took(&curve(), PRICE, &write(1, 1 << 20), Nanos::from_s(10));
        assert_eq!(detour.edge_cost(&curve()), Nanos::from_ms(16));
    }

    #[test]
    fn now_and_then_the_disk_shows_what_edges_cost() {
        let mut detour = Detour::new();
        let unaligned = write(1000, 1 << 20);
        detour.took(&curve(), PRICE, &unaligned, Nanos::from_ms(30));
        let disk = (0..PROBE * 3).filter(|_| decide(&mut detour, &unaligned) == Verdict::Disk).count();
        assert_eq!(disk, 3);
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
        let mut detour = Detour::new();
        for (offset, len) in [(u64::MAX, 1), (u64::MAX, 0), (u64::MAX - 5, 5), (1, u64::MAX), (0, u64::MAX)] {
            decide(&mut detour, &write(offset, len));
            detour.served(&write(offset, len));
            detour.took(&curve(), PRICE, &write(offset, len), Nanos(u64::MAX));
        }
    }
}
