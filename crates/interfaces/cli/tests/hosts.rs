//! A cluster over TCP with keys, on hosts that are network namespaces of this machine.

mod common;

use common::hosts::{Hosts, Server, ip, stop};
use common::{WEFT, shown, skip, succeeded};
use std::fmt::Write as _;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Writes a cluster file with one server per host. Each server has two targets, and the first server has the metadata.
fn cluster_toml(dir: &Path, hosts: &[usize]) -> String {
    let dir = dir.display();
    let mut text = format!("[cluster]\nname = \"hosts\"\nkey_file = \"{dir}/cluster.key\"\n");
    for &host in hosts {
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
    let Some(hosts) = Hosts::new(2) else { return };
    let dir = tempfile::Builder::new().prefix("weft-hosts-").tempdir().expect("a directory");
    let file = dir.path().join("cluster.toml");
    std::fs::write(&file, cluster_toml(dir.path(), &[0, 1])).expect("written");
    let key = dir.path().join("cluster.key");
    let key_text = key.to_str().expect("text");
    succeeded(common::undisturbed().args(["key", "make", key_text]));

    // `serve` without a name finds this host's server by its address.
    let _servers: Vec<_> = (0..2)
        .map(|host| Server::start(hosts.command(host, &file, &["serve", "--format", "--announce"])))
        .collect();
    let status = succeeded(&mut hosts.command(1, &file, &["status"]));
    assert!(status.contains("node0") && status.contains("node1") && !status.contains("DOWN"), "{status}");

    // Each host reads files that the other one wrote, over all four targets.
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

    // A user key acts for its user, who cannot read root's files but can read his own.
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

    // The key of another cluster is refused.
    let other = dir.path().join("other.key");
    let other_text = other.to_str().expect("text");
    succeeded(common::undisturbed().args(["key", "make", other_text]));
    let mut stranger = hosts.command(1, &file, &["ls", "/weft"]);
    let output = stranger.env("WEFT_KEY", &other).output().expect("starts");
    assert!(!output.status.success(), "{}", shown(&output));
    assert!(!shown(&output).contains("shared"), "{}", shown(&output));

    // A disconnected host gives an error that names it, within bounded time.
    assert!(ip(&format!("-n {} link set veth0 down", hosts.names[1])));
    let began = std::time::Instant::now();
    let output = hosts.command(0, &file, &["status"]).output().expect("starts");
    assert!(began.elapsed() < std::time::Duration::from_secs(20), "{:?}", began.elapsed());
    fails(output, 1, "server node1 is down");
    assert!(ip(&format!("-n {} link set veth0 up", hosts.names[1])));

    // Each host stops its own server, and only an administrator may do so.
    fails(as_user(&["stop"]).output().expect("starts"), 1, "server node1");
    assert_eq!(succeeded(&mut hosts.command(1, &file, &["stop"])), "stopped node1\n");
    assert_eq!(succeeded(&mut hosts.command(0, &file, &["stop"])), "stopped node0\n");
}

#[test]
fn hosts_join_move_and_leave_while_a_program_uses_the_files() {
    // Many files, so that one of them is less than what a full target has too much. The program uses six of them.
    const FILES: usize = 24;
    let Some(hosts) = Hosts::new(3) else { return };
    let dir = tempfile::Builder::new().prefix("weft-hosts-").tempdir().expect("a directory");
    // Each host has a file of its own, with its own server and that of the metadata.
    let file = |host: usize| dir.path().join(format!("cluster{host}.toml"));
    for (host, named) in [(0, &[0][..]), (1, &[0, 1]), (2, &[0, 2])] {
        std::fs::write(file(host), cluster_toml(dir.path(), named)).expect("written");
    }
    let way_in = file(0);
    let key = dir.path().join("cluster.key");
    succeeded(common::undisturbed().args(["key", "make"]).arg(&key));
    let start = |host: usize, args: &[&str]| {
        let name = format!("node{host}");
        Server::start(hosts.command(host, &file(host), &[&["serve", &name, "--announce"], args].concat()))
    };
    let weft = |host: usize, args: &[&str]| succeeded(&mut hosts.command(host, &way_in, args));
    let first = start(0, &["--format"]);
    let leaving = start(1, &["--format"]);
    for number in 0..FILES as u32 {
        let local = dir.path().join(format!("file{number}"));
        let words = (0..150_000 + number).flat_map(|word| (word ^ number << 24).to_le_bytes());
        std::fs::write(&local, words.collect::<Vec<_>>()).expect("written");
        let path = format!("/weft/file{number}");
        weft(1, &["setstripe", "-S", "64K", "-c", "2", &path]);
        weft(0, &["cp", local.to_str().expect("text"), &path]);
    }
    let hold = |host: usize| {
        for number in 0..FILES {
            let output = hosts.command(host, &way_in, &["cat", &format!("/weft/file{number}")]).output();
            let output = output.expect("weft starts");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            let wanted = std::fs::read(dir.path().join(format!("file{number}"))).expect("the local copy");
            assert!(output.stdout == wanted, "file{number}: {} wrong bytes", output.stdout.len());
        }
    };
    // A program on the third host knows a way in only. It changes and compares files.
    let program = "
        i=0
        while [ ! -e stop ]; do
            i=$((i + 1)); n=$((i % 6))
            for at in /weft/file$n file$n; do
                head -c 5003 file0 | dd of=$at bs=4099 seek=$((i * 7 % 100)) conv=notrunc 2> dd || { cat dd; exit 1; }
            done
            cmp /weft/file$n file$n || exit 1
            cat file$n > /weft/new$n && cmp /weft/new$n file$n && rm /weft/new$n || exit 1
            echo $i > rounds
        done";
    let mut user = hosts.command(2, &way_in, &["run", "--", "sh", "-c", program]);
    user.current_dir(dir.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let user = user.spawn().expect("weft starts");
    let rounds = || {
        for _ in 0..2 {
            let began = std::time::Instant::now();
            while !dir.path().join("rounds").exists() {
                assert!(
                    began.elapsed() < std::time::Duration::from_secs(60),
                    "the program does not continue"
                );
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            std::fs::remove_file(dir.path().join("rounds")).expect("removed");
        }
    };
    rounds();

    // The third host joins. No other server is restarted.
    for target in [4, 5] {
        std::fs::create_dir(dir.path().join(format!("target{target}"))).expect("a mount point");
    }
    weft(1, &["server", "add", "node2"]);
    let joined = start(2, &[]);
    let moved = weft(0, &["rebalance"]);
    assert!(moved.contains("moved ") && !moved.contains("moved 0 files"), "{moved}");
    rounds();

    // It moves to another port.
    stop(&hosts, 2, &file(2), joined);
    let text = cluster_toml(dir.path(), &[0, 2]).replace("10.77.0.3:7411", "10.77.0.3:7412");
    std::fs::write(file(2), text).expect("written");
    let joined = start(2, &[]);
    rounds();

    // The second host leaves.
    fails(
        hosts.command(0, &way_in, &["server", "remove", "node1"]).output().expect("starts"),
        1,
        "weft target drain",
    );
    let drained = weft(0, &["target", "drain", "2", "3"]);
    assert!(drained.contains("holds no data") && !drained.contains("moved 0 files"), "{drained}");
    rounds();
    weft(0, &["server", "remove", "node1"]);
    stop(&hosts, 1, &file(1), leaving);
    rounds();
    std::fs::write(dir.path().join("stop"), "").expect("written");
    let user = user.wait_with_output().expect("waited for");
    assert!(user.status.success(), "{}", shown(&user));
    let status = weft(1, &["status"]);
    assert!(status.contains("10.77.0.3:7412") && !status.contains("node1"), "{status}");

    // The metadata server starts with an old file of all hosts. Its record counts more.
    stop(&hosts, 0, &file(0), first);
    std::fs::write(file(0), cluster_toml(dir.path(), &[1, 0, 2])).expect("written");
    let _servers = [start(0, &[]), joined];
    hold(1);
    let found = weft(2, &["fsck"]);
    assert!(found.contains(" 0 problems"), "{found}");
    fails(hosts.command(0, &way_in, &["server", "remove", "node0"]).output().expect("starts"), 1, "metadata");
}

#[test]
fn users_of_one_host_share_a_cluster_by_its_sockets() {
    if !skip::unless_root("acting for several users") {
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

/// Builds a program on a host.
fn on(hosts: &Hosts, host: usize, words: &[&str]) -> Command {
    let mut command = common::isolated("ip");
    command.env("PATH", std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin");
    command.args(["netns", "exec", &hosts.names[host]]).args(words).stdin(Stdio::null());
    command
}

#[test]
fn ranks_use_delegates_of_another_host_over_tcp() {
    let Some(hosts) = Hosts::new(2) else { return };
    common::built();
    let dir = tempfile::Builder::new().prefix("weft-hosts-").tempdir().expect("a directory");
    let (job, data) = (dir.path().join("job"), dir.path().join("data"));
    std::fs::create_dir(&data).expect("created");
    let (job_text, data_text) = (job.to_str().expect("text"), data.to_str().expect("text"));
    let start = |index: &'static str| {
        let words = [
            WEFT,
            "delegate",
            "--no-cluster",
            "--announce",
            "--job",
            job_text,
            "--over",
            data_text,
            "--of",
            "2",
            "--listen",
            "br0:0",
            "--index",
            index,
        ];
        on(&hosts, 0, &words).stdout(Stdio::piped()).spawn().expect("weft starts")
    };
    // Both wait for each other.
    let mut delegates: Vec<_> = ["0", "1"].map(start).into_iter().map(Server).collect();
    for delegate in &mut delegates {
        let mut line = [0; 6];
        delegate.0.stdout.as_mut().expect("a pipe").read_exact(&mut line).expect("the delegate serves");
        assert_eq!(&line, b"ready\n");
    }
    let text = std::fs::read_to_string(job.join("job.toml")).expect("the job");
    assert_eq!(text.matches("tcp:10.77.0.1:").count(), 2, "{text}");
    let socket = text.split("unix:").nth(1).and_then(|rest| rest.split('"').next()).expect("a socket");
    let sockets = Path::new(socket).parent().expect("a directory").display();

    // The other host does not have the directory of the sockets.
    let script = format!(
        "mount -t tmpfs none {sockets} && exec {WEFT} run --job {job_text} -- \
         dd if=/dev/urandom of={data_text}/file bs=10007 count=301 status=none conv=fsync"
    );
    succeeded(&mut on(&hosts, 1, &["sh", "-c", &script]));
    assert_eq!(std::fs::metadata(data.join("file")).expect("the file").len(), 10_007 * 301);
    let script = format!(
        "mount -t tmpfs none {sockets} && {WEFT} run --job {job_text} -- cp {data_text}/file {data_text}/copy && \
         {WEFT} delegate status --json --job {job_text}"
    );
    let status = succeeded(&mut on(&hosts, 1, &["sh", "-c", &script]));
    let status: serde_json::Value = serde_json::from_str(&status).expect("JSON");
    let all = status["delegates"].as_array().expect("delegates");
    let written: u64 = all.iter().map(|delegate| delegate["bytes_written"].as_u64().expect("up")).sum();
    assert_eq!(written, 2 * 10_007 * 301, "{status}");
    let stop = [WEFT, "delegate", "stop", "--job", job_text];
    assert_eq!(succeeded(&mut on(&hosts, 0, &stop)), "stopped 2 delegates\n");
    for delegate in &mut delegates {
        assert!(delegate.0.wait().expect("waited for").success());
    }
    succeeded(Command::new("cmp").arg(data.join("file")).arg(data.join("copy")));
}
