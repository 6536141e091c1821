//! Disks that did not join the cluster: blank, missing, of another cluster, or older copies.

mod common;

use common::mounts::{self, Mounted};
use common::servers::Servers;
use common::{Embedded, shown, succeeded};
use std::fs;
use std::path::Path;
use std::process::Command;
use weft_env::real::{RealEnv, block_on};
use weft_env::{Dir, Env};
use weft_store::metadata::{DatabaseSpec, Journal, JournalOptions};

/// Starts two servers with a file on both targets and returns its bytes.
fn with_file() -> (Servers, Vec<u8>) {
    let servers = Servers::started(2, "", "", "");
    let bytes: Vec<u8> = (0..400_000u32).flat_map(u32::to_le_bytes).collect();
    fs::write(servers.path("source"), &bytes).expect("written");
    servers.weft(["setstripe", "-S", "64K", "-c", "2", "/weft/file"]);
    let source = servers.path("source");
    servers.weft(["cp", source.to_str().expect("text"), "/weft/file"]);
    (servers, bytes)
}

#[track_caller]
fn holds(servers: &Servers, bytes: &[u8]) {
    let output = servers.command(["cat", "/weft/file"]).output().expect("weft starts");
    assert!(output.status.success(), "{}", shown(&output));
    assert!(output.stdout == bytes, "{} wrong bytes", output.stdout.len());
}

/// Checks that the file cannot be read and that the message contains all `words`.
#[track_caller]
fn unreadable(servers: &Servers, words: &[&str]) {
    let output = servers.command(["cat", "/weft/file"]).output().expect("weft starts");
    assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    words.iter().for_each(|word| assert!(text.contains(word), "{word:?} is missing: {text}"));
    let output = servers.command(["status"]).output().expect("weft starts");
    assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    words.iter().for_each(|word| assert!(text.contains(word), "{word:?} is missing: {text}"));
    let output = servers.command(["fsck"]).output().expect("weft starts");
    assert_ne!(output.status.code(), Some(0), "{}", shown(&output));
}

fn copy(from: &Path, to: &Path) {
    let _ = fs::remove_dir_all(to);
    succeeded(Command::new("cp").arg("-a").arg(from).arg(to));
}

/// Renames a directory and creates a blank one in its place.
fn emptied(servers: &Servers, name: &str) {
    fs::rename(servers.path(name), servers.path("away")).expect("removed");
    fs::create_dir(servers.path(name)).expect("a mount point");
}

fn brought_back(servers: &Servers, name: &str) {
    let _ = fs::remove_dir_all(servers.path(name));
    fs::rename(servers.path("away"), servers.path(name)).expect("brought back");
}

#[test]
fn a_blank_directory_is_refused_as_a_target() {
    let (mut servers, bytes) = with_file();
    servers.stop(1);
    emptied(&servers, "target1");
    for args in [&[][..], &["--format"]] {
        assert!(servers.try_start_with(1, args), "{}", servers.log(1));
        assert!(servers.log(1).contains("target 1 is refused"), "{}", servers.log(1));
        unreadable(&servers, &["target 1", "blank", "mount the disk", "replace 1 --data-lost"]);
        let held: Vec<_> = fs::read_dir(servers.path("target1")).expect("there").flatten().collect();
        assert!(held.iter().all(|entry| entry.file_name() == "lock"), "formatted: {held:?}");
        // New files are placed on the other target.
        servers.weft(["setstripe", "-c", "1", "/weft/new"]);
        servers.weft(["cat", "/weft/new"]);
        servers.weft(["rm", "/weft/new"]);
        servers.stop(1);
    }
    brought_back(&servers, "target1");
    servers.start(1);
    holds(&servers, &bytes);
    assert!(servers.weft(["fsck"]).contains(" 0 problems"));
}

#[test]
fn a_missing_directory_is_not_created() {
    let (mut servers, bytes) = with_file();
    servers.stop(1);
    fs::rename(servers.path("target1"), servers.path("away")).expect("removed");
    servers.start(1);
    unreadable(&servers, &["target 1", "no such directory", "mount the disk"]);
    assert!(!servers.path("target1").exists());
    servers.stop(1);
    brought_back(&servers, "target1");
    servers.start(1);
    holds(&servers, &bytes);
}

#[test]
fn a_target_of_another_cluster_of_the_same_name_is_refused() {
    let (mut servers, bytes) = with_file();
    let (mut others, _) = with_file();
    servers.stop(1);
    others.stop(1);
    fs::rename(servers.path("target1"), servers.path("away")).expect("removed");
    copy(&others.path("target1"), &servers.path("target1"));
    servers.start(1);
    unreadable(&servers, &["target 1", "belongs to cluster", "correct the target's path"]);
    servers.stop(1);
    brought_back(&servers, "target1");
    servers.start(1);
    holds(&servers, &bytes);

    // A cluster file with the address of a server of the other cluster does no harm: the metadata server knows better.
    others.start(1);
    let text = fs::read_to_string(servers.file()).expect("the cluster file");
    let (own, other) = (servers.path("run1"), others.path("run1"));
    let mixed = text.replace(own.to_str().expect("text"), other.to_str().expect("text"));
    fs::write(servers.path("mixed.toml"), mixed).expect("written");
    let mut cat = common::undisturbed();
    cat.arg("--cluster").arg(servers.path("mixed.toml")).args(["cat", "/weft/file"]);
    let output = cat.output().expect("weft starts");
    assert!(output.status.success() && output.stdout == bytes, "{}", shown(&output));

    // A server of the other cluster that answers at the right address is refused.
    servers.stop(1);
    fs::remove_dir_all(&own).expect("removed");
    std::os::unix::fs::symlink(&other, &own).expect("linked");
    let output = servers.command(["cat", "/weft/file"]).output().expect("weft starts");
    assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
    assert!(shown(&output).contains("belongs to cluster"), "{}", shown(&output));
}

#[test]
fn metadata_of_another_cluster_of_the_same_name_is_refused() {
    let (mut servers, bytes) = with_file();
    let (mut others, _) = with_file();
    for both in [&mut servers, &mut others] {
        both.stop(1);
        both.stop(0);
    }
    fs::rename(servers.path("metadata"), servers.path("away")).expect("removed");
    copy(&others.path("metadata"), &servers.path("metadata"));
    assert!(!servers.try_start_with(0, &[]), "it serves the files of another cluster");
    let said = servers.log(0);
    assert!(said.contains("metadata") && said.contains("belongs to cluster"), "{said}");
    brought_back(&servers, "metadata");
    servers.start(0);
    servers.start(1);
    holds(&servers, &bytes);
}

#[test]
fn blank_metadata_does_not_become_a_new_file_system() {
    let (mut servers, bytes) = with_file();
    servers.stop(1);
    servers.stop(0);
    emptied(&servers, "metadata");
    for args in [&[][..], &["--format"]] {
        assert!(!servers.try_start_with(0, args), "it begins a new file system");
        let held: Vec<_> = fs::read_dir(servers.path("metadata")).expect("there").flatten().collect();
        assert!(held.iter().all(|entry| entry.file_name() == "lock"), "formatted: {held:?}");
    }
    let said = servers.log(0);
    assert!(said.contains("blank") && said.contains("mount"), "{said}");
    let format = servers.command(["serve", "s0", "--format"]).output().expect("weft starts");
    assert_eq!(format.status.code(), Some(1), "{}", shown(&format));
    assert!(shown(&format).contains("belongs to a cluster"), "{}", shown(&format));
    fs::remove_dir_all(servers.path("metadata")).expect("removed");
    assert!(!servers.try_start(0), "it starts without metadata");
    assert!(!servers.path("metadata").exists());
    brought_back(&servers, "metadata");
    servers.start(0);
    servers.start(1);
    holds(&servers, &bytes);
    assert!(servers.weft(["fsck"]).contains(" 0 problems"));
}

#[test]
fn an_older_copy_of_a_target_is_refused_until_it_is_accepted() {
    let (mut servers, bytes) = with_file();
    servers.stop(1);
    copy(&servers.path("target1"), &servers.path("older"));
    servers.start(1);
    servers.stop(1);
    copy(&servers.path("older"), &servers.path("target1"));
    servers.start(1);
    unreadable(&servers, &["target 1", "older copy of target 1 was restored", "weft target accept 1"]);
    let said = servers.weft(["target", "accept", "1"]);
    assert!(said.contains("start its server again"), "{said}");
    servers.stop(1);
    servers.start(1);
    holds(&servers, &bytes);
    // The older copy was accepted once, not permanently.
    servers.stop(1);
    copy(&servers.path("older"), &servers.path("target1"));
    servers.start(1);
    unreadable(&servers, &["older copy of target 1 was restored"]);
}

/// Returns the inode number that `weft stat` shows.
fn inode(servers: &Servers, path: &str) -> u64 {
    let stat = servers.weft(["stat", path]);
    let after = stat.split("Inode: ").nth(1).expect("an inode");
    after.split_whitespace().next().and_then(|number| number.parse().ok()).expect("a number")
}

fn datafiles(servers: &Servers, target: &str, inode: u64) -> usize {
    let folder = servers.path(target).join(format!("objects/{:02x}", inode & 0xff));
    let of_inode = |name: &str| name.starts_with(&format!("{inode:016x}."));
    let names = fs::read_dir(folder).expect("a folder").flatten();
    names.filter(|entry| entry.file_name().to_str().is_some_and(of_inode)).count()
}

#[test]
fn older_metadata_is_refused_reuses_no_file_ids_and_deletes_no_datafiles() {
    let (mut servers, bytes) = with_file();
    let source = servers.path("source");
    let source = source.to_str().expect("text");
    servers.stop(1);
    servers.stop(0);
    copy(&servers.path("metadata"), &servers.path("older"));
    servers.start(0);
    servers.start(1);
    servers.weft(["setstripe", "-S", "64K", "-c", "2", "/weft/lost"]);
    servers.weft(["cp", source, "/weft/lost"]);
    let lost = inode(&servers, "/weft/lost");
    servers.stop(1);
    servers.stop(0);
    copy(&servers.path("metadata"), &servers.path("latest"));
    copy(&servers.path("older"), &servers.path("metadata"));
    servers.start(0);
    servers.start(1);
    unreadable(&servers, &["older copy of the metadata was restored", "weft target accept"]);

    servers.weft(["target", "accept", "--all"]);
    servers.stop(1);
    servers.stop(0);
    servers.start(0);
    servers.start(1);
    holds(&servers, &bytes);
    for number in 0..20 {
        let path = format!("/weft/new{number}");
        servers.weft(["touch", &path]);
        assert_ne!(inode(&servers, &path), lost, "a file id was assigned twice");
    }
    for args in [&["fsck"][..], &["fsck", "--repair"], &["fsck", "--repair", "--delete-orphans"]] {
        let output = servers.command(args).output().expect("weft starts");
        assert_eq!(output.status.code(), Some(4), "{}", shown(&output));
        assert!(shown(&output).contains("another copy of the metadata may own it"), "{}", shown(&output));
        for target in ["target0", "target1"] {
            assert_eq!(datafiles(&servers, target, lost), 1, "{args:?} removed a datafile on {target}");
        }
    }
    // With the latest metadata the file is present again.
    servers.stop(1);
    servers.stop(0);
    copy(&servers.path("latest"), &servers.path("metadata"));
    servers.start(0);
    servers.weft(["target", "accept", "--all"]);
    servers.stop(0);
    servers.start(0);
    servers.start(1);
    let output = servers.command(["cat", "/weft/lost"]).output().expect("weft starts");
    assert!(output.status.success() && output.stdout == bytes, "{}", shown(&output).len());
}

#[test]
fn an_orphan_with_bytes_is_removed_only_on_demand() {
    let (servers, _) = with_file();
    servers.weft(["touch", "/weft/gone"]);
    let gone = inode(&servers, "/weft/gone");
    servers.weft(["rm", "/weft/gone"]);
    let orphan = |column: u32| {
        let name = format!("target0/objects/{:02x}/{gone:016x}.0.{column}", gone & 0xff);
        servers.path(&name)
    };
    fs::write(orphan(0), "all that is left").expect("written");
    fs::write(orphan(1), "").expect("written");
    let output = servers.command(["fsck", "--repair"]).output().expect("weft starts");
    assert_eq!(output.status.code(), Some(4), "{}", shown(&output));
    assert!(shown(&output).contains("--delete-orphans removes it"), "{}", shown(&output));
    assert!(orphan(0).exists() && !orphan(1).exists(), "{}", shown(&output));
    let output = servers.command(["fsck", "--repair", "--delete-orphans"]).output().expect("weft starts");
    assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
    assert!(!orphan(0).exists());
    assert!(servers.weft(["fsck"]).contains(" 0 problems"));
}

/// Rewrites the directories of an empty cluster in the format of version 1.
fn as_version_1(servers: &Servers) {
    let checked = |mut bytes: Vec<u8>| {
        bytes.extend_from_slice(&crc(&bytes).to_le_bytes());
        bytes
    };
    fs::remove_dir_all(servers.path("metadata")).expect("removed");
    fs::create_dir(servers.path("metadata")).expect("made");
    let env = RealEnv::new();
    block_on(async {
        let dir = env.dir(&servers.path("metadata")).await.expect("there");
        let wanted = DatabaseSpec::formatting("test");
        let journal = Journal::open(env, dir.clone(), "metadata", &wanted, JournalOptions::default()).await;
        journal.expect("formatted").shutdown().await.expect("ended");
        dir.sync("").await.expect("synced");
    });
    let identity = checked(b"WEFTMETA\x01\0\0\0\x04\0test".to_vec());
    fs::write(servers.path("metadata/identity"), identity).expect("written");
    for target in 0..2u8 {
        let path = servers.path(&format!("target{target}/weft-target"));
        let name = fs::read(&path).expect("the identity")[16..24].to_vec();
        let head = [b"WEFTTGT\n\x01\0\0\0", &[target, 0, 0, 0][..], &name, &[0; 8]].concat();
        fs::write(path, checked(head)).expect("written");
    }
}

/// Computes CRC-32 as zlib does.
fn crc(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg()))
    })
}

#[test]
fn a_cluster_of_version_1_continues_and_gets_an_identity() {
    let mut servers = Servers::started(2, "", "", "");
    servers.stop(1);
    servers.stop(0);
    as_version_1(&servers);
    servers.start(0);
    // A blank directory is not accepted for an old target either.
    emptied(&servers, "target1");
    servers.start(1);
    let output = servers.command(["status"]).output().expect("weft starts");
    assert!(shown(&output).contains("BLANK"), "{}", shown(&output));
    servers.stop(1);
    brought_back(&servers, "target1");
    servers.start(1);
    let status = servers.weft(["status"]);
    assert!(status.contains("active") && !status.contains("BLANK"), "{status}");
    let listed = servers.weft(["target", "list"]);
    assert_eq!(listed.lines().filter(|line| line.contains("active")).count(), 2, "{listed}");
    fs::write(servers.path("source"), vec![7; 300_000]).expect("written");
    let source = servers.path("source");
    servers.weft(["cp", source.to_str().expect("text"), "/weft/file"]);
    for id in [1, 0] {
        servers.stop(id);
    }
    for id in [0, 1] {
        servers.start(id);
    }
    holds(&servers, &[7; 300_000]);
    assert_eq!(fs::read(servers.path("target0/weft-target")).expect("the identity").len(), 100);
}

#[test]
fn an_embedded_cluster_refuses_emptied_directories() {
    let cluster = Embedded::started();
    cluster.run(["sh", "-c", "head -c 2000000 /dev/zero | tr '\\0' x > /weft/file"]);
    cluster.weft(["stop"]);
    assert!(!cluster.state().join("forming").exists());
    let metadata = cluster.state().join("metadata");
    fs::rename(&metadata, cluster.local("away")).expect("removed");
    let output = cluster.running(["true"]).output().expect("weft starts");
    assert!(!output.status.success() && shown(&output).contains("blank"), "{}", shown(&output));
    fs::remove_dir_all(&metadata).expect("the blank one");
    fs::rename(cluster.local("away"), &metadata).expect("brought back");
    let target = cluster.state().join("targets/hdd1");
    fs::rename(&target, cluster.local("away")).expect("removed");
    let output = cluster.running(["cat", "/weft/file"]).output().expect("weft starts");
    assert!(!output.status.success(), "{}", shown(&output));
    assert!(cluster.command(["status"]).output().is_ok_and(|found| shown(&found).contains("BLANK")));
    cluster.weft(["stop"]);
    fs::remove_dir_all(&target).expect("the blank one");
    fs::rename(cluster.local("away"), &target).expect("brought back");
    assert_eq!(cluster.run(["sh", "-c", "tr -d x < /weft/file | wc -c"]).trim(), "0");
    assert_eq!(cluster.run(["sh", "-c", "wc -c < /weft/file"]).trim(), "2000000");
}

#[test]
fn a_read_of_a_refused_target_fails_with_eio_in_a_program_and_on_a_mount() {
    let cluster = Embedded::started();
    cluster.weft(["setstripe", "-c", "4", "-S", "64K", "/weft/file"]);
    cluster.run(["sh", "-c", "head -c 2000000 /dev/zero | tr '\\0' x > /weft/file"]);
    cluster.weft(["stop"]);
    fs::rename(cluster.state().join("targets/hdd1"), cluster.local("away")).expect("removed");

    let mut read = cluster.running(["sh", "-c", "cat /weft/file > /dev/null"]);
    let output = read.env("LC_ALL", "C").output().expect("weft starts");
    let text = shown(&output);
    assert!(!output.status.success() && text.contains("Input/output error"), "{text}");
    assert!(cluster.command(["status"]).output().is_ok_and(|found| shown(&found).contains("BLANK")));
    if mounts::possible() {
        let mounted = Mounted::new(&cluster, "mount");
        let error = fs::read(mounted.at("file")).expect_err("a part is on the refused target");
        assert_eq!(error.raw_os_error(), Some(libc::EIO), "{error}");
        mounted.end();
    }
}
