//! `best`: a search over composite layouts, by the planner's own model.
//!
//! A layout is a row of parts, each over a set of classes (all, one alone, …) with stripe sizes of their own. A part over
//! a class with limited room ends where that room does, or earlier.
//!
//! ```text
//! rows of sets of classes x a few stripe sizes --small sample--> the best few --one size at a time--> all that was tried
//!    --the best of it by a larger sample--> the very best --one size at a time--> the best of all that
//!    --whole sample, with DEF, PA and PSA--> the winner --the busiest ranges first?--> the winner
//! ```

mod board;
mod hot;
mod rows;

use crate::figures::Figures;
use crate::model::{Load, Outcome, judged, run};
use crate::placing::Placing;
use crate::survey::Unit;
use board::{Board, Tried};
use rows::{Row, STRIPE_MIN, rows};
use std::cell::Cell;

/// Requests of the sample by which candidates are found.
const SMALL: usize = 4096;
/// Pieces as connections hold them of these requests at most.
const PIECES: u64 = 32_768;
/// Rows that are improved.
const IMPROVED: usize = 5;
/// Requests by which the best of what was tried is looked at again: how far ranks get apart, and so what memory and heads make
/// of it, grows with the run.
const MIDDLE: usize = 8 * SMALL;
/// So many layouts are looked at again.
const KEPT: usize = 64;
/// And so many of these improved once more.
const CLIMBED: usize = 1;
/// Layouts that are judged by the whole sample, beside those that were given and the best of other rows.
const JUDGED: usize = 8;
/// Times that all stripe sizes of a row are gone through.
const PASSES: usize = 3;
/// A layout has to be so much faster to be taken instead of a simpler one.
const BETTER: f64 = 1e-3;

/// And so much faster than those of DEF, PA and PSA to be taken instead of them.
const WORTH: f64 = 0.015;
/// Each part beyond the second has to gain so much, or it fits the sample and not the program.
const PART_PRICE: f64 = 0.01;

/// What is searched for.
pub struct Search<'a> {
    /// The cluster.
    pub figures: &'a Figures,
    /// Files that are laid out alike.
    pub unit: &'a Unit,
    /// Room on each target of each class for all files of the unit, bytes.
    pub rooms: &'a [u64],
    /// Their requests.
    pub load: &'a Load,
    /// Parts that a layout may have.
    pub parts_max: usize,
}

/// What was found.
#[derive(Clone, Debug)]
pub struct Found {
    /// The layout.
    pub placing: Placing,
    /// What the model says of it.
    pub outcome: Outcome,
    /// How many layouts were tried.
    pub tried: usize,
}

impl Search<'_> {
    /// The fastest layout that was found; never slower by the model than those of `given` that fit,
    /// with stripes of whole pages.
    pub fn best(&self, given: &[&Placing]) -> Found {
        let small = self.thin(SMALL);
        let count = Cell::new(0);
        let judge = |placing: &Placing, load: &Load| {
            count.set(count.get() + 1);
            run(self.figures, load, &[placing]).seconds
        };
        let mut board = Board::default();
        for row in rows(self) {
            if let Some(placing) = row.placing(self) {
                board.add(judge(&placing, &small), Some(row), placing);
            }
        }
        let firsts = board.firsts_of_each(usize::MAX);
        // Moved to where it is used, the part with limited room may be worth what it is not in front.
        for first in &firsts {
            for other in hot::moved(self, &first.placing) {
                board.add(judge(&other, &small), None, other);
            }
        }
        for first in firsts.iter().take(IMPROVED) {
            self.improve(first, &mut board, &|placing| judge(placing, &small));
        }
        let middle = self.thin(MIDDLE);
        if middle.requests() > small.requests() {
            board.keep(KEPT, JUDGED);
            board.again(&|placing| judge(placing, &middle));
            for first in board.firsts_of_each(CLIMBED) {
                self.improve(&first, &mut board, &|placing| judge(placing, &middle));
            }
        }
        board.keep(JUDGED, IMPROVED);
        let given = given.iter().filter_map(|placing| self.paged(placing));
        let given: Vec<Placing> = given.filter(|placing| self.fits(placing)).collect();
        // Those that were given come first: they stay where nothing is better.
        let candidates: Vec<Placing> = given.iter().cloned().chain(board.placings()).collect();
        let mut best: Option<(Placing, Outcome)> = None;
        let price = |placing: &Placing, outcome: &Outcome| {
            outcome.seconds * (1.0 + PART_PRICE * placing.parts.len().saturating_sub(2) as f64)
        };
        let simple = given.len();
        let mut number = 0;
        let mut judge_last = |placing: Placing, best: &mut Option<(Placing, Outcome)>| {
            let outcome = judged(self.figures, self.load, &placing);
            number += 1;
            // What is a little faster by the model alone is no reason to leave what others would do.
            let is_simple = |other: &Placing| given.contains(other);
            let now = price(&placing, &outcome);
            let better = |(other, least): &(Placing, Outcome)| {
                let needed = if number > simple && is_simple(other) { WORTH } else { BETTER };
                now < price(other, least) * (1.0 - needed)
            };
            if best.as_ref().is_none_or(better) {
                *best = Some((placing, outcome));
            }
        };
        candidates.into_iter().for_each(|placing| judge_last(placing, &mut best));
        let moved = best.iter().flat_map(|(placing, _)| hot::moved(self, placing)).collect::<Vec<_>>();
        moved.into_iter().for_each(|placing| judge_last(placing, &mut best));
        let (placing, outcome) = best.expect("a class has room for all");
        Found { placing, outcome, tried: count.get() }
    }

    /// So many requests, fewer where they are long: those are many pieces each on their way.
    fn thin(&self, requests: usize) -> Load {
        let thin = self.load.thin(requests);
        let pieces = thin.bytes() / self.figures.network.window.0.max(1);
        let most = PIECES * (requests / SMALL) as u64;
        if pieces <= most { thin } else { self.load.thin((requests as u64 * most / pieces).max(1) as usize) }
    }

    /// A layout as it is, or with stripes of whole pages.
    fn paged(&self, placing: &Placing) -> Option<Placing> {
        let mut sizes = placing.parts.iter().flat_map(|part| &part.stripes);
        match sizes.all(|size| size.is_multiple_of(STRIPE_MIN)) {
            true => Some(placing.clone()),
            false => Row::of(placing).placing(self),
        }
    }

    fn fits(&self, placing: &Placing) -> bool {
        placing.parts.len() <= self.parts_max
            && placing.fits(self.figures, self.rooms, self.unit.extent, self.unit.files.max(1))
    }

    /// Goes through the stripe sizes and ends of the parts, one at a time, and goes on from what is better; the board has
    /// all that was tried.
    fn improve(&self, from: &Tried, board: &mut Board, judge: &impl Fn(&Placing) -> f64) {
        let Tried { row: Some(row), mut placing, mut seconds } = from.clone() else { return };
        let mut row = row;
        for _ in 0..PASSES {
            let before = seconds;
            for other in 0..row.choices() {
                for (row_with, needed) in row.variants(other, self) {
                    let Some(candidate) = row_with.placing(self) else { continue };
                    if candidate == placing {
                        continue;
                    }
                    let time = judge(&candidate);
                    board.add(time, Some(row_with.clone()), candidate.clone());
                    if time < seconds * (1.0 - needed) {
                        (row, placing, seconds) = (row_with, candidate, time);
                    }
                }
            }
            if seconds > before * (1.0 - BETTER) {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests;
