//! Locks of programs on mounts and under `weft run`.

mod common;

use common::mounts::{self, Mounted};
use common::{Embedded, isolated, needs, succeeded};

/// Program that takes locks of all kinds.
const LOCKS: &str = concat!(include_str!("programs/children.py"), include_str!("programs/locks.py"));

#[test]
fn locks_on_a_mount_are_those_of_the_kernel() {
    needs("python3");
    if !mounts::possible() {
        return;
    }
    let cluster = Embedded::started();
    let mounted = Mounted::new(&cluster, "a");
    // The kernel is the model.
    for dir in [cluster.local("here"), mounted.at("there")] {
        let mut program = isolated("python3");
        program.args(["-c", LOCKS]).arg(&dir);
        program.args(["flocks", "open_file_locks", "process_locks", "executed", "counted"]);
        assert_eq!(succeeded(&mut program), "well\n", "{}", dir.display());
    }
    // Programs of both kinds count in one file.
    for _ in 0..2 {
        assert_eq!(cluster.run(["python3", "-c", LOCKS, "/weft/there", "counted"]), "well\n");
        let mut program = isolated("python3");
        program.args(["-c", LOCKS]).arg(mounted.at("there")).arg("counted");
        assert_eq!(succeeded(&mut program), "well\n");
    }
}

#[test]
fn locks_under_weft_run_are_those_of_the_kernel() {
    needs("python3");
    let cluster = Embedded::started();
    let parts = ["flocks", "open_file_locks", "process_locks", "counted"];
    let program = ["python3", "-c", LOCKS, "/weft/d"];
    assert_eq!(cluster.run(program.into_iter().chain(parts)), "well\n");
}
