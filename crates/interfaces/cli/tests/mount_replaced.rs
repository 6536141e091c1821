//! Names that are replaced while programs on mounts use them.

mod common;

use common::mounts::{self, Mounted};
use common::{Embedded, isolated, needs, succeeded};

/// Program that replaces names and uses them.
const REPLACED: &str = include_str!("programs/replaced.py");

#[test]
fn a_replaced_name_is_the_old_or_the_new_file() {
    needs("python3");
    if !mounts::possible() {
        return;
    }
    let cluster = Embedded::started();
    let (a, b) = (Mounted::new(&cluster, "a"), Mounted::new(&cluster, "b"));
    for user in [&a, &b] {
        let mut program = isolated("python3");
        program.args(["-c", REPLACED]).args([a.at("d"), user.at("d")]);
        assert_eq!(succeeded(&mut program), "well\n");
    }
}
