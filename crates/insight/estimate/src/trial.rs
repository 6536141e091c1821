//! Runs a workload on the twin under a planned layout: the real client and servers on modelled devices.

use std::collections::{BTreeMap, BTreeSet};
use weft_planner::{ClassPlacement, Figures};
use weft_twin::{ClusterSpec, LayoutSpec, RunError, RunOptions, TailSpec};
use weft_workload::{Size, Workload};

/// Maximum number of parts of a file's layout.
pub const PARTS_MAX: usize = weft_core::layout::COMPONENTS_MAX;

/// Result of a trial.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Trial {
    /// Virtual seconds until the run is complete, including write-back if requested.
    pub seconds: f64,
    /// Hash of the sequence of events.
    pub event_hash: u64,
}

/// Why a trial failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TrialError {
    /// The layout has too many parts.
    #[error("a layout of {0} parts: a file can have at most {PARTS_MAX}")]
    Parts(usize),
    /// The run failed.
    #[error(transparent)]
    Run(#[from] RunError),
}

/// Converts a placement to the layout of a twin's description.
///
/// # Errors
/// When it has too many parts.
pub fn layout_spec(placement: &ClassPlacement, figures: &Figures) -> Result<LayoutSpec, TrialError> {
    let sizes = |part: &weft_planner::PlacementPart| -> BTreeMap<String, Size> {
        let stripes = part.stripes.iter().zip(&figures.classes).filter(|(size, _)| **size > 0);
        stripes.map(|(size, class)| (class.name.clone(), Size(*size))).collect()
    };
    if placement.parts.len() > PARTS_MAX {
        return Err(TrialError::Parts(placement.parts.len()));
    }
    let mut tails: Vec<TailSpec> = placement.parts[1..]
        .iter()
        .map(|part| TailSpec { from: Size(part.start), stripe_sizes: sizes(part) })
        .collect();
    let tail = (!tails.is_empty()).then(|| tails.remove(0));
    Ok(LayoutSpec { stripe_sizes: sizes(&placement.parts[0]), tail, tails, ..LayoutSpec::default() })
}

/// Runs a workload under a layout, restricted to `files` if given.
///
/// # Errors
/// A layout with too many parts, or a failure of the run.
pub fn trial(
    cluster: &ClusterSpec,
    figures: &Figures,
    placement: &ClassPlacement,
    workload: &dyn Workload,
    files: Option<&BTreeSet<u32>>,
) -> Result<Trial, TrialError> {
    let layout = layout_spec(placement, figures)?;
    let options = RunOptions { drain: true, ..RunOptions::default() };
    match files {
        None => run_layout(cluster, layout, workload, options),
        Some(files) => run_layout(
            cluster,
            layout,
            &crate::WorkloadSlice::new(workload, Some(files.clone()), u64::MAX),
            options,
        ),
    }
}

/// Runs a workload under a layout of the twin's description.
pub(crate) fn run_layout(
    cluster: &ClusterSpec,
    layout: LayoutSpec,
    workload: &dyn Workload,
    options: RunOptions,
) -> Result<Trial, TrialError> {
    let spec = ClusterSpec { layout, ..cluster.clone() };
    let outcome = weft_twin::run_with(&spec, workload, options)?;
    Ok(Trial { seconds: outcome.elapsed.get() as f64 / 1e9, event_hash: outcome.event_hash })
}
