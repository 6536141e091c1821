//! The twin: the real client and servers on modelled disks and networks, under virtual time.
//!
//! A [`ClusterSpec`] is a cluster as data; [`run`] builds it in a simulated world and has a real client for each rank of
//! a [`Workload`](weft_workload::Workload) do what the rank does. The same seed gives the same course of events and the
//! same [`Outcome`].
//!
//! ```text
//! spec      what a cluster is made of, checked        device    profiles by name
//! cluster   machines, disks, servers, clients         barrier   ranks wait for each other
//! drive     one rank's operations                     outcome   what they came to
//! ibridge   the SSD beside a target's disk
//! ```
//!
//! [`search`] looks for broken promises under random faults.
// Runs in the simulated world: no clock, file, socket or thread (see clippy.toml).
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]

mod barrier;
mod cluster;
mod device;
mod drive;
mod ibridge;
mod outcome;
pub mod search;
mod spec;

pub use cluster::Cluster;
pub use drive::{RunOptions, run, run_with};
pub use ibridge::IbridgeSpec;
pub use outcome::{
    DeviceOutcome, DeviceRole, IbridgeOutcome, Measure, OpKind, Outcome, PhaseOutcome, RunError,
};
pub use spec::{
    ClientSpec, ClusterSpec, LayoutSpec, MetadataSpec, Module, Payload, ServerSpec, SpecError, TailSpec,
    TargetSpec,
};
pub use weft_core::Histogram;
pub use weft_wire::status::IbridgeStatus;
