//! A worker process of a replay.

use super::files;
use super::protocol::{Order, Report, WorkerSpec};
use super::ranks::{self, Shared};
use super::tally::Tally;
use crate::prepared::{FilePlan, Prepared, Timing};
use std::ffi::CString;
use std::io::{self, BufRead, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;
use weft_client::{FileSystem, HostFs};
use weft_env::real::{RealEnv, block_on};

/// Interval of a worker's progress reports.
const PROGRESS_EVERY: Duration = Duration::from_millis(200);

/// Runs a worker: executes orders from standard input until `Quit` or its end. `spec` is a `WorkerSpec` in JSON.
///
/// # Errors
/// Fails if `spec` is invalid or the parent has died.
pub fn serve(spec: &str) -> io::Result<()> {
    let spec: WorkerSpec = serde_json::from_str(spec)?;
    let prepared = Prepared::open(&spec.trace).map_err(io::Error::other)?;
    let timing = spec.speed.map_or(Timing::Fast, Timing::Speed);
    let shared = Shared {
        host: HostFs::new(RealEnv::new()),
        prepared,
        dir: spec.dir.clone(),
        timing,
        verify: spec.verify,
        operations: AtomicU64::new(0),
        bytes: AtomicU64::new(0),
    };
    raise_descriptor_limit();
    // Ctrl-C reaches the parent too; the worker learns of the parent's exit from the end of its standard input.
    // SAFETY: SIGINT is ignored; no handler is installed.
    unsafe { libc::signal(libc::SIGINT, libc::SIG_IGN) };
    let (events, inbox) = channel();
    let orders = events.clone();
    std::thread::spawn(move || {
        for line in io::stdin().lock().lines() {
            let Some(order) = line.ok().and_then(|line| serde_json::from_str(&line).ok()) else { break };
            if orders.send(Event::Order(order)).is_err() {
                return;
            }
        }
        // Sending fails only while the worker is exiting.
        let _ = orders.send(Event::ParentExited);
    });
    Worker { spec, shared: Arc::new(shared), barrier: Arc::default(), events, inbox, quit: false }.run()
}

enum Event {
    Order(Order),
    /// The parent's end of the pipe was closed.
    ParentExited,
    Barrier(u64),
    Done(Result<WorkResult, String>),
}

/// Result of a piece of work.
enum WorkResult {
    Nothing,
    Tally(Box<Tally>),
    Compared(u64),
}

/// Barrier between the threads of this worker, extended to all workers by the parent.
#[derive(Default)]
struct ThreadBarrier {
    state: Mutex<BarrierState>,
    passed: Condvar,
}

#[derive(Default)]
struct BarrierState {
    threads: u32,
    arrived: u32,
    number: u64,
    closed: bool,
}

impl ThreadBarrier {
    fn wait(&self, events: &Sender<Event>) -> Result<(), String> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let number = state.number;
        state.arrived += 1;
        if state.arrived == state.threads {
            state.arrived = 0;
            // Sending fails only while the worker is exiting.
            let _ = events.send(Event::Barrier(number));
        }
        while state.number == number && !state.closed {
            state = self.passed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.closed { Err("the replay ended at a barrier".into()) } else { Ok(()) }
    }

    fn with(&self, change: impl FnOnce(&mut BarrierState)) {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
        self.passed.notify_all();
    }
}

struct Worker {
    spec: WorkerSpec,
    shared: Arc<Shared>,
    barrier: Arc<ThreadBarrier>,
    events: Sender<Event>,
    inbox: Receiver<Event>,
    quit: bool,
}

impl Worker {
    fn run(mut self) -> io::Result<()> {
        while let Ok(event) = self.inbox.recv() {
            let order = match event {
                Event::Order(order) => order,
                Event::ParentExited if self.spec.janitor => {
                    self.remove_all();
                    break;
                }
                Event::ParentExited => break,
                Event::Barrier(_) | Event::Done(_) => continue,
            };
            let works: Vec<Work> = match order {
                Order::Hello => vec![Box::new(|_, _| Ok(WorkResult::Nothing))],
                Order::Begin => vec![Box::new(create_dir)],
                Order::End => vec![Box::new(remove_dir)],
                Order::Prepare => vec![Box::new(prepare)],
                Order::PrepareParts => vec![Box::new(prepare_parts)],
                Order::SyncInput => vec![Box::new(sync_input)],
                Order::SyncWritten => vec![Box::new(sync_written)],
                Order::Run => self.rank_work(),
                Order::Verify => vec![Box::new(verify)],
                Order::Clean => vec![Box::new(clean)],
                Order::Pass(_) => continue,
                Order::Quit => break,
            };
            let report = self.work(works)?;
            send_report(&report)?;
            if self.quit || matches!(report, Report::Failed(_)) {
                break;
            }
        }
        Ok(())
    }

    /// Removes all files of the replay. Other workers may still create files while they exit, so it retries.
    fn remove_all(&self) {
        for _ in 0..50 {
            // An error is ignored: it is either permanent, or a worker that has exited by the next attempt.
            let _ = clean(&self.spec, &self.shared);
            match remove_dir(&self.spec, &self.shared) {
                Ok(_) => return,
                Err(_) if !self.spec.dir.exists() => return,
                Err(_) => std::thread::sleep(PROGRESS_EVERY),
            }
        }
    }

    /// Returns one piece of work per thread, each with its ranks.
    fn rank_work(&self) -> Vec<Work> {
        let own_ranks: Vec<u32> =
            ranks_of(&self.spec, self.spec.worker, self.shared.prepared.ranks()).collect();
        let threads = self.spec.threads.clamp(1, own_ranks.len().max(1) as u32);
        self.barrier.with(|state| state.threads = threads);
        (0..threads)
            .map(|thread| {
                let ranks: Vec<u32> =
                    own_ranks.iter().copied().skip(thread as usize).step_by(threads as usize).collect();
                let (barrier, events) = (self.barrier.clone(), self.events.clone());
                let work: Work = Box::new(move |_, shared| {
                    ranks::run(shared, &ranks, || barrier.wait(&events))
                        .map(|tally| WorkResult::Tally(Box::new(tally)))
                });
                work
            })
            .collect()
    }

    /// Executes pieces of work on threads of their own and reports progress meanwhile.
    fn work(&mut self, works: Vec<Work>) -> io::Result<Report> {
        let mut left = works.len();
        for work in works {
            let (shared, spec, events) = (self.shared.clone(), self.spec.clone(), self.events.clone());
            std::thread::spawn(move || {
                let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(&spec, &shared)));
                let done = done.unwrap_or_else(|_| Err("a thread of the replay panicked, see above".into()));
                // Sending fails only while the worker is exiting.
                let _ = events.send(Event::Done(done));
            });
        }
        let mut tally: Option<Box<Tally>> = None;
        let mut compared = None;
        let mut failure = None;
        while left > 0 {
            match self.inbox.recv_timeout(PROGRESS_EVERY) {
                Ok(Event::Order(Order::Pass(number))) => self.barrier.with(|state| state.number = number + 1),
                Ok(Event::ParentExited | Event::Order(Order::Quit)) => {
                    self.quit = true;
                    return Ok(Report::Failed("ended by the parent".into()));
                }
                Ok(Event::Order(_)) => {}
                Ok(Event::Barrier(number)) => send_report(&Report::Barrier(number))?,
                Ok(Event::Done(Ok(product))) => {
                    left -= 1;
                    match product {
                        WorkResult::Nothing => {}
                        WorkResult::Compared(bytes) => compared = Some(bytes),
                        WorkResult::Tally(more) => match &mut tally {
                            Some(tally) => tally.merge(*more),
                            None => tally = Some(more),
                        },
                    }
                }
                Ok(Event::Done(Err(why))) => {
                    left -= 1;
                    failure.get_or_insert(why);
                    self.barrier.with(|state| state.closed = true);
                }
                Err(RecvTimeoutError::Timeout) => send_report(&Report::Progress {
                    operations: self.shared.operations.load(Ordering::Relaxed),
                    bytes: self.shared.bytes.load(Ordering::Relaxed),
                })?,
                Err(RecvTimeoutError::Disconnected) => unreachable!("this worker holds a sender"),
            }
        }
        Ok(match (failure, tally, compared) {
            (Some(why), ..) => Report::Failed(why),
            (None, Some(tally), _) => Report::Done(tally),
            (None, None, Some(bytes)) => Report::Verified(bytes),
            (None, None, None) => Report::Ready,
        })
    }
}

type Work = Box<dyn FnOnce(&WorkerSpec, &Shared) -> Result<WorkResult, String> + Send>;

fn send_report(report: &Report) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{}", serde_json::to_string(report)?)?;
    out.flush()
}

/// Ranks of a worker, dealt out so that neighboring ranks run in different processes, as on a cluster.
fn ranks_of(spec: &WorkerSpec, worker: u32, ranks: u32) -> impl Iterator<Item = u32> {
    (worker..ranks).step_by(spec.workers as usize)
}

/// Files of a worker.
fn files_of<'a>(spec: &'a WorkerSpec, shared: &'a Shared) -> impl Iterator<Item = u32> + 'a {
    (spec.worker..shared.prepared.facts.files.len() as u32).step_by(spec.workers as usize)
}

fn create_dir(spec: &WorkerSpec, shared: &Shared) -> Result<WorkResult, String> {
    if spec.worker > 0 {
        return Ok(WorkResult::Nothing);
    }
    let failed = |error: io::Error| format!("{}: {error}", spec.dir.display());
    block_on(shared.host.mkdir(&shared.root(), 0o777)).map_err(|error| failed(error.into()))?;
    let files = &shared.prepared.facts.files;
    let needed = files.iter().fold(0u64, |sum, file| sum.saturating_add(file.space_needed()));
    let free = spec.space_limit.map(|limit| free_bytes(&spec.dir).map(|free| free.min(limit)));
    if let Some(free) = free.transpose().map_err(failed)?
        && needed > free
    {
        // The directory is empty. If it cannot be removed, the error below is still the one to report.
        let _ = block_on(shared.host.rmdir(&shared.root()));
        return Err(format!(
            "{}: the files of this trace need {needed} bytes, and {free} bytes are free; choose another directory, \
             replay less of the trace (--only, --ranks, --until), or skip this check with --no-room-check",
            spec.dir.display()
        ));
    }
    Ok(WorkResult::Nothing)
}

fn free_bytes(dir: &Path) -> io::Result<u64> {
    let dir = CString::new(dir.as_os_str().as_bytes())?;
    // SAFETY: all-zero is a valid statvfs, which the call fills; the path is a C string.
    unsafe {
        let mut stat: libc::statvfs = std::mem::zeroed();
        if libc::statvfs(dir.as_ptr(), &raw mut stat) != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }
}

fn remove_dir(spec: &WorkerSpec, shared: &Shared) -> Result<WorkResult, String> {
    if spec.worker == 0 {
        block_on(shared.host.rmdir(&shared.root()))
            .map_err(|error| format!("removing {}: {}", spec.dir.display(), io::Error::from(error)))?;
    }
    Ok(WorkResult::Nothing)
}

fn prepare(spec: &WorkerSpec, shared: &Shared) -> Result<WorkResult, String> {
    for file in files_of(spec, shared) {
        if let Some(len) = shared.prepared.facts.files[file as usize].input {
            files::create_input(shared, file, len)
                .map_err(|error| format!("preparing {}: {error}", shared.path(file).display()))?;
        }
    }
    Ok(WorkResult::Nothing)
}

fn prepare_parts(spec: &WorkerSpec, shared: &Shared) -> Result<WorkResult, String> {
    for rank in ranks_of(spec, spec.worker, shared.prepared.ranks()) {
        files::fill_parts(shared, rank)?;
    }
    shared.bytes.store(0, Ordering::Relaxed);
    Ok(WorkResult::Nothing)
}

fn sync_input(spec: &WorkerSpec, shared: &Shared) -> Result<WorkResult, String> {
    sync(spec, shared, |plan| plan.input.is_some())
}

fn sync_written(spec: &WorkerSpec, shared: &Shared) -> Result<WorkResult, String> {
    sync(spec, shared, |plan| plan.written)
}

fn sync(
    spec: &WorkerSpec,
    shared: &Shared,
    wanted: impl Fn(&FilePlan) -> bool,
) -> Result<WorkResult, String> {
    let mut tally = Tally::default();
    for number in files_of(spec, shared) {
        let plan = &shared.prepared.facts.files[number as usize];
        if plan.directory || !wanted(plan) {
            continue;
        }
        files::sync(shared, number, &mut tally)
            .map_err(|error| format!("syncing {}: {error}", shared.path(number).display()))?;
    }
    Ok(WorkResult::Tally(Box::new(tally)))
}

fn verify(spec: &WorkerSpec, shared: &Shared) -> Result<WorkResult, String> {
    let mut bytes = 0;
    // Another process's writes: a process may see its own writes before other processes do.
    let other = (spec.worker + 1) % spec.workers;
    for rank in ranks_of(spec, other, shared.prepared.ranks()) {
        bytes += files::verify(shared, rank)?;
    }
    Ok(WorkResult::Compared(bytes))
}

fn clean(spec: &WorkerSpec, shared: &Shared) -> Result<WorkResult, String> {
    for file in files_of(spec, shared) {
        let at = shared.at(file);
        let is_directory = shared.prepared.facts.files[file as usize].directory;
        let removed = match is_directory {
            true => block_on(shared.host.rmdir(&at)),
            false => block_on(shared.host.unlink(&at)),
        };
        match removed.map_err(io::Error::from) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(format!("removing {}: {error}", at.path.display()));
            }
            _ => {}
        }
    }
    Ok(WorkResult::Nothing)
}

/// Raises the limit of open descriptors to the maximum, because ranks keep their files open.
fn raise_descriptor_limit() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is valid for both calls. If raising fails, the old limit remains.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
        }
    }
}
