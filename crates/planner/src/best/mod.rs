//! `best`: a search over composite layouts, by the planner's own model.
//!
//! A layout is a row of parts, each over a set of classes (all, one alone, …) with stripe sizes of their own. A part over
//! a class with limited room ends where that room does, or earlier.
//!
//! ```text
//! rows of sets of classes x a few stripe sizes --small sample--> the best few --one size at a time--> better ones
//!    --whole sample, with DEF, PA and PSA--> the winner --the busiest ranges first?--> the winner
//! ```

mod hot;
mod rows;

use crate::figures::Figures;
use crate::model::{Load, Outcome, mean, run};
use crate::placing::Placing;
use crate::survey::Unit;
use rows::{Row, STRIPE_MIN, rows};

/// Requests of the sample by which candidates are found.
const SMALL: usize = 4096;
/// Pieces as connections hold them of these requests at most.
const PIECES: u64 = 32_768;
/// Courses of chance by which the last ones are judged.
pub const CHANCES: u32 = 4;
/// Rows that are improved.
const IMPROVED: usize = 5;
/// Layouts that are judged by the whole sample, beside those that were given. Of a part of it the order of long runs
/// cannot be told: how far ranks get apart, and so what memory can gather, grows with the run.
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
        let small = self.small();
        let mut tried = 0;
        let mut judge = |placing: &Placing, load: &Load| {
            tried += 1;
            run(self.figures, load, &[placing])
        };
        let mut scored: Vec<(f64, Row, Placing)> = Vec::new();
        for row in rows(self) {
            if let Some(placing) = row.placing(self) {
                let seconds = judge(&placing, &small).seconds;
                keep(&mut scored, (seconds, row, placing));
            }
        }
        scored.sort_by(|a, b| a.0.total_cmp(&b.0));
        // Moved to where it is used, the part with limited room may be worth what it is not in front.
        let mut improved: Vec<(f64, Placing)> = Vec::new();
        for (_, _, placing) in firsts_of_each(&scored, usize::MAX) {
            for other in hot::moved(self, placing) {
                improved.push((judge(&other, &small).seconds, other));
            }
        }
        for (seconds, row, placing) in firsts_of_each(&scored, IMPROVED) {
            let better = self.improve(row.clone(), placing.clone(), *seconds, &mut |placing| {
                judge(placing, &small).seconds
            });
            improved.push(better);
        }
        improved.sort_by(|a, b| a.0.total_cmp(&b.0));
        improved.truncate(JUDGED);
        let given = given.iter().filter_map(|placing| self.paged(placing));
        let given: Vec<Placing> = given.filter(|placing| self.fits(placing)).collect();
        // Those that were given come first: they stay where nothing is better.
        let candidates: Vec<Placing> =
            given.iter().cloned().chain(improved.into_iter().map(|(_, placing)| placing)).collect();
        let mut best: Option<(Placing, Outcome)> = None;
        let price = |placing: &Placing, outcome: &Outcome| {
            outcome.seconds * (1.0 + PART_PRICE * placing.parts.len().saturating_sub(2) as f64)
        };
        let simple = given.len();
        let mut judged = 0;
        let mut judge_last = |placing: Placing, best: &mut Option<(Placing, Outcome)>| {
            let outcome = mean(self.figures, self.load, &placing, CHANCES);
            judged += 1;
            // What is a little faster by the model alone is no reason to leave what others would do.
            let is_simple = |other: &Placing| given.contains(other);
            let now = price(&placing, &outcome);
            let better = |(other, least): &(Placing, Outcome)| {
                let needed = if judged > simple && is_simple(other) { WORTH } else { BETTER };
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
        Found { placing, outcome, tried }
    }

    /// What most candidates are judged by: long requests are many pieces each on their way.
    fn small(&self) -> Load {
        let small = self.load.thin(SMALL);
        let pieces = small.bytes() / self.figures.network.window.0.max(1);
        if pieces <= PIECES {
            small
        } else {
            self.load.thin((SMALL as u64 * PIECES / pieces).max(1) as usize)
        }
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

    /// Goes through the stripe sizes and ends of the parts, one at a time, and takes what is better.
    fn improve(
        &self,
        mut row: Row,
        mut placing: Placing,
        mut seconds: f64,
        judge: &mut impl FnMut(&Placing) -> f64,
    ) -> (f64, Placing) {
        for _ in 0..PASSES {
            let before = seconds;
            for other in 0..row.choices() {
                for (row_with, needed) in row.variants(other, self) {
                    let Some(candidate) = row_with.placing(self) else { continue };
                    if candidate == placing {
                        continue;
                    }
                    let time = judge(&candidate);
                    if time < seconds * (1.0 - needed) {
                        (row, placing, seconds) = (row_with, candidate, time);
                    }
                }
            }
            if seconds > before * (1.0 - BETTER) {
                break;
            }
        }
        (seconds, placing)
    }
}

/// Adds what is not there yet.
fn keep(scored: &mut Vec<(f64, Row, Placing)>, new: (f64, Row, Placing)) {
    if !scored.iter().any(|(.., placing)| *placing == new.2) {
        scored.push(new);
    }
}

/// The best of each set of classes in a row, the best rows first, so many.
fn firsts_of_each(scored: &[(f64, Row, Placing)], max: usize) -> Vec<&(f64, Row, Placing)> {
    let mut firsts: Vec<&(f64, Row, Placing)> = Vec::new();
    for one in scored {
        if firsts.len() < max && !firsts.iter().any(|(_, other, _)| other.same_sets(&one.1)) {
            firsts.push(one);
        }
    }
    firsts
}

#[cfg(test)]
mod tests;
