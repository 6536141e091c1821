//! The twin: the real client and servers on modelled disks and networks, under virtual time.
//!
//! A [`ClusterSpec`] describes a cluster as data. [`run`] assembles it in a simulated world and starts one real client
//! for each rank of a [`Workload`](weft_workload::Workload). The same seed gives the same sequence of events and the
//! same [`Outcome`].
//!
//! # How a simulated cluster is assembled
//!
//! ```text
//! ClusterSpec ──check──> Cluster::build ──────> Cluster::start ──────> one task per rank ──────> Outcome
//!                        machines and disks     directories, servers   operations of the workload
//! ```
//!
//! | Part of the description | What [`Cluster`] makes of it | Model |
//! | --- | --- | --- |
//! | `network` | one network between all machines | `weft_models::NetworkSpec` |
//! | `servers` | one machine and one server process for each data server | none: real code |
//! | `servers.targets` | one disk at `/tN` for target N, with its capacity | `weft_models::Profile` |
//! | `servers.targets.ibridge`, `servers.targets.cache` | one SSD at `/lN` for the log of target N | `weft_models::Profile` |
//! | `metadata` | one disk at `/meta`, or a directory on the first target's disk | `weft_models::Profile` |
//! | `processes_per_node` | enough compute nodes for the ranks, plus one that prepares input files | none |
//! | `layout`, `client` | layout requests and options of every client | none: real code |
//!
//! Disks get a model and a mount path. The servers open these paths through `weft_env::Env` as they open directories of
//! a real machine. Nothing else of the server or client code is replaced.
//!
//! # Modules
//!
//! ```text
//! spec      description of a cluster, and its checks   device    models by profile name
//! cluster   machines, disks, servers, clients          barrier   synchronization of ranks
//! drive     runs the ranks' operations                 outcome   results of a run
//! tally     counts of a run                          locking   a modelled Lustre or GPFS, and delegates over it
//! cache     description of the read and write cache beside a disk
//! ibridge   description of the SSD beside a disk
//! ```
//!
//! [`locking`] is a modelled file system in the place of Weft's servers, with delegates in front of it.
//!
//! [`search`] looks for broken promises under random faults.
// Runs in the simulated world: no clock, file, socket or thread (see clippy.toml).
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]

mod barrier;
mod cache;
mod cluster;
mod device;
mod drive;
mod ibridge;
pub mod locking;
mod outcome;
pub mod search;
mod spec;
mod tally;

pub use cache::CacheSpec;
pub use cluster::Cluster;
pub use drive::{RunOptions, run, run_with};
pub use ibridge::IbridgeSpec;
pub use outcome::{
    DeviceOutcome, DeviceRole, IbridgeOutcome, Measure, OpKind, Outcome, PhaseOutcome, RunError,
};
pub use spec::{
    ClientSpec, ClusterSpec, CompressionSpec, LayoutSpec, MetadataSpec, Module, Payload, ServerSpec,
    SpecError, TailSpec, TargetSpec,
};
pub use weft_core::Histogram;
pub use weft_wire::status::SsdStatus;
