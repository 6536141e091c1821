//! Fault search: random workloads and random faults on simulated clusters, checked against models of every promise.
//!
//! The real client and the real servers run on simulated machines, disks and a network. A seed determines everything
//! random, so a seed that breaks a promise can be replayed. Equal seeds have equal [`Report::event_hash`].
//!
//! # What is drawn
//!
//! [`Plan::draw`] draws these values before the run starts. An [`Options`] field overrides a switch of the plan.
//!
//! | Drawn | Values |
//! | --- | --- |
//! | Cluster | 2 to 6 servers on shared or separate machines, 1 or 2 targets each, I/O modules, queue depths, SSDs |
//! | Clients | 1 to 4 client processes, transports, timeouts, 1 or 2 programs each, 15 to 44 steps each |
//! | Features | moves, interrupted moves, rules, capacity limits, holes, inline files, checksums, compression, small SSDs, swapped disks, a lost disk |
//! | Faults | none, one kind, or about a third of the kinds of [`Fault`]; pauses between them; how many |
//!
//! While the run proceeds, each program draws its operations, and the nemesis draws the next fault and its duration.
//! Optional features draw from random generators of their own. A seed without the feature therefore keeps its events
//! when the feature changes.
//!
//! # What is recorded
//!
//! Each program reports an operation to the judge before it starts and after it ends. The judge numbers these moments,
//! because many of them have the same virtual time. From them it maintains one model for each kind of promise:
//!
//! | Model | State |
//! | --- | --- |
//! | `bytes` | for each range of a file, the changes whose bytes a read may return |
//! | `sizes` | the smallest and the greatest length that a file may have |
//! | `names` | every state of the namespace that agrees with the replies so far |
//! | `locks` | the locks granted, and whether an outage may have released them |
//! | `rules` | the layout rules that each directory may have |
//!
//! A failed operation may have taken effect, may take effect later, or never. Loss of power may undo changes that no
//! sync covers. The models keep every outcome that is possible, and drop outcomes that a later reply rules out.
//!
//! # What is checked
//!
//! ```text
//! start ──> operations and faults ──> heal all ──> quiesce 100 s ──> operations without faults ──> verify
//! ```
//!
//! | When | Check |
//! | --- | --- |
//! | Each reply | a model allows the reply |
//! | Each error | an active or recent fault explains the error |
//! | Every 2 ms | no operation exceeds its deadline |
//! | Each disk swap | the server refuses the wrong disk |
//! | `verify` | all names and files are readable and correct, no lock is left, `fsck` finds nothing |
//! | Always | no panic in a client or server |
//!
//! [`Coverage`] counts what a run reached. A run that found nothing must show that it exercised the checks.
//!
//! # Modules
//!
//! ```text
//! run      one seed from start to end            plan      what is drawn before the run
//! cluster  servers that can be restarted         nemesis   injects and heals faults
//! actor    programs: random operations           verify    final checks
//! judge    records operations, runs the checks   bytes, sizes, file, names, locks, rules   the models
//! repair   fsck on the wrong metadata            coverage  counters
//! shrink   fewer faults and steps
//! ```

mod actor;
mod bytes;
mod cluster;
mod coverage;
mod file;
mod jobs;
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
