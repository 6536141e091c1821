//! The C interface to Weft. `include/weft.h` declares it and is its manual.
//!
//! Every function checks its pointers and runs inside `fail::guard`, so that no panic crosses into C. It reports
//! failure by its return value, `errno` and a message that `weft_error` returns.
//!
//! Bytes of files go through the I/O delegates of the job if `WEFT_DELEGATES` names one (`connection`).
//!
//! Objects that C holds belong to the process that created them. A forked child recreates them from its parent's at
//! their first use (`forked::Forked`).

mod args;
mod cluster;
mod connection;
mod dir;
mod fail;
mod file;
mod forked;
mod io;
mod layout;
mod lock;
mod names;
mod stat;
mod xattr;
