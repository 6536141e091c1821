//! The tracer, which `weft run --trace` enables through `WEFT_TRACE`. While it is off, each hook only reads one word.
//!
//! A traced hook takes the time before the call ([`begin`]), executes the call, and records the result. Calls that the
//! library itself makes are not recorded, because the thread is then inside the client (`guard`).
//!
//! `files` knows which descriptors are traced; `posix` has one function for each kind of call; the MPI hooks use
//! [`file()`], [`record`] and [`set_rank`].

mod files;
mod filter;
pub mod posix;
pub mod streams;

use crate::config::variable;
use crate::{errno, guard, sys};
use filter::Filter;
use std::cell::Cell;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
pub use weft_recorder::{Event, FileRef, Level, Operation};
use weft_recorder::{Options, Recorder, clock};

/// Trace directory.
const DIR: &str = "WEFT_TRACE";
/// Prefixes of traced paths, separated by colons; see [`Filter`] for the default.
const PATHS: &str = "WEFT_TRACE_PATHS";
/// Files that are not traced, as device:inode separated by commas: the input and output of `weft run` itself.
const NOT: &str = "WEFT_TRACE_NOT";
/// Variables in which launchers pass the rank to a process.
const RANKS: [&str; 5] =
    ["PMIX_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK", "SLURM_PROCID"];

/// Variables that must reach every process of a traced program.
pub const VARIABLES: [&str; 3] = [DIR, PATHS, NOT];

static ON: AtomicBool = AtomicBool::new(false);
static TRACER: OnceLock<Tracer> = OnceLock::new();

struct Tracer {
    recorder: Recorder,
    filter: Filter,
}

/// Start time of a call.
#[derive(Clone, Copy)]
pub struct Start(u64);

/// Starts the tracer if the environment requests it. Called at the start of the process.
pub fn at_start() {
    let Some(dir) = variable(DIR).filter(|dir| dir.starts_with(b"/")) else { return };
    let rank = |name: &&str| std::str::from_utf8(variable(name)?).ok()?.trim().parse().ok();
    let options = Options {
        dir: OsStr::from_bytes(dir).into(),
        rank: RANKS.iter().find_map(rank),
        on_end: |line| sys::complain(line),
    };
    let filter = Filter::new(variable(PATHS), &crate::config::config().mount, dir, variable(NOT));
    let _ = TRACER.set(Tracer { recorder: Recorder::new(options), filter });
    ON.store(true, Ordering::Release);
}

/// Returns the current time if calls of this thread are traced now. The cheap check with which every traced hook
/// starts.
#[inline(always)]
pub fn begin() -> Option<Start> {
    if is_on() { begin_traced() } else { None }
}

/// Whether the tracer is on, for hooks that take the time later.
#[inline(always)]
pub fn is_on() -> bool {
    ON.load(Ordering::Relaxed)
}

#[cold]
fn begin_traced() -> Option<Start> {
    let tracer = TRACER.get()?;
    (!guard::inside() && tracer.recorder.is_recording()).then(|| Start(clock::monotonic_ns()))
}

/// Runs `work` inside the client if the tracer is on, and keeps `errno`.
fn with<T>(work: impl FnOnce(&Tracer) -> Option<T>) -> Option<T> {
    let tracer = TRACER.get()?;
    let before = errno::get();
    let _inside = guard::enter();
    let result = work(tracer);
    errno::set(before);
    result
}

/// Returns the file at the absolute path, as the program names it; `None` if it is not traced.
pub fn file(path: &[u8]) -> Option<FileRef> {
    with(|tracer| tracer.filter.wants(path).then(|| tracer.recorder.file(path))?)
}

thread_local! {
    /// Whether this thread is in a collective call of MPI.
    static COLLECTIVE: Cell<bool> = const { Cell::new(false) };
}

/// Runs a collective call of MPI: its calls of the C library are recorded as part of it.
pub fn collective_call<T>(call: impl FnOnce() -> T) -> T {
    let before = COLLECTIVE.replace(true);
    let result = call();
    COLLECTIVE.set(before);
    result
}

/// Records a call that started at `start` and ends now.
pub fn record(start: Start, file: FileRef, level: Level, op: Operation, collective: bool, range: (u64, u64)) {
    let end = clock::monotonic_ns();
    let collective = collective || (op.moves_bytes() && COLLECTIVE.get());
    with(|tracer| {
        let (offset, len) = range;
        let event = Event { file, op, level, collective, offset, len, start: start.0, end };
        Some(tracer.recorder.record(&event))
    });
}

/// Sets the process's rank, which MPI knows once it is initialized.
pub fn set_rank(rank: u32) {
    with(|tracer| {
        tracer.recorder.set_rank(rank);
        Some(())
    });
}
