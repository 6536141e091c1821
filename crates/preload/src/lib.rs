//! The library that `LD_PRELOAD` puts into unmodified programs.
//!
//! It defines the libc entry points that take paths or descriptors. Paths under the mount prefix (`WEFT_MOUNT`,
//! default `/weft`) are served through the client; everything else goes to the next definition of the same name,
//! untouched. A program that never names a path under the mount gets no connection, no thread and no descriptor.
//!
//! Rooms: `hooks` (one place per entry point) -> `route` (is it ours?) -> `open`, `table` (descriptors) ->
//! `backend` (the client, or a local directory for tests). What is deliberately different from a kernel file
//! system is listed in `docs/preload.md`.
//!
//! Invariants:
//! * A descriptor of ours is always also a descriptor of the kernel (a placeholder), so numbers never clash, and
//!   the placeholder's own offset is the file position: dup, fork and exec share it as POSIX says.
//! * Until the constructor has run no hook allocates, takes a lock or reads the environment (`config`).
//! * A foreign call allocates nothing: it may come from the middle of the program's allocator.
//! * While a thread is inside the client its calls go straight to libc (`guard`).
//! * A successful call leaves `errno` as it was.
#![allow(unsafe_op_in_unsafe_fn)] // Each hook is one C contract: its pointers are as good as its caller's.
#![allow(clippy::missing_safety_doc)] // The safety of an entry point is that of the manual page of its name.
#![allow(clippy::undocumented_unsafe_blocks)] // Same: blocks here only pass on what the C caller vouched for.
#![cfg_attr(test, allow(dead_code))] // In a test program the hooks have no names, so that it is not served by itself.

#[macro_use]
mod real;

mod backend;
mod config;
mod early;
mod errno;
mod guard;
mod hooks;
mod lifecycle;
mod limits;
mod lock;
mod open;
mod pathname;
mod placeholder;
mod route;
mod serve;
mod sys;
mod table;
mod trace;
