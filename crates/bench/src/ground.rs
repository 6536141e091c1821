//! Where the work happens: fresh directories on Weft and on plain file systems.

use crate::target::place;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use weft_client::Client;
use weft_core::Integrity;
use weft_env::real::{RealEnv, block_on};
use weft_wire::meta::FileType;

/// Makes a new directory in Weft; its name below the root. Its files get checksums at rest as `integrity` says.
///
/// # Errors
/// Errors of mkdir(2) and setxattr(2).
pub fn fresh_in_weft(client: &Client<RealEnv>, integrity: Option<Integrity>) -> io::Result<String> {
    let failed = |error: weft_client::Error| io::Error::other(error.to_string());
    let name = format!("bench-{}-{}", std::process::id(), fresh_number());
    block_on(client.mkdir(&place(&name), 0o755)).map_err(failed)?;
    if let Some(integrity) = integrity {
        let word = integrity.word().as_bytes();
        block_on(client.set_xattr(&place(&name), "user.weft.integrity", word, false, false))
            .map_err(failed)?;
    }
    Ok(name)
}

/// Removes a directory of Weft and all that it holds, as far as that can be done.
pub fn remove_in_weft(client: &Client<RealEnv>, dir: &str) {
    while let Ok((entries, more)) = block_on(client.list(&place(dir), &[], 1000, false)) {
        let mut removed = false;
        for entry in entries {
            let path = format!("{dir}/{}", String::from_utf8_lossy(&entry.name));
            if entry.kind == FileType::Directory {
                remove_in_weft(client, &path);
                removed = true;
            } else {
                removed |= block_on(client.unlink(&place(&path))).is_ok();
            }
        }
        if !more || !removed {
            break;
        }
    }
    let _ = block_on(client.rmdir(&place(dir)));
}

/// The plain local directory, or any other that is reached by system calls.
pub struct Plain {
    root: PathBuf,
    made: bool,
}

impl Plain {
    /// Uses `wanted`, or a directory of its own below that of temporary files.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn new(wanted: Option<&Path>) -> io::Result<Self> {
        let root = match wanted {
            Some(path) => path.to_owned(),
            None => std::env::temp_dir().join(format!("weft-bench-control-{}", std::process::id())),
        };
        let made = !root.exists();
        std::fs::create_dir_all(&root)?;
        Ok(Self { root, made })
    }

    /// A new directory in it.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn fresh(&self) -> io::Result<String> {
        let dir = self.root.join(format!("round-{}-{}", std::process::id(), fresh_number()));
        std::fs::create_dir(&dir)?;
        Ok(dir.to_string_lossy().into_owned())
    }
}

impl Drop for Plain {
    fn drop(&mut self) {
        if self.made {
            let _ = std::fs::remove_dir_all(&self.root);
        }
    }
}

fn fresh_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
