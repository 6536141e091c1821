//! CEDA: which access patterns to replicate, and how.
//!
//! S. He and X.-H. Sun, "A Cost-Effective Distribution-Aware Data Replication Scheme for Parallel I/O Systems", IEEE
//! Transactions on Computers 67(10), 2018.
//!
//! | in the paper | here |
//! | --- | --- |
//! | equation 1, time of a sub-request | [`Server`] |
//! | equation 2, sizes of sub-requests | `weft_core`'s splitting function: the printed equation is wrong for a request within one stripe |
//! | equations 3 and 4, times of a server and of the file system | [`cost`] |
//! | equation 5, benefit | [`PaperBenefit`] |
//! | algorithm 1, planning layout | [`Arrangement`] |
//! | algorithm 2, what to replicate | [`chosen_by_benefit`] |
//!
//! A pattern is the requests to one group of files. `best` judges all alternatives by the queueing model
//! ([`crate::model`]), and charges writes to replicas with the copy back to the original.

mod alternatives;
mod arrangement;
pub mod cost;
mod decision;
mod file;
#[cfg(test)]
mod tests;

pub use alternatives::{Alternative, Kind};
pub use arrangement::{Arrangement, Object};
pub use cost::{PaperBenefit, Server};
pub use decision::{
    Decision, Options, Policy, ReplicaPlan, chosen_by_benefit, decide, decide_without_copy_back,
};
pub use file::{PlannedReplica, ReplicaFile, ReplicaFileError};
