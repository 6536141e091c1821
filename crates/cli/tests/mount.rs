//! `weft mount` and `weft umount`.

mod common;

use common::mounts::{self, Mounted};
use common::{Embedded, succeeded};
use std::process::Command;

#[test]
fn a_mount_shows_what_programs_wrote_and_ends_when_told() {
    if !mounts::possible() {
        return;
    }
    let cluster = Embedded::started();
    cluster.run(["sh", "-c", "echo from a program > /weft/one"]);
    let dir = cluster.local("mount");
    let at = dir.to_str().expect("text");
    assert!(cluster.fails(1, ["mount", at]).contains("mount"), "a directory that is not there");
    std::fs::create_dir(&dir).expect("made");
    let said = cluster.weft(["mount", at]);
    let _mounted = Mounted(dir.clone());
    assert!(said.contains("is mounted"), "{said}");

    assert_eq!(std::fs::read_to_string(dir.join("one")).expect("read"), "from a program\n");
    std::fs::write(dir.join("two"), "from the kernel\n").expect("written");
    assert_eq!(cluster.weft(["cat", "/weft/two"]), "from the kernel\n");
    // What the preload library cannot do: run a program that lies there.
    let script = dir.join("program");
    std::fs::copy("/bin/true", &script).expect("copied");
    succeeded(&mut Command::new(&script));
    // A server's idle limit does not end a cluster that is mounted: the mount is connected.
    let found = Command::new("find").arg(&dir).args(["-type", "f"]).output().expect("find starts");
    assert_eq!(String::from_utf8_lossy(&found.stdout).lines().count(), 3);

    cluster.weft(["umount", at]);
    assert_eq!(std::fs::read_dir(&dir).expect("a directory").count(), 0, "nothing is mounted any more");
    assert!(cluster.fails(2, ["umount", at]).contains("no cluster is mounted there"));
}
