//! Plans tried on the twin: what a workload takes under a layout, by the real client and servers on modelled devices.

use std::collections::{BTreeMap, BTreeSet};
use weft_planner::{Figures, Placing};
use weft_twin::{ClusterSpec, LayoutSpec, RunError, RunOptions, TailSpec};
use weft_workload::{Size, Workload};

/// Parts of a layout that a file can be made with.
pub const PARTS_MAX: usize = weft_core::layout::COMPONENTS_MAX;

/// What a trial came to.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Trial {
    /// Virtual time until all is done, and written where that counts, in seconds.
    pub seconds: f64,
    /// What determines the course of events.
    pub event_hash: u64,
}

/// Why there was no trial.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TrialError {
    /// The twin cannot make files of this layout.
    #[error("a layout of {0} parts: files can be made with {PARTS_MAX} at most")]
    Parts(usize),
    /// The run failed.
    #[error(transparent)]
    Run(#[from] RunError),
}

/// A layout as the twin's description has it.
///
/// # Errors
/// When it has too many parts.
pub fn layout_spec(placing: &Placing, figures: &Figures) -> Result<LayoutSpec, TrialError> {
    let sizes = |part: &weft_planner::Part| -> BTreeMap<String, Size> {
        let stripes = part.stripes.iter().zip(&figures.classes).filter(|(size, _)| **size > 0);
        stripes.map(|(size, class)| (class.name.clone(), Size(*size))).collect()
    };
    if placing.parts.len() > PARTS_MAX {
        return Err(TrialError::Parts(placing.parts.len()));
    }
    let mut tails: Vec<TailSpec> = placing.parts[1..]
        .iter()
        .map(|part| TailSpec { from: Size(part.start), stripe_sizes: sizes(part) })
        .collect();
    let tail = (!tails.is_empty()).then(|| tails.remove(0));
    Ok(LayoutSpec { stripe_sizes: sizes(&placing.parts[0]), tail, tails, ..LayoutSpec::default() })
}

/// Runs a workload, of it only what it does to `files` if they are named, with this layout.
///
/// # Errors
/// A layout that the twin cannot make; whatever the run met.
pub fn trial(
    cluster: &ClusterSpec,
    figures: &Figures,
    placing: &Placing,
    workload: &dyn Workload,
    files: Option<&BTreeSet<u32>>,
) -> Result<Trial, TrialError> {
    let layout = layout_spec(placing, figures)?;
    let options = RunOptions { drain: true, ..RunOptions::default() };
    match files {
        None => run_layout(cluster, layout, workload, options),
        Some(files) => {
            run_layout(cluster, layout, &crate::Part::new(workload, Some(files.clone()), u64::MAX), options)
        }
    }
}

/// Runs a workload with a layout as the twin's description has it.
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
