//! Files without a name (`O_TMPFILE`) in programs under `weft run`.

mod common;

use common::{Embedded, needs};

/// Program for a new directory.
const PROGRAM: &str = include_str!("programs/unnamed.py");

#[test]
fn programs_under_weft_run_create_files_without_a_name() {
    needs("python3");
    let cluster = Embedded::started();
    assert_eq!(cluster.run(["python3", "-c", PROGRAM, "/weft/d"]), "well\n");
    assert!(cluster.weft(["fsck"]).contains("0 problems"));
}
