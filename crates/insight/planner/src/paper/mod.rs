//! PSA as printed: cost model, algorithm 1, and the planners DEF, PA and PSA.
//!
//! S. He et al., "Enhancing Hybrid Parallel File System through Performance and Space-Aware Data Layout",
//! International Journal of High Performance Computing Applications. The paper numbers its tables and its algorithm,
//! but no equations:
//!
//! | in the paper | here |
//! | --- | --- |
//! | Table II, symbols | module `cost` |
//! | Table III, T_E + T_X + T_S + T_T of a heterogeneous request | [`table_iii`] |
//! | Table IV, the same of a homogeneous request | [`table_iv`] |
//! | Algorithm 1, stripe sizes | [`Problem::psa`] |
//! | Section III.A, worked example 124T against 80T | a test of `algorithm` |

mod algorithm;
mod cost;

pub use algorithm::{PaperLayout, Problem, STEP, StatedCost};
pub use cost::{Cost, CostParameters, Servers, table_iii, table_iv};

/// Stripe size of DEF, bytes.
pub const DEF_STRIPE: u64 = 65_536;
