//! Slots of the ranks that share a file.
//!
//! ```text
//! interleaved          |0 1 2 3|0 1 2 3|0 1 2 3|     slots of equal length; a row has one slot of every rank
//! one range per rank   |0 0 0 0|1 1 1 1|2 2 2 2|
//! ```
//!
//! | condition | pattern |
//! | --- | --- |
//! | the ranks' last bytes lie at least as far apart as each rank's bytes | one range per rank |
//! | otherwise | interleaved |
//!
//! The slot length that makes the rows fill the file is the default. A stride of the counters divided by the number of
//! ranks is used instead, if the quotient is whole pages and near the default. Darshan counts strides as gaps between
//! operations, so each stride is also tried with the length of a common operation added.

use super::{Direction, Plan};
use crate::darshan::counters::Record as Counters;
use std::collections::BTreeMap;

/// A rank that moves less than 1/16 of the bytes of the busiest rank is not part of the pattern.
const OUTLIER_DIVISOR: u64 = 16;
/// Maximum number of different strides kept per file.
const STRIDES_MAX: usize = 4096;
/// A slot length from the counters may differ from the one that fills the file by at most 1/20.
const SLOT_TOLERANCE_DIVISOR: u64 = 20;
/// Slot lengths from the counters are multiples of the page size in bytes.
const PAGE_BYTES: u64 = 4096;

/// A rank that uses a file.
#[derive(Clone, Copy, Debug)]
struct RankUse {
    rank: u32,
    bytes: u64,
    extent: u64,
    /// Number of large operations, one per row.
    rows: u64,
}

/// The use of a file in one direction.
#[derive(Clone, Default, Debug)]
struct FileUse {
    ranks: Vec<RankUse>,
    /// Candidate distances between consecutive operations of a rank, and how often the counters report them.
    strides: BTreeMap<u64, u64>,
}

/// Collects which ranks share which files, from all records of a log.
#[derive(Clone, Default, Debug)]
pub struct Sharing {
    files: BTreeMap<(u64, Direction), FileUse>,
}

/// Slots of all ranks in all shared files.
#[derive(Clone, Default, Debug)]
pub struct SharedFileSlots {
    slots: BTreeMap<(u64, Direction, u32), RankSlots>,
}

/// Slots of a rank in a shared file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RankSlots {
    /// Offset of the rank's first slot.
    pub base: u64,
    /// Distance between the rank's consecutive slots in bytes.
    pub row: u64,
    /// Number of rows in the file.
    pub rows: u64,
}

impl RankSlots {
    /// Offset of a rank's operation that follows `before` of its `large_count` large operations.
    pub fn offset(&self, before: u64, large_count: u64) -> u64 {
        // Fewer operations than rows are spread over the file, but a shortfall of up to a tenth is missing at the end.
        let row = match large_count > 0 && large_count < self.rows - self.rows / 10 {
            true => (u128::from(before) * u128::from(self.rows) / u128::from(large_count)) as u64,
            false => before,
        };
        self.base.saturating_add(row.saturating_mul(self.row))
    }
}

impl Sharing {
    /// Adds a record of the log.
    pub fn add(&mut self, counters: &Counters<'_>) {
        let Some(rank) = counters.rank() else { return };
        for direction in Direction::BOTH {
            let Some(rank_use) = rank_use(counters, rank, direction) else { continue };
            let shared = self.files.entry((counters.id(), direction)).or_default();
            shared.ranks.push(rank_use);
            for stride in 1..=4 {
                let of = |what: &str| counters.count(&format!("POSIX_STRIDE{stride}_{what}"));
                let (gap, count) = (of("STRIDE"), of("COUNT"));
                let lengths = (1..=4).map(|n| counters.count(&format!("POSIX_ACCESS{n}_ACCESS")));
                for way in lengths.chain([0]).map(|len| gap.saturating_add(len)) {
                    if gap > 0 && (shared.strides.len() < STRIDES_MAX || shared.strides.contains_key(&way)) {
                        let known = shared.strides.entry(way).or_default();
                        *known = known.saturating_add(count);
                    }
                }
            }
        }
    }

    /// Computes the slots of each rank in each file.
    pub fn slots(self) -> SharedFileSlots {
        let slots = self.files.into_iter().flat_map(|((file, direction), shared)| {
            shared.rank_slots().into_iter().map(move |(rank, slots)| ((file, direction, rank), slots))
        });
        SharedFileSlots { slots: slots.collect() }
    }
}

impl SharedFileSlots {
    /// Returns the slots of the record's rank.
    pub fn of(&self, counters: &Counters<'_>, direction: Direction) -> RankSlots {
        let rank = counters.rank().unwrap_or(0);
        // A rank without slots moves no bytes.
        let nothing = RankSlots { base: 0, row: 0, rows: 1 };
        self.slots.get(&(counters.id(), direction, rank)).copied().unwrap_or(nothing)
    }
}

/// Returns a rank's use of a file; `None` if it moves no bytes.
fn rank_use(counters: &Counters<'_>, rank: u32, direction: Direction) -> Option<RankUse> {
    let plan = Plan::of(counters, direction);
    let rank_use = RankUse { rank, bytes: plan.bytes, extent: plan.extent, rows: plan.large_count() };
    (plan.bytes > 0).then_some(rank_use)
}

impl FileUse {
    fn rank_slots(mut self) -> Vec<(u32, RankSlots)> {
        let most = self.ranks.iter().map(|rank| rank.bytes).max().unwrap_or(0);
        let alone = |own: &RankUse, base: u64| {
            let row = ((own.extent - base) / own.rows.max(1)).max(1);
            (own.rank, RankSlots { base, row, rows: own.rows.max(1) })
        };
        self.ranks.sort_by_key(|rank| (rank.extent, rank.rank));
        let (mut regular, outliers): (Vec<_>, Vec<_>) =
            self.ranks.iter().copied().partition(|rank| rank.bytes >= most / OUTLIER_DIVISOR);
        let mut slots: Vec<_> = outliers.iter().map(|own| alone(own, 0)).collect();
        let apart = |pair: &[RankUse]| pair[1].extent - pair[0].extent >= pair[1].bytes;
        if regular.windows(2).all(apart) {
            let bases = std::iter::once(0).chain(regular.iter().map(|rank| rank.extent));
            slots.extend(regular.iter().zip(bases).map(|(own, base)| alone(own, base)));
            return slots;
        }
        let count = regular.len() as u64;
        let rows = regular.iter().map(|rank| rank.rows).max().unwrap_or(1).max(1);
        let extent = regular.iter().map(|rank| rank.extent).max().unwrap_or(0);
        let fills = (extent / count.saturating_mul(rows)).max(1);
        let slot = self.slot_from_strides(count, fills).unwrap_or(fills);
        regular.sort_by_key(|rank| rank.rank);
        slots.extend(regular.iter().zip(0u64..).map(|(own, number)| {
            (own.rank, RankSlots { base: number.saturating_mul(slot), row: count.saturating_mul(slot), rows })
        }));
        slots
    }

    /// Returns the slot length that the counters suggest for `count` ranks, if it is near `fills`.
    fn slot_from_strides(&self, count: u64, fills: u64) -> Option<u64> {
        let slots = self.strides.iter().filter(|(way, _)| way.is_multiple_of(count));
        let slots = slots.map(|(way, times)| (way / count, *times));
        let tolerance = fills / SLOT_TOLERANCE_DIVISOR;
        let fit =
            slots.filter(|(slot, _)| slot.is_multiple_of(PAGE_BYTES) && slot.abs_diff(fills) <= tolerance);
        fit.max_by_key(|(slot, times)| (*times, *slot)).map(|(slot, _)| slot)
    }
}
