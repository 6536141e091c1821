//! Storage of a server: targets and datafiles, I/O modules, fragment logs and the metadata database.
// Also runs in the simulation, so clocks, files, sockets and threads come from weft-env alone (see clippy.toml).
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]
#![allow(async_fn_in_trait)] // As in weft-env: a future stays on the task that created it.

pub mod aligned;
pub mod compressed;
mod content;
pub mod datafile;
pub mod emulate;
pub mod error;
pub mod fragments;
pub mod identity;
pub mod integrity;
pub mod metadata;
mod range_lock;
mod seal;
pub mod target;
