//! Attempts from inside the sandboxed reader of Darshan logs, as code of a malicious log would make them.

mod common;

use common::{HELPER, data};
use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

/// Returns `errno` by attempt, and the missing layers of the sandbox.
fn attempts(command: &mut Command) -> (BTreeMap<String, i32>, String) {
    let out = command.output().expect("the helper runs");
    assert!(out.status.success(), "{out:?}");
    let text = String::from_utf8(out.stdout).expect("text");
    let mut lines = text.lines();
    let missing = lines.next().and_then(|line| line.strip_prefix("missing ")).expect("the first line");
    let attempt = |line: &str| {
        let (what, errno) = line.split_once(' ').expect("an attempt and a number");
        (what.to_owned(), errno.parse().expect("a number"))
    };
    (lines.map(attempt).collect(), missing.to_owned())
}

#[test]
fn the_reader_cannot_open_files_or_sockets_or_start_processes() {
    let dir = tempfile::tempdir().expect("a directory");
    let other = dir.path().join("other");
    std::fs::write(&other, "secret").expect("written");
    let log = data("mpi-io-test-32ranks-dxt.darshan");
    let (tried, missing) = attempts(Command::new(HELPER).arg("sandbox").arg(&log).arg(&other));
    assert!(!missing.contains("seccomp") && !missing.contains("no-new-privs"), "{missing}");
    for what in ["read-log", "map-memory"] {
        assert_eq!(tried[what], 0, "{what}: the reader must be able to do this");
    }
    for what in [
        "write-log",
        "create",
        "remove",
        "rename",
        "tcp-socket",
        "unix-socket",
        "exec",
        "fork",
        "signal",
        "trace",
        "map-code",
    ] {
        assert_eq!(tried[what], libc::EPERM, "{what}: {tried:?}");
    }
    for what in ["read-other", "read-passwd", "list"] {
        // On a kernel without Landlock, the helper reports that.
        match missing.contains("Landlock") {
            true => assert_eq!(tried[what], 0, "{what}"),
            false => assert_eq!(tried[what], libc::EACCES, "{what}"),
        }
    }
    assert_eq!(std::fs::read_to_string(&other).expect("untouched"), "secret");
    assert!(!other.with_extension("new").exists());
}

#[test]
fn the_reader_is_sandboxed_while_it_reads_a_log() {
    if common::without_darshan() {
        return;
    }
    let log = data("mpi-io-test-32ranks-dxt.darshan");
    let mut command = Command::new(HELPER);
    command.args(["darshan-reader", "summary"]).arg(&log);
    // The reader blocks before its end, because standard output is a full pipe.
    let mut pipe = [0; 2];
    // SAFETY: the array has room for two descriptors, which this test owns.
    unsafe {
        assert_eq!(libc::pipe2(pipe.as_mut_ptr(), libc::O_CLOEXEC), 0);
        let room = libc::fcntl(pipe[1], libc::F_GETPIPE_SZ) as usize;
        let bytes = vec![0u8; room];
        assert_eq!(libc::write(pipe[1], bytes.as_ptr().cast(), room), room as isize);
        let out = pipe[1];
        command.pre_exec(
            move || {
                if libc::dup2(out, 1) < 0 { Err(std::io::Error::last_os_error()) } else { Ok(()) }
            },
        );
    }
    let mut child = command.spawn().expect("the helper runs");
    let status_of = format!("/proc/{}/status", child.id());
    let until = Instant::now() + Duration::from_secs(60);
    let field = |status: &str, name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.map(|rest| rest.trim_start_matches(':').trim().to_owned())
    };
    let status = loop {
        let status = std::fs::read_to_string(&status_of).expect("it is there");
        if field(&status, "Seccomp").as_deref() == Some("2") {
            break status;
        }
        assert!(Instant::now() < until, "no seccomp filter: {status}");
        std::thread::yield_now();
    };
    assert_eq!(field(&status, "NoNewPrivs").as_deref(), Some("1"));
    child.kill().expect("it blocks on the pipe");
    child.wait().expect("ended");
    // SAFETY: this test owns both descriptors and no longer uses them.
    unsafe {
        libc::close(pipe[0]);
        libc::close(pipe[1]);
    }
}
