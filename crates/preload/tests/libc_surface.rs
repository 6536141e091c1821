//! C programs that ask the libc surface for what POSIX and Linux promise, with and without the library.

mod support;
use support::{World, both_succeed};

macro_rules! programs {
    ($($name:ident),*) => { $(
        #[test]
        fn $name() {
            both_succeed(&World::new(), concat!(stringify!($name), ".c"), &[]);
        }
    )*
    };
}
programs!(
    descriptors,
    names,
    above,
    directories,
    streams,
    processes,
    locks,
    shared_locks,
    limits,
    memory,
    threads
);

#[test]
fn shared_writable_maps_are_written_back_when_asked_for() {
    both_succeed(&World::new(), "memory.c", &[("WEFT_MMAP_SHARED", "writeback")]);
}
