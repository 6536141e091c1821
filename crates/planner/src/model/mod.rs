//! The planner's own model of a run: ranks that wait for their requests, targets and links that serve them in turn.
//!
//! ```text
//! rank: request -> own time -> split over targets -> each: message, target, links -> the last one done -> next request
//! ```
//!
//! * A **request** goes to its targets as the client sends it: by messages of at most 4 MiB to each target, a round of them
//!   at a time. What a connection does not hold on its way waits until the receiver has taken what came before; bytes are
//!   sent to one target after another, and taken from one after another. So requests that are longer than connections hold
//!   move from target to target, and ranks that begin with the same one meet there.
//! * A **target** takes, for a request that goes on where the one before it ended, its sequential line; else its random
//!   line at the number of requests that are there at the time, or that of several streams if it goes on where one of the
//!   last 64 ended. A device whose requests overlap (four at a time take less
//!   than half as long each) takes as long as with most of them under way, but none is done sooner than one alone.
//! * **Memory** of a target answers reads of what passed through it not longer ago than it holds.
//! * **Links** of targets and compute nodes carry bytes one message after another, in each direction apart.
//! * **Writes** into memory are done when they are there, unless so much waits for the device that the memory is full. The
//!   device begins when enough has been gathered and goes upwards, some of it at a time; the run ends when all is written.
//!   Reads of what it has not taken yet are answered from memory, others wait for it as long as was measured (module
//!   `behind`).
//! * Ranks wait for each other at the latest quiet point of the trace between one's use of a file and another one's in
//!   the other direction, and where it was quiet between collective calls.
//!
//! * A **head** over a turning medium serves reads that jump (module `head`), where the figures have one.
//!
//! What a class is like stands in its figures, which were measured. The same input gives the same times.

mod ahead;
mod behind;
mod head;
mod load;
mod run;
mod target;

pub use load::Load;

use crate::figures::Figures;
use crate::placing::Placing;
use run::Run;
use std::collections::BTreeMap;
use weft_core::Layout;

/// What came of it.
#[derive(Clone, PartialEq, Debug)]
pub struct Outcome {
    /// How long the whole trace takes.
    pub seconds: f64,
    /// Of that, how long the busiest target of each class works.
    pub busy_s: Vec<f64>,
    /// How long the busiest link of a target of each class works.
    pub link_s: Vec<f64>,
    /// How long the busiest link of a compute node works.
    pub node_s: f64,
    /// Requests to targets for each request of the program.
    pub spread: f64,
}

/// Runs `load` on a cluster, each unit's files laid out as `placings` has it (by its number, or all by the only one).
///
/// # Panics
/// When a placing is no layout.
pub fn run(figures: &Figures, load: &Load, placings: &[&Placing]) -> Outcome {
    Run::new(figures, load, placings).through()
}

/// Turns of heads in the courses by which layouts are judged, as parts of what the figures say.
const TURNS: [f64; 5] = [1.0, 0.99, 1.01, 0.98, 1.02];
/// Courses that differ by chance alone, where no heads serve.
const CHANCES: usize = 4;

/// What a layout is judged by: several of the courses that a run may take, the mean of their seconds and the rest of the
/// first.
///
/// * What ranks spend on their own varies as chance has it, for in one course ranks may fall in step.
/// * Where heads serve, all readers may fall in step with the medium: each next piece comes by just when it is asked for, or
///   has just passed. A turn that takes half a percent longer ends that, and may cost or save a third of the time. So heads
///   turn a little slower and quicker, too: what is quick in step alone is not relied upon.
pub fn judged(figures: &Figures, load: &Load, placing: &Placing) -> Outcome {
    let mut outcome = run(figures, load, &[placing]);
    let heads = load.jumps && figures.classes.iter().any(|class| class.read.head.is_some());
    let turns = match heads {
        true => &TURNS[..],
        false if figures.call_us > 0.0 => &[1.0; CHANCES],
        false => return outcome,
    };
    let others = (1..).zip(&turns[1..]).map(|(chance, &turns)| {
        Run::new(figures, load, &[placing]).with_course(chance, turns).through().seconds
    });
    outcome.seconds = (outcome.seconds + others.sum::<f64>()) / turns.len() as f64;
    outcome
}

/// Runs `load` on a cluster, each file laid out as `layouts` has it (by its number in the trace); targets are counted
/// through the classes of the figures.
///
/// # Panics
/// When a file has no layout, or a layout a target that there is not.
pub fn run_files(figures: &Figures, load: &Load, layouts: &BTreeMap<u32, Layout>) -> Outcome {
    Run::new(figures, load, &[]).with_files(layouts).through()
}

#[cfg(test)]
mod tests;
