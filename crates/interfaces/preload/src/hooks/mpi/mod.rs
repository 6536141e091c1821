//! MPI hooks: hints of `MPI_File_open` for layouts and collective calls, and trace records of MPI-IO.
//!
//! One library serves every MPI. Handles are opaque words (an `int` in MPICH's ABI, a pointer in Open MPI's and the
//! standard one) and are passed on unchanged; only an info object returned by MPI is read with its width. MPI is
//! queried through its `PMPI_` routines. If an MPI lacks a large-count routine (`_c`), the call goes to the routine
//! with an `int` count, if the count fits. Without tracing and delegates, a routine costs the check of one word and a
//! jump.
//!
//! Routines are defined under their `MPI_` and `PMPI_` names: MPICH's Fortran bindings call the former, Open MPI's the
//! latter. Each calls the next definition of its own name. Nested calls are passed on without a record.

mod abi;
mod access;
mod collective;
mod files;
mod hints;
mod pieces;
mod record;

use std::sync::atomic::{AtomicBool, Ordering};

static WATCHED: AtomicBool = AtomicBool::new(false);

/// Whether routines that move bytes are traced, gather the pieces that go to delegates, or need other hints.
#[inline(always)]
fn is_watched() -> bool {
    WATCHED.load(Ordering::Relaxed)
}

/// Starts to watch these routines.
fn watch() {
    WATCHED.store(true, Ordering::Relaxed);
}

/// Starts to watch these routines if the settings require it. Called at the start of the process.
pub fn at_start() {
    let wanted = crate::trace::is_on() || crate::backend::has_delegates();
    WATCHED.store(wanted, Ordering::Relaxed);
}
