//! Fault search: random workloads and random faults on simulated clusters, and checkers of every promise.
//!
//! A seed decides a cluster, its clients, what they do and what goes wrong ([`Plan`]). The real client and the real
//! servers run on simulated machines, disks and a network; each operation is told to a judge before and after, who
//! knows what may be seen:
//!
//! ```text
//! run      one seed from beginning to end        plan     what the seed decides
//! cluster  servers that start again              nemesis  faults, and their ends
//! actor    programs: random operations           verify   when all is mended and quiet
//! judge    hears of everything                   bytes, sizes, file   what reads and looks may give
//! names    what names there may be               locks    who holds which
//! repair   fsck on the wrong metadata
//! rules    what rules directories may have          coverage how often what was reached
//! ```
//!
//! The same seed gives the same course of events: [`Report::event_hash`].

mod actor;
mod bytes;
mod cluster;
mod coverage;
mod file;
mod judge;
mod locks;
mod names;
mod nemesis;
mod plan;
mod repair;
mod rules;
mod run;
mod shrink;
mod sizes;
mod verify;

pub use coverage::Coverage;
pub use judge::Violation;
pub use plan::{Fault, Plan, Profile};
pub use run::{Options, Report, run};
pub use shrink::shrink;
