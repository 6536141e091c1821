//! How long operations are, and in which order.

use super::Direction;
use crate::darshan::counters::{Record as Counters, SIZE_CLASSES};

/// Most operations of a direction of a file: counters of damaged logs may say anything.
const OPERATIONS_MAX: u64 = 1 << 32;
/// Sizes that Darshan counts by value.
const COMMON: usize = 4;

/// Operations of one size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kind {
    pub size: u64,
    pub number: u64,
    /// Whether the size was counted, and is not the middle of a class.
    pub is_exact: bool,
}

/// The sizes of a direction, by class; those that were not counted by value are the middle of their class.
pub fn kinds(counters: &Counters<'_>, direction: Direction, bytes: u64) -> Vec<Kind> {
    let classes = Direction::BOTH.map(|direction| counters.sizes("POSIX", direction.name()));
    let own = Direction::BOTH.iter().position(|of| *of == direction).expect("one of both");
    let common: [(u64, u64); COMMON] = std::array::from_fn(|n| {
        let count = |what: &str| counters.count(&format!("POSIX_ACCESS{}_{what}", n + 1));
        (count("ACCESS"), count("COUNT"))
    });
    let mut left = OPERATIONS_MAX;
    let mut kinds = Vec::new();
    for (class, numbers) in classes[own].iter().zip(&classes[1 - own]).enumerate() {
        // Every class may take what others leave of the most there can be.
        let number = (*numbers.0).min(left);
        left -= number;
        let low = if class == 0 { 1 } else { SIZE_CLASSES[class - 1] };
        let high = SIZE_CLASSES[class];
        let both = u128::from(*numbers.0) + u128::from(*numbers.1);
        let mut rest = number;
        for (size, count) in common.iter().filter(|(size, _)| (low..high).contains(size)) {
            // Darshan counts values over both directions.
            let part = (u128::from(*count) * u128::from(number)).checked_div(both).unwrap_or(0) as u64;
            let number = part.min(rest);
            rest -= number;
            kinds.push(Kind { size: *size, number, is_exact: true });
        }
        let middle = ((low as f64) * (high.min(low.saturating_mul(10)) as f64)).sqrt() as u64;
        kinds.push(Kind { size: middle, number: rest, is_exact: false });
    }
    kinds.retain(|kind| kind.number > 0);
    fitted(&mut kinds, bytes);
    kinds
}

/// How many operations of all kinds.
pub fn operations(kinds: &[Kind]) -> u64 {
    kinds.iter().map(|kind| kind.number).sum()
}

/// Bytes of kinds.
fn sum<'a>(kinds: impl IntoIterator<Item = &'a Kind>) -> u128 {
    kinds.into_iter().map(|kind| u128::from(kind.size) * u128::from(kind.number)).sum()
}

/// What was not counted has the bytes that are left; where that cannot be, nothing is exact.
fn fitted(kinds: &mut [Kind], bytes: u64) {
    let exact = sum(kinds.iter().filter(|kind| kind.is_exact));
    let guessed = sum(kinds.iter().filter(|kind| !kind.is_exact));
    let Some(left) = u128::from(bytes).checked_sub(exact) else {
        return kinds.iter_mut().for_each(|kind| kind.is_exact = false);
    };
    // Classes go from one to ten times a size, the middle is a third of the end.
    if (guessed == 0 && left > 0) || left > guessed * 4 || left * 4 < guessed {
        return kinds.iter_mut().for_each(|kind| kind.is_exact = false);
    }
    for kind in kinds.iter_mut().filter(|kind| !kind.is_exact) {
        kind.size = (u128::from(kind.size) * left / guessed) as u64;
    }
}

/// Operations of all kinds, each evenly among the others, with their lengths: those that are not exact are stretched so
/// that all are the bytes that were counted.
pub struct Mixed<'a> {
    kinds: &'a [Kind],
    /// Of each kind, how many there were.
    had: Vec<u64>,
    index: u64,
    operations: u64,
    /// Bytes of guessed sizes so far and in all, and the bytes that these have to be.
    guessed: (u128, u128, u128),
}

impl<'a> Mixed<'a> {
    pub fn new(kinds: &'a [Kind], bytes: u64) -> Self {
        let exact = sum(kinds.iter().filter(|kind| kind.is_exact));
        let guessed = sum(kinds.iter().filter(|kind| !kind.is_exact));
        let left = u128::from(bytes).saturating_sub(exact);
        Self {
            kinds,
            had: vec![0; kinds.len()],
            index: 0,
            operations: operations(kinds),
            guessed: (0, guessed, left),
        }
    }
}

impl Iterator for Mixed<'_> {
    type Item = (usize, u64);

    fn next(&mut self) -> Option<(usize, u64)> {
        if self.index == self.operations {
            return None;
        }
        self.index += 1;
        // The one that is furthest behind; of equals the last one.
        let behind = |kind: usize| {
            let due = u128::from(self.kinds[kind].number) * u128::from(self.index);
            due as i128 - (u128::from(self.had[kind]) * u128::from(self.operations)) as i128
        };
        let left = (0..self.kinds.len()).filter(|kind| self.had[*kind] < self.kinds[*kind].number);
        let kind = left.max_by_key(|kind| behind(*kind)).expect("as many as there are");
        self.had[kind] += 1;
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
