//! Plays one rank's operations of a workload on files and times its phases.

use crate::barrier::Barrier;
use crate::content::Content;
use crate::target::{OpenData, Target};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use weft_workload::{FileRef, Op, Workload};

/// Timing of one occurrence of a phase on one rank.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PhaseResult {
    /// Number of the phase.
    pub phase: u16,
    /// Start on `CLOCK_MONOTONIC` in nanoseconds.
    pub begin_ns: u64,
    /// End of the last operation on `CLOCK_MONOTONIC` in nanoseconds, without the time at a barrier that follows.
    pub end_ns: u64,
    /// Processor time of this process in the phase, in microseconds.
    pub cpu_us: u64,
    /// Number of opens, transfers and changes.
    pub ops: u64,
    /// Bytes transferred.
    pub bytes: u64,
}

/// Length of one write to an input file, in bytes.
const INPUT_PIECE_BYTES: u64 = 1 << 20;

/// Number of operations inspected in advance to size the buffers, so that they rarely grow in a timed phase.
const OPS_INSPECTED: usize = 10_000;

/// Plays one rank of a workload.
pub struct Player<'a> {
    workload: &'a dyn Workload,
    rank: u32,
    dir: &'a str,
    target: &'a mut Target,
    barrier: &'a Barrier,
    content: Content,
    /// Buffer for reads.
    buf: Vec<u8>,
    open: BTreeMap<FileRef, OpenData>,
}

impl<'a> Player<'a> {
    /// Prepares to play `rank` in the directory `dir`.
    pub fn new(
        workload: &'a dyn Workload,
        rank: u32,
        dir: &'a str,
        target: &'a mut Target,
        barrier: &'a Barrier,
    ) -> Self {
        let len = |op| if let Op::Read { len, .. } | Op::Write { len, .. } = op { len } else { 0 };
        let longest = workload.ops(rank).take(OPS_INSPECTED).map(len).max().unwrap_or(0) as usize;
        let content = Content::new(longest);
        Self { workload, rank, dir, target, barrier, content, buf: vec![0; longest], open: BTreeMap::new() }
    }

    fn path(&self, file: FileRef) -> String {
        format!("{}/{}", self.dir, self.workload.name(file))
    }

    /// Writes this rank's share of the input files.
    pub fn make_inputs(&mut self) -> Result<(), String> {
        let (rank, ranks) = (u64::from(self.rank), u64::from(self.workload.ranks()));
        for (number, (file, len)) in self.workload.inputs().enumerate() {
            let path = self.path(file);
            let pieces = len.div_ceil(INPUT_PIECE_BYTES);
            if pieces < ranks && number as u64 % ranks != rank {
                continue; // A small file is written by one rank; large files are written by all ranks.
            }
            let describe = |error| format!("{path}: {error}");
            self.create_parent_dirs(file).map_err(describe)?;
            let open = self.target.open(&path, true).map_err(describe)?;
            let (first, step) = if pieces < ranks { (0, 1) } else { (rank, ranks as usize) };
            for piece in (first..pieces).step_by(step) {
                let offset = piece * INPUT_PIECE_BYTES;
                let bytes = self.content.of(file, offset, INPUT_PIECE_BYTES.min(len - offset) as usize);
                open.write_at(bytes, offset).map_err(describe)?;
            }
        }
        Ok(())
    }

    fn create_parent_dirs(&mut self, file: FileRef) -> std::io::Result<()> {
        let name = self.workload.name(file);
        for (at, _) in name.match_indices('/') {
            let dir = format!("{}/{}", self.dir, &name[..at]);
            if let Err(error) = self.target.mkdir(&dir)
                && self.target.stat(&dir).is_err()
            {
                return Err(error);
            }
        }
        Ok(())
    }

    /// Plays the operations. With `check`, reads are verified and all writes are read back in the end.
    pub fn play(&mut self, check: bool) -> Result<Vec<PhaseResult>, String> {
        let mut phases: Vec<PhaseResult> = Vec::new();
        let workload = self.workload;
        let group = workload.group(self.rank);
        let mut ops = workload.ops(self.rank).peekable();
        let mut start = PhaseStart::default();
        // Whether an operation ran since the end of the phase was last updated. Time at a barrier that ends a
        // phase is not part of the phase.
        let mut worked = false;
        while let Some(op) = ops.next() {
            match op {
                Op::Barrier => {
                    if std::mem::take(&mut worked) {
                        start.extend_to_now(&mut phases);
                    }
                    self.barrier.wait(&group)?;
                }
                Op::Phase(phase) => {
                    if std::mem::take(&mut worked) {
                        start.extend_to_now(&mut phases);
                    }
                    start = PhaseStart::now();
                    let begin_ns = start.begin_ns;
                    phases.push(PhaseResult { phase, begin_ns, end_ns: begin_ns, ..PhaseResult::default() });
                }
                Op::Compute(time) => {
                    worked = true;
                    std::thread::sleep(Duration::from_nanos(time.0));
                }
                op => {
                    worked = true;
                    // Data sieving: a range that the next operation overwrites completely has no defined content yet.
                    let filled = matches!((op, ops.peek()), (
                        Op::Read { file, offset, len, .. },
                        Some(&Op::Write { file: to, offset: at, len: much, .. }),
                    ) if (file, offset, len) == (to, at, much));
                    let (count, bytes) = self.execute(op, check, filled)?;
                    if let Some(phase) = phases.last_mut() {
                        phase.ops += count;
                        phase.bytes += bytes;
                    }
                }
            }
        }
        if worked {
            start.extend_to_now(&mut phases);
        }
        self.open.clear();
        if check {
            self.barrier.wait_all()?;
            self.read_back()?;
        }
        Ok(phases)
    }

    fn opened(&self, file: FileRef) -> Result<&OpenData, String> {
        self.open.get(&file).ok_or_else(|| format!("{} is not open", self.path(file)))
    }

    /// Executes one operation. Returns the number of operations that it counts as, and the bytes transferred.
    fn execute(&mut self, op: Op, check: bool, filled: bool) -> Result<(u64, u64), String> {
        let done = match op {
            Op::Open { file, create } => {
                let path = self.path(file);
                self.target.open(&path, create).map(|open| {
                    self.open.insert(file, open);
                })
            }
            Op::Close { file } => {
                self.open.remove(&file);
                return Ok((0, 0));
            }
            Op::Write { file, offset, len, .. } => {
                let bytes = self.content.of(file, offset, len as usize);
                let open = self.open.get(&file).ok_or_else(|| format!("{file:?} is not open"))?;
                open.write_at(bytes, offset)
                    .map_err(|error| format!("write of {len} B at {offset}: {error}"))?;
                return Ok((1, len));
            }
            Op::Read { file, offset, len, .. } => {
                self.read(file, offset, len, check && !filled, filled)?;
                return Ok((1, len));
            }
            Op::Sync { file } => {
                self.opened(file)?.sync().map_err(|error| format!("sync: {error}"))?;
                return Ok((0, 0));
            }
            Op::SetLen { file, len } => self.opened(file)?.set_len(len),
            Op::Mkdir { file } => self.target.mkdir(&self.path(file)),
            Op::Create { file } => self.target.create(&self.path(file)),
            Op::Stat { file } => self.target.stat(&self.path(file)),
            Op::Resize { file, len } => self.target.resize(&self.path(file), len),
            Op::Remove { file } => self.target.remove(&self.path(file)),
            Op::Rmdir { file } => self.target.rmdir(&self.path(file)),
            Op::Barrier | Op::Phase(_) | Op::Compute(_) => unreachable!("played by the caller"),
        };
        match done {
            Ok(()) => Ok((1, 0)),
            Err(error) => {
                Err(format!("{op:?} ({}): {error}", op.file().map_or(String::new(), |f| self.path(f))))
            }
        }
    }

    fn read(
        &mut self,
        file: FileRef,
        offset: u64,
        len: u64,
        check: bool,
        may_end: bool,
    ) -> Result<(), String> {
        let len = len as usize;
        if self.buf.len() < len {
            self.buf.resize(len, 0);
        }
        let Some(open) = self.open.get(&file) else {
            return Err(format!("{} is not open", self.path(file)));
        };
        let got = open
            .read_at(&mut self.buf[..len], offset)
            .map_err(|error| format!("read of {len} B at {offset}: {error}"))?;
        if got < len && !may_end {
            return Err(format!("read of {len} B at {offset}: the file ended after {got} B"));
        }
        if check && let Some(at) = self.content.first_difference(file, offset, &self.buf[..len]) {
            return Err(format!("wrong byte at {at} in the transfer of {len} B at {offset}"));
        }
        Ok(())
    }

    /// Reads and verifies what this rank wrote, except in files that any rank truncates or removes.
    fn read_back(&mut self) -> Result<(), String> {
        let workload = self.workload;
        let changed = |op| match op {
            Op::SetLen { file, .. } | Op::Resize { file, .. } | Op::Remove { file } => Some(file),
            _ => None,
        };
        let changed: BTreeSet<FileRef> =
            (0..workload.ranks()).flat_map(|rank| workload.ops(rank).filter_map(changed)).collect();
        for op in workload.ops(self.rank) {
            let Op::Write { file, offset, len, .. } = op else { continue };
            if changed.contains(&file) {
                continue;
            }
            if !self.open.contains_key(&file) {
                let path = self.path(file);
                let open = self.target.open(&path, false).map_err(|error| format!("{path}: {error}"))?;
                self.open = BTreeMap::from([(file, open)]);
            }
            self.read(file, offset, len, true, false)?;
        }
        self.open.clear();
        Ok(())
    }
}

/// Start of a phase.
#[derive(Default)]
struct PhaseStart {
    begin_ns: u64,
    cpu_us: u64,
}

impl PhaseStart {
    fn now() -> Self {
        Self { begin_ns: monotonic_ns(), cpu_us: cpu_us() }
    }

    /// Extends the phase to the present time.
    fn extend_to_now(&self, phases: &mut [PhaseResult]) {
        if let Some(phase) = phases.last_mut() {
            phase.end_ns = monotonic_ns();
            phase.cpu_us = cpu_us() - self.cpu_us;
        }
    }
}

fn monotonic_ns() -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `t` is a valid timespec for the call to fill.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

fn cpu_us() -> u64 {
    // SAFETY: all-zero is a valid rusage, which the call fills.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage
    };
    let us = |t: libc::timeval| t.tv_sec as u64 * 1_000_000 + t.tv_usec as u64;
    us(usage.ru_utime) + us(usage.ru_stime)
}
