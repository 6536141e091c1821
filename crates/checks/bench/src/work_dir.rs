//! Fresh directories for the measured work, on Weft and on plain file systems.

use crate::target::inode_path;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use weft_client::Client;
use weft_core::Integrity;
use weft_env::real::{RealEnv, block_on};
use weft_wire::meta::FileType;

/// Creates a directory in Weft and returns its name below the root.
///
/// If `integrity` is given, it becomes the directory's setting of checksums at rest.
///
/// # Errors
/// Returns the client's error from `mkdir` or `setxattr`.
pub fn fresh_in_weft(client: &Client<RealEnv>, integrity: Option<Integrity>) -> io::Result<String> {
    let failed = |error: weft_client::Error| io::Error::other(error.to_string());
    let name = format!("bench-{}-{}", std::process::id(), next_number());
    block_on(client.mkdir(&inode_path(&name), 0o755)).map_err(failed)?;
    if let Some(integrity) = integrity {
        let word = integrity.word().as_bytes();
        block_on(client.set_xattr(&inode_path(&name), "user.weft.integrity", word, false, false))
            .map_err(failed)?;
    }
    Ok(name)
}

/// Removes a directory of Weft with its contents, as far as possible.
pub fn remove_in_weft(client: &Client<RealEnv>, dir: &str) {
    while let Ok((entries, more)) = block_on(client.list(&inode_path(dir), &[], 1000, false)) {
        let mut removed = false;
        for entry in entries {
            let path = format!("{dir}/{}", String::from_utf8_lossy(&entry.name));
            if entry.kind == FileType::Directory {
                remove_in_weft(client, &path);
                removed = true;
            } else {
                removed |= block_on(client.unlink(&inode_path(&path))).is_ok();
            }
        }
        if !more || !removed {
            break;
        }
    }
    let _ = block_on(client.rmdir(&inode_path(dir)));
}

/// A directory on a plain file system, in which rounds create directories.
pub struct WorkDir {
    root: PathBuf,
    created: bool,
}

impl WorkDir {
    /// Uses the directory `path`, or a temporary directory that is removed at the end.
    ///
    /// # Errors
    /// Fails if the directory cannot be created.
    pub fn new(path: Option<&Path>) -> io::Result<Self> {
        let root = match path {
            Some(path) => path.to_owned(),
            None => std::env::temp_dir().join(format!("weft-bench-control-{}", std::process::id())),
        };
        let created = !root.exists();
        std::fs::create_dir_all(&root)?;
        Ok(Self { root, created })
    }

    /// Creates a fresh directory and returns its path.
    ///
    /// # Errors
    /// Fails if the directory cannot be created.
    pub fn fresh_dir(&self) -> io::Result<String> {
        let dir = self.root.join(format!("round-{}-{}", std::process::id(), next_number()));
        std::fs::create_dir(&dir)?;
        Ok(dir.to_string_lossy().into_owned())
    }
}

impl Drop for WorkDir {
    fn drop(&mut self) {
        if self.created {
            let _ = std::fs::remove_dir_all(&self.root);
        }
    }
}

fn next_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
