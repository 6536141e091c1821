//! Layouts that were tried, and how long they take by what they were tried with.

use super::rows::Row;
use crate::placing::Placing;

/// A layout that was tried.
#[derive(Clone, Debug)]
pub(super) struct Tried {
    /// By the requests that the board stands for.
    pub(super) seconds: f64,
    /// What it was made of; none where a part was moved.
    pub(super) row: Option<Row>,
    pub(super) placing: Placing,
}

/// Layouts by what was tried last, each once.
#[derive(Default)]
pub(super) struct Board(Vec<Tried>);

impl Board {
    /// Adds what is not there yet.
    pub(super) fn add(&mut self, seconds: f64, row: Option<Row>, placing: Placing) {
        if !self.0.iter().any(|tried| tried.placing == placing) {
            self.0.push(Tried { seconds, row, placing });
        }
    }

    fn sort(&mut self) {
        self.0.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
    }

    /// The best of each row of sets of classes, the best first, so many.
    pub(super) fn firsts_of_each(&mut self, most: usize) -> Vec<Tried> {
        self.sort();
        let mut firsts: Vec<(&Row, &Tried)> = Vec::new();
        for tried in &self.0 {
            let Some(row) = &tried.row else { continue };
            if firsts.len() < most && !firsts.iter().any(|(other, _)| other.same_sets(row)) {
                firsts.push((row, tried));
            }
        }
        firsts.into_iter().map(|(_, tried)| tried.clone()).collect()
    }

    /// Keeps the best, so many, and the best of so many rows of sets.
    pub(super) fn keep(&mut self, most: usize, firsts: usize) {
        let firsts = self.firsts_of_each(firsts);
        let rest = self.0.split_off(most.min(self.0.len()));
        let is_first = |tried: &Tried| firsts.iter().any(|first| first.placing == tried.placing);
        self.0.extend(rest.into_iter().filter(is_first));
    }

    /// Tries all of them again, with something else.
    pub(super) fn again(&mut self, judge: &impl Fn(&Placing) -> f64) {
        self.0.iter_mut().for_each(|tried| tried.seconds = judge(&tried.placing));
        self.sort();
    }

    /// What is there, the best first.
    pub(super) fn placings(mut self) -> impl Iterator<Item = Placing> {
        self.sort();
        self.0.into_iter().map(|tried| tried.placing)
    }
}
