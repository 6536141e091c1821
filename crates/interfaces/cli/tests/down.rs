//! One server of a cluster is down, killed or stopped: which operations continue, which fail, after how long, and with
//! which reason.

mod common;

use common::mounts::Mounted;
use common::servers::Servers;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// Limit for conditions that must hold soon; longer than any timeout of these clusters.
const SOON: Duration = Duration::from_secs(30);

/// Polls `is_so` until it returns a value.
#[track_caller]
fn until<T>(what: &str, is_so: impl FnMut() -> Option<T>) -> T {
    common::until(SOON, what, is_so)
}

/// Returns the targets of a file, as `weft getstripe` shows them.
#[track_caller]
fn targets(servers: &Servers, path: &str) -> Vec<u32> {
    let told = servers.weft(["getstripe", path]);
    let of_row = |line: &str| line.split_whitespace().next()?.parse().ok();
    let mut targets: Vec<u32> = told.lines().filter_map(of_row).collect();
    assert!(!targets.is_empty(), "{told}");
    targets.sort_unstable();
    targets
}

/// Stops a server process. Its connections stay open, and it answers nothing.
fn freeze(servers: &Servers, id: usize) {
    servers.send(id, libc::SIGSTOP);
}

fn thaw(servers: &Servers, id: usize) {
    servers.send(id, libc::SIGCONT);
}

#[test]
fn new_files_are_placed_on_servers_that_answer() {
    let mut servers = Servers::of_classes(&["hdd", "hdd", "ssd", "ssd"], "", "", "", "");
    let source = servers.path("source");
    std::fs::write(&source, vec![7u8; 5 << 20]).expect("written");
    let source = source.to_str().expect("text").to_owned();
    servers.weft(["cp", &source, "/weft/before"]);
    assert_eq!(targets(&servers, "/weft/before"), [0, 1, 2, 3]);
    // A server that has never answered may be starting, so the metadata server waits before it counts as down.
    until("the log reports that the server is down", || {
        if servers.is_running(2) {
            servers.kill(2);
        }
        servers
            .log(0)
            .contains("server s2 does not answer: new files are placed on other servers")
            .then_some(())
    });
    servers.weft(["cp", &source, "/weft/after"]);
    assert_eq!(targets(&servers, "/weft/after"), [0, 1, 3]);
    let back = servers.path("back");
    servers.weft(["cp", "/weft/after", back.to_str().expect("text")]);
    assert_eq!(std::fs::read(&back).expect("read"), vec![7u8; 5 << 20]);
    // A frozen server counts as down after two timeouts.
    freeze(&servers, 3);
    until("a new file avoids the frozen server", || {
        servers.weft(["rm", "-f", "/weft/two"]);
        servers.weft(["touch", "/weft/two"]);
        (targets(&servers, "/weft/two") == [0, 1]).then_some(())
    });
    let refused = servers.fails(1, ["setstripe", "--class", "ssd", "/weft/none"]);
    for part in
        ["/weft/none", "of class ssd", "server s2 does not answer", "server s3 does not answer", "weft serve"]
    {
        assert!(refused.contains(part), "{refused}");
    }
    thaw(&servers, 3);
    servers.start(2);
    until("both get files again", || {
        servers.weft(["rm", "-f", "/weft/all"]);
        servers.weft(["touch", "/weft/all"]);
        (targets(&servers, "/weft/all") == [0, 1, 2, 3]).then_some(())
    });
    assert!(servers.log(0).contains("server s2 answers again: it gets new files"), "{}", servers.log(0));
}

/// Counts the files below a target directory of a server.
fn datafiles(servers: &Servers, target: &str) -> usize {
    let dirs = std::fs::read_dir(servers.path(target).join("objects")).expect("a target");
    dirs.flatten().map(|dir| std::fs::read_dir(dir.path()).map_or(0, |files| files.flatten().count())).sum()
}

/// Runs `weft ARGS`, which must fail with `code`. Returns standard output and standard error.
#[track_caller]
fn partly(servers: &Servers, code: i32, args: &[&str]) -> (String, String) {
    let output = servers.command(args).output().expect("weft starts");
    assert_eq!(output.status.code(), Some(code), "{}", common::shown(&output));
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

#[test]
fn names_and_attributes_work_while_a_server_is_down() {
    if !common::mounts::possible() {
        return;
    }
    let client = "[client]\nretry_for = \"300 ms\"\nrequest_timeout = \"2 s\"";
    let mut servers = Servers::started(4, "", "", client);
    let dir = servers.path("mount");
    std::fs::create_dir(&dir).expect("made");
    let state = servers.path("state");
    common::succeeded(
        servers
            .command(["mount", dir.to_str().expect("text")])
            .env("XDG_STATE_HOME", state)
            .env_remove("WEFT_STATE"),
    );
    let mount = Mounted(dir);
    // Open for writing, so that only the data servers know the sizes.
    let len = (5 << 20) + 777u64;
    let names = ["a", "b", "c", "d", "e", "f", "g"];
    let open: Vec<_> = names
        .iter()
        .map(|name| {
            let file = std::fs::File::create(mount.at(name)).expect("made");
            file.write_all_at(&vec![3; len as usize], 0).expect("written");
            file
        })
        .collect();
    std::fs::write(mount.at("settled"), b"bytes").expect("written");
    for name in names {
        assert_eq!(std::fs::metadata(mount.at(name)).expect("there").len(), len);
    }
    let before = datafiles(&servers, "target2");
    servers.kill(2);

    // On the mount.
    for name in names {
        assert_eq!(std::fs::metadata(mount.at(name)).expect("there").len(), len, "the last known size");
    }
    let listed = common::succeeded(std::process::Command::new("ls").arg("-l").arg(&mount.0));
    assert!(
        names.iter().all(|name| listed.contains(&format!(" {name}\n"))) && listed.contains("settled"),
        "{listed}"
    );
    assert_eq!(listed.matches(&len.to_string()).count(), names.len(), "{listed}");
    std::fs::rename(mount.at("a"), mount.at("A")).expect("renamed");
    std::fs::rename(mount.at("settled"), mount.at("b")).expect("renamed over it");
    std::fs::remove_file(mount.at("c")).expect("removed");
    let eio = |result: std::io::Result<std::fs::File>| {
        result.expect_err("refused").raw_os_error() == Some(libc::EIO)
    };
    assert!(eio(std::fs::File::open(mount.at("d"))), "its size is unknown");
    assert!(eio(std::fs::File::create(mount.at("d"))), "it cannot be truncated");

    // The kernel gets an error number. The mount's log and `weft status` show path, server and remedy, once and not for
    // each request.
    let log =
        std::fs::read_to_string(servers.path("state/weft/mounts").join(format!(
            "{}.log",
            mount.0.to_str().expect("text").trim_start_matches('/').replace('/', "-")
        )))
        .expect("the mount's log");
    let told: Vec<_> = log.lines().filter(|line| line.contains("EIO: d: server s2 at ")).collect();
    assert!(told.len() == 1 && told[0].contains("weft serve"), "{log}");
    let (status, _) = partly(&servers, 1, &["status"]);
    let head = format!("errors (EIO) of the mount {}:\n  ", mount.0.display());
    let (_, errors) = status.split_once(&head).unwrap_or_else(|| panic!("{status}"));
    assert!(
        errors.contains(" requests, the last ") && errors.contains(" ago on d: server s2 at "),
        "{status}"
    );
    let output = servers.command(["status", "--json"]).output().expect("weft starts");
    let status: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let error = &status["mounts"][0]["errors"][0];
    assert!(error["count"].as_u64() >= Some(2) && error["path"] == "d", "{status}");

    // Under `weft run`: at least the bytes on the other servers.
    let run = |args: &[&str]| servers.weft(["run", "--"].iter().chain(args));
    let listed = run(&["ls", "-l", "/weft"]);
    assert!(
        ["A", "b", "d", "e", "f", "g"].iter().all(|name| listed.contains(&format!(" {name}\n"))),
        "{listed}"
    );
    assert!(run(&["find", "/weft", "-type", "f", "-size", "+3M"]).lines().count() == 5);
    run(&["stat", "/weft/d"]);
    run(&["du", "-a", "/weft"]);
    run(&["mv", "/weft/e", "/weft/E"]);
    run(&["rm", "/weft/f"]);

    // Weft's own commands continue, and list at the end what they could not find out.
    let (listed, told) = partly(&servers, 1, &["ls", "-l"]);
    assert_eq!(listed.lines().count(), 5, "{listed}");
    assert!(told.contains("the size shown (and of 3 more) is the last known one: server s2 at "), "{told}");
    assert!(told.contains("weft serve") && told.lines().count() == 1, "{told}");
    let (listed, told) = partly(&servers, 1, &["stat", "/weft/d", "/weft/b"]);
    assert!(listed.contains("File: /weft/d\n") && listed.contains("File: /weft/b\n"), "{listed}");
    assert!(told.contains("weft: /weft/d: the size shown is the last known one: server s2 at "), "{told}");
    let (listed, _) = partly(&servers, 1, &["du"]);
    assert!(listed.trim_end().ends_with("/weft"), "{listed}");
    servers.weft(["mv", "/weft/E", "/weft/e"]);
    servers.weft(["rm", "/weft/g"]);
    assert_eq!(servers.weft(["ls"]), "A\nb\nd\ne\n");
    assert_eq!(datafiles(&servers, "target2"), before, "datafiles there cannot be removed yet");

    let kept = |name: &&str| ["a", "d", "e"].contains(name);
    let open: Vec<_> = open.into_iter().zip(names).filter(|(_, name)| kept(name)).collect();

    // The space of removed files is freed when the server is back, without another request.
    servers.start(2);
    until("the datafiles of removed files are gone", || {
        (datafiles(&servers, "target2") < before - 2).then_some(())
    });
    drop(open);
    until("all sizes are known", || {
        let all = ["A", "d", "e"].map(|name| std::fs::metadata(mount.at(name)).expect("there").len());
        (all == [len; 3] && std::fs::File::open(mount.at("d")).is_ok()).then_some(())
    });
    servers.weft(["ls", "-l"]);
}

/// Runs an operation, which must end within the timeout of [`TIMED`] plus a margin for a busy machine.
#[track_caller]
fn timed<T>(what: &str, operation: impl FnOnce() -> T) -> T {
    let began = Instant::now();
    let result = operation();
    let took = began.elapsed();
    println!("{what}: {took:?}");
    assert!(took < Duration::from_secs(25), "{what} took {took:?}, and request_timeout is 5 s");
    result
}

/// Client settings with a timeout of which two in a row would take 10 s.
const TIMED: &str = "[client]\nrequest_timeout = \"5 s\"";

#[test]
fn operations_end_within_the_time_out_while_servers_are_frozen() {
    if !common::mounts::possible() {
        return;
    }
    let servers = Servers::started(4, "", "", TIMED);
    let dir = servers.path("mount");
    std::fs::create_dir(&dir).expect("made");
    servers.weft(["mount", dir.to_str().expect("text")]);
    let mount = Mounted(dir);
    let bytes = vec![5; 4 << 20];
    let options = std::fs::OpenOptions::new().read(true).write(true).create(true).truncate(false).clone();
    let file = options.open(mount.at("open")).expect("made");
    file.write_all_at(&bytes, 0).expect("written");
    std::fs::write(mount.at("closed"), &bytes).expect("written");
    for id in [2, 3] {
        freeze(&servers, id);
    }
    let mut buf = vec![0; bytes.len()];
    // Descriptors stay valid until their lease ends.
    let failed = until("reads fail", || timed("read", || file.read_exact_at(&mut buf, 0)).err());
    assert_eq!(failed.raw_os_error(), Some(libc::EIO));
    let eio = |what: &str, result: std::io::Result<()>| {
        assert_eq!(result.map_err(|error| error.raw_os_error()), Err(Some(libc::EIO)), "{what}");
    };
    eio("write", timed("write", || file.write_all_at(&bytes, 0)));
    eio("fsync", timed("fsync", || file.sync_all()));
    eio("ftruncate", timed("ftruncate", || file.set_len(5)));
    let at_least = timed("stat", || std::fs::metadata(mount.at("open"))).expect("there").len();
    assert_eq!(at_least, bytes.len() as u64);
    timed("close", || drop(file));
    eio("open and cut", timed("open and cut", || std::fs::File::create(mount.at("closed")).map(drop)));
    timed("df", || common::succeeded(std::process::Command::new("df").arg(&mount.0)));
    // Each of these commands opens new connections. Two servers accept the connection and send nothing.
    timed("weft cat", || servers.fails(1, ["cat", "/weft/closed"]));
    timed("weft stat", || partly(&servers, 1, &["stat", "/weft/closed"]));
    timed("weft ls", || partly(&servers, 1, &["ls", "-l", "/weft"]));
    let told = timed("weft df", || servers.fails(1, ["df"]));
    assert!(told.contains("server s2 is down") && told.contains("server s3 is down"), "{told}");
    timed("weft status", || partly(&servers, 1, &["status"]));
    timed("weft run", || servers.fails(1, ["run", "--", "cat", "/weft/closed"]));
    timed("rename", || std::fs::rename(mount.at("closed"), mount.at("renamed"))).expect("renamed");
    timed("unlink", || std::fs::remove_file(mount.at("renamed"))).expect("removed");
    for id in [2, 3] {
        thaw(&servers, id);
    }
    let file = options.open(mount.at("open")).expect("there");
    until("the servers answer again", || file.write_all_at(&bytes, 0).ok());
    file.read_exact_at(&mut buf, 0).expect("read");
    assert!(buf == bytes);
    file.sync_all().expect("synced");
}
