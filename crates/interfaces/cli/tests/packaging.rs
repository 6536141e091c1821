//! Files for packages and schedulers.

mod common;

use common::{WEFT, needs, root, shown};
use std::process::Command;

#[test]
fn systemd_accepts_the_unit() {
    needs("systemd-analyze");
    let dir = tempfile::tempdir().expect("a directory");
    let unit = std::fs::read_to_string(root().join("contrib/systemd/weft@.service")).expect("the unit");
    // As `make install` changes it.
    let installed = unit.replace("ExecStart=weft", &format!("ExecStart={WEFT}"));
    assert_ne!(installed, unit);
    let file = dir.path().join("weft@node0.service");
    let verify = |text: &str| {
        std::fs::write(&file, text).expect("written");
        Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&file).output().expect("it starts")
    };
    let output = verify(&installed);
    assert!(output.status.success() && output.stderr.is_empty(), "{}", shown(&output));
    // The check finds errors.
    let output = verify(&installed.replace("LimitNOFILE=", "LimitNOFILES="));
    assert!(String::from_utf8_lossy(&output.stderr).contains("LimitNOFILES"), "{}", shown(&output));
}
