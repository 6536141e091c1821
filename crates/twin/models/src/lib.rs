//! Device models for the simulated world and for emulated targets: hard disks, SSDs, networks and locking file systems.
//!
//! Every model is a state machine without a clock. The caller passes the time of each request, and equal requests at
//! equal times end at equal times. The models share no code with the cost formulas of the planner, so that the model
//! that judges a layout is not the one that planned it. `docs/design/models.md` has the equations and their sources.
// Runs in the simulated world: no clock, file, socket or thread (see clippy.toml).
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]

mod block;
pub mod calibrate;
mod curve;
mod disk;
mod drive;
mod files;
pub mod hdd;
pub mod locks;
pub mod network;
pub mod profile;
pub mod ssd;
mod time;

pub use block::{BlockSpec, Elevator};
pub use disk::Disk;
pub use files::FilesSpec;
pub use network::{NetworkError, NetworkSpec};
pub use profile::{Profile, ProfileError};
