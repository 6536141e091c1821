//! The lock of the running agent. Only one runs for each user, also on several hosts with one home directory.

use crate::failure::Failure;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// The lock. Released when it is dropped, or when the process ends.
pub struct AgentLock {
    _file: File,
}

/// Process that holds the lock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Holder {
    /// Process id; `None` if the process has not written it yet.
    pub pid: Option<i32>,
    /// Host.
    pub host: String,
}

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.pid {
            Some(pid) => write!(f, "process {pid} on {}", self.host),
            None => f.write_str("a process that has just started"),
        }
    }
}

fn path(dir: &Path) -> PathBuf {
    dir.join("lock")
}

/// Returns a record lock on the whole file. The lock belongs to the open file description.
fn whole(kind: libc::c_int) -> libc::flock {
    // SAFETY: zeros are a valid `flock`.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock
}

impl AgentLock {
    /// Acquires the lock of the queue in `dir`. Returns the process that holds it, if one does.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn acquire(dir: &Path) -> Result<Result<Self, Holder>, Failure> {
        let path = path(dir);
        let failed = |error: io::Error| Failure::new(path.display(), error);
        let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let mut file = opened.map_err(failed)?;
        let lock = whole(libc::F_WRLCK);
        // SAFETY: an open descriptor, and a lock that lives through the call.
        if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) } != 0 {
            let error = io::Error::last_os_error();
            return match error.raw_os_error() {
                Some(libc::EAGAIN | libc::EACCES) => Ok(Err(said(&path))),
                _ => Err(failed(error).remedy(
                    "the agent needs record locks (fcntl) on the file system of its state directory",
                )),
            };
        }
        let text = format!("{} {}\n", std::process::id(), crate::job_dir::host_name());
        file.set_len(0).and_then(|()| file.write_all(text.as_bytes())).map_err(failed)?;
        Ok(Ok(Self { _file: file }))
    }

    /// Returns the process that holds the lock of the queue in `dir`, if one does. Never delays a process that acquires
    /// it.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn holder(dir: &Path) -> Result<Option<Holder>, Failure> {
        let path = path(dir);
        let failed = |error: io::Error| Failure::new(path.display(), error);
        let file = match OpenOptions::new().read(true).write(true).open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(failed)?,
        };
        let mut lock = whole(libc::F_WRLCK);
        // SAFETY: an open descriptor, and a lock that the call may change.
        if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) } != 0 {
            return Err(failed(io::Error::last_os_error()));
        }
        Ok((libc::c_int::from(lock.l_type) != libc::F_UNLCK).then(|| said(&path)))
    }
}

/// Reads what the holder has written.
fn said(path: &Path) -> Holder {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let whole = text.strip_suffix('\n').and_then(|text| text.split_once(' '));
    let (pid, host) = whole.unwrap_or_default();
    Holder { pid: pid.parse().ok().filter(|pid| *pid > 0), host: host.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_agent_holds_the_lock_and_is_named() {
        let dir = tempfile::tempdir().expect("a directory");
        assert_eq!(AgentLock::holder(dir.path()).expect("no lock"), None);
        let lock = AgentLock::acquire(dir.path()).expect("a lock").expect("free");
        let holder = Holder { pid: Some(std::process::id() as i32), host: crate::job_dir::host_name() };
        assert_eq!(AgentLock::holder(dir.path()).expect("a lock"), Some(holder.clone()));
        assert_eq!(AgentLock::acquire(dir.path()).expect("a lock").err(), Some(holder));
        drop(lock);
        assert_eq!(AgentLock::holder(dir.path()).expect("a lock"), None);
        assert!(AgentLock::acquire(dir.path()).expect("a lock").is_ok());
    }

    #[test]
    fn a_lock_without_text_names_no_process() {
        let dir = tempfile::tempdir().expect("a directory");
        for text in ["", "12", "12 host", "-1 host\n", "x host\n"] {
            std::fs::write(path(dir.path()), text).expect("written");
            assert_eq!(said(&path(dir.path())).pid, None, "{text:?}");
        }
    }
}
