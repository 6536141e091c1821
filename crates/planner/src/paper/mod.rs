//! PSA as its paper prints it: costs, algorithm, and the planners DEF, PA and PSA.

mod algorithm;
mod cost;

pub use algorithm::{Chosen, Problem, STEP, Stated};
pub use cost::{Cost, Servers, Setting, table_iii, table_iv};

/// The stripe of DEF, bytes.
pub const DEF_STRIPE: u64 = 65_536;
