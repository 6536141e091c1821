//! Where the operations of ranks lie that share a file.
//!
//! ```text
//! in turn      |0 1 2 3|0 1 2 3|0 1 2 3|     slots of one length, a row of all ranks after another
//! stretches    |0 0 0 0|1 1 1 1|2 2 2 2|
//! ```
//!
//! Ranks whose last bytes are within a row of each other take turns; where each one's last byte lies as far behind
//! another's as it moves bytes, each has a stretch. A slot is the stride that the counters name where that is a row of as
//! many slots as there are ranks (Darshan counts the gap, so the length of an operation may have to be added), else as
//! long as fills the file.

use super::{Direction, Plan};
use crate::darshan::counters::Record as Counters;
use std::collections::BTreeMap;

/// Who moves less than this part of what another one moves is beside the pattern.
const BESIDE: u64 = 16;
/// Strides of a file that are kept.
const STRIDES_MAX: usize = 4096;
/// A slot that the counters name is at most so far from the one that fills the file: a twentieth.
const NEAR: u64 = 20;
/// Slots are whole pages where counters name them.
const PAGE: u64 = 4096;

/// A rank at a file.
#[derive(Clone, Copy, Debug)]
struct Sharer {
    rank: u32,
    bytes: u64,
    extent: u64,
    /// Its larger operations: how often it takes its turn.
    rows: u64,
}

/// A file in one direction.
#[derive(Clone, Default, Debug)]
struct Shared {
    ranks: Vec<Sharer>,
    /// What may be the way from one operation of a rank to its next, and how often that was.
    strides: BTreeMap<u64, u64>,
}

/// Who shares which files: takes in all records of a log.
#[derive(Clone, Default, Debug)]
pub struct Sharing {
    files: BTreeMap<(u64, Direction), Shared>,
}

/// The places of all ranks at all files.
#[derive(Clone, Default, Debug)]
pub struct Places {
    places: BTreeMap<(u64, Direction, u32), Place>,
}

/// The place of a rank among those who share a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// Where its first slot begins.
    pub base: u64,
    /// From one of its slots to the next.
    pub row: u64,
    /// Rows of the file.
    pub rows: u64,
}

impl Place {
    /// Where a rank's operation is that has so many larger ones before it, of so many.
    pub fn offset(&self, before: u64, larges: u64) -> u64 {
        // Who has fewer than others has them all over the file; one or two less are none at its end.
        let row = match larges > 0 && larges < self.rows - self.rows / 10 {
            true => (u128::from(before) * u128::from(self.rows) / u128::from(larges)) as u64,
            false => before,
        };
        self.base.saturating_add(row.saturating_mul(self.row))
    }
}

impl Sharing {
    /// Takes in a record.
    pub fn add(&mut self, counters: &Counters<'_>) {
        let Some(rank) = counters.rank() else { return };
        for direction in Direction::BOTH {
            let Some(sharer) = sharer(counters, rank, direction) else { continue };
            let shared = self.files.entry((counters.id(), direction)).or_default();
            shared.ranks.push(sharer);
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

    /// Who has which place.
    pub fn places(self) -> Places {
        let places = self.files.into_iter().flat_map(|((file, direction), shared)| {
            shared.places().into_iter().map(move |(rank, place)| ((file, direction, rank), place))
        });
        Places { places: places.collect() }
    }
}

impl Places {
    /// The place of the rank of a record.
    pub fn of(&self, counters: &Counters<'_>, direction: Direction) -> Place {
        let rank = counters.rank().unwrap_or(0);
        // Who is not there moves nothing.
        let nothing = Place { base: 0, row: 0, rows: 1 };
        self.places.get(&(counters.id(), direction, rank)).copied().unwrap_or(nothing)
    }
}

/// What a record says of a rank that moves bytes.
fn sharer(counters: &Counters<'_>, rank: u32, direction: Direction) -> Option<Sharer> {
    let plan = Plan::of(counters, direction);
    let sharer = Sharer { rank, bytes: plan.bytes, extent: plan.extent, rows: plan.larges() };
    (plan.bytes > 0).then_some(sharer)
}

impl Shared {
    fn places(mut self) -> Vec<(u32, Place)> {
        let most = self.ranks.iter().map(|rank| rank.bytes).max().unwrap_or(0);
        let alone = |own: &Sharer, base: u64| {
            let row = ((own.extent - base) / own.rows.max(1)).max(1);
            (own.rank, Place { base, row, rows: own.rows.max(1) })
        };
        self.ranks.sort_by_key(|rank| (rank.extent, rank.rank));
        let (mut sharers, beside): (Vec<_>, Vec<_>) =
            self.ranks.iter().copied().partition(|rank| rank.bytes >= most / BESIDE);
        let mut places: Vec<_> = beside.iter().map(|own| alone(own, 0)).collect();
        let apart = |pair: &[Sharer]| pair[1].extent - pair[0].extent >= pair[1].bytes;
        if sharers.windows(2).all(apart) {
            let bases = std::iter::once(0).chain(sharers.iter().map(|rank| rank.extent));
            places.extend(sharers.iter().zip(bases).map(|(own, base)| alone(own, base)));
            return places;
        }
        let count = sharers.len() as u64;
        let rows = sharers.iter().map(|rank| rank.rows).max().unwrap_or(1).max(1);
        let extent = sharers.iter().map(|rank| rank.extent).max().unwrap_or(0);
        let fills = (extent / count.saturating_mul(rows)).max(1);
        let slot = self.named(count, fills).unwrap_or(fills);
        sharers.sort_by_key(|rank| rank.rank);
        places.extend(sharers.iter().zip(0u64..).map(|(own, number)| {
            (own.rank, Place { base: number.saturating_mul(slot), row: count.saturating_mul(slot), rows })
        }));
        places
    }

    /// The slot that counters name for so many ranks, near the one that fills the file.
    fn named(&self, count: u64, fills: u64) -> Option<u64> {
        let slots = self.strides.iter().filter(|(way, _)| way.is_multiple_of(count));
        let slots = slots.map(|(way, times)| (way / count, *times));
        let fit = slots.filter(|(slot, _)| slot.is_multiple_of(PAGE) && slot.abs_diff(fills) <= fills / NEAR);
        fit.max_by_key(|(slot, times)| (*times, *slot)).map(|(slot, _)| slot)
    }
}
