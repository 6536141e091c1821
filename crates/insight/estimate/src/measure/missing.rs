//! Figures that could not be measured. A file of figures leaves them out, and the planner uses its defaults.

use super::cases::{Case, Order};
use super::fit::Point;
use serde::{Deserialize, Serialize};

/// Reasons for which a case has no result.
pub(super) const TIME_RAN_OUT: &str = "the time ran out; give more --time, or less --size";
pub(super) const NOTHING_COMPLETED: &str =
    "no request completed in a time that can be used; measure again when the machine is idle";
pub(super) const NO_READ_TIME: &str = "the time ran out, or reads took no time that can be compared";
pub(super) const NO_DIRECT_IO: &str = "the file system does not support direct I/O";
/// Remedy for a class without figures.
pub(super) const REMEDY: &str = "run `weft profile` again when the machine is idle, or with more --time";

/// A figure that was not measured.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Missing {
    /// Class of the targets; `None` for figures of the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// Name of the figure.
    pub figure: String,
    /// Reason, and the remedy if there is one.
    pub reason: String,
}

impl Missing {
    /// Name of a class's figure: the size of the page cache.
    pub const MEMORY: &str = "memory";
    /// Name of a class's figure: the time of a sync in addition to its writes.
    pub const SYNC: &str = "write.sync_us";

    /// A missing figure of the cluster.
    pub fn of_cluster(figure: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { class: None, figure: figure.into(), reason: reason.into() }
    }

    pub(super) fn of_class(class: &str, figure: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { class: Some(class.to_owned()), figure: figure.into(), reason: reason.into() }
    }
}

impl std::fmt::Display for Missing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.class {
            Some(class) => write!(f, "class {class}, {}: {}", self.figure, self.reason),
            None => write!(f, "{}: {}", self.figure, self.reason),
        }
    }
}

/// Figures for which the `measured` cases do not suffice, each with the reason of its first case that was `missed`.
pub(super) fn of_cases(
    class: &str,
    measured: &[(Case, Point)],
    missed: &[(Case, &'static str)],
) -> Vec<Missing> {
    let mut missing: Vec<Missing> = Vec::new();
    for (case, reason) in missed {
        let figure = case.figure();
        let same = measured.iter().filter(|(other, _)| other.figure() == figure).count();
        let suffices = same >= if case.order == Order::AppendSync { 1 } else { 2 };
        if !suffices && !missing.iter().any(|known| known.figure == figure) {
            missing.push(Missing::of_class(class, figure, *reason));
        }
    }
    missing
}
