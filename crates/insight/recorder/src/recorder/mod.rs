//! The recorder: records a process's operations in bounded memory, to files of its own in the trace directory.
//!
//! # Buffers and draining
//!
//! ```text
//!   thread 1    thread 2    thread 3          at most 16 shards; a thread keeps the shard it was given
//!      │           │           │
//!  ┌───▼───────────▼───┐  ┌────▼──────────────┐
//!  │ shard 0           │  │ shard 1           │  .wtail file, mapped shared (format: `crate::tail`)
//!  │ buffer 0 buffer 1 │  │ buffer 2 buffer 3 │  1,364 slots of 48 bytes in each buffer
//!  └────┬──────────────┘  └───────────────────┘
//!       │ a buffer is full: the thread that filled it compresses it into a block
//!       ▼
//!  part file, .wtrace: names block, records block, names block, records block, …
//! ```
//!
//! | step | under the lock of | effect |
//! | --- | --- | --- |
//! | 1. store | shard | the slot goes into the active buffer, then the slot count is incremented |
//! | 2. switch | shard | the thread that fills the buffer makes the other buffer active |
//! | 3. names | part file, names | pending names are appended first: a block may refer only to names before it |
//! | 4. begin | part file | the tail records which buffer is drained and how many records the part file has |
//! | 5. append | part file | the block is appended |
//! | 6. end | part file | the slot count is set to 0 and the mark of step 4 is cleared |
//!
//! During steps 3 to 6 other threads use the shard's other buffer. A process may die at any point. If the mark of step
//! 4 is set, the merge compares record counts to learn whether step 5 happened, and so neither loses nor duplicates the
//! buffer. Threads that fill both buffers wait for the lock of the part file.
//!
//! # Forks and signals
//!
//! A forked child must not write into its parent's files. The recorder's phase is a word that the kernel clears in the
//! child (`MADV_WIPEONFORK`), so the child creates files of its own at its first operation, whichever call forked it.
//! A signal handler must not wait for a lock that its own thread holds: an operation that interrupts the recorder on
//! the same thread is counted as lost.

mod mapping;
mod names;
mod part_file;
mod process;

use crate::record::{Level, Operation};
use crate::tail::{SHARDS_MAX, Slot};
use process::Process;
use std::cell::Cell;
use std::path::PathBuf;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering::*};

/// A file in this process's trace.
///
/// Numbers are valid in one process only; a forked child has others: see [`Recorder::is_current`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileRef {
    generation: u32,
    number: u32,
}

impl FileRef {
    /// Packs the reference into one nonzero word.
    pub fn word(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.number)
    }

    /// Unpacks the result of [`FileRef::word`].
    pub fn from_word(word: u64) -> Self {
        Self { generation: (word >> 32) as u32, number: word as u32 }
    }
}

/// One operation. Times are values of [`crate::clock::monotonic_ns`].
#[derive(Clone, Copy, Debug)]
pub struct Event {
    /// File that the call refers to.
    pub file: FileRef,
    /// Kind of operation.
    pub op: Operation,
    /// Interface of the call.
    pub level: Level,
    /// Whether the operation is part of a collective call.
    pub collective: bool,
    /// First byte transferred; the new length for a truncate.
    pub offset: u64,
    /// Bytes transferred.
    pub len: u64,
    /// Time at which the call began.
    pub start: u64,
    /// Time at which the call returned.
    pub end: u64,
}

/// Options of a recorder.
#[derive(Clone, Debug)]
pub struct Options {
    /// The trace directory, which all processes of a program share.
    pub dir: PathBuf,
    /// The process's rank, if it is known before the first operation.
    pub rank: Option<u32>,
    /// Called once with the reason if tracing ends before the process does.
    pub on_end: fn(&str),
}

/// Phase: no files exist yet. A forked child starts here because the kernel clears the word.
const NOT_STARTED: u32 = 0;
/// Phase: a thread is creating the files.
const STARTING: u32 = 1;
/// Phase: operations are recorded.
const RUNNING: u32 = 2;
/// Phase: tracing ended before the process did.
const ENDED: u32 = 3;

/// Records the operations of one process and, after a fork, of its child.
pub struct Recorder {
    options: Options,
    /// Current phase, in memory that the kernel clears in a forked child; never unmapped.
    phase: &'static AtomicU32,
    /// Files of this process. The parent's are leaked in a forked child, since other threads' locks may be held.
    process: AtomicPtr<Process>,
    generation: AtomicU32,
    rank: AtomicU32,
    next_shard: AtomicU32,
    /// Lost operations that no [`Process`] has counted yet: before the files exist, or in a signal handler.
    uncounted_lost: AtomicU64,
}

thread_local! {
    // Constant initializers and no destructors: no allocation, and access is safe at any point of a thread's life.
    static IS_RECORDING: Cell<bool> = const { Cell::new(false) };
    static SHARD: Cell<u32> = const { Cell::new(u32::MAX) };
}

/// Marks the thread as recording and restores `errno` at the end. See "Forks and signals" in the module documentation.
struct RecordingGuard(i32);

impl RecordingGuard {
    fn enter() -> Option<Self> {
        // SAFETY: `__errno_location` always returns a valid pointer.
        (!IS_RECORDING.replace(true)).then(|| Self(unsafe { *libc::__errno_location() }))
    }
}

impl Drop for RecordingGuard {
    fn drop(&mut self) {
        // SAFETY: as in `enter`.
        unsafe { *libc::__errno_location() = self.0 };
        IS_RECORDING.set(false);
    }
}

impl Recorder {
    /// Creates a recorder, which creates its files at the first operation.
    pub fn new(options: Options) -> Self {
        Self {
            rank: AtomicU32::new(options.rank.unwrap_or(crate::tail::UNKNOWN_RANK)),
            options,
            phase: mapping::zeroed_on_fork(),
            process: AtomicPtr::new(null_mut()),
            generation: AtomicU32::new(0),
            next_shard: AtomicU32::new(0),
            uncounted_lost: AtomicU64::new(0),
        }
    }

    /// Sets the process's rank. It applies to operations recorded earlier, too.
    pub fn set_rank(&self, rank: u32) {
        self.rank.store(rank, Relaxed);
        if self.phase.load(Acquire) == RUNNING
            && let Some(process) = self.current()
        {
            process.set_rank(rank);
        }
    }

    /// Whether tracing has not ended.
    pub fn is_recording(&self) -> bool {
        self.phase.load(Relaxed) != ENDED
    }

    /// Whether `file` belongs to this process and not to the process that it was forked from.
    #[inline]
    pub fn is_current(&self, file: FileRef) -> bool {
        self.phase.load(Acquire) == RUNNING && file.generation == self.generation.load(Relaxed)
    }

    /// Returns a reference to the file with this absolute path; `None` if nothing can be recorded.
    pub fn file(&self, name: &[u8]) -> Option<FileRef> {
        let _guard = RecordingGuard::enter()?;
        let process = self.process()?;
        match process.file_number(name) {
            Ok(number) => Some(FileRef { generation: process.generation, number: number? }),
            Err(error) => {
                self.end(process, &error);
                None
            }
        }
    }

    /// Records an operation. Returns false if it was lost.
    pub fn record(&self, event: &Event) -> bool {
        let Some(_guard) = RecordingGuard::enter() else {
            self.uncounted_lost.fetch_add(1, Relaxed);
            return false;
        };
        let Some(process) = self.process() else { return false };
        if event.file.generation != process.generation {
            process.lost(1);
            return false;
        }
        let since = |at: u64| at.saturating_sub(process.anchor_ns);
        let start = since(event.start);
        let slot = Slot {
            start,
            end: since(event.end).max(start),
            offset: event.offset,
            len: event.len,
            file: event.file.number,
            op: event.op,
            level: event.level,
            collective: event.collective,
        };
        match process.push(self.shard(), &slot) {
            Ok(()) => true,
            Err(error) => {
                self.end(process, &error);
                false
            }
        }
    }

    /// Appends all recorded operations to the part file, except those that other threads are draining.
    ///
    /// # Errors
    /// Returns the error that ended tracing.
    pub fn flush(&self) -> std::io::Result<()> {
        let Some(_guard) = RecordingGuard::enter() else { return Ok(()) };
        let Some(process) = self.current().filter(|_| self.phase.load(Acquire) == RUNNING) else {
            return Ok(());
        };
        process.flush().inspect_err(|error| self.end(process, error))
    }

    fn shard(&self) -> usize {
        let mut shard = SHARD.get();
        if shard == u32::MAX {
            shard = self.next_shard.fetch_add(1, Relaxed) % SHARDS_MAX as u32;
            SHARD.set(shard);
        }
        shard as usize
    }

    fn current(&self) -> Option<&Process> {
        // SAFETY: a `Process` is never freed.
        unsafe { self.process.load(Acquire).as_ref() }
    }

    /// Returns this process's files and creates them at the first operation.
    #[inline]
    fn process(&self) -> Option<&Process> {
        match self.phase.load(Acquire) {
            RUNNING => self.current(),
            ENDED => None,
            _ => self.start(),
        }
    }

    #[cold]
    fn start(&self) -> Option<&Process> {
        loop {
            match self.phase.compare_exchange(NOT_STARTED, STARTING, AcqRel, Acquire) {
                Ok(_) => break,
                Err(RUNNING) => return self.current(),
                Err(ENDED) => return None,
                Err(_) => std::thread::yield_now(),
            }
        }
        let generation = self.generation.fetch_add(1, Relaxed) + 1;
        // In a forked child everything of the parent is leaked except the mapping, into which the child must not write.
        if let Some(parents) = self.current() {
            parents.unmap();
        }
        let rank = self.rank.load(Relaxed);
        match Process::new(&self.options.dir, generation, rank, self.uncounted_lost.swap(0, Relaxed)) {
            Ok(process) => {
                self.process.store(Box::into_raw(Box::new(process)), Release);
                self.phase.store(RUNNING, Release);
                self.current()
            }
            Err(error) => {
                self.phase.store(ENDED, Release);
                let dir = self.options.dir.display();
                (self.options.on_end)(&format!(
                    "process {} is not traced: {dir}: {error}; the program continues",
                    std::process::id()
                ));
                None
            }
        }
    }

    #[cold]
    fn end(&self, process: &Process, error: &std::io::Error) {
        if self.phase.swap(ENDED, AcqRel) == ENDED {
            return;
        }
        process.ended(error);
        (self.options.on_end)(&format!(
            "tracing of process {} ended: {}: {error}; the program continues, and earlier records are kept",
            std::process::id(),
            process.part().display()
        ));
    }
}
