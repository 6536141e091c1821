//! The queueing model that predicts how long a traced workload takes under a layout.
//!
//! The model is a discrete-event simulation over measured figures ([`crate::figures`]). It shares no code with the
//! device models of the twin, which judge the resulting plans. The same input gives the same times.
//!
//! ```text
//! rank ──> request ──> split by layout ──> one message per target ──> target ──> reply ──> next request
//!   |                                        node link ─> target link |  page cache (hit: no device time)
//!   └─ think time between requests (`call_us`)                        |  write-back buffer, read delay
//!                                                                     └─ device: line over length, or head
//! ```
//!
//! | resource | queue discipline | service time |
//! | --- | --- | --- |
//! | link of a node or target, per direction | FIFO | bytes / `network.mb_s`, plus `connect_us` per message |
//! | processors of the host, if clients and servers share them | FIFO | 1 / `processor.messages_per_s` for each message |
//! | connection | at most `network.window` bytes in flight | none; the sender blocks |
//! | device, request continues the previous one | FIFO | `sequential` |
//! | device, request within 1 MiB of the previous one | FIFO | `near` |
//! | device, request continues one of the last 64 streams | FIFO | `streams` |
//! | device, any other request | FIFO | `random` at the current queue depth |
//! | parallel device, instead of the two above | FIFO | `random` at the greatest depth; latency as alone |
//! | disk head, random reads, and all reads of replicas (module `head`) | next reached first | seek, rotation, transfer |
//! | page cache, reads | none | 0 if fewer bytes than `memory` passed the target since |
//! | page cache, writes (module `write_back`) | ascending offset | 0 until `behind` bytes are dirty |
//!
//! * Targets that **share a device** (`devices` of their classes) are one target.
//! * A **request** is sent as the client sends it: in rounds of messages of at most 4 MiB per target. Bytes go to one
//!   target after the other, and replies are read from one target after the other. Requests larger than the connection
//!   window therefore move from target to target, and ranks that begin with the same target collide there.
//! * **Ranks synchronize** where the trace shows no request in flight: between conflicting accesses of different ranks
//!   to a file, and between collective calls (module `load`).
//! * A **parallel device** (SSD) has no head and serves four 4 KiB requests in less than half the time each takes alone.
//! * The run ends when all dirty data is on the devices.

mod head;
mod load;
mod read_ahead;
mod run;
mod target;
mod write_back;

pub use load::Load;

use crate::figures::Figures;
use crate::placement::ClassPlacement;
use run::Run;
use std::collections::BTreeMap;
use weft_core::Layout;

/// Predicted times of a run.
#[derive(Clone, PartialEq, Debug)]
pub struct Outcome {
    /// Time of the whole trace, seconds.
    pub seconds: f64,
    /// Busy time of the busiest target of each class, seconds.
    pub target_busy_s: Vec<f64>,
    /// Busy time of the busiest target link of each class, seconds.
    pub link_busy_s: Vec<f64>,
    /// Busy time of the busiest node link, seconds.
    pub node_link_busy_s: f64,
    /// Mean number of targets that a request touches.
    pub targets_per_request: f64,
}

/// Predicts the run of `load`. `placements` has one placement per file group, or a single one for all groups.
///
/// # Panics
/// When a placement is not a valid layout.
pub fn run(figures: &Figures, load: &Load, placements: &[&ClassPlacement]) -> Outcome {
    run_layouts(figures, load, placements.iter().map(|placement| placement.on_figures(figures)).collect())
}

/// Predicts the run of `load`. `layouts` has one layout per file group, or a single one for all groups, over the targets
/// of [`Figures::targets`].
pub fn run_layouts(figures: &Figures, load: &Load, layouts: Vec<Layout>) -> Outcome {
    Run::new(figures, load, layouts).simulate()
}

/// Rotation times of the heads in the runs that are averaged, relative to the figures.
const ROTATION_FACTORS: [f64; 5] = [1.0, 0.99, 1.01, 0.98, 1.02];
/// Number of runs with different random think times that are averaged if no head is involved.
const THINK_TIME_RUNS: usize = 4;

/// Predicts the run of `load` under one placement as [`run_layout_averaged`] does.
///
/// # Panics
/// When the placement is not a valid layout.
pub fn run_averaged(figures: &Figures, load: &Load, placement: &ClassPlacement) -> Outcome {
    run_layout_averaged(figures, load, &placement.on_figures(figures))
}

/// Predicts the run of `load` under one layout as the mean of several runs. All fields but `seconds` are those of the
/// first run.
///
/// * Think times vary randomly, because in a single run the ranks may proceed in lockstep.
/// * If a head serves the reads, all readers may stay in phase with the rotation: each next block arrives under the
///   head exactly when it is requested, or has just passed. A rotation that is 0.5 % longer ends this and may change
///   the total time by a third. Heads therefore rotate up to 2 % slower and faster in the other runs, so that a layout
///   cannot win by resonance alone.
pub fn run_layout_averaged(figures: &Figures, load: &Load, layout: &Layout) -> Outcome {
    let new = || Run::new(figures, load, vec![layout.clone()]);
    let mut outcome = new().simulate();
    let heads = load.reads_by_head && figures.classes.iter().any(|class| class.read.head.is_some());
    let rotation_factors = match heads {
        true => &ROTATION_FACTORS[..],
        false if figures.call_us > 0.0 => &[1.0; THINK_TIME_RUNS],
        false => return outcome,
    };
    let others = (1..)
        .zip(&rotation_factors[1..])
        .map(|(seed, &rotation_factor)| new().with_variation(seed, rotation_factor).simulate().seconds);
    outcome.seconds = (outcome.seconds + others.sum::<f64>()) / rotation_factors.len() as f64;
    outcome
}

/// Predicts the run of `load` with one layout per file, by the file's number in the trace. Targets are numbered
/// consecutively through the classes of the figures.
///
/// # Panics
/// When a file has no layout, or a layout names an unknown target.
pub fn run_files(figures: &Figures, load: &Load, layouts: &BTreeMap<u32, Layout>) -> Outcome {
    Run::new(figures, load, Vec::new()).with_files(layouts).simulate()
}

#[cfg(test)]
mod tests;
