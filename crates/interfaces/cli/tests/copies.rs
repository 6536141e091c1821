//! `weft cp`: the new file appears under its name when it is complete, and an old file stays until then.

mod common;

use common::{Embedded, shown, succeeded};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// Length that is not copied completely before the signal arrives.
const LONG: u64 = 1 << 40;

/// Lists a directory of the cluster, hidden names included.
fn names(cluster: &Embedded, dir: &str) -> Vec<String> {
    cluster.weft(["ls", "-a", dir]).lines().map(str::to_owned).collect()
}

fn local_names(dir: &Path) -> Vec<String> {
    let names = std::fs::read_dir(dir).expect("a directory").map(|entry| entry.expect("one").file_name());
    let mut names: Vec<_> = names.map(|name| name.into_string().expect("text")).collect();
    names.sort();
    names
}

/// Waits until a copy has a temporary file and sends it `signal`. Returns the exit code if the copy exited by itself.
fn interrupted(mut copy: Child, signal: i32, listed: impl Fn() -> Vec<String>) -> Option<i32> {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !listed().iter().any(|name| name.starts_with(".weft-cp.")) {
        assert!(copy.try_wait().expect("asked").is_none(), "the copy is still running");
        assert!(Instant::now() < deadline, "it begins");
    }
    // SAFETY: a process that this test started and has not waited for.
    unsafe { libc::kill(copy.id() as i32, signal) };
    copy.wait().expect("it ends").code()
}

#[test]
fn an_interrupted_copy_leaves_nothing_under_its_name() {
    let cluster = Embedded::started();
    let dir = cluster.local("dir");
    std::fs::create_dir(&dir).expect("made");
    let long = cluster.local("long");
    std::fs::File::create(&long).and_then(|file| file.set_len(LONG)).expect("a long file");
    let (long, to_dir) = (long.to_str().expect("text"), dir.to_str().expect("text"));
    cluster.run(["truncate", "-s", "1T", "/weft/source"]);
    cluster.weft(["mkdir", "/weft/d"]);
    let copy = |from: &str, to: &str| {
        let mut command = cluster.command(["cp", "-q", "-r", from, to]);
        command.stderr(Stdio::null()).spawn().expect("weft starts")
    };
    for (old, signal) in [(false, libc::SIGINT), (true, libc::SIGTERM), (true, libc::SIGHUP)] {
        if old {
            let text = cluster.local("old");
            std::fs::write(&text, "old").expect("written");
            cluster.weft(["cp", text.to_str().expect("text"), "/weft/d/long"]);
            std::fs::write(dir.join("source"), "old").expect("written");
        }
        // To Weft, and from Weft.
        let code = interrupted(copy(long, "/weft/d"), signal, || names(&cluster, "/weft/d"));
        assert_eq!(code, Some(128 + signal));
        let code = interrupted(copy("/weft/source", to_dir), signal, || local_names(&dir));
        assert_eq!(code, Some(128 + signal));
        let there: &[&str] = if old { &["long"] } else { &[] };
        assert_eq!(names(&cluster, "/weft/d"), there, "signal {signal}");
        assert_eq!(local_names(&dir), if old { vec!["source"] } else { vec![] }, "signal {signal}");
        if old {
            assert_eq!(cluster.weft(["cat", "/weft/d/long"]), "old");
            assert_eq!(std::fs::read_to_string(dir.join("source")).expect("read"), "old");
        }
    }
    // A killed copy cannot remove its temporary file, which has another name.
    assert_eq!(interrupted(copy(long, "/weft/d"), libc::SIGKILL, || names(&cluster, "/weft/d")), None);
    assert_eq!(interrupted(copy("/weft/source", to_dir), libc::SIGKILL, || local_names(&dir)), None);
    assert_eq!(cluster.weft(["cat", "/weft/d/long"]), "old");
    assert_eq!(std::fs::read_to_string(dir.join("source")).expect("read"), "old");
}

#[test]
fn a_failed_copy_leaves_nothing_under_its_name() {
    let cluster = Embedded::started();
    let dir = cluster.local("dir");
    std::fs::create_dir(&dir).expect("made");
    cluster.run(["truncate", "-s", "1M", "/weft/source"]);
    let small = |from: &str, to: &Path| {
        let weft = cluster.command(["cp", "-q", from]);
        let mut command = std::process::Command::new("sh");
        command.args(["-c", "trap '' XFSZ; ulimit -f 16; exec \"$@\"", "sh"]).arg(weft.get_program());
        command.args(weft.get_args()).arg(to).env_remove("WEFT_CLUSTER").output().expect("sh starts")
    };
    let to = dir.join("to");
    for old in [None, Some("old")] {
        if let Some(old) = old {
            std::fs::write(&to, old).expect("written");
        }
        let failed = small("/weft/source", &to);
        assert_eq!(failed.status.code(), Some(1), "{}", shown(&failed));
        let said = String::from_utf8_lossy(&failed.stderr).into_owned();
        assert!(
            said.starts_with(&format!("weft: {}: ", to.display())) && !said.contains(".weft-cp"),
            "{said}"
        );
        assert_eq!(std::fs::read_to_string(&to).ok().as_deref(), old);
        assert_eq!(local_names(&dir).len(), usize::from(old.is_some()));
    }
    // If the file cannot be created, the message names the requested path.
    let said = cluster.fails(1, ["cp", to.to_str().expect("text"), "/weft/none/to"]);
    assert!(said.contains("/weft/none") && !said.contains(".weft-cp"), "{said}");
    let said = cluster.fails(1, ["cp", "/weft/source", dir.join("none/to").to_str().expect("text")]);
    assert!(said.contains("none/to: No such file") && !said.contains(".weft-cp"), "{said}");
}

#[test]
fn a_copy_over_a_file_keeps_its_metadata() {
    let cluster = Embedded::started();
    let dir = cluster.local("dir");
    std::fs::create_dir(&dir).expect("made");
    let at = |name: &str| dir.join(name).to_str().expect("text").to_owned();
    std::fs::write(at("new"), "new").expect("written");
    std::fs::set_permissions(at("new"), PermissionsExt::from_mode(0o600)).expect("set");
    // The copy keeps permissions and owners of local files and of files on Weft, and the old layout.
    std::fs::write(at("old"), "older").expect("written");
    std::fs::set_permissions(at("old"), PermissionsExt::from_mode(0o4646)).expect("set");
    cluster.weft(["cp", &at("new"), "/weft/file"]);
    cluster.weft(["setstripe", "-S", "8K", "-c", "3", "/weft/old"]);
    cluster.run(["chmod", "640", "/weft/old"]);
    let targets = || -> Vec<String> {
        let told = cluster.weft(["getstripe", "-v", "/weft/old"]);
        let first = |line: &str| line.split_whitespace().next().unwrap_or_default().to_owned();
        let lines = told.lines().filter(|line| line.contains("8 KiB")).map(first);
        lines.collect()
    };
    let layout = targets();
    assert_eq!(layout.len(), 4, "{layout:?}");
    cluster.weft(["cp", &at("new"), "/weft/old"]);
    assert_eq!(cluster.run(["stat", "-c", "%a", "/weft/old"]), "640\n");
    assert_eq!(targets(), layout, "it has the requested layout");
    assert_eq!(cluster.weft(["cat", "/weft/old"]), "new");
    cluster.weft(["cp", "/weft/file", &at("old")]);
    let old = std::fs::metadata(at("old")).expect("there");
    assert_eq!(old.mode() & 0o7777, 0o646, "but no set-user-id bits");
    assert_eq!(std::fs::read_to_string(at("old")).expect("read"), "new");
    // Rules match the final name; a new rule takes precedence.
    cluster.weft(["mkdir", "/weft/d"]);
    cluster.weft(["setstripe", "--rule", "*", "-c", "2", "/weft/d"]);
    cluster.weft(["setstripe", "--rule", "*.log", "-c", "1", "/weft/d"]);
    cluster.weft(["setstripe", "--rule", "x.log", "-c", "3", "/weft/d"]);
    for (name, count) in [("a.log", 1), ("other", 2), ("x.log", 3)] {
        cluster.weft(["cp", &at("new"), &format!("/weft/d/{name}")]);
        let told = cluster.weft(["getstripe", "-c", &format!("/weft/d/{name}")]);
        assert_eq!(told, format!("{count} /weft/d/{name}\n"));
    }

    // Links stay links, and hard links stay one file.
    let (new, local) = (at("new"), at("l"));
    for side in ["/weft/l", &local] {
        let run = |script: &str| cluster.run(["sh", "-c", script, "sh", side]);
        run(
            "mkdir $1 $1/sub; echo 1 > $1/sub/real; ln -s sub/real $1/link; ln -s later $1/loose; ln $1/sub/real $1/hard",
        );
        for name in ["link", "loose"] {
            let from = if side.starts_with("/weft") { new.as_str() } else { "/weft/file" };
            cluster.weft(["cp", from, &format!("{side}/{name}")]);
        }
        assert_eq!(run("cat $1/link $1/sub/real $1/hard $1/later"), "newnewnewnew");
        assert_eq!(run("readlink $1/link $1/loose; stat -c %h $1/hard"), "sub/real\nlater\n2\n");
        assert_eq!(run("ls -A $1; ls -A $1/sub"), "hard\nlater\nlink\nloose\nsub\nreal\n");
    }
    symlink("/weft/file", at("absolute")).expect("a link");
    // Targets that are no regular files are written to directly.
    assert_eq!(cluster.weft(["cp", "/weft/file", "/dev/stdout"]), "new");
    let script = "exec > $1/out; echo first; \"$2\" --cluster $3 cp /weft/file /dev/stdout; cat $1/out >&2";
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", script, "sh"]).arg(&dir).arg(common::WEFT).arg(cluster.file());
    succeeded(&mut shell);
    cluster.weft(["cp", "/weft/file", "/dev/null"]);
    assert!(!std::fs::metadata("/dev/null").expect("there").is_file());
    assert!(local_names(&dir).iter().all(|name| !name.starts_with(".weft-cp")));
}
