//! Nearly full targets: new files avoid them, and a message explains it if no other target is left. Full disks: servers
//! start on them, and files can be removed and truncated.

mod common;

use common::{Embedded, WEFT, shown};
use std::path::Path;

/// Runs a script that mounts a small file system, in a mount namespace of its own. Its arguments are `dir` and the weft
/// command. Returns false if such a file system cannot be made here.
#[track_caller]
fn ran(dir: &Path, script: &str) -> bool {
    let mut command = common::isolated("unshare");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c", script, "sh"]).arg(dir).arg(WEFT);
    let output = command.current_dir(dir).output().expect("unshare (util-linux)");
    if output.status.code() == Some(77) || shown(&output).contains("unshare failed") {
        common::skip::skip(format_args!("a small file system cannot be created here: {}", shown(&output)));
        return false;
    }
    assert!(output.status.success(), "{:?}: {}", output.status, shown(&output));
    true
}

/// Script for a cluster with targets on small file systems, which it mounts in its own namespace.
const SCRIPT: &str = r#"
    weft="$2 --cluster $1/state/cluster.toml"
    mount -t tmpfs -o size=16m none "$1/small" || exit 77
    # The targets are copied there, because blank targets would be refused.
    cp -a "$1/state/targets/ssd2" "$1/state/targets/ssd3" "$1/small/" || exit 1
    # Until the metadata service knows the free space, which it only asks for now and then when files are created.
    until_ssds() {
        n=0
        while [ $n -lt 300 ]; do
            n=$((n + 1)); state=refused
            $weft setstripe --class ssd "/weft/$1$n" 2> "$1.error" && state=made
            [ $state = "$2" ] && return
            sleep 0.1
        done
        echo "never $2" >&2; exit 1
    }
    "$2" run --state "$1/state" -- true || exit 1
    until_ssds before made
    $weft df > df.before
    dd if=/dev/zero of=small/other bs=1M count=15 status=none || exit 1
    until_ssds full refused
    $weft df > df.full; $weft status > status.full
    # Files without a class go to the disks.
    "$2" run --state "$1/state" -- sh -c 'echo bytes > /weft/anywhere' || exit 1
    $weft getstripe /weft/anywhere > anywhere
    rm small/other
    until_ssds again made
    $weft df > df.after
    $weft stop
"#;

#[test]
fn new_files_avoid_nearly_full_targets() {
    let cluster = Embedded::new();
    cluster.run(["true"]);
    cluster.weft(["stop"]);
    let dir = cluster.local("");
    std::fs::create_dir(dir.join("small")).expect("made");
    let text = std::fs::read_to_string(cluster.file()).expect("a cluster file");
    let mut moved = String::new();
    for line in text.lines() {
        let path = line.trim_start().starts_with("path = ");
        match ["ssd2", "ssd3"].iter().find(|ssd| path && line.contains(&format!("targets/{ssd}"))) {
            Some(ssd) => {
                let at = dir.join("small").join(ssd);
                moved += &format!("path = {:?}\nreserve = \"4 MiB\"\n", at.display().to_string());
            }
            None => moved += &format!("{line}\n"),
        }
    }
    assert_eq!(moved.matches("reserve").count(), 2, "{text}");
    std::fs::write(cluster.file(), moved).expect("written");
    if !ran(&dir, SCRIPT) {
        return;
    }
    let read = |name: &str| std::fs::read_to_string(dir.join(name)).expect(name);
    let refused = read("full.error");
    assert!(
        refused.contains("no target of class ssd has space for a new file") && refused.contains("reserve"),
        "{refused}"
    );
    for name in ["df.before", "df.after"] {
        assert!(!read(name).contains("nearly full"), "{}", read(name));
    }
    for name in ["df.full", "status.full"] {
        let text = read(name);
        assert_eq!(text.matches("is nearly full: it gets no new files").count(), 2, "{text}");
    }
    let anywhere = read("anywhere");
    assert!(anywhere.contains("hdd") && !anywhere.contains("ssd"), "{anywhere}");
}

/// Begin of a script for an embedded cluster all of which is on one small file system.
const ON_SMALL_DISK: &str = r#"
    run="$2 run --state $1/full/state"
    weft="$2 --cluster $1/full/state/cluster.toml"
    mount -t tmpfs -o size=112m none "$1/full" || exit 77
    fill() {
        dd if=/dev/zero of=full/other bs=64k oflag=append conv=notrunc status=none 2> /dev/null
        dd if=/dev/zero of=full/rest bs=1 oflag=append conv=notrunc status=none 2> /dev/null
        df --output=avail -B1 full | tail -n 1 >> free
    }
    # Until the metadata service has space in reserve again.
    until_writable() {
        n=0
        until $run -- sh -c 'head -c 3000000 /dev/zero > /weft/new' 2> later; do
            n=$((n + 1)); [ $n -lt 300 ] || exit 9
            sleep 0.1
        done
    }
"#;

/// Runs a script on a small disk that it fills. Returns the directory and the cluster, or `None` if that is impossible here.
#[track_caller]
fn on_full_disk(script: &str, fillings: usize) -> Option<Embedded> {
    let cluster = Embedded::new();
    let dir = cluster.local("");
    std::fs::create_dir(dir.join("full")).expect("made");
    if !ran(&dir, &format!("{ON_SMALL_DISK}{script}")) {
        return None;
    }
    let free = std::fs::read_to_string(dir.join("free")).expect("free");
    assert_eq!(free.split_whitespace().collect::<Vec<_>>(), vec!["0"; fillings], "the disk was full");
    Some(cluster)
}

#[test]
fn a_cluster_on_a_full_disk_starts_and_files_can_be_removed() {
    let script = r#"
    $run -- sh -c 'for n in 1 2 3 4; do head -c 3000000 /dev/urandom > /weft/f$n || exit 1; done; mkdir /weft/dir' || exit 1
    $run -- md5sum /weft/f4 > sum
    $weft stop || exit 1
    fill
    # Nothing fits, but everything can be read, and space can be given back.
    $run -- md5sum /weft/f4 > again || exit 2
    cmp sum again || exit 3
    $run -- sh -c 'head -c 3000000 /dev/zero > /weft/new' 2> refused && exit 4
    $run -- sh -c 'rm -f /weft/new /weft/f1 && truncate -s 100 /weft/f2 && rmdir /weft/dir' || exit 5
    # Servers that are killed there start again.
    fill
    $weft stop --kill || exit 6
    $run -- md5sum /weft/f4 > again || exit 2
    cmp sum again || exit 3
    $run -- ls /weft > names || exit 8
    rm full/other full/rest
    until_writable
    $weft stop
"#;
    let Some(cluster) = on_full_disk(script, 2) else { return };
    let read = |name: &str| std::fs::read_to_string(cluster.local("").join(name)).expect(name);
    assert!(read("refused").contains("No space left"), "{}", read("refused"));
    assert_eq!(read("names"), "f2\nf3\nf4\n");
}

/// A map that a killed server leaves needs a checkpoint before the first change, and that needs space.
#[test]
fn compressed_files_on_a_full_disk_shrink_after_a_kill() {
    let script = r#"
    $run -- sh -c 'mkdir /weft/d' || exit 1
    $weft setstripe --compress lz4/64KiB -c 1 /weft/d || exit 1
    # Overwritten and appended in small pieces, so that maps name space that was used again.
    $run -- python3 -c '
import os
for name in "abcd":
    with open("/weft/d/" + name, "wb", 0) as f:
        f.write(os.urandom(3_000_000))
        for turn in range(30):
            os.pwrite(f.fileno(), os.urandom(70_000), turn * 65_536)
            os.pwrite(f.fileno(), os.urandom(70_000), turn * 65_536)
            f.write(b"more " * 20)' || exit 1
    $run -- md5sum /weft/d/d > sum
    fill
    $weft stop --kill || exit 2
    $run -- md5sum /weft/d/d > again || exit 3
    cmp sum again || exit 4
    $run -- sh -c 'truncate -s 1000 /weft/d/a && truncate -s 0 /weft/d/b && fallocate -p -o 0 -l 2500000 /weft/d/c' || exit 5
    # What was given back can be used at once.
    $run -- sh -c 'head -c 1000000 /dev/urandom > /weft/d/d && rm /weft/d/a && sync -f /weft/d/d' || exit 6
    $run -- md5sum /weft/d/d > sum
    fill
    $weft stop --kill || exit 7
    $run -- md5sum /weft/d/d > again || exit 3
    cmp sum again || exit 4
    $run -- ls /weft/d > names || exit 8
    rm full/other full/rest
    until_writable
    $weft stop
"#;
    common::needs("python3");
    let Some(cluster) = on_full_disk(script, 2) else { return };
    let names = std::fs::read_to_string(cluster.local("").join("names")).expect("names");
    assert_eq!(names, "b\nc\nd\n");
}
