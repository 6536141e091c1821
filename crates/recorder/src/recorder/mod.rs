//! Records what a process does, in bounded memory, to files of its own in a trace directory.
//!
//! An operation goes into a slot of a mapped shard ([`crate::tail`]), of which every thread uses one; a full half is
//! compressed and appended to the process's part by the thread that filled it, while the others go on in the other
//! half. A forked child begins files of its own: a word in memory that the kernel empties at a fork says that this
//! is another process, however it was made.

mod drain;
mod mapping;
mod names;
mod process;

use crate::record::{Level, Operation};
use crate::tail::{SHARDS, Slot};
use process::Process;
use std::cell::Cell;
use std::path::PathBuf;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering::*};

/// A file of one process's trace. Forked children have numbers of their own: see [`Recorder::is_current`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileRef {
    generation: u32,
    number: u32,
}

impl FileRef {
    /// In one word, which is never 0.
    pub fn word(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.number)
    }

    /// From that word.
    pub fn from_word(word: u64) -> Self {
        Self { generation: (word >> 32) as u32, number: word as u32 }
    }
}

/// One operation. Times are those of [`crate::clock::monotonic_ns`].
#[derive(Clone, Copy, Debug)]
pub struct Event {
    /// On which file.
    pub file: FileRef,
    /// What.
    pub op: Operation,
    /// By which interface.
    pub level: Level,
    /// As part of a call that all ranks make together.
    pub collective: bool,
    /// First byte; the new length of a truncate.
    pub offset: u64,
    /// Bytes that were moved.
    pub len: u64,
    /// When it began.
    pub start: u64,
    /// When it was done.
    pub end: u64,
}

/// Where to record, and as whom.
#[derive(Clone, Debug)]
pub struct Options {
    /// The trace directory, the same for all processes of a program.
    pub dir: PathBuf,
    /// The process's rank, where that is known before its first operation.
    pub rank: Option<u32>,
    /// Told once why tracing ended before the process did.
    pub complain: fn(&str),
}

/// Nothing was recorded yet, or this is a forked child: the word is 0.
const FRESH: u32 = 0;
/// A thread makes the files.
const STARTING: u32 = 1;
/// Recording.
const RUNNING: u32 = 2;
/// Tracing ended before the process.
const ENDED: u32 = 3;

/// See the module.
pub struct Recorder {
    options: Options,
    /// In memory that is zero in a forked child; never unmapped.
    phase: &'static AtomicU32,
    /// The files of this process; those of a parent are left behind.
    process: AtomicPtr<Process>,
    generation: AtomicU32,
    rank: AtomicU32,
    turn: AtomicU32,
    /// Operations that came before there were files or while a signal interrupted a recording.
    missed: AtomicU64,
}

thread_local! {
    // Const and without a destructor: no lazy initialization, no allocation, safe at any time.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
    static SHARD: Cell<u32> = const { Cell::new(u32::MAX) };
}

/// Marks a thread that is recording: a signal handler must not wait for what its own thread holds.
struct Inside(i32);

impl Inside {
    fn enter() -> Option<Self> {
        // SAFETY: the location of errno is always valid.
        (!INSIDE.replace(true)).then(|| Self(unsafe { *libc::__errno_location() }))
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { *libc::__errno_location() = self.0 };
        INSIDE.set(false);
    }
}

impl Recorder {
    /// One that makes its files at the first operation.
    pub fn new(options: Options) -> Self {
        Self {
            rank: AtomicU32::new(options.rank.unwrap_or(crate::tail::NO_RANK)),
            options,
            phase: mapping::emptied_at_fork(),
            process: AtomicPtr::new(null_mut()),
            generation: AtomicU32::new(0),
            turn: AtomicU32::new(0),
            missed: AtomicU64::new(0),
        }
    }

    /// The process's rank, once it is known; counts for all that it did.
    pub fn set_rank(&self, rank: u32) {
        self.rank.store(rank, Relaxed);
        if self.phase.load(Acquire) == RUNNING
            && let Some(process) = self.current()
        {
            process.set_rank(rank);
        }
    }

    /// Whether operations are still recorded.
    pub fn is_recording(&self) -> bool {
        self.phase.load(Relaxed) != ENDED
    }

    /// Whether `file` is of this process, not of the one that it was forked from.
    #[inline]
    pub fn is_current(&self, file: FileRef) -> bool {
        self.phase.load(Acquire) == RUNNING && file.generation == self.generation.load(Relaxed)
    }

    /// The file of this name, which should be an absolute path. `None` when nothing can be recorded.
    pub fn file(&self, name: &[u8]) -> Option<FileRef> {
        let _inside = Inside::enter()?;
        let process = self.process()?;
        match process.number(name) {
            Ok(number) => Some(FileRef { generation: process.generation, number: number? }),
            Err(error) => {
                self.end(process, &error);
                None
            }
        }
    }

    /// Records an operation; false when tracing has ended with it.
    pub fn record(&self, event: &Event) -> bool {
        let Some(_inside) = Inside::enter() else {
            self.missed.fetch_add(1, Relaxed);
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

    /// Appends all that was recorded to the part, as far as other threads are not at it.
    ///
    /// # Errors
    /// What ended tracing.
    pub fn flush(&self) -> std::io::Result<()> {
        let Some(_inside) = Inside::enter() else { return Ok(()) };
        let Some(process) = self.current().filter(|_| self.phase.load(Acquire) == RUNNING) else {
            return Ok(());
        };
        process.flush().inspect_err(|error| self.end(process, error))
    }

    fn shard(&self) -> usize {
        let mut shard = SHARD.get();
        if shard == u32::MAX {
            shard = self.turn.fetch_add(1, Relaxed) % SHARDS as u32;
            SHARD.set(shard);
        }
        shard as usize
    }

    fn current(&self) -> Option<&Process> {
        // SAFETY: processes are never freed.
        unsafe { self.process.load(Acquire).as_ref() }
    }

    /// This process's files.
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
            match self.phase.compare_exchange(FRESH, STARTING, AcqRel, Acquire) {
                Ok(_) => break,
                Err(RUNNING) => return self.current(),
                Err(ENDED) => return None,
                Err(_) => std::thread::yield_now(),
            }
        }
        let generation = self.generation.fetch_add(1, Relaxed) + 1;
        // What a forked child has of its parent's is left alone, but for the mapping, into which it must not write.
        if let Some(parents) = self.current() {
            parents.unmap();
        }
        let rank = self.rank.load(Relaxed);
        match Process::new(&self.options.dir, generation, rank, self.missed.swap(0, Relaxed)) {
            Ok(process) => {
                self.process.store(Box::into_raw(Box::new(process)), Release);
                self.phase.store(RUNNING, Release);
                self.current()
            }
            Err(error) => {
                self.phase.store(ENDED, Release);
                let dir = self.options.dir.display();
                (self.options.complain)(&format!(
                    "process {} is not traced: {dir}: {error}; it goes on",
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
        (self.options.complain)(&format!(
            "tracing of process {} ended: {}: {error}; the process goes on, what was recorded is kept",
            std::process::id(),
            process.part().display()
        ));
    }
}
