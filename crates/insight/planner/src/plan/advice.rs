//! Whether a new layout is worth it: only if its predicted gain is greater than the model's error plus the cost of the
//! change.

use crate::figures::Figures;
use crate::model::Outcome;
use crate::survey::FileGroup;
use serde::{Deserialize, Serialize};
use weft_core::Layout;

/// Relative error of the model for classes whose figures have none: figures that somebody stated, or measured on a model
/// of the device.
const ERROR_STATED: f64 = 0.05;
/// Further relative error if the trace's offsets and times are reconstructed from counters.
const ERROR_RECONSTRUCTED: f64 = 0.25;
/// Relative error for writes that wait for a measured disk: whether the drive's own cache is on is not measured.
const ERROR_DIRECT_DISK_WRITES: f64 = 0.5;
/// Absolute error, seconds. The times of one program differ by up to twice as much from start to start; the smaller value
/// recommends gains of short programs, too (`docs/measurements/advice.md`).
const ERROR_S: f64 = 0.010;
/// Processor time of a further message, seconds, where it was not measured (2 processors, loopback: 5 to 20 us).
const MESSAGE_S: f64 = 20e-6;
/// Time to create a further datafile, seconds.
const DATAFILE_S: f64 = 100e-6;

/// What to do with a layout.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// Keep the present layout.
    Keep,
    /// Use the new one.
    Change,
}

/// Advice of a plan, and the numbers behind it.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Advice {
    /// The action.
    pub action: Action,
    /// Predicted time under the present layout, seconds.
    pub present_s: f64,
    /// Predicted time under the fastest other layout that fits, seconds.
    pub planned_s: f64,
    /// Error of the difference by the model, seconds.
    pub error_s: f64,
    /// Cost of the change that the model does not contain, seconds: further messages and datafiles.
    pub cost_s: f64,
}

impl Advice {
    /// Decides: a change if the gain exceeds error and cost.
    pub fn decide(present_s: f64, planned_s: f64, error_s: f64, cost_s: f64) -> Self {
        let action = if present_s - planned_s > error_s + cost_s { Action::Change } else { Action::Keep };
        Self { action, present_s, planned_s, error_s, cost_s }
    }

    /// Predicted gain, seconds; negative if the other layout is slower.
    pub fn gain_s(&self) -> f64 {
        self.present_s - self.planned_s
    }

    /// Whether the gain exceeds error and cost.
    pub fn is_certain(&self) -> bool {
        self.action == Action::Change
    }
}

/// Relative error of the model for a group's requests under some layouts, which are given over the targets of the
/// figures.
pub(super) fn error_of(
    figures: &Figures,
    group: &FileGroup,
    layouts: &[&Layout],
    reconstructed: bool,
) -> f64 {
    let targets = figures.targets();
    let uses = |class: usize| {
        layouts.iter().any(|layout| layout.objects().any(|(_, target)| targets[class].contains(&target)))
    };
    let of_class = |(_, class): (usize, &crate::figures::Class)| {
        let writes = &class.write;
        let is_direct_disk =
            figures.measured && group.writes > 0 && writes.write_buffer.0 == 0 && writes.seeks();
        let direct = if is_direct_disk { ERROR_DIRECT_DISK_WRITES } else { 0.0 };
        class.error.unwrap_or(ERROR_STATED) + direct
    };
    let used = figures.classes.iter().enumerate().filter(|(class, _)| uses(*class));
    let most = used.map(of_class).fold(ERROR_STATED, f64::max);
    most + if reconstructed { ERROR_RECONSTRUCTED } else { 0.0 }
}

/// Absolute error for a relative one, seconds.
pub(super) fn error_s(error: f64, present_s: f64, planned_s: f64) -> f64 {
    error * present_s.max(planned_s) + ERROR_S
}

/// Cost of a change that the model does not contain, seconds.
pub(super) fn cost_s(
    figures: &Figures,
    group: &FileGroup,
    (present, present_outcome): (&Layout, &Outcome),
    (planned, planned_outcome): (&Layout, &Outcome),
) -> f64 {
    let requests = (group.reads + group.writes) as f64;
    let further = (planned_outcome.targets_per_request - present_outcome.targets_per_request).max(0.0);
    // With measured processors, the model contains the messages.
    let message_s = if figures.processor.is_some() { 0.0 } else { MESSAGE_S };
    let datafiles = planned.objects().count().saturating_sub(present.objects().count());
    let files = group.files as f64;
    further * requests * message_s / f64::from(group.ranks.max(1)) + datafiles as f64 * files * DATAFILE_S
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_needs_more_than_error_and_cost() {
        let advice = Advice::decide(1.0, 0.8, 0.15, 0.04);
        assert_eq!((advice.action, advice.is_certain()), (Action::Change, true));
        assert!((advice.gain_s() - 0.2).abs() < 1e-12);
        for (planned_s, error_s, cost_s) in
            [(0.8, 0.15, 0.06), (0.8, 0.25, 0.0), (1.2, 0.0, 0.0), (1.0, 0.0, 0.0)]
        {
            assert_eq!(Advice::decide(1.0, planned_s, error_s, cost_s).action, Action::Keep);
        }
        // A file with a predicted time of 2 ms keeps its layout, whatever the ratio.
        assert_eq!(Advice::decide(0.002, 0.0, error_s(0.05, 0.002, 0.0), 0.0).action, Action::Keep);
    }
}
