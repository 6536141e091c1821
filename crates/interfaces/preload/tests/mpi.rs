//! The MPI hooks with Debian's MPIs (`apt-get install mpich libmpich-dev openmpi-bin libopenmpi-dev`). A test of one
//! that is not installed is skipped with a message.

mod support;
use std::process::Command;
use support::{World, compile_with, fresh_directory, run, text};

fn check_hints(compiler: &str, launcher: &[&str]) {
    if Command::new(compiler).arg("-show").output().is_err() {
        eprintln!("skipped: {compiler} is not installed");
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
