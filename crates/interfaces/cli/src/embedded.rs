//! The embedded cluster that `weft run` keeps on this machine: creating, starting, holding and stopping it.

use crate::failure::Failure;
use crate::signals;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use weft_config::{Cluster, EmbeddedOptions, Server};
use weft_core::Nanos;
use weft_env::Address;

/// Maximum number of rounds that start missing servers. A server that is still missing is left to the next command.
const START_ROUNDS_MAX: usize = 3;
/// Maximum time that a server may take to start, including recovery of a large database.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum time that a server may take to stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(15);
/// Maximum time that a server may take to stop if it must write data from SSDs to disks.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(3600);

/// Returns the state directory that applies.
pub fn state_dir(named: Option<PathBuf>) -> Result<PathBuf, Failure> {
    let state = named.or_else(weft_config::default_state_dir).ok_or_else(|| {
        Failure::misuse("the embedded cluster", "there is no home directory to keep it in")
            .remedy("name a directory with --state DIR or WEFT_STATE")
    })?;
    let path = std::path::absolute(&state);
    path.and_then(|path| without_dots(&path)).map_err(|error| Failure::misuse(state.display(), error))
}

/// Returns the path without `..`, which cluster files reject. Names that do not exist yet stay as they are.
fn without_dots(path: &Path) -> std::io::Result<PathBuf> {
    if !path.components().any(|part| part == std::path::Component::ParentDir) {
        return Ok(path.to_owned());
    }
    match (path.canonicalize(), path.parent(), path.file_name()) {
        (Err(error), Some(parent), Some(name)) if error.kind() == std::io::ErrorKind::NotFound => {
            Ok(without_dots(parent)?.join(name))
        }
        (found, _, _) => found,
    }
}

/// Creates the embedded cluster under `state` if it is missing, starts its servers that do not run, and waits until
/// they serve. Concurrent callers wait for each other.
pub fn ensure(state: &Path, fresh: bool, idle_exit: Option<Nanos>) -> Result<Cluster, Failure> {
    weft_config::check_private_dir(state)?;
    let file = state.join("cluster.toml");
    if fresh && file.exists() {
        let cluster = Cluster::load(&file)?;
        if cluster.embedded.is_none() {
            return Err(Failure::misuse(
                file.display(),
                "this cluster was not made by `weft run`, nothing is removed",
            )
            .remedy("name another directory with --state"));
        }
        let _lock = lock(state)?;
        let _alone = alone(state)?;
        stop_servers(&cluster, false)?;
        empty(state)?;
    }
    let mut options = EmbeddedOptions::new(state.to_owned());
    options.idle_exit = idle_exit.unwrap_or(options.idle_exit);
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(state).map_err(|error| {
        Failure::new(state.display(), error).remedy("choose another place with --state DIR or WEFT_STATE")
    })?;
    let _lock = lock(state)?;
    let cluster = weft_config::write_embedded(&options)?;
    start_missing(&cluster)?;
    Ok(cluster)
}

/// Whether all servers of an embedded cluster run.
pub fn runs(cluster: &Cluster) -> bool {
    cluster.servers.iter().all(|server| pid(server).is_some())
}

/// Starts the servers of an embedded cluster that do not run.
pub fn revive(cluster: &Cluster) -> Result<(), Failure> {
    let Some(state) = &cluster.embedded else { return Ok(()) };
    weft_config::check_private_dir(state)?;
    if runs(cluster) {
        return Ok(());
    }
    let _lock = lock(state)?;
    start_missing(cluster)
}

/// Keeps idle servers of an embedded cluster from ending, as long as the result lives.
pub fn hold(cluster: &Cluster) -> Result<crate::commands::HeldConnections, Failure> {
    let mut tries = 0;
    loop {
        // A server may decide to end just before the connection is made.
        match crate::commands::HeldConnections::new(cluster) {
            Err(_) if cluster.embedded.is_some() && tries < 3 => {
                tries += 1;
                revive(cluster)?;
            }
            held => return held,
        }
    }
}

fn start_missing(cluster: &Cluster) -> Result<(), Failure> {
    let forming = cluster.embedded.as_ref().map(|state| weft_config::forming(state));
    let format = forming.as_ref().is_some_and(|mark| mark.exists());
    let missing = |has_metadata| {
        let of_role = cluster.servers.iter().filter(move |server| server.metadata.is_some() == has_metadata);
        of_role.filter(|server| pid(server).is_none())
    };
    // The metadata server first, because the others attach their targets there before they serve.
    let start_metadata = || {
        missing(true).try_for_each(|server| wait_ready(server, start(cluster, server, format)?, || Ok(())))
    };
    // A server that was just killed accepts connections until its process has ended, and seems to run until then. So each
    // round checks all servers again, after the others have started.
    for _ in 0..START_ROUNDS_MAX {
        start_metadata()?;
        // Start all, then wait for each: they start concurrently.
        let mut started = Vec::new();
        for server in missing(false) {
            started.push((server, start(cluster, server, format)?));
        }
        // Wait for all even if one has failed, so that the caller never sees half-started servers.
        let ended: Vec<_> =
            started.into_iter().map(|(server, child)| wait_ready(server, child, start_metadata)).collect();
        ended.into_iter().collect::<Result<(), _>>()?;
        if runs(cluster) {
            break;
        }
    }
    if let Some(mark) = forming.filter(|_| format) {
        std::fs::remove_file(&mark).map_err(|error| Failure::new(mark.display(), error))?;
    }
    Ok(())
}

/// Starts one server as a process that outlives this one.
fn start(cluster: &Cluster, server: &Server, format: bool) -> Result<Child, Failure> {
    let failed = |error: std::io::Error| Failure::new(format!("starting server {}", server.name), error);
    let program = std::env::current_exe().map_err(failed)?;
    let mut command = Command::new(program);
    command.arg("serve").arg("--cluster").arg(&cluster.file).arg("--announce");
    if format {
        command.arg("--format");
    }
    command.arg("--").arg(&server.name);
    command.current_dir("/").env_remove("LD_PRELOAD").stdin(Stdio::null()).stdout(Stdio::piped());
    match &server.log {
        // Messages that the server prints before it opens its log, such as a panic, go to the same file.
        Some(log) => {
            command.stderr(crate::logging::append(log).map_err(failed)?);
        }
        None => {
            command.stderr(Stdio::inherit());
        }
    }
    // SAFETY: both calls are safe between fork and exec. Descriptors of the caller (a lock, a pipe) must not stay open
    // in a server. They are closed at exec and not at once, because the standard library needs one of them until then.
    unsafe {
        command.pre_exec(|| {
            libc::setsid();
            libc::close_range(3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC as libc::c_int);
            Ok(())
        });
    }
    command.spawn().map_err(failed)
}

/// Waits until the server reports that it serves. Calls `while_waiting` every half a second.
fn wait_ready(
    server: &Server,
    mut child: Child,
    while_waiting: impl Fn() -> Result<(), Failure>,
) -> Result<(), Failure> {
    let Some(out) = child.stdout.take() else { unreachable!("stdout is piped") };
    let began = Instant::now();
    while !readable(&out, Duration::from_millis(500)) {
        if began.elapsed() > START_TIMEOUT {
            let why = format!("it did not start within {} s", START_TIMEOUT.as_secs());
            return Err(Failure::new(format!("server {}", server.name), why).remedy(log_advice(server)));
        }
        while_waiting()?;
    }
    let mut line = String::new();
    let _ = BufReader::new(out).read_line(&mut line); // an end without the word is handled below
    if line.trim() == "ready" {
        return Ok(());
    }
    let _ = child.wait();
    // Another process may have started the server first.
    if pid(server).is_some() {
        return Ok(());
    }
    Err(Failure::new(format!("server {}", server.name), "it ended immediately").remedy(log_advice(server)))
}

fn readable(out: &impl AsRawFd, timeout: Duration) -> bool {
    let mut poll = libc::pollfd { fd: out.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one pollfd that lives through the call.
    unsafe { libc::poll(&raw mut poll, 1, timeout.as_millis() as i32) > 0 }
}

/// Returns the log's path with its last lines.
fn log_advice(server: &Server) -> String {
    let Some(log) = &server.log else { return "see its messages above".to_owned() };
    let tail = (|| {
        let mut file = File::open(log).ok()?;
        let len = file.metadata().ok()?.len();
        file.seek(SeekFrom::Start(len.saturating_sub(2000))).ok()?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).ok()?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let lines: Vec<_> = text.lines().collect();
        Some(lines[lines.len().saturating_sub(5)..].join("\n  "))
    })();
    format!("see {}:\n  {}", log.display(), tail.unwrap_or_default())
}

/// Returns the process that listens on one of the server's Unix sockets, if there is one.
pub fn pid(server: &Server) -> Option<i32> {
    server.addresses.iter().find_map(|address| {
        let Address::Unix(path) = address else { return None };
        let stream = UnixStream::connect(path).ok()?;
        // SAFETY: ucred is plain data; the kernel writes at most `len` bytes of it.
        unsafe {
            let mut cred: libc::ucred = std::mem::zeroed();
            let mut len = size_of::<libc::ucred>() as libc::socklen_t;
            let got = libc::getsockopt(
                stream.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERCRED,
                (&raw mut cred).cast(),
                &raw mut len,
            );
            (got == 0 && cred.pid > 0).then_some(cred.pid)
        }
    })
}

/// Stops the servers of `cluster` on this machine and returns their names.
pub fn stop_servers(cluster: &Cluster, kill: bool) -> Result<Vec<String>, Failure> {
    let running: Vec<_> =
        cluster.servers.iter().filter_map(|server| Some((pid(server)?, server.name.clone()))).collect();
    if let Some((pid, name)) = running.iter().find(|(pid, _)| signals::send(*pid, 0) == Err(libc::EPERM)) {
        return Err(of_another_user(name, *pid));
    }
    for (pid, _) in &running {
        // One that has just ended is stopped, too.
        let _ = signals::send(*pid, if kill { libc::SIGKILL } else { libc::SIGTERM });
    }
    let began = Instant::now();
    let bridged = !kill && cluster.servers.iter().flat_map(|s| &s.targets).any(|t| t.log().is_some());
    let deadline = if bridged { DRAIN_TIMEOUT } else { STOP_TIMEOUT };
    let mut is_told = false;
    for (pid, name) in &running {
        // A zombie has ended, but its parent has not waited for it yet.
        while signals::exists(*pid) && !is_zombie(*pid) {
            if bridged && !is_told && began.elapsed() > Duration::from_secs(1) {
                is_told = true;
                errln!(
                    "server {name} is writing the data on its SSDs back to its disks; \
                     another `weft stop` leaves it there, as safe as it is"
                );
            }
            if began.elapsed() > deadline {
                let why = format!("process {pid} has not ended within {} s", deadline.as_secs());
                return Err(
                    Failure::new(format!("server {name}"), why).remedy("`weft stop --kill` ends it at once")
                );
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    Ok(running.into_iter().map(|(_, name)| name).collect())
}

/// Error for a server that this user may not stop.
fn of_another_user(name: &str, pid: i32) -> Failure {
    use std::os::unix::fs::MetadataExt;
    let owner = std::fs::metadata(format!("/proc/{pid}"))
        .map_or_else(|_| "another user".to_owned(), |found| format!("user {}", found.uid()));
    let why = format!("process {pid} belongs to {owner}; no server was stopped");
    Failure::new(format!("server {name}"), why).remedy("run `weft stop` as that user or as root")
}

fn is_zombie(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('Z'))
}

/// Removes the data of an embedded cluster. Only files that it creates itself are removed.
fn empty(state: &Path) -> Result<(), Failure> {
    for name in ["targets", "metadata", "log", "run"] {
        match std::fs::remove_dir_all(state.join(name)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(Failure::new(state.join(name).display(), error));
            }
            _ => {}
        }
    }
    for name in ["cluster.toml", "cluster.key", weft_config::FORMING] {
        match std::fs::remove_file(state.join(name)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(Failure::new(state.join(name).display(), error));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Marks the embedded cluster as used by a program, as long as the result lives.
pub fn used(cluster: &Cluster) -> Result<Option<File>, Failure> {
    let Some(state) = &cluster.embedded else { return Ok(None) };
    let (path, file) = users(state)?;
    flock(&file, libc::LOCK_SH).map_err(|error| Failure::new(path.display(), error))?;
    Ok(Some(file))
}

/// Marks the embedded cluster as used exclusively, or fails if a program uses it.
fn alone(state: &Path) -> Result<File, Failure> {
    let (path, file) = users(state)?;
    match flock(&file, libc::LOCK_EX | libc::LOCK_NB) {
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Err(Failure::new(
            state.display(),
            "a program that another `weft run` started uses this cluster, so it is not emptied",
        )
        .remedy("wait for that program, or name another place with --state DIR")),
        Err(error) => Err(Failure::new(path.display(), error)),
        Ok(()) => Ok(file),
    }
}

/// Opens the file whose locks mark the users of the cluster.
fn users(state: &Path) -> Result<(PathBuf, File), Failure> {
    let path = state.join("users");
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(&path);
    let file = file.map_err(|error| Failure::new(path.display(), error))?;
    Ok((path, file))
}

fn flock(file: &File, how: libc::c_int) -> std::io::Result<()> {
    loop {
        // SAFETY: an open descriptor; the call at most waits.
        if unsafe { libc::flock(file.as_raw_fd(), how) } == 0 {
            return Ok(());
        }
        let error = std::io::Error::last_os_error();
        if error.kind() != std::io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Acquires the lock for starting and stopping servers.
pub fn lock(state: &Path) -> Result<File, Failure> {
    let path = state.join("lock");
    let failed = |error| Failure::new(path.display(), error);
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(&path).map_err(failed)?;
    flock(&file, libc::LOCK_EX).map_err(failed)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_directory_may_be_written_with_dots() {
        let dir = tempfile::tempdir().expect("a directory");
        let real = dir.path().canonicalize().expect("it is there");
        std::fs::create_dir(real.join("a")).expect("made");
        for (written, meant) in [("a/../b", "b"), ("a/../b/c", "b/c"), ("a/..", ""), ("a", "a")] {
            let state = state_dir(Some(real.join(written))).unwrap_or_else(|failure| panic!("{failure}"));
            assert_eq!(state, real.join(meant));
        }
        assert!(
            state_dir(Some(real.join("none/.."))).is_err(),
            "the parent of a missing directory is unknown"
        );
    }
}
