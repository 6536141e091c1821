//! The library that is loaded into unmodified programs: libc entry points and the MPI tap.
