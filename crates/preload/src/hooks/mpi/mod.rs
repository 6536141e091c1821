//! The MPI tap: layout hints of `MPI_File_open`, and what the tracer records of MPI-IO.
//!
//! One library serves every MPI: handles are opaque words (an `int` in MPICH's ABI, a pointer in Open MPI's and the
//! standard one), passed on as they came; only an info object that MPI hands out is read by its width. What is asked of
//! an MPI is asked by its own `PMPI_` routines. A large-count routine (`_c`) that an MPI lacks becomes the one with an
//! `int`, as far as the count fits. Without tracing a routine costs one look at a word and a jump.
//!
//! MPICH's Fortran bindings call these C functions. Open MPI's call their `PMPI_` names, where no tap sees them: its
//! Fortran programs take layouts from their directory's default and have POSIX operations only in their traces.

mod abi;
mod access;
mod files;
mod hints;
mod record;
