//! Where replicas of files lie: directories with a folder `.weft/replicas`, listed for each user.
//!
//! `weft replicate` maintains the list; `weft run` passes it to its programs in [`REPLICAS_VARIABLE`].

use crate::embedded::user_state_dir;
use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Directories with replicas, separated by colons.
pub const REPLICAS_VARIABLE: &str = "WEFT_REPLICAS";
/// Folder of the replicas in such a directory.
pub const REPLICAS_FOLDER: &str = ".weft/replicas";
/// Variables with the number of processes that a launcher started. That of a SLURM step comes before that of the allocation.
pub const RANK_COUNT_VARIABLES: [&str; 4] =
    ["PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"];

/// Returns the number of processes that a launcher started, by these environment variables; `None` if none of them says it.
pub fn rank_count(variable: impl Fn(&str) -> Option<String>) -> Option<u32> {
    RANK_COUNT_VARIABLES.iter().find_map(|name| variable(name)?.trim().parse().ok())
}

/// Returns the file with the list: `replicas` beside the state directory of the embedded cluster. `None` without a home
/// directory.
pub fn replica_list() -> Option<PathBuf> {
    Some(user_state_dir()?.join("replicas"))
}

/// Returns the directories of the list.
///
/// # Errors
/// Errors of the file system, but for a missing file.
pub fn replica_directories(list: &Path) -> io::Result<Vec<PathBuf>> {
    match std::fs::read(list) {
        Ok(text) => {
            let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
            Ok(lines.map(|line| PathBuf::from(OsStr::from_bytes(line))).collect())
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Adds a directory to the list, or removes it.
///
/// # Errors
/// Errors of the file system; `InvalidInput` for a path with a colon or a line break.
pub fn list_replica_directory(list: &Path, directory: &Path, is_used: bool) -> io::Result<()> {
    let bytes = directory.as_os_str().as_bytes();
    if bytes.iter().any(|byte| matches!(byte, b':' | b'\n')) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a path with a colon or a line break"));
    }
    let folder = list.parent().unwrap_or(list);
    std::fs::create_dir_all(folder)?;
    // Released when the file is closed.
    let lock = std::fs::OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(list.with_extension("lock"))?;
    lock.lock()?;
    let mut all = replica_directories(list)?;
    if all.iter().any(|known| known == directory) == is_used {
        return Ok(());
    }
    match is_used {
        true => all.push(directory.to_owned()),
        false => all.retain(|known| known != directory),
    }
    let draft = list.with_extension("new");
    let mut file = std::fs::File::create(&draft)?;
    for known in &all {
        file.write_all(known.as_os_str().as_bytes())?;
        file.write_all(b"\n")?;
    }
    file.sync_all()?;
    std::fs::rename(&draft, list)
}

/// Returns the value of [`REPLICAS_VARIABLE`] for these directories.
pub fn replicas_value(directories: &[PathBuf]) -> OsString {
    let parts: Vec<&[u8]> = directories.iter().map(|dir| dir.as_os_str().as_bytes()).collect();
    OsString::from_vec(parts.join(&b':'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_listed_once_and_removed() {
        let dir = tempfile::tempdir().expect("a directory");
        let list = dir.path().join("state/weft/replicas");
        assert!(replica_directories(&list).expect("no list").is_empty());
        for place in ["/scratch/a", "/scratch/b", "/scratch/a"] {
            list_replica_directory(&list, Path::new(place), true).expect("listed");
        }
        let all = replica_directories(&list).expect("the list");
        assert_eq!(replicas_value(&all), "/scratch/a:/scratch/b");
        list_replica_directory(&list, Path::new("/scratch/a"), false).expect("removed");
        list_replica_directory(&list, Path::new("/scratch/a"), false).expect("removed already");
        assert_eq!(replica_directories(&list).expect("the list"), [PathBuf::from("/scratch/b")]);
        let refused = list_replica_directory(&list, Path::new("/a:b"), true).expect_err("a colon");
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
    }
}
