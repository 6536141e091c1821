//! A file of 64 GiB with few bytes in it, through every interface of Weft.

mod common;

use common::mounts::{self, Mounted};
use common::{Embedded, succeeded};
use std::process::Command;

const LEN: u64 = 64 << 30;
/// Maximum size that du may report: the written bytes, in blocks of four datafiles.
const STORED_BYTES_MAX: u64 = 1 << 20;

/// Script for the mount and for the preload library; it only gets a path.
const SCRIPT: &str = r#"
set -eu
f=$1
printf begin | dd of=$f conv=notrunc status=none
printf "the end" | dd of=$f bs=1 seek=$((LEN - 7)) conv=notrunc status=none
test $(stat -c %s $f) = $LEN
# Read the last bytes, the first bytes, and zeros between them, also across a stripe boundary.
test "$(tail -c 7 $f)" = "the end"
test "$(head -c 5 $f)" = begin
for at in 5 1048570 $((LEN / 2 - 3)) $((LEN - 1048576 - 7)); do
    test "$(dd if=$f bs=1M count=1 skip=$at iflag=skip_bytes status=none | tr -d '\0' | wc -c)" = 0
done
# There are no bytes beyond the end.
test "$(dd if=$f bs=1M skip=$LEN iflag=skip_bytes status=none | wc -c)" = 0
# A write in the middle leaves holes on both sides.
printf middle | dd of=$f bs=1 seek=$((LEN / 2)) conv=notrunc status=none
test "$(dd if=$f bs=16 count=1 skip=$((LEN / 2 - 5)) iflag=skip_bytes status=none | tr '\0' .)" = .....middle.....
test $(du -B1 $f | cut -f1) -le $STORED_BYTES_MAX
# Truncate and extend: the bytes beyond are gone.
truncate -s $((LEN / 2 + 3)) $f
test $(stat -c %s $f) = $((LEN / 2 + 3))
test "$(tail -c 3 $f)" = mid
truncate -s $LEN $f
test $(stat -c %s $f) = $LEN
test "$(dd if=$f bs=16 count=1 skip=$((LEN / 2)) iflag=skip_bytes status=none | tr '\0' .)" = mid.............
test "$(tail -c 7 $f | tr '\0' .)" = .......
"#;

fn script(file: &str) -> [String; 6] {
    let shell = format!("LEN={LEN}\nSTORED_BYTES_MAX={STORED_BYTES_MAX}\n{SCRIPT}");
    ["bash".into(), "-e".into(), "-c".into(), shell, "script".into(), file.into()]
}

#[test]
fn a_sparse_file_stays_sparse_through_the_preload_library() {
    let cluster = Embedded::new();
    cluster.run(script("/weft/file"));
}

#[test]
fn a_sparse_file_stays_sparse_through_a_mount() {
    if !mounts::possible() {
        return;
    }
    let cluster = Embedded::started();
    let mount = Mounted::new(&cluster, "mount");
    let [program, args @ ..] = script(mount.at("file").to_str().expect("text"));
    succeeded(Command::new(program).args(args));
}

#[test]
fn a_sparse_file_stays_sparse_through_the_commands() {
    let cluster = Embedded::started();
    // Programs create the file, because a copy of 64 GiB of zeros would take long.
    let half = LEN / 2;
    cluster.run([
        "bash",
        "-ec",
        &format!(
            "truncate -s {LEN} /weft/file; printf middle | dd of=/weft/file bs=1 seek={half} conv=notrunc"
        ),
    ]);
    assert!(cluster.weft(["ls", "-l", "/weft"]).contains(&LEN.to_string()));
    assert!(cluster.weft(["stat", "/weft/file"]).contains(&LEN.to_string()));
    let du = cluster.weft(["du", "/weft/file"]);
    let kib: u64 = du.split_whitespace().next().and_then(|kib| kib.parse().ok()).expect("a number");
    assert!((1..=STORED_BYTES_MAX / 1024).contains(&kib), "{du}");
    assert!(cluster.weft(["fsck"]).contains(" 0 problems"));
    cluster.weft(["mv", "/weft/file", "/weft/moved"]);
    assert!(cluster.weft(["ls", "-l", "/weft"]).contains(&LEN.to_string()));
    cluster.weft(["rm", "/weft/moved"]);
    assert_eq!(cluster.weft(["ls", "/weft"]), "");
}
