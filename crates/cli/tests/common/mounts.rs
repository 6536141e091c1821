//! Mounts for tests.

use super::{Embedded, needs};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Whether this system can mount by FUSE; says why not.
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

    /// A path on the mount.
    pub fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Takes the mount away; once more does no harm.
    pub fn end(&self) {
        let _ = Command::new("fusermount3").args(["-u", "-z", "-q"]).arg(&self.0).output();
    }
}

/// Also when the test fails: what removes the test's directory must not walk into a mount.
impl Drop for Mounted {
    fn drop(&mut self) {
        self.end();
    }
}
