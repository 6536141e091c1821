//! What a server keeps on its devices: datafiles, I/O modules, the fragment log beside a target and the metadata database.
// Runs in the simulated world too: no clock, file, socket or thread but those of weft-env (see clippy.toml).
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]
#![allow(async_fn_in_trait)] // As in weft-env: futures stay on the task that made them.

pub mod aligned;
pub mod datafile;
pub mod emulate;
pub mod error;
pub mod fragments;
pub mod identity;
pub mod integrity;
pub mod metadata;
mod module_direct;
mod module_null;
mod range_lock;
mod seal;
pub mod target;
