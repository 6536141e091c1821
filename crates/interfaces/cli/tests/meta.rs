//! Damage of the metadata database, and dumps of it, with real servers.

mod common;

use common::servers::Servers;
use common::{Random, shown};
use std::fs;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Stdio;

const FILES: usize = 60;

fn started() -> Servers {
    Servers::started(2, "", "", "")
}

/// Writes a local file and copies it to Weft.
fn put(servers: &Servers, name: &str, bytes: &[u8]) {
    let local = servers.path("local");
    fs::write(&local, bytes).expect("written");
    servers.weft(["cp", local.to_str().expect("text"), &format!("/weft/{name}")]);
}

#[track_caller]
fn reads(servers: &Servers, name: &str, bytes: &[u8]) {
    let output = servers.command(["cat", &format!("/weft/{name}")]).output().expect("weft starts");
    assert!(output.status.success(), "{name}: {}", shown(&output));
    assert!(output.stdout == bytes, "{name} has wrong bytes");
}

fn content(number: usize) -> Vec<u8> {
    (0..number * 317).map(|at| (at * 7 + number) as u8).collect()
}

fn names(servers: &Servers) -> Vec<String> {
    servers.weft(["ls", "/weft"]).lines().map(str::to_owned).collect()
}

/// Returns a cluster with files whose metadata is completely in the base.
fn filled() -> Servers {
    let mut servers = started();
    let dir = servers.path("tree");
    fs::create_dir(&dir).expect("made");
    for number in 0..FILES {
        fs::write(dir.join(format!("f{number:03}")), content(number)).expect("written");
    }
    servers.weft(["cp", "-r", dir.to_str().expect("text"), "/weft/"]);
    for number in 0..FILES {
        servers.weft(["mv", &format!("/weft/tree/f{number:03}"), &format!("/weft/f{number:03}")]);
    }
    servers.weft(["rm", "-r", "/weft/tree"]);
    servers.stop(0);
    servers.start(0);
    servers.stop(0);
    servers
}

fn flip(file: &Path, at: u64) {
    let file = fs::File::options().read(true).write(true).open(file).expect("opens");
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).expect("read");
    file.write_all_at(&[byte[0] ^ 4], at).expect("written");
}

#[test]
fn a_flipped_bit_in_a_name_is_found_and_repaired_and_no_file_vanishes() {
    let mut servers = filled();
    let base = servers.path("metadata/base.redb");
    let bytes = fs::read(&base).expect("read");
    // One of the pages with the name is the newest copy. Damage to the others is found as well.
    let places: Vec<_> =
        bytes.windows(4).enumerate().filter(|(_, w)| *w == b"f030").map(|(at, _)| at).collect();
    assert!(!places.is_empty());
    for at in &places {
        flip(&base, *at as u64);
    }
    servers.start(0);
    let expected: Vec<_> = (0..FILES).map(|number| format!("f{number:03}")).collect();
    assert_eq!(names(&servers), expected);
    let output = servers.command(["fsck"]).output().expect("weft starts");
    assert_eq!(output.status.code(), Some(4), "{}", shown(&output));
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("base.redb: bytes ") && said.contains("are damaged"), "{said}");
    assert!(servers.weft(["status"]).contains("run `weft fsck`"));
    let output = servers.command(["meta", "verify"]).output().expect("weft starts");
    assert_eq!(output.status.code(), Some(4), "{}", shown(&output));
    let output = servers.command(["fsck", "--repair"]).output().expect("weft starts");
    assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
    assert!(servers.weft(["fsck"]).contains("0 problems"));
    assert!(!servers.weft(["status"]).contains("run `weft fsck`"));
    for number in [0, 29, 30, 31, FILES - 1] {
        reads(&servers, &format!("f{number:03}"), &content(number));
    }
}

#[test]
fn a_cluster_is_rebuilt_from_a_dump() {
    let mut servers = started();
    for number in 0..20 {
        put(&servers, &format!("before{number}"), &content(number * 40));
    }
    servers.weft(["mkdir", "/weft/dir"]);
    put(&servers, "dir/deep", b"deep");
    servers.weft(["ln", "-s", "dir/deep", "/weft/link"]);
    let dump = servers.path("weft.dump");
    let dump_text = dump.to_str().expect("text").to_owned();
    assert!(servers.weft(["meta", "dump", &dump_text]).contains("inodes"));
    let said = servers.weft(["meta", "verify", &dump_text]);
    assert!(said.contains("0 problems") && said.contains("not checked"), "{said}");
    assert!(servers.weft(["meta", "verify"]).contains("0 problems"));
    for number in 0..5 {
        put(&servers, &format!("after{number}"), &content(300 + number));
    }
    servers.weft(["rm", "/weft/before19"]);

    // A running server and a disk that is not empty are refused.
    let refused = servers.fails(1, ["meta", "restore", &dump_text]);
    assert!(refused.contains("not empty"), "{refused}");
    servers.stop(0);
    let refused = servers.fails(1, ["meta", "restore", &dump_text]);
    assert!(refused.contains("not empty"), "{refused}");
    fs::rename(servers.path("metadata"), servers.path("lost")).expect("moved");
    fs::create_dir(servers.path("metadata")).expect("made");
    let said = servers.weft(["meta", "restore", &dump_text]);
    assert!(said.contains("weft fsck"), "{said}");
    servers.start(0);

    for number in 0..19 {
        reads(&servers, &format!("before{number}"), &content(number * 40));
    }
    reads(&servers, "link", b"deep");
    let there = names(&servers);
    assert!(!there.iter().any(|name| name.starts_with("after")), "{there:?}");
    let datafiles = || {
        let target = |id: usize| walk(&servers.path(&format!("target{id}/objects")));
        target(0) + target(1)
    };
    let before = datafiles();
    let output = servers.command(["fsck"]).output().expect("weft starts");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(4), "{}", shown(&output));
    assert!(said.contains("belongs to no file"), "{said}");
    assert_eq!(datafiles(), before, "datafiles of files created after the dump stay: {said}");
    // The restored database stands in for the one that issued their ids.
    let repaired = servers.command(["fsck", "--repair"]).output().expect("weft starts");
    assert!(shown(&repaired).contains("--delete-orphans removes it"), "{}", shown(&repaired));
    // Its bytes are gone, and a name whose datafiles were removed gets no others.
    servers.weft(["rm", "/weft/before19"]);
    let options = ["fsck", "--repair", "--delete-orphans"];
    let repaired = servers.command(options).output().expect("weft starts");
    assert_eq!(repaired.status.code(), Some(1), "{}", shown(&repaired));
    let left = datafiles();
    assert!(left < before, "{left} of {before}");
    let before = left;
    assert!(servers.weft(["fsck"]).contains(" 0 problems"));
    for number in 0..19 {
        reads(&servers, &format!("before{number}"), &content(number * 40));
    }
    // New files have other datafiles.
    for number in 0..10 {
        put(&servers, &format!("new{number}"), &content(500 + number));
    }
    for number in 0..10 {
        reads(&servers, &format!("new{number}"), &content(500 + number));
    }
    assert!(datafiles() > before);
    servers.stop(0);
    servers.start(0);
    reads(&servers, "new3", &content(503));
    reads(&servers, "dir/deep", b"deep");
    servers.weft(["meta", "dump", &dump_text]);
    assert!(servers.weft(["meta", "verify", &dump_text]).contains("0 problems"));
}

/// Counts the files below a directory.
fn walk(dir: &Path) -> usize {
    let entries = fs::read_dir(dir).expect("a directory").map(|entry| entry.expect("an entry").path());
    entries.map(|path| if path.is_dir() { walk(&path) } else { 1 }).sum()
}

#[test]
fn a_dump_is_one_state_while_files_come_and_go() {
    let servers = started();
    servers.weft(["mkdir", "/weft/a", "/weft/b"]);
    for number in 0..40 {
        servers.weft(["touch", &format!("/weft/a/f{number}")]);
    }
    let dump = servers.path("weft.dump");
    let text = dump.to_str().expect("text");
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut round = 0;
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let (from, to) = if round % 2 == 0 { ("a", "b") } else { ("b", "a") };
                let mut args = vec!["mv".to_owned()];
                args.extend((0..40).map(|number| format!("/weft/{from}/f{number}")));
                args.push(format!("/weft/{to}/"));
                servers.weft(args);
                round += 1;
            }
        });
        for _ in 0..8 {
            servers.weft(["meta", "dump", text]);
            let said = servers.weft(["meta", "verify", text]);
            // The root, two directories and the files. Each file has one name in one of the directories.
            assert!(said.contains("43 inodes, 42 names") && said.contains("0 problems"), "{said}");
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

#[test]
fn damaged_and_foreign_dumps_are_refused_without_side_effects() {
    let servers = started();
    put(&servers, "f", b"bytes");
    let dump = servers.command(["meta", "dump", "-"]).output().expect("weft starts");
    assert!(dump.status.success(), "{}", shown(&dump));
    let verify = |bytes: &[u8]| {
        let mut command = servers.command(["meta", "verify", "-"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let child = child.as_mut().expect("weft starts");
        let _ = child.stdin.take().expect("piped").write_all(bytes); // it may have seen enough
        child.wait().expect("ends").code()
    };
    assert_eq!(verify(&dump.stdout), Some(0));
    let (mut random, seed) = Random::seeded();
    for _ in 0..20 {
        let mut bad = dump.stdout.clone();
        let bit = random.below(bad.len() as u64 * 8) as usize;
        bad[bit / 8] ^= 1 << (bit % 8);
        let code = verify(&bad);
        assert!(code == Some(4) || (code == Some(1) && bit < 12 * 8), "seed {seed}, bit {bit}: {code:?}");
        let cut = random.below(dump.stdout.len() as u64) as usize;
        let code = verify(&dump.stdout[..cut]);
        assert!(code == Some(4) || (code == Some(1) && cut < 8), "seed {seed}, cut at {cut}: {code:?}");
    }
    let place = servers.path("place");
    fs::create_dir(&place).expect("made");
    let bad = servers.path("bad.dump");
    let mut bytes = dump.stdout.clone();
    let last = bytes.len() - 40;
    bytes[last] ^= 1;
    fs::write(&bad, &bytes).expect("written");
    let (bad, place_text) = (bad.to_str().expect("text"), place.to_str().expect("text"));
    let said = servers.fails(1, ["meta", "restore", bad, "--metadata", place_text]);
    assert!(said.contains("damaged") && said.contains("use another"), "{said}");
    assert!(!place.join("identity").exists(), "a directory without identity is not started");
    let missing = servers.fails(1, ["meta", "verify", "/nonexistent/dump"]);
    assert!(missing.contains("/nonexistent/dump"), "{missing}");
    // A failed dump leaves the earlier dump unchanged.
    let good = servers.path("good.dump");
    fs::write(&good, &dump.stdout).expect("written");
    let mut servers = servers;
    servers.kill(0);
    servers.fails(1, ["meta", "dump", good.to_str().expect("text")]);
    assert_eq!(fs::read(&good).expect("there"), dump.stdout);
    assert!(!servers.path("good.dump.partial").exists());
}
