//! `weft run`: runs a program with the preload library, and starts a cluster if none is configured.

mod auto;
mod delegates;

use super::agent;
use super::delegate::ranks::{self, Rank};
use super::replicate::{Catalog, synchronize_all};
use super::trace::{Parts, trace_paths};
use crate::embedded;
use crate::failure::{FAILED, Failure};
use crate::preloadable;
use crate::signals::{self, Blocked};
use clap::Args;
use delegates::{Delegates, Options};
use std::ffi::{OsStr, OsString};
use std::io::IsTerminal;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use weft_config::Cluster;
use weft_config::replicas::{REPLICAS_VARIABLE, replicas_value};

const AFTER: &str = "\
Without a cluster file, `weft run` keeps an embedded cluster on this machine: four servers, two with targets
of class hdd and two of class ssd, under ~/.local/state/weft/default. It is started if it does not run, and
the next `weft run` uses it again. Its servers end after ten minutes without use. Files stay.

The program sees Weft's files under /weft (`mount` in the cluster file). It is not modified: a library loaded before
the C library serves these paths and leaves all others alone. Programs without the C library glibc (static ones, those of
musl) need `weft mount`. A program on Weft itself runs from a copy in memory.

The exit code is that of the program, or 128 + N if signal N ended it. `weft run` passes signals on to the program.

With --trace, the file operations of the program and all its child processes are recorded, on Weft and on any other
file system: rank, operation, offset, length, begin and end. docs/reference/traces.md describes what is recorded and
the overhead. --trace-paths limits the trace to files below a path, in addition to Weft's files. Without it, all
regular files are recorded except those of the system (/usr, /etc, /proc and similar) and shared libraries.
--no-cluster starts no servers, for programs that do not use files of Weft.

Files on mounted file systems that have replicas (`weft replicate`) are read and written through these, with any options
but --no-replicas and --delegates. Interrupted synchronizations are completed before and after the program. If copies or moves
are queued, the agent (`weft help agent`) is started at the end.

With --delegates, a few I/O delegates run beside the program. They cache pages of files together and do the file I/O of
all ranks: many small, interleaved or collective writes become few large ones. `5%` is a share of the ranks that the
launcher on the command line starts (-n, -np, --ntasks). `auto` decides by a trace (--plan) and says why. --over DIR serves files of any mounted file system through
delegates, under their own paths; then no cluster is started unless --cluster, --state or a cluster file names one. When
the program has ended, the delegates write the rest and end; SIGQUIT ends them at once, and bytes are lost. --job DIR uses
delegates that run already. `weft help delegate` describes several hosts.

Examples:
  weft run -- mpiexec -n 4 ./simulate --out /weft/result.h5
  weft run ls -l /weft
  weft run /weft/bin/solver /weft/input
  weft run --fresh -- ./first-step          without files of earlier runs; asks first, unless --yes is given
  weft run --state /scratch/me/weft -- sh   a shell on a cluster on another disk
  weft run --trace app.wtrace -- mpiexec -n 4 ./app
  weft run --trace app.wtrace --no-cluster --trace-paths /scratch -- ./app
  weft run --delegates 2 --over /mnt/lustre/me -- mpiexec -n 64 ./app
  weft run --delegates 5% -- mpiexec -n 64 ./app /weft/out
  weft run --delegates auto --plan app.wtrace -- mpiexec -n 64 ./app /weft/out
  weft run --job ~/jobs/17 -- srun -n 64 ./app";

/// Runs a program on Weft.
#[derive(Args)]
#[command(after_long_help = AFTER)]
pub struct Run {
    /// State directory of the embedded cluster, which is used even if a cluster file is configured
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Empty the embedded cluster first: all its files are lost
    #[arg(long)]
    fresh: bool,
    /// With --fresh: remove the files without asking
    #[arg(long, requires = "fresh")]
    yes: bool,
    /// End embedded servers after this time without use
    #[arg(long, value_name = "TIME", value_parser = super::duration)]
    idle_exit: Option<weft_core::Nanos>,
    /// Record a trace of what the program does to files, for `weft trace`, `weft plan` and `weft replay`
    #[arg(long, value_name = "FILE.wtrace")]
    trace: Option<PathBuf>,
    /// Besides Weft's files, record only files below this path; repeatable
    #[arg(long, value_name = "PATH", requires = "trace")]
    trace_paths: Vec<PathBuf>,
    /// Start and use no cluster: for a program that does not use files of Weft
    #[arg(long, conflicts_with_all = ["state", "fresh", "idle_exit"])]
    no_cluster: bool,
    /// Do not use replicas of files on mounted file systems, and do not start the agent
    #[arg(long)]
    no_replicas: bool,
    #[command(flatten)]
    delegates: Options,
    /// This process is a rank that `weft delegate --spawn` has started
    #[arg(long, hide = true, requires = "job", conflicts_with = "trace")]
    spawned: bool,
    #[arg(skip)]
    rank: Option<Rank>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

impl Run {
    /// Runs the program and returns the exit code.
    pub fn run(mut self, cluster_file: Option<PathBuf>) -> Result<u8, Failure> {
        if let Some(dir) = self.delegates.job().filter(|_| self.spawned) {
            self.rank = Some(Rank::begin(dir)?);
        }
        let result = self.run_program(cluster_file);
        match &self.rank {
            Some(rank) => rank.end(result),
            None => result,
        }
    }

    fn run_program(&self, cluster_file: Option<PathBuf>) -> Result<u8, Failure> {
        let library = preload_library()?;
        let name = &self.program[0];
        let plan = self.delegates.plan(&self.program)?;
        let needs_cluster =
            self.state.is_some() || self.fresh || cluster_file.is_some() || !plan.has_directories();
        if self.no_cluster || !needs_cluster && Cluster::configured().is_none() {
            let mut command = Command::new(name);
            command.args(&self.program[1..]);
            self.begin_replicas(&mut command);
            environment(&mut command, library.as_os_str(), Path::new("/weft"));
            let delegates = plan.start(None)?;
            delegates.environment(&mut command);
            return self.traced(command, delegates);
        }
        let cluster = self.cluster(cluster_file)?;
        let _used = embedded::used(&cluster)?;
        // Keeps idle servers from ending while the program computes before its first use.
        let _held = embedded::hold(&cluster)?;
        let mut command = self.command(&cluster.mount);
        self.begin_replicas(&mut command);
        command.env("WEFT_CLUSTER", &cluster.file);
        environment(&mut command, library.as_os_str(), &cluster.mount);
        if let Some((file, why)) = preloadable::hindrance(name) {
            let mount = cluster.mount.display();
            errln!(
                "{}",
                Failure::new(file.display(), format!("this program will not see {mount}: {why}"))
                    .remedy("`weft mount DIR` shows the same files to every program")
            );
        }
        let delegates = plan.start(Some(&cluster.file))?;
        delegates.environment(&mut command);
        self.traced(command, delegates)
    }

    /// Returns the command that starts the program. The kernel cannot open a program on Weft: a shell with the library
    /// executes it.
    fn command(&self, mount: &Path) -> Command {
        if preloadable::is_below(mount, &self.program[0]) {
            let mut shell = Command::new("/bin/sh");
            shell.args(["-c", "exec \"$0\" \"$@\""]).args(&self.program);
            return shell;
        }
        let mut command = Command::new(&self.program[0]);
        command.args(&self.program[1..]);
        command
    }

    /// Completes interrupted synchronizations of replicas, and passes on where replicas lie.
    fn begin_replicas(&self, command: &mut Command) {
        command.env_remove(REPLICAS_VARIABLE);
        // Without a home directory, the user has no replicas.
        let Ok(catalog) = Catalog::of_user() else { return };
        if catalog.directories().is_empty() {
            return;
        }
        synchronize_all();
        if !self.no_replicas {
            command.env(REPLICAS_VARIABLE, replicas_value(catalog.directories()));
        }
    }

    /// Runs the program and writes the trace, if one was requested. Then synchronizes what its processes have left, and
    /// starts the agent if it has jobs.
    fn traced(&self, command: Command, delegates: Delegates) -> Result<u8, Failure> {
        let code = self.run_traced(command, delegates);
        synchronize_all();
        if !self.no_replicas {
            drop(agent::start_if_queued());
        }
        code
    }

    /// Runs the program and writes the trace, if one was requested.
    fn run_traced(&self, mut command: Command, mut delegates: Delegates) -> Result<u8, Failure> {
        let Some(file) = &self.trace else {
            let (signals, child) = self.begun(command)?;
            let code = to_its_end(&signals, child, &mut delegates);
            if let Some(rank) = &self.rank {
                rank.program_has_ended();
            }
            delegates.end();
            return code;
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
        let code = to_its_end(&signals, child, &mut delegates);
        delegates.end();
        parts.finish();
        code
    }

    /// Starts the program and passes signals on to it.
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
        if self.rank.is_some() {
            ranks::end_with_this_process(&mut command);
        }
        let name = &self.program[0];
        let child = signals.spawn(&mut command).map_err(|error| {
            let code = if error.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 };
            Failure::new(name.to_string_lossy(), error)
                .remedy("is it spelled right and executable?")
                .code(code)
        })?;
        if let Some(rank) = &self.rank {
            rank.watch(child.id());
        }
        Ok((signals, child))
    }

    /// Starts the embedded cluster at its default place.
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
        let state = match configured {
            None => embedded::state_dir(self.state.clone())?,
            Some(file) => {
                let cluster = Cluster::load(&file)?;
                match (cluster.embedded.clone(), self.fresh) {
                    (Some(state), _) => state,
                    (None, false) => return Ok(cluster),
                    (None, true) => {
                        let remedy =
                            format!("{} is used; name a state directory with --state", file.display());
                        return Err(Failure::misuse("--fresh", "only an embedded cluster is ever emptied")
                            .remedy(remedy));
                    }
                }
            }
        };
        if self.fresh && !self.yes {
            confirm_fresh(&state)?;
        }
        embedded::ensure(&state, self.fresh, self.idle_exit)
    }
}

/// Asks before the files of an embedded cluster are removed.
fn confirm_fresh(state: &Path) -> Result<(), Failure> {
    if !state.join("cluster.toml").exists() {
        return Ok(());
    }
    let what = format!("it removes all files of the cluster in {}", state.display());
    if !(std::io::stdin().is_terminal() && std::io::stderr().is_terminal()) {
        return Err(
            Failure::misuse("--fresh", what).remedy("add --yes, or name another directory with --state")
        );
    }
    eprint!("weft: --fresh: {what}. Remove them? [y/N] ");
    let mut answer = String::new();
    // The end of the input is a no.
    let _ = std::io::stdin().read_line(&mut answer);
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(Failure::new("--fresh", "nothing was removed")),
    }
}

/// Waits for the program's end and returns the exit code.
fn to_its_end(signals: &Blocked, mut child: Child, delegates: &mut Delegates) -> Result<u8, Failure> {
    loop {
        let signal = signals.wait();
        if signal.number == libc::SIGCHLD {
            let status = child.try_wait().map_err(|error| Failure::new("waiting for the program", error))?;
            if let Some(status) = status {
                let by_signal = status.signal().map_or(i32::from(FAILED), |signal| 128 + signal);
                return Ok(status.code().unwrap_or(by_signal) as u8);
            }
            delegates.report_ended();
        } else if signal.sent {
            let _ = signals::send(child.id() as i32, signal.number);
        }
    }
}

/// Sets the program's environment variables, except for the cluster file.
pub(super) fn environment(command: &mut Command, library: &OsStr, mount: &Path) {
    let mut preload = library.to_owned();
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        // A nested run loads the library only once.
        for other in
            others.to_string_lossy().split([':', ' ']).filter(|other| *other != library.to_string_lossy())
        {
            preload.push(":");
            preload.push(other);
        }
    }
    command.env("LD_PRELOAD", preload);
    command.env("WEFT_MOUNT", mount);
    // UCX, under MPICH and Open MPI, patches mmap in memory and bypasses the library.
    if std::env::var_os("UCX_MEM_MMAP_HOOK_MODE").is_none() {
        command.env("UCX_MEM_MMAP_HOOK_MODE", "none");
    }
}

/// Returns the preload library that belongs to this program.
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
