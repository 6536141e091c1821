//! `weft mount` and `weft umount`.

use super::session::{Weft, why};
use crate::failure::Failure;
use crate::logging::Log;
use crate::signals::Blocked;
use clap::{Args, FromArgMatches};
use std::ffi::CString;
use std::io::BufRead;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use weft_config::Cluster;
use weft_core::Nanos;
use weft_env::real::block_on;

const AFTER: &str = "\
Without a cluster file, this mounts the cluster that `weft run` keeps on this machine. It is created and started if
necessary, and its servers do not end while it is mounted.

Every program works on a mount, including static ones, programs that map files shared, and programs stored on it. A
mount needs /dev/fuse and, unless root runs it, fusermount3 (Debian: fuse3). The preload library (`weft run`) is
faster.

The mount runs in the background until `weft umount DIR`. -f keeps it in the foreground and ends it on an interrupt.

Examples:
  weft mount ~/weft
  weft mount -f --read-only /mnt/weft
  sudo weft mount --allow-other /weft     for all users, with their own permissions";

/// Mounts the cluster as a directory for all programs, by FUSE.
#[derive(Args, Debug)]
#[command(after_long_help = AFTER)]
pub struct Mount {
    /// Stay in the foreground
    #[arg(short = 'f', long)]
    foreground: bool,
    /// Let other users in; users other than root need user_allow_other in /etc/fuse.conf
    #[arg(long)]
    pub(super) allow_other: bool,
    /// Allow no changes
    #[arg(long)]
    pub(super) read_only: bool,
    /// Let no program be executed
    #[arg(long)]
    pub(super) no_exec: bool,
    /// Threads that serve the kernel [default: the number of processors, 4 to 16; 8 if servers are on other hosts]
    #[arg(long, value_name = "N")]
    pub(super) threads: Option<usize>,
    /// Time for which the kernel may cache names and attributes; with 0, changes of other nodes are visible at once
    #[arg(long, default_value = "0", value_name = "TIME", value_parser = super::duration)]
    pub(super) attribute_ttl: Nanos,
    /// Never let the kernel cache pages
    #[arg(long)]
    pub(super) no_page_cache: bool,
    /// Mount over a directory that is not empty; its contents are hidden until the mount ends
    #[arg(long)]
    pub(super) nonempty: bool,
    /// Append the reasons of failed requests to this file [default: standard error in the foreground,
    /// ~/.local/state/weft/mounts/DIR.log in the background]
    #[arg(long, value_name = "FILE")]
    pub(super) log: Option<PathBuf>,
    /// Print "ready" when the mount is usable
    #[arg(long, hide = true)]
    announce: bool,
    /// The mount point, an empty directory
    pub(super) dir: PathBuf,
}

impl Mount {
    /// Returns a mount on `dir` with the defaults of the options.
    pub(super) fn on(dir: &std::path::Path) -> Self {
        let command = Self::augment_args(clap::Command::new("mount"));
        let args = [std::ffi::OsStr::new("mount"), std::ffi::OsStr::new("--"), dir.as_os_str()];
        let matches = command.try_get_matches_from(args).expect("a directory is all that a mount needs");
        Self::from_arg_matches(&matches).expect("the arguments are those of the command")
    }

    /// Runs the command.
    pub fn run(self, file: Option<PathBuf>) -> Result<u8, Failure> {
        if !self.foreground {
            let code = self.start(file)?;
            if code == 0 {
                let dir = std::path::absolute(&self.dir).unwrap_or_else(|_| self.dir.clone());
                println!("{} is mounted; `weft umount {}` ends it", dir.display(), super::quoted_path(&dir));
            }
            return Ok(code);
        }
        self.check_dir()?;
        let weft = Weft::for_mount(super::load_or_start(file)?, !self.no_page_cache)?;
        let _used = crate::embedded::used(&weft.cluster)?;
        self.open_log()?;
        // Keeps idle servers from ending while no program reads or writes.
        let _held = crate::embedded::hold(&weft.cluster)?;
        // Report an unreachable cluster now, not at the first access.
        block_on(weft.client.fetch_map()).map_err(|error| Failure::new(self.dir.display(), why(&error)))?;
        let signals = Blocked::new(&[libc::SIGTERM, libc::SIGINT, libc::SIGHUP]);
        let options = weft_fuse::MountOptions {
            allow_other: self.allow_other,
            read_only: self.read_only,
            no_exec: self.no_exec,
            threads: self.threads,
            attribute_ttl: self.attribute_ttl.as_duration(),
            page_cache: !self.no_page_cache,
        };
        let mount = weft_fuse::mount(weft.client, &self.dir, &options).map_err(|error| {
            let remedy = weft_fuse::device::remedy(&error);
            Failure::new(self.dir.display(), format!("it cannot be mounted: {error}")).remedy(remedy)
        })?;
        if self.announce {
            println!("ready");
            detach_output();
        }
        let dir = self.dir.clone();
        std::thread::spawn(move || {
            signals.wait();
            let _ = unmount(&dir, false); // a busy mount stays; `weft umount` will tell the user why
        });
        mount.join().map_err(|error| Failure::new(self.dir.display(), error))?;
        Ok(0)
    }

    /// Sends reasons of errors and news of servers to the log file, if there is one.
    fn open_log(&self) -> Result<(), Failure> {
        let Some(file) = &self.log else { return Ok(()) };
        let name = self.dir.display().to_string();
        if default_log(&self.dir).as_deref() == Some(file.as_path())
            && let Some(dir) = file.parent()
        {
            weft_config::check_private_dir(dir)?;
        }
        let log = Log::open(&name, Some(file), weft_config::LogLevel::Info);
        let log =
            log.map_err(|error| Failure::new(file.display(), error).remedy("name another file with --log"))?;
        let _ = LOG.set(log);
        weft_fuse::failures::set_log(|line| log_line(&format!("error: {line}")));
        weft_client::set_log(|line| match weft_client::is_end_of_outage(line) {
            true => log_line(line),
            false => log_line(&format!("warn: {line}")),
        });
        Ok(())
    }

    /// Refuses a directory that cannot be a mount point or is not empty, because a mount hides its files.
    fn check_dir(&self) -> Result<(), Failure> {
        let failed = |why: &dyn std::fmt::Display, remedy: String| {
            Err(Failure::new(self.dir.display(), why).remedy(remedy))
        };
        let dir = super::quoted_path(&self.dir);
        let mut entries = match std::fs::read_dir(&self.dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return failed(&super::posix(libc::ENOENT), format!("make the directory: `mkdir {dir}`"));
            }
            Err(error) if error.raw_os_error() == Some(libc::ENOTCONN) => {
                let why = "a mount whose process has ended is there";
                return failed(&why, format!("`weft umount {dir}` removes it"));
            }
            Err(error) => {
                let why = error.raw_os_error().map_or_else(|| error.to_string(), super::posix);
                return failed(&why, "name an empty directory".to_owned());
            }
        };
        let at = self.dir.canonicalize().unwrap_or_default().to_string_lossy().into_owned();
        if mounted().iter().any(|(_, there)| *there == at) {
            let why = "a cluster is mounted there already";
            return failed(&why, format!("`weft umount {dir}` ends that mount"));
        }
        if !self.nonempty && entries.next().is_some() {
            let remedy =
                "name an empty directory, or give --nonempty: the directory's contents are then hidden";
            return failed(&"the directory is not empty", remedy.to_owned());
        }
        Ok(())
    }

    /// Starts this command in the foreground of a new session, and waits until it serves. Returns its exit code if it
    /// does not; it has printed the reason.
    pub(super) fn start(&self, file: Option<PathBuf>) -> Result<u8, Failure> {
        use std::os::unix::process::CommandExt;
        let failed = |error: std::io::Error| Failure::new(self.dir.display(), error);
        self.check_dir()?;
        let cluster = super::load_or_start(file)?;
        let dir = std::path::absolute(&self.dir).map_err(failed)?;
        let mut command = Command::new(std::env::current_exe().map_err(failed)?);
        command.arg("--cluster").arg(std::path::absolute(&cluster.file).map_err(failed)?);
        command.args(["mount", "-f", "--announce"]);
        if let Some(threads) = self.threads {
            command.args(["--threads", &threads.to_string()]);
        }
        command.args(["--attribute-ttl", &weft_config::format_duration(self.attribute_ttl)]);
        for (given, flag) in [
            (self.allow_other, "--allow-other"),
            (self.read_only, "--read-only"),
            (self.no_exec, "--no-exec"),
            (self.no_page_cache, "--no-page-cache"),
            (self.nonempty, "--nonempty"),
        ] {
            if given {
                command.arg(flag);
            }
        }
        if let Some(log) = self.log.as_ref().map(std::path::absolute).transpose().map_err(failed)? {
            command.arg("--log").arg(log);
        } else if let Some(log) = default_log(&dir) {
            command.arg("--log").arg(log);
        }
        command.arg("--").arg(&dir).env_remove("LD_PRELOAD").current_dir("/");
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        // SAFETY: setsid is safe between fork and exec.
        unsafe {
            command.pre_exec(|| {
                libc::setsid();
                Ok(())
            });
        }
        let mut child = command.spawn().map_err(failed)?;
        let mut line = String::new();
        if let Some(out) = child.stdout.take() {
            std::io::BufReader::new(out).read_line(&mut line).map_err(failed)?;
        }
        if line.trim() == "ready" {
            return Ok(0);
        }
        let status = child.wait().map_err(failed)?;
        Ok(status.code().unwrap_or(1).max(1) as u8)
    }
}

/// Returns the default log of the mount on `dir`: a file beside the state of embedded clusters, named after the
/// directory. `None` without a home directory.
fn default_log(dir: &std::path::Path) -> Option<PathBuf> {
    let state = weft_config::default_state_dir()?;
    let name = dir.to_string_lossy().trim_start_matches('/').replace('/', "-");
    Some(state.parent()?.join("mounts").join(format!("{name}.log")))
}

/// The log of this process, once it is open.
static LOG: OnceLock<Log> = OnceLock::new();

fn log_line(line: &str) {
    if let Some(log) = LOG.get() {
        log.line(line);
    }
}

/// Failed requests of a mount with one reason.
pub struct FailedRequests {
    /// Number of requests.
    pub count: u64,
    /// Seconds since the last one.
    pub ago_s: u64,
    /// Path of the last one below the mount. May be empty.
    pub path: String,
    /// Reason and remedy.
    pub reason: String,
}

/// Asks the mount on `dir` for the reasons of failed requests. Returns nothing if it does not answer in time.
pub fn failed_requests(dir: &str, deadline: std::time::Duration) -> Vec<FailedRequests> {
    let (send, received) = std::sync::mpsc::channel();
    let dir = dir.to_owned();
    // In a thread, because all threads of the mount may be waiting for a server.
    std::thread::spawn(move || drop(send.send(report(&dir))));
    let report = received.recv_timeout(deadline).unwrap_or_default();
    let line = |line: &str| {
        let mut parts = line.splitn(4, '\t');
        let mut next = || parts.next();
        Some(FailedRequests {
            count: next()?.parse().ok()?,
            ago_s: next()?.parse().ok()?,
            path: next()?.to_owned(),
            reason: next()?.to_owned(),
        })
    };
    report.lines().filter_map(line).collect()
}

fn report(dir: &str) -> String {
    let (Ok(path), Ok(name)) = (CString::new(dir), CString::new(weft_fuse::failures::ATTRIBUTE)) else {
        return String::new();
    };
    let mut value = vec![0u8; 1 << 16];
    // SAFETY: two C strings, and a buffer of the length that is given.
    let len = unsafe { libc::getxattr(path.as_ptr(), name.as_ptr(), value.as_mut_ptr().cast(), value.len()) };
    value.truncate(usize::try_from(len).unwrap_or(0));
    String::from_utf8_lossy(&value).into_owned()
}

/// Closes the pipes of the parent process, so that it can end.
pub(super) fn detach_output() {
    // SAFETY: the path is a C string; the descriptors are this process's own.
    unsafe {
        let null = libc::open(c"/dev/null".as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
        if null >= 0 {
            libc::dup2(null, 1);
            libc::dup2(null, 2);
            libc::close(null);
        }
    }
}

/// Ends a mount.
#[derive(Args)]
#[command(after_long_help = "Examples:\n  weft umount ~/weft\n  weft umount --lazy /mnt/weft")]
pub struct Umount {
    /// Hide it at once, and end it when it is no longer in use
    #[arg(short = 'l', long)]
    lazy: bool,
    /// The mount point
    dir: PathBuf,
}

impl Umount {
    /// Ends the mount.
    pub fn run(self) -> Result<u8, Failure> {
        unmount(&self.dir, self.lazy)?;
        Ok(0)
    }
}

/// Ends the mount on `dir`.
pub(super) fn unmount(dir: &std::path::Path, lazy: bool) -> Result<(), Failure> {
    let dir = std::path::absolute(dir).map_err(|error| Failure::new(dir.display(), error))?;
    let text = dir.to_string_lossy().into_owned();
    if mounted().iter().all(|(_, at)| *at != text) {
        return Err(Failure::misuse(dir.display(), "no cluster is mounted there")
            .remedy("see /proc/self/mounts for lines that begin with weft:"));
    }
    // SAFETY: geteuid has no preconditions and cannot fail.
    let root = unsafe { libc::geteuid() } == 0;
    let mut command = Command::new(if root { "umount" } else { "fusermount3" });
    if !root {
        command.arg("-u");
    }
    if lazy {
        command.arg(if root { "-l" } else { "-z" });
    }
    let done = command.arg(&dir).output().map_err(|error| Failure::new(dir.display(), error))?;
    if !done.status.success() {
        let why = String::from_utf8_lossy(&done.stderr).trim().to_owned();
        return Err(
            Failure::new(dir.display(), why).remedy("`lsof +f -- DIR` shows its users; --lazy does not wait")
        );
    }
    Ok(())
}

/// Returns names and mount points of the clusters mounted on this host.
pub fn mounted() -> Vec<(String, String)> {
    let mounts = std::fs::read("/proc/self/mounts").unwrap_or_default();
    let ours = |line: &str| match line.split(' ').collect::<Vec<_>>()[..] {
        // The type is fuse or fuse.weft, depending on whether root or fusermount3 mounted it. The source is the same.
        [source, at, kind, ..] if kind.starts_with("fuse") => {
            Some((unescape(source.strip_prefix("weft:")?), unescape(at)))
        }
        _ => None,
    };
    String::from_utf8_lossy(&mounts).lines().filter_map(ours).collect()
}

/// Returns the mount points of clusters with the name of this one.
pub fn of(cluster: &Cluster) -> Vec<String> {
    mounted().into_iter().filter(|(name, _)| *name == cluster.name).map(|(_, at)| at).collect()
}

/// Decodes the octal escapes of `/proc/mounts`.
fn unescape(text: &str) -> String {
    text.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
}
