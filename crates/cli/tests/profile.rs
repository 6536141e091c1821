//! Profiles of real paths, and servers that emulate devices.

mod common;

use common::{Embedded, WEFT, shown, succeeded};
use std::process::Command;
use std::time::Instant;

#[test]
fn a_path_is_measured_and_its_profile_can_be_emulated() {
    let cluster = Embedded::new();
    let device = cluster.local("device");
    std::fs::create_dir(&device).expect("a directory");
    let file = cluster.local("disk.toml");
    let mut profile = Command::new(WEFT);
    profile.arg("profile").arg(&device).args(["--size", "16M", "--time", "2s", "--json", "-o"]).arg(&file);
    let told: serde_json::Value = serde_json::from_str(&succeeded(&mut profile)).expect("JSON");
    assert!(told["samples"].as_array().is_some_and(|samples| samples.len() > 5), "{told}");
    assert!(told["held_out"]["error_median"].as_f64().is_some_and(f64::is_finite), "{told}");
    assert_eq!(told["profile"]["name"], "disk");
    assert_eq!(std::fs::read_dir(&device).expect("a directory").count(), 0, "nothing is left behind");
    // A cluster on it.
    cluster.run(["true"]);
    cluster.weft(["stop"]);
    let text = std::fs::read_to_string(cluster.file()).expect("a cluster file");
    let emulate = format!("class = \"hdd\"\nemulate = {:?}\n", file.display().to_string());
    std::fs::write(cluster.file(), text.replace("class = \"hdd\"\n", &emulate)).expect("written");
    assert_eq!(cluster.run(["sh", "-c", "echo real > /weft/bytes; cat /weft/bytes"]), "real\n");
    assert!(cluster.weft(["status"]).contains("buffered, emulates disk"), "{}", cluster.weft(["status"]));
    let stripes = cluster.weft(["getstripe", "/weft/bytes"]);
    assert!(stripes.contains("emulated: ") && stripes.contains("disk.toml"), "{stripes}");
}

#[test]
fn an_emulated_disk_takes_a_disks_time() {
    let cluster = Embedded::new();
    cluster.run(["true"]);
    cluster.weft(["stop"]);
    let text = std::fs::read_to_string(cluster.file()).expect("a cluster file");
    let slow = text.replace("class = \"hdd\"\n", "class = \"hdd\"\nemulate = \"ibridge-hdd\"\n");
    std::fs::write(cluster.file(), slow).expect("written");
    // A sync of new bytes on a disk without a write cache waits for its platters, more than once.
    let start = Instant::now();
    let script = "weft setstripe --class hdd -c 1 /weft/a; for n in 1 2 3; do dd if=/dev/zero of=/weft/a bs=64k \
                  count=1 seek=$n conv=notrunc,fsync status=none; done";
    let script = script.replace("weft set", &format!("{WEFT} --cluster {} set", cluster.file().display()));
    cluster.run(["sh", "-c", &script]);
    assert!(start.elapsed().as_millis() > 12, "three syncs of a disk");
    let refused = text.replace("class = \"ssd\"\n", "class = \"ssd\"\nemulate = \"floppy\"\n");
    std::fs::write(cluster.file(), refused).expect("written");
    let output =
        Command::new(WEFT).arg("config").arg("check").arg(cluster.file()).output().expect("weft starts");
    let said = shown(&output);
    assert!(!output.status.success() && said.contains("hdd-nearline") && said.contains("floppy"), "{said}");
}

#[test]
fn a_path_that_cannot_be_measured_is_named() {
    let output = Command::new(WEFT).args(["profile", "/nowhere/at/all"]).output().expect("weft starts");
    assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
    assert!(shown(&output).contains("/nowhere/at/all"), "{}", shown(&output));
    let output = Command::new(WEFT).args(["profile", "/tmp", "--size", "1M"]).output().expect("weft starts");
    assert_eq!(output.status.code(), Some(2), "{}", shown(&output));
}
