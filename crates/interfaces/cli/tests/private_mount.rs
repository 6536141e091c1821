//! The private mount of `weft run`: databases with shared memory, and what stays when a process is killed.

mod common;

use common::{Embedded, mounts, needs, shown, skip};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const DEADLINE: Duration = Duration::from_secs(60);

/// Maps a file, stores a byte, prints its process id, and waits for its end.
const MAPPER: &str = "\
import mmap, os, sys, time
f = open('/weft/mapped', 'w+b'); f.truncate(8192)
m = mmap.mmap(f.fileno(), 8192)
m[100] = 7
assert os.pread(f.fileno(), 1, 100) == b'\\x07'
print(os.getpid(), flush=True)
time.sleep(600)
";

/// Returns the processes that serve a private mount of the cluster.
fn daemons(cluster: &Embedded) -> Vec<i32> {
    let file = cluster.file();
    let is_daemon = |line: &[u8]| {
        let mut words = line.split(|byte| *byte == 0);
        words.any(|word| word == b"private-mount")
            && line
                .split(|byte| *byte == 0)
                .any(|word| Path::new(std::str::from_utf8(word).unwrap_or("")) == file)
    };
    let processes = std::fs::read_dir("/proc").expect("/proc").flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| is_daemon(&std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default())).collect()
}

/// Waits until `done`.
#[track_caller]
fn until(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + DEADLINE;
    while !done() {
        assert!(Instant::now() < end, "{what}: not after a minute");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn kill(pid: i32) {
    // SAFETY: a process that this test has started.
    unsafe { libc::kill(pid, libc::SIGKILL) };
}

/// Starts a program that maps a file, and returns `weft run` and the process id of the program.
fn mapper(cluster: &Embedded) -> (Child, i32) {
    started(cluster.running(["python3", "-c", MAPPER]))
}

fn started(mut run: Command) -> (Child, i32) {
    let mut run = run.stdout(Stdio::piped()).spawn().expect("weft starts");
    let mut line = String::new();
    BufReader::new(run.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
    let pid = line.trim().parse().expect("the program says its process id");
    (run, pid)
}

#[test]
fn nothing_stays_when_the_program_or_the_daemon_is_killed() {
    if !mounts::possible() {
        return;
    }
    needs("python3");
    let cluster = Embedded::started();
    assert_eq!(daemons(&cluster), Vec::<i32>::new());
    let before = std::fs::read_to_string("/proc/self/mounts").expect("mounts");
    // The program.
    let (mut run, program) = mapper(&cluster);
    assert_eq!(daemons(&cluster).len(), 1, "one daemon serves the program");
    assert_eq!(
        std::fs::read_to_string("/proc/self/mounts").expect("mounts"),
        before,
        "the mount has no place"
    );
    kill(program);
    run.wait().expect("weft run ends");
    until("the daemon ends with its last program", || daemons(&cluster).is_empty());
    let read = cluster.run(["python3", "-c", "print(open('/weft/mapped', 'rb').read()[100])"]);
    assert_eq!(read, "7\n", "bytes stored before the end are in the file");
    // `weft run`, then the program.
    let (mut run, program) = mapper(&cluster);
    run.kill().expect("our own child");
    run.wait().expect("our own child");
    kill(program);
    until("the daemon ends after weft run", || daemons(&cluster).is_empty());
    // The daemon: the next program gets another.
    let (mut run, program) = mapper(&cluster);
    daemons(&cluster).into_iter().for_each(kill);
    until("the daemon is gone", || daemons(&cluster).is_empty());
    let (mut second, other) = mapper(&cluster);
    assert_eq!(daemons(&cluster).len(), 1);
    for pid in [program, other] {
        kill(pid);
    }
    run.wait().expect("weft run ends");
    second.wait().expect("weft run ends");
    until("the second daemon ends", || daemons(&cluster).is_empty());
    assert_eq!(std::fs::read_to_string("/proc/self/mounts").expect("mounts"), before);
}

/// The daemon serves other programs too, so it depends on nothing of the first one.
#[test]
fn the_daemon_inherits_nothing_of_the_program_that_starts_it() {
    if !mounts::possible() {
        return;
    }
    needs("python3");
    let cluster = Embedded::started();
    let limited = "ulimit -S -f 2000 -n 300 -d 4000000; umask 077; cd /tmp; \
        FOREIGN=1 LD_FOREIGN=1 exec taskset -c 0 python3 -c \"$1\"";
    let (mut run, program) = started(cluster.running(["sh", "-c", limited, "sh", MAPPER]));
    let [daemon] = daemons(&cluster)[..] else { panic!("one daemon") };
    let read = |name: &str| std::fs::read_to_string(format!("/proc/{daemon}/{name}")).expect("of the daemon");
    let (limits, status) = (read("limits"), read("status"));
    for name in ["Max file size", "Max open files", "Max data size", "Max cpu time"] {
        let line = limits.lines().find_map(|line| line.strip_prefix(name)).expect("a limit");
        let [soft, hard] = [0, 1].map(|at| line.split_whitespace().nth(at));
        assert_eq!(soft, hard, "{name}: {line}");
    }
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).expect("a field").trim();
    assert_eq!(field("Umask:"), "0022");
    let own = std::fs::read_to_string("/proc/self/status").expect("status");
    let own = own.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).expect("a field");
    assert_eq!(field("Cpus_allowed_list:"), own.trim());
    let cwd = std::fs::read_link(format!("/proc/{daemon}/cwd")).expect("a directory");
    assert_eq!(cwd, Path::new("/"));
    let environment = std::fs::read(format!("/proc/{daemon}/environ")).expect("variables");
    let environment = String::from_utf8_lossy(&environment);
    assert!(environment.contains("HOME=") && !environment.contains("FOREIGN"), "{environment}");
    kill(program);
    run.wait().expect("weft run ends");
    until("the daemon ends", || daemons(&cluster).is_empty());
}

/// A daemon that hangs costs a program one bounded wait.
#[test]
fn a_daemon_that_does_not_answer_is_given_up() {
    if !mounts::possible() {
        return;
    }
    needs("python3");
    let program = "\
import mmap, errno
f = open('/weft/m', 'w+b'); f.truncate(4096)
for _ in range(5):
    try: mmap.mmap(f.fileno(), 4096); print('mapped')
    except OSError as e: print(errno.errorcode[e.errno])
";
    let cluster = Embedded::started();
    let (mut run, first) = mapper(&cluster);
    let [daemon] = daemons(&cluster)[..] else { panic!("one daemon") };
    // SAFETY: a process of this test's cluster.
    unsafe { libc::kill(daemon, libc::SIGSTOP) };
    let output = cluster.running(["python3", "-c", program]).output().expect("weft starts");
    // SAFETY: as above.
    unsafe { libc::kill(daemon, libc::SIGCONT) };
    let said = shown(&output);
    assert!(output.status.success() && said.matches("ENODEV").count() == 5, "{said}");
    assert_eq!(said.matches("its daemon does not answer").count(), 1, "{said}");
    kill(first);
    run.wait().expect("weft run ends");
    until("the daemon ends", || daemons(&cluster).is_empty());
}

/// SQLite shares the index of its write-ahead log by a mapping, among processes.
#[test]
fn sqlite_uses_its_write_ahead_log_from_several_processes() {
    if !mounts::possible() {
        return;
    }
    let program = "\
import os, sqlite3
d = sqlite3.connect('/weft/wal.db', timeout=60)
print(d.execute('pragma journal_mode=wal').fetchone()[0])
d.execute('create table t (i integer)'), d.commit(), d.close()
children = []
for child in range(3):
    pid = os.fork()
    if pid == 0:
        d = sqlite3.connect('/weft/wal.db', timeout=60)
        for i in range(20):
            d.execute('insert into t values (?)', (i,)), d.commit()
        os._exit(0)
    children.append(pid)
assert all(os.waitpid(pid, 0)[1] == 0 for pid in children)
d = sqlite3.connect('/weft/wal.db')
print(d.execute('select count(*), sum(i) from t').fetchone(), d.execute('pragma integrity_check').fetchone()[0])
";
    let cluster = Embedded::started();
    assert_eq!(cluster.run(["python3", "-c", program]), "wal\n(60, 570) ok\n");
    let again = "import sqlite3; print(sqlite3.connect('/weft/wal.db').execute('select count(*) from t').fetchone()[0])";
    assert_eq!(cluster.run(["python3", "-c", again]), "60\n");
}

/// Where no mount is possible, one line says what to do, and the program gets an error that it can handle.
#[test]
fn without_a_mount_a_line_says_what_to_do() {
    needs("python3");
    // The failure is remembered: there is no second attempt, even if it would succeed now.
    let program = "\
import mmap, errno, subprocess, sys
f = open('/weft/m', 'w+b'); f.truncate(4096)
for _ in range(2):
    try: mmap.mmap(f.fileno(), 4096); print('mapped')
    except OSError as e: print(errno.errorcode[e.errno])
    subprocess.run(['umount', '/dev/fuse'], check=False, capture_output=True)
subprocess.run([sys.executable, '-c', '''
import mmap
f = open('/weft/m', 'r+b'); mmap.mmap(f.fileno(), 4096); print('another process')'''])
";
    if !skip::unless_root("a mount namespace") {
        return;
    }
    let cluster = Embedded::started();
    // In a private mount namespace the device is another, and fusermount3 is hidden.
    let hidden = "mount --bind /dev/null /dev/fuse && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", hidden, "sh"]);
    let inner = cluster.running(["python3", "-c", program]);
    command.arg(inner.get_program()).args(inner.get_args());
    for (name, value) in inner.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let output = command.output().expect("unshare (util-linux)");
    let said = shown(&output);
    assert!(output.status.success() && said.matches("ENODEV").count() == 2, "{said}");
    assert!(said.contains("no private mount") && said.contains("weft mount"), "{said}");
    assert!(said.contains("/weft/m: shared mapping"), "the file is named: {said}");
    assert!(said.contains("/dev/fuse is not the FUSE device"), "so is the cause: {said}");
    assert_eq!(said.matches("no private mount").count(), 1, "{said}");
    assert_eq!(said.matches("another process").count(), usize::from(mounts::possible()), "{said}");
}
