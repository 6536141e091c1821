//! Sizes of the reconstructed operations, and their order.

use super::Direction;
use crate::darshan::counters::{Record as Counters, SIZE_CLASSES};

/// Maximum number of operations per file and direction. Counters of damaged logs can have any value.
const OPERATIONS_MAX: u64 = 1 << 32;
/// Number of sizes that Darshan counts by value.
const COMMON_SIZES: usize = 4;

/// Operations of one size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SizeGroup {
    pub size: u64,
    pub number: u64,
    /// Whether Darshan counted this size by value. Otherwise the size is fitted to its class.
    pub is_exact: bool,
}

/// Returns the sizes of one direction, in the order of the size classes.
///
/// Operations whose size was not counted by value start with the geometric mean of their class.
pub fn kinds(counters: &Counters<'_>, direction: Direction, bytes: u64) -> Vec<SizeGroup> {
    let classes = Direction::BOTH.map(|direction| counters.sizes("POSIX", direction.name()));
    let own = Direction::BOTH.iter().position(|of| *of == direction).expect("one of both");
    let common: [(u64, u64); COMMON_SIZES] = std::array::from_fn(|n| {
        let count = |what: &str| counters.count(&format!("POSIX_ACCESS{}_{what}", n + 1));
        (count("ACCESS"), count("COUNT"))
    });
    let mut left = OPERATIONS_MAX;
    let mut kinds = Vec::new();
    for (class, numbers) in classes[own].iter().zip(&classes[1 - own]).enumerate() {
        // Limits the total: each class may use what previous classes left.
        let number = (*numbers.0).min(left);
        left -= number;
        let low = if class == 0 { 1 } else { SIZE_CLASSES[class - 1] };
        let high = SIZE_CLASSES[class];
        let both = u128::from(*numbers.0) + u128::from(*numbers.1);
        let mut rest = number;
        for (size, count) in common.iter().filter(|(size, _)| (low..high).contains(size)) {
            // Darshan counts common sizes over reads and writes together: split in proportion.
            let part = (u128::from(*count) * u128::from(number)).checked_div(both).unwrap_or(0) as u64;
            let number = part.min(rest);
            rest -= number;
            kinds.push(SizeGroup { size: *size, number, is_exact: true });
        }
        let middle = ((low as f64) * (high.min(low.saturating_mul(10)) as f64)).sqrt() as u64;
        kinds.push(SizeGroup { size: middle, number: rest, is_exact: false });
    }
    kinds.retain(|kind| kind.number > 0);
    fit_to_total(&mut kinds, bytes);
    kinds
}

/// Total number of operations.
pub fn operations(kinds: &[SizeGroup]) -> u64 {
    kinds.iter().map(|kind| kind.number).sum()
}

/// Total number of bytes.
fn sum<'a>(kinds: impl IntoIterator<Item = &'a SizeGroup>) -> u128 {
    kinds.into_iter().map(|kind| u128::from(kind.size) * u128::from(kind.number)).sum()
}

/// Scales guessed sizes so that all sizes add up to `bytes`. If that is impossible, treats all sizes as guessed.
fn fit_to_total(kinds: &mut [SizeGroup], bytes: u64) {
    let exact = sum(kinds.iter().filter(|kind| kind.is_exact));
    let guessed = sum(kinds.iter().filter(|kind| !kind.is_exact));
    let Some(left) = u128::from(bytes).checked_sub(exact) else {
        return kinds.iter_mut().for_each(|kind| kind.is_exact = false);
    };
    // A class spans a factor of ten, so its bounds are about a factor of three from the geometric mean.
    if (guessed == 0 && left > 0) || left > guessed * 4 || left * 4 < guessed {
        return kinds.iter_mut().for_each(|kind| kind.is_exact = false);
    }
    for kind in kinds.iter_mut().filter(|kind| !kind.is_exact) {
        kind.size = (u128::from(kind.size) * left / guessed) as u64;
    }
}

/// Iterates over operations, with each size spread evenly over the sequence.
///
/// Guessed sizes are scaled so that the lengths add up to the counted bytes.
pub struct Interleaved<'a> {
    kinds: &'a [SizeGroup],
    /// Operations generated so far, by index of the size.
    generated: Vec<u64>,
    index: u64,
    operations: u64,
    /// Guessed bytes generated so far before scaling, their total, and the total after scaling.
    guessed: (u128, u128, u128),
}

impl<'a> Interleaved<'a> {
    pub fn new(kinds: &'a [SizeGroup], bytes: u64) -> Self {
        let exact = sum(kinds.iter().filter(|kind| kind.is_exact));
        let guessed = sum(kinds.iter().filter(|kind| !kind.is_exact));
        let left = u128::from(bytes).saturating_sub(exact);
        Self {
            kinds,
            generated: vec![0; kinds.len()],
            index: 0,
            operations: operations(kinds),
            guessed: (0, guessed, left),
        }
    }
}

impl Iterator for Interleaved<'_> {
    type Item = (usize, u64);

    fn next(&mut self) -> Option<(usize, u64)> {
        if self.index == self.operations {
            return None;
        }
        self.index += 1;
        // The size that is furthest behind its even share; of equals the last.
        let behind = |kind: usize| {
            let due = u128::from(self.kinds[kind].number) * u128::from(self.index);
            due as i128 - (u128::from(self.generated[kind]) * u128::from(self.operations)) as i128
        };
        let left = (0..self.kinds.len()).filter(|kind| self.generated[*kind] < self.kinds[*kind].number);
        let kind = left.max_by_key(|kind| behind(*kind)).expect("index < operations");
        self.generated[kind] += 1;
        let size = self.kinds[kind].size;
        if self.kinds[kind].is_exact {
            return Some((kind, size));
        }
        let (before, all, bytes) = &mut self.guessed;
        let stretched = |before: u128| before.saturating_mul(*bytes).checked_div(*all).unwrap_or(0);
        let from = stretched(*before);
        let to = stretched(*before + u128::from(size));
        *before += u128::from(size);
        Some((kind, (to - from) as u64))
    }
}
