//! Mounts for tests.

use super::{Embedded, needs};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns whether this system can mount with FUSE, and prints the reason if it cannot.
pub fn possible() -> bool {
    if !Path::new("/dev/fuse").exists() {
        println!("SKIPPED: this system has no /dev/fuse (modprobe fuse)");
        return false;
    }
    needs("fusermount3");
    true
}

/// A directory on which a cluster is mounted until the end of the test.
pub struct Mounted(pub PathBuf);

impl Mounted {
    /// Mounts `cluster` on a new directory.
    pub fn new(cluster: &Embedded, name: &str) -> Self {
        let dir = cluster.local(name);
        std::fs::create_dir(&dir).expect("made");
        cluster.weft(["mount", dir.to_str().expect("text")]);
        Self(dir)
    }

    /// Returns a path on the mount.
    pub fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Unmounts the directory; a second call has no effect.
    pub fn end(&self) {
        let _ = Command::new("fusermount3").args(["-u", "-z", "-q"]).arg(&self.0).output();
    }
}

/// Unmounts even when the test fails, because the removal of the test's directory must not enter a mount.
impl Drop for Mounted {
    fn drop(&mut self) {
        self.end();
    }
}
