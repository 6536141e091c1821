//! Compression in the whole system: settings of directories, targets and clusters, unaligned writers, restarts,
//! conversion while programs write, and damage on the disk.

mod common;

use common::Random;
use common::load::Worker;
use common::servers::Servers;
use std::fs;
use std::io::{IoSlice, IoSliceMut};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use weft_client::{Client, OpenFile};
use weft_config::Cluster;
use weft_core::{ByteLen, FileOffset};
use weft_env::real::{RealEnv, block_on};
use weft_wire::meta::{InodePath, LayoutSpec, OpenFlags};

/// Length of the records of several writers: neither whole blocks nor whole chunks.
const RECORD: usize = 47_008;

/// Returns text of which a codec makes less than half.
fn text(len: usize, seed: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(len + 64);
    let mut number = seed;
    while out.len() < len {
        number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        out.extend_from_slice(
            format!("temperature={:05} pressure={:05}\n", number >> 48, number >> 60).as_bytes(),
        );
    }
    out.truncate(len);
    out
}

fn client(servers: &Servers) -> Client<RealEnv> {
    let cluster = Cluster::load(&servers.file()).expect("a cluster file");
    let credentials = cluster.credentials().expect("a key");
    Client::new(RealEnv::new(), cluster.map(), cluster.client_options(), credentials)
}

fn open(client: &Client<RealEnv>, path: &str) -> OpenFile<RealEnv> {
    let flags = OpenFlags { read: true, write: true, create: true, ..OpenFlags::default() };
    let place = InodePath::from_root(path, true);
    block_on(client.open(&place, flags, 0o644, &LayoutSpec::default())).expect("opened")
}

fn write(file: &OpenFile<RealEnv>, at: u64, bytes: &[u8]) {
    let wrote = block_on(file.write_at(&[IoSlice::new(bytes)], FileOffset(at))).expect("written");
    assert_eq!(wrote, bytes.len());
}

/// Reads a whole file, and compares it without printing it.
#[track_caller]
fn compare(servers: &Servers, path: &str, expected: &[u8]) {
    let file = open(&client(servers), path);
    let mut found = vec![0; expected.len() + 1];
    let got = block_on(file.read_at(&mut [IoSliceMut::new(&mut found)], FileOffset(0))).expect("read");
    assert_eq!(got, expected.len(), "{path}");
    let wrong = found.iter().zip(expected).position(|(found, expected)| found != expected);
    assert_eq!(wrong, None, "{path}: the first wrong byte");
}

fn size_and_stored(servers: &Servers, path: &str) -> (u64, u64) {
    let attr = block_on(client(servers).stat(&InodePath::from_root(path, true))).expect("there");
    (attr.size.0, attr.blocks_512 * 512)
}

/// Waits until a file takes fewer bytes than `max`: bytes of parts of chunks are compressed when the file is idle.
#[track_caller]
fn wait_until_stored_in(servers: &Servers, path: &str, max: u64) {
    let until = Instant::now() + Duration::from_secs(90);
    loop {
        let (size, stored) = size_and_stored(servers, path);
        if stored < max {
            return;
        }
        assert!(Instant::now() < until, "{path}: {stored} of {size} bytes stored, expected less than {max}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Lists the files in the folders of a target: containers and plain datafiles, without the files beside them.
fn datafiles(target: &Path) -> Vec<PathBuf> {
    let folders =
        fs::read_dir(target.join("objects")).expect("a target").map(|entry| entry.expect("entry").path());
    let files = folders.flat_map(|folder| fs::read_dir(folder).expect("a folder"));
    let files = files.map(|entry| entry.expect("entry").path());
    files
        .filter(|path| !["map", "sum", "new"].iter().any(|end| path.extension() == Some(end.as_ref())))
        .collect()
}

fn beside(datafile: &Path, suffix: &str) -> PathBuf {
    PathBuf::from(format!("{}.{suffix}", datafile.display()))
}

/// Returns the exit code and output of `weft fsck --scrub`.
fn scrub(servers: &Servers) -> (Option<i32>, String) {
    let output = servers.command(["fsck", "--scrub"]).output().expect("weft starts");
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn unaligned_writers_restarts_truncation_and_appends() {
    let mut servers = Servers::of_classes(&["hdd", "hdd"], "", "", "", "");
    servers.weft(["mkdir", "/weft/d"]);
    servers.weft(["setstripe", "--compress", "zstd:3/32KiB", "-c", "2", "-S", "100K", "/weft/d"]);
    assert!(servers.weft(["getstripe", "-d", "/weft/d"]).contains("compress:      zstd:3/32KiB"));
    let mut bytes = text(60 * RECORD + 12_345, 1);
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let (servers, bytes) = (&servers, &bytes);
            scope.spawn(move || {
                let client = client(servers);
                let file = open(&client, "d/records");
                for (number, record) in bytes.chunks(RECORD).enumerate().filter(|(n, _)| n % 4 == writer) {
                    write(&file, (number * RECORD) as u64, record);
                }
                block_on(file.sync()).expect("synced");
            });
        }
    });
    compare(&servers, "d/records", &bytes);
    let size = bytes.len() as u64;
    assert_eq!(size_and_stored(&servers, "d/records").0, size);
    wait_until_stored_in(&servers, "d/records", size * 6 / 10);

    let shown = servers.weft(["getstripe", "-v", "/weft/d/records"]);
    let words = ["compress: zstd:3/32KiB", "codec: Zstandard, level 3; chunks: 32 KiB", "stored in"];
    assert!(words.iter().all(|word| shown.contains(word)), "{shown}");
    let shown = servers.weft(["stat", "/weft/d/records"]);
    assert!(shown.contains("Stored: ") && shown.contains("compress zstd:3/32KiB"), "{shown}");
    let shown = servers.weft(["du", "-s", "--both", "/weft/d"]);
    let sizes: Vec<u64> = shown.split_whitespace().take(2).map(|size| size.parse().expect("KiB")).collect();
    assert!(sizes[0] < sizes[1] * 6 / 10 + 64, "{shown}");

    for id in 0..2 {
        servers.kill(id);
        servers.start(id);
    }
    compare(&servers, "d/records", &bytes);
    // Cut inside a chunk, extended behind it: no old byte returns.
    let client = client(&servers);
    let place = InodePath::from_root("d/records", true);
    let (cut, len) = (bytes.len() - 70_001, bytes.len() + 5000);
    block_on(client.truncate(&place, ByteLen(cut as u64))).expect("cut");
    block_on(client.truncate(&place, ByteLen(len as u64))).expect("extended");
    bytes.truncate(cut);
    bytes.resize(len, 0);
    compare(&servers, "d/records", &bytes);
    let file = open(&client, "d/records");
    for seed in 0..5 {
        let more = text(10_007, 100 + seed);
        let (at, _) = block_on(file.append(&[IoSlice::new(&more)])).expect("appended");
        assert_eq!(at.0, bytes.len() as u64);
        bytes.extend_from_slice(&more);
    }
    // Overwritten in the middle of chunks.
    for (at, seed) in [(5_u64, 7), (31_000, 8), (99_999, 9), (1_000_001, 10)] {
        let part = text(3001, seed);
        write(&file, at, &part);
        bytes[at as usize..at as usize + part.len()].copy_from_slice(&part);
    }
    block_on(file.sync()).expect("synced");
    block_on(file.close()).expect("closed");
    compare(&servers, "d/records", &bytes);
    for id in 0..2 {
        servers.stop(id);
        servers.start(id);
    }
    compare(&servers, "d/records", &bytes);
    let (code, found) = scrub(&servers);
    assert_eq!(code, Some(0), "{found}");
    servers.weft(["rm", "/weft/d/records"]);
    // All files of the datafiles are gone when the removal has reached the targets.
    let until = Instant::now() + Duration::from_secs(30);
    let left = || -> usize {
        let folders = (0..2)
            .flat_map(|id| fs::read_dir(servers.path(&format!("target{id}/objects"))).expect("a target"));
        folders.map(|folder| fs::read_dir(folder.expect("entry").path()).expect("a folder").count()).sum()
    };
    while left() > 0 {
        assert!(Instant::now() < until, "{} files are left", left());
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn cluster_targets_rules_and_directories_decide() {
    let targets = [("hdd", ""), ("ssd", "compress = \"off\"\n")];
    let servers = Servers::of(&targets, "", "", "[layout]\ncompress = \"lz4/128KiB\"\n");
    let source = servers.path("source");
    fs::write(&source, text(500_000, 3)).expect("written");
    let source = source.to_str().expect("text").to_owned();
    let setting = |path: &str| {
        let shown = servers.weft(["getstripe", path]);
        shown.lines().find_map(|line| line.trim().strip_prefix("compress: ").map(str::to_owned))
    };
    servers.weft(["cp", &source, "/weft/a"]);
    assert_eq!(setting("/weft/a").as_deref(), Some("lz4/128KiB"));
    servers.weft(["setstripe", "--class", "ssd", "/weft/b"]);
    assert_eq!(setting("/weft/b").as_deref(), Some("off"));
    servers.weft(["setstripe", "--compress", "zstd:5", "/weft/c"]);
    assert_eq!(setting("/weft/c").as_deref(), Some("zstd:5/64KiB"));
    servers.weft(["mkdir", "/weft/d"]);
    servers.weft(["setstripe", "--compress", "zstd", "/weft/d"]);
    servers.weft(["setstripe", "--rule", "*.raw", "--compress", "off", "/weft/d"]);
    assert!(servers.weft(["getstripe", "-d", "/weft/d"]).contains("compress off"));
    servers.weft(["cp", &source, "/weft/d/x.raw"]);
    servers.weft(["cp", &source, "/weft/d/x"]);
    assert_eq!(setting("/weft/d/x.raw").as_deref(), Some("off"));
    assert_eq!(setting("/weft/d/x").as_deref(), Some("zstd:1/64KiB"));
    // A copy over a file keeps its setting, as its layout.
    servers.weft(["cp", &source, "/weft/d/x.raw"]);
    servers.weft(["setstripe", "-d", "/weft/d"]);
    servers.weft(["cp", &source, "/weft/d/x"]);
    assert_eq!(setting("/weft/d/x").as_deref(), Some("zstd:1/64KiB"));
    // The striping of a directory stays when only its compression is set, and the other way around.
    servers.weft(["mkdir", "/weft/e"]);
    servers.weft(["setstripe", "-c", "1", "/weft/e"]);
    servers.weft(["setstripe", "--compress", "auto/1024KiB", "/weft/e"]);
    servers.weft(["setstripe", "-c", "1", "-S", "64K", "/weft/e"]);
    let shown = servers.weft(["getstripe", "-d", "/weft/e"]);
    assert!(shown.contains("stripe count:  1\n") && shown.contains("stripe size:   64 KiB\n"), "{shown}");
    assert!(shown.contains("compress:      auto/1024KiB"), "{shown}");
    let shown = servers.weft(["getstripe", "-d", "/weft"]);
    assert!(shown.contains("compress:      lz4/128KiB (the cluster's)"), "{shown}");
    let told = servers.fails(1, ["setstripe", "--compress", "off", "/weft/d/x"]);
    assert!(told.contains("weft migrate --compress"), "{told}");
    let told = servers.fails(2, ["setstripe", "--compress", "gzip", "/weft/d"]);
    assert!(told.contains("use off, lz4"), "{told}");
}

#[test]
fn a_file_is_converted_while_a_program_writes_it() {
    let servers = Servers::of_classes(&["hdd", "hdd"], "", "", "", "");
    let mut bytes = text(3_000_000, 5);
    {
        let client = client(&servers);
        let file = open(&client, "f");
        write(&file, 0, &bytes);
        block_on(file.close()).expect("closed");
    }
    let layout = servers.weft(["getstripe", "/weft/f"]);
    let (mut random, seed) = Random::seeded();
    for setting in ["zstd", "lz4/16KiB", "off", "auto/256KiB"] {
        let shown = servers.weft(["migrate", "--dry-run", "--compress", setting, "/weft/f"]);
        assert!(shown.contains("compress ") && shown.contains(" -> "), "{shown}");
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let client = client(&servers);
                let file = open(&client, "f");
                while !stop.load(Ordering::Relaxed) {
                    let at = random.below(bytes.len() as u64);
                    let len = (1 + random.below(60_000)).min(bytes.len() as u64 - at) as usize;
                    let part = text(len, random.next());
                    write(&file, at, &part);
                    bytes[at as usize..at as usize + len].copy_from_slice(&part);
                    std::thread::sleep(Duration::from_millis(2));
                }
                block_on(file.close()).expect("closed");
            });
            let moved = servers.weft(["migrate", "--compress", setting, "--verify", "/weft/f"]);
            stop.store(true, Ordering::Relaxed);
            assert!(moved.contains("moved 1 file"), "{moved}");
            writer.join().expect("no panic");
        });
        compare(&servers, "f", &bytes);
        let (size, stored) = size_and_stored(&servers, "f");
        let shown = servers.weft(["getstripe", "/weft/f"]);
        if setting == "off" {
            assert!(stored >= size, "seed {seed}: {stored} of {size} bytes stored");
            assert!(shown.contains("compress: off"), "{shown}");
        } else {
            wait_until_stored_in(&servers, "f", size * 8 / 10);
            assert!(
                shown.contains(&format!("compress: {}", setting.split('/').next().expect("one"))),
                "{shown}"
            );
        }
        assert!(
            shown.starts_with(layout.trim_end().lines().take(4).collect::<Vec<_>>().join("\n").as_str()),
            "{shown}"
        );
        let again = servers.weft(["migrate", "--compress", setting, "/weft/f"]);
        assert!(again.contains("moved 0 files; 1 file left alone"), "{again}");
    }
    assert!(servers.weft(["fsck"]).contains("0 problems"));
}

#[test]
fn damage_is_an_error_that_names_it() {
    let servers = Servers::of_classes(&["hdd", "hdd"], "", "", "", "");
    let source = servers.path("source");
    let bytes = text(1_000_000, 6);
    fs::write(&source, &bytes).expect("written");
    let source = source.to_str().expect("text").to_owned();
    servers.weft(["setstripe", "--compress", "lz4", "-c", "1", "-i", "1", "/weft"]);
    servers.weft(["cp", &source, "/weft/f"]);
    assert_eq!(scrub(&servers).0, Some(0));
    let [container] = &datafiles(&servers.path("target1"))[..] else { panic!("one datafile") };
    let stored = fs::read(container).expect("readable");
    let at = (stored.len() / 3..stored.len()).find(|&at| stored[at] != 0).expect("stored bytes") as u64;
    let file = fs::OpenOptions::new().write(true).open(container).expect("opened");
    file.write_all_at(&[stored[at as usize] ^ 4], at).expect("damaged");
    let told = servers.fails(1, ["cat", "/weft/f"]);
    for word in ["/weft/f", "of the file are damaged", "target 1", "s1"] {
        assert!(told.contains(word), "{word} in: {told}");
    }
    let (code, found) = scrub(&servers);
    assert_eq!(code, Some(4), "{found}");
    assert!(found.contains("/weft/f: bytes ") && found.contains("target 1"), "{found}");
    // Damaged bytes are not converted as if they were correct.
    servers.fails(1, ["migrate", "--compress", "off", "/weft/f"]);
    // The remedy is to write the file again.
    servers.weft(["cp", &source, "/weft/f"]);
    compare(&servers, "f", &bytes);
    assert_eq!(scrub(&servers).0, Some(0));
}

#[test]
fn a_lost_map_is_an_error_and_never_zeros() {
    let mut servers = Servers::of_classes(&["hdd"], "", "", "", "");
    let bytes = text(500_000, 8);
    let source = servers.path("source");
    fs::write(&source, &bytes).expect("written");
    servers.weft(["setstripe", "--compress", "zstd", "/weft"]);
    servers.weft(["cp", source.to_str().expect("text"), "/weft/f"]);
    // Maps of bytes that were never synced may end early.
    let client = client(&servers);
    let file = open(&client, "f");
    block_on(file.sync()).expect("synced");
    block_on(file.close()).expect("closed");
    let [container] = &datafiles(&servers.path("target0"))[..] else { panic!("one datafile") };
    servers.stop(0);
    let map = fs::read(beside(container, "map")).expect("a map");
    fs::remove_file(beside(container, "map")).expect("removed");
    servers.start(0);
    let told = servers.fails(1, ["cat", "/weft/f"]);
    assert!(told.contains("/weft/f") && told.contains("target 0"), "{told}");
    let (code, found) = scrub(&servers);
    assert_eq!(code, Some(4), "{found}");
    assert!(found.contains("/weft/f"), "{found}");
    servers.stop(0);
    fs::write(beside(container, "map"), map).expect("brought back");
    servers.start(0);
    compare(&servers, "f", &bytes);

    servers.stop(0);
    fs::write(beside(container, "map"), b"").expect("cut");
    servers.start(0);
    let fsck = |arguments: &[&str]| {
        let output = servers.command([&["fsck"][..], arguments].concat()).output().expect("weft starts");
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    for arguments in [&[][..], &["--repair"], &["--repair", "--delete-orphans"]] {
        let (code, found) = fsck(arguments);
        assert_eq!(code, Some(4), "{arguments:?}: {found}");
        assert!(found.contains("/weft/f: the map of datafile ") && found.contains("backup"), "{found}");
        assert!(container.exists(), "{arguments:?}");
    }
    // Zeros only if the administrator says so.
    let (code, found) = fsck(&["--repair", "--accept-loss"]);
    assert_eq!(code, Some(1), "{found}");
    assert!(found.contains("/weft/f: the map of datafile "), "{found}");
    compare(&servers, "f", &vec![0; bytes.len()]);
    assert_eq!(scrub(&servers).0, Some(0));
}

#[test]
fn random_operations_survive_kills_of_servers() {
    let rest = "[layout]\ncompress = \"auto/16KiB\"\n";
    let mut servers = Servers::started(2, "", "", rest);
    let (mut random, seed) = Random::seeded();
    let (stop, done, mut wanted) = (AtomicBool::new(false), AtomicU64::new(0), 0);
    let file = servers.file();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..3)
            .map(|index| {
                let (stop, done, file) = (&stop, &done, &file);
                scope.spawn(move || Worker::until(stop, file, index, seed, done))
            })
            .collect();
        for _ in 0..6 {
            // Operations, not time, decide when a server is killed: machines differ in speed.
            wanted = done.load(Ordering::Relaxed) + 20 + random.below(40);
            let end = Instant::now() + Duration::from_secs(120);
            let is_running = || workers.iter().all(|worker| !worker.is_finished());
            while done.load(Ordering::Relaxed) < wanted && Instant::now() < end && is_running() {
                std::thread::sleep(Duration::from_millis(1));
            }
            let id = random.below(2) as usize;
            servers.kill(id);
            servers.start(id);
        }
        stop.store(true, Ordering::Relaxed);
        for worker in workers {
            worker.join().expect("no panic");
        }
    });
    let done = done.into_inner();
    assert!(done >= wanted, "seed {seed}: {done} operations instead of {wanted} within two minutes each");
    assert_eq!(scrub(&servers).0, Some(0), "seed {seed}");
}
