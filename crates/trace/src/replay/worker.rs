//! One process of a replay.

use super::files;
use super::protocol::{Order, Report, WorkerSpec};
use super::ranks::{self, Shared};
use super::tally::Tally;
use crate::prepared::{Prepared, Timing};
use std::ffi::CString;
use std::io::{self, BufRead, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// How often a worker says how far it is.
const PROGRESS_EVERY: Duration = Duration::from_millis(200);

/// The life of a worker: takes orders from standard input until `Quit` or its end. `spec` is what its parent gave it.
///
/// # Errors
/// When the parent is gone or makes no sense.
pub fn serve(spec: &str) -> io::Result<()> {
    let spec: WorkerSpec = serde_json::from_str(spec)?;
    let prepared = Prepared::open(&spec.trace).map_err(io::Error::other)?;
    let timing = spec.speed.map_or(Timing::Fast, Timing::Speed);
    let shared = Shared {
        prepared,
        dir: spec.dir.clone(),
        timing,
        verify: spec.verify,
        operations: AtomicU64::new(0),
        bytes: AtomicU64::new(0),
    };
    raise_descriptors();
    // Who interrupts the command interrupts its parent; that the parent is gone is then seen here.
    // SAFETY: no handler is installed.
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
        // The receiver is gone only when the worker ends anyway.
        let _ = orders.send(Event::Orphaned);
    });
    Worker { spec, shared: Arc::new(shared), gate: Arc::default(), events, inbox, quit: false }.live()
}

enum Event {
    Order(Order),
    /// The parent is gone.
    Orphaned,
    Barrier(u64),
    Done(Result<Product, String>),
}

/// What a piece of work gives.
enum Product {
    Nothing,
    Tally(Box<Tally>),
    Compared(u64),
}

/// Where the threads of this worker wait for each other and for the other workers.
#[derive(Default)]
struct Gate {
    state: Mutex<GateState>,
    passed: Condvar,
}

#[derive(Default)]
struct GateState {
    threads: u32,
    arrived: u32,
    number: u64,
    closed: bool,
}

impl Gate {
    fn wait(&self, events: &Sender<Event>) -> Result<(), String> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let number = state.number;
        state.arrived += 1;
        if state.arrived == state.threads {
            state.arrived = 0;
            // The receiver is gone only when the worker ends.
            let _ = events.send(Event::Barrier(number));
        }
        while state.number == number && !state.closed {
            state = self.passed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.closed { Err("the replay ended at a barrier".into()) } else { Ok(()) }
    }

    fn with(&self, change: impl FnOnce(&mut GateState)) {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
        self.passed.notify_all();
    }
}

struct Worker {
    spec: WorkerSpec,
    shared: Arc<Shared>,
    gate: Arc<Gate>,
    events: Sender<Event>,
    inbox: Receiver<Event>,
    quit: bool,
}

impl Worker {
    fn live(mut self) -> io::Result<()> {
        while let Ok(event) = self.inbox.recv() {
            let order = match event {
                Event::Order(order) => order,
                Event::Orphaned if self.spec.janitor => {
                    self.sweep();
                    break;
                }
                Event::Orphaned => break,
                Event::Barrier(_) | Event::Done(_) => continue,
            };
            let works: Vec<Work> = match order {
                Order::Hello => vec![Box::new(|_, _| Ok(Product::Nothing))],
                Order::Begin => vec![Box::new(begin)],
                Order::End => vec![Box::new(end)],
                Order::Prepare => vec![Box::new(prepare)],
                Order::PrepareParts => vec![Box::new(prepare_parts)],
                Order::Run => self.threads(),
                Order::Verify => vec![Box::new(verify)],
                Order::Clean => vec![Box::new(clean)],
                Order::Pass(_) => continue,
                Order::Quit => break,
            };
            let report = self.work(works)?;
            say(&report)?;
            if self.quit || matches!(report, Report::Failed(_)) {
                break;
            }
        }
        Ok(())
    }

    /// Removes all files of the replay, of which other workers may still be making some while they end.
    fn sweep(&self) {
        for _ in 0..50 {
            // Whatever is wrong is so again next time, or was a worker that has ended since.
            let _ = clean(&self.spec, &self.shared);
            match end(&self.spec, &self.shared) {
                Ok(_) => return,
                Err(_) if !self.spec.dir.exists() => return,
                Err(_) => std::thread::sleep(PROGRESS_EVERY),
            }
        }
    }

    /// One piece of work for each thread, each with its ranks.
    fn threads(&self) -> Vec<Work> {
        let mine: Vec<u32> = ranks_of(&self.spec, self.spec.worker, self.shared.prepared.ranks()).collect();
        let threads = self.spec.threads.clamp(1, mine.len().max(1) as u32);
        self.gate.with(|state| state.threads = threads);
        (0..threads)
            .map(|thread| {
                let ranks: Vec<u32> =
                    mine.iter().copied().skip(thread as usize).step_by(threads as usize).collect();
                let (gate, events) = (self.gate.clone(), self.events.clone());
                let work: Work = Box::new(move |_, shared| {
                    ranks::run(shared, &ranks, || gate.wait(&events))
                        .map(|tally| Product::Tally(Box::new(tally)))
                });
                work
            })
            .collect()
    }

    /// Does pieces of work on threads of their own, and meanwhile tells how far they are.
    fn work(&mut self, works: Vec<Work>) -> io::Result<Report> {
        let mut left = works.len();
        for work in works {
            let (shared, spec, events) = (self.shared.clone(), self.spec.clone(), self.events.clone());
            std::thread::spawn(move || {
                let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(&spec, &shared)));
                let done = done.unwrap_or_else(|_| Err("a thread of the replay panicked; see above".into()));
                // The receiver is gone only when the worker ends.
                let _ = events.send(Event::Done(done));
            });
        }
        let mut tally: Option<Box<Tally>> = None;
        let mut compared = None;
        let mut failure = None;
        while left > 0 {
            match self.inbox.recv_timeout(PROGRESS_EVERY) {
                Ok(Event::Order(Order::Pass(number))) => self.gate.with(|state| state.number = number + 1),
                Ok(Event::Orphaned | Event::Order(Order::Quit)) => {
                    self.quit = true;
                    return Ok(Report::Failed("ended by the parent".into()));
                }
                Ok(Event::Order(_)) => {}
                Ok(Event::Barrier(number)) => say(&Report::Barrier(number))?,
                Ok(Event::Done(Ok(product))) => {
                    left -= 1;
                    match product {
                        Product::Nothing => {}
                        Product::Compared(bytes) => compared = Some(bytes),
                        Product::Tally(more) => match &mut tally {
                            Some(tally) => tally.merge(*more),
                            None => tally = Some(more),
                        },
                    }
                }
                Ok(Event::Done(Err(why))) => {
                    left -= 1;
                    failure.get_or_insert(why);
                    self.gate.with(|state| state.closed = true);
                }
                Err(RecvTimeoutError::Timeout) => say(&Report::Progress {
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

type Work = Box<dyn FnOnce(&WorkerSpec, &Shared) -> Result<Product, String> + Send>;

fn say(report: &Report) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{}", serde_json::to_string(report)?)?;
    out.flush()
}

/// The ranks of a worker: neighbors are in different ones, as on a cluster.
fn ranks_of(spec: &WorkerSpec, worker: u32, ranks: u32) -> impl Iterator<Item = u32> {
    (worker..ranks).step_by(spec.workers as usize)
}

/// The files of a worker.
fn files_of<'a>(spec: &'a WorkerSpec, shared: &'a Shared) -> impl Iterator<Item = u32> + 'a {
    (spec.worker..shared.prepared.facts.files.len() as u32).step_by(spec.workers as usize)
}

fn begin(spec: &WorkerSpec, shared: &Shared) -> Result<Product, String> {
    if spec.worker > 0 {
        return Ok(Product::Nothing);
    }
    let failed = |error: io::Error| format!("{}: {error}", spec.dir.display());
    std::fs::create_dir(&spec.dir).map_err(failed)?;
    let files = &shared.prepared.facts.files;
    let needed = files.iter().fold(0u64, |sum, file| sum.saturating_add(file.room()));
    let free = spec.check_room.map(|at_most| free(&spec.dir).map(|free| free.min(at_most)));
    if let Some(free) = free.transpose().map_err(failed)?
        && needed > free
    {
        // Empty still; that it cannot be removed changes nothing about the answer.
        let _ = std::fs::remove_dir(&spec.dir);
        return Err(format!(
            "{}: the files of this trace come to {needed} bytes, and {free} are free; choose another place or take less \
             of the trace (--only, --ranks, --until), or say --no-room-check if that place needs less",
            spec.dir.display()
        ));
    }
    Ok(Product::Nothing)
}

fn free(dir: &Path) -> io::Result<u64> {
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

fn end(spec: &WorkerSpec, _: &Shared) -> Result<Product, String> {
    if spec.worker == 0 {
        std::fs::remove_dir(&spec.dir)
            .map_err(|error| format!("removing {}: {error}", spec.dir.display()))?;
    }
    Ok(Product::Nothing)
}

fn prepare(spec: &WorkerSpec, shared: &Shared) -> Result<Product, String> {
    for file in files_of(spec, shared) {
        if let Some(len) = shared.prepared.facts.files[file as usize].input {
            files::make_input(shared, file, len)
                .map_err(|error| format!("preparing {}: {error}", shared.path(file).display()))?;
        }
    }
    Ok(Product::Nothing)
}

fn prepare_parts(spec: &WorkerSpec, shared: &Shared) -> Result<Product, String> {
    for rank in ranks_of(spec, spec.worker, shared.prepared.ranks()) {
        files::make_parts(shared, rank)?;
    }
    shared.bytes.store(0, Ordering::Relaxed);
    Ok(Product::Nothing)
}

fn verify(spec: &WorkerSpec, shared: &Shared) -> Result<Product, String> {
    let mut bytes = 0;
    // What another process wrote: its own writes a process may see earlier than others do.
    let other = (spec.worker + 1) % spec.workers;
    for rank in ranks_of(spec, other, shared.prepared.ranks()) {
        bytes += files::verify(shared, rank)?;
    }
    Ok(Product::Compared(bytes))
}

fn clean(spec: &WorkerSpec, shared: &Shared) -> Result<Product, String> {
    for file in files_of(spec, shared) {
        let path = shared.path(file);
        let directory = shared.prepared.facts.files[file as usize].directory;
        let removed = if directory { std::fs::remove_dir(&path) } else { std::fs::remove_file(&path) };
        match removed {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(format!("removing {}: {error}", path.display()));
            }
            _ => {}
        }
    }
    Ok(Product::Nothing)
}

/// Ranks keep their files open: as many as the system allows.
fn raise_descriptors() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is valid for both calls; where it cannot be raised the old one stays.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
        }
    }
}
