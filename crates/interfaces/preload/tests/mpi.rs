//! The MPI hooks with Debian's MPIs (`apt-get install mpich libmpich-dev openmpi-bin libopenmpi-dev`). A test of one
//! that is not installed is skipped with a message.

mod support;
use std::process::Command;
use support::{World, compile_with, fresh_directory, run, text};

fn check_hints(compiler: &str, launcher: &[&str]) {
    if support::skip::without(compiler) {
        return;
    }
    let world = World::new();
    let room = tempfile::tempdir().expect("space for a test");
    let program = compile_with(compiler, "mpi_hints.c", room.path());
    let dir = fresh_directory(&world, compiler);
    let mut command = Command::new(launcher[0]);
    command.args(&launcher[1..]).arg("-n").arg("2").arg(program).arg(dir);
    let output = run(world.serve(&mut command).env("UCX_MEM_MMAP_HOOK_MODE", "none"));
    assert!(output.status.success(), "{}", text(&output));
    assert!(output.stdout.starts_with(b"hints kept"), "{}", text(&output));
}

#[test]
fn mpich_keeps_layout_hints() {
    check_hints("mpicc.mpich", &["mpiexec.mpich"]);
}

#[test]
fn open_mpi_keeps_layout_hints() {
    check_hints("mpicc.openmpi", &["mpiexec.openmpi", "--allow-run-as-root", "--oversubscribe"]);
}

/// Hint of ROMIO that two-phase I/O is off.
const DIRECT: &str = "disable";
/// Default of ROMIO.
const LIBRARY: &str = "automatic";

/// Runs collective calls and checks the hints in force; Open MPI's own module has none, so only the bytes are checked.
fn check_collective(compiler: &str, launcher: &[&str]) {
    if support::skip::without(compiler) {
        return;
    }
    let world = World::new();
    let room = tempfile::tempdir().expect("space for a test");
    let program = compile_with(compiler, "mpi_collective.c", room.path());
    let dir = fresh_directory(&world, compiler);
    for (expected, environment, key, own_hint) in [
        (LIBRARY, "", "-", "-"),
        (DIRECT, "direct", "-", "-"),
        (DIRECT, "library", "direct", "-"),
        (LIBRARY, "direct", "library", "-"),
        ("enable", "direct", "-", "enable"),
    ] {
        let mut command = Command::new(launcher[0]);
        command
            .args(&launcher[1..])
            .args(["-n", "3"])
            .arg(&program)
            .arg(&dir)
            .args([expected, key, own_hint]);
        let command = world.serve(&mut command).env("UCX_MEM_MMAP_HOOK_MODE", "none");
        let output = run(command.env("WEFT_COLLECTIVE", environment));
        let case = format!("{environment} {key} {own_hint}: {}", text(&output));
        assert!(output.status.success() && output.stdout == b"0 bytes are wrong\n", "{case}");
    }
}

#[test]
fn collective_calls_of_mpich_follow_the_setting() {
    check_collective("mpicc.mpich", &["mpiexec.mpich"]);
}

#[test]
fn collective_calls_of_open_mpi_follow_the_setting() {
    check_collective("mpicc.openmpi", &["mpiexec.openmpi", "--allow-run-as-root", "--oversubscribe"]);
}
