//! Programs with a statically linked allocator: its first allocation calls the C library, and thereby the hooks, before
//! the program or the library is initialized.

mod support;
use std::path::Path;
use std::process::Command;
use support::{World, build_example, compile_linked, fresh_directory, run, text};

/// Runs a program on a plain directory and on the mount.
fn runs_well(program: &Path) {
    let room = tempfile::tempdir().expect("space for a test");
    let plain = run(Command::new(program).arg(room.path()));
    assert!(plain.status.success(), "without the library: {}", text(&plain));
    let world = World::new();
    let served = run(world.serve(&mut Command::new(program)).arg(fresh_directory(&world, "allocator")));
    assert!(served.status.success(), "with the library: {}", text(&served));
}

/// Runs `allocator.c`, linked with the static library `archive`; `own` is a function of that allocator.
fn linked_with(archive: &str, own: &str) {
    let room = tempfile::tempdir().expect("space for a test");
    let archive = format!("-l:{archive}");
    let define = format!("-DOWN={own}");
    let links = ["-Wl,--whole-archive", &archive, "-Wl,--no-whole-archive", "-lstdc++", "-lm", "-ldl"];
    runs_well(&compile_linked("allocator.c", room.path(), &[&define], &links));
}

#[test]
fn jemalloc() {
    linked_with("libjemalloc.a", "mallctl");
}

#[test]
fn tcmalloc() {
    linked_with("libtcmalloc_minimal.a", "tc_version");
}

#[test]
fn mimalloc() {
    runs_well(&build_example("mimalloc"));
}
