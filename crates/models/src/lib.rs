//! Models of devices for the simulated world and for emulated targets: hard disks, solid-state disks, networks, and
//! file systems that lock. They share nothing with the formulas by which layouts are planned.
//!
//! Everything here is a state machine that somebody else's clock drives: the same requests at the same times end at
//! the same times. What is modelled, with equations and sources, stands in `docs/models.md`.
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
mod rng;
pub mod ssd;
mod time;

pub use block::{BlockSpec, Elevator};
pub use disk::Disk;
pub use files::FilesSpec;
pub use network::{NetworkError, NetworkSpec};
pub use profile::{Profile, ProfileError};
