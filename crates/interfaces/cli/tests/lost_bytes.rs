//! Datafiles that are removed or truncated behind Weft's back. Every way of reading the lost bytes fails with EIO, and
//! `weft fsck` names the bytes.

mod common;

use common::mounts::{self, Mounted};
use common::servers::Servers;
use common::{Embedded, Random, Weft, shown, succeeded, undisturbed};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Stripe size of the files.
const STRIPE: usize = 64 << 10;

/// Lists the datafiles in the target directories below `path`, with their lengths.
fn datafiles(path: &Path) -> Vec<(PathBuf, u64)> {
    let find = format!("find {} -path '*/objects/*' -type f", path.display());
    let text = succeeded(Command::new("sh").arg("-c").arg(find));
    let with_len = |path: &str| (path.into(), std::fs::metadata(path).expect("a file").len());
    text.lines().map(with_len).collect()
}

/// Returns the bytes of a file of slightly more than four stripes.
fn content(seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; 4 * STRIPE + 777];
    let mut random = Random::new(seed);
    bytes.iter_mut().for_each(|byte| *byte = random.next() as u8);
    bytes
}

/// Returns the output of `weft fsck` with `args`, which must exit with `code`.
fn checked(cluster: &Weft, args: &[&str], code: i32) -> String {
    let output = cluster.command(["fsck"].iter().chain(args)).output().expect("weft starts");
    let text = shown(&output);
    assert_eq!(output.status.code(), Some(code), "{text}");
    text
}

/// Checks that commands that read `path` fail and print the reason.
fn unreadable(cluster: &Weft, path: &str) {
    let said = cluster.fails(1, ["cat", path]);
    assert!(said.contains("are lost: datafile") && said.contains("weft fsck"), "{said}");
    let said = cluster.fails(1, ["cp", path, "/dev/null"]);
    assert!(said.contains("are lost: datafile"), "{said}");
}

#[test]
fn a_lost_datafile_of_an_embedded_cluster_is_an_error_through_every_interface() {
    let cluster = Embedded::started();
    cluster.weft(["setstripe", "-c", "4", "-S", "64K", "/weft"]);
    let bytes = content(1);
    let local = cluster.local("file");
    std::fs::write(&local, &bytes).expect("written");
    let local = local.to_str().expect("text");
    cluster.run(["cp", local, "/weft/whole"]);
    cluster.run(["cp", local, "/weft/gone"]);
    cluster.run(["cp", local, "/weft/cut"]);
    assert!(checked(&cluster, &[], 0).contains("0 problems"));
    cluster.weft(["stop"]);
    // File ids follow the order of creation, so the datafiles sort in this order.
    let mut all = datafiles(&cluster.state());
    all.sort_by_key(|(path, _)| path.file_name().map(ToOwned::to_owned));
    assert_eq!(all.len(), 12, "{all:?}");
    let of = |file: usize, len: u64| {
        let own = all[4 * file..4 * file + 4].iter();
        own.filter(|(_, other)| *other == len).map(|(path, _)| path.clone()).collect::<Vec<_>>()
    };
    // The second stripe, and the end together with the first stripe.
    let second = of(1, STRIPE as u64).into_iter().find(|path| path.to_string_lossy().ends_with(".0.1"));
    std::fs::remove_file(second.expect("a datafile")).expect("removed");
    let [first] = &of(2, (STRIPE + 777) as u64)[..] else { panic!("not one datafile with the end: {all:?}") };
    let cut = std::fs::OpenOptions::new().write(true).open(first).expect("there");
    cut.set_len(100).expect("cut");

    unreadable(&cluster, "/weft/gone");
    unreadable(&cluster, "/weft/cut");
    assert_eq!(cluster.run(["sh", "-c", &format!("cmp {local} /weft/whole && echo same")]), "same\n");
    for path in ["/weft/gone", "/weft/cut"] {
        let read = format!("cat {path} > /dev/null");
        let output = cluster.running(["sh", "-c", &read]).output().expect("weft starts");
        let text = shown(&output);
        assert!(!output.status.success() && text.contains("Input/output error"), "{path}: {text}");
        assert_eq!(cluster.run(["stat", "-c", "%s", path]), format!("{}\n", bytes.len()));
    }
    // Other bytes can be read.
    let head = format!("head -c {STRIPE} /weft/gone | cmp -n {STRIPE} - {local} && echo same");
    assert_eq!(cluster.run(["sh", "-c", &head]), "same\n");

    let text = checked(&cluster, &[], 4);
    assert!(text.contains(&format!("gone: bytes {STRIPE} to {} are lost: datafile", 2 * STRIPE)), "{text}");
    let ranges = format!("cut: bytes 100 to {STRIPE}, {} to {} are lost", 4 * STRIPE, bytes.len());
    assert!(text.contains(&ranges) && text.contains("has 100 of 66313 bytes"), "{text}");
    assert!(text.contains("2 problems, 0 repaired"), "{text}");
    // A repair does not hide the loss.
    let text = checked(&cluster, &["--repair"], 4);
    assert!(text.contains("2 problems, 0 repaired"), "{text}");
    unreadable(&cluster, "/weft/gone");
    checked(&cluster, &["--accept-loss"], 2);

    if mounts::possible() {
        let mounted = Mounted::new(&cluster, "mount");
        let error = std::fs::read(mounted.at("gone")).expect_err("a part is lost");
        assert_eq!(error.raw_os_error(), Some(libc::EIO), "{error}");
        assert_eq!(std::fs::read(mounted.at("whole")).expect("read"), bytes);
        mounted.end();
    }

    // A file can be overwritten with a copy, or its loss can be accepted.
    cluster.run(["sh", "-c", &format!("cat {local} > /weft/gone")]);
    assert_eq!(cluster.run(["sh", "-c", &format!("cmp {local} /weft/gone && echo same")]), "same\n");
    let text = checked(&cluster, &["--repair", "--accept-loss"], 1);
    assert!(text.contains("1 problems, 1 repaired"), "{text}");
    let back = cluster.local("back");
    cluster.weft(["cp", "/weft/cut", back.to_str().expect("text")]);
    let mut expected = bytes;
    expected[100..STRIPE].fill(0);
    expected[4 * STRIPE..].fill(0);
    assert!(std::fs::read(back).expect("read") == expected, "zeros where bytes were lost, and only there");
    assert!(checked(&cluster, &[], 0).contains("0 problems"));
}

#[test]
fn a_lost_datafile_of_several_servers_is_named_with_its_server() {
    let mut servers = Servers::started(3, "", "", "");
    servers.weft(["setstripe", "-c", "3", "-S", "64K", "/weft"]);
    let local = servers.path("file");
    std::fs::write(&local, content(2)).expect("written");
    servers.weft(["cp", local.to_str().expect("text"), "/weft/file"]);
    servers.stop(2);
    let [(datafile, _)] = &datafiles(&servers.path("target2"))[..] else { panic!("not one datafile") };
    std::fs::remove_file(datafile).expect("removed");
    servers.start(2);
    let said = servers.fails(1, ["cat", "/weft/file"]);
    assert!(said.contains("on target 2 of server s2"), "{said}");
    let text = checked(&servers, &[], 4);
    assert!(text.contains("/weft/file: bytes ") && text.contains("on target 2 of server s2"), "{text}");

    // An unreachable server counts as not checked.
    servers.weft(["rm", "/weft/file"]);
    servers.weft(["cp", local.to_str().expect("text"), "/weft/other"]);
    assert!(checked(&servers, &[], 0).contains("0 problems"));
    servers.kill(2);
    let text = checked(&servers, &[], 8);
    assert!(!text.contains("0 problems") && text.contains("not all could be checked"), "{text}");
    assert!(text.contains("not checked: 1 files with datafiles on target 2"), "{text}");
    assert!(text.contains("not checked: target 2: server s2"), "{text}");
    servers.start(2);

    // A cluster file that lacks a server with data is a way in: the metadata server names the others.
    let whole = std::fs::read_to_string(servers.file()).expect("a cluster file");
    let last = whole.rfind("[[server]]").expect("servers");
    let file = servers.path("less.toml");
    std::fs::write(&file, &whole[..last]).expect("written");
    let output = undisturbed().arg("--cluster").arg(&file).arg("fsck").output().expect("weft starts");
    assert!(
        output.status.success() && shown(&output).contains("3 datafiles: 0 problems"),
        "{}",
        shown(&output)
    );
}
