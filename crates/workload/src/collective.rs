//! Calls that all ranks make together, and what two-phase I/O makes of them: what the file system sees.

use crate::error::{Check, SpecError};
use crate::op::{FileRef, Op};
use crate::passes::{Direction, Ops, Style, SyncWhen};
use crate::size::Size;
use serde::{Deserialize, Serialize};

/// Two-phase collective I/O of ROMIO: aggregators exchange data with all ranks and move contiguous windows of the
/// file, each in a domain of its own. The exchange itself takes no time here; what files see is exact: even domains
/// between the first and the last byte of a call, windows of `cb_buffer_size` from the first byte wanted in the
/// domain, and a window with holes is read before it is written.
///
/// As ROMIO does, calls in which ranks' ranges follow each other without interleaving are made independently, unless
/// `force` says otherwise (IODC section IV-B on FLASH-IO).
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TwoPhase {
    /// Aggregators. When it is missing, one on each node, or every rank where `per_node` is missing too.
    pub cb_nodes: Option<u32>,
    /// Ranks on each node, placed node by node. ROMIO takes the first rank of each node (`cb_config_list = *:1`), from
    /// the first node on: aggregator a is rank `a * per_node`. When it is missing, aggregators are spread evenly over
    /// the ranks, which is the same where there are as many of them as nodes.
    pub per_node: Option<u32>,
    /// Bytes of an aggregator's window.
    pub cb_buffer_size: Size,
    /// Two phases even where ranks do not interleave (`romio_cb_write = enable`).
    pub force: bool,
    /// Boundaries of domains go to the nearest multiple of this, as ROMIO does where it knows the stripe size; 0 for
    /// even domains.
    pub align: Size,
}

impl Default for TwoPhase {
    fn default() -> Self {
        Self { cb_nodes: None, per_node: None, cb_buffer_size: Size::mib(16), force: false, align: Size(0) }
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

    /// Which aggregator `rank` is, if it is one.
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
}

/// A description's `two_phase` without collective calls is a slip.
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

/// The bytes that all ranks together want of a file in one call: runs at regular distances.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Union {
    /// The first byte.
    pub(crate) start: u64,
    /// The byte after the last.
    pub(crate) end: u64,
    /// Bytes of each run.
    pub(crate) run: u64,
    /// From the beginning of a run to that of the next; `run` when there are no holes.
    pub(crate) period: u64,
    /// Whether ranks' ranges interleave.
    pub(crate) interleaved: bool,
}

impl Union {
    /// Everything from `start` to `end`.
    pub(crate) fn dense(start: u64, end: u64, interleaved: bool) -> Self {
        Self { start, end, run: 1, period: 1, interleaved }
    }

    /// How many wanted bytes lie before `offset`.
    fn before(&self, offset: u64) -> u64 {
        let at = offset.clamp(self.start, self.end) - self.start;
        at / self.period * self.run + (at % self.period).min(self.run)
    }

    /// The first wanted byte from `offset` on, if there is one.
    fn first_from(&self, offset: u64) -> Option<u64> {
        let at = offset.max(self.start) - self.start;
        let wanted = if at % self.period < self.run { at } else { at.next_multiple_of(self.period) };
        (self.start + wanted < self.end).then_some(self.start + wanted)
    }

    /// The end of the last wanted byte before `offset`.
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

/// What a pass consists of when it is made of calls of all ranks.
pub(crate) trait Calls: Send + Sync {
    /// Number of calls.
    fn calls(&self) -> u64;
    /// What all ranks together want in a call.
    fn union(&self, call: u64) -> Union;
    /// What one rank wants in a call, `(offset, bytes)` by rising offsets, each a run of the file.
    fn pieces(&self, call: u64, rank: u32) -> Box<dyn Iterator<Item = (u64, u64)> + Send + '_>;
}

/// Who takes part in the calls.
#[derive(Clone, Copy)]
pub(crate) struct Party<'a> {
    pub(crate) rank: u32,
    /// Whose pieces it wants.
    pub(crate) part: u32,
    /// Some rank wants what lies before the pieces of the rank before it, which ROMIO takes for interleaving.
    pub(crate) disordered: bool,
    pub(crate) ranks: u32,
    pub(crate) two_phase: Option<&'a TwoPhase>,
    /// Done before each call.
    pub(crate) before: Option<Op>,
}

/// The operations of `party.rank` in a pass of calls.
pub(crate) fn body<'a, C: Calls>(calls: &'a C, style: Style, file: FileRef, party: Party<'a>) -> Ops<'a> {
    let syncs =
        |when| (style.direction == Direction::Write && style.sync == when).then_some(Op::Sync { file });
    let each = syncs(SyncWhen::Each);
    let one = move |call| {
        let union = calls.union(call);
        let aggregated = style.collective
            && party.two_phase.is_some_and(|two| two.force || union.interleaved || party.disordered);
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
        let meet = (style.collective || style.barrier).then_some(Op::Barrier);
        party.before.into_iter().chain(meet).chain(moved).chain(each)
    };
    Box::new((0..calls.calls()).flat_map(one).chain(syncs(SyncWhen::End)))
}

/// What `party.rank` moves as an aggregator; nothing if it is none.
fn windows(
    union: Union,
    two_phase: &TwoPhase,
    direction: Direction,
    file: FileRef,
    party: Party<'_>,
) -> impl Iterator<Item = Op> + Send + use<> {
    let nodes = u64::from(two_phase.aggregators(party.ranks));
    let buffer = two_phase.cb_buffer_size.0;
    let align = two_phase.align.0;
    let domain = (union.end - union.start).div_ceil(nodes);
    let boundary = move |aggregator: u64| {
        let even = (union.start + aggregator * domain).min(union.end);
        match even {
            even if aggregator == 0 || aggregator == nodes || align == 0 => even,
            even => ((even + align / 2) / align * align).clamp(union.start, union.end),
        }
    };
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
    use crate::permutation::mix;

    fn seen(union: Union, two_phase: &TwoPhase, ranks: u32, direction: Direction) -> Vec<(u32, Op)> {
        let of = |rank| {
            let party = Party {
                rank,
                part: rank,
                disordered: false,
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

    /// What ranks move of 70,000 bytes, dense, from 0.
    fn of_ior(two_phase: &TwoPhase) -> Vec<(u32, u64, u64)> {
        let places = seen(Union::dense(0, 70_000, false), two_phase, 7, Direction::Write);
        let place = |(rank, op)| match op {
            Op::Write { offset, len, .. } => (rank, offset, len),
            op => panic!("{op:?}"),
        };
        places.into_iter().map(place).collect()
    }

    #[test]
    fn aggregators_and_windows_of_romio() {
        // Of ROMIO in MPICH 4.0.2 under ior 4.1.0+dev -a MPIIO -c -w -t 10000 -b 10000 -s 1 with 7 ranks, hosts told
        // apart by name, romio_cb_write = enable, cb_buffer_size = 20000 (strace). cb_nodes = 3, a rank on each node:
        let two_phase = TwoPhase {
            cb_nodes: Some(3),
            per_node: Some(1),
            cb_buffer_size: Size(20_000),
            force: true,
            align: Size(0),
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
        assert_eq!(of_ior(&two_phase), by([0, 0, 1, 1, 2, 2]));
        // cb_nodes = 3, two ranks on each node:
        let two_phase = TwoPhase { per_node: Some(2), ..two_phase };
        assert_eq!(of_ior(&two_phase), by([0, 0, 2, 2, 4, 4]));
        // Two ranks on each node and nothing said about their number: one of each of four nodes.
        let two_phase = TwoPhase { cb_nodes: None, ..two_phase };
        let expected = [(0, 0), (2, 17_500), (4, 35_000), (6, 52_500)];
        assert_eq!(of_ior(&two_phase), expected.map(|(rank, offset)| (rank, offset, 17_500)));
        // cb_nodes = 3, a rank on each node, cb_buffer_size = 7000, striping_unit = 4096: domains end at 24,576 (23,334
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
        assert_eq!(of_ior(&two_phase), domains.collect::<Vec<_>>());
    }

    #[test]
    fn boundaries_go_to_the_nearest_multiple() {
        // 434 is nearer to 400 than to 500, 768 nearer to 800.
        let two_phase = TwoPhase {
            cb_nodes: Some(3),
            cb_buffer_size: Size(1000),
            align: Size(100),
            ..TwoPhase::default()
        };
        let union = Union::dense(100, 1100, true);
        let places = seen(union, &two_phase, 3, Direction::Read);
        let read = |offset, len| op(Direction::Read, offset, len);
        assert_eq!(places, [(0, read(100, 300)), (1, read(400, 400)), (2, read(800, 300))]);
    }

    #[test]
    fn windows_with_holes_are_read_before_they_are_written() {
        // Runs of 10 bytes each 30: 0..10, 30..40, 60..70, 90..100, one aggregator, windows of 35 from 0:
        // 0..35 (holes), 35..70 (holes), 70..100 (holes: 90..100 alone is wanted).
        let union = Union { start: 0, end: 100, run: 10, period: 30, interleaved: true };
        let two_phase = TwoPhase { cb_nodes: Some(1), cb_buffer_size: Size(35), ..TwoPhase::default() };
        let both = |offset, len| [op(Direction::Read, offset, len), op(Direction::Write, offset, len)];
        let expected = [both(0, 35), both(35, 35), both(70, 30)].concat();
        let ops: Vec<Op> =
            seen(union, &two_phase, 1, Direction::Write).into_iter().map(|(_, op)| op).collect();
        assert_eq!(ops, expected);
        // Of ROMIO under ior -t 10000 -b 30000 with 4 ranks on a node each, cb_nodes = 2, cb_buffer_size = 20000 (strace,
        // as in `aggregators_and_windows_of_romio`): the first call wants 10,000 bytes each 30,000, and is windows of
        // 20,000 from the first byte wanted in each half.
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
        // Two aggregators: 0..50 ends with the last byte wanted there, 40; 50..100 begins with the first, 60.
        let union = Union { start: 0, end: 100, run: 10, period: 30, interleaved: true };
        let two_phase = TwoPhase { cb_nodes: Some(2), cb_buffer_size: Size(100), ..TwoPhase::default() };
        let ops = seen(union, &two_phase, 2, Direction::Read);
        assert_eq!(ops, [(0, op(Direction::Read, 0, 40)), (1, op(Direction::Read, 60, 40))]);
    }

    #[test]
    fn windows_without_a_wanted_byte_are_left_out() {
        let union = Union { start: 0, end: 1010, run: 10, period: 1000, interleaved: true };
        let two_phase = TwoPhase { cb_nodes: Some(1), cb_buffer_size: Size(100), ..TwoPhase::default() };
        let read = |offset, len| (0, op(Direction::Read, offset, len));
        assert_eq!(seen(union, &two_phase, 1, Direction::Read), [read(0, 100), read(1000, 10)]);
    }

    #[test]
    fn windows_are_what_a_plain_search_finds() {
        for case in 0..2000u64 {
            let r = |salt: u64, below: u64| mix(case * 16 + salt) % below;
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
                assert!((offset..offset + len).any(wanted), "case {case}: nothing is wanted of {op:?}");
                (offset..offset + len).for_each(|byte| covered[byte as usize] += 1);
            }
            for byte in 0..union.end {
                let times = covered[byte as usize];
                assert!(times <= 1 && (times == 1 || !wanted(byte)), "case {case}: byte {byte}: {times}");
            }
        }
    }
}
