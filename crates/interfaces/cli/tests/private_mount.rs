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
    let mut run = cluster.running(["python3", "-c", MAPPER]);
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
    let program = "\
import mmap, errno
f = open('/weft/m', 'w+b'); f.truncate(4096)
for _ in range(2):
    try: mmap.mmap(f.fileno(), 4096); print('mapped')
    except OSError as e: print(errno.errorcode[e.errno])
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
    assert_eq!(said.matches("no private mount").count(), 1, "{said}");
}
