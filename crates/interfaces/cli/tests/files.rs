//! Commands for files, stripes and checks.

mod common;

use common::{Embedded, Random, succeeded};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;

#[test]
fn a_tree_is_copied_in_and_out_unchanged() {
    let cluster = Embedded::started();
    let source = cluster.local("tree");
    std::fs::create_dir_all(source.join("sub/empty")).expect("made");
    let (mut random, _) = Random::seeded();
    for (name, len) in
        [("none", 0u64), ("one", 1), ("record", 47_008), ("large", 40 << 20), ("sub/odd", 3 << 20 | 7)]
    {
        let bytes: Vec<u8> =
            (0..len).step_by(8).flat_map(|_| random.next().to_le_bytes()).take(len as usize).collect();
        std::fs::write(source.join(name), bytes).expect("written");
    }
    std::fs::set_permissions(source.join("one"), std::fs::Permissions::from_mode(0o640)).expect("chmod");
    symlink("sub/odd", source.join("link")).expect("a link");
    // Names are bytes, not necessarily UTF-8.
    let odd = OsStr::from_bytes(b"no \xff text");
    std::fs::write(source.join(odd), "odd").expect("written");

    let source_text = source.to_str().expect("text");
    cluster.weft(["cp", "-rp", source_text, "/weft/"]);
    cluster.weft(["cp", "-r", "/weft/tree", "/weft/copy"]);
    let back = cluster.local("back");
    cluster.weft(["cp", "-rp", "/weft/copy", back.to_str().expect("text")]);
    succeeded(Command::new("diff").arg("-r").arg("--no-dereference").arg(&source).arg(&back));
    let mode = std::fs::metadata(back.join("one")).expect("there").permissions().mode();
    assert_eq!(mode & 0o7777, 0o640);
    assert_eq!(std::fs::read_link(back.join("link")).expect("a link").to_str(), Some("sub/odd"));

    // Programs see the same tree.
    let sums = |dir: &str| format!("cd {dir} && find . -type f | LC_ALL=C sort | xargs -d '\\n' sha256sum");
    let local = succeeded(Command::new("sh").arg("-c").arg(sums(source_text)));
    assert_eq!(cluster.run(["sh", "-c", &sums("/weft/tree")]), local);

    let long = cluster.weft(["ls", "-l", "/weft/tree"]);
    let sizes: Vec<_> = long.lines().filter_map(|line| line.split_whitespace().nth(4)).collect();
    assert!(sizes.contains(&"47008") && sizes.contains(&"41943040"), "{long}");
    assert!(long.contains("link -> sub/odd"), "{long}");
    let apparent = cluster.weft(["du", "-s", "--apparent", "/weft/tree"]);
    let total: u64 = apparent.split_whitespace().next().and_then(|n| n.parse().ok()).expect("a number");
    assert!((44_086..44_200).contains(&total), "{apparent}");
    let odd_path = [OsStr::from_bytes(b"/weft/tree/no \xff text")];
    let read = cluster.command([OsStr::new("cat")].iter().chain(&odd_path)).output().expect("weft starts");
    assert_eq!(read.stdout, b"odd");
    let listed = cluster.command(["ls", "/weft/tree"]).output().expect("weft starts").stdout;
    assert!(listed.split(|byte| *byte == b'\n').any(|line| line == odd.as_bytes()));
    cluster.weft(["rm", "-r", "/weft/tree", "copy"]);
    assert_eq!(cluster.weft(["ls", "-a"]), "");
}

#[test]
fn names_are_made_moved_linked_and_removed() {
    let cluster = Embedded::started();
    cluster.weft(["mkdir", "-p", "/weft/a/b/c"]);
    cluster.weft(["mkdir", "-p", "/weft/a/b/c"]);
    assert!(cluster.fails(1, ["mkdir", "/weft/a"]).contains("File exists"));
    cluster.weft(["touch", "a/file"]);
    cluster.weft(["ln", "a/file", "a/hard"]);
    cluster.weft(["ln", "-s", "/weft/a/file", "a/soft"]);
    let stat = cluster.weft(["stat", "/weft/a/hard"]);
    assert!(stat.contains("Links: 2") && stat.contains("regular file"), "{stat}");
    assert!(cluster.weft(["stat", "a/soft"]).contains("symbolic link"));
    assert!(
        cluster.weft(["stat", "-L", "a/soft"]).contains("regular file"),
        "an absolute target under the mount"
    );
    cluster.weft(["mv", "a/file", "a/hard", "a/b"]);
    assert_eq!(
        cluster.weft(["ls", "-R", "a"]),
        "/weft/a:\nb\nsoft\n\n/weft/a/b:\nc\nfile\nhard\n\n/weft/a/b/c:\n"
    );
    assert!(cluster.fails(1, ["mv", "-n", "a/b/file", "a/b/hard"]).contains("exists"));
    assert!(cluster.fails(1, ["rm", "a"]).contains("-r removes it"));
    assert!(cluster.fails(1, ["rm", "nothing"]).contains("No such file"));
    cluster.weft(["rm", "-f", "nothing"]);
    assert!(cluster.fails(2, ["rm", "-r", "/weft"]).contains("root cannot be removed"));
    cluster.weft(["rm", "-r", "a"]);
    assert!(cluster.fails(1, ["cat", "/weft/a/file"]).contains("/weft/a/file: No such file"));
    assert!(cluster.fails(2, ["cp", "/tmp/x", "/tmp/y"]).contains("none of the paths is under /weft"));
}

#[test]
fn stripes_are_set_inherited_and_shown() {
    let cluster = Embedded::started();
    cluster.weft(["setstripe", "-c", "2", "-S", "64K", "--class", "ssd", "/weft/hot"]);
    assert_eq!(cluster.weft(["getstripe", "-c", "-S", "/weft/hot"]), "2 65536 /weft/hot\n");
    cluster.weft(["mkdir", "/weft/dir"]);
    cluster.weft(["setstripe", "-c", "1", "-S", "1M", "/weft/dir"]);
    cluster.run([
        "sh",
        "-c",
        "head -c 100000 /dev/zero > /weft/dir/file; mkdir /weft/dir/sub; echo x > /weft/dir/sub/f",
    ]);
    assert_eq!(cluster.weft(["getstripe", "-c", "-S", "/weft/dir/file"]), "1 1048576 /weft/dir/file\n");
    assert_eq!(
        cluster.weft(["getstripe", "-c", "/weft/dir/sub/f"]),
        "1 /weft/dir/sub/f\n",
        "inherited below"
    );
    cluster.run(["sh", "-c", "head -c 200000 /dev/zero > /weft/hot"]);
    let shown = cluster.weft(["getstripe", "-v", "/weft/hot"]);
    assert!(shown.contains("200000 bytes") && shown.contains("ssd") && !shown.contains("hdd"), "{shown}");
    assert!(shown.contains("103392") && shown.contains("96608") || shown.contains("131072"), "{shown}");
    assert!(cluster.fails(1, ["setstripe", "-c", "3", "/weft/hot"]).contains("/weft/hot"), "it holds bytes");
    assert!(cluster.fails(2, ["setstripe", "--class", "tape", "/weft/x"]).contains("classes here: hdd, ssd"));
    cluster.weft(["setstripe", "-d", "/weft/dir"]);
    cluster.weft(["touch", "/weft/dir/wide"]);
    assert_eq!(cluster.weft(["getstripe", "-c", "/weft/dir/wide"]), "4 /weft/dir/wide\n");
    let df = cluster.weft(["df"]);
    assert_eq!(df.lines().count(), 7, "four targets, the metadata, and all of it: {df}");
}

#[test]
fn a_disk_that_targets_share_is_counted_once() {
    let cluster = Embedded::started();
    let size =
        |line: &str| line.split_whitespace().find_map(|word| word.parse::<u64>().ok().filter(|n| *n > 9));
    let df = cluster.weft(["df", "--bytes"]);
    let target =
        df.lines().find(|line| line.contains("targets/hdd0")).and_then(size).expect("a target's size");
    let total = df.lines().find(|line| line.starts_with("total")).and_then(size).expect("the total");
    assert_eq!(total, target, "{df}");
    // Programs see the same figures.
    let seen = cluster.run(["stat", "-f", "-c", "%b %S", "/weft"]);
    let seen: Vec<u64> = seen.split_whitespace().map(|n| n.parse().expect("a number")).collect();
    assert!(seen[0] * seen[1] <= total && total - seen[0] * seen[1] < seen[1], "{seen:?} {total}");
}

#[test]
fn fsck_finds_and_repairs_inconsistencies() {
    let cluster = Embedded::started();
    cluster.run([
        "sh",
        "-c",
        "for i in 1 2 3; do head -c 3000000 /dev/urandom > /weft/f$i; done; mkdir /weft/d",
    ]);
    let clean = cluster.weft(["fsck"]);
    assert!(clean.contains("0 problems"), "{clean}");

    // A datafile that belongs to no file, and a missing datafile.
    let datafiles = |target: &str| {
        let find = format!("find {}/targets/{target}/objects -type f", cluster.state().display());
        let text = succeeded(Command::new("sh").arg("-c").arg(find));
        text.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let some = datafiles("hdd0").first().cloned().expect("a datafile");
    let (_, name) = some.rsplit_once('/').expect("a path");
    // The id of a removed file is used, because an unused id may belong to another copy of the metadata.
    cluster.weft(["touch", "/weft/gone"]);
    let stat = cluster.weft(["stat", "/weft/gone"]);
    let number =
        stat.split("Inode: ").nth(1).and_then(|rest| rest.split_whitespace().next()).expect("a number");
    let number: u64 = number.parse().expect("a number");
    cluster.weft(["rm", "/weft/gone"]);
    cluster.weft(["stop"]);
    // Datafiles are in directories by their file id.
    let folder = cluster.state().join(format!("targets/hdd0/objects/{:02x}", number & 0xff));
    let moved = folder.join(format!("{number:016x}{}", &name[16..]));
    std::fs::copy(&some, &moved).expect("copied");
    std::fs::OpenOptions::new().write(true).open(&some).and_then(|file| file.set_len(5)).expect("cut");
    let output = cluster.command(["fsck"]).output().expect("weft starts");
    let text = common::shown(&output);
    assert_eq!(output.status.code(), Some(4), "{text}");
    assert!(text.contains("belongs to no file"), "{text}");
    assert!(moved.exists(), "nothing is changed without --repair");
    // The JSON document has the lines of the text.
    let output = cluster.command(["fsck", "--json"]).output().expect("weft starts");
    assert_eq!(output.status.code(), Some(4), "{}", common::shown(&output));
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let problems = found["problems"].as_array().expect("a list");
    assert!(found["found"] == problems.len() && found["repaired"] == 0, "{found}");
    for problem in problems {
        let line = problem["problem"].as_str().expect("text");
        assert!(problem["repaired"] == false && text.lines().any(|said| said == line), "{line}: {text}");
    }
    assert!(found["inodes"].as_u64() > Some(4) && found["datafiles"].as_u64() > Some(3), "{found}");
    assert!(found["scrub"].is_null() && found["not_checked"] == serde_json::json!([]), "{found}");
    let repair = ["fsck", "--repair", "--accept-loss", "--delete-orphans"];
    let output = cluster.command(repair.iter().chain(&["--json"])).output().expect("weft starts");
    assert_eq!(output.status.code(), Some(1), "{}", common::shown(&output));
    let repaired: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((&repaired["found"], &repaired["repaired"]), (&found["found"], &found["found"]), "{repaired}");
    assert!(!moved.exists(), "the orphan is removed");
    assert!(cluster.weft(["fsck"]).contains("0 problems"));
    let clean = cluster.weft(["fsck", "--scrub", "--json"]);
    let clean: serde_json::Value = serde_json::from_str(&clean).expect("JSON");
    assert!(clean["problems"] == serde_json::json!([]) && clean["scrub"]["verified"] == 0, "{clean}");
}

#[test]
fn a_directory_is_not_copied_into_itself() {
    let cluster = Embedded::started();
    cluster.weft(["mkdir", "-p", "/weft/a/b"]);
    cluster.weft(["ln", "-s", "a/b", "/weft/way"]);
    for to in ["/weft/a/b", "/weft/a", "/weft/a//b/./new"] {
        let said = cluster.fails(1, ["cp", "-r", "/weft/a", to]);
        assert!(said.contains("cannot be copied into itself"), "{to}: {said}");
    }
    assert_eq!(cluster.weft(["ls", "-R", "/weft/a"]), "/weft/a:\nb\n\n/weft/a/b:\n");
    // Behind a link the cycle is found during the copy: a part is copied, and the command ends.
    assert!(
        cluster.fails(1, ["cp", "-r", "/weft/a", "/weft/way/new"]).contains("cannot be copied into itself")
    );
    assert_eq!(
        cluster.weft(["ls", "-R", "/weft/a/b"]),
        "/weft/a/b:\nnew\n\n/weft/a/b/new:\nb\n\n/weft/a/b/new/b:\n"
    );
    cluster.weft(["rm", "-r", "/weft/a/b/new"]);
    // A directory whose name only has the same prefix is another directory.
    cluster.weft(["cp", "-r", "/weft/a", "/weft/ab"]);
    assert_eq!(cluster.weft(["ls", "/weft/ab"]), "b\n");
}

#[test]
fn a_tree_is_copied_over_an_older_copy_of_it() {
    let cluster = Embedded::started();
    let (tree, back) = (cluster.local("tree"), cluster.local("back"));
    std::fs::create_dir(&tree).expect("a directory");
    std::fs::write(tree.join("file"), "one").expect("written");
    std::os::unix::fs::symlink("file", tree.join("link")).expect("a link");
    let (tree, back) = (tree.to_str().expect("text"), back.to_str().expect("text"));
    for target in ["file", "nowhere"] {
        std::fs::remove_file(format!("{tree}/link")).expect("removed");
        std::os::unix::fs::symlink(target, format!("{tree}/link")).expect("a link");
        cluster.weft(["cp", "-r", tree, "/weft"]);
        cluster.weft(["cp", "-r", "/weft/tree/.", back]);
        assert_eq!(std::fs::read_link(format!("{back}/link")).expect("a link").to_str(), Some(target));
    }
}

#[test]
fn unwritable_output_is_a_failure_and_no_panic() {
    let cluster = Embedded::started();
    cluster.weft(["touch", "/weft/file"]);
    for args in
        [&["ls", "/weft"][..], &["status"], &["df"], &["stat", "/weft/file"], &["fsck"], &["config", "show"]]
    {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("/dev/full");
        let output = cluster.command(args).stdout(full).output().expect("weft starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {said}");
        assert!(said.contains("standard output: No space left on device"), "{args:?}: {said}");
    }
}

#[test]
fn a_file_is_not_copied_over_itself_under_any_name() {
    let cluster = Embedded::started();
    cluster.run(["sh", "-c", "echo kept > /weft/file; ln /weft/file /weft/hard; ln -s file /weft/soft"]);
    for to in ["/weft/file", "/weft", "/weft//file", "/weft/./file", "/weft/hard", "/weft/soft"] {
        assert!(cluster.fails(1, ["cp", "/weft/file", to]).contains("is the same file"), "{to}");
        assert_eq!(cluster.weft(["cat", "/weft/file"]), "kept\n", "{to}");
    }
}

#[test]
fn files_are_found_by_their_properties_and_shown_as_json() {
    let cluster = Embedded::started();
    let big = cluster.local("big");
    std::fs::write(&big, vec![7; 3 << 20]).expect("written");
    let big = big.to_str().expect("text");
    cluster.weft(["mkdir", "-p", "/weft/d/e"]);
    cluster.weft(["setstripe", "-c", "1", "-i", "2", "/weft/d/one"]);
    for name in ["/weft/d/one", "/weft/d/all.h5"] {
        cluster.weft(["cp", big, name]);
    }
    cluster.weft(["touch", "/weft/d/e/empty"]);
    cluster.weft(["setstripe", "--compress", "lz4", "/weft/d/e/packed"]);
    cluster.weft(["ln", "-s", "one", "/weft/d/link"]);
    let find = |conditions: &[&str]| {
        let told = cluster.weft([&["find"], conditions].concat());
        told.lines().map(|line| line.strip_prefix("/weft/d").expect("below").to_owned()).collect::<Vec<_>>()
    };
    let all = ["", "/all.h5", "/e", "/e/empty", "/e/packed", "/link", "/one"];
    assert_eq!(find(&["/weft/d"]), all);
    assert_eq!(find(&["d", "--max-depth", "1"]).len(), 5);
    assert_eq!(find(&["d", "--type", "f", "--size", "+1M"]), ["/all.h5", "/one"]);
    assert_eq!(find(&["d", "--type", "f", "--size", "-1"]), ["/e/empty", "/e/packed"]);
    assert_eq!(find(&["d", "--size", "3M"]), ["/all.h5", "/one"]);
    assert_eq!(find(&["d", "--target", "2", "-c", "1"]), ["/one"]);
    assert_eq!(find(&["d", "--stripe-count", "+1", "--class", "hdd"]), ["/all.h5", "/e/packed"]);
    assert_eq!(find(&["d", "--stripe-count", "+1", "--class", "none"]), Vec::<String>::new());
    assert_eq!(find(&["d", "--name", "*.h5"]), ["/all.h5"]);
    assert_eq!(find(&["d", "--type", "l"]), ["/link"]);
    assert_eq!(find(&["d", "--compressed"]), ["/e/packed"]);
    assert_eq!(find(&["d", "--type", "d", "--mtime", "-1h"]), ["", "/e"]);
    assert_eq!(find(&["d", "--mtime", "+1d"]), Vec::<String>::new());
    // SAFETY: these calls cannot fail.
    let (uid, gid) = unsafe { (libc::getuid().to_string(), libc::getgid().to_string()) };
    assert_eq!(find(&["d", "--user", &uid, "--group", &gid]), all);
    let zeros = cluster.weft(["find", "-0", "d", "--type", "d"]);
    assert_eq!(zeros, "/weft/d\0/weft/d/e\0");
    cluster.fails(2, ["find", "--size", "5Q", "/weft"]);
    assert!(cluster.fails(1, ["find", "/weft/none"]).contains("/weft/none"));

    let json =
        |args: &[&str]| -> serde_json::Value { serde_json::from_str(&cluster.weft(args)).expect("JSON") };
    let listed = json(&["ls", "--json", "/weft/d"]);
    let paths: Vec<_> = listed.as_array().expect("files").iter().map(|file| file["path"].clone()).collect();
    assert_eq!(paths, ["/weft/d/all.h5", "/weft/d/e", "/weft/d/link", "/weft/d/one"]);
    let stat = json(&["stat", "--json", "/weft/d/one"]);
    assert_eq!((&stat[0]["size"], &stat[0]["type"]), (&(3 << 20).into(), &"regular file".into()));
    assert_eq!((&stat[0], &json(&["find", "--json", "d", "--name", "one"])[0]), (&listed[3], &listed[3]));
    let layout = json(&["getstripe", "-v", "--json", "/weft/d/one", "/weft/d"]);
    assert_eq!(layout[0]["components"][0]["stripes"][0]["target"], 2);
    assert_eq!(layout[0]["datafiles"][0]["length"], 3 << 20);
    assert_eq!(layout[1]["type"], "directory");
    let space = json(&["df", "--json"]);
    let sum = |document: &serde_json::Value| {
        document["used"].as_u64().expect("bytes") + document["available"].as_u64().expect("bytes")
    };
    assert_eq!(space["targets"].as_array().expect("targets").len(), 5, "{space}");
    assert_eq!(Some(sum(&space["total"])), space["total"]["size"].as_u64());
}
