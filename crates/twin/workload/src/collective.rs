//! Collective calls, and the requests that two-phase I/O makes of them.

use crate::error::{Check, SpecError};
use crate::op::{FileRef, Op};
use crate::passes::{Direction, Ops, Style, SyncWhen};
use crate::size::Size;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Two-phase collective I/O of ROMIO.
///
/// Aggregators exchange data with all ranks and transfer contiguous windows, each aggregator in its own domain of the
/// file:
///
/// ```text
/// ranks        0 1 2 3 0 1 2 3 0 1 2 3      pieces of a call
/// domains      |---- aggregator 0 ----|---- aggregator 1 ----|   even division of first to last byte
/// windows      |------|------|--------|------|------|--------|   cb_buffer_size each
/// ```
///
/// The windows match ROMIO's. Domains divide the range from the first to the last byte of the call evenly. Windows
/// start at the first wanted byte of the domain, and a window with holes is read before it is written. The exchange
/// takes no time, unless `exchange` is set and the cluster is one of a locking file system.
///
/// Like ROMIO, calls in which the ranks' ranges do not interleave use independent requests, unless `force` is set (IODC
/// section IV-B on FLASH-IO).
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TwoPhase {
    /// Number of aggregators. Default: one per node, or every rank if `per_node` is not given either.
    pub cb_nodes: Option<u32>,
    /// Number of ranks on each node, placed node by node.
    ///
    /// ROMIO takes the first rank of each node (`cb_config_list = *:1`) from the first node on, so aggregator a is rank
    /// `a * per_node`. By default aggregators are spread evenly over the ranks, which is the same if there is one per
    /// node.
    pub per_node: Option<u32>,
    /// Length of an aggregator's window.
    pub cb_buffer_size: Size,
    /// Whether to use two phases even if ranks do not interleave (`romio_cb_write = enable`).
    pub force: bool,
    /// Domain boundaries are rounded to a multiple of this, as ROMIO does if it knows the stripe size; 0 for an even
    /// division.
    pub align: Size,
    /// Whether ranks send their pieces of a write to the aggregators over the simulated network, before the first
    /// window. For `btio`, `flash-io` and `s3d-io` on a cluster with a locking file system.
    pub exchange: bool,
}

impl Default for TwoPhase {
    fn default() -> Self {
        Self {
            cb_nodes: None,
            per_node: None,
            cb_buffer_size: Size::mib(16),
            force: false,
            align: Size(0),
            exchange: false,
        }
    }
}

impl TwoPhase {
    pub(crate) fn check(&self, check: Check, ranks: u32) -> Result<(), SpecError> {
        if self.per_node.is_some_and(|per_node| per_node == 0 || per_node > ranks) {
            return check.fail("two_phase.per_node", format!("give 1 to {ranks}, the number of ranks"));
        }
        let (most, what) = match self.per_node {
            Some(per_node) => (ranks.div_ceil(per_node), "nodes"),
            None => (ranks, "ranks"),
        };
        if self.cb_nodes.is_some_and(|nodes| nodes == 0 || nodes > most) {
            return check.fail("two_phase.cb_nodes", format!("give 1 to {most}, the number of {what}"));
        }
        check.positive("two_phase.cb_buffer_size", self.cb_buffer_size.0).map(drop)
    }
}

impl TwoPhase {
    /// Number of aggregators.
    fn aggregators(&self, ranks: u32) -> u32 {
        self.cb_nodes.unwrap_or_else(|| ranks.div_ceil(self.per_node.unwrap_or(1)))
    }

    /// Number of the aggregator that `rank` is, if it is one.
    fn aggregator(&self, rank: u32, ranks: u32) -> Option<u64> {
        let nodes = u64::from(self.aggregators(ranks));
        let (rank, ranks) = (u64::from(rank), u64::from(ranks));
        let (index, its_rank) = match self.per_node {
            Some(per_node) => (rank / u64::from(per_node), rank / u64::from(per_node) * u64::from(per_node)),
            // Aggregator a is rank a * ranks / nodes.
            None => {
                let index = (rank * nodes).div_ceil(ranks);
                (index, index * ranks / nodes)
            }
        };
        (index < nodes && its_rank == rank).then_some(index)
    }

    /// Rank of an aggregator.
    fn rank_of(&self, aggregator: u64, ranks: u32) -> u32 {
        let rank = match self.per_node {
            Some(per_node) => aggregator * u64::from(per_node),
            None => aggregator * u64::from(ranks) / u64::from(self.aggregators(ranks)),
        };
        rank as u32
    }

    /// Start of the domain of an aggregator in a call; the end of the call for the number of aggregators.
    fn boundary(&self, union: Union, aggregator: u64, nodes: u64) -> u64 {
        let domain = (union.end - union.start).div_ceil(nodes);
        let even = (union.start + aggregator * domain).min(union.end);
        match self.align.0 {
            align if aggregator > 0 && aggregator < nodes && align > 0 => {
                ((even + align / 2) / align * align).clamp(union.start, union.end)
            }
            _ => even,
        }
    }
}

/// Checks that `two_phase` is only given together with collective calls.
pub(crate) fn check_collective(
    check: Check,
    ranks: u32,
    collective: bool,
    two_phase: Option<&TwoPhase>,
) -> Result<(), SpecError> {
    match two_phase {
        Some(_) if !collective => check.fail("two_phase", "needs collective calls: set collective = true"),
        Some(two_phase) => two_phase.check(check, ranks),
        None => Ok(()),
    }
}

/// Rejects an exchange for workloads that do not describe it.
pub(crate) fn check_no_exchange(check: Check, two_phase: Option<&TwoPhase>) -> Result<(), SpecError> {
    match two_phase {
        Some(two_phase) if two_phase.exchange => {
            check.fail("two_phase.exchange", "only btio, flash-io and s3d-io describe it: write false")
        }
        _ => Ok(()),
    }
}

/// Bytes that all ranks together access in one call: ranges of equal length at regular distances.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Union {
    /// First byte.
    pub(crate) start: u64,
    /// Offset after the last byte.
    pub(crate) end: u64,
    /// Length of each range.
    pub(crate) run: u64,
    /// Distance between the starts of two ranges; equal to `run` if there are no holes.
    pub(crate) period: u64,
    /// Whether the ranks' ranges interleave.
    pub(crate) interleaved: bool,
}

impl Union {
    /// Creates a union without holes from `start` to `end`.
    pub(crate) fn dense(start: u64, end: u64, interleaved: bool) -> Self {
        Self { start, end, run: 1, period: 1, interleaved }
    }

    /// Number of wanted bytes before `offset`.
    fn before(&self, offset: u64) -> u64 {
        let at = offset.clamp(self.start, self.end) - self.start;
        at / self.period * self.run + (at % self.period).min(self.run)
    }

    /// First wanted byte at or after `offset`, if any.
    fn first_from(&self, offset: u64) -> Option<u64> {
        let at = offset.max(self.start) - self.start;
        let wanted = if at % self.period < self.run { at } else { at.next_multiple_of(self.period) };
        (self.start + wanted < self.end).then_some(self.start + wanted)
    }

    /// End of the last wanted byte before `offset`.
    fn last_before(&self, offset: u64) -> u64 {
        let at = offset.min(self.end) - self.start;
        let (whole, rest) = (at / self.period, at % self.period);
        let end = match rest {
            0 if whole > 0 => (whole - 1) * self.period + self.run,
            rest => whole * self.period + rest.min(self.run),
        };
        self.start + end
    }
}

/// The calls of a pass that consists of calls by all ranks.
pub(crate) trait Calls: Send + Sync {
    /// Number of calls.
    fn calls(&self) -> u64;
    /// Bytes that all ranks together access in a call.
    fn union(&self, call: u64) -> Union;
    /// Bytes that one rank accesses in a call, as contiguous ranges `(offset, bytes)` in ascending order.
    fn pieces(&self, call: u64, rank: u32) -> Box<dyn Iterator<Item = (u64, u64)> + Send + '_>;
}

/// One rank's view of the calls.
#[derive(Clone, Copy)]
pub(crate) struct CallRank<'a> {
    pub(crate) rank: u32,
    /// Rank whose pieces this rank accesses.
    pub(crate) part: u32,
    /// Whether some rank's pieces lie before those of the previous rank. ROMIO treats that as interleaving.
    pub(crate) is_out_of_order: bool,
    pub(crate) ranks: u32,
    pub(crate) two_phase: Option<&'a TwoPhase>,
    /// Operation before each call.
    pub(crate) before: Option<Op>,
}

/// Generates the operations of `party.rank` in a pass of calls.
pub(crate) fn body<'a, C: Calls>(calls: &'a C, style: Style, file: FileRef, party: CallRank<'a>) -> Ops<'a> {
    let syncs =
        |when| (style.direction == Direction::Write && style.sync == when).then_some(Op::Sync { file });
    let each = syncs(SyncWhen::Each);
    let one = move |call| {
        let union = calls.union(call);
        let aggregated = style.collective
            && party.two_phase.is_some_and(|two| two.force || union.interleaved || party.is_out_of_order);
        let moved: Ops<'a> = match party.two_phase {
            Some(two_phase) if aggregated => {
                Box::new(windows(union, two_phase, style.direction, file, party))
            }
            _ => Box::new(
                calls
                    .pieces(call, party.part)
                    .map(move |(offset, len)| style.direction.transfer(file, offset, len, style.collective)),
            ),
        };
        let barrier = (style.collective || style.barrier).then_some(Op::Barrier);
        party.before.into_iter().chain(barrier).chain(moved).chain(each)
    };
    Box::new((0..calls.calls()).flat_map(one).chain(syncs(SyncWhen::End)))
}

/// Bytes that describe a piece to an aggregator: its offset and length, as ROMIO sends them.
const PIECE_HEAD_BYTES: u64 = 12;

/// Barriers of a pass that belong to no call: after the open, after the calls, after the close.
const PASS_BARRIERS: u64 = 3;

/// Returns the number of barriers of a pass of collective calls.
pub(crate) fn pass_barriers<C: Calls>(calls: &C) -> u64 {
    calls.calls() + PASS_BARRIERS
}

/// Returns the messages `(rank, bytes)` of two-phase I/O that `party.rank` sends to aggregators after barrier number
/// `barrier` of a pass that writes.
pub(crate) fn exchange<C: Calls>(calls: &C, party: CallRank<'_>, barrier: u64) -> Vec<(u32, u64)> {
    let Some(two_phase) = party.two_phase.filter(|two_phase| two_phase.exchange) else { return Vec::new() };
    let Some(call) = barrier.checked_sub(1).filter(|call| *call < calls.calls()) else { return Vec::new() };
    let union = calls.union(call);
    if !(two_phase.force || union.interleaved || party.is_out_of_order) {
        return Vec::new();
    }
    let nodes = u64::from(two_phase.aggregators(party.ranks));
    let domain = (union.end - union.start).div_ceil(nodes).max(1);
    let mut sent: BTreeMap<u64, u64> = BTreeMap::new();
    for (offset, len) in calls.pieces(call, party.part) {
        let (mut at, end) = (offset, offset + len);
        // The domain by even division is at most one away from the one with aligned boundaries.
        let mut aggregator = ((at - union.start) / domain).saturating_sub(1).min(nodes - 1);
        while at < end {
            let until = two_phase.boundary(union, aggregator + 1, nodes);
            if at < until || aggregator + 1 == nodes {
                let until = if aggregator + 1 == nodes { end } else { until.min(end) };
                *sent.entry(aggregator).or_default() += until - at + PIECE_HEAD_BYTES;
                at = until;
            } else {
                aggregator += 1;
            }
        }
    }
    sent.into_iter().map(|(aggregator, bytes)| (two_phase.rank_of(aggregator, party.ranks), bytes)).collect()
}

/// Generates the requests of `party.rank` as an aggregator; none if the rank is not one.
fn windows(
    union: Union,
    two_phase: &TwoPhase,
    direction: Direction,
    file: FileRef,
    party: CallRank<'_>,
) -> impl Iterator<Item = Op> + Send + use<> {
    let nodes = u64::from(two_phase.aggregators(party.ranks));
    let buffer = two_phase.cb_buffer_size.0;
    let boundary = |aggregator: u64| two_phase.boundary(union, aggregator, nodes);
    let (from, to) = match two_phase.aggregator(party.rank, party.ranks) {
        Some(aggregator) => (boundary(aggregator), boundary(aggregator + 1)),
        None => (0, 0),
    };
    let first = if from < to { union.first_from(from).filter(|&first| first < to) } else { None };
    let (first, end) = first.map_or((0, 0), |first| (first, union.last_before(to)));
    (0..(end - first).div_ceil(buffer)).flat_map(move |index| {
        let offset = first + index * buffer;
        let len = buffer.min(end - offset);
        let wanted = union.before(offset + len) - union.before(offset);
        let holes = wanted < len && direction == Direction::Write;
        let filled = (holes && wanted > 0).then_some(Direction::Read.transfer(file, offset, len, true));
        let moved = (wanted > 0).then_some(direction.transfer(file, offset, len, true));
        filled.into_iter().chain(moved)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_core::random::splitmix64;

    fn seen(union: Union, two_phase: &TwoPhase, ranks: u32, direction: Direction) -> Vec<(u32, Op)> {
        let of = |rank| {
            let party = CallRank {
                rank,
                part: rank,
                is_out_of_order: false,
                ranks,
                two_phase: Some(two_phase),
                before: None,
            };
            windows(union, two_phase, direction, FileRef(0), party).map(move |op| (rank, op))
        };
        (0..ranks).flat_map(of).collect()
    }

    fn op(direction: Direction, offset: u64, len: u64) -> Op {
        direction.transfer(FileRef(0), offset, len, true)
    }

    #[test]
    fn domains_and_windows_by_hand() {
        // 1000 bytes from 100, 3 aggregators of 7 ranks: domains of ceil(1000 / 3) = 334 bytes: 100..434, 434..768,
        // 768..1100; aggregators are ranks 0, floor(7 / 3) = 2 and floor(14 / 3) = 4; windows of 200.
        let two_phase = TwoPhase { cb_nodes: Some(3), cb_buffer_size: Size(200), ..TwoPhase::default() };
        let write = |offset, len| op(Direction::Write, offset, len);
        let expected = [
            (0, write(100, 200)),
            (0, write(300, 134)),
            (2, write(434, 200)),
            (2, write(634, 134)),
            (4, write(768, 200)),
            (4, write(968, 132)),
        ];
        let union = Union::dense(100, 1100, true);
        assert_eq!(seen(union, &two_phase, 7, Direction::Write), expected);
    }

    /// Returns the requests of a dense access of 70,000 bytes from offset 0, by rank.
    fn dense_requests(two_phase: &TwoPhase) -> Vec<(u32, u64, u64)> {
        let extent_list = seen(Union::dense(0, 70_000, false), two_phase, 7, Direction::Write);
        let place = |(rank, op)| match op {
            Op::Write { offset, len, .. } => (rank, offset, len),
            op => panic!("{op:?}"),
        };
        extent_list.into_iter().map(place).collect()
    }

    #[test]
    fn aggregators_and_windows_match_romio() {
        // Requests of ROMIO in MPICH 4.0.2 (strace): ior 4.1.0+dev -a MPIIO -c -w -t 10000 -b 10000 -s 1, 7 ranks,
        // hosts distinguished by name, romio_cb_write = enable, cb_buffer_size = 20000. With cb_nodes = 3 and one rank
        // per node:
        let two_phase = TwoPhase {
            cb_nodes: Some(3),
            per_node: Some(1),
            cb_buffer_size: Size(20_000),
            force: true,
            ..TwoPhase::default()
        };
        let windows = [
            (0, 20_000),
            (20_000, 3_334),
            (23_334, 20_000),
            (43_334, 3_334),
            (46_668, 20_000),
            (66_668, 3_332),
        ];
        let by = |ranks: [u32; 6]| -> Vec<_> {
            ranks.into_iter().zip(windows).map(|(rank, (offset, len))| (rank, offset, len)).collect()
        };
        assert_eq!(dense_requests(&two_phase), by([0, 0, 1, 1, 2, 2]));
        // cb_nodes = 3, two ranks per node:
        let two_phase = TwoPhase { per_node: Some(2), ..two_phase };
        assert_eq!(dense_requests(&two_phase), by([0, 0, 2, 2, 4, 4]));
        // Two ranks per node and no cb_nodes: one aggregator on each of four nodes.
        let two_phase = TwoPhase { cb_nodes: None, ..two_phase };
        let expected = [(0, 0), (2, 17_500), (4, 35_000), (6, 52_500)];
        assert_eq!(dense_requests(&two_phase), expected.map(|(rank, offset)| (rank, offset, 17_500)));
        // cb_nodes = 3, one rank per node, cb_buffer_size = 7000, striping_unit = 4096: domains end at 24,576 (23,334
        // is 6 stripes less 1,242) and 45,056 (46,668 is 11 stripes and 1,612).
        let two_phase = TwoPhase {
            cb_nodes: Some(3),
            per_node: Some(1),
            cb_buffer_size: Size(7000),
            align: Size(4096),
            ..two_phase
        };
        let domain = |rank: u32, from: u64, to: u64| {
            (from..to).step_by(7000).map(move |offset| (rank, offset, 7000.min(to - offset)))
        };
        let domains = domain(0, 0, 24_576).chain(domain(1, 24_576, 45_056)).chain(domain(2, 45_056, 70_000));
        assert_eq!(dense_requests(&two_phase), domains.collect::<Vec<_>>());
    }

    #[test]
    fn boundaries_are_rounded_to_the_nearest_multiple() {
        // 434 is closer to 400 than to 500, and 768 closer to 800.
        let two_phase = TwoPhase {
            cb_nodes: Some(3),
            cb_buffer_size: Size(1000),
            align: Size(100),
            ..TwoPhase::default()
        };
        let union = Union::dense(100, 1100, true);
        let extent_list = seen(union, &two_phase, 3, Direction::Read);
        let read = |offset, len| op(Direction::Read, offset, len);
        assert_eq!(extent_list, [(0, read(100, 300)), (1, read(400, 400)), (2, read(800, 300))]);
    }

    #[test]
    fn windows_with_holes_are_read_before_they_are_written() {
        // Ranges of 10 bytes every 30: 0..10, 30..40, 60..70, 90..100. One aggregator, windows of 35 from 0:
        // 0..35 (holes), 35..70 (holes), 70..100 (only 90..100 is wanted).
        let union = Union { start: 0, end: 100, run: 10, period: 30, interleaved: true };
        let two_phase = TwoPhase { cb_nodes: Some(1), cb_buffer_size: Size(35), ..TwoPhase::default() };
        let both = |offset, len| [op(Direction::Read, offset, len), op(Direction::Write, offset, len)];
        let expected = [both(0, 35), both(35, 35), both(70, 30)].concat();
        let ops: Vec<Op> =
            seen(union, &two_phase, 1, Direction::Write).into_iter().map(|(_, op)| op).collect();
        assert_eq!(ops, expected);
        // Requests of ROMIO (strace, as in `aggregators_and_windows_match_romio`): ior -t 10000 -b 30000 with 4 ranks,
        // one per node, cb_nodes = 2, cb_buffer_size = 20000. The first call accesses 10,000 of every 30,000 bytes, in
        // windows of 20,000 from the first wanted byte in each half.
        let union = Union { start: 0, end: 100_000, run: 10_000, period: 30_000, interleaved: false };
        let ior = TwoPhase {
            cb_nodes: Some(2),
            per_node: Some(1),
            cb_buffer_size: Size(20_000),
            ..TwoPhase::default()
        };
        let window = |rank: u32, offset| both(offset, 20_000).map(|op| (rank, op));
        let expected = [window(0, 0), window(0, 20_000), window(1, 60_000), window(1, 80_000)].concat();
        assert_eq!(seen(union, &ior, 4, Direction::Write), expected);
        // Two aggregators: 0..50 ends after its last wanted byte at 40; 50..100 starts at its first wanted byte, 60.
        let union = Union { start: 0, end: 100, run: 10, period: 30, interleaved: true };
        let two_phase = TwoPhase { cb_nodes: Some(2), cb_buffer_size: Size(100), ..TwoPhase::default() };
        let ops = seen(union, &two_phase, 2, Direction::Read);
        assert_eq!(ops, [(0, op(Direction::Read, 0, 40)), (1, op(Direction::Read, 60, 40))]);
    }

    #[test]
    fn an_exchange_sends_every_piece_to_the_aggregator_of_its_domain() {
        /// Two calls of 1,000 bytes; rank r has the bytes from 50 r on in every 200.
        struct Rows;
        impl Calls for Rows {
            fn calls(&self) -> u64 {
                2
            }
            fn union(&self, call: u64) -> Union {
                Union::dense(call * 1000, call * 1000 + 1000, true)
            }
            fn pieces(&self, call: u64, rank: u32) -> Box<dyn Iterator<Item = (u64, u64)> + Send + '_> {
                let first = call * 1000 + u64::from(rank) * 50;
                Box::new((0..5).map(move |row| (first + row * 200, 50)))
            }
        }
        let sent = |two_phase: &TwoPhase, rank, barrier| {
            let party = CallRank {
                rank,
                part: rank,
                is_out_of_order: false,
                ranks: 4,
                two_phase: Some(two_phase),
                before: None,
            };
            exchange(&Rows, party, barrier)
        };
        // Domains of 334 bytes: 0..334, 334..668, 668..1000, of ranks 0, 1 and 2. Rank 2 has 100..150, 300..350,
        // 500..550, 700..750 and 900..950: 50 + 34, 16 + 50 and 100 bytes, in 2 pieces each.
        let two_phase = TwoPhase { cb_nodes: Some(3), exchange: true, ..TwoPhase::default() };
        assert_eq!(sent(&two_phase, 2, 1), [(0, 84 + 24), (1, 66 + 24), (2, 100 + 24)]);
        // The barriers after the open and after the calls.
        assert!(sent(&two_phase, 2, 0).is_empty() && sent(&two_phase, 2, 3).is_empty());
        assert_eq!(pass_barriers(&Rows), 5);
        // Aligned domains: 0..300, 300..700, 700..1000.
        let aligned = TwoPhase { align: Size(100), ..two_phase.clone() };
        assert_eq!(sent(&aligned, 2, 2), [(0, 50 + 12), (1, 100 + 24), (2, 100 + 24)]);
        assert!(sent(&TwoPhase { exchange: false, ..two_phase }, 2, 1).is_empty());
    }

    #[test]
    fn windows_without_a_wanted_byte_are_skipped() {
        let union = Union { start: 0, end: 1010, run: 10, period: 1000, interleaved: true };
        let two_phase = TwoPhase { cb_nodes: Some(1), cb_buffer_size: Size(100), ..TwoPhase::default() };
        let read = |offset, len| (0, op(Direction::Read, offset, len));
        assert_eq!(seen(union, &two_phase, 1, Direction::Read), [read(0, 100), read(1000, 10)]);
    }

    #[test]
    fn windows_match_an_exhaustive_search() {
        for case in 0..2000u64 {
            let r = |salt: u64, below: u64| splitmix64(case * 16 + salt) % below;
            let period = 1 + r(0, 12);
            let run = 1 + r(1, period);
            let start = r(2, 50);
            let runs = r(3, 20);
            let union = Union { start, end: start + runs * period + run, run, period, interleaved: true };
            let ranks = 1 + r(4, 6) as u32;
            let two_phase = TwoPhase {
                cb_nodes: Some(1 + r(5, u64::from(ranks)) as u32),
                cb_buffer_size: Size(1 + r(6, 40)),
                force: false,
                align: Size(r(7, 3) * 7),
                ..TwoPhase::default()
            };
            let wanted = |byte: u64| byte >= start && byte < union.end && (byte - start) % period < run;
            let mut covered = vec![0; union.end as usize];
            for (_, op) in seen(union, &two_phase, ranks, Direction::Read) {
                let Op::Read { offset, len, .. } = op else { panic!("{op:?}") };
                assert!((offset..offset + len).any(wanted), "case {case}: no byte of {op:?} is wanted");
                (offset..offset + len).for_each(|byte| covered[byte as usize] += 1);
            }
            for byte in 0..union.end {
                let times = covered[byte as usize];
                assert!(times <= 1 && (times == 1 || !wanted(byte)), "case {case}: byte {byte}: {times}");
            }
        }
    }
}
