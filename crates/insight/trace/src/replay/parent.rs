//! The parent process of a replay: starts the workers, gives orders and collects results.

use super::protocol::{Order, Report, WorkerSpec};
use super::tally::Tally;
use crate::prepared::{Prepared, Timing};
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// Settings of a replay.
#[derive(Clone, Debug)]
pub struct Options {
    /// Directory of the replay's files. It must not exist; its parent must.
    pub dir: PathBuf,
    /// Maximum number of processes. Each process executes one or more ranks.
    pub processes: u32,
    /// Maximum number of threads per process. Each thread executes one or more ranks.
    pub threads: u32,
    /// Pacing of operations.
    pub timing: Timing,
    /// Whether written data is stamped, checked when read, and compared in the end.
    pub verify: bool,
    /// If set, the files must fit in the free space, of which at most this many bytes are counted.
    pub space_limit: Option<u64>,
    /// Whether the prepared trace is not needed again, so that its temporary files can be unlinked early.
    pub unlink_early: bool,
    /// Whether to keep the files.
    pub keep: bool,
    /// Whether to sync the files: prepared ones before the operations, and written ones after them. Only the latter
    /// syncs are among the results.
    pub sync: bool,
    /// Whether the replay must end now; asked several times a second.
    pub is_ended: fn() -> bool,
    /// Command that starts a worker. It gets the JSON description as a further argument and calls [`super::serve`].
    pub worker: Vec<OsString>,
    /// Variables added to the workers' environment.
    pub environment: Vec<(OsString, OsString)>,
}

/// Progress of a replay.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Name of the current phase.
    pub phase: &'static str,
    /// Operations completed.
    pub operations: u64,
    /// Bytes prepared, transferred or compared.
    pub bytes: u64,
}

/// Result of a replay.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Results of all operations.
    pub tally: Tally,
    /// Number of worker processes.
    pub processes: u32,
    /// Number of ranks.
    pub ranks: u32,
    /// Number of barriers passed.
    pub barriers: u64,
    /// Number of bytes compared without a difference, if verification was requested.
    pub compared: Option<u64>,
}

/// Replays a trace.
///
/// # Errors
/// Returns the first worker's failure as text for users.
pub fn run(
    prepared: &Prepared,
    options: &Options,
    mut progress: impl FnMut(Progress),
) -> Result<Outcome, String> {
    let count = options.processes.clamp(1, prepared.ranks());
    let mut workers = Workers::start(prepared.dir(), options, count, false)?;
    let mut outcome = Outcome { processes: count, ranks: prepared.ranks(), ..Outcome::default() };
    workers.execute(Order::Hello, "beginning", &mut progress, &mut outcome)?;
    let mut janitor =
        if options.keep { None } else { Some(Workers::start(prepared.dir(), options, 1, true)?) };
    if let Some(janitor) = &mut janitor {
        janitor.execute(Order::Hello, "beginning", &mut progress, &mut outcome)?;
    }
    if options.unlink_early {
        // All processes have opened the temporary files.
        prepared.unlink();
    }
    let begun = workers.execute(Order::Begin, "beginning", &mut progress, &mut outcome);
    let has_begun = begun.is_ok();
    let done = begun.and_then(|()| run_phases(&mut workers, options, &mut progress, &mut outcome));
    // Workers that are still running exit before the janitor removes the files.
    drop(workers);
    if let Some(janitor) = &mut janitor {
        if done.is_ok() || !has_begun {
            janitor.quit();
        }
        janitor.exit_timeout = CLEANUP_TIMEOUT;
    }
    done.map(|()| outcome)
}

/// Maximum time in which the janitor removes the files of a failed replay.
const CLEANUP_TIMEOUT: Duration = Duration::from_secs(600);

/// Gives the orders after `Begin`.
fn run_phases(
    workers: &mut Workers,
    options: &Options,
    progress: &mut impl FnMut(Progress),
    outcome: &mut Outcome,
) -> Result<(), String> {
    workers.execute(Order::Prepare, "preparing files", progress, outcome)?;
    workers.execute(Order::PrepareParts, "preparing files", progress, outcome)?;
    if options.sync {
        workers.execute(Order::SyncInput, "syncing", progress, &mut Outcome::default())?;
    }
    workers.execute(Order::Run, "replaying", progress, outcome)?;
    if options.sync {
        workers.execute(Order::SyncWritten, "syncing", progress, outcome)?;
    }
    if options.verify {
        outcome.compared = Some(0);
        workers.execute(Order::Verify, "comparing", progress, outcome)?;
    }
    if !options.keep {
        workers.execute(Order::Clean, "removing files", progress, outcome)?;
        workers.execute(Order::End, "removing files", progress, outcome)?;
    }
    workers.quit();
    Ok(())
}

/// Interval at which the parent checks whether the replay must end.
const END_CHECK_INTERVAL: Duration = Duration::from_millis(200);

/// Maximum time in which workers exit.
const EXIT_TIMEOUT: Duration = Duration::from_secs(2);

struct Workers {
    workers: Vec<Worker>,
    reports: Receiver<(usize, Option<Report>)>,
    done: Vec<(u64, u64)>,
    /// Time that workers have to exit before they are killed.
    exit_timeout: Duration,
    is_ended: fn() -> bool,
}

struct Worker {
    child: Child,
    input: Option<ChildStdin>,
}

impl Workers {
    fn start(trace: &Path, options: &Options, count: u32, janitor: bool) -> Result<Self, String> {
        let (sender, reports) = channel();
        let mut workers = Self {
            workers: Vec::new(),
            reports,
            done: vec![(0, 0); count as usize],
            exit_timeout: EXIT_TIMEOUT,
            is_ended: options.is_ended,
        };
        let (program, args) = options.worker.split_first().ok_or("no program for workers")?;
        for worker in 0..count {
            let spec = WorkerSpec {
                trace: trace.to_owned(),
                dir: options.dir.clone(),
                janitor,
                worker,
                workers: count,
                threads: options.threads,
                speed: match options.timing {
                    Timing::Fast => None,
                    Timing::Speed(factor) => Some(factor),
                },
                verify: options.verify,
                space_limit: options.space_limit,
            };
            let spec = serde_json::to_string(&spec).map_err(|error| error.to_string())?;
            let mut child = Command::new(program)
                .args(args)
                .arg(spec)
                .envs(options.environment.iter().map(|(name, value)| (name, value)))
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .map_err(|error| format!("starting process {worker} of the replay: {error}"))?;
            let (input, output) = (child.stdin.take(), child.stdout.take().expect("piped"));
            let number = workers.workers.len();
            workers.workers.push(Worker { child, input });
            let sender: Sender<(usize, Option<Report>)> = sender.clone();
            std::thread::spawn(move || {
                for line in BufReader::new(output).lines() {
                    let report = line.ok().and_then(|line| serde_json::from_str(&line).ok());
                    let last = report.is_none();
                    if sender.send((number, report)).is_err() || last {
                        return;
                    }
                }
                // Sending fails only after the replay has ended.
                let _ = sender.send((number, None));
            });
        }
        Ok(workers)
    }

    /// Gives all workers an order and waits until all have executed it.
    fn execute(
        &mut self,
        order: Order,
        phase: &'static str,
        progress: &mut impl FnMut(Progress),
        outcome: &mut Outcome,
    ) -> Result<(), String> {
        self.send(order)?;
        let (mut left, mut at_barrier, mut next) = (self.workers.len(), 0, 0);
        self.done.fill((0, 0));
        while left > 0 {
            if (self.is_ended)() {
                return Err("ended by a signal".into());
            }
            let (worker, report) = match self.reports.recv_timeout(END_CHECK_INTERVAL) {
                Ok(report) => report,
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => {
                    unreachable!("each reader sends `None` before it ends")
                }
            };
            match report {
                Some(Report::Ready) => left -= 1,
                Some(Report::Done(tally)) => {
                    outcome.tally.merge(*tally);
                    left -= 1;
                }
                Some(Report::Verified(bytes)) => {
                    *outcome.compared.get_or_insert(0) += bytes;
                    left -= 1;
                }
                Some(Report::Progress { operations, bytes }) => {
                    self.done[worker] = (operations, bytes);
                    let (operations, bytes) =
                        self.done.iter().fold((0, 0), |sum, done| (sum.0 + done.0, sum.1 + done.1));
                    progress(Progress { phase, operations, bytes });
                }
                Some(Report::Barrier(number)) => {
                    assert_eq!(number, next, "a worker is at another barrier");
                    at_barrier += 1;
                    if at_barrier == self.workers.len() {
                        self.send(Order::Pass(number))?;
                        (at_barrier, next) = (0, next + 1);
                    }
                }
                Some(Report::Failed(why)) => return Err(why),
                None => return Err(self.exit_message(worker)),
            }
        }
        outcome.barriers += next;
        Ok(())
    }

    fn send(&mut self, order: Order) -> Result<(), String> {
        let line = serde_json::to_string(&order).map_err(|error| error.to_string())?;
        for number in 0..self.workers.len() {
            let input = self.workers[number].input.as_mut().expect("open until the end");
            if writeln!(input, "{line}").and_then(|()| input.flush()).is_err() {
                // The worker may have reported the reason before it exited.
                let last = self.reports.try_iter().find_map(|(_, report)| match report {
                    Some(Report::Failed(why)) => Some(why),
                    _ => None,
                });
                return Err(last.unwrap_or_else(|| self.exit_message(number)));
            }
        }
        Ok(())
    }

    fn exit_message(&mut self, number: usize) -> String {
        let status = self.workers[number].child.wait();
        let how = status.map_or_else(|error| error.to_string(), |status| status.to_string());
        format!("process {number} of the replay ended early ({how}); its last output is above")
    }

    fn quit(&mut self) {
        // An error means that a worker has already exited.
        let _ = self.send(Order::Quit);
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        for worker in &mut self.workers {
            // A worker exits when its standard input ends.
            drop(worker.input.take());
        }
        let deadline = Instant::now() + self.exit_timeout;
        for worker in &mut self.workers {
            while matches!(worker.child.try_wait(), Ok(None)) {
                if Instant::now() > deadline {
                    let _ = worker.child.kill();
                    let _ = worker.child.wait();
                    break;
                }
                std::thread::sleep(Duration::from_millis(2));
            }
        }
    }
}
