//! `weft delegate`: one I/O delegate of a job, and the state of a job's delegates.

mod meeting;
mod mpi;
pub mod ranks;
mod serve;
pub mod settings;
mod spawn;
pub mod status;
mod stop;

pub use meeting::announced;

use crate::failure::Failure;
use crate::job_dir;
use clap::{Args, Subcommand};
use settings::Settings;
use std::ffi::OsString;
use std::path::PathBuf;
use weft_config::job::{DELEGATES_VARIABLE, Job, Place};
use weft_core::delegates::ownership::Policy;
use weft_core::{ByteLen, Nanos};

const AFTER: &str = "\
I/O delegates are a few processes of a job that cache pages of files together and do the file I/O of all ranks. On one
host `weft run --delegates N` starts them. On several hosts any launcher starts `weft delegate` on some of them. The
delegates meet in the job directory, which must be on a file system that all hosts share; a missing directory is
created with mode 0700. The programs then run with `weft run --job DIR -- PROGRAM`, which waits for the delegates.

Index and number of the delegates are those of --index and --of, else those of the launcher (PMI_RANK, PMIX_RANK,
OMPI_COMM_WORLD_RANK, SLURM_PROCID and PMI_SIZE, OMPI_COMM_WORLD_SIZE, SLURM_STEP_NUM_TASKS, SLURM_NTASKS), else 0 of 1.
Give --of where the launcher also starts other programs.

Ranks on the host of a delegate use a Unix socket. --listen adds a network address for ranks on other hosts: the key in
the job directory authenticates both ends. Port 0 chooses a free port. HOST is a name, an address or a network interface
(ib0:0); without it, the name of this host is used.

Without a shared file system, give each delegate all addresses (--peers) and a key file (--key), and set
WEFT_DELEGATES=HOST:PORT,... and WEFT_DELEGATE_KEY=FILE for the programs. `weft key make FILE` makes a key.

With --spawn, the delegates are the processes of an MPI job. When they serve, delegate 0 starts the program with
MPI_Comm_spawn. The delegates end with the program. The exit code is 0, or that of the first rank that failed; the other
ranks are then ended. The MPI library and its launcher must support MPI_Comm_spawn: Open MPI and MPICH 5 do.

SIGTERM and SIGINT end a delegate after it has written all bytes to the files. `weft delegate stop` ends all.

Examples:
  weft delegate --job ~/jobs/17 --of 2 --listen :0 --over /mnt/lustre/me
  weft run --job ~/jobs/17 -- ./app
  weft delegate status --job ~/jobs/17
  weft delegate stop --job ~/jobs/17

With SLURM, in a batch script:
  srun -N 2 -n 2 --overlap weft delegate --job ~/jobs/$SLURM_JOB_ID --listen :0 --over /mnt/lustre/me &
  weft run --job ~/jobs/$SLURM_JOB_ID -- srun -n 64 ./app
  weft delegate stop --job ~/jobs/$SLURM_JOB_ID

With mpiexec and a hosts file, the delegates beside the program:
  mpiexec -f hosts -n 2 weft delegate --job ~/jobs/17 --listen :0 --over /mnt/lustre/me &
  weft run --job ~/jobs/17 -- mpiexec -f hosts -n 64 ./app
  weft delegate stop --job ~/jobs/17

With mpiexec, the delegates start the program:
  mpiexec -n 2 weft delegate --job ~/jobs/17 --over /mnt/lustre/me --spawn 64 -- ./app";

/// Runs an I/O delegate of a job.
#[derive(Args)]
#[command(after_long_help = AFTER, args_conflicts_with_subcommands = true)]
pub struct Delegate {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    serve: Serve,
}

#[derive(Subcommand)]
enum Action {
    /// Show the delegates of a job: pages, dirty bytes, hit ratio, merged requests
    Status(status::Status),
    /// End the delegates of a job after they have written all bytes
    Stop(stop::Stop),
}

/// Options of one delegate.
#[derive(Args)]
pub struct Serve {
    /// Job directory, in which delegates and programs meet
    #[arg(long, value_name = "DIR")]
    job: Option<PathBuf>,
    /// Index of this delegate, from 0
    #[arg(long, value_name = "I")]
    index: Option<u32>,
    /// Number of delegates of the job
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=weft_config::job::DELEGATES_MAX as i64))]
    of: Option<u32>,
    /// Also listen on an address or network interface, for other hosts; `unix` for none
    #[arg(long, value_name = "HOST:PORT|unix", default_value = "unix")]
    listen: String,
    /// Serve this directory under its own path; repeatable
    #[arg(long, value_name = "DIR")]
    over: Vec<PathBuf>,
    /// Rule by which a page gets its owner: hashed, or first-touch as in the paper
    #[arg(long, value_name = "POLICY", default_value = "hashed", value_parser = policy)]
    policy: Policy,
    /// Memory of the delegate for pages [default: a quarter of the host's memory for all its delegates, at most 1 GiB each]
    #[arg(long, value_name = "SIZE", value_parser = settings::memory)]
    memory: Option<ByteLen>,
    /// Length of a page [default: lock or stripe size of the file system, else 512 KiB]
    #[arg(long, value_name = "SIZE", value_parser = settings::page_len)]
    page_size: Option<u64>,
    /// Write dirty bytes during the run (on), or at sync and close only (off)
    #[arg(long, value_name = "on|off", default_value = "on", value_parser = settings::on_off, action = clap::ArgAction::Set)]
    write_behind: bool,
    /// Time that the other delegates have to come
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = super::seconds)]
    wait: Nanos,
    /// End after this time without a connected process
    #[arg(long, value_name = "TIME", value_parser = super::seconds)]
    idle_exit: Option<Nanos>,
    /// Addresses of all delegates, instead of a job directory
    #[arg(long, value_name = "HOST:PORT,...", requires = "key", conflicts_with_all = ["job", "of", "listen"])]
    peers: Option<String>,
    /// Key file of a job without a job directory
    #[arg(long, value_name = "FILE", requires = "peers")]
    key: Option<PathBuf>,
    /// Serve no files of Weft
    #[arg(long)]
    no_cluster: bool,
    /// Start this number of ranks of PROGRAM with MPI_Comm_spawn, and end with them
    #[arg(long, value_name = "RANKS", requires_all = ["job", "program"], conflicts_with_all = ["peers", "idle_exit", "child_of"],
        value_parser = clap::value_parser!(u32).range(1..=i64::from(i32::MAX)))]
    spawn: Option<u32>,
    /// MPI library for --spawn [default: the one that PROGRAM is linked with]
    #[arg(long, value_name = "LIB", requires = "spawn")]
    mpi: Option<PathBuf>,
    /// The program of --spawn and its arguments
    #[arg(trailing_var_arg = true, value_name = "PROGRAM", requires = "spawn")]
    program: Vec<OsString>,
    /// Directory of the Unix socket, and end when standard input ends and no process is connected
    #[arg(long, hide = true)]
    child_of: Option<PathBuf>,
    /// Print "ready" and close standard output when the job can be used
    #[arg(long, hide = true)]
    announce: bool,
}

impl Delegate {
    /// Runs the command.
    pub fn run(self, file: Option<PathBuf>) -> Result<u8, Failure> {
        match self.action {
            Some(Action::Status(command)) => command.run(),
            Some(Action::Stop(command)) => command.run(),
            None => self.serve.run(file),
        }
    }
}

/// Parses a policy.
pub fn policy(text: &str) -> Result<Policy, String> {
    text.parse().map_err(|error: weft_core::delegates::ownership::PolicyError| error.to_string())
}

/// Returns absolute directories for `--over`, which must exist.
pub fn directories(over: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let absolute = |dir: &PathBuf| {
        let failed = |error: std::io::Error| Failure::misuse(format!("--over {}", dir.display()), error);
        let meta = std::fs::metadata(dir).map_err(failed)?;
        let remedy = "name a directory; its files are served under their own paths";
        if !meta.is_dir() {
            return Err(
                Failure::misuse(format!("--over {}", dir.display()), "not a directory").remedy(remedy)
            );
        }
        let mut path = std::path::absolute(dir).map_err(failed)?;
        if path.components().any(|part| part == std::path::Component::ParentDir) {
            path = path.canonicalize().map_err(failed)?;
        }
        // Colons separate the directories in WEFT_OVER.
        match path.to_str() {
            Some(text) if !text.contains(':') => Ok(path),
            _ => {
                let why = "its path contains a colon or is not UTF-8";
                Err(Failure::misuse(format!("--over {}", dir.display()), why)
                    .remedy("name it by a symbolic link"))
            }
        }
    };
    over.iter().map(absolute).collect()
}

/// Returns the job that `--job`, `WEFT_DELEGATES` or this host's only job directory names.
fn job_of(named: Option<PathBuf>) -> Result<(Option<PathBuf>, Job), Failure> {
    if let Some(dir) = named {
        let dir = std::path::absolute(&dir).map_err(|error| Failure::misuse(dir.display(), error))?;
        return Ok((Some(dir.clone()), Job::load(&dir)?));
    }
    if let Some(job) = Job::from_env()? {
        let value = std::env::var_os(DELEGATES_VARIABLE).unwrap_or_default();
        let dir = match Place::parse(&value)? {
            Place::Directory(dir) => Some(dir),
            Place::Addresses(_) => None,
        };
        return Ok((dir, job));
    }
    match &job_dir::list()[..] {
        [dir] => Ok((Some(dir.clone()), Job::load(dir)?)),
        [] => Err(Failure::misuse("job", "no job of this user runs on this host")
            .remedy("name its directory with --job DIR, or start one with `weft run --delegates N`")),
        several => {
            let names: Vec<_> = several.iter().map(|dir| dir.display().to_string()).collect();
            Err(Failure::misuse("job", format!("several jobs run on this host: {}", names.join(", ")))
                .remedy("name one with --job DIR"))
        }
    }
}

impl Serve {
    fn settings(&self) -> Settings {
        Settings {
            policy: self.policy,
            memory: self.memory,
            page_len: self.page_size,
            write_behind: self.write_behind,
        }
    }
}
