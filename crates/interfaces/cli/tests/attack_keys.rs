//! Attacks with keys on real servers over TCP, and the allowed uses of the same keys.

mod common;

use common::mounts::{self, Mounted};
use common::{WEFT, shown, succeeded};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Write as _;
use std::io::Read;
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use weft_core::{AttachToken, ClusterId, FileId, Nanos, ObjectId, ServerId, TargetId, TargetUuid};
use weft_env::real::{RealEnv, block_on};
use weft_env::{Address, Env};
use weft_wire::cluster::ServerChange;
use weft_wire::data::{DataReply, DataRequest, DatafileId};
use weft_wire::greeting::{Caller, GreetingError, greet};
use weft_wire::hello::{Identity, Names, Opening, Role, Security, SessionId};
use weft_wire::keys::{Holder, KeyClaims, KeyId, Revoked};
use weft_wire::meta::{InodePath, MetaCall, MetaReply, MetaRequest, ROOT, TargetChange, TargetClaim};
use weft_wire::status::{StatusReply, StatusRequest};
use weft_wire::{Errno, Family, Kind, Link};

/// A cluster of two servers on ports of the loopback device. Every client needs a key.
struct Cluster {
    dir: tempfile::TempDir,
    running: Vec<Option<Child>>,
}

impl Cluster {
    /// Starts the cluster. Prints the reason and returns `None` if this user cannot act for others.
    fn started() -> Option<Self> {
        if !common::skip::unless_root("acting for several users") {
            return None;
        }
        let dir = tempfile::Builder::new().prefix("weft-keys-").tempdir().expect("a directory");
        chmod(dir.path(), 0o755);
        let at = dir.path().display().to_string();
        let mut text = format!("[cluster]\nname = \"keys\"\nkey_file = \"{at}/cluster.key\"\n");
        // Both ports stay bound while they are chosen.
        let ports: Vec<_> = (0..2).map(|_| TcpListener::bind("127.0.0.1:0").expect("a port")).collect();
        for (id, port) in ports.iter().enumerate() {
            let address = port.local_addr().expect("an address");
            let _ = write!(
                text,
                "[[server]]\nname = \"s{id}\"\naddress = \"tcp:{address}\"\nlog = \"{at}/log{id}\"\n\
                 audit = \"{at}/audit.log\"\n"
            );
            if id == 0 {
                let _ = write!(text, "[server.metadata]\npath = \"{at}/metadata\"\n");
            }
            let _ =
                write!(text, "[[server.target]]\nid = {id}\nclass = \"hdd\"\npath = \"{at}/target{id}\"\n");
        }
        drop(ports);
        std::fs::write(dir.path().join("cluster.toml"), text).expect("written");
        let mut cluster = Self { dir, running: vec![None, None] };
        cluster.weft(&["key", "make", &cluster.text("cluster.key")]);
        cluster.serve(0, &["--format"]);
        cluster.serve(1, &["--format"]);
        cluster.weft(&["mkdir", "-m", "1777", "/weft/tmp"]);
        Some(cluster)
    }

    fn serve(&mut self, id: usize, args: &[&str]) {
        let mut command = self.command(None, &["serve", &format!("s{id}"), "--announce"]);
        let mut child =
            command.args(args).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("weft starts");
        let mut ready = [0; 5];
        child.stdout.take().expect("piped").read_exact(&mut ready).expect("the server is ready");
        self.running[id] = Some(child);
    }

    fn kill(&mut self, id: usize) {
        let mut child = self.running[id].take().expect("it runs");
        child.kill().expect("killed");
        child.wait().expect("waited for");
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().expect("text").to_owned()
    }

    /// Builds `weft ARGS` with this key, or with the cluster key.
    fn command(&self, key: Option<&Path>, args: &[&str]) -> Command {
        let mut command = common::undisturbed();
        command.arg("--cluster").arg(self.path("cluster.toml")).args(args);
        if let Some(key) = key {
            command.env("WEFT_KEY", key);
        }
        command
    }

    #[track_caller]
    fn weft(&self, args: &[&str]) -> String {
        succeeded(&mut self.command(None, args))
    }

    #[track_caller]
    fn with(&self, key: &Path, args: &[&str]) -> String {
        succeeded(&mut self.command(Some(key), args))
    }

    #[track_caller]
    fn refused(&self, key: &Path, args: &[&str], words: &str) {
        refused(self.command(Some(key), args).output().expect("weft starts"), words);
    }

    /// Runs `weft ARGS` as a user with a copy of this key.
    fn as_user(&self, uid: u32, key: &Path, args: &[&str]) -> Output {
        let own = self.path(&format!("key-of-{uid}"));
        std::fs::copy(key, &own).expect("copied");
        chmod(&own, 0o600);
        std::os::unix::fs::chown(&own, Some(uid), Some(uid)).expect("given away");
        let mut command = common::isolated("setpriv");
        let id = uid.to_string();
        command.args(["--reuid", &id, "--regid", &id, "--clear-groups", WEFT, "--cluster"]);
        command.arg(self.path("cluster.toml")).args(args).env("WEFT_KEY", &own).stdin(Stdio::null());
        command.output().expect("setpriv starts")
    }

    /// Makes a key and returns its file.
    fn key(&self, name: &str, args: &[&str]) -> PathBuf {
        let file = self.path(name);
        self.weft(&[&["key"], args, &["-o", file.to_str().expect("text")]].concat());
        file
    }

    fn host_key(&self, name: &str) -> PathBuf {
        self.key(name, &["host", "node1", "--uids", "1000-60000"])
    }

    fn user_key(&self, name: &str) -> PathBuf {
        self.key(name, &["user", "4242", "--groups", "4242"])
    }

    /// Returns the lines of the audit log, none before the server has made it. Each line must be JSON.
    fn audit(&self) -> Vec<serde_json::Value> {
        let text = match std::fs::read_to_string(self.path("audit.log")) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Vec::new(),
            Err(error) => panic!("audit.log: {error}"),
        };
        assert!(text.is_empty() || text.ends_with('\n'), "no half of a line");
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}")))
            .collect()
    }

    /// Waits for a line of the audit log.
    fn audited(&self, what: &str, is_it: impl Fn(&serde_json::Value) -> bool) -> serde_json::Value {
        within(what, || self.audit().into_iter().find(|line| is_it(line)))
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for child in self.running.iter_mut().flatten() {
            let _ = child.kill();
            let _ = child.wait();
        }
        if std::thread::panicking() {
            for name in ["log0", "log1", "audit.log"] {
                let text = std::fs::read_to_string(self.path(name)).unwrap_or_default();
                let lines: Vec<_> = text.lines().collect();
                eprintln!("--- {name}\n{}", lines[lines.len().saturating_sub(15)..].join("\n"));
            }
        }
    }
}

fn chmod(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("chmod");
}

#[track_caller]
fn refused(output: Output, words: &str) {
    let text = shown(&output);
    assert!(!output.status.success(), "{text}");
    assert!(text.contains(words), "no {words:?} in {text}");
}

/// Polls `ask` until it returns a value.
#[track_caller]
fn within<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = ask() {
            return found;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{what}: not within 60 s");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Returns the id in a key file.
fn id_of(key: &Path) -> String {
    let text = std::fs::read_to_string(key).expect("a key");
    let line = text.lines().find_map(|line| line.strip_prefix("id ")).expect("an id");
    line.to_owned()
}

#[test]
fn each_key_allows_exactly_its_own_requests() {
    let Some(cluster) = Cluster::started() else { return };
    let admin = cluster.key("admin.key", &["admin", "--expires", "30d"]);
    let (user, host) = (cluster.user_key("user.key"), cluster.host_key("host.key"));
    let root = cluster.key("root.key", &["user", "0", "--groups", "0"]);
    let trusted = cluster.key("trusted.key", &["host", "node2", "--uids", "1000-60000", "--no-squash-root"]);

    // Only the administrator key may administrate; the key of a user who is root may not.
    cluster.with(&admin, &["fsck"]);
    cluster.with(&admin, &["target", "drain", "1"]);
    cluster.with(&admin, &["target", "activate", "1"]);
    for key in [&user, &host, &root, &trusted] {
        for args in [
            &["target", "drain", "1"][..],
            &["fsck", "--repair"],
            &["meta", "dump", "/dev/null"],
            &["key", "revoke", "0000000000000001"],
            &["stop"],
        ] {
            cluster.refused(key, args, "administrator");
        }
    }
    // Only the cluster key can serve and make keys.
    for key in [&admin, &user, &host] {
        let copy = cluster.path("other.toml");
        let text = std::fs::read_to_string(cluster.path("cluster.toml")).expect("read");
        std::fs::write(
            &copy,
            text.replace("cluster.key", key.file_name().and_then(|n| n.to_str()).expect("text")),
        )
        .expect("written");
        let mut serve = common::undisturbed();
        serve.arg("--cluster").arg(&copy).args(["serve", "s1"]);
        refused(serve.output().expect("starts"), "servers need the cluster key");
        let mut make = common::undisturbed();
        make.args(["key", "admin", "-o", &cluster.text("more.key"), "--key"]).arg(key);
        refused(make.output().expect("starts"), "issue keys with the cluster key");
    }

    // A user key acts for its user. A host key acts for each of its users, and its root is squashed.
    cluster.weft(&["mkdir", "-m", "700", "/weft/private"]);
    cluster.with(&user, &["touch", "/weft/tmp/of-user"]);
    cluster.refused(&user, &["ls", "/weft/private"], "Permission denied");
    cluster.with(&host, &["touch", "/weft/tmp/of-root"]);
    cluster.refused(&host, &["ls", "/weft/private"], "Permission denied");
    cluster.refused(&host, &["touch", "/weft/at-the-top"], "Permission denied");
    let output = cluster.as_user(4242, &host, &["touch", "/weft/tmp/of-host"]);
    assert!(output.status.success(), "{}", shown(&output));
    for uid in [999, 60_001, 33] {
        refused(cluster.as_user(uid, &host, &["ls", "/weft/tmp"]), "acts for users 1000 to 60000");
    }
    for (name, uid) in [("of-user", 4242), ("of-root", 65_534), ("of-host", 4242)] {
        let stat = cluster.weft(&["stat", &format!("/weft/tmp/{name}")]);
        assert!(stat.contains(&format!("Uid: ({uid}/")), "{stat}");
    }
    // A host key without squashing can read everything, but cannot administrate.
    cluster.with(&trusted, &["ls", "/weft/private"]);
    cluster.with(&root, &["ls", "/weft/private"]);
}

#[test]
fn altered_claims_need_another_secret() {
    let Some(cluster) = Cluster::started() else { return };
    let host = cluster.key("host.key", &["host", "node1", "--uids", "1000-60000", "--expires", "1h"]);
    let user = cluster.user_key("user.key");
    let forged = |key: &Path, from: &str, to: &str| {
        let text = std::fs::read_to_string(key).expect("a key");
        assert!(text.contains(from), "{text}");
        let file = cluster.path("forged.key");
        std::fs::write(&file, text.replacen(from, to, 1)).expect("written");
        chmod(&file, 0o600);
        file
    };
    let text = std::fs::read_to_string(&host).expect("a key");
    let expires = text.lines().find(|line| line.starts_with("expires ")).expect("an end");
    for (key, from, to) in [
        (&host, "1000-60000", "1-60000"),
        (&host, "1000-60000", "1000-4294967295"),
        (&host, "1000-60000 squash", "0-60000 no-squash"),
        (&host, expires, "expires never"),
        (&host, expires, "expires 4000000000"),
        (&host, "host node1 1000-60000 squash", "administrator"),
        (&host, "id ", "id f"),
        (&user, "user 4242", "user 0"),
        (&user, "user 4242 4242 -", "user 4242 4242 0"),
        (&user, "user 4242 4242 -", "administrator"),
    ] {
        let (from, to) = match from {
            // One digit more at the front, one less at the end.
            "id " => {
                let id = id_of(key);
                let other = if id.starts_with('f') { '0' } else { 'f' };
                (format!("id {id}"), format!("id {other}{}", &id[1..]))
            }
            _ => (from.to_owned(), to.to_owned()),
        };
        let forged = forged(key, &from, &to);
        refused(cluster.command(Some(&forged), &["ls", "/weft/tmp"]).output().expect("starts"), "");
    }
    assert_eq!(cluster.with(&host, &["ls", "/weft/tmp"]), "");
    assert_eq!(cluster.with(&user, &["ls", "/weft/tmp"]), "");
}

#[test]
fn an_expired_key_opens_nothing_and_its_connections_end() {
    let Some(cluster) = Cluster::started() else { return };
    let lasting = cluster.user_key("user.key");
    let short = cluster.key("short.key", &["user", "4242", "--groups", "4242", "--expires", "15s"]);
    let mut program = writer(&cluster, &short, "short");
    wait_for(&cluster, "short");
    let status = within("the end of the program", || program.try_wait().expect("waited for"));
    assert!(!status.success(), "its key has expired");
    cluster.refused(&short, &["ls", "/weft/tmp"], "expired");
    cluster.with(&lasting, &["ls", "/weft/tmp"]);
    let list = cluster.weft(&["key", "list"]);
    let line = |key: &Path| list.lines().find(|line| line.contains(&id_of(key))).expect("listed").to_owned();
    assert!(line(&short).contains("expired") && line(&lasting).contains("valid"), "{list}");
}

#[test]
fn a_program_uses_the_key_that_replaces_an_expired_one() {
    let Some(cluster) = Cluster::started() else { return };
    let key = cluster.key("own.key", &["user", "4242", "--groups", "4242", "--expires", "10s"]);
    let other = cluster.key("other.key", &["user", "4243", "--groups", "4243", "--expires", "1h"]);
    let renewed = cluster.user_key("renewed.key");
    // A program that meets errors after the end of the key, and goes on.
    let program = "i=0
                   while [ ! -e stop-own ]; do
                       i=$((i + 1))
                       if echo $i > /weft/tmp/own 2> /dev/null; then : > running-own; else : > refused-own; sleep 0.2; fi
                   done
                   echo $i > /weft/tmp/own";
    let run = |name: &str| {
        let _ = std::fs::remove_file(cluster.path(name));
        within(name, || cluster.path(name).exists().then_some(()));
    };
    let mut user = shell(&cluster, &key, program);
    run("running-own");
    run("refused-own");
    // The key of another user is not taken.
    std::fs::copy(&other, &key).expect("copied");
    run("refused-own");
    std::fs::copy(&renewed, &key).expect("copied");
    run("running-own");
    std::fs::write(cluster.path("stop-own"), "").expect("written");
    let status = within("the end of the program", || user.try_wait().expect("waited for"));
    assert!(status.success(), "{status}");
    let stat = cluster.weft(&["stat", "/weft/tmp/own"]);
    assert!(stat.contains("Uid: (4242/"), "{stat}");
}

/// Starts a program that appends to a file through one open descriptor until that fails or a file `stop` exists.
fn writer(cluster: &Cluster, key: &Path, name: &str) -> Child {
    let program = format!(
        "exec 3>> /weft/tmp/{name} || exit 3
         while [ ! -e stop-{name} ]; do echo line >&3 || exit 7; : > running-{name}; done; exec 3>&-"
    );
    shell(cluster, key, &program)
}

/// Starts a program that creates one file after the other in `/weft/tmp/made`.
fn creator(cluster: &Cluster, key: &Path) -> Child {
    let program = "mkdir /weft/tmp/made; i=0
                   while : > /weft/tmp/made/$i; do i=$((i + 1)); : > running-creator; done; exit 7";
    shell(cluster, key, program)
}

fn shell(cluster: &Cluster, key: &Path, program: &str) -> Child {
    common::built();
    let mut command = cluster.command(Some(key), &["run", "--", "sh", "-c", program]);
    command.current_dir(cluster.dir.path()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().expect("weft starts")
}

/// Waits until the program of that name has written again.
fn wait_for(cluster: &Cluster, name: &str) {
    let mark = cluster.path(&format!("running-{name}"));
    let _ = std::fs::remove_file(&mark); // it may not have begun
    within("the program to write", || mark.exists().then_some(()));
}

fn end(cluster: &Cluster, name: &str, mut program: Child) {
    wait_for(cluster, name);
    std::fs::write(cluster.path(&format!("stop-{name}")), "").expect("written");
    let status = within("the end of the program", || program.try_wait().expect("waited for"));
    assert!(status.success(), "{name}: {status}");
}

#[test]
fn a_revoked_key_ends_at_once_on_all_servers_and_permanently() {
    let Some(mut cluster) = Cluster::started() else { return };
    let (stolen, other) = (cluster.user_key("stolen.key"), cluster.user_key("other.key"));
    let late = cluster.host_key("late.key");
    let mut thief = writer(&cluster, &stolen, "thief");
    let honest = writer(&cluster, &other, "honest");
    let mut made = creator(&cluster, &stolen);
    wait_for(&cluster, "thief");
    wait_for(&cluster, "creator");
    wait_for(&cluster, "honest");
    let said = cluster.weft(&["key", "revoke", &id_of(&stolen)]);
    assert!(said.contains(&id_of(&stolen)), "{said}");
    let names = cluster.weft(&["ls", "/weft/tmp/made"]);
    within("the end of the creator", || made.try_wait().expect("waited for"));
    let status = within("the end of the thief", || thief.try_wait().expect("waited for"));
    assert!(!status.success(), "its key is revoked");
    assert_eq!(cluster.weft(&["ls", "/weft/tmp/made"]), names, "created after the command had returned");
    cluster.refused(&stolen, &["ls", "/weft/tmp"], "revoked");
    end(&cluster, "honest", honest);

    // A server that was down learns of the revocation when it starts.
    cluster.kill(1);
    let output = cluster.command(None, &["key", "revoke", &id_of(&late)]).output().expect("starts");
    refused(output, "server s1 has not confirmed it");
    cluster.serve(1, &[]);
    let revoked = |cluster: &Cluster, id: usize| {
        let output = cluster.command(None, &["status", "--json"]).output().expect("starts");
        let status: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        status["servers"][id]["status"]["keys"]["revoked"].as_u64().unwrap_or(0)
    };
    assert_eq!((revoked(&cluster, 0), revoked(&cluster, 1)), (2, 2));
    // The metadata server keeps the revocation across a crash.
    cluster.kill(0);
    cluster.serve(0, &[]);
    assert_eq!(revoked(&cluster, 0), 2);
    for key in [&stolen, &late] {
        cluster.refused(key, &["ls", "/weft/tmp"], "revoked");
    }
    cluster.with(&other, &["ls", "/weft/tmp"]);
    let list: serde_json::Value =
        serde_json::from_str(&cluster.weft(&["key", "list", "--json"])).expect("JSON");
    let state = |key: &Path| {
        let keys = list["keys"].as_array().expect("a list");
        keys.iter().find(|found| found["id"] == id_of(key)).expect("listed")["state"].clone()
    };
    assert_eq!(
        (state(&stolen), state(&late), state(&other)),
        ("revoked".into(), "revoked".into(), "valid".into())
    );
    // The key of the servers cannot be revoked.
    let output = cluster.command(None, &["key", "revoke", "0000000000000000"]).output().expect("starts");
    refused(output, "weft key rotate");
}

#[test]
fn the_secret_is_rotated_while_programs_write() {
    let Some(cluster) = Cluster::started() else { return };
    let old = cluster.user_key("old.key");
    let before = writer(&cluster, &old, "before");
    wait_for(&cluster, "before");
    let output = cluster.command(None, &["key", "rotate", "--use"]).output().expect("starts");
    refused(output, "no rotation is in progress");
    cluster.weft(&["key", "rotate"]);
    refused(cluster.command(None, &["key", "rotate"]).output().expect("starts"), "--use");
    // Servers load the next secret by themselves; the next step waits for all of them.
    within("all servers to accept the next secret", || {
        let output = cluster.command(None, &["key", "rotate", "--use"]).output().expect("starts");
        if !output.status.success() {
            assert!(shown(&output).contains("does not accept generation 1 yet"), "{}", shown(&output));
        }
        output.status.success().then_some(())
    });
    wait_for(&cluster, "before");
    cluster.audited("the use of the next secret", |line| {
        line["action"] == "key.taken_up"
            && line["detail"].as_str().is_some_and(|it| it.contains("generation 1 "))
    });
    let new = cluster.user_key("new.key");
    assert!(cluster.weft(&["key", "show", new.to_str().expect("text")]).contains("generation 1"));
    let across = writer(&cluster, &new, "across");
    wait_for(&cluster, "across");
    cluster.with(&old, &["ls", "/weft/tmp"]);
    end(&cluster, "before", before);

    let output = cluster.command(None, &["key", "rotate", "--finish"]).output().expect("starts");
    refused(output, "capabilities of the former one for an hour");
    cluster.weft(&["key", "rotate", "--finish", "--force"]);
    within("the end of the former secret", || {
        let output = cluster.command(Some(&old), &["ls", "/weft/tmp"]).output().expect("starts");
        (!output.status.success()).then(|| refused(output, "generation 0"))
    });
    end(&cluster, "across", across);
    cluster.with(&new, &["ls", "/weft/tmp"]);
    for name in ["before", "across"] {
        let text = cluster.weft(&["cat", &format!("/weft/tmp/{name}")]);
        assert!(!text.is_empty() && text.lines().all(|line| line == "line"), "{name}");
    }
    assert!(cluster.weft(&["fsck"]).contains(" 0 problems"));
}

#[test]
fn the_audit_log_names_users_and_requests() {
    let Some(mut cluster) = Cluster::started() else { return };
    let (user, admin) = (cluster.user_key("user.key"), cluster.key("admin.key", &["admin"]));
    cluster.with(&admin, &["target", "drain", "1"]);
    cluster.refused(&user, &["target", "activate", "1"], "administrator");
    cluster.with(&user, &["mkdir", "/weft/tmp/d"]);
    cluster.with(&user, &["setstripe", "-c", "1", "/weft/tmp/d"]);
    let wrong = cluster.path("wrong.key");
    common::succeeded(common::undisturbed().args(["key", "make"]).arg(&wrong));
    refused(cluster.command(Some(&wrong), &["ls", "/weft"]).output().expect("starts"), "");
    cluster.weft(&["key", "revoke", &id_of(&user)]);
    refused(cluster.command(Some(&user), &["ls", "/weft"]).output().expect("starts"), "revoked");

    let drain = cluster.audited("a drain", |line| line["action"] == "target.drain");
    assert_eq!((&drain["event"], &drain["outcome"]), (&"action".into(), &"done".into()), "{drain}");
    assert_eq!((drain["key"].as_str(), drain["uid"].as_u64()), (Some(id_of(&admin).as_str()), Some(0)));
    assert!(drain["peer"].as_str().is_some_and(|peer| peer.contains("127.0.0.1:")), "{drain}");
    let activate = cluster.audited("a refused action", |line| line["action"] == "target.activate");
    assert_eq!(
        (&activate["outcome"], activate["uid"].as_u64()),
        (&"refused".into(), Some(4242)),
        "{activate}"
    );
    assert!(activate["reason"].as_str().is_some_and(|why| why.contains("administrator")));
    for action in ["key.user", "key.admin", "key.revoke"] {
        let line = cluster.audited(action, |line| line["action"] == action);
        assert_eq!((&line["event"], &line["outcome"]), (&"key".into(), &"done".into()), "{line}");
    }
    cluster.audited("a layout", |line| line["action"] == "layout.set" && line["uid"] == 4242);
    cluster.audited("a greeting", |line| line["event"] == "greeting" && line["key"] == id_of(&user));
    cluster.audited("a refusal", |line| {
        line["event"] == "refusal"
            && line["key"] == id_of(&user)
            && line["reason"].as_str().is_some_and(|why| why.contains("revoked"))
    });
    let mode = std::fs::metadata(cluster.path("audit.log")).expect("there").mode() & 0o7777;
    assert_eq!(mode & !0o640, 0, "{mode:o}");

    // Logging continues under the configured name after the file was renamed.
    std::fs::rename(cluster.path("audit.log"), cluster.path("audit.1")).expect("renamed");
    cluster.with(&admin, &["target", "activate", "1"]);
    cluster.audited("a line in the new file", |line| line["action"] == "target.activate");

    // If the log cannot be written, service continues and the status reports it.
    std::fs::remove_file(cluster.path("audit.log")).expect("removed");
    std::fs::create_dir(cluster.path("audit.log")).expect("made");
    cluster.with(&admin, &["ls", "/weft/tmp"]);
    let output = within("a status that reports it", || {
        let output = cluster.command(None, &["status"]).output().expect("starts");
        (output.status.code() == Some(1)).then_some(output)
    });
    assert!(shown(&output).contains("audit.log of server s0 cannot be written"), "{}", shown(&output));
    std::fs::remove_dir(cluster.path("audit.log")).expect("removed");
    cluster.with(&admin, &["ls", "/weft/tmp"]);
    cluster.audited("a line after all", |line| line["event"] == "greeting");
    cluster.kill(1);
}

#[test]
fn a_mount_with_a_host_key_serves_its_users_and_squashes_root() {
    let Some(cluster) = Cluster::started() else { return };
    if !mounts::possible() {
        return;
    }
    let host = cluster.host_key("host.key");
    cluster.weft(&["mkdir", "-m", "700", "/weft/private"]);
    let dir = cluster.path("mount");
    std::fs::create_dir(&dir).expect("made");
    let at = dir.to_str().expect("text");
    cluster.with(&host, &["mount", "--allow-other", at]);
    let mounted = Mounted(dir.clone());
    let shell = |uid: u32, script: &str| {
        let id = uid.to_string();
        let mut command = common::isolated("setpriv");
        command
            .args(["--reuid", &id, "--regid", &id, "--clear-groups", "sh", "-c", script])
            .current_dir(&dir);
        command.stdin(Stdio::null()).output().expect("setpriv starts")
    };
    let done = |output: Output| assert!(output.status.success(), "{}", shown(&output));
    // Two users, each with own files.
    done(shell(4242, "umask 077; echo secret > tmp/a && cat tmp/a"));
    done(shell(4243, "umask 022; echo open > tmp/b && cat tmp/b"));
    refused(shell(4243, "cat tmp/a"), "Permission denied");
    refused(shell(4243, "rm -f tmp/a"), "not permitted");
    done(shell(4242, "grep -q open tmp/b"));
    for (name, uid) in [("a", 4242), ("b", 4243)] {
        assert_eq!(std::fs::metadata(mounted.at(&format!("tmp/{name}"))).expect("there").uid(), uid);
    }
    // Root of the host is squashed.
    assert!(std::fs::read(mounted.at("tmp/a")).is_err(), "a file of mode 600");
    assert!(std::fs::read_dir(mounted.at("private")).is_err(), "a directory of root's");
    assert!(std::fs::write(mounted.at("top"), "x").is_err(), "the root directory is root's");
    assert!(std::os::unix::fs::chown(mounted.at("tmp/b"), Some(0), Some(0)).is_err());
    assert!(std::fs::set_permissions(mounted.at("tmp/b"), std::fs::Permissions::from_mode(0o666)).is_err());
    assert!(std::fs::remove_file(mounted.at("tmp/a")).is_err());
    std::fs::write(mounted.at("tmp/of-root"), "x").expect("nobody may write there");
    assert_eq!(std::fs::metadata(mounted.at("tmp/of-root")).expect("there").uid(), 65_534);
    // Users outside the range are denied.
    refused(shell(33, "ls tmp"), "denied");
    // Revocation of the key ends the connections of the mount.
    cluster.weft(&["key", "revoke", &id_of(&host)]);
    within("the end of the mount's connections", || {
        std::fs::metadata(mounted.at("tmp/b")).is_err().then_some(())
    });
    // It asks again ever more rarely: after 1 s, 2 s, 4 s and so on, whatever programs do.
    let refusals = || {
        let log = std::fs::read_to_string(cluster.path("log0")).expect("the server's log");
        let of_key = |line: &&str| line.contains("refused a connection") && line.contains("revoked");
        log.lines().filter(of_key).map(str::to_owned).collect::<Vec<_>>()
    };
    within("the first refusal", || (!refusals().is_empty()).then_some(()));
    let first = Instant::now();
    while first.elapsed() < Duration::from_millis(3500) {
        assert!(std::fs::metadata(mounted.at("tmp/b")).is_err());
    }
    // The log counts the others in one line, at the latest when the server ends.
    assert_eq!(refusals().len(), 1, "{:?}", refusals());
    cluster.weft(&["stop"]);
    let lines = within("the line about the others", || Some(refusals()).filter(|lines| lines.len() > 1));
    let of_2 = "(repeated 2 times since the last line about it)";
    assert!(lines.len() == 2 && lines[1].ends_with(of_2), "{lines:?}");
    let line = cluster.audited("the number of the others", |line| line["repeated"] == 2);
    assert_eq!((&line["event"], &line["key"]), (&"refusal".into(), &id_of(&host).into()));
    mounted.end();
}

/// A hand-written client that sends arbitrary requests.
struct Raw {
    link: Link<<RealEnv as Env>::Conn>,
    requests: u64,
}

impl Raw {
    /// Greets a server in this role with these claims and this secret. Returns the reason if the server refuses.
    fn greet(
        cluster: &Cluster,
        id: usize,
        role: Role,
        (claims, secret): (KeyClaims, [u8; 32]),
    ) -> Result<Self, String> {
        let loaded = weft_config::Cluster::load(&cluster.path("cluster.toml")).expect("a cluster file");
        let map = loaded.map();
        let entry = map.server(ServerId(id as u32));
        block_on(async {
            let env = RealEnv::new();
            let conn = env.connect(&entry.addresses[0], Nanos::from_s(20)).await.expect("it listens");
            let mut link = Link::new(conn);
            let caller = Caller {
                names: Names {
                    levels: weft_wire::Levels::KNOWN,
                    cluster: "keys".into(),
                    cluster_id: ClusterId::NONE,
                    server: entry.name.clone(),
                    role,
                    key: Some(claims),
                },
                opening: Opening {
                    session: SessionId(
                        u128::from(std::process::id()) << 64 | NEXT.fetch_add(1, Ordering::SeqCst) as u128,
                    ),
                    slot: 0,
                    checksums: false,
                    security: Security::Mac,
                    job: None,
                    process: weft_wire::hello::Process::default(),
                },
                key: Some(secret),
                random: [9; 32],
                lengths_only: false,
            };
            match greet(&mut link, caller, |_| Ok(())).await {
                Ok(_) => Ok(Self { link, requests: 10 }),
                Err(GreetingError::Refused(error)) => Err(error.detail),
                Err(other) => Err(format!("{other:?}")),
            }
        })
    }

    fn ask<M: Serialize, R: DeserializeOwned>(&mut self, family: Family, message: &M) -> R {
        self.requests += 1;
        block_on(async {
            self.link.send(Kind::Request, family, self.requests, message, &[]).await.expect("sent");
            let incoming = self.link.recv().await.expect("received").expect("an answer");
            self.link.decode(&incoming).expect("decodes")
        })
    }

    /// Sends a request to the metadata service on behalf of a user.
    fn meta(&mut self, on_behalf: Option<Identity>, request: MetaRequest) -> Result<MetaReply, Errno> {
        match self.ask(Family::Meta, &MetaCall { seq: 0, on_behalf, request }) {
            MetaReply::Failed(error) => Err(error.errno),
            reply => Ok(reply),
        }
    }

    fn data(&mut self, request: &DataRequest) -> Result<DataReply, Errno> {
        match self.ask(Family::Data, request) {
            DataReply::Failed(error) => Err(error.errno),
            reply => Ok(reply),
        }
    }

    fn status(&mut self, request: &StatusRequest) -> Result<StatusReply, Errno> {
        match self.ask(Family::Status, request) {
            StatusReply::Failed(error) => Err(error.errno),
            reply => Ok(reply),
        }
    }
}

static NEXT: AtomicU64 = AtomicU64::new(1);

fn who(uid: u32) -> Identity {
    Identity { uid, gid: uid, groups: vec![] }
}

fn mkdir(path: &str) -> MetaRequest {
    MetaRequest::Mkdir {
        at: InodePath { base: ROOT, path: path.into(), follow: true, proof: None },
        mode: 0o755,
    }
}

fn parts(key: &Path) -> (KeyClaims, [u8; 32]) {
    match weft_config::read_key(key).expect("a key") {
        weft_config::Key::Issued(key) => (key.claims, key.secret),
        weft_config::Key::Cluster(_) => panic!("an issued key"),
    }
}

/// Sends requests that only administrators and servers may make, and returns their results.
fn administrate(meta: &mut Raw, data: &mut Raw) -> Vec<(&'static str, Result<(), Errno>)> {
    let target = TargetId(1);
    let part = DatafileId { target, file: FileId(99), object: ObjectId { component: 0, column: 0 } };
    vec![
        ("check", meta.meta(None, MetaRequest::CheckNamespace { repair: false }).map(drop)),
        ("scan", meta.meta(None, MetaRequest::ScanInodes { after: FileId(0), limit: 1 }).map(drop)),
        ("dump", meta.meta(None, MetaRequest::DumpBegin).map(drop)),
        ("lineage", meta.meta(None, MetaRequest::Lineage { files: vec![FileId(9)] }).map(drop)),
        (
            "change",
            meta.meta(None, MetaRequest::ChangeTarget { target, change: TargetChange::Activate }).map(drop),
        ),
        (
            "server",
            meta.meta(None, MetaRequest::ChangeServer { name: "s1".into(), change: ServerChange::Remove })
                .map(drop),
        ),
        ("revoked", meta.meta(None, MetaRequest::RevokedKeys).map(drop)),
        ("revoke", meta.meta(None, MetaRequest::RevokeKeys { keys: vec![KeyId(77)] }).map(drop)),
        ("list", data.data(&DataRequest::ListDatafiles { target, after: None, limit: 1 }).map(drop)),
        ("remove", data.data(&DataRequest::Remove { datafiles: vec![part] }).map(drop)),
        ("leases", data.data(&DataRequest::RevokeLeases { target }).map(drop)),
        ("samples", data.data(&DataRequest::Samples { run: 0, from: 0, limit: 1 }).map(drop)),
        ("flush", data.data(&DataRequest::Flush { target, from: None }).map(drop)),
        ("scrub", data.data(&DataRequest::Scrub { target, from: None, len: 1 }).map(drop)),
    ]
}

/// Sends requests that only servers may make, and returns their results.
fn be_a_server(meta: &mut Raw, data: &mut Raw) -> Vec<(&'static str, Result<(), Errno>)> {
    let target = TargetId(1);
    let to = AttachToken { counter: 1 << 40, nonce: 1 };
    let attach = MetaRequest::AttachTarget { target, uuid: TargetUuid(1), from: None, to, place: None };
    let register = MetaRequest::RegisterServer {
        name: "s1".into(),
        addresses: vec![Address::Tcp("127.0.0.1".into(), 9)],
        targets: vec![target],
        format: true,
        levels: weft_wire::Levels::KNOWN,
    };
    let judge = MetaRequest::JudgeTarget { target, claim: TargetClaim::Blank, format: true };
    vec![
        ("attach", meta.meta(None, attach).map(drop)),
        ("register", meta.meta(None, register).map(drop)),
        ("judge", meta.meta(None, judge).map(drop)),
        ("averages", meta.meta(None, MetaRequest::Averages { reports: vec![] }).map(drop)),
        ("tell", data.status(&StatusRequest::Revoke(Revoked { keys: vec![KeyId(78)] })).map(drop)),
    ]
}

#[test]
fn a_hand_written_client_gains_nothing_from_its_key() {
    let Some(cluster) = Cluster::started() else { return };
    let (user, host) = (cluster.user_key("user.key"), cluster.host_key("host.key"));
    let admin = cluster.key("admin.key", &["admin"]);
    let root = cluster.key("root.key", &["user", "0", "--groups", "0"]);
    let greet = |id, role: &Role, key: (KeyClaims, [u8; 32])| Raw::greet(&cluster, id, role.clone(), key);

    // A host key acts for its users only, which each request states.
    let as_root = Role::Client(who(0));
    let mut meta = greet(0, &as_root, parts(&host)).expect("a host");
    let mut data = greet(1, &as_root, parts(&host)).expect("a host");
    for on_behalf in [None, Some(who(0)), Some(Identity { groups: vec![0], ..who(0) })] {
        assert_eq!(meta.meta(on_behalf.clone(), mkdir("top")), Err(Errno::EACCES), "{on_behalf:?}");
    }
    for uid in [1, 999, 60_001, 65_534, u32::MAX] {
        assert_eq!(meta.meta(Some(who(uid)), mkdir("tmp/out")), Err(Errno::EACCES), "{uid}");
    }
    assert!(meta.meta(Some(who(4242)), mkdir("tmp/in")).is_ok());
    let in_group_0 = Identity { uid: 4242, gid: 0, groups: vec![0] };
    assert!(meta.meta(Some(in_group_0), mkdir("tmp/group")).is_ok());
    let stat = cluster.weft(&["stat", "/weft/tmp/group"]);
    assert!(stat.contains("Uid: (4242/") && stat.contains("Gid: (65534/"), "{stat}");
    for (what, result) in
        administrate(&mut meta, &mut data).into_iter().chain(be_a_server(&mut meta, &mut data))
    {
        assert_eq!(result, Err(Errno::EPERM), "a host: {what}");
    }
    assert_eq!(data.status(&StatusRequest::Shutdown), Err(Errno::EPERM));

    // A user key acts for its user, whichever user a request names, even if the user is root.
    let mut meta = greet(0, &Role::Client(who(4242)), parts(&user)).expect("a user");
    let mut data = greet(1, &Role::Client(who(4242)), parts(&user)).expect("a user");
    assert_eq!(meta.meta(Some(who(0)), mkdir("top")), Err(Errno::EACCES));
    assert!(meta.meta(Some(who(0)), mkdir("tmp/user")).is_ok());
    let stat = cluster.weft(&["stat", "/weft/tmp/user"]);
    assert!(stat.contains("Uid: (4242/"), "{stat}");
    for (what, result) in
        administrate(&mut meta, &mut data).into_iter().chain(be_a_server(&mut meta, &mut data))
    {
        assert_eq!(result, Err(Errno::EPERM), "a user: {what}");
    }
    let mut meta = greet(0, &as_root, parts(&root)).expect("root");
    let mut data = greet(1, &as_root, parts(&root)).expect("root");
    for (what, result) in
        administrate(&mut meta, &mut data).into_iter().chain(be_a_server(&mut meta, &mut data))
    {
        assert_eq!(result, Err(Errno::EPERM), "a user who is root: {what}");
    }

    // An administrator may administrate, but is no server.
    let mut meta = greet(0, &as_root, parts(&admin)).expect("an administrator");
    let mut data = greet(1, &as_root, parts(&admin)).expect("an administrator");
    for (what, result) in be_a_server(&mut meta, &mut data) {
        assert_eq!(result, Err(Errno::EPERM), "an administrator: {what}");
    }
    for (what, result) in administrate(&mut meta, &mut data) {
        assert_ne!(result, Err(Errno::EPERM), "an administrator: {what}");
    }
    assert!(meta.meta(Some(who(5)), mkdir("tmp/five")).is_ok(), "for any user");

    // No key can play the role of another, whichever claims are sent with its secret.
    let as_server = Role::Server(ServerId(0));
    for key in [&user, &host, &admin, &root] {
        let (claims, secret) = parts(key);
        let refusal = greet(1, &as_server, (claims.clone(), secret)).err().expect("refused");
        assert!(refusal.contains("not for servers"), "{refusal}");
        for holder in [Holder::Server, Holder::Administrator] {
            for id in [claims.id, KeyId::ROOT] {
                let posed = KeyClaims { id, holder: holder.clone(), ..claims.clone() };
                if posed == claims {
                    continue;
                }
                let role = if holder == Holder::Server { &as_server } else { &as_root };
                assert!(greet(1, role, (posed, secret)).is_err(), "{claims:?} as {holder:?}");
            }
        }
        let prolonged = KeyClaims { expires_s: claims.expires_s ^ 4_000_000_000, ..claims.clone() };
        let role = match &claims.holder {
            Holder::User(own) => Role::Client(own.clone()),
            _ => as_root.clone(),
        };
        assert!(greet(1, &role, (prolonged, secret)).is_err());
        assert!(greet(1, &role, (claims.clone(), [1; 32])).is_err(), "without the secret");
        assert!(greet(1, &role, (KeyClaims { root: 1, ..claims.clone() }, secret)).is_err());
        assert!(greet(1, &role, (claims, secret)).is_ok(), "the true claims are accepted");
    }
    let (claims, secret) = parts(&host);
    assert!(greet(1, &Role::Client(who(5)), (claims, secret)).is_err(), "a user out of the range");
    let (claims, secret) = parts(&user);
    assert!(greet(1, &as_root, (claims, secret)).is_err(), "another user");
}
