//! The pool of layouts evaluated so far.

use super::part_sequence::PartSequence;
use crate::placement::ClassPlacement;

/// An evaluated layout.
#[derive(Clone, Debug)]
pub(super) struct Evaluated {
    /// Predicted time for the load of the current stage, seconds.
    pub(super) seconds: f64,
    /// The candidate it was made from; `None` if a part was moved.
    pub(super) sequence: Option<PartSequence>,
    pub(super) placement: ClassPlacement,
}

/// Evaluated layouts without duplicates.
#[derive(Default)]
pub(super) struct CandidatePool(Vec<Evaluated>);

impl CandidatePool {
    /// Adds a layout that is not in the pool yet.
    pub(super) fn add(&mut self, seconds: f64, sequence: Option<PartSequence>, placement: ClassPlacement) {
        if !self.0.iter().any(|tried| tried.placement == placement) {
            self.0.push(Evaluated { seconds, sequence, placement });
        }
    }

    fn sort(&mut self) {
        self.0.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
    }

    /// The best layout of each sequence of class subsets, at most `most` of them, best first.
    pub(super) fn best_per_sequence(&mut self, most: usize) -> Vec<Evaluated> {
        self.sort();
        let mut firsts: Vec<(&PartSequence, &Evaluated)> = Vec::new();
        for tried in &self.0 {
            let Some(sequence) = &tried.sequence else { continue };
            if firsts.len() < most && !firsts.iter().any(|(other, _)| other.same_classes(sequence)) {
                firsts.push((sequence, tried));
            }
        }
        firsts.into_iter().map(|(_, tried)| tried.clone()).collect()
    }

    /// Keeps the best `most` layouts, and the best layout of each of the best `firsts` sequences.
    pub(super) fn retain_best(&mut self, most: usize, firsts: usize) {
        let firsts = self.best_per_sequence(firsts);
        let rest = self.0.split_off(most.min(self.0.len()));
        let is_first = |tried: &Evaluated| firsts.iter().any(|first| first.placement == tried.placement);
        self.0.extend(rest.into_iter().filter(is_first));
    }

    /// Evaluates all layouts again with another load.
    pub(super) fn reevaluate(&mut self, evaluate: &impl Fn(&ClassPlacement) -> f64) {
        self.0.iter_mut().for_each(|tried| tried.seconds = evaluate(&tried.placement));
        self.sort();
    }

    /// All layouts, best first.
    pub(super) fn placements(mut self) -> impl Iterator<Item = ClassPlacement> {
        self.sort();
        self.0.into_iter().map(|tried| tried.placement)
    }
}
