//! One thread of a worker: executes the steps of its ranks, each rank in order.

use super::payload::{self, Accepted};
use super::tally::{Done, Tally};
use crate::prepared::{Prepared, Step, Steps, Timing};
use crate::record::Operation;
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use weft_client::{
    FileHandle, FileSystem, HostFile, HostFs, HostPath, LayoutSpec, OpenFlags, read_all, write_all,
};
use weft_core::{ByteLen, FileOffset};
use weft_env::real::{RealEnv, block_on};
use weft_workload::Op;

/// Maximum number of bytes of one system call. Larger operations are split.
pub const PIECE_BYTES_MAX: usize = 16 << 20;

/// State shared by all threads of a worker.
pub struct Shared {
    /// The file systems of this host; the preload library, if it is loaded, serves its prefix.
    pub host: HostFs,
    /// The prepared trace.
    pub prepared: Prepared,
    /// Directory of the replay's files.
    pub dir: PathBuf,
    /// Pacing of operations.
    pub timing: Timing,
    /// Whether written data is stamped and checked.
    pub verify: bool,
    /// Operations completed.
    pub operations: AtomicU64,
    /// Bytes transferred.
    pub bytes: AtomicU64,
}

impl Shared {
    /// Path of a file in the replay.
    pub fn path(&self, file: u32) -> PathBuf {
        self.dir.join(self.prepared.name(file))
    }

    /// Place of a file in the replay. Symbolic links, which the replay does not create, are not followed.
    pub fn at(&self, file: u32) -> HostPath {
        HostPath { path: self.path(file), follow: false }
    }

    /// Directory of the replay's files.
    pub fn root(&self) -> HostPath {
        HostPath { path: self.dir.clone(), follow: false }
    }

    /// Opens a file of the replay.
    pub fn open(&self, file: u32, flags: OpenFlags) -> io::Result<HostFile<RealEnv>> {
        open(self.host, &self.at(file), flags)
    }
}

fn open(host: HostFs, at: &HostPath, flags: OpenFlags) -> io::Result<HostFile<RealEnv>> {
    Ok(block_on(host.open(at, flags, 0o666, &LayoutSpec::default()))?)
}

struct RankState<'a> {
    steps: Steps<'a>,
    next: Option<Step>,
    ready_at: Instant,
    at_barrier: bool,
    open: BTreeMap<u32, HostFile<RealEnv>>,
    number: u32,
}

/// Executes all steps of `ranks`.
///
/// `barrier` returns when every thread of every worker has called it for the current barrier.
pub fn run(
    shared: &Shared,
    ranks: &[u32],
    mut barrier: impl FnMut() -> Result<(), String>,
) -> Result<Tally, String> {
    let mut buffer = Buffer::new(shared);
    let mut tally = Tally::default();
    let now = Instant::now();
    let mut states: Vec<RankState<'_>> = Vec::new();
    for &rank in ranks {
        let mut steps = shared.prepared.steps(rank, shared.timing);
        let next = next_step(&mut steps)?;
        let number = shared.prepared.facts.ranks[rank as usize].0;
        states.push(RankState {
            steps,
            next,
            ready_at: now,
            at_barrier: false,
            open: BTreeMap::new(),
            number,
        });
    }
    loop {
        let able = states.iter_mut().filter(|state| !state.at_barrier && state.next.is_some());
        // Without pauses, follow the order of the trace; with pauses, take the rank that is ready first.
        let chosen = match shared.timing {
            Timing::Fast => able.min_by_key(|state| state.next.map(|step| step.start)),
            Timing::Speed(_) => able.min_by_key(|state| state.ready_at),
        };
        let Some(state) = chosen else {
            if !states.iter().any(|state| state.at_barrier) {
                break;
            }
            barrier()?;
            let now = Instant::now();
            for state in &mut states {
                (state.at_barrier, state.ready_at) = (false, now);
            }
            continue;
        };
        let step = state.next.take().expect("it has one");
        match step.op {
            Op::Barrier => state.at_barrier = true,
            Op::Compute(time) => {
                state.ready_at = state.ready_at.max(Instant::now()) + Duration::from_nanos(time.get())
            }
            Op::Phase(_) => {}
            op => {
                let wait = state.ready_at.saturating_duration_since(Instant::now());
                if wait > Duration::ZERO {
                    std::thread::sleep(wait);
                }
                let (kind, file) = kind(op);
                let done = execute(shared, &mut buffer, &mut state.open, op).map_err(|error| {
                    let path = shared.path(file);
                    let name = &shared.prepared.facts.files[file as usize].name;
                    format!(
                        "rank {}: {kind} of {} (in the trace {name}): {error}",
                        state.number,
                        path.display()
                    )
                })?;
                tally.add(kind, file, &done);
                shared.operations.fetch_add(1, Ordering::Relaxed);
                shared.bytes.fetch_add(done.bytes, Ordering::Relaxed);
                state.ready_at = Instant::now();
            }
        }
        state.next = next_step(&mut state.steps)?;
    }
    Ok(tally)
}

pub(super) fn next_step(steps: &mut Steps<'_>) -> Result<Option<Step>, String> {
    let next = steps.next();
    match steps.error() {
        Some(error) => Err(error.to_string()),
        None => Ok(next),
    }
}

fn kind(op: Op) -> (Operation, u32) {
    match op {
        Op::Open { file, create: false } => (Operation::Open, file.0),
        Op::Open { file, create: true } | Op::Create { file } => (Operation::Create, file.0),
        Op::Close { file } => (Operation::Close, file.0),
        Op::Read { file, .. } => (Operation::Read, file.0),
        Op::Write { file, .. } => (Operation::Write, file.0),
        Op::Sync { file } => (Operation::Sync, file.0),
        Op::SetLen { file, .. } | Op::Resize { file, .. } => (Operation::Truncate, file.0),
        Op::Stat { file } => (Operation::Stat, file.0),
        Op::Remove { file } => (Operation::Unlink, file.0),
        Op::Mkdir { file } => (Operation::Mkdir, file.0),
        Op::Rmdir { file } => (Operation::Rmdir, file.0),
        Op::Barrier | Op::Phase(_) | Op::Compute(_) => unreachable!("done by the caller"),
    }
}

fn execute(
    shared: &Shared,
    buffer: &mut Buffer,
    open: &mut BTreeMap<u32, HostFile<RealEnv>>,
    op: Op,
) -> io::Result<Done> {
    let (_, number) = kind(op);
    let (mut bytes, mut short) = (0, false);
    let path = if needs_path(op) { shared.path(number) } else { PathBuf::new() };
    let (host, at) = (shared.host, HostPath { path, follow: false });
    let (result, begin_ns, end_ns) = match op {
        Op::Open { create, .. } => {
            let (opened, begin, end) = timed(|| open_file(host, &at, create));
            (opened.map(|file| drop(open.insert(number, file))), begin, end)
        }
        Op::Create { .. } => timed(|| open_file(host, &at, true).map(drop)),
        Op::Close { .. } => {
            let file = open.remove(&number).expect("steps open before they close");
            timed(|| Ok(block_on(file.close())?))
        }
        Op::Read { offset, len, .. } => {
            let (got, begin, end) = buffer.read(shared, &open[&number], number, offset, len)?;
            (bytes, short) = (got, got < len);
            (Ok(()), begin, end)
        }
        Op::Write { offset, len, .. } => {
            let (begin, end) = buffer.write(shared, &open[&number], number, offset, len)?;
            bytes = len;
            (Ok(()), begin, end)
        }
        Op::Sync { .. } => timed(|| Ok(block_on(open[&number].sync())?)),
        Op::SetLen { len, .. } => timed(|| Ok(block_on(open[&number].truncate(ByteLen(len)))?)),
        Op::Resize { len, .. } => timed(|| Ok(block_on(host.truncate(&at, ByteLen(len)))?)),
        Op::Stat { .. } => timed(|| Ok(block_on(host.stat(&at)).map(drop)?)),
        Op::Remove { .. } => timed(|| Ok(block_on(host.unlink(&at))?)),
        Op::Mkdir { .. } => timed(|| Ok(block_on(host.mkdir(&at, 0o777))?)),
        Op::Rmdir { .. } => timed(|| Ok(block_on(host.rmdir(&at))?)),
        Op::Barrier | Op::Phase(_) | Op::Compute(_) => unreachable!("done by the caller"),
    };
    // A trace does not show which calls on names failed, so these may fail in the replay as well.
    let names = matches!(op, Op::Stat { .. } | Op::Remove { .. } | Op::Mkdir { .. } | Op::Rmdir { .. });
    let refused = match result {
        Err(error)
            if names && matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::AlreadyExists) =>
        {
            true
        }
        other => {
            other?;
            false
        }
    };
    Ok(Done { bytes, short, refused, begin_ns, end_ns })
}

fn needs_path(op: Op) -> bool {
    !matches!(op, Op::Read { .. } | Op::Write { .. } | Op::Sync { .. } | Op::SetLen { .. } | Op::Close { .. })
}

fn open_file(host: HostFs, at: &HostPath, create: bool) -> io::Result<HostFile<RealEnv>> {
    open(host, at, OpenFlags { write: create, create, ..OpenFlags::READ })
}

/// Reads `CLOCK_MONOTONIC`, which all processes of a host share, in nanoseconds.
pub fn monotonic_ns() -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `t` is a valid timespec for the call to fill.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

fn timed<T>(work: impl FnOnce() -> T) -> (T, u64, u64) {
    let begin = monotonic_ns();
    let result = work();
    (result, begin, monotonic_ns())
}

/// Payload memory of one thread.
struct Buffer {
    bytes: Vec<u8>,
    scratch: Vec<u8>,
}

impl Buffer {
    fn new(shared: &Shared) -> Self {
        let len = (shared.prepared.facts.len_max as usize).min(PIECE_BYTES_MAX);
        let mut bytes = vec![0; len];
        payload::fill(&mut bytes, u32::MAX, payload::REPLAYED, 0);
        Self { bytes, scratch: Vec::new() }
    }

    /// Writes in pieces; returns start and end.
    ///
    /// The end is the start plus the time in system calls, without the time of stamping between pieces.
    fn write(
        &mut self,
        shared: &Shared,
        file: &HostFile<RealEnv>,
        number: u32,
        offset: u64,
        len: u64,
    ) -> io::Result<(u64, u64)> {
        let (mut begin, mut took, mut at) = (None, 0, 0);
        loop {
            let piece = (len - at).min(PIECE_BYTES_MAX as u64) as usize;
            let bytes = &mut self.bytes[..piece];
            if shared.verify {
                payload::fill(bytes, number, payload::REPLAYED, offset + at);
            }
            let (wrote, from, to) = timed(|| block_on(write_all(file, bytes, FileOffset(offset + at))));
            wrote?;
            begin.get_or_insert(from);
            took += to - from;
            at += piece as u64;
            if at == len {
                let begin = begin.expect("one piece at least");
                return Ok((begin, begin + took));
            }
        }
    }

    fn read(
        &mut self,
        shared: &Shared,
        file: &HostFile<RealEnv>,
        number: u32,
        offset: u64,
        len: u64,
    ) -> io::Result<(u64, u64, u64)> {
        let (mut begin, mut took, mut at) = (None, 0, 0);
        loop {
            let piece = (len - at).min(PIECE_BYTES_MAX as u64) as usize;
            let bytes = &mut self.bytes[..piece];
            let (got, from, to) = timed(|| block_on(read_all(file, bytes, FileOffset(offset + at))));
            let got = got?;
            begin.get_or_insert(from);
            took += to - from;
            if shared.verify {
                check(shared, &bytes[..got], number, offset + at, &mut self.scratch)?;
            }
            at += got as u64;
            if at == len || got < piece {
                let begin = begin.expect("one piece at least");
                return Ok((at, begin, begin + took));
            }
        }
    }
}

fn check(shared: &Shared, bytes: &[u8], number: u32, offset: u64, scratch: &mut Vec<u8>) -> io::Result<()> {
    let plan = &shared.prepared.facts.files[number as usize];
    let filled = plan.input.unwrap_or(0) >= offset + bytes.len() as u64 && !plan.cut;
    let accepted = if filled { Accepted::Initial } else { Accepted::InitialOrHole };
    match payload::first_wrong(bytes, number, offset, accepted, scratch) {
        None => Ok(()),
        Some(at) => Err(io::Error::other(format!("wrong byte at offset {at}"))),
    }
}

/// Fills the buffer; the end of the file is an error.
pub(super) fn read_exact(file: &HostFile<RealEnv>, buf: &mut [u8], offset: u64) -> io::Result<()> {
    match block_on(read_all(file, buf, FileOffset(offset)))? {
        got if got == buf.len() => Ok(()),
        _ => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "failed to fill whole buffer")),
    }
}
