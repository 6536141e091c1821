//! Error messages: each names its path or server and a remedy, and each exit code is the documented one.

mod common;

use common::servers::Servers;
use common::shared_cluster::SharedCluster;
use common::{Embedded, WEFT, shown, undisturbed};
use std::path::Path;
use std::process::Command;

/// Runs `weft ARGS` in `dir`, which must exit with `code` and print all of `parts` on standard error.
#[track_caller]
fn fails_with(command: &mut Command, dir: &Path, args: &str, code: i32, parts: &[&str]) {
    let output = command.args(args.split(' ')).current_dir(dir).output().expect("weft starts");
    assert_eq!(output.status.code(), Some(code), "{args}: {}", shown(&output));
    let message = String::from_utf8_lossy(&output.stderr);
    for part in parts {
        assert!(message.contains(part), "{args}: {part} is missing: {message}");
    }
    assert!(!message.contains("panicked"), "{args}: {message}");
}

/// Writes invalid traces and traces without selected records.
fn traces(dir: &Path) {
    std::fs::write(dir.join("empty"), "").expect("written");
    std::fs::write(dir.join("heading.csv"), "operation,file,offset,length\n").expect("written");
    std::fs::write(dir.join("text"), "hello world\n").expect("written");
    std::fs::write(dir.join("noise"), [0, 1, 2, 255].repeat(1000)).expect("written");
    std::fs::write(dir.join("a.csv"), "operation,file,offset,length\nwrite,/weft/a,0,65536\n")
        .expect("written");
    std::fs::create_dir(dir.join("folder")).expect("made");
}

#[test]
fn traces_that_cannot_be_read() {
    let dir = tempfile::tempdir().expect("a directory");
    traces(dir.path());
    for (file, why) in [
        ("missing", "No such file"),
        ("empty", "it is empty"),
        ("text", "CSV needs one, such as rank,host"),
        ("noise", "neither .wtrace, CSV nor a Darshan 3 log"),
        ("folder", "Is a directory"),
    ] {
        for verb in ["trace show", "trace plot -o x.svg", "trace export --csv -", "plan --output -"] {
            fails_with(&mut undisturbed(), dir.path(), &format!("{verb} {file}"), 1, &[file, why]);
        }
        fails_with(&mut undisturbed(), dir.path(), &format!("replay {file} folder"), 1, &[file, why]);
    }
    assert!(!dir.path().join("x.svg").exists(), "nothing is drawn");
    let cluster = succeeded_text(&["twin", "example"]);
    std::fs::write(dir.path().join("twin.toml"), cluster).expect("written");
    for verb in ["trace plot -o x.svg", "plan --cluster twin.toml --output -"] {
        fails_with(
            &mut undisturbed(),
            dir.path(),
            &format!("{verb} heading.csv"),
            1,
            &["heading.csv", "moves no bytes"],
        );
    }
}

#[test]
fn invalid_arguments() {
    let dir = tempfile::tempdir().expect("a directory");
    traces(dir.path());
    let cluster = succeeded_text(&["twin", "example"]);
    std::fs::write(dir.path().join("twin.toml"), cluster).expect("written");
    for (args, parts) in [
        ("plam a.csv", &["unrecognized subcommand 'plam'", "'plan'"][..]),
        ("plan a.csv --cluster missing.toml", &["missing.toml", "No such file", "--cluster"]),
        ("plan a.csv --cluster text", &["text", "TOML"]),
        ("plan a.csv --cluster twin.toml --capacity ssd=1GiB", &["no class \"ssd\"", "hdd"]),
        ("plan a.csv --cluster twin.toml --capacity hdd=lots", &["64 KiB"]),
        ("twin run iorr", &["iorr: no such kind of workload", "mpi-io-test, ior"]),
        ("twin run ior --set rank=4", &["unknown field `rank`", "`ranks`"]),
        ("twin run ior --cluster missing.toml", &["missing.toml", "weft twin example"]),
        ("twin search --seeds 0", &["--seeds"]),
        ("workload show iorr", &["iorr: no such kind of workload"]),
        ("workload show ior --set transfer=0", &["transfer", "at least 1"]),
        ("bench --path folder --workload iorr", &["iorr: no such kind of workload"]),
        ("lab run nothing", &["`nothing`", "weft lab list"]),
        ("apply a.csv", &["a.csv", "a plan is what `weft plan --output FILE` writes"]),
        ("apply a.csv --map /a", &["write OLD=NEW"]),
        ("apply a.csv --class ssd", &["write PLANNED=HERE"]),
        ("trace plot a.csv -o x.svg --view sideways", &["time, ranks, rank-time"]),
        ("trace export a.csv", &["--csv <FILE>", "--parquet <FILE>"]),
        ("--cluster missing.toml status", &["missing.toml", "weft config example"]),
    ] {
        fails_with(&mut undisturbed(), dir.path(), args, 2, parts);
    }
    fails_with(&mut undisturbed(), dir.path(), "apply missing.toml", 1, &["missing.toml: No such file"]);
    let output =
        common::undisturbed().args(["twin", "run", "ior", "--set", "rank=4"]).output().expect("weft starts");
    assert!(!shown(&output).contains("if it is a trace"), "a kind is no trace: {}", shown(&output));
}

fn succeeded_text(args: &[&str]) -> String {
    common::succeeded(common::undisturbed().args(args))
}

#[test]
fn options_that_the_cluster_cannot_satisfy() {
    let cluster = Embedded::started();
    traces(&cluster.local(""));
    let dir = cluster.local("");
    for (args, parts) in [
        ("plan a.csv --network pigeon", &["--network", "\"pigeon\"", "gbe"][..]),
        ("plan a.csv --profile hdd=floppy", &["--profile hdd=floppy", "hdd-7200"]),
        ("plan a.csv --profile tape=hdd-7200", &["--profile tape=hdd-7200", "no target has this class"]),
        ("migrate --class tape /weft/a", &["\"tape\"", "classes here: hdd, ssd"]),
        ("migrate --plan a.csv /weft/a", &["a.csv", "a plan is what"]),
        ("flush --target 9", &["target 9", "weft status"]),
    ] {
        fails_with(&mut cluster.command::<&str>([]), &dir, args, 2, parts);
    }
    for (args, parts) in [
        ("migrate --plan missing.toml /weft/a", &["missing.toml: No such file"][..]),
        ("migrate /weft/missing", &["/weft/missing: No such file"]),
        ("getstripe /weft/missing", &["/weft/missing: No such file"]),
    ] {
        fails_with(&mut cluster.command::<&str>([]), &dir, args, 1, parts);
    }
}

#[test]
fn a_server_that_is_down_is_named_once_with_what_to_do() {
    let mut servers = Servers::of_classes(&["hdd", "hdd", "ssd"], "sample = \"all\"", "", "", QUICK);
    let dir = servers.path("");
    traces(&dir);
    servers.weft(["setstripe", "-c", "3", "-S", "4K", "/weft/wide"]);
    let local = servers.path("noise").display().to_string();
    servers.weft(["cp", &local, "/weft/wide"]);
    servers.kill(2);
    for (args, code) in [
        ("df", 1),
        ("cat /weft/wide", 1),
        ("cp /weft/wide back", 1),
        ("getstripe -v /weft/wide", 1),
        ("migrate -c 1 /weft/wide", 1),
        ("profile --quick --time 1s", 1),
        ("flush", 1),
        ("fsck", 8),
        ("plan --watch /weft --once", 0),
    ] {
        let mut command = servers.command(args.split(' '));
        let output = command.current_dir(&dir).output().expect("weft starts");
        let text = shown(&output);
        assert_eq!(output.status.code(), Some(code), "{args}: {text}");
        let lines: Vec<_> = text.lines().filter(|line| line.contains("server s2")).collect();
        let [line] = lines[..] else { panic!("{args}: not one line about it: {text}") };
        assert_eq!(line.matches("server s2").count(), 1, "{args}: {line}");
        assert_eq!(line.matches("wide").count(), usize::from(args.contains("wide")), "{args}: {line}");
        assert!(line.contains("weft serve"), "{args}: {line}");
    }
    // Operations that need no bytes of the server continue.
    assert!(servers.weft(["ls", "/weft"]).contains("wide"));
    servers.weft(["rm", "/weft/wide"]);
}

/// Client settings with short retries.
const QUICK: &str = "[client]\nretry_for = \"200 ms\"";

/// A user who is neither root nor the owner of the files: forbidden operations fail with the file's name, allowed ones
/// succeed.
#[test]
fn files_of_other_users() {
    use std::os::unix::fs::PermissionsExt;
    const USER: [&str; 7] = ["setpriv", "--reuid", "4321", "--regid", "4321", "--clear-groups", "--"];
    let as_user = |program: &str| {
        let mut command = common::isolated(USER[0]);
        command.args(&USER[1..]).arg(program);
        command
    };
    if !as_user(WEFT).arg("--version").output().is_ok_and(|output| output.status.success()) {
        common::skip::skip(format_args!(
            "only root can act as another user, who must be able to start {WEFT}; run the tests as root in a tree that \
             others may read"
        ));
        return;
    }
    let servers = Servers::of_classes(&["hdd", "ssd"], "", "", "", "[layout]\nclass = \"hdd\"\n");
    let dir = servers.path("");
    std::fs::set_permissions(&dir, PermissionsExt::from_mode(0o755)).expect("ours");
    let [bytes, trace, plan] = ["bytes", "trace.csv", "plan.toml"].map(|name| servers.path(name));
    std::fs::write(&bytes, [7; 5000]).expect("written");
    std::fs::write(&trace, "operation,file,offset,length\nread,/weft/open/root's,0,5000\n").expect("written");
    let [bytes, trace, plan] = [&bytes, &trace, &plan].map(|path| path.to_str().expect("text"));
    servers.weft(["mkdir", "-m", "777", "/weft/open"]);
    servers.weft(["mkdir", "-m", "700", "/weft/open/closed"]);
    for file in ["/weft/open/root's", "/weft/open/closed/in"] {
        servers.weft(["cp", bytes, file]);
    }
    servers.weft(["plan", trace, "--planner", "psa", "--output", plan]);
    let user = |args: &[&str], code: i32| {
        let mut command = as_user(WEFT);
        command.env("WEFT_CLUSTER", servers.file()).env("HOME", &dir);
        let output = command.args(args).output().expect("weft starts");
        assert_eq!(output.status.code(), Some(code), "{args:?}: {}", shown(&output));
        shown(&output)
    };
    user(&["cp", bytes, "/weft/open/own"], 0);
    let message = user(&["migrate", "-r", "--class", "ssd", "/weft/open"], 1);
    assert!(message.contains("moved 1 file"), "{message}");
    assert!(message.contains("/weft/open/root's: only its owner or root may move a file"), "{message}");
    assert!(message.contains("/weft/open/closed: Permission denied"), "{message}");
    // The plan has a rule for the file that this user may not move.
    let message = user(&["migrate", "-r", "--plan", plan, "/weft/open"], 1);
    assert!(message.contains("root's: only its owner") && !message.contains("has no rule"), "{message}");
    let message = user(&["apply", plan], 1);
    assert!(message.contains("/weft/open: only the owner of a directory sets rules for it"), "{message}");
    // A plan of this user treats files that he may not read as files of others.
    let message = user(&["plan", trace], 0);
    assert!(message.contains("/weft/open/root's"), "{message}");
    let message = user(&["plan", "--watch", "/weft/open", "--once"], 1);
    assert!(message.contains("only administrators may do this"), "{message}");
}

#[test]
fn servers_of_another_user_are_not_stopped() {
    let Some(shared) = SharedCluster::new(&[&[""], &[""]]) else { return };
    let refused = shared.weft(1234, ["stop"]).output().expect("weft starts");
    assert_eq!(refused.status.code(), Some(1), "{}", shown(&refused));
    let said = shown(&refused);
    assert!(said.contains("belongs to user 0; no server was stopped") && said.contains("as root"), "{said}");
    assert!(!said.contains("stopped s"), "{said}");
    common::succeeded(&mut shared.weft(0, ["status"]));
}

#[test]
fn a_cluster_of_another_user_is_named() {
    let Some(shared) = SharedCluster::new(&[&[""]]) else { return };
    let state = shared.path("state");
    std::fs::create_dir(&state).expect("made");
    std::fs::set_permissions(&state, std::os::unix::fs::PermissionsExt::from_mode(0o700)).expect("mode");
    let mut command = shared.as_user(1234);
    let output = command.args([WEFT, "ls"]).env("WEFT_STATE", &state).output().expect("weft starts");
    assert_eq!(output.status.code(), Some(2), "{}", shown(&output));
    let said = shown(&output);
    assert!(said.contains("Permission denied") && said.contains("WEFT_STATE"), "{said}");
}
