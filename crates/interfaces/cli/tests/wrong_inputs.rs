//! Wrong inputs of a new user, and what the command says about each.

mod common;

use common::Embedded;
use common::servers::Servers;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::Stdio;

#[test]
fn layouts_that_cannot_be_are_explained() {
    let cluster = Embedded::started();
    for size in ["3", "0", "1000", "5K"] {
        let said = cluster.fails(2, ["setstripe", "-S", size, "/weft/x"]);
        assert!(said.contains("multiples of 4 KiB") && said.contains("64 KiB or 1 MiB"), "{said}");
        let said = cluster.fails(2, ["migrate", "-S", size, "/weft/x"]);
        assert!(said.contains("multiples of 4 KiB"), "{said}");
    }
    let said = cluster.fails(2, ["setstripe", "-c", "two", "/weft/x"]);
    assert!(said.contains("'two'") && said.contains("a number of targets such as 4"), "{said}");
    // With a larger number than that of the targets, the command uses all and says so.
    let said = |arguments: &[&str]| {
        let output = cluster.command(arguments).output().expect("weft starts");
        assert!(output.status.success(), "{}", common::shown(&output));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let note = said(&["setstripe", "-c", "99", "/weft/wide"]);
    assert!(note.contains("-c 99: the cluster has 4 targets; files use all of them"), "{note}");
    assert!(cluster.weft(["getstripe", "/weft/wide"]).contains("stripe count: 4"));
    for fits in [&["setstripe", "-c", "4", "/weft/a"][..], &["setstripe", "-c", "-1", "/weft/b"]] {
        assert_eq!(said(fits), "", "{fits:?}");
    }
}

#[test]
fn paths_that_lead_nowhere_are_explained() {
    let cluster = Embedded::started();
    cluster.weft(["mkdir", "/weft/d"]);
    let said = cluster.fails(1, ["rm", "/weft/d/../.."]);
    assert!(said.contains("/weft/d/../..") && said.contains("above the root of Weft"), "{said}");
    assert!(!said.contains("symbolic link"), "{said}");
    let said = cluster.fails(1, ["mkdir", "/weft/a/b"]);
    assert!(said.contains("-p makes missing directories"), "{said}");
    let said = cluster.fails(1, ["mkdir", "/weft/d"]);
    assert!(said.contains("exists") && !said.contains("-p"), "{said}");
}

#[test]
fn cluster_files_are_checked() {
    let servers = Servers::started(2, "", "", "");
    let said = servers.weft(["config", "check"]);
    assert!(said.starts_with("OK: ") && said.contains("cluster test, 2 servers, 2 targets"), "{said}");
    let text = std::fs::read_to_string(servers.file()).expect("the cluster file");
    let check = |changed: String| {
        let file = servers.path("changed.toml");
        std::fs::write(&file, changed).expect("written");
        servers.fails(2, ["config", "check", &file.display().to_string()])
    };
    // A misspelled key is named, not the one that it misses.
    let said = check(text.replacen("address", "adress", 1));
    assert!(said.contains("does not know \"adress\"") && said.contains("did you mean address?"), "{said}");
    let said = check(text.lines().filter(|line| !line.starts_with("address")).collect::<Vec<_>>().join("\n"));
    assert!(said.contains("has no \"address\""), "{said}");
    let said = check(format!("{text}\n[layout]\nstripe_size = 1000\n"));
    assert!(said.contains("stripe_size") && said.contains("multiples of 4 KiB"), "{said}");
}

#[test]
fn a_wrong_key_is_no_reason_to_start_a_server() {
    let mut servers = Servers::started(1, "", "", "");
    // Keys matter on the network only.
    servers.stop(0);
    let port = TcpListener::bind("127.0.0.1:0").and_then(|port| port.local_addr()).expect("a port");
    let text = std::fs::read_to_string(servers.file()).expect("the cluster file");
    let unix = format!("unix:{}", servers.path("run0/socket").display());
    std::fs::write(servers.file(), text.replacen(&unix, &format!("tcp:{port}"), 1)).expect("written");
    servers.start(0);
    let other = servers.path("other.key");
    common::succeeded(common::undisturbed().args(["key", "make"]).arg(&other));
    let text = std::fs::read_to_string(servers.file()).expect("the cluster file");
    let right = format!("{}/key\"", servers.path("").display().to_string().trim_end_matches('/'));
    let wrong = servers.path("wrong.toml");
    std::fs::write(&wrong, text.replacen(&right, &format!("{}\"", other.display()), 1)).expect("written");
    for command in ["status", "df"] {
        let output = common::undisturbed().arg("--cluster").arg(&wrong).arg(command).output().expect("weft");
        let said = common::shown(&output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("compare the key files"), "{command}: {said}");
        assert!(!said.contains("weft serve") && !said.contains("DOWN"), "{command}: {said}");
    }
}

#[test]
fn a_server_says_where_its_log_is() {
    let mut servers = Servers::started(1, "", "", "");
    servers.stop(0);
    let mut server = servers.command(["serve", "s0"]).stderr(Stdio::piped()).spawn().expect("weft starts");
    let mut first = String::new();
    BufReader::new(server.stderr.take().expect("piped")).read_line(&mut first).expect("a line");
    // SAFETY: a child of this test that was not waited for.
    unsafe { libc::kill(server.id() as i32, libc::SIGTERM) };
    assert!(server.wait().expect("it ends").success());
    assert_eq!(first, format!("server s0 logs to {}\n", servers.path("log0").display()));
}

#[test]
fn a_server_that_requires_a_key_says_why_there_is_none() {
    let port = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("bound").port();
    let both = format!("address = [\"unix:AT/s0.sock\", \"tcp:127.0.0.1:{port}\"]");
    let dir = tempfile::tempdir().expect("a directory");
    let text = |at: &std::path::Path, key: &str| {
        let at = at.display().to_string();
        format!(
            "[cluster]\nname = \"one\"\nkey_file = \"{key}\"\n[[server]]\nname = \"s0\"\n{}\n\
             [server.metadata]\npath = \"{at}/metadata\"\n[[server.target]]\nid = 0\nclass = \"hdd\"\npath = \"{at}/target0\"\n",
            both.replace("AT", &at)
        )
    };
    let (server, client) = (dir.path().join("server.toml"), dir.path().join("client.toml"));
    let key = dir.path().join("key");
    std::fs::write(&server, text(dir.path(), &key.display().to_string())).expect("written");
    // On another host there are neither the socket nor the key.
    let elsewhere = dir.path().join("elsewhere");
    std::fs::write(&client, text(&elsewhere, &elsewhere.join("key").display().to_string())).expect("written");
    common::succeeded(common::undisturbed().args(["key", "make"]).arg(&key));
    let mut serve = common::undisturbed();
    let serve = serve.args(["--cluster", server.to_str().expect("text"), "serve", "--format", "--announce"]);
    let mut serve = serve.stdout(Stdio::piped()).spawn().expect("weft starts");
    let mut line = String::new();
    BufReader::new(serve.stdout.take().expect("a pipe")).read_line(&mut line).expect("it runs");
    let mut ls = common::undisturbed();
    let output = ls.args(["--cluster", client.to_str().expect("text"), "ls"]).output().expect("weft starts");
    serve.kill().expect("our own child");
    serve.wait().expect("our own child");
    let said = common::shown(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("requires a key, and this process has none") && said.contains("elsewhere/key"),
        "{said}"
    );
    assert!(said.contains("WEFT_KEY"), "{said}");
}

#[test]
fn paths_of_this_host_are_refused_by_commands_that_take_paths_on_weft() {
    let cluster = Embedded::started();
    cluster.weft(["touch", "/weft/f"]);
    for args in [
        &["ls", "/etc/passwd"][..],
        &["cat", "/etc/passwd"],
        &["stat", "/etc/passwd"],
        &["getstripe", "/etc"],
        &["setstripe", "-c", "1", "/etc/passwd"],
        &["mv", "/etc/passwd", "/weft/g"],
        &["mv", "/weft/f", "/etc/passwd"],
        &["rm", "-r", "/etc"],
        &["mkdir", "/etc"],
        &["touch", "/etc/passwd"],
        &["ln", "/etc/passwd", "/weft/g"],
        &["du", "/etc"],
        &["migrate", "-c", "1", "/etc"],
        &["quota", "/etc"],
        &["chmod", "600", "/etc/passwd"],
        &["chown", "0", "/etc/passwd"],
    ] {
        let said = cluster.fails(2, args);
        assert!(said.contains("a file of this host") && said.contains("/weft/etc"), "{args:?}: {said}");
    }
    // A name that exists on Weft alone needs no prefix.
    cluster.weft(["mkdir", "/only-on-weft"]);
    assert_eq!(cluster.weft(["ls", "/"]), "f\nonly-on-weft\n");
    cluster.weft(["ln", "-s", "/etc/passwd", "/weft/link"]);
}

#[test]
fn modes_and_owners_are_changed() {
    let cluster = Embedded::started();
    cluster.weft(["mkdir", "-p", "/weft/d/e"]);
    cluster.weft(["touch", "/weft/d/f"]);
    cluster.weft(["ln", "-s", "f", "/weft/d/l"]);
    let mode = |path: &str| {
        let line = cluster.weft(["ls", "-ld", path]);
        line.split_whitespace().next().expect("a mode").to_owned()
    };
    cluster.weft(["chmod", "-R", "u=rwX,go-rwx", "/weft/d"]);
    assert_eq!(
        [mode("/weft/d"), mode("/weft/d/e"), mode("/weft/d/f")],
        ["drwx------", "drwx------", "-rw-------"]
    );
    cluster.weft(["chmod", "4755", "d/l"]);
    assert_eq!(mode("/weft/d/f"), "-rwsr-xr-x", "a link leads to its target");
    let said = cluster.fails(2, ["chmod", "rwx", "/weft/d"]);
    assert!(said.contains("rwx: this is no mode") && said.contains("u+rwX"), "{said}");
    let said = cluster.fails(2, ["chown", ":", "/weft/d"]);
    assert!(said.contains("USER:GROUP"), "{said}");
    let said = cluster.fails(2, ["chown", "no-such-user", "/weft/d"]);
    assert!(said.contains("unknown on this host"), "{said}");
    let said = cluster.fails(1, ["chmod", "600", "/weft/missing", "/weft/d/f"]);
    assert!(said.contains("/weft/missing"), "{said}");
    assert_eq!(mode("/weft/d/f"), "-rw-------", "the others are changed");
    if !common::skip::unless_root("changing owners") {
        return;
    }
    let owner = |path: &str| {
        let line = cluster.weft(["ls", "-ld", path]);
        line.split_whitespace().skip(2).take(2).collect::<Vec<_>>().join(":")
    };
    cluster.weft(["chown", "-R", "4711:4712", "/weft/d"]);
    assert_eq!([owner("/weft/d"), owner("/weft/d/f"), owner("/weft/d/l")], ["4711:4712"; 3]);
    cluster.weft(["chown", "-h", ":0", "/weft/d/l"]);
    assert_eq!([owner("/weft/d/l"), owner("/weft/d/f")], ["4711:root", "4711:4712"]);
}
