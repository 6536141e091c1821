//! I/O delegates from the command line: `weft run --delegates`, `weft delegate` and its subcommands.

mod common;

use common::{Embedded, WEFT, built, shown, succeeded, undisturbed};
use serde_json::Value;
use std::fs::Permissions;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

/// Maximum time that a condition may take to hold.
const LIMIT: Duration = Duration::from_secs(60);

/// A directory of the local file system that delegates serve, and a directory for jobs.
struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        built();
        let dir = tempfile::Builder::new().prefix("weft-test-").tempdir().expect("a directory");
        std::fs::create_dir(dir.path().join("data")).expect("created");
        Self { dir }
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.data().join(name)
    }

    fn job(&self) -> PathBuf {
        self.dir.path().join("job")
    }

    /// Builds `weft run --delegates COUNT --over DATA OPTIONS -- sh -c SCRIPT`. The script finds the command as `$WEFT` and
    /// the directory as `$DATA`.
    fn run(&self, count: &str, options: &[&str], script: &str) -> Command {
        let mut command = self.weft();
        command.args(["run", "--delegates", count, "--over"]).arg(self.data()).args(options);
        command.args(["--", "sh", "-c", script]).env("WEFT", WEFT).env("DATA", self.data());
        command
    }

    /// Builds `weft`, which sees only jobs of this test.
    fn weft(&self) -> Command {
        let mut command = undisturbed();
        command.env("TMPDIR", self.dir.path());
        command
    }

    /// Starts delegate `index` of `count` in the job directory.
    fn delegate(&self, index: u32, count: u32, options: &[&str]) -> Delegate {
        let mut command = self.weft();
        command.args(["delegate", "--announce", "--no-cluster", "--over"]).arg(self.data()).arg("--job");
        command.arg(self.job()).args(["--index", &index.to_string(), "--of", &count.to_string()]);
        Delegate(command.args(options).stdout(Stdio::piped()).spawn().expect("weft starts"))
    }
}

/// A delegate that ends with the test.
struct Delegate(Child);

impl Delegate {
    /// Waits until the delegate serves.
    #[track_caller]
    fn ready(mut self) -> Self {
        let mut line = [0; 6];
        self.0.stdout.as_mut().expect("a pipe").read_exact(&mut line).expect("the delegate serves");
        assert_eq!(&line, b"ready\n");
        self
    }
}

impl Drop for Delegate {
    fn drop(&mut self) {
        let _ = self.0.kill(); // it may have ended
        let _ = self.0.wait();
    }
}

#[track_caller]
fn until(condition: &str, holds: impl Fn() -> bool) {
    common::until(LIMIT, condition, || holds().then_some(()));
}

fn has_ended(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.is_empty() || stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('Z'))
}

fn send(pid: i32, signal: i32) {
    // SAFETY: kill has no memory effects.
    assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
}

fn pids(status: &Value) -> Vec<i32> {
    let delegates = status["delegates"].as_array().expect("delegates");
    delegates.iter().map(|delegate| delegate["pid"].as_i64().expect("a pid") as i32).collect()
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Starts a program with delegates that prints the job's status and then runs `rest`. Returns the process, its output
/// and the status.
fn started(command: &mut Command) -> (Child, BufReader<std::process::ChildStdout>, Value) {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
    let mut out = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut text = String::new();
    loop {
        let mut line = String::new();
        let read = out.read_line(&mut line).expect("output");
        if read == 0 {
            let output = child.wait_with_output().expect("ended");
            panic!("no status: {text}{}", shown(&output));
        }
        text += &line;
        if line == "}\n" {
            break;
        }
    }
    (child, out, serde_json::from_str(&text).expect("JSON"))
}

/// Prints the status of the job.
const STATUS: &str = "\"$WEFT\" delegate status --json";

#[test]
fn delegates_run_beside_the_program_and_end_with_it() {
    let place = Place::new();
    let script =
        format!("echo $WEFT_OVER >&2; {STATUS}; \"$WEFT\" status >&2; ls -ld $WEFT_DELEGATES >&2; exit 7");
    let (child, _, status) = started(&mut place.run("2", &["--page-size", "64K"], &script));
    let output = child.wait_with_output().expect("ended");
    assert_eq!(output.status.code(), Some(7), "{}", shown(&output));
    assert_eq!(status["delegates"].as_array().expect("delegates").len(), 2, "{status}");
    assert_eq!(status["settings"]["policy"], "hashed");
    assert_eq!(status["settings"]["page_size"], 64 << 10);
    assert_eq!(status["settings"]["write_behind"], true);
    assert_eq!(status["over"][0].as_str(), place.data().to_str());
    let text = errors(&output);
    assert!(text.contains(&format!("{}\n", place.data().display())), "{text}");
    assert!(text.contains("drwx------"), "{text}");
    assert!(text.contains(": 2 delegates, "), "weft status has a line: {text}");
    for pid in pids(&status) {
        assert!(has_ended(pid), "delegate process {pid} remains");
    }
    let dir = status["directory"].as_str().expect("a directory");
    assert!(!Path::new(dir).exists(), "{dir} remains");
}

#[test]
fn no_cluster_is_started_for_files_of_other_file_systems() {
    let place = Place::new();
    let out = succeeded(&mut place.run("1", &[], "echo ${WEFT_CLUSTER-none}"));
    assert_eq!(out, "none\n");
}

#[test]
fn wrong_options_are_refused_with_a_remedy() {
    let place = Place::new();
    let data = place.data();
    let data = data.to_str().expect("text");
    std::fs::write(place.file("plain"), "").expect("written");
    let plain = format!("{data}/plain");
    let open = place.dir.path().join("open");
    std::fs::create_dir(&open).expect("created");
    std::fs::set_permissions(&open, Permissions::from_mode(0o755)).expect("set");
    let open = open.to_str().expect("text");
    let job = place.job().display().to_string();
    let mut rank = place.weft();
    rank.args(["run", "--delegates", "1", "--", "true"]).env("PMI_RANK", "0").env("PMI_SIZE", "2");
    let output = rank.output().expect("weft starts");
    assert_eq!(output.status.code(), Some(2), "{}", shown(&output));
    assert!(errors(&output).contains("before the launcher"), "{}", shown(&output));
    for (args, words) in [
        (&["run", "--over", data, "--", "true"][..], "add --delegates N"),
        (&["run", "--delegates", "0", "--", "true"], "not a number of delegates"),
        (&["run", "--delegates", "5%", "--over", data, "--", "true"], "mpiexec -n N"),
        (&["run", "--delegates", "auto", "--", "true"], "--plan app.wtrace"),
        (&["run", "--delegates", "1", "--plan", &plain, "--", "true"], "--delegates auto"),
        (&["run", "--delegates", "5000", "--over", data, "--", "true"], "at most 4096"),
        (&["run", "--delegates", "1", "--over", "/nonexistent", "--", "true"], "No such file"),
        (&["run", "--delegates", "1", "--over", &plain, "--", "true"], "not a directory"),
        (&["run", "--delegate-policy", "hashed", "--", "true"], "--delegates"),
        (&["run", "--delegates", "1", "--delegate-policy", "random", "--", "true"], "first-touch or hashed"),
        (&["run", "--delegates", "1", "--page-size", "1000", "--", "true"], "multiple of 4 KiB"),
        (&["run", "--delegates", "1", "--delegate-memory", "1M", "--", "true"], "at least 4 MiB"),
        (
            &["run", "--delegates", "1", "--delegate-memory", "4M", "--page-size", "4M", "--", "true"],
            "less than two pages",
        ),
        (&["run", "--delegates", "1", "--job", open, "--", "true"], "cannot be used with"),
        (&["run", "--job", open, "--", "true"], "chmod 700"),
        (&["delegate"], "--job DIR"),
        (&["delegate", "--job", open], "chmod 700"),
        (&["delegate", "--job", "/nonexistent/a"], "its parent must exist"),
        (&["delegate", "--job", open, "--index", "2", "--of", "2"], "only 2 delegates"),
        (&["delegate", "--peers", "a:1"], "--key"),
        (&["delegate", "--job", &job, "--listen", "node1"], "INTERFACE:PORT"),
        (&["delegate", "--job", &job, "--listen", "192.0.2.1:0"], "name an address of this host"),
        (&["delegate", "status"], "no job of this user"),
        (&["delegate", "stop"], "no job of this user"),
        (&["delegate", "status", "--job", "/nonexistent"], "weft run --delegates"),
    ] {
        let output = place.weft().args(args).output().expect("weft starts");
        assert!(matches!(output.status.code(), Some(1 | 2)), "{args:?}: {}", shown(&output));
        assert!(errors(&output).contains(words), "{args:?}: {}", shown(&output));
    }
}

#[test]
fn delegates_meet_in_a_job_directory_and_programs_join() {
    let place = Place::new();
    let second = place.delegate(1, 2, &[]);
    let (first, mut second) = (place.delegate(0, 2, &[]).ready(), second.ready());
    let job = place.job();
    let status = succeeded(place.weft().args(["delegate", "status", "-v", "--job"]).arg(&job));
    assert!(status.contains("policy hashed, write-behind") && !status.contains("DOWN"), "{status}");
    let mode = std::fs::metadata(&job).expect("the directory").permissions().mode();
    assert_eq!(mode & 0o777, 0o700);

    // Without --job: the only job of this user on this host.
    let status: Value =
        serde_json::from_str(&succeeded(place.weft().args(["delegate", "status", "--json"]))).expect("JSON");
    assert_eq!(pids(&status), [first.0.id() as i32, second.0.id() as i32]);

    let mut run = place.weft();
    run.args(["run", "--job"]).arg(&job).args(["--", "sh", "-c", "echo $WEFT_DELEGATES $WEFT_OVER"]);
    assert_eq!(succeeded(&mut run), format!("{} {}\n", job.display(), place.data().display()));
    let mut run = place.weft();
    run.args(["run", "--over", "/usr", "--job"]).arg(&job).args(["--", "true"]);
    let output = run.output().expect("weft starts");
    assert!(errors(&output).contains("started without it"), "{}", shown(&output));

    // The place is taken.
    let again = place.delegate(0, 2, &[]).0.wait().expect("ended");
    assert_eq!(again.code(), Some(2));

    let mut first = first;
    let out = succeeded(place.weft().args(["delegate", "stop", "--job"]).arg(&job));
    assert_eq!(out, "stopped 2 delegates\n");
    for delegate in [&mut first, &mut second] {
        assert!(delegate.0.wait().expect("ended").success());
    }
    let mut left: Vec<_> =
        std::fs::read_dir(&job).expect("listed").flatten().map(|entry| entry.file_name()).collect();
    left.sort();
    assert_eq!(left, ["delegate-0.log", "delegate-1.log", "job.key"]);
    // The directory can be used again.
    let _again = place.delegate(0, 1, &[]).ready();
}

#[test]
fn a_delegate_that_does_not_come_is_named() {
    let place = Place::new();
    let mut command = place.weft();
    command.args(["delegate", "--no-cluster", "--index", "1", "--of", "4", "--wait", "1s", "--job"]);
    let output = command.arg(place.job()).output().expect("weft starts");
    assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
    assert!(errors(&output).contains("delegate 0, 2, 3 of 4 has not come within 1 s"), "{}", shown(&output));
    let left = std::fs::read_dir(place.job()).expect("listed").flatten();
    assert_eq!(left.map(|entry| entry.file_name()).collect::<Vec<_>>(), ["job.key"]);
}

#[test]
fn positions_come_from_launchers() {
    let place = Place::new();
    let launched = |rank: &str| {
        let mut command = place.weft();
        command.args(["delegate", "--announce", "--no-cluster", "--job"]).arg(place.job());
        command.env("PMI_RANK", rank).env("PMI_SIZE", "2");
        Delegate(command.stdout(Stdio::piped()).spawn().expect("weft starts"))
    };
    let (second, first) = (launched("1"), launched("0"));
    let _both = (second.ready(), first.ready());
    let status = succeeded(place.weft().args(["delegate", "status", "--job"]).arg(place.job()));
    assert!(!status.contains("DOWN"), "{status}");
}

#[test]
fn addresses_and_a_key_replace_the_job_directory() {
    let place = Place::new();
    let key = place.dir.path().join("key");
    succeeded(place.weft().args(["key", "make"]).arg(&key));
    let ports: Vec<_> = (0..2).map(|_| std::net::TcpListener::bind("127.0.0.1:0").expect("a port")).collect();
    let peers: Vec<_> = ports.iter().map(|port| port.local_addr().expect("bound").to_string()).collect();
    let peers = peers.join(",");
    drop(ports);
    let start = |index: &str| {
        let mut command = place.weft();
        command.args([
            "delegate",
            "--announce",
            "--no-cluster",
            "--index",
            index,
            "--peers",
            &peers,
            "--key",
        ]);
        Delegate(command.arg(&key).stdout(Stdio::piped()).spawn().expect("weft starts")).ready()
    };
    let mut both = [start("0"), start("1")];
    let weft = |args: &[&str], key: &Path| {
        let mut command = place.weft();
        command.args(args).env("WEFT_DELEGATES", &peers).env("WEFT_DELEGATE_KEY", key);
        command
    };
    let status = succeeded(&mut weft(&["delegate", "status"], &key));
    assert!(!status.contains("DOWN"), "{status}");

    // Another key proves nothing.
    let other = place.dir.path().join("other");
    succeeded(place.weft().args(["key", "make"]).arg(&other));
    let output = weft(&["delegate", "status"], &other).output().expect("weft starts");
    assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
    let output = weft(&["delegate", "stop"], &other).output().expect("weft starts");
    assert!(!shown(&output).contains("stopped"), "{}", shown(&output));

    assert_eq!(succeeded(&mut weft(&["delegate", "stop"], &key)), "stopped 2 delegates\n");
    for delegate in &mut both {
        assert!(delegate.0.wait().expect("ended").success());
    }
}

#[test]
fn a_killed_weft_run_leaves_no_delegate_and_no_directory() {
    let place = Place::new();
    for policy in ["hashed", "first-touch"] {
        let script = format!("{STATUS}; exec cat");
        let (mut child, out, status) = started(&mut place.run("2", &["--delegate-policy", policy], &script));
        child.kill().expect("killed");
        assert_eq!(child.wait().expect("ended").signal(), Some(libc::SIGKILL));
        drop((out, child));
        for pid in pids(&status) {
            until("the delegate ends", || has_ended(pid));
        }
        let dir = PathBuf::from(status["directory"].as_str().expect("a directory"));
        until("the job directory is removed", || !dir.exists());
    }
}

#[test]
fn signals_reach_the_program_and_not_the_delegates() {
    let place = Place::new();
    let script = format!("trap 'exit 3' TERM; {STATUS}; while :; do read line; done");
    let (mut child, out, status) = started(&mut place.run("2", &[], &script));
    let stdin = child.stdin.take();
    send(child.id() as i32, libc::SIGTERM);
    assert_eq!(child.wait().expect("ended").code(), Some(3));
    drop((stdin, out));
    for pid in pids(&status) {
        assert!(has_ended(pid), "delegate process {pid} remains");
    }
    assert!(!Path::new(status["directory"].as_str().expect("a directory")).exists());
}

#[test]
fn a_delegate_that_ends_during_the_program_is_reported() {
    let place = Place::new();
    let script = format!("{STATUS}; read line; exit 5");
    let (mut child, _out, status) = started(&mut place.run("2", &[], &script));
    let pid = pids(&status)[1];
    send(pid, libc::SIGKILL);
    until("the delegate ends", || has_ended(pid));
    let mut errors = BufReader::new(child.stderr.take().expect("a pipe"));
    let mut line = String::new();
    errors.read_line(&mut line).expect("a message");
    assert!(line.contains("delegate 1: it ended before the program (signal 9)"), "{line}");
    drop(child.stdin.take());
    assert_eq!(child.wait().expect("ended").code(), Some(5), "the program's exit code stays");
    assert!(!Path::new(status["directory"].as_str().expect("a directory")).exists());
}

/// Writes records of 1000 bytes of two processes in turn, with system calls.
const RECORDS: &str = "
import os, sys
rank, path = int(sys.argv[1]), sys.argv[2]
fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
for record in range(500):
    number = 2 * record + rank
    os.pwrite(fd, bytes([number % 251]) * 1000, number * 1000)
os.close(fd)
";

fn records() -> Vec<u8> {
    (0..1000u32).flat_map(|number| vec![(number % 251) as u8; 1000]).collect()
}

fn sum(status: &Value, key: &str) -> u64 {
    let delegates = status["delegates"].as_array().expect("delegates").iter();
    delegates.map(|delegate| delegate[key].as_u64().expect("a number")).sum()
}

#[test]
fn files_of_a_directory_are_written_through_delegates() {
    let place = Place::new();
    let program = place.dir.path().join("records.py");
    std::fs::write(&program, RECORDS).expect("written");
    for policy in ["hashed", "first-touch"] {
        for write_behind in ["on", "off"] {
            let script = format!(
                "python3 {0} 0 $DATA/x & python3 {0} 1 $DATA/x & wait; stat -c %s $DATA/x >&2; {STATUS}",
                program.display()
            );
            let options = ["--delegate-policy", policy, "--delegate-write-behind", write_behind];
            let (child, _, status) = started(&mut place.run("2", &options, &script));
            let output = child.wait_with_output().expect("ended");
            assert!(output.status.success(), "{}", shown(&output));
            assert!(errors(&output).contains("1000000"), "{}", shown(&output));
            assert_eq!(sum(&status, "bytes_written"), 1_000_000, "{status}");
            assert_eq!(sum(&status, "dirty"), 0, "{status}");
            assert!(std::fs::read(place.file("x")).expect("the file") == records(), "{policy}: wrong bytes");
            std::fs::remove_file(place.file("x")).expect("removed");
        }
    }
}

#[test]
fn small_writes_become_few_long_ones() {
    let place = Place::new();
    let program = place.dir.path().join("records.py");
    let twice = "
import os, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o644)
for rank in range(2):
    for record in range(500):
        number = 2 * record + rank
        os.pwrite(fd, bytes([number % 251]) * 1000, number * 1000)
os.close(fd)
";
    std::fs::write(&program, twice).expect("written");
    let script = format!("python3 {} $DATA/x; {STATUS}", program.display());
    let (child, _, status) = started(&mut place.run("2", &["--delegate-write-behind", "off"], &script));
    let output = child.wait_with_output().expect("ended");
    assert!(output.status.success(), "{}", shown(&output));
    assert!(sum(&status, "pieces") >= 1000 && sum(&status, "file_writes") < 10, "{status}");
    assert!(std::fs::read(place.file("x")).expect("the file") == records(), "wrong bytes");
}

#[test]
fn files_of_weft_are_written_through_delegates() {
    let cluster = Embedded::started();
    let program = cluster.local("records.py");
    std::fs::write(&program, RECORDS).expect("written");
    let script = format!("python3 {0} 0 /weft/x & python3 {0} 1 /weft/x & wait; {STATUS}", program.display());
    let mut command = undisturbed();
    command.arg("run").arg("--state").arg(cluster.state()).args([
        "--delegates",
        "2",
        "--",
        "sh",
        "-c",
        &script,
    ]);
    let (child, _, status) = started(command.env("WEFT", WEFT));
    let output = child.wait_with_output().expect("ended");
    assert!(output.status.success(), "{}", shown(&output));
    assert_eq!(sum(&status, "bytes_written"), 1_000_000, "{status}");
    let read = cluster.command(["cat", "/weft/x"]).output().expect("weft starts");
    assert!(read.stdout == records(), "wrong bytes: {}", errors(&read));
}

/// Program that writes, reads, opens and cuts a file as the lines of its input say, without a sync.
const OBEYING: &str = "
import os, sys
path, size = sys.argv[1], 300_007
fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
print('open', flush=True)
for line in sys.stdin:
    words = line.split()
    if words[0] == 'write':
        for at in range(0, size, 1000):
            os.pwrite(fd, words[1].encode() * min(1000, size - at), at)
        print('written', flush=True)
    elif words[0] == 'read':
        data = os.pread(fd, 2 * size, 0)
        print(len(data), bytes(sorted(set(data))).decode(), flush=True)
    elif words[0] == 'cut':
        os.truncate(path, int(words[1]))
        print('cut', flush=True)
";

/// Program that cuts a file that it does not have open.
const CUTTING: &str = "import os; os.truncate('/weft/x', 10)";

/// A process that obeys lines.
struct Obeying {
    child: Child,
    out: BufReader<std::process::ChildStdout>,
}

impl Obeying {
    fn started(cluster: &Embedded, options: &[&str]) -> Self {
        let mut command = undisturbed();
        command.arg("run").arg("--state").arg(cluster.state()).args(options);
        command.args(["--", "python3", "-c", OBEYING, "/weft/x"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("weft starts");
        let out = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut obeying = Self { child, out };
        assert_eq!(obeying.line(), "open");
        obeying
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).expect("output");
        line.trim().to_owned()
    }

    fn ask(&mut self, line: &str) -> String {
        writeln!(self.child.stdin.as_mut().expect("a pipe"), "{line}").expect("a running process");
        self.line()
    }

    #[track_caller]
    fn ended(mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().expect("ended").success());
    }
}

#[test]
fn programs_outside_of_a_job_see_its_writes_on_weft_at_once() {
    for policy in ["hashed", "first-touch"] {
        let cluster = Embedded::started();
        let options = ["--delegates", "2", "--delegate-write-behind", "off", "--delegate-policy", policy];
        let mut rank = Obeying::started(&cluster, &options);
        assert_eq!(rank.ask("write a"), "written");
        let seen = |letter: u8| {
            let read = cluster.command(["cat", "/weft/x"]).output().expect("weft starts");
            assert!(read.status.success(), "{policy}: {}", errors(&read));
            assert!(read.stdout == vec![letter; 300_007], "{policy}: {} bytes", read.stdout.len());
        };
        seen(b'a');
        assert_eq!(rank.ask("write b"), "written");
        seen(b'b');
        let mut outside = Obeying::started(&cluster, &[]);
        assert_eq!(rank.ask("write c"), "written");
        assert_eq!(outside.ask("read"), "300007 c", "{policy}");
        assert_eq!(outside.ask("write d"), "written");
        assert_eq!(rank.ask("read"), "300007 d", "{policy}");
        assert_eq!(outside.ask("cut 1000"), "cut");
        assert_eq!(rank.ask("read"), "1000 d", "{policy}");
        outside.ended();
        rank.ended();

        // A path is cut behind dirty bytes of a job, not before them.
        let mut rank = Obeying::started(&cluster, &options);
        assert_eq!(rank.ask("write e"), "written");
        let mut cut = undisturbed();
        cut.arg("run").arg("--state").arg(cluster.state()).args(["--", "python3", "-c", CUTTING]);
        let cut = cut.output().expect("weft starts");
        assert!(cut.status.success(), "{policy}: {}", errors(&cut));
        assert_eq!(rank.ask("read"), "10 e", "{policy}");
        rank.ended();
        let read = cluster.command(["cat", "/weft/x"]).output().expect("weft starts");
        assert!(read.stdout == b"eeeeeeeeee", "{policy}: {} bytes", read.stdout.len());
    }
}

#[test]
fn a_killed_delegate_causes_an_error_that_names_it() {
    let place = Place::new();
    let program = "
import os, sys, time
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o644)
os.pwrite(fd, b'a' * 4096, 0)
print('written')
sys.stdout.flush()
sys.stdin.readline()
began = time.monotonic()
try:
    for page in range(64):
        os.pwrite(fd, b'b' * 4096, page * 524288)
    print('no error')
except OSError as error:
    print(error.errno, time.monotonic() - began < 3)
sys.stdout.flush()
os._exit(0)
";
    let file = place.dir.path().join("program.py");
    std::fs::write(&file, program).expect("written");
    let script = format!("{STATUS}; exec python3 {} $DATA/x", file.display());
    let (mut child, mut out, status) = started(&mut place.run("2", &[], &script));
    let mut line = String::new();
    out.read_line(&mut line).expect("output");
    assert_eq!(line, "written\n");
    send(pids(&status)[1], libc::SIGKILL);
    until("the delegate ends", || has_ended(pids(&status)[1]));
    child.stdin.take().expect("a pipe").write_all(b"go\n").expect("written");
    line.clear();
    out.read_line(&mut line).expect("output");
    let output = child.wait_with_output().expect("ended");
    assert_eq!(line, format!("{} True\n", libc::EIO), "{}", shown(&output));
    assert!(errors(&output).contains("delegate 1"), "{}", shown(&output));
}

#[test]
fn bytes_of_a_killed_program_reach_the_file() {
    let place = Place::new();
    let program = "
import os, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o644)
os.pwrite(fd, b'a' * 100000, 0)
os.kill(os.getpid(), 9)
";
    let file = place.dir.path().join("program.py");
    std::fs::write(&file, program).expect("written");
    let script = format!("python3 {} $DATA/x", file.display());
    let output = place.run("2", &[], &script).output().expect("weft starts");
    assert_eq!(output.status.code(), Some(137), "{}", shown(&output));
    assert!(std::fs::read(place.file("x")).expect("the file") == vec![b'a'; 100_000]);
}

#[test]
fn a_failed_write_that_no_program_saw_is_reported_at_the_end() {
    if !common::skip::unless_root("mounting a small file system") {
        return;
    }
    let place = Place::new();
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=1m", "weft-test"])
        .arg(place.data())
        .status()
        .is_ok_and(|status| status.success());
    if !mounted {
        common::skip::skip("this system mounts no tmpfs");
        return;
    }
    let program = "
import os, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o644)
for block in range(8):
    os.pwrite(fd, b'a' * 500000, block * 500000)
os.kill(os.getpid(), 9)
";
    let file = place.dir.path().join("program.py");
    std::fs::write(&file, program).expect("written");
    let script = format!("python3 {} $DATA/x; exit 9", file.display());
    let output = place.run("1", &["--delegate-write-behind", "off"], &script).output();
    succeeded(Command::new("umount").arg(place.data()));
    let output = output.expect("weft starts");
    assert_eq!(output.status.code(), Some(9), "{}", shown(&output));
    let text = errors(&output);
    assert!(text.contains("weft: delegate 0: bytes ") && text.contains("No space left"), "{text}");
    assert!(text.contains("no program has seen this error"), "{text}");
}
