//! Directories of jobs on this host: creation, listing and removal.

use crate::failure::Failure;
use std::fs::DirBuilder;
use std::io::Read;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
pub use weft_config::host_name;

/// Maximum length of a Unix socket's path in bytes, without the terminating zero.
const SOCKET_PATH_MAX: usize = 107;
/// Longest name of a socket in a job directory.
const SOCKET_NAME_LEN: usize = "/d4095.sock".len();
/// Link from the local directory of a job's sockets to its job directory.
const LINK: &str = "job";

/// Returns the user of this process.
pub fn uid() -> u32 {
    // SAFETY: geteuid has no preconditions and cannot fail.
    unsafe { libc::geteuid() }
}

fn prefix() -> String {
    format!("weft-job-{}-", uid())
}

/// Returns the directories that may contain job directories: `XDG_RUNTIME_DIR`, then the one for temporary files.
fn bases() -> Vec<PathBuf> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|dir| {
        dir.is_absolute() && std::fs::metadata(dir).is_ok_and(|meta| meta.is_dir() && meta.uid() == uid())
    });
    let bases = [runtime, Some(std::env::temp_dir())].into_iter().flatten();
    let mut short: Vec<_> =
        bases.filter(|base| is_short(base, &(prefix() + "0000000000-00000000"))).collect();
    if short.is_empty() {
        short.push("/tmp".into());
    }
    short
}

/// Whether the sockets of a job directory have short enough paths.
fn is_short(base: &Path, name: &str) -> bool {
    base.as_os_str().len() + 1 + name.len() + SOCKET_NAME_LEN <= SOCKET_PATH_MAX
}

/// Returns a directory for a job's files or sockets whose paths are short enough for sockets.
fn place(name: &str) -> Result<PathBuf, Failure> {
    let base = bases().into_iter().find(|base| is_short(base, name));
    base.map(|base| base.join(name))
        .ok_or_else(|| Failure::new(name, "no directory for temporary files has a short enough path"))
}

/// Creates a private job directory with a name of its own.
pub fn create() -> Result<PathBuf, Failure> {
    let mut random = [0; 4];
    let read = std::fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut random));
    read.map_err(|error| Failure::new("/dev/urandom", error))?;
    let name = format!("{}{}-{:08x}", prefix(), std::process::id(), u32::from_le_bytes(random));
    let dir = place(&name)?;
    DirBuilder::new().mode(0o700).create(&dir).map_err(|error| {
        Failure::new(dir.display(), error).remedy("set XDG_RUNTIME_DIR or TMPDIR to a writable directory")
    })?;
    Ok(dir)
}

/// Creates the job directory that the user named, unless it exists, and checks that it is private.
pub fn open(dir: &Path) -> Result<PathBuf, Failure> {
    let dir = std::path::absolute(dir).map_err(|error| Failure::misuse(dir.display(), error))?;
    match DirBuilder::new().mode(0o700).create(&dir) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            return Err(Failure::new(dir.display(), error)
                .remedy("name a directory that all hosts of the job share; its parent must exist"));
        }
        _ => {}
    }
    weft_config::job::check_job_dir(&dir)?;
    Ok(dir)
}

/// Creates the local directory for the sockets of job `name`, with a link to its job directory.
pub fn sockets(name: &str, job: &Path) -> Result<PathBuf, Failure> {
    let dir = place(&(prefix() + name))?;
    match DirBuilder::new().mode(0o700).create(&dir) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            return Err(Failure::new(dir.display(), error));
        }
        _ => {}
    }
    weft_config::job::check_job_dir(&dir)?;
    let _ = std::os::unix::fs::symlink(job, dir.join(LINK)); // another delegate of the job may have made it
    Ok(dir)
}

/// Removes the local directory of sockets, if no delegate of this host has one in it.
pub fn remove_sockets(dir: &Path) {
    // An attempt to remove the directory fails as long as it contains a socket; then the link is made again.
    let Ok(job) = std::fs::read_link(dir.join(LINK)) else { return };
    if sockets_in(dir).next().is_none() {
        let _ = std::fs::remove_file(dir.join(LINK)); // another delegate may have removed it
        if std::fs::remove_dir(dir).is_err() {
            let _ = std::os::unix::fs::symlink(job, dir.join(LINK)); // for `weft status` only
        }
    }
}

fn sockets_in(dir: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.filter(|path| path.extension().is_some_and(|extension| extension == "sock"))
}

/// Whether a process accepts connections at one of the sockets in `dir`.
fn is_used(dir: &Path) -> bool {
    sockets_in(dir).any(|socket| std::os::unix::net::UnixStream::connect(socket).is_ok())
}

/// Removes a job directory that `weft run` created, with all files, unless a delegate still serves there.
pub fn remove(dir: &Path) -> Result<(), Failure> {
    let is_own = dir.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&prefix()));
    if !is_own || is_used(dir) {
        return Ok(());
    }
    match std::fs::remove_dir_all(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Failure::new(dir.display(), error)),
        _ => Ok(()),
    }
}

/// Returns the directories of this user's jobs on this host.
pub fn list() -> Vec<PathBuf> {
    let entries =
        bases().into_iter().flat_map(|base| std::fs::read_dir(base).into_iter().flatten().flatten());
    let mut dirs: Vec<_> = entries
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix()))
        .map(|entry| std::fs::read_link(entry.path().join(LINK)).unwrap_or_else(|_| entry.path()))
        .filter(|dir| dir.join(weft_config::job::JOB_FILE).exists())
        .filter(|dir| weft_config::job::check_job_dir(dir).is_ok())
        .collect();
    dirs.sort();
    dirs.dedup();
    dirs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_created_directory_is_private_short_and_removed() {
        let dir = create().expect("created");
        weft_config::job::check_job_dir(&dir).expect("private");
        assert!(dir.as_os_str().len() + SOCKET_NAME_LEN <= SOCKET_PATH_MAX);
        assert!(!list().contains(&dir), "a job without delegates does not count");
        std::fs::write(dir.join(weft_config::job::JOB_FILE), "").expect("written");
        assert!(list().contains(&dir));
        let socket = std::os::unix::net::UnixListener::bind(dir.join("d0.sock")).expect("bound");
        remove(&dir).expect("left");
        assert!(dir.exists(), "a delegate serves there");
        drop(socket);
        remove(&dir).expect("removed");
        assert!(!dir.exists());
    }

    #[test]
    fn only_own_directories_are_removed() {
        let dir = tempfile::tempdir().expect("a directory");
        remove(dir.path()).expect("left");
        assert!(dir.path().exists());
    }

    #[test]
    fn sockets_of_a_job_lead_to_its_directory() {
        let job = tempfile::tempdir().expect("a directory");
        let name = format!("job-test{}", std::process::id());
        let dir = sockets(&name, job.path()).expect("created");
        assert_eq!(sockets(&name, job.path()).expect("shared"), dir);
        std::fs::write(dir.join("d1.sock"), "").expect("written");
        remove_sockets(&dir);
        assert!(dir.exists());
        std::fs::remove_file(dir.join("d1.sock")).expect("removed");
        remove_sockets(&dir);
        assert!(!dir.exists());
    }
}
