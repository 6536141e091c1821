//! A cluster over TCP with keys, on hosts that are network namespaces of this machine.

mod common;

use common::{WEFT, needs, shown, succeeded};
use std::fmt::Write as _;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

/// Two hosts with one network between them; removed with the test.
struct Hosts {
    names: [String; 2],
}

fn ip(args: &str) -> bool {
    let mut command = Command::new("ip");
    command.env("PATH", std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin");
    command.args(args.split(' ')).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

impl Hosts {
    /// `None`, with the reason printed, where they may not be made.
    fn new() -> Option<Self> {
        needs("ip");
        // SAFETY: geteuid has no preconditions.
        if unsafe { libc::geteuid() } != 0 {
            println!("SKIPPED: network namespaces need root; run this test as root");
            return None;
        }
        let id = std::process::id();
        let hosts = Self { names: [format!("weft-{id}-a"), format!("weft-{id}-b")] };
        let [a, b] = &hosts.names;
        if !ip(&format!("netns add {a}")) {
            println!("SKIPPED: this system gives root no network namespaces (`ip netns add` failed)");
            return None;
        }
        let made = ip(&format!("netns add {b}"))
            && ip(&format!("link add veth0 netns {a} type veth peer name veth0 netns {b}"))
            && ip(&format!("-n {a} addr add 10.77.0.1/24 dev veth0"))
            && ip(&format!("-n {b} addr add 10.77.0.2/24 dev veth0"))
            && [a, b]
                .iter()
                .all(|n| ip(&format!("-n {n} link set veth0 up")) && ip(&format!("-n {n} link set lo up")));
        assert!(made, "the network between two namespaces could not be made");
        Some(hosts)
    }

    /// `weft ARGS` on host 0 or 1.
    fn command(&self, host: usize, cluster: &Path, args: &[&str]) -> Command {
        let mut command = common::isolated("ip");
        command.env("PATH", std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin");
        command.args(["netns", "exec", &self.names[host], WEFT, "--cluster"]).arg(cluster).args(args);
        command.stdin(Stdio::null());
        command
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for name in &self.names {
            ip(&format!("netns del {name}"));
        }
    }
}

/// A server process, ended with the test.
struct Server(Child);

impl Server {
    fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("weft starts");
        let mut line = [0; 6];
        let out = child.stdout.as_mut().expect("a pipe");
        out.read_exact(&mut line).expect("the server says that it is ready");
        assert_eq!(&line, b"ready\n");
        Self(child)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn cluster_toml(dir: &Path) -> String {
    let dir = dir.display();
    let mut text = format!("[cluster]\nname = \"hosts\"\nkey_file = \"{dir}/cluster.key\"\n");
    for host in 0..2 {
        let address = format!("tcp:10.77.0.{}:7411", host + 1);
        let _ = write!(
            text,
            "\n[[server]]\nname = \"node{host}\"\naddress = \"{address}\"\nlog = \"{dir}/node{host}.log\"\n"
        );
        if host == 0 {
            let _ = write!(text, "[server.metadata]\npath = \"{dir}/metadata\"\n");
        }
        for target in 0..2 {
            let id = host * 2 + target;
            let _ =
                write!(text, "[[server.target]]\nid = {id}\nclass = \"hdd\"\npath = \"{dir}/target{id}\"\n");
        }
    }
    text
}

fn fails(output: Output, code: i32, words: &str) {
    let text = shown(&output);
    assert_eq!(output.status.code(), Some(code), "{text}");
    assert!(text.contains(words), "{text}");
}

#[test]
fn two_hosts_share_files_over_tcp_and_only_with_the_right_key() {
    let Some(hosts) = Hosts::new() else { return };
    let dir = tempfile::Builder::new().prefix("weft-hosts-").tempdir().expect("a directory");
    let file = dir.path().join("cluster.toml");
    std::fs::write(&file, cluster_toml(dir.path())).expect("written");
    let key = dir.path().join("cluster.key");
    let key_text = key.to_str().expect("text");
    succeeded(common::undisturbed().args(["key", "make", key_text]));

    // `serve` without a name finds this host's server by its address.
    let _servers: Vec<_> = (0..2)
        .map(|host| Server::start(hosts.command(host, &file, &["serve", "--format", "--announce"])))
        .collect();
    let status = succeeded(&mut hosts.command(1, &file, &["status"]));
    assert!(status.contains("node0") && status.contains("node1") && !status.contains("DOWN"), "{status}");

    // What one host writes the other reads, over all four targets.
    let source = dir.path().join("source");
    std::fs::write(&source, (0..5_000_000u32).flat_map(u32::to_le_bytes).collect::<Vec<_>>())
        .expect("written");
    let source_text = source.to_str().expect("text");
    succeeded(&mut hosts.command(0, &file, &["cp", source_text, "/weft/shared"]));
    let back = dir.path().join("back");
    succeeded(&mut hosts.command(1, &file, &["cp", "/weft/shared", back.to_str().expect("text")]));
    succeeded(Command::new("cmp").arg(&source).arg(&back));
    let layout = succeeded(&mut hosts.command(1, &file, &["getstripe", "-v", "/weft/shared"]));
    assert!(layout.contains("20000000 bytes") && layout.contains("stripe count: 4"), "{layout}");

    // A user's key is that user: root's files are closed to him, and his own are his.
    succeeded(&mut hosts.command(0, &file, &["mkdir", "-m", "700", "/weft/private"]));
    succeeded(&mut hosts.command(0, &file, &["mkdir", "-m", "1777", "/weft/tmp"]));
    let user = dir.path().join("user.key");
    let user_text = user.to_str().expect("text");
    let make = ["key", "user", "4242", "--groups", "4243", "--key", key_text, "-o", user_text];
    succeeded(common::undisturbed().args(make));
    let as_user = |args: &[&str]| {
        let mut command = hosts.command(1, &file, args);
        command.env("WEFT_KEY", &user);
        command
    };
    fails(as_user(&["touch", "/weft/private/x"]).output().expect("starts"), 1, "Permission denied");
    succeeded(&mut as_user(&["touch", "/weft/tmp/mine"]));
    let stat = succeeded(&mut hosts.command(0, &file, &["stat", "/weft/tmp/mine"]));
    assert!(stat.contains("Uid: (4242/") && stat.contains("Gid: (4243/"), "{stat}");

    // Another cluster's key opens nothing.
    let other = dir.path().join("other.key");
    let other_text = other.to_str().expect("text");
    succeeded(common::undisturbed().args(["key", "make", other_text]));
    let mut stranger = hosts.command(1, &file, &["ls", "/weft"]);
    let output = stranger.env("WEFT_KEY", &other).output().expect("starts");
    assert!(!output.status.success(), "{}", shown(&output));
    assert!(!shown(&output).contains("shared"), "{}", shown(&output));

    // A host that is cut off is an error that names it, in bounded time.
    assert!(ip(&format!("-n {} link set veth0 down", hosts.names[1])));
    let began = std::time::Instant::now();
    let output = hosts.command(0, &file, &["status"]).output().expect("starts");
    assert!(began.elapsed() < std::time::Duration::from_secs(4), "{:?}", began.elapsed());
    fails(output, 1, "server node1 is down");
    assert!(ip(&format!("-n {} link set veth0 up", hosts.names[1])));

    // Each host stops its own server, and only an administrator may.
    fails(as_user(&["stop"]).output().expect("starts"), 1, "server node1");
    assert_eq!(succeeded(&mut hosts.command(1, &file, &["stop"])), "stopped node1\n");
    assert_eq!(succeeded(&mut hosts.command(0, &file, &["stop"])), "stopped node0\n");
}

#[test]
fn users_of_one_host_share_a_cluster_by_its_sockets() {
    // SAFETY: geteuid has no preconditions.
    if unsafe { libc::geteuid() } != 0 {
        println!("SKIPPED: only root can act for several users; run this test as root");
        return;
    }
    let dir = tempfile::Builder::new().prefix("weft-test-").tempdir().expect("a directory");
    let mode = |path: &Path, mode| {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("mode");
    };
    mode(dir.path(), 0o755);
    let at = dir.path().display();
    let cluster = dir.path().join("cluster.toml");
    let text = format!(
        "[cluster]\nname = \"shared\"\nkey_file = \"{at}/key\"\n[[server]]\nname = \"s0\"\n\
         address = \"unix:{at}/s0.sock\"\n[server.metadata]\npath = \"{at}/metadata\"\n\
         [[server.target]]\nid = 0\nclass = \"hdd\"\npath = \"{at}/target\"\n"
    );
    std::fs::write(&cluster, text).expect("written");
    let weft = |uid: &str, args: &[&str]| {
        let mut command = common::isolated("setpriv");
        command.args(["--reuid", uid, "--regid", uid, "--clear-groups", WEFT, "--cluster"]).arg(&cluster);
        command.args(args).env("HOME", "/nonexistent").stdin(Stdio::null());
        command
    };
    succeeded(common::undisturbed().args(["key", "make"]).arg(dir.path().join("key")));
    let mut serve = weft("0", &["serve", "--format", "--announce", "s0"]);
    let mut serve = serve.stdout(Stdio::piped()).spawn().expect("weft starts");
    let mut ready = [0; 5];
    serve.stdout.as_mut().expect("a pipe").read_exact(&mut ready).expect("ready");
    assert!(ready.starts_with(b"ready"));

    succeeded(&mut weft("0", &["mkdir", "-m", "1777", "/weft/all"]));
    succeeded(&mut weft("4711", &["mkdir", "-m", "700", "/weft/all/ada"]));
    succeeded(&mut weft("4711", &["touch", "/weft/all/ada/diary"]));
    let others = weft("4712", &["ls", "/weft/all/ada"]).output().expect("weft starts");
    assert_eq!(others.status.code(), Some(1), "{}", shown(&others));
    let text = String::from_utf8_lossy(&others.stderr).into_owned();
    assert!(text.contains("/weft/all/ada: Permission denied"), "{text}");
    let removed = weft("4712", &["rm", "-r", "/weft/all/ada"]).output().expect("weft starts");
    assert_eq!(removed.status.code(), Some(1), "{}", shown(&removed));
    assert_eq!(succeeded(&mut weft("4711", &["ls", "/weft/all/ada"])), "diary\n");
    succeeded(&mut weft("0", &["stop"]));
    serve.wait().expect("it ends");
}
