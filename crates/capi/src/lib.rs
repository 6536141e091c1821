//! The C interface to Weft: what `include/weft.h` declares, which is also its manual.
//!
//! Every function checks its pointers, does its work inside `fail::guard`, so that no panic crosses into C, and
//! reports failure by its return value, `errno` and a sentence that `weft_error` gives.
//!
//! Objects that C holds are made for the process that made them: in a forked child they are made again, from what
//! the parent's say, at their first use (`forked::Forked`).

mod args;
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
