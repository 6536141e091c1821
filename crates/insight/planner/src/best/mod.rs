//! `best`: a search over multi-part layouts with the queueing model as its objective.
//!
//! A layout is a sequence of parts. Each part covers a range of the file and is striped over a subset of the classes,
//! with one stripe size per class. A part over a class of limited capacity ends at the latest where that class is full.
//!
//! The search is a beam search with local improvement. Each stage evaluates fewer layouts with more requests:
//!
//! | stage | layouts | requests of the sample |
//! | --- | --- | --- |
//! | 1. seeds | every sequence of class subsets, five stripe sizes each | 4,096 |
//! | 2. local search | the best 5 sequences: one stripe size or part length at a time, up to 3 passes | 4,096 |
//! | 3. re-ranking | the best 64, and the best of 8 sequences; the winner is improved again | 32,768 |
//! | 4. final | the best 8, the best of 5 sequences, DEF, PA and PSA | all, mean of several runs |
//! | 5. hot ranges | the winner, with its limited part moved to the busiest ranges | all, mean of several runs |
//!
//! A later layout replaces an earlier one only by a margin: 0.1 % in general, 1.5 % against DEF, PA and PSA, and 1 %
//! more for each part beyond the second. The margin keeps the search from fitting noise of the sample.

mod candidate_pool;
mod hot_ranges;
mod part_sequence;

use crate::figures::Figures;
use crate::model::{Load, Outcome, run, run_averaged};
use crate::placement::ClassPlacement;
use crate::survey::FileGroup;
use candidate_pool::{CandidatePool, Evaluated};
use part_sequence::{PartSequence, STRIPE_MIN, seeds};
use std::cell::Cell;

/// Requests of the sample in the first two stages.
const REQUESTS_COARSE: usize = 4096;
/// Maximum connection windows that these requests fill. Longer requests take more events to simulate.
const WINDOWS_MAX: u64 = 32_768;
/// Sequences of class subsets that are improved in stage 2.
const IMPROVED_SEQUENCES: usize = 5;
/// Requests of the sample in stage 3. Ranks drift apart in longer runs, which changes the effect of page cache and
/// heads.
const REQUESTS_FINE: usize = 8 * REQUESTS_COARSE;
/// Layouts evaluated again in stage 3.
const RERANKED_LAYOUTS: usize = 64;
/// Layouts improved again in stage 3.
const REIMPROVED_LAYOUTS: usize = 1;
/// Layouts evaluated with the whole sample, in addition to the given ones and the best of other sequences.
const FINALISTS: usize = 8;
/// Maximum passes over all stripe sizes and part lengths of a layout.
const PASSES_MAX: usize = 3;
/// Relative gain that a layout needs to replace a simpler one.
const GAIN_MIN_DEFAULT: f64 = 1e-3;

/// Relative gain that a layout needs to replace DEF, PA or PSA.
const GAIN_OVER_PAPER_MIN: f64 = 0.015;
/// Relative gain required of each part beyond the second. A smaller gain fits the sample rather than the program.
const GAIN_PER_PART_MIN: f64 = 0.01;

/// A search for the layout of one file group.
pub struct Search<'a> {
    /// Figures of the cluster.
    pub figures: &'a Figures,
    /// Files that share the layout.
    pub group: &'a FileGroup,
    /// Bytes available on each target of each class for all files of the group.
    pub capacities: &'a [u64],
    /// Requests to these files.
    pub load: &'a Load,
    /// Maximum number of parts of a layout.
    pub parts_max: usize,
}

/// Result of a search.
#[derive(Clone, Debug)]
pub struct SearchResult {
    /// The best layout.
    pub placement: ClassPlacement,
    /// Its predicted times.
    pub outcome: Outcome,
    /// Number of layouts evaluated.
    pub tried: usize,
}

impl Search<'_> {
    /// Returns the fastest layout. Under the model it is never slower than a layout of `given` that fits, rounded to
    /// whole pages, except for the margins described in the module documentation.
    pub fn best(&self, given: &[&ClassPlacement]) -> SearchResult {
        let coarse = self.subsample(REQUESTS_COARSE);
        let count = Cell::new(0);
        let evaluate = |placement: &ClassPlacement, load: &Load| {
            count.set(count.get() + 1);
            run(self.figures, load, &[placement]).seconds
        };
        let mut pool = CandidatePool::default();
        for sequence in seeds(self) {
            if let Some(placement) = sequence.placement(self) {
                pool.add(evaluate(&placement, &coarse), Some(sequence), placement);
            }
        }
        let firsts = pool.best_per_sequence(usize::MAX);
        // Moved to the busiest ranges, a limited part may be worth more than at the beginning of the file.
        for first in &firsts {
            for other in hot_ranges::variants(self, &first.placement) {
                pool.add(evaluate(&other, &coarse), None, other);
            }
        }
        for first in firsts.iter().take(IMPROVED_SEQUENCES) {
            self.improve(first, &mut pool, &|placement| evaluate(placement, &coarse));
        }
        let fine = self.subsample(REQUESTS_FINE);
        if fine.requests() > coarse.requests() {
            pool.retain_best(RERANKED_LAYOUTS, FINALISTS);
            pool.reevaluate(&|placement| evaluate(placement, &fine));
            for first in pool.best_per_sequence(REIMPROVED_LAYOUTS) {
                self.improve(&first, &mut pool, &|placement| evaluate(placement, &fine));
            }
        }
        pool.retain_best(FINALISTS, IMPROVED_SEQUENCES);
        let given = given.iter().filter_map(|placement| self.whole_pages(placement));
        let given: Vec<ClassPlacement> = given.filter(|placement| self.fits(placement)).collect();
        // The given layouts come first, so that they win ties.
        let candidates: Vec<ClassPlacement> = given.iter().cloned().chain(pool.placements()).collect();
        let mut best: Option<(ClassPlacement, Outcome)> = None;
        let adjusted_seconds = |placement: &ClassPlacement, outcome: &Outcome| {
            outcome.seconds * (1.0 + GAIN_PER_PART_MIN * placement.parts.len().saturating_sub(2) as f64)
        };
        let given_count = given.len();
        let mut number = 0;
        let mut evaluate_finalist =
            |placement: ClassPlacement, best: &mut Option<(ClassPlacement, Outcome)>| {
                let outcome = run_averaged(self.figures, self.load, &placement);
                number += 1;
                // A small gain in the model alone does not justify a layout of our own.
                let is_given = |other: &ClassPlacement| given.contains(other);
                let now = adjusted_seconds(&placement, &outcome);
                let better = |(other, least): &(ClassPlacement, Outcome)| {
                    let replaces_paper = number > given_count && is_given(other);
                    let needed = if replaces_paper { GAIN_OVER_PAPER_MIN } else { GAIN_MIN_DEFAULT };
                    now < adjusted_seconds(other, least) * (1.0 - needed)
                };
                if best.as_ref().is_none_or(better) {
                    *best = Some((placement, outcome));
                }
            };
        candidates.into_iter().for_each(|placement| evaluate_finalist(placement, &mut best));
        let variants = best.iter().flat_map(|(placement, _)| hot_ranges::variants(self, placement));
        let variants: Vec<ClassPlacement> = variants.collect();
        variants.into_iter().for_each(|placement| evaluate_finalist(placement, &mut best));
        let (placement, outcome) = best.expect("a class has capacity for all");
        SearchResult { placement, outcome, tried: count.get() }
    }

    /// Subsamples the load, more strongly if requests are long and therefore fill many connection windows.
    fn subsample(&self, requests: usize) -> Load {
        let thin = self.load.subsample(requests);
        let pieces = thin.bytes() / self.figures.network.window.0.max(1);
        let most = WINDOWS_MAX * (requests / REQUESTS_COARSE) as u64;
        if pieces <= most {
            thin
        } else {
            self.load.subsample((requests as u64 * most / pieces).max(1) as usize)
        }
    }

    /// A layout with stripes rounded to whole pages.
    fn whole_pages(&self, placement: &ClassPlacement) -> Option<ClassPlacement> {
        let mut stripe_sizes = placement.parts.iter().flat_map(|part| &part.stripes);
        match stripe_sizes.all(|size| size.is_multiple_of(STRIPE_MIN)) {
            true => Some(placement.clone()),
            false => PartSequence::of(placement).placement(self),
        }
    }

    fn fits(&self, placement: &ClassPlacement) -> bool {
        placement.parts.len() <= self.parts_max
            && placement.fits(self.figures, self.capacities, self.group.extent, self.group.files.max(1))
    }

    /// Hill climbing: varies one stripe size or part length at a time, and continues from each improvement. Every
    /// layout tried is added to the pool.
    fn improve(
        &self,
        from: &Evaluated,
        pool: &mut CandidatePool,
        evaluate: &impl Fn(&ClassPlacement) -> f64,
    ) {
        let Evaluated { sequence: Some(sequence), mut placement, mut seconds } = from.clone() else { return };
        let mut sequence = sequence;
        for _ in 0..PASSES_MAX {
            let before = seconds;
            for other in 0..sequence.parameters() {
                for (varied, needed) in sequence.variants(other, self) {
                    let Some(candidate) = varied.placement(self) else { continue };
                    if candidate == placement {
                        continue;
                    }
                    let time = evaluate(&candidate);
                    pool.add(time, Some(varied.clone()), candidate.clone());
                    if time < seconds * (1.0 - needed) {
                        (sequence, placement, seconds) = (varied, candidate, time);
                    }
                }
            }
            if seconds > before * (1.0 - GAIN_MIN_DEFAULT) {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests;
