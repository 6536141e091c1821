//! C programs that check what POSIX and Linux promise of libc functions, with and without the library.

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
    tree_walks,
    working_directory,
    descriptor_links,
    errors,
    streams,
    processes,
    locks,
    shared_locks,
    limits,
    memory,
    mapped,
    inline_calls,
    threads,
    shared_positions,
    wide_streams,
    bad_pointers,
    flags,
    by_number,
    transfers,
    libaio
);

#[test]
fn shared_writable_mappings_are_written_back_on_request() {
    both_succeed(&World::new(), "memory.c", &[("WEFT_MMAP_SHARED", "writeback")]);
}
