//! Starts the agent, detached from the command that starts it.

use super::lock::{AgentLock, Holder};
use super::queue::Queue;
use crate::failure::Failure;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use weft_core::ByteLen;

/// Maximum time that the agent may take to start.
const START_TIMEOUT: Duration = Duration::from_secs(10);
/// Length of the log in bytes from which a starting agent begins a new one. The last one is kept.
const LOG_LEN_MAX: u64 = 1 << 20;

/// Result of a start.
pub enum Started {
    /// A new process runs, or has done all jobs already.
    Now(u32),
    /// An agent runs already.
    Before(Holder),
}

/// Path of the log of detached agents.
pub fn log_file(dir: &Path) -> PathBuf {
    dir.join("log")
}

/// Starts the agent unless one runs. With `once`, it ends when the queue is empty.
///
/// # Errors
/// The agent does not start.
pub fn start(queue: &Queue, once: bool, rate: Option<ByteLen>) -> Result<Started, Failure> {
    queue.create()?;
    if let Some(holder) = AgentLock::holder(queue.dir())? {
        return Ok(Started::Before(holder));
    }
    let mut child = spawn(queue, once, rate)?;
    let pid = child.id();
    let begin = Instant::now();
    let advice = || format!("see {}", log_file(queue.dir()).display());
    loop {
        match AgentLock::holder(queue.dir())? {
            Some(holder) if holder.pid == Some(pid as i32) => return Ok(Started::Now(pid)),
            // Another one, or one that has not written its number yet.
            Some(_) | None => {}
        }
        let ended = child.try_wait().map_err(|error| Failure::new("weft agent", error))?;
        if let Some(status) = ended {
            return match (status.code(), AgentLock::holder(queue.dir())?) {
                (Some(code), _) if code == 0 || once && code == i32::from(crate::failure::FAILED) => {
                    Ok(Started::Now(pid))
                }
                (_, Some(holder)) => Ok(Started::Before(holder)),
                _ => Err(Failure::new("weft agent", format!("it ended at once ({status})")).remedy(advice())),
            };
        }
        if begin.elapsed() > START_TIMEOUT {
            let why = format!("it did not start within {} s", START_TIMEOUT.as_secs());
            return Err(Failure::new("weft agent", why).remedy(advice()));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Starts the agent for queued jobs and returns its process. Says nothing if there are none or it cannot be started.
pub fn start_if_queued() -> Option<Child> {
    start_for_jobs(&Queue::of_user().ok()?)
}

/// Like [`start_if_queued`], unless `weft agent stop` has stopped the agent and nothing has started it since.
pub fn start_unless_stopped() -> Option<Child> {
    let queue = Queue::of_user().ok()?;
    if queue.is_stopped() { None } else { start_for_jobs(&queue) }
}

fn start_for_jobs(queue: &Queue) -> Option<Child> {
    let is_waiting = queue.list().is_ok_and(|listing| listing.jobs.iter().any(|(_, job)| !job.has_failed()));
    let is_free = || AgentLock::holder(queue.dir()).is_ok_and(|holder| holder.is_none());
    // `weft agent start` reports why it cannot be started.
    if is_waiting && is_free() { spawn(queue, true, None).ok() } else { None }
}

fn spawn(queue: &Queue, once: bool, rate: Option<ByteLen>) -> Result<Child, Failure> {
    let path = log_file(queue.dir());
    let failed = |error: std::io::Error| Failure::new(path.display(), error);
    if path.metadata().is_ok_and(|meta| meta.len() > LOG_LEN_MAX) {
        std::fs::rename(&path, path.with_extension("old")).map_err(failed)?;
    }
    let log = crate::logging::append(&path).map_err(failed)?;
    let program =
        std::env::current_exe().map_err(|error| Failure::new("finding this program's own file", error))?;
    let mut command = Command::new(program);
    command.args(["agent", "run"]);
    if once {
        command.arg("--once");
    }
    if let Some(rate) = rate {
        command.arg(format!("--rate={}", rate.0));
    }
    command.current_dir("/").env_remove("LD_PRELOAD");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    // SAFETY: all calls are safe between fork and exec, and the set is a local. Descriptors of the caller must not stay
    // open in the agent. They are closed at exec and not at once, because the standard library needs one until then.
    unsafe {
        command.pre_exec(|| {
            libc::setsid();
            libc::close_range(3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC as libc::c_int);
            // `weft run` blocks signals.
            let mut none = std::mem::zeroed();
            libc::sigemptyset(&raw mut none);
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
            Ok(())
        });
    }
    command.spawn().map_err(|error| Failure::new("weft agent", error))
}
