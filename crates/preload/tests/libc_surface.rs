//! C programs that ask the libc surface for what POSIX and Linux promise, with and without the library.

mod support;
use support::{World, both_succeed};

macro_rules! programs {
    ($($name:ident),*) => { $(
        #[test]
        fn $name() {
            both_succeed(&World::local(), concat!(stringify!($name), ".c"), &[]);
        }
    )*

        /// The same programs on servers.
        #[test]
        fn all_on_a_cluster() {
            let world = World::cluster();
            $( both_succeed(&world, concat!(stringify!($name), ".c"), &[]); )*
        }
    };
}
programs!(descriptors, names, directories, streams, processes, locks, memory, threads);

#[test]
fn shared_writable_maps_are_written_back_when_asked_for() {
    both_succeed(&World::local(), "memory.c", &[("WEFT_MMAP_SHARED", "writeback")]);
}
