//! Rights of another user on a mount by root.

mod common;

use common::mounts::{self, Mounted};
use common::{Embedded, isolated, needs, skip, succeeded};
use std::fs;
use std::os::unix::fs::PermissionsExt;

/// Program that acts as another user.
const OTHER_USER: &str =
    concat!(include_str!("programs/children.py"), include_str!("programs/other_user.py"));

#[test]
fn another_user_runs_programs_without_reading_them_and_clears_set_id_bits() {
    needs("python3");
    if !mounts::possible() || !skip::unless_root("acting as another user") {
        return;
    }
    let cluster = Embedded::started();
    let dir = cluster.local("a");
    fs::create_dir(&dir).expect("made");
    for dir in [&dir, &cluster.local("")] {
        fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).expect("set");
    }
    cluster.weft(["mount", "--allow-other", dir.to_str().expect("text")]);
    let mounted = Mounted(dir);
    // The kernel is the model.
    for dir in [cluster.local("here"), mounted.at("there")] {
        let mut program = isolated("python3");
        program.args(["-c", OTHER_USER]).arg(&dir).args(["programs", "set_ids"]);
        assert_eq!(succeeded(&mut program), "well\n", "{}", dir.display());
    }
}
