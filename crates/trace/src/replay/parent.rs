//! The parent's side of a replay.

use super::protocol::{Order, Report, WorkerSpec};
use super::tally::Tally;
use crate::prepared::{Prepared, Timing};
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// How a trace is replayed.
#[derive(Clone, Debug)]
pub struct Options {
    /// The directory of this replay's files; it is made, and must not be there. That above it must.
    pub dir: PathBuf,
    /// Number of processes; more ranks than that share them.
    pub processes: u32,
    /// Most threads of a process; more ranks than that share them.
    pub threads: u32,
    /// When operations are done.
    pub timing: Timing,
    /// Whether payloads are stamped, and compared when read and in the end.
    pub verify: bool,
    /// Whether the files must fit what is free, of which there is at most so much, whatever the place says.
    pub check_room: Option<u64>,
    /// Whether nobody will replay the same prepared trace again, so that its temporary files can go at once.
    pub last: bool,
    /// Whether the files stay.
    pub keep: bool,
    /// What starts a worker; it is given its description as one more argument and calls [`super::serve`].
    pub worker: Vec<OsString>,
    /// Added to the workers' environment.
    pub environment: Vec<(OsString, OsString)>,
}

/// How far a replay is.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// What is being done.
    pub part: &'static str,
    /// Operations of the trace that were done.
    pub operations: u64,
    /// Bytes prepared, moved or compared.
    pub bytes: u64,
}

/// What a replay came to.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// All operations.
    pub tally: Tally,
    /// Number of processes.
    pub processes: u32,
    /// Number of ranks.
    pub ranks: u32,
    /// Times that all ranks waited for each other.
    pub barriers: u64,
    /// Bytes that were written and found right in the end, if that was asked for.
    pub compared: Option<u64>,
}

/// Replays a trace.
///
/// # Errors
/// What any worker could not do, for people; a worker that died.
pub fn run(
    prepared: &Prepared,
    options: &Options,
    mut progress: impl FnMut(Progress),
) -> Result<Outcome, String> {
    let workers = options.processes.clamp(1, prepared.ranks());
    let mut crew = Crew::start(prepared.dir(), options, workers, false)?;
    let mut outcome = Outcome { processes: workers, ranks: prepared.ranks(), ..Outcome::default() };
    crew.all(Order::Hello, "beginning", &mut progress, &mut outcome)?;
    let mut janitor = if options.keep { None } else { Some(Crew::start(prepared.dir(), options, 1, true)?) };
    if let Some(janitor) = &mut janitor {
        janitor.all(Order::Hello, "beginning", &mut progress, &mut outcome)?;
    }
    if options.last {
        // All have it open.
        prepared.forget();
    }
    let begun = crew.all(Order::Begin, "beginning", &mut progress, &mut outcome);
    let swept = begun.is_ok();
    let done = begun.and_then(|()| lead(&mut crew, options, &mut progress, &mut outcome));
    // Those that are still at work end before the janitor sweeps.
    drop(crew);
    if let Some(janitor) = &mut janitor {
        if done.is_ok() || !swept {
            janitor.quit();
        }
        janitor.patience = SWEEPING;
    }
    done.map(|()| outcome)
}

/// How long a janitor may take to remove what a replay that failed has left.
const SWEEPING: Duration = Duration::from_secs(600);

/// Leads the workers through all parts after the first.
fn lead(
    crew: &mut Crew,
    options: &Options,
    progress: &mut impl FnMut(Progress),
    outcome: &mut Outcome,
) -> Result<(), String> {
    crew.all(Order::Prepare, "preparing files", progress, outcome)?;
    crew.all(Order::PrepareParts, "preparing files", progress, outcome)?;
    crew.all(Order::Run, "replaying", progress, outcome)?;
    if options.verify {
        outcome.compared = Some(0);
        crew.all(Order::Verify, "comparing", progress, outcome)?;
    }
    if !options.keep {
        crew.all(Order::Clean, "removing files", progress, outcome)?;
        crew.all(Order::End, "removing files", progress, outcome)?;
    }
    crew.quit();
    Ok(())
}

/// How long workers may take to end.
const QUITTING: Duration = Duration::from_secs(2);

struct Crew {
    workers: Vec<Worker>,
    reports: Receiver<(usize, Option<Report>)>,
    done: Vec<(u64, u64)>,
    /// How long workers may take to end.
    patience: Duration,
}

struct Worker {
    child: Child,
    input: Option<ChildStdin>,
}

impl Crew {
    fn start(trace: &Path, options: &Options, workers: u32, janitor: bool) -> Result<Self, String> {
        let (sender, reports) = channel();
        let mut crew =
            Self { workers: Vec::new(), reports, done: vec![(0, 0); workers as usize], patience: QUITTING };
        let (program, args) = options.worker.split_first().ok_or("no program for workers")?;
        for worker in 0..workers {
            let spec = WorkerSpec {
                trace: trace.to_owned(),
                dir: options.dir.clone(),
                janitor,
                worker,
                workers,
                threads: options.threads,
                speed: match options.timing {
                    Timing::Fast => None,
                    Timing::Speed(factor) => Some(factor),
                },
                verify: options.verify,
                check_room: options.check_room,
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
            let number = crew.workers.len();
            crew.workers.push(Worker { child, input });
            let sender: Sender<(usize, Option<Report>)> = sender.clone();
            std::thread::spawn(move || {
                for line in BufReader::new(output).lines() {
                    let report = line.ok().and_then(|line| serde_json::from_str(&line).ok());
                    let last = report.is_none();
                    if sender.send((number, report)).is_err() || last {
                        return;
                    }
                }
                // The receiver is gone only when the replay is over.
                let _ = sender.send((number, None));
            });
        }
        Ok(crew)
    }

    /// Has all workers do something, and waits until all have.
    fn all(
        &mut self,
        order: Order,
        part: &'static str,
        progress: &mut impl FnMut(Progress),
        outcome: &mut Outcome,
    ) -> Result<(), String> {
        self.tell(order)?;
        let (mut left, mut at_barrier, mut next) = (self.workers.len(), 0, 0);
        self.done.fill((0, 0));
        while left > 0 {
            let (worker, report) = match self.reports.recv_timeout(Duration::from_secs(1)) {
                Ok(report) => report,
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => unreachable!("each worker's last words come first"),
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
                    progress(Progress { part, operations, bytes });
                }
                Some(Report::Barrier(number)) => {
                    assert_eq!(number, next, "a worker is at another barrier");
                    at_barrier += 1;
                    if at_barrier == self.workers.len() {
                        self.tell(Order::Pass(number))?;
                        (at_barrier, next) = (0, next + 1);
                    }
                }
                Some(Report::Failed(why)) => return Err(why),
                None => return Err(self.dead(worker)),
            }
        }
        outcome.barriers += next;
        Ok(())
    }

    fn tell(&mut self, order: Order) -> Result<(), String> {
        let line = serde_json::to_string(&order).map_err(|error| error.to_string())?;
        for number in 0..self.workers.len() {
            let input = self.workers[number].input.as_mut().expect("open until the end");
            if writeln!(input, "{line}").and_then(|()| input.flush()).is_err() {
                // Perhaps it has said why.
                let last = self.reports.try_iter().find_map(|(_, report)| match report {
                    Some(Report::Failed(why)) => Some(why),
                    _ => None,
                });
                return Err(last.unwrap_or_else(|| self.dead(number)));
            }
        }
        Ok(())
    }

    fn dead(&mut self, number: usize) -> String {
        let status = self.workers[number].child.wait();
        let how = status.map_or_else(|error| error.to_string(), |status| status.to_string());
        format!("process {number} of the replay ended early ({how}); its last words stand above")
    }

    fn quit(&mut self) {
        // One that is gone already has quit.
        let _ = self.tell(Order::Quit);
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        for worker in &mut self.workers {
            // The end of its input ends a worker.
            drop(worker.input.take());
        }
        let deadline = Instant::now() + self.patience;
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
