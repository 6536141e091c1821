//! Checksums at rest in the whole system: the setting of a directory, damage on the disk, and a scrub that names the
//! file.

mod common;

use common::servers::Servers;
use std::fs;
use std::io::IoSlice;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use weft_client::Client;
use weft_config::Cluster;
use weft_core::FileOffset;
use weft_env::real::{RealEnv, block_on};
use weft_wire::meta::{InodePath as At, LayoutSpec, OpenFlags};

/// Lists the datafiles below a target, without their checksum files.
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
    sums(datafile).exists()
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
    // New files and directories inherit the setting of the directory.
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
        "created with the setting"
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
    let words =
        ["/weft/checked", "bytes 499712 to 503808 of the file are damaged", "target 0", "s0", "fsck --scrub"];
    for word in words {
        assert!(told.contains(word), "{word} in: {told}");
    }
    let (code, found) = scrub(&servers);
    assert_eq!(code, Some(4), "{found}");
    assert!(found.contains("/weft/checked: bytes 499712 to 503808 are damaged"), "{found}");
    assert!(!found.contains("/weft/off/plain"), "{found}");
    // Without --scrub no data are read, but the server knows of the damage.
    let output = servers.command(["fsck"]).output().expect("weft starts");
    let found = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(8), "{found}");
    assert!(found.contains("not checked: contents of files on target 0, where 1 damaged"), "{found}");
    assert!(!found.contains("0 problems"), "{found}");
    let status = servers.weft(["status"]);
    assert!(status.contains("target 0 of s0: 1 damaged blocks were found"), "{status}");

    // The remedy is to write the file again.
    servers.weft(["cp", &source, "/weft/checked"]);
    assert!(servers.weft(["fsck", "--scrub"]).contains("0 problems"));
    servers.weft(["cat", "/weft/checked"]);
    servers.weft(["rm", "/weft/checked"]);
}

/// Returns the exit code and output of `weft fsck --scrub`.
fn scrub(servers: &Servers) -> (Option<i32>, String) {
    let output = servers.command(["fsck", "--scrub"]).output().expect("weft starts");
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns the bytes of a file, as `weft cat` prints them.
fn cat(servers: &Servers, path: &str) -> Vec<u8> {
    let output = servers.command(["cat", path]).output().expect("weft starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

fn sums(datafile: &Path) -> PathBuf {
    PathBuf::from(format!("{}.sum", datafile.display()))
}

#[test]
fn the_range_in_the_file_is_named_where_it_is_striped() {
    let servers = Servers::of_classes(&["hdd", "hdd"], "", "", "", "");
    let source = servers.path("source");
    fs::write(&source, vec![5; 400_000]).expect("written");
    servers.weft(["setstripe", "--integrity", "crc32c", "-c", "2", "-S", "64K", "-i", "0", "/weft"]);
    servers.weft(["cp", source.to_str().expect("text"), "/weft/striped"]);
    let [datafile] = &datafiles(&servers.path("target1"))[..] else { panic!("one datafile") };
    // The second stripe of the second datafile is the fourth stripe of the file.
    damage(datafile, 65_536 + 5000);
    let told = servers.fails(1, ["cat", "/weft/striped"]);
    for word in
        ["bytes 200704 to 204800 of the file", "bytes 69632 to 73728 of this datafile on target 1", "s1"]
    {
        assert!(told.contains(word), "{word} in: {told}");
    }
    let (code, found) = scrub(&servers);
    assert_eq!(code, Some(4), "{found}");
    assert!(found.contains("/weft/striped: bytes 200704 to 204800 are damaged"), "{found}");
}

#[test]
fn a_datafile_whose_checksums_are_missing_is_not_read_as_if_it_had_none() {
    let mut servers = Servers::of_classes(&["hdd"], "", "", "", "");
    let source = servers.path("source");
    fs::write(&source, vec![9; 300_000]).expect("written");
    let source = source.to_str().expect("text").to_owned();
    servers.weft(["setstripe", "--integrity", "crc32c", "/weft"]);
    servers.weft(["cp", &source, "/weft/checked"]);
    let [datafile] = &datafiles(&servers.path("target0"))[..] else { panic!("one datafile") };
    servers.stop(0);
    let kept = fs::read(sums(datafile)).expect("checksums");
    fs::remove_file(sums(datafile)).expect("removed");
    servers.start(0);
    let told = servers.fails(1, ["cat", "/weft/checked"]);
    for word in ["/weft/checked", "are missing", "target 0", "s0", "restore the file from a backup"] {
        assert!(told.contains(word), "{word} in: {told}");
    }
    let (code, found) = scrub(&servers);
    assert_eq!(code, Some(4), "{found}");
    assert!(found.contains("/weft/checked: the checksums of datafile"), "{found}");
    assert!(found.contains("in 0 datafiles with checksums; 1 have none"), "{found}");
    // First remedy: restore the lost checksum file.
    servers.stop(0);
    fs::write(sums(datafile), kept).expect("brought back");
    servers.start(0);
    assert!(cat(&servers, "/weft/checked") == vec![9; 300_000]);
    assert_eq!(scrub(&servers).0, Some(0));
    // Second remedy: replace the file.
    servers.stop(0);
    fs::remove_file(sums(datafile)).expect("removed");
    servers.start(0);
    servers.weft(["cp", &source, "/weft/checked"]);
    assert!(cat(&servers, "/weft/checked") == vec![9; 300_000]);
    assert!(datafiles(&servers.path("target0")).iter().all(|path| has_sums(path)));
    assert_eq!(scrub(&servers).0, Some(0));
}

#[test]
fn a_moved_file_keeps_its_checksums() {
    let servers = Servers::of_classes(&["hdd", "hdd"], "", "", "", "");
    let source = servers.path("source");
    let bytes: Vec<u8> = (0..500_000_u32).map(|at| (at % 253) as u8).collect();
    fs::write(&source, &bytes).expect("written");
    servers.weft(["setstripe", "--integrity", "crc32c", "-c", "1", "-i", "0", "/weft"]);
    servers.weft(["cp", source.to_str().expect("text"), "/weft/moved"]);
    servers.weft(["migrate", "--verify", "-c", "2", "-S", "64K", "/weft/moved"]);
    assert!(servers.weft(["getstripe", "/weft/moved"]).contains("integrity: crc32c"));
    assert!(cat(&servers, "/weft/moved") == bytes);
    let [datafile] = &datafiles(&servers.path("target1"))[..] else { panic!("one datafile") };
    assert!(has_sums(datafile));
    damage(datafile, 10);
    let told = servers.fails(1, ["cat", "/weft/moved"]);
    assert!(told.contains("do not match their checksums"), "{told}");
    let (code, found) = scrub(&servers);
    assert_eq!(code, Some(4), "{found}");
    assert!(found.contains("/weft/moved: bytes "), "{found}");
    // Damaged bytes are not moved as if they were correct.
    let told = servers.fails(1, ["migrate", "-c", "1", "-S", "64K", "/weft/moved"]);
    assert!(told.contains("do not match their checksums"), "{told}");
}

#[test]
fn damage_below_an_ssd_is_found() {
    let ssd =
        "size = \"32 MiB\"\npolicy = \"threshold\"\nfragments_below = \"64 KiB\"\nrandom_below = \"64 KiB\"
idle = \"1 h\"\ndirty_high = \"32 MiB\"\ndirty_low = \"32 MiB\"";
    let servers = Servers::of_classes(&["hdd"], "", "", ssd, "[client]\nfragment_threshold = \"64 KiB\"");
    let dirty = || servers.ssds()[0]["dirty"].as_u64().expect("a number");
    let source = servers.path("source");
    let mut bytes: Vec<u8> = (0..300_000_u32).map(|at| (at % 247) as u8).collect();
    fs::write(&source, &bytes).expect("written");
    servers.weft(["setstripe", "--integrity", "crc32c", "/weft"]);
    servers.weft(["cp", source.to_str().expect("text"), "/weft/file"]);
    servers.weft(["flush"]);
    assert_eq!(dirty(), 0);
    let [datafile] = &datafiles(&servers.path("target0"))[..] else { panic!("one datafile") };
    assert!(has_sums(datafile));
    // Newer bytes on the SSD, in the middle of a disk block and beyond its end.
    for offset in [100_500, 299_000] {
        let newer = vec![0xa5; 2000];
        bytes.resize(bytes.len().max(offset + newer.len()), 0);
        bytes[offset..offset + newer.len()].copy_from_slice(&newer);
        patch(&servers, "file", offset as u64, &newer);
    }
    assert!(dirty() >= 4000, "{}", dirty());
    assert!(cat(&servers, "/weft/file") == bytes);
    // Damage the disk outside of the bytes on the SSD, and in a block that the SSD holds in part.
    for at in [200_000, 100_000] {
        damage(datafile, at);
        let told = servers.fails(1, ["cat", "/weft/file"]);
        assert!(told.contains("of the file are damaged"), "{told}");
        let (code, found) = scrub(&servers);
        assert_eq!(code, Some(4), "{found}");
        let start = at - at % 4096;
        assert!(
            found.contains(&format!("/weft/file: bytes {start} to {} are damaged", start + 4096)),
            "{found}"
        );
        damage(datafile, at);
        assert!(cat(&servers, "/weft/file") == bytes);
    }
    servers.weft(["flush"]);
    assert_eq!(dirty(), 0);
    assert!(cat(&servers, "/weft/file") == bytes);
    let (code, found) = scrub(&servers);
    assert_eq!(code, Some(0), "{found}");
    damage(datafile, 100_600);
    assert!(servers.fails(1, ["cat", "/weft/file"]).contains("of the file are damaged"));
}

/// Writes to an existing file.
fn patch(servers: &Servers, name: &str, offset: u64, bytes: &[u8]) {
    let cluster = Cluster::load(&servers.file()).expect("a cluster file");
    let credentials = cluster.credentials().expect("a key");
    let client = Client::new(RealEnv::new(), cluster.map(), cluster.client_options(), credentials);
    let place = At::from_root(name, true);
    let flags = OpenFlags { write: true, ..OpenFlags::default() };
    let file = block_on(client.open(&place, flags, 0o644, &LayoutSpec::default())).expect("opened");
    let wrote = block_on(file.write_at(&[IoSlice::new(bytes)], FileOffset(offset))).expect("written");
    assert_eq!(wrote, bytes.len());
    block_on(file.sync()).expect("synced");
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
