//! The tracer: what `weft run --trace` asks for by `WEFT_TRACE`. Off, each hook pays for one look at a word.
//!
//! A traced hook takes the time before ([`begin`]), does its work, and tells what came of it. Calls that the library
//! makes itself are not seen: it is inside then (`guard`).
//!
//! `files` knows which descriptors are of interest; `posix` has one function for each kind of call; the MPI tap uses
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

/// The trace directory.
const DIR: &str = "WEFT_TRACE";
/// Prefixes of paths that are traced, with colons between; without it, see [`Filter`].
const PATHS: &str = "WEFT_TRACE_PATHS";
/// Files that are not traced, as device:number with commas between: where `weft run` itself reads and writes.
const NOT: &str = "WEFT_TRACE_NOT";
/// Variables by which launchers tell a process its rank.
const RANKS: [&str; 5] =
    ["PMIX_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK", "SLURM_PROCID"];

/// Names of the variables that must reach every process of a traced program.
pub const VARIABLES: [&str; 3] = [DIR, PATHS, NOT];

static ON: AtomicBool = AtomicBool::new(false);
static TRACER: OnceLock<Tracer> = OnceLock::new();

struct Tracer {
    recorder: Recorder,
    filter: Filter,
}

/// When a call began.
#[derive(Clone, Copy)]
pub struct Start(u64);

/// At the start of the process: begins when the environment says so.
pub fn at_start() {
    let Some(dir) = variable(DIR).filter(|dir| dir.starts_with(b"/")) else { return };
    let rank = |name: &&str| std::str::from_utf8(variable(name)?).ok()?.trim().parse().ok();
    let options = Options {
        dir: OsStr::from_bytes(dir).into(),
        rank: RANKS.iter().find_map(rank),
        complain: |line| sys::complain(line),
    };
    let filter = Filter::new(variable(PATHS), &crate::config::config().mount, dir, variable(NOT));
    let _ = TRACER.set(Tracer { recorder: Recorder::new(options), filter });
    ON.store(true, Ordering::Release);
}

/// The time, when calls of this thread are traced now. The cheap question that every traced hook asks first.
#[inline(always)]
pub fn begin() -> Option<Start> {
    if is_on() { begin_traced() } else { None }
}

/// Whether there is a tracer at all: for those who take the time later.
#[inline(always)]
pub fn is_on() -> bool {
    ON.load(Ordering::Relaxed)
}

#[cold]
fn begin_traced() -> Option<Start> {
    let tracer = TRACER.get()?;
    (!guard::inside() && tracer.recorder.is_recording()).then(|| Start(clock::monotonic_ns()))
}

/// Runs `work` inside, keeping `errno`, when there is a tracer.
fn with<T>(work: impl FnOnce(&Tracer) -> Option<T>) -> Option<T> {
    let tracer = TRACER.get()?;
    let before = errno::get();
    let _inside = guard::enter();
    let result = work(tracer);
    errno::set(before);
    result
}

/// The file of that absolute path, as the program names it; `None` when it is not of interest.
pub fn file(path: &[u8]) -> Option<FileRef> {
    with(|tracer| tracer.filter.wants(path).then(|| tracer.recorder.file(path))?)
}

thread_local! {
    /// Whether this thread is in a call of MPI that all ranks make together.
    static TOGETHER: Cell<bool> = const { Cell::new(false) };
}

/// Runs a call of MPI that all ranks make together: what it does by the C library is part of that.
pub fn together<T>(call: impl FnOnce() -> T) -> T {
    let before = TOGETHER.replace(true);
    let result = call();
    TOGETHER.set(before);
    result
}

/// Records a call that began at `start` and ended now.
pub fn record(start: Start, file: FileRef, level: Level, op: Operation, collective: bool, range: (u64, u64)) {
    let end = clock::monotonic_ns();
    let collective = collective || (op.moves_bytes() && TOGETHER.get());
    with(|tracer| {
        let (offset, len) = range;
        let event = Event { file, op, level, collective, offset, len, start: start.0, end };
        Some(tracer.recorder.record(&event))
    });
}

/// The process's rank, which MPI knows once it is initialized.
pub fn set_rank(rank: u32) {
    with(|tracer| {
        tracer.recorder.set_rank(rank);
        Some(())
    });
}
