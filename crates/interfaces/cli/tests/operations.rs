//! A year of administration on hosts that are network namespaces, under the jobs of one user and the mount of another: no
//! error, and every byte right.
//!
//! `WEFT_TEST_OUTAGE_S` is the length of the metadata server's outage, 15 by default.

mod common;

use common::hosts::{Hosts, Server, stop};
use common::{WEFT, mounts, needs, shown, succeeded};
use std::cell::Cell;
use std::fmt::Write as _;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Limit for each step.
const SOON: Duration = Duration::from_secs(120);
/// Lifetime of the first keys. They are replaced before.
const KEY_LIFE: Duration = Duration::from_secs(60);
const ADA: u32 = 4242;
const BOB: u32 = 4243;
/// The host of the users.
const USERS: usize = 4;

/// Creates, renames, compares, appends, locks and removes, until there is a file `stop`. The working directory has the same
/// files.
const LOAD: &str = r#"
    i=0
    exec 3>> "$1/log" || exit 2
    while [ ! -e stop ]; do
        i=$((i + 1)); n=$((i % 7)); m=$((i * 3 % 5)); len=$((i * 7919 % 700000 + 1))
        head -c $len source > "$1/new$n" || exit 3
        mv "$1/new$n" "$1/file$n" || exit 4
        head -c $len source > file$n
        cmp "$1/file$n" file$n || exit 5
        echo "round $i" >&3 || exit 6
        [ ! -e file$m ] || cmp "$1/file$m" file$m || exit 7
        mkdir "$1/d$n" && touch "$1/d$n/x" && rm "$1/d$n/x" && rmdir "$1/d$n" || exit 8
        flock "$1/lock" true || exit 9
        echo $i > rounds
    done
    exec 3>&-
    [ "$(wc -l < "$1/log")" = $i ] || exit 10
"#;

/// A cluster file of these servers: each with two targets, of which the last one of host 3 is for the archive.
fn cluster_toml(dir: &Path, hosts: &[usize]) -> String {
    let dir = dir.display();
    let mut text = format!("[cluster]\nname = \"hosts\"\nkey_file = \"{dir}/cluster.key\"\n");
    for &host in hosts {
        let address = format!("tcp:10.77.0.{}:7411", host + 1);
        let log = format!("{dir}/node{host}.log");
        let _ =
            write!(text, "\n[[server]]\nname = \"node{host}\"\naddress = \"{address}\"\nlog = \"{log}\"\n");
        if host == 0 {
            let _ = write!(text, "[server.metadata]\npath = \"{dir}/metadata\"\n");
        }
        for id in [host * 2, host * 2 + 1] {
            let class = if id == 7 { "archive" } else { "hdd" };
            let path = format!("{dir}/target{id}");
            let _ = write!(text, "[[server.target]]\nid = {id}\nclass = \"{class}\"\npath = \"{path}\"\n");
        }
    }
    text
}

/// A user's load, and the directory that it works in.
struct Load {
    child: Child,
    dir: PathBuf,
}

impl Load {
    fn start(mut command: Command, dir: PathBuf) -> Self {
        let errors = std::fs::File::create(dir.join("errors")).expect("made");
        let child =
            command.current_dir(&dir).stdout(errors.try_clone().expect("a descriptor")).stderr(errors);
        Self { child: child.spawn().expect("starts"), dir }
    }

    fn told(&self) -> String {
        std::fs::read_to_string(self.dir.join("errors")).unwrap_or_default()
    }

    /// Waits until it has ended two more rounds.
    #[track_caller]
    fn goes_on(&mut self, after: &str) {
        for _ in 0..2 {
            let rounds = self.dir.join("rounds");
            let _ = std::fs::remove_file(&rounds);
            common::until(SOON, &format!("{} goes on after {after}", self.dir.display()), || {
                if let Some(status) = self.child.try_wait().expect("waited for") {
                    panic!("{} after {after}: {status}: {}", self.dir.display(), self.told());
                }
                rounds.exists().then_some(())
            });
        }
    }

    #[track_caller]
    fn end(&mut self) {
        std::fs::write(self.dir.join("stop"), "").expect("written");
        let status = common::until(SOON, "a load ends", || self.child.try_wait().expect("waited for"));
        assert!(status.success(), "{}: {status}: {}", self.dir.display(), self.told());
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn outage() -> Duration {
    let text = std::env::var("WEFT_TEST_OUTAGE_S").ok();
    Duration::from_secs(text.map_or(15, |text| text.parse().expect("a number of seconds")))
}

#[test]
fn users_notice_nothing_of_a_year_of_administration() {
    let Some(hosts) = Hosts::new(5) else { return };
    if !mounts::possible() {
        return;
    }
    for program in ["nsenter", "setpriv", "flock", "cmp"] {
        needs(program);
    }
    common::built();
    let temporary = tempfile::Builder::new().prefix("weft-operations-").tempdir().expect("a directory");
    let dir = temporary.path();
    std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o755)).expect("mode");
    let file = |host: usize| dir.join(format!("cluster{host}.toml"));
    for (host, named) in [(0, &[0][..]), (1, &[0, 1]), (2, &[0, 2]), (3, &[0, 3])] {
        std::fs::write(file(host), cluster_toml(dir, named)).expect("written");
    }
    let way_in = file(0);
    succeeded(common::undisturbed().args(["key", "make"]).arg(dir.join("cluster.key")));
    let weft = |args: &[&str]| succeeded(&mut hosts.command(0, &way_in, args));
    // All begin with the version before this one: with the feature level that it knows.
    let is_upgraded = Cell::new(false);
    let serve = |host: usize, args: &[&str]| {
        let name = format!("node{host}");
        let mut command = hosts.command(host, &file(host), &[&["serve", &name, "--announce"], args].concat());
        if !is_upgraded.get() {
            command.env("WEFT_TEST_LEVEL", "1");
        }
        command
    };
    let start = |host: usize, args: &[&str]| Server::start(serve(host, args));
    let make_targets = |host: usize| {
        for id in [host * 2, host * 2 + 1] {
            std::fs::create_dir_all(dir.join(format!("target{id}"))).expect("a mount point");
        }
    };
    let mut first = start(0, &["--format"]);
    let leaving = start(1, &["--format"]);

    // Two users, each with a directory, and keys for the one's jobs and the other's mount.
    let own = |name: &str, uid: u32| {
        let at = dir.join(name);
        std::fs::create_dir(&at).expect("made");
        let bytes: Vec<u8> = (0..200_000u32).flat_map(|word| (word ^ uid << 20).to_le_bytes()).collect();
        std::fs::write(at.join("source"), bytes).expect("written");
        for path in [at.clone(), at.join("source")] {
            chown(path, Some(uid), Some(uid)).expect("given away");
        }
        let path = format!("/weft/{name}");
        weft(&["mkdir", &path]);
        weft(&["chown", &format!("{uid}:{uid}"), &path]);
        weft(&["setstripe", "--class", "hdd", "-S", "64K", &path]);
        at
    };
    let (ada, bob) = (own("ada", ADA), own("bob", BOB));
    let key = |name: &str, holder: &[&str], life: &str, owner: u32| {
        let place = dir.join(name);
        let draft = dir.join(format!("{name}.draft"));
        let _ = std::fs::remove_file(&draft);
        weft(&[&["key"], holder, &["--expires", life, "-o", draft.to_str().expect("text")]].concat());
        chown(&draft, Some(owner), Some(owner)).expect("given away");
        std::fs::rename(&draft, &place).expect("renamed");
        place
    };
    let life = format!("{}s", KEY_LIFE.as_secs());
    let (of_ada, of_host) = (["user", "4242", "--groups", "4242"], ["host", "users", "--uids", "1000-60000"]);
    let keys_made = Instant::now();
    let ada_key = key("ada.key", &of_ada, &life, ADA);
    let host_key = key("host.key", &of_host, &life, 0);

    let mount_point = dir.join("mount");
    std::fs::create_dir(&mount_point).expect("made");
    let log = dir.join("mount.log");
    let at = mount_point.to_str().expect("text");
    let args = ["mount", "-f", "--announce", "--allow-other", "--log", log.to_str().expect("text"), at];
    let mut mount = hosts.command(USERS, &way_in, &args);
    mount.env("WEFT_KEY", &host_key).env("WEFT_TEST_LEVEL", "1").env_remove("WEFT_RETRY_FOR");
    let mut mount = Server::start(mount);
    let as_user = |command: &mut Command, uid: u32| {
        let id = uid.to_string();
        command.args(["setpriv", "--reuid", &id, "--regid", &id, "--clear-groups"]);
    };
    let mut job = hosts.on(USERS);
    as_user(&mut job, ADA);
    job.arg(WEFT).arg("--cluster").arg(&way_in).args(["run", "--", "sh", "-c", LOAD, "load", "/weft/ada"]);
    job.env("WEFT_KEY", &ada_key).env("WEFT_TEST_LEVEL", "1").env_remove("WEFT_RETRY_FOR");
    let mut job = Load::start(job, ada.clone());
    let mut user = common::isolated("nsenter");
    user.args(["--target", &mount.0.id().to_string(), "--mount", "--net"]).stdin(Stdio::null());
    user.arg(format!("--wd={}", bob.display()));
    as_user(&mut user, BOB);
    user.args(["sh", "-c", LOAD, "load", &format!("{at}/bob")]);
    let mut user = Load::start(user, bob.clone());
    let mut both = |after: &str| {
        job.goes_on(after);
        user.goes_on(after);
    };
    both("the start");

    // The cluster's secret changes. Users get new keys before the old ones expire.
    weft(&["key", "rotate"]);
    common::until(SOON, "all servers accept the next secret", || {
        let output = hosts.command(0, &way_in, &["key", "rotate", "--use"]).output().expect("starts");
        output.status.success().then_some(())
    });
    key("ada.key", &of_ada, "30d", ADA);
    key("host.key", &of_host, "30d", 0);
    assert!(
        keys_made.elapsed() < KEY_LIFE,
        "the keys have expired before they were replaced: {:?}",
        keys_made.elapsed()
    );
    both("new keys");

    // Growth by two servers.
    let mut joined = Vec::new();
    for host in [2, 3] {
        make_targets(host);
        weft(&["server", "add", &format!("node{host}")]);
        joined.push(start(host, &[]));
        weft(&["rebalance", "-q"]);
        both("growth");
    }
    let status = weft(&["status"]);
    assert!(status.contains("node2") && status.contains("node3"), "{status}");

    // The archive, whose disk will be lost.
    weft(&["setstripe", "--class", "archive", "/weft/archived"]);
    let source = ada.join("source");
    weft(&["cp", source.to_str().expect("text"), "/weft/archived"]);
    assert!(weft(&["getstripe", "/weft/archived"]).contains('7'));

    // The second server leaves.
    weft(&["target", "drain", "-q", "2", "3"]);
    both("a drain");
    weft(&["server", "remove", "node1"]);
    stop(&hosts, 1, &file(1), leaving);
    both("a removal");

    // The metadata server is killed, with its targets, and comes back later.
    first.0.kill().expect("killed");
    first.0.wait().expect("waited for");
    let began = Instant::now();
    let waits = |text: &str| text.contains("server node0 at ") && text.contains("requests wait for it");
    common::until(SOON, "both loads wait", || {
        let of_mount = std::fs::read_to_string(&log).unwrap_or_default();
        let of_job = std::fs::read_to_string(ada.join("errors")).unwrap_or_default();
        (waits(&of_job) && waits(&of_mount) && began.elapsed() >= outage()).then_some(())
    });
    let first = start(0, &[]);
    both("the outage of the metadata server");

    // An upgrade, one server after the other. The job and the mount keep the earlier version.
    let (mut of_two, mut of_three) = (joined.remove(0), joined.remove(0));
    let upgrade = |host: usize, running: Server, is_new: bool| {
        stop(&hosts, host, &file(host), running);
        is_upgraded.set(is_new);
        start(host, &[])
    };
    of_two = upgrade(2, of_two, true);
    both("the upgrade of one server");
    assert!(weft(&["upgrade"]).contains("has level 1, the latest that all servers know"));
    let first = upgrade(0, first, true);
    both("the upgrade of the metadata server");
    let fails = |args: &[&str]| {
        let output = hosts.command(0, &way_in, args).output().expect("starts");
        assert!(!output.status.success(), "{}", shown(&output));
        shown(&output)
    };
    let text = fails(&["upgrade", "--to", "2"]);
    assert!(text.contains("servers that do not know level 2: node3 (level 1)"), "{text}");
    let text = fails(&["server", "set", "node3", "--rack", "r2"]);
    assert!(text.contains("failure domains need level 2") && text.contains("weft upgrade"), "{text}");
    of_two = upgrade(2, of_two, false);
    both("a return to the earlier version");
    of_two = upgrade(2, of_two, true);
    of_three = upgrade(3, of_three, true);
    let text = weft(&["upgrade", "--check"]);
    assert!(text.contains("all servers know level 2: `weft upgrade` raises it"), "{text}");
    both("the upgrade of all servers");
    assert!(weft(&["upgrade"]).contains("has level 2 now, before level 1"));
    both("the new level");
    let text = weft(&["server", "set", "node3", "--rack", "r2"]);
    assert!(text.contains("server node3 is on host 10.77.0.4 in rack r2"), "{text}");
    both("a failure domain");
    stop(&hosts, 2, &file(2), of_two);
    is_upgraded.set(false);
    let output = serve(2, &[]).output().expect("starts");
    assert!(!output.status.success(), "{}", shown(&output));
    assert!(
        shown(&output).contains("node2 knows level 1, and the cluster has level 2"),
        "{}",
        shown(&output)
    );
    is_upgraded.set(true);
    of_two = start(2, &[]);
    both("a refused server");

    // The metadata server moves to another host with its disks. Programs ask the other servers where it is. So do commands,
    // whose cluster file has its former address and that of another server.
    let former = dir.join("former.toml");
    std::fs::copy(&way_in, &former).expect("copied");
    std::fs::write(dir.join("ways.toml"), cluster_toml(dir, &[0, 2])).expect("written");
    std::fs::rename(dir.join("ways.toml"), &way_in).expect("renamed");
    both("another way in");
    stop(&hosts, 0, &former, first);
    for (host, named) in [(1, &[0][..]), (2, &[0, 2]), (3, &[0, 3])] {
        let moved = cluster_toml(dir, named).replace("tcp:10.77.0.1:", "tcp:10.77.0.2:");
        std::fs::write(file(host), moved).expect("written");
    }
    let first = Server::start(hosts.command(1, &file(1), &["serve", "node0", "--announce"]));
    both("the move of the metadata server");
    let told = std::fs::read_to_string(dir.join("node3.log")).expect("a log");
    assert!(told.contains("metadata server node0 has moved to tcp:10.77.0.2:7411"), "{told}");
    let status = weft(&["status"]);
    assert!(status.contains("10.77.0.2:7411") && !status.contains("10.77.0.1:"), "{status}");
    // Programs that have used no server but that one since the start look into the corrected file.
    let corrected = cluster_toml(dir, &[0]).replace("tcp:10.77.0.1:", "tcp:10.77.0.2:");
    std::fs::write(dir.join("ways.toml"), corrected).expect("written");
    std::fs::rename(dir.join("ways.toml"), &way_in).expect("renamed");

    // A server is stopped for maintenance, another one killed.
    stop(&hosts, 2, &file(2), of_two);
    let of_two = start(2, &[]);
    both("maintenance");
    of_three.0.kill().expect("killed");
    of_three.0.wait().expect("waited for");

    // Its second disk is dead. Reads of its files fail and name it, until the files are restored from copies.
    std::fs::remove_dir_all(dir.join("target7")).expect("lost");
    std::fs::create_dir(dir.join("target7")).expect("a blank disk");
    weft(&["target", "replace", "7", "--data-lost"]);
    let of_three = start(3, &[]);
    both("the loss of a disk");
    let output = hosts.command(0, &way_in, &["cat", "/weft/archived"]).output().expect("starts");
    assert!(!output.status.success() && output.stdout.is_empty(), "{}", shown(&output));
    assert!(shown(&output).contains("target 7"), "{}", shown(&output));
    let output = hosts.command(0, &way_in, &["fsck"]).output().expect("starts");
    assert!(!output.status.success() && shown(&output).contains("/weft/archived"), "{}", shown(&output));
    weft(&["cp", source.to_str().expect("text"), "/weft/archived"]);

    // A dump of the metadata while the users work.
    let dump = dir.join("dump");
    weft(&["meta", "dump", "-q", dump.to_str().expect("text")]);
    assert!(std::fs::metadata(&dump).expect("there").len() > 0);

    // The first keys have expired.
    common::until(KEY_LIFE, "the first keys expire", || (keys_made.elapsed() > KEY_LIFE).then_some(()));
    both("the end of the first keys");

    job.end();
    user.end();
    for (name, at) in [("ada", &ada), ("bob", &bob)] {
        let mut compared = 0;
        for number in 0..7 {
            let local = std::fs::read(at.join(format!("file{number}"))).expect("read");
            let output = hosts
                .command(0, &way_in, &["cat", &format!("/weft/{name}/file{number}")])
                .output()
                .expect("starts");
            assert!(output.status.success() && output.stdout == local, "{name} {number}: {}", shown(&output));
            compared += local.len();
        }
        assert!(compared > 7);
    }
    let output = hosts.command(0, &way_in, &["cat", "/weft/archived"]).output().expect("starts");
    assert!(output.status.success() && output.stdout == std::fs::read(&source).expect("read"));
    let found = weft(&["fsck"]);
    assert!(found.contains(" 0 problems"), "{found}");
    let told = std::fs::read_to_string(&log).expect("the log of the mount");
    assert!(!told.contains("ERROR"), "{told}");
    // SAFETY: a child of this test that has not been waited for.
    assert_eq!(unsafe { libc::kill(mount.0.id() as i32, libc::SIGTERM) }, 0);
    assert!(mount.0.wait().expect("waited for").success());
    stop(&hosts, 3, &file(3), of_three);
    stop(&hosts, 2, &file(2), of_two);
    stop(&hosts, 1, &file(1), first);
}
