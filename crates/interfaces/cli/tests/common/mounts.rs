//! Mounts for tests.

use super::skip::skip;
use super::{Embedded, needs};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// Returns whether this system can mount with FUSE, and skips the test if it cannot.
pub fn possible() -> bool {
    if let Err(error) = std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse") {
        skip(format_args!("/dev/fuse: {error}; run modprobe fuse, or chmod 666 /dev/fuse"));
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
        Self::with(cluster, name, None)
    }

    /// Mounts `cluster` on a new directory, with an option.
    pub fn with(cluster: &Embedded, name: &str, option: Option<&str>) -> Self {
        let dir = cluster.local(name);
        std::fs::create_dir(&dir).expect("made");
        cluster.weft(["mount"].into_iter().chain(option).chain([dir.to_str().expect("text")]));
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

/// Aborts mounts on which a system call hangs, because no signal ends it. It is a process of its own: a hanging call may
/// hold the lock of the memory of its whole process.
pub struct Watchdog(Child);

/// Reads lines until the end, or prints the last one and aborts.
const WATCH: &str = r#"
connections=/sys/fs/fuse/connections
while :; do
    read -r -t "$1" line; result=$?
    [ $result -eq 0 ] || break
    last=$line
done
[ $result -gt 128 ] || exit 0
echo "no answer within $1 s: $last" >&2
shift
[ -e "$connections/$1/abort" ] || { mount -t fusectl fusectl $connections && mounted=yes; }
for device; do echo 1 > "$connections/$device/abort"; done
[ -z "$mounted" ] || umount $connections
"#;

impl Watchdog {
    /// Watches mounts. Expects a call of [`Self::expect`] at least every `limit_s` seconds.
    pub fn new<'a>(mounts: impl IntoIterator<Item = &'a Mounted>, limit_s: u32) -> Self {
        let device =
            |mount: &Mounted| libc::minor(std::fs::metadata(&mount.0).expect("mounted").dev()).to_string();
        let mut command = Command::new("bash");
        command.args(["-c", WATCH, "watch", &limit_s.to_string()]).args(mounts.into_iter().map(device));
        Self(command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("bash starts"))
    }

    /// Begins something that should end within the limit.
    pub fn expect(&self, what: &str) {
        let mut pipe = self.0.stdin.as_ref().expect("piped");
        // A watchdog that has aborted has ended.
        let _ = pipe.write_all(format!("{what}\n").as_bytes());
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}
