//! Checksums at rest, through the whole system: a setting of a directory, damage on the disk, and a scrub that names it.

mod common;

use common::servers::Servers;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Datafiles below a target, without their checksums.
fn datafiles(target: &Path) -> Vec<PathBuf> {
    let folders =
        fs::read_dir(target.join("objects")).expect("a target").map(|entry| entry.expect("entry").path());
    let files = folders.flat_map(|folder| fs::read_dir(folder).expect("a folder"));
    files
        .map(|entry| entry.expect("entry").path())
        .filter(|path| path.extension() != Some("sum".as_ref()))
        .collect()
}

fn has_sums(datafile: &Path) -> bool {
    PathBuf::from(format!("{}.sum", datafile.display())).exists()
}

/// Flips a bit of a file on the disk.
fn damage(datafile: &Path, at: u64) {
    let file = fs::OpenOptions::new().read(true).write(true).open(datafile).expect("open");
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).expect("read");
    file.write_all_at(&[byte[0] ^ 4], at).expect("write");
}

#[test]
fn damage_is_an_error_that_names_it_and_a_scrub_names_the_file_and_the_range() {
    let servers = Servers::of_classes(&["hdd", "hdd"], "", "", "", "");
    let source = servers.path("source");
    let bytes: Vec<u8> = (0..1_000_000_u32).map(|at| (at % 251) as u8).collect();
    fs::write(&source, &bytes).expect("written");
    let source = source.to_str().expect("text").to_owned();
    // A directory has the setting; what is made in it gets it, and so do directories below.
    servers.weft(["setstripe", "--integrity", "crc32c", "-c", "1", "-i", "0", "/weft"]);
    servers.weft(["cp", &source, "/weft/checked"]);
    servers.weft(["mkdir", "/weft/off"]);
    servers.weft(["setstripe", "--integrity", "off", "/weft/off"]);
    servers.weft(["cp", &source, "/weft/off/plain"]);
    assert!(servers.weft(["getstripe", "/weft/checked"]).contains("integrity: crc32c"));
    assert!(servers.weft(["getstripe", "/weft/off/plain"]).contains("integrity: off"));
    assert!(servers.weft(["getstripe", "-d", "/weft"]).contains("integrity:     crc32c"));
    servers.weft(["setstripe", "--integrity", "crc32c", "/weft/off/new"]);
    assert!(
        servers.weft(["getstripe", "/weft/off/new"]).contains("integrity: crc32c"),
        "made with the setting"
    );
    let told = servers.fails(1, ["setstripe", "--integrity", "off", "/weft/checked"]);
    assert!(told.contains("never written"), "{told}");

    let all: Vec<PathBuf> = (0..2).flat_map(|id| datafiles(&servers.path(&format!("target{id}")))).collect();
    let (checked, plain): (Vec<_>, Vec<_>) = all.iter().partition(|path| has_sums(path));
    assert_eq!((checked.len(), plain.len()), (1, 1), "{all:?}");
    let sound = servers.weft(["fsck", "--scrub", "--rate", "100M"]);
    assert!(sound.contains("in 1 datafiles with checksums; 1 have none"), "{sound}");
    assert!(sound.contains("0 problems"), "{sound}");

    damage(checked[0], 500_000);
    damage(plain[0], 500_000);
    assert_eq!(fs::metadata(plain[0]).expect("there").len(), 1_000_000);
    let told = servers.fails(1, ["cat", "/weft/checked"]);
    for word in ["499712 to 503808", "do not match their checksums", "target 0", "s0", "fsck --scrub"] {
        assert!(told.contains(word), "{word} in: {told}");
    }
    let output = servers.command(["fsck", "--scrub"]).output().expect("weft starts");
    let found = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(4), "{found}");
    assert!(found.contains("/weft/checked: bytes 499712 to 503808 are damaged"), "{found}");
    assert!(!found.contains("/weft/off/plain"), "{found}");
    // Without --scrub nothing is read.
    assert!(servers.weft(["fsck"]).contains("0 problems"));
    let status = servers.weft(["status"]);
    assert!(status.contains("target 0 of s0: 1 damaged blocks were met"), "{status}");

    // The remedy: the file is written anew.
    servers.weft(["cp", &source, "/weft/checked"]);
    assert!(servers.weft(["fsck", "--scrub"]).contains("0 problems"));
    servers.weft(["cat", "/weft/checked"]);
    servers.weft(["rm", "/weft/checked"]);
}

#[test]
fn a_target_may_have_checksums_for_all_its_files() {
    let servers = Servers::of_classes(&["hdd"], "", "integrity = \"crc32c\"\n", "", "");
    let source = servers.path("source");
    fs::write(&source, vec![7; 70_000]).expect("written");
    let source = source.to_str().expect("text").to_owned();
    servers.weft(["cp", &source, "/weft/checked"]);
    servers.weft(["mkdir", "/weft/off"]);
    servers.weft(["setstripe", "--integrity", "off", "/weft/off"]);
    servers.weft(["cp", &source, "/weft/off/plain"]);
    let all = datafiles(&servers.path("target0"));
    let (checked, plain): (Vec<_>, Vec<_>) = all.iter().partition(|path| has_sums(path));
    assert_eq!((checked.len(), plain.len()), (1, 1), "{all:?}");
    damage(checked[0], 0);
    assert!(servers.fails(1, ["cat", "/weft/checked"]).contains("do not match their checksums"));
}
