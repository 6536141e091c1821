//! The library that `LD_PRELOAD` loads into unmodified programs.
//!
//! It defines the libc functions that take paths or descriptors, called *hooks*. Paths under the mount prefix
//! (`WEFT_MOUNT`, default `/weft`) are served through the client; every other call goes unchanged to the next
//! definition of the same name. A program that never names a path under the mount gets no connection, no thread and no
//! descriptor.
//!
//! # Path of a call
//!
//! ```text
//! program calls open(path)
//!    |
//! hooks      one definition per libc function
//!    |
//! route      is the path under the mount?  ---- no ---->  real    next definition of the same name
//!    | yes                                                early   system call, before the constructor
//! serve      marks the thread as inside the client (guard), converts the result to errno
//!    |
//! open       open file descriptions;  table: descriptor -> description
//!    |
//! backend    the client of Weft; delegates in front of it or of a file of the host
//! ```
//!
//! Files below directories that delegates serve (`over`) are opened by the kernel. Hooks that move bytes find their
//! descriptors in the same table, and `backend::File` sends the bytes to the delegates; hooks of names, attributes and
//! locks leave them to the kernel (`serve::on_weft_fd`).
//!
//! Streams (`FILE`) over registered descriptors are those of the C library, whose own calls come here by `libio`.
//!
//! `docs/reference/preload.md` lists the intended differences from a kernel file system.
//!
//! # Rules before initialization
//!
//! A hook can run before this library's constructor. An allocator that initializes itself may read a file or a link,
//! and its calls reach the hooks while it holds its own locks. Any allocation, lock or lazy initialization in a hook
//! could then deadlock.
//!
//! | phase | begins with | hooks may |
//! | --- | --- | --- |
//! | early | loading of the library | make system calls (`early`), or resolve other symbols with `dlsym` |
//! | constructor | `.init_array` (`lifecycle`) | initialize the allocator by a first `malloc`, then read the settings |
//! | ready | the end of `config::read` | serve Weft paths; allocate only for these |
//!
//! `config::ready()` is one atomic load and separates the phases: until it returns the settings, `route` treats every
//! path as foreign.
//!
//! # Invariants
//!
//! * A Weft descriptor is always also a descriptor of the kernel (a placeholder), so that numbers never clash. The
//!   placeholder's offset is the file position, so that dup, fork and exec share it as POSIX requires. A file of the host
//!   has the kernel's own descriptor in the place of a placeholder.
//! * Until the constructor has run, no hook allocates, takes a lock or reads the environment.
//! * A call on a foreign file allocates nothing: it may come from inside the program's allocator. That includes the check
//!   whether delegates serve a file that the kernel has opened.
//! * A call by path has the rights of the calling thread's user at that moment; an open file has those of its open.
//! * A relative path is walked from an inode, never from the text of a path.
//! * While a thread is inside the client, its own calls go straight to libc (`guard`).
//! * A hook uses a pointer of the program only after `memory` has found that it can be used.
//! * A successful call does not change `errno`.
#![allow(unsafe_op_in_unsafe_fn)] // A hook's pointers are as valid as its C caller made them.
#![allow(clippy::missing_safety_doc)] // The manual page of a hook's name states its contract.
#![allow(clippy::undocumented_unsafe_blocks)] // Unsafe blocks rely on the C caller's promises.
#![cfg_attr(test, allow(dead_code))] // A test program must not hook its own calls.

#[macro_use]
mod real;

mod backend;
mod children;
mod config;
mod early;
mod errno;
mod guard;
mod hooks;
mod libio;
mod lifecycle;
mod limits;
mod links;
mod lock;
mod memory;
mod open;
mod over;
mod pathname;
mod placeholder;
mod private;
mod route;
mod serve;
mod signal_wait;
mod sys;
mod table;
mod trace;
