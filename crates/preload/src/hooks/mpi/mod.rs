//! The MPI tap: layout hints of `MPI_File_open`, and what the tracer records of MPI-IO.
//!
//! One library serves every MPI: handles are opaque words (an `int` in MPICH's ABI, a pointer in Open MPI's and the
//! standard one), passed on as they came; only an info object that MPI hands out is read by its width. What is asked of
//! an MPI is asked by its own `PMPI_` routines. A large-count routine (`_c`) that an MPI lacks becomes the one with an
//! `int`, as far as the count fits. Without tracing a routine costs one look at a word and a jump.
//!
//! Routines are there by their `MPI_` and `PMPI_` names: MPICH's Fortran bindings call the former, Open MPI's the latter.
//! Each goes on to the next of its own name, and what is called within a call is passed on as it is.

mod abi;
mod access;
mod files;
mod hints;
mod record;
