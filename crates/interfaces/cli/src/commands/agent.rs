//! `weft agent`: copies replicas and moves files in the background.

mod control;
mod job;
mod lock;
mod pace;
mod progress;
mod queue;
mod replicas;
mod retry;
mod start;
mod status;
mod weft_command;
mod worker;

pub use job::{Job, JobId, WeftCommand, Work};
pub use queue::Queue;
pub use start::{start_if_queued, start_unless_stopped};
pub use status::AgentStatus;
pub use weft_command::print_progress;

use crate::commands::posix;
use crate::failure::{FAILED, Failure};
use crate::logging::Log;
use crate::signals::{self, Blocked};
use clap::{Args, Subcommand};
use control::Control;
use lock::AgentLock;
use start::Started;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use weft_config::LogLevel;
use weft_core::{ByteLen, Nanos};
use worker::{Settings, Worker};

/// Exit code if another agent runs.
const RUNS_ALREADY: u8 = 3;
/// Maximum time that the agent may take to end: a window of a copy, or the last megabytes of a move.
const STOP_TIMEOUT: Duration = Duration::from_secs(60);

const AFTER: &str = "\
`weft replicate apply --background`, `weft replicate sync --background` and `weft migrate --background` put jobs into a
queue and start the agent, which ends when the queue is empty. If jobs are left, `weft run` starts it after its program,
and a server (`weft serve`) that has had no client for 10 s starts it for its own user, except after `weft agent stop`. The
agent does one job after another. Only one agent runs for each user.

Each job is a file below ~/.local/state/weft/agent/queue. It is removed when the work is complete, so a crash of the agent
or of the machine loses no job. An interrupted move is resumed, and an interrupted copy of a replica begins again.

Without --rate, copies continue only while the disks below the files have no requests of other programs. On Weft these are
the disks of the old and the new targets, as their servers report them. Where the agent cannot see that (other network file
systems, tmpfs, overlay, btrfs), it copies 32 MiB per second.

A failed job is tried again after 10, 40, 160 and 640 seconds. After five attempts it is kept as failed. A job whose file
is in use waits for the programs, which does not count as an attempt.

Exit codes:
  0    done; status: no job has failed
  1    status, run --once: a job has failed, or status: a file of the queue is damaged
  2    wrong arguments
  3    run: another agent runs

Examples:
  weft replicate apply --background replicas.toml
  weft migrate --background -r --class ssd /weft/results
  weft agent status
  weft agent cancel 3
  weft agent retry all
  weft agent start --rate 50M
  weft agent stop";

/// Copies replicas and moves files in the background.
#[derive(Args)]
#[command(after_long_help = AFTER)]
pub struct Agent {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Do the jobs of the queue in the foreground
    Run(Run),
    /// Start the agent in the background, unless it runs
    Start(Start),
    /// Stop the agent; jobs stay in the queue, and idle servers do not start it
    Stop,
    /// Show the agent, the queue and errors
    Status(Status),
    /// Remove jobs from the queue
    Cancel(Which),
    /// Try failed jobs again
    Retry(Which),
}

/// Does the jobs of the queue in the foreground.
#[derive(Args)]
struct Run {
    /// End when no job is left, except for failed ones
    #[arg(long)]
    once: bool,
    /// Maximum number of bytes copied per second [default: as much as idle disks take]
    #[arg(long, value_name = "SIZE", value_parser = super::rate)]
    rate: Option<ByteLen>,
    /// Pause after the first failed attempt; each further one is four times as long
    #[arg(long, value_name = "TIME", value_parser = super::duration, default_value = "10s")]
    retry_pause: Nanos,
}

/// Starts the agent in the background.
#[derive(Args)]
struct Start {
    /// Maximum number of bytes copied per second [default: as much as idle disks take]
    #[arg(long, value_name = "SIZE", value_parser = super::rate)]
    rate: Option<ByteLen>,
}

/// Shows the agent.
#[derive(Args)]
struct Status {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Jobs of the queue.
#[derive(Args)]
struct Which {
    /// Numbers of jobs, or all
    #[arg(value_name = "ID|all", required = true, value_parser = selection)]
    jobs: Vec<Selection>,
}

#[derive(Clone, Copy)]
enum Selection {
    All,
    One(u64),
}

fn selection(text: &str) -> Result<Selection, String> {
    match text {
        "all" => Ok(Selection::All),
        number => number
            .parse()
            .map(Selection::One)
            .map_err(|_| "write the number of a job, as `weft agent status` shows it, or all".to_owned()),
    }
}

impl Agent {
    /// Runs the command and returns the exit code.
    pub fn run(self) -> Result<u8, Failure> {
        let queue = Queue::of_user()?;
        match self.action {
            Action::Run(run) => run.run(&queue),
            Action::Start(start) => start.run(&queue),
            Action::Stop => stop(&queue),
            Action::Status(status) => status.run(&queue),
            Action::Cancel(which) => which.cancel(&queue),
            Action::Retry(which) => which.retry(&queue),
        }
    }
}

impl Run {
    fn run(self, queue: &Queue) -> Result<u8, Failure> {
        let signals = Arc::new(Blocked::new(&[libc::SIGINT, libc::SIGTERM, libc::SIGHUP]));
        queue.create()?;
        let lock = AgentLock::acquire(queue.dir())?.map_err(|holder| {
            Failure::new("weft agent", format!("another agent runs: {holder}"))
                .remedy("`weft agent status` shows what it does, `weft agent stop` stops it")
                .code(RUNS_ALREADY)
        })?;
        queue.set_stopped(false)?;
        let log = Log::open("agent", None, LogLevel::Info).map_err(|error| Failure::new("the log", error))?;
        let control = Arc::new(Control::default());
        {
            let (signals, control) = (Arc::clone(&signals), Arc::clone(&control));
            std::thread::spawn(move || {
                loop {
                    signals.wait();
                    control.stop();
                }
            });
        }
        let retry_pause = self.retry_pause.as_duration();
        let settings = Settings { once: self.once, rate: self.rate, retry_pause };
        Worker { queue, settings, control: &control, signals: &signals, log }.run(lock)
    }
}

impl Start {
    fn run(&self, queue: &Queue) -> Result<u8, Failure> {
        match start::start(queue, false, self.rate)? {
            Started::Now(pid) => {
                outln!("the agent is process {pid}; see {}", start::log_file(queue.dir()).display())
            }
            Started::Before(holder) => outln!("the agent runs already: {holder}"),
        }
        Ok(0)
    }
}

fn stop(queue: &Queue) -> Result<u8, Failure> {
    // First, so that no idle server starts another agent.
    queue.set_stopped(true)?;
    let Some(holder) = AgentLock::holder(queue.dir())? else {
        outln!("no agent runs");
        return Ok(0);
    };
    let pid = match holder.pid {
        Some(pid) if holder.host == crate::job_dir::host_name() => pid,
        Some(_) => {
            return Err(Failure::new("weft agent", format!("it is {holder}"))
                .remedy(format!("run `weft agent stop` on {}", holder.host)));
        }
        None => {
            return Err(Failure::new("weft agent", format!("it is {holder}")).remedy("repeat the command"));
        }
    };
    match signals::send(pid, libc::SIGTERM) {
        // One that has just ended is stopped, too.
        Ok(()) | Err(libc::ESRCH) => {}
        Err(errno) => {
            return Err(Failure::new("weft agent", posix(errno))
                .remedy(format!("it is {holder}: run the command as its user")));
        }
    }
    let begin = Instant::now();
    while AgentLock::holder(queue.dir())?.is_some_and(|now| now == holder) {
        if begin.elapsed() > STOP_TIMEOUT {
            return Err(Failure::new(
                "weft agent",
                format!("{holder} has not ended within {} s", STOP_TIMEOUT.as_secs()),
            )
            .remedy(format!("`kill -9 {pid}` ends it; no job is lost")));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    outln!("stopped {holder}; jobs stay in the queue");
    Ok(0)
}

impl Status {
    fn run(&self, queue: &Queue) -> Result<u8, Failure> {
        let status = AgentStatus::read(queue)?;
        match self.json {
            true => outln!("{:#}", status.json()),
            false => out!("{}", status.text()),
        }
        Ok(if status.is_unwell() { FAILED } else { 0 })
    }
}

impl Which {
    /// Applies `work` to the jobs and returns the exit code. `work` returns whether the job was there.
    fn each(
        &self,
        queue: &Queue,
        wanted: impl Fn(&Job) -> bool,
        mut work: impl FnMut(JobId) -> Result<bool, Failure>,
    ) -> Result<u8, Failure> {
        let mut code = 0;
        for selection in &self.jobs {
            match selection {
                Selection::All => {
                    let all = queue.list()?.jobs;
                    let ids: Vec<JobId> =
                        all.iter().filter(|(_, job)| wanted(job)).map(|(id, _)| *id).collect();
                    if ids.is_empty() {
                        outln!("no such job is in the queue");
                    }
                    for id in ids {
                        work(id)?;
                    }
                }
                Selection::One(number) => {
                    if !work(JobId(*number))? {
                        errln!(
                            "{}",
                            Failure::new(format!("job {number}"), "it is not in the queue")
                                .remedy("`weft agent status` shows all jobs")
                        );
                        code = FAILED;
                    }
                }
            }
        }
        Ok(code)
    }

    fn cancel(&self, queue: &Queue) -> Result<u8, Failure> {
        self.each(
            queue,
            |_| true,
            |id| {
                let is_there = queue.remove(id)?;
                if is_there {
                    outln!("job {id} is cancelled");
                }
                Ok(is_there)
            },
        )
    }

    fn retry(&self, queue: &Queue) -> Result<u8, Failure> {
        let mut is_any = false;
        let code = self.each(
            queue,
            |job| job.retry_at_s.is_some(),
            |id| {
                let is_there = queue.change(id, Job::reset)?.is_some();
                if is_there {
                    outln!("job {id} is tried again");
                }
                is_any |= is_there;
                Ok(is_there)
            },
        )?;
        if is_any {
            start::start(queue, true, None)?;
        }
        Ok(code)
    }
}

/// Adds jobs to the queue, starts the agent, and says so.
///
/// # Errors
/// Errors of the queue; the agent does not start, and the jobs stay in the queue.
pub fn queue_jobs(jobs: &[Job]) -> Result<(), Failure> {
    let queue = Queue::of_user()?;
    for (job, id) in jobs.iter().zip(queue.add(jobs)?) {
        outln!("{}: job {id} of the agent; `weft agent status` shows it", job.work.path());
    }
    start::start(&queue, true, None).map(drop)
}

/// Returns the absolute path of a file that a job names.
///
/// # Errors
/// Without a working directory.
pub fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(path).map_err(|error| Failure::new(path.display(), error))
}
