//! Clusters of `weft serve` processes that a test starts and kills.

use super::{Weft, end_of, succeeded};
use std::fmt::Write as _;
use std::io::Read;
use std::ops::Deref;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

/// Servers with one target each. The first server also has the metadata.
pub struct Servers {
    dir: tempfile::TempDir,
    weft: Weft,
    running: Vec<Option<Child>>,
}

impl Deref for Servers {
    type Target = Weft;

    fn deref(&self) -> &Weft {
        &self.weft
    }
}

impl Servers {
    /// Starts `count` servers. `target` has further lines of each `[[server.target]]`, `ibridge` the lines of its
    /// `[server.target.ibridge]` if it is not empty, and `rest` the other sections of the file.
    pub fn started(count: usize, target: &str, ibridge: &str, rest: &str) -> Self {
        Self::of_classes(&vec!["hdd"; count], "", target, ibridge, rest)
    }

    /// Like [`started`](Self::started), with a class for each target, and `server` as further lines of each
    /// `[[server]]`.
    pub fn of_classes(classes: &[&str], server: &str, target: &str, ibridge: &str, rest: &str) -> Self {
        let targets: Vec<_> = classes.iter().map(|class| (*class, target)).collect();
        Self::of(&targets, server, ibridge, rest)
    }

    /// Like [`started`](Self::started), with a class and further lines for each target.
    pub fn of(targets: &[(&str, &str)], server: &str, ibridge: &str, rest: &str) -> Self {
        let count = targets.len();
        let dir = tempfile::Builder::new().prefix("weft-test-").tempdir().expect("a directory");
        let at = dir.path().display();
        let mut text = format!(
            "[cluster]
name = \"test\"
key_file = \"{at}/key\"
"
        );
        for (id, (class, target)) in targets.iter().enumerate() {
            let _ = writeln!(text, "[[server]]\nname = \"s{id}\"\naddress = \"unix:{at}/run{id}/socket\"");
            let _ = writeln!(text, "log = \"{at}/log{id}\"\n{server}");
            if id == 0 {
                let _ = writeln!(text, "[server.metadata]\npath = \"{at}/metadata\"");
            }
            let _ = writeln!(
                text,
                "[[server.target]]\nid = {id}\nclass = \"{class}\"\npath = \"{at}/target{id}\""
            );
            let _ = writeln!(text, "{target}");
            if !ibridge.is_empty() {
                let _ = writeln!(text, "[server.target.ibridge]\npath = \"{at}/ssd{id}\"\n{ibridge}");
            }
        }
        let _ = writeln!(text, "{rest}");
        let weft = Weft { file: dir.path().join("cluster.toml") };
        std::fs::write(weft.file(), text).expect("written");
        let mut servers = Self { dir, weft, running: (0..count).map(|_| None).collect() };
        succeeded(super::undisturbed().args(["key", "make"]).arg(servers.path("key")));
        for id in 0..count {
            assert!(
                servers.try_start_with(id, &["--format"]),
                "server {id} does not start: {}",
                servers.log(id)
            );
        }
        servers
    }

    /// Adds a server with one target to the cluster file and returns its number. The directory of the target exists and
    /// is blank.
    pub fn named(&mut self, class: &str) -> usize {
        let id = self.running.len();
        let at = self.dir.path().display();
        let mut text = std::fs::read_to_string(self.file()).expect("the cluster file");
        let _ = writeln!(text, "[[server]]\nname = \"s{id}\"\naddress = \"unix:{at}/run{id}/socket\"");
        let _ = writeln!(text, "log = \"{at}/log{id}\"");
        let _ =
            writeln!(text, "[[server.target]]\nid = {id}\nclass = \"{class}\"\npath = \"{at}/target{id}\"");
        self.rewrite(&text);
        std::fs::create_dir(self.path(&format!("target{id}"))).expect("a mount point");
        self.running.push(None);
        id
    }

    /// Replaces the cluster file at once: programs that start meanwhile read the former one or this one.
    pub fn rewrite(&self, text: &str) {
        let new = self.path("cluster.new");
        std::fs::write(&new, text).expect("written");
        std::fs::rename(&new, self.file()).expect("renamed");
    }

    /// Returns the cluster file without one of its servers.
    pub fn text_without(&self, id: usize) -> String {
        let text = std::fs::read_to_string(self.file()).expect("the cluster file");
        let name = format!("\nname = \"s{id}\"");
        let parts = text.split("[[server]]").filter(|part| !part.starts_with(&name));
        parts.collect::<Vec<_>>().join("[[server]]")
    }

    /// Returns a path of the cluster, such as `target0`, `ssd0` or `log0`.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Returns the log of a server.
    pub fn log(&self, id: usize) -> String {
        std::fs::read_to_string(self.path(&format!("log{id}"))).unwrap_or_default()
    }

    /// Returns the number of servers.
    pub fn len(&self) -> usize {
        self.running.len()
    }

    /// Starts a server, which must succeed.
    #[track_caller]
    pub fn start(&mut self, id: usize) {
        assert!(self.try_start(id), "server {id} does not start: {}", self.log(id));
    }

    /// Starts a server and returns whether it serves.
    pub fn try_start(&mut self, id: usize) -> bool {
        self.try_start_with(id, &[])
    }

    /// Starts a server with further arguments and returns whether it serves.
    pub fn try_start_with(&mut self, id: usize, args: &[&str]) -> bool {
        let mut command = self.command(["serve", &format!("s{id}"), "--announce"]);
        command.args(args);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("weft starts");
        let mut said = [0; 5];
        let serves = child.stdout.take().expect("piped").read_exact(&mut said).is_ok() && &said == b"ready";
        if serves {
            self.running[id] = Some(child);
        } else {
            let _ = child.wait();
        }
        serves
    }

    /// Sends a signal to a running server.
    pub fn send(&self, id: usize, signal: i32) {
        if let Some(child) = &self.running[id] {
            // SAFETY: a process that this test started and has not waited for.
            unsafe { libc::kill(child.id() as i32, signal) };
        }
    }

    /// Returns whether the test started this server and has not ended it.
    pub fn is_running(&self, id: usize) -> bool {
        self.running[id].is_some()
    }

    fn wait(&mut self, id: usize) -> bool {
        self.running[id].take().is_some_and(|mut child| child.wait().is_ok_and(|status| status.success()))
    }

    /// Kills a server with SIGKILL.
    pub fn kill(&mut self, id: usize) {
        self.send(id, libc::SIGKILL);
        self.wait(id);
    }

    /// Stops a server in order with SIGTERM.
    #[track_caller]
    pub fn stop(&mut self, id: usize) {
        self.send(id, libc::SIGTERM);
        assert!(self.wait(id), "server {id} does not stop in order: {}", self.log(id));
    }

    /// Returns the SSD entry of each target in `weft status --json`.
    pub fn ssds(&self) -> Vec<serde_json::Value> {
        let servers = self.status().into_iter();
        let targets = servers.flat_map(|status| status["targets"].as_array().expect("targets").clone());
        targets.map(|target| target["ssd"].clone()).collect()
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for id in 0..self.len() {
                end_of(&self.path(&format!("log{id}")));
            }
        }
        for id in 0..self.len() {
            self.kill(id);
        }
    }
}

/// Returns the process ids of the servers of the cluster file `file`.
pub fn running(file: &Path) -> Vec<i32> {
    let of_ours = |pid: &i32| {
        let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let mut words = words.split(|byte| *byte == 0);
        words.clone().any(|word| word == b"serve")
            && words.any(|word| word == file.as_os_str().as_encoded_bytes())
    };
    let all = std::fs::read_dir("/proc").expect("Linux").flatten();
    all.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(of_ours).collect()
}

/// Waits until every server of the cluster file `file` has ended, at most `limit` for each.
#[track_caller]
pub fn wait_until_ended(file: &Path, limit: Duration) {
    for pid in running(file) {
        // SAFETY: the call takes only numbers and returns a new descriptor or an error.
        let opened = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        if opened < 0 {
            let error = std::io::Error::last_os_error();
            assert_eq!(error.raw_os_error(), Some(libc::ESRCH), "server process {pid}: {error}");
            continue;
        }
        // SAFETY: the descriptor is new, and nothing else closes it.
        let process = unsafe { OwnedFd::from_raw_fd(opened as i32) };
        let mut ended = libc::pollfd { fd: process.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry, which outlives the call.
        let count = unsafe { libc::poll(&raw mut ended, 1, limit.as_millis() as i32) };
        assert_eq!(count, 1, "server process {pid} of {} has not ended within {limit:?}", file.display());
    }
}

/// Sets or clears the immutable flag of a file, with which the file system refuses writes even by open descriptors.
/// Returns `None` if the file system or the user cannot set it.
pub fn unwritable(path: &Path, is_set: bool) -> Option<()> {
    const IMMUTABLE: libc::c_long = 0x10;
    let file = std::fs::File::open(path).ok()?;
    let mut flags: libc::c_long = 0;
    // SAFETY: both requests take a pointer to a long, which outlives the calls.
    unsafe {
        if libc::ioctl(file.as_raw_fd(), libc::FS_IOC_GETFLAGS, &raw mut flags) != 0 {
            return None;
        }
        flags = if is_set { flags | IMMUTABLE } else { flags & !IMMUTABLE };
        (libc::ioctl(file.as_raw_fd(), libc::FS_IOC_SETFLAGS, &raw const flags) == 0).then_some(())
    }
}
