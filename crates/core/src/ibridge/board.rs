//! What all servers reported of their T, and equation 3.

use super::average::difference;
use crate::units::{Nanos, TargetId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One line of the board on its way.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Report {
    /// Whose disk.
    pub target: TargetId,
    /// Its T.
    pub average: Nanos,
    /// How long ago its server told it.
    pub age: Nanos,
}

/// The latest T of each target, and since when it is known. What is older than a bound counts as unknown.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Board {
    stale: Nanos,
    latest: BTreeMap<TargetId, (Nanos, Nanos)>,
}

impl Board {
    /// An empty one, on which a line holds for `stale`.
    pub const fn new(stale: Nanos) -> Self {
        Self { stale, latest: BTreeMap::new() }
    }

    /// Takes over reports that arrived at `now`, each unless a later one of its target is known.
    pub fn take(&mut self, reports: &[Report], now: Nanos) {
        for report in reports {
            let told = now.saturating_sub(report.age);
            let line = self.latest.entry(report.target).or_insert((report.average, told));
            if told >= line.1 {
                *line = (report.average, told);
            }
        }
    }

    /// Forgets all lines that are too old, and gives the others.
    pub fn reports(&mut self, now: Nanos) -> Vec<Report> {
        let stale = self.stale;
        self.latest.retain(|_, (_, told)| now.saturating_sub(*told) <= stale);
        let report = |(&target, &(average, told)): (&TargetId, &(Nanos, Nanos))| Report {
            target,
            average,
            age: now.saturating_sub(told),
        };
        self.latest.iter().map(report).collect()
    }

    /// T of a target, unless it is unknown or too old.
    pub fn average(&self, target: TargetId, now: Nanos) -> Option<Nanos> {
        let &(average, told) = self.latest.get(&target)?;
        (now.saturating_sub(told) <= self.stale).then_some(average)
    }

    /// The largest known T among `targets`, without `own`.
    pub fn slowest(&self, targets: &[TargetId], own: TargetId, now: Nanos) -> Option<Nanos> {
        targets.iter().filter(|target| **target != own).filter_map(|target| self.average(*target, now)).max()
    }
}

/// Equation 3: the return of a fragment with `siblings` others (n) on servers of which the slowest has `slowest`, on a
/// disk that has `own`. Where nothing is known of the siblings, and where this disk is not the slowest of them, it is
/// the return of any request.
pub fn fragment_return(gain: i64, own: Nanos, slowest: Option<Nanos>, siblings: u32) -> i64 {
    match slowest {
        Some(slowest) if own > slowest => {
            gain.saturating_add(difference(own, slowest).saturating_mul(i64::from(siblings)))
        }
        _ => gain,
    }
}
