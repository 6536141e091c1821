//! `weft run`: a program with the preload library, on a cluster that is started when none is configured.

use super::trace::{Parts, trace_paths};
use crate::embedded;
use crate::failure::{FAILED, Failure};
use crate::preloadable;
use crate::signals::{self, Blocked};
use clap::Args;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use weft_config::Cluster;

const AFTER: &str = "\
Without a cluster file, `weft run` keeps a cluster of its own on this machine: four servers, two with targets of
class hdd and two of class ssd, under ~/.local/state/weft/default. It is started when it does not run, used again
by the next `weft run`, and its servers end when nobody has used them for ten minutes. Files stay.

The program sees Weft's files under /weft (`mount` in the cluster file). It is not changed: a library that is loaded
before the C library serves these paths and leaves all others alone. Programs without the C library (static ones)
need `weft mount`.

Its exit code is passed on, 128 + N when signal N ended it. Signals that reach `weft run` are passed on to it.

With --trace, what the program and all that it starts do to files, of Weft and of any other file system, is recorded:
rank, operation, offset, length, begin and end. docs/traces.md says what is seen, what is not, and what it costs.
--trace-paths leaves only files below a path (Weft's always stay); without it, all regular files but those of the
system (/usr, /etc, /proc and the like) and shared libraries. --no-cluster starts no servers: for programs that do
not use Weft yet.

Examples:
  weft run -- mpiexec -n 4 ./simulate --out /weft/result.h5
  weft run ls -l /weft
  weft run --fresh -- ./first-step          with nothing left of earlier runs
  weft run --state /scratch/me/weft -- sh   a shell on a cluster that lies on another disk
  weft run --trace app.wtrace -- mpiexec -n 4 ./app
  weft run --trace app.wtrace --no-cluster --trace-paths /scratch -- ./app";

/// Runs a program on Weft.
#[derive(Args)]
#[command(after_long_help = AFTER)]
pub struct Run {
    /// Where the embedded cluster keeps its state; uses it even when a cluster file is configured
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Empty the embedded cluster first: all its files are lost
    #[arg(long)]
    fresh: bool,
    /// End embedded servers after this time without use
    #[arg(long, value_name = "TIME", value_parser = super::duration)]
    idle_exit: Option<weft_core::Nanos>,
    /// Record what the program does to files there, a trace for `weft trace`, `weft plan` and `weft replay`
    #[arg(long, value_name = "FILE.wtrace")]
    trace: Option<PathBuf>,
    /// Record files below this path only, beside Weft's; may be given more than once
    #[arg(long, value_name = "PATH", requires = "trace")]
    trace_paths: Vec<PathBuf>,
    /// Start and use no cluster: record a program that does not use Weft
    #[arg(long, requires = "trace", conflicts_with_all = ["state", "fresh", "idle_exit"])]
    no_cluster: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

impl Run {
    /// Runs it; the code to end with.
    pub fn run(self, cluster_file: Option<PathBuf>) -> Result<u8, Failure> {
        let library = preload_library()?;
        let name = &self.program[0];
        let mut command = Command::new(name);
        command.args(&self.program[1..]);
        if self.no_cluster {
            environment(&mut command, library.as_os_str(), Path::new("/weft"));
            return self.traced(command);
        }
        let cluster = self.cluster(cluster_file)?;
        let _used = embedded::used(&cluster)?;
        // Idle servers would end while the program computes before its first use: this holds them.
        let _held = embedded::hold(&cluster)?;
        command.env("WEFT_CLUSTER", &cluster.file);
        environment(&mut command, library.as_os_str(), &cluster.mount);
        if let Some((file, why)) = preloadable::hindrance(name) {
            let mount = cluster.mount.display();
            eprintln!(
                "{}",
                Failure::new(file.display(), format!("this program will not see {mount}: {why}"))
                    .remedy("`weft mount DIR` shows the same files to every program")
            );
        }
        self.traced(command)
    }

    /// Runs it, and makes the trace of what it did, if one was asked for.
    fn traced(&self, mut command: Command) -> Result<u8, Failure> {
        let Some(file) = &self.trace else {
            let (signals, child) = self.begun(command)?;
            return to_its_end(&signals, child);
        };
        let paths = trace_paths(&self.trace_paths)?;
        let parts = Parts::new(file, &self.program)?;
        parts.trace(&mut command, paths);
        let (signals, child) = match self.begun(command) {
            Ok(begun) => begun,
            Err(failure) => {
                parts.give_up();
                return Err(failure);
            }
        };
        let code = to_its_end(&signals, child);
        parts.finish();
        code
    }

    /// Begins it, with signals passed on to it from then on.
    fn begun(&self, mut command: Command) -> Result<(Blocked, Child), Failure> {
        let signals = Blocked::new(&[
            libc::SIGINT,
            libc::SIGTERM,
            libc::SIGHUP,
            libc::SIGQUIT,
            libc::SIGUSR1,
            libc::SIGUSR2,
            libc::SIGCHLD,
        ]);
        let name = &self.program[0];
        let child = signals.spawn(&mut command).map_err(|error| {
            let code = if error.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 };
            Failure::new(name.to_string_lossy(), error)
                .remedy("is it spelled right and executable?")
                .code(code)
        })?;
        Ok((signals, child))
    }

    /// The embedded cluster at its usual place, running.
    pub fn embedded_cluster() -> Result<Cluster, Failure> {
        embedded::ensure(&embedded::state_dir(None)?, false, None)
    }

    fn cluster(&self, file: Option<PathBuf>) -> Result<Cluster, Failure> {
        let configured = match (&self.state, file) {
            (Some(_), Some(_)) => {
                return Err(Failure::misuse("--state and --cluster", "they name two different clusters")
                    .remedy("give one of them"));
            }
            (Some(_), None) => None,
            (None, Some(file)) => Some(file),
            (None, None) => Cluster::configured(),
        };
        if let Some(file) = configured {
            let cluster = Cluster::load(&file)?;
            if cluster.embedded.is_none() {
                if self.fresh {
                    return Err(Failure::misuse("--fresh", "only an embedded cluster is ever emptied")
                        .remedy(format!("{} is used; name a state directory with --state", file.display())));
                }
                return Ok(cluster);
            }
        }
        let state = embedded::state_dir(self.state.clone())?;
        embedded::ensure(&state, self.fresh, self.idle_exit)
    }
}

/// Waits for its end; the code to end with.
fn to_its_end(signals: &Blocked, mut child: Child) -> Result<u8, Failure> {
    loop {
        let signal = signals.wait();
        if signal.number == libc::SIGCHLD {
            let status = child.try_wait().map_err(|error| Failure::new("waiting for the program", error))?;
            if let Some(status) = status {
                let by_signal = status.signal().map_or(i32::from(FAILED), |signal| 128 + signal);
                return Ok(status.code().unwrap_or(by_signal) as u8);
            }
        } else if signal.sent {
            signals::send(child.id() as i32, signal.number);
        }
    }
}

/// What the program needs beside the cluster file.
pub(super) fn environment(command: &mut Command, library: &OsStr, mount: &Path) {
    let mut preload = library.to_owned();
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        // A run inside a run loads the library once.
        for other in
            others.to_string_lossy().split([':', ' ']).filter(|other| *other != library.to_string_lossy())
        {
            preload.push(":");
            preload.push(other);
        }
    }
    command.env("LD_PRELOAD", preload);
    command.env("WEFT_MOUNT", mount);
    // UCX, under MPICH and Open MPI, patches mmap in memory and so passes the library by.
    if std::env::var_os("UCX_MEM_MMAP_HOOK_MODE").is_none() {
        command.env("UCX_MEM_MMAP_HOOK_MODE", "none");
    }
}

/// The preload library that belongs to this program.
pub fn preload_library() -> Result<PathBuf, Failure> {
    const NAME: &str = "libweft_preload.so";
    if let Some(named) = std::env::var_os("WEFT_PRELOAD").filter(|named| !named.is_empty()) {
        return Ok(named.into());
    }
    let program =
        std::env::current_exe().map_err(|error| Failure::new("finding this program's own file", error))?;
    let beside = program.parent().unwrap_or(&program);
    let places = [beside.join(NAME), beside.join("../lib").join(NAME), beside.join("../lib/weft").join(NAME)];
    places.iter().find(|place| place.exists()).and_then(|place| place.canonicalize().ok()).ok_or_else(|| {
        Failure::new(NAME, format!("it is neither in {} nor in ../lib", beside.display())).remedy(
            "build it with `cargo build -p weft-preload`, run `make install`, or name it with WEFT_PRELOAD",
        )
    })
}
