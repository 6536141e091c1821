//! T of all targets as reported by their servers, and equation 3.

use super::average::saturating_difference;
use crate::units::{Nanos, TargetId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A report of T between servers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Report {
    /// Target of the report.
    pub target: TargetId,
    /// T of its disk.
    pub average: Nanos,
    /// Age of the value when the report was sent.
    pub age: Nanos,
}

/// Latest T of each target, with the time of its report. Values older than a limit count as unknown.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PeerAverages {
    stale: Nanos,
    latest: BTreeMap<TargetId, (Nanos, Nanos)>,
}

impl PeerAverages {
    /// Returns an empty table in which values stay valid for `stale`.
    pub const fn new(stale: Nanos) -> Self {
        Self { stale, latest: BTreeMap::new() }
    }

    /// Records reports that arrived at `now`; a newer value of the same target is kept.
    pub fn take(&mut self, reports: &[Report], now: Nanos) {
        for report in reports {
            let reported_at = now.saturating_sub(report.age);
            let line = self.latest.entry(report.target).or_insert((report.average, reported_at));
            if reported_at >= line.1 {
                *line = (report.average, reported_at);
            }
        }
    }

    /// Drops outdated values and returns the others.
    pub fn reports(&mut self, now: Nanos) -> Vec<Report> {
        let stale = self.stale;
        self.latest.retain(|_, (_, reported_at)| now.saturating_sub(*reported_at) <= stale);
        let report = |(&target, &(average, reported_at)): (&TargetId, &(Nanos, Nanos))| Report {
            target,
            average,
            age: now.saturating_sub(reported_at),
        };
        self.latest.iter().map(report).collect()
    }

    /// Returns T of a target, unless it is unknown or outdated.
    pub fn average(&self, target: TargetId, now: Nanos) -> Option<Nanos> {
        let &(average, reported_at) = self.latest.get(&target)?;
        (now.saturating_sub(reported_at) <= self.stale).then_some(average)
    }

    /// Returns the maximum known T among `targets`, except `own`.
    pub fn slowest(&self, targets: &[TargetId], own: TargetId, now: Nanos) -> Option<Nanos> {
        targets.iter().filter(|target| **target != own).filter_map(|target| self.average(*target, now)).max()
    }
}

/// Equation 3: the return of a fragment with `siblings` other pieces (n), on a disk with T = `own`. `slowest` is the
/// maximum T of the siblings' disks. If it is unknown, or not below `own`, the fragment has the return of any request.
pub fn fragment_return(gain: i64, own: Nanos, slowest: Option<Nanos>, siblings: u32) -> i64 {
    match slowest {
        Some(slowest) if own > slowest => {
            gain.saturating_add(saturating_difference(own, slowest).saturating_mul(i64::from(siblings)))
        }
        _ => gain,
    }
}
