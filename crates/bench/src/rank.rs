//! One rank: a process of its own that does phases of work as its parent tells it, line by line.
//!
//! For each phase the parent writes a [`Phase`] as a line of JSON; the rank prepares, answers `ready`, waits for
//! `go`, works, and answers a [`PhaseResult`]. So all ranks begin together, and opening files is counted only where
//! it is the work.

use crate::target::Target;
use crate::workload::{Pattern, blank, first_difference, stamp};
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, Write};

/// What a rank is told once, at its start.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RankSpec {
    /// Which one.
    pub rank: u64,
    /// Of how many.
    pub ranks: u64,
    /// By which way it reaches files.
    pub reach: Reach,
}

/// By which way a rank reaches files.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Reach {
    /// Plain system calls: the local directory, a mount, or the preload library if the process has it.
    Calls,
    /// The client library, without any interface on top.
    Library {
        /// The cluster file.
        cluster: std::path::PathBuf,
        /// `auto`, `descriptor` or `socket`.
        transport: String,
    },
}

/// A piece of work that all ranks do at the same time.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Phase {
    /// Transfers on striped data.
    Data {
        /// Directory of the case.
        dir: String,
        /// Where transfers lie.
        pattern: Pattern,
        /// Bytes of one transfer.
        transfer: u64,
        /// Transfers of each rank.
        count: u64,
        /// What to do with them.
        op: DataOp,
    },
    /// Files in one directory, `count` by each rank.
    Meta {
        /// That directory.
        dir: String,
        /// How many.
        count: u64,
        /// What to do with them.
        op: MetaOp,
    },
    /// The end.
    Quit,
}

/// What to do with transfers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum DataOp {
    /// Write them.
    Write,
    /// Write them and sync at the end, within the time taken.
    WriteSync,
    /// Read those that the next rank wrote.
    Read,
    /// Read those that the next rank wrote and compare each byte; no figure comes of it.
    Check,
}

/// What to do with files.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum MetaOp {
    /// Make and close.
    Create,
    /// Ask for attributes of those that the next rank made.
    Stat,
    /// Remove.
    Remove,
}

/// How a phase went on one rank.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PhaseResult {
    /// Begin on CLOCK_MONOTONIC, in nanoseconds.
    pub begin_ns: u64,
    /// End, likewise.
    pub end_ns: u64,
    /// Processor time of this process between them, in microseconds.
    pub cpu_us: u64,
    /// Operations done.
    pub ops: u64,
    /// Bytes moved.
    pub bytes: u64,
    /// What went wrong, empty when nothing did.
    pub error: String,
}

/// The life of a rank: reads phases from standard input until `Quit` or its end.
///
/// # Errors
/// When the parent's lines make no sense or it is gone.
pub fn serve(spec: &RankSpec) -> io::Result<()> {
    let mut target = Target::reach(&spec.reach).map_err(io::Error::other)?;
    let mut lines = io::stdin().lock().lines();
    let mut out = io::stdout().lock();
    while let Some(line) = lines.next() {
        let phase: Phase = serde_json::from_str(&line?)?;
        if matches!(phase, Phase::Quit) {
            break;
        }
        let mut work = Work::prepare(spec, &mut target, &phase);
        writeln!(out, "ready")?;
        out.flush()?;
        match lines.next() {
            Some(go) if go.as_ref().is_ok_and(|go| go == "go") => {}
            _ => break,
        }
        let result = work.run(spec, &mut target);
        writeln!(out, "{}", serde_json::to_string(&result)?)?;
        out.flush()?;
    }
    Ok(())
}

/// A phase that is ready to begin.
enum Work<'a> {
    Data { file: Result<crate::target::OpenData, String>, phase: &'a Phase, buf: Vec<u8>, scratch: Vec<u8> },
    Meta { phase: &'a Phase },
}

impl<'a> Work<'a> {
    fn prepare(spec: &RankSpec, target: &mut Target, phase: &'a Phase) -> Self {
        let Phase::Data { dir, pattern, transfer, op, .. } = phase else {
            return Self::Meta { phase };
        };
        let writes = matches!(op, DataOp::Write | DataOp::WriteSync);
        let of_rank = if writes { spec.rank } else { (spec.rank + 1) % spec.ranks };
        let path = format!("{dir}/{}", pattern.file_name(of_rank));
        let file = target.open(&path, writes).map_err(|error| format!("{path}: {error}"));
        let scratch = if *op == DataOp::Check { blank(*transfer as usize) } else { Vec::new() };
        Self::Data { file, phase, buf: blank(*transfer as usize), scratch }
    }

    fn run(&mut self, spec: &RankSpec, target: &mut Target) -> PhaseResult {
        let cpu = cpu_us();
        let begin_ns = monotonic_ns();
        let done = match self {
            Self::Data { file: Ok(file), phase, buf, scratch } => run_data(spec, file, phase, buf, scratch),
            Self::Data { file: Err(error), .. } => Err(error.clone()),
            Self::Meta { phase } => run_meta(spec, target, phase),
        };
        let end_ns = monotonic_ns();
        let cpu_us = cpu_us() - cpu;
        match done {
            Ok((ops, bytes)) => PhaseResult { begin_ns, end_ns, cpu_us, ops, bytes, error: String::new() },
            Err(error) => PhaseResult { begin_ns, end_ns, cpu_us, error, ..Default::default() },
        }
    }
}

fn run_data(
    spec: &RankSpec,
    file: &crate::target::OpenData,
    phase: &Phase,
    buf: &mut [u8],
    scratch: &mut [u8],
) -> Result<(u64, u64), String> {
    let Phase::Data { pattern, transfer, count, op, .. } = phase else {
        unreachable!("checked by the caller")
    };
    let writes = matches!(op, DataOp::Write | DataOp::WriteSync);
    let of_rank = if writes { spec.rank } else { (spec.rank + 1) % spec.ranks };
    for index in 0..*count {
        let offset = pattern.offset(of_rank, spec.ranks, index, *count, *transfer);
        if writes {
            stamp(buf, offset);
            file.write_at(buf, offset)
                .map_err(|error| format!("write of {transfer} B at {offset}: {error}"))?;
        } else {
            file.read_at(buf, offset)
                .map_err(|error| format!("read of {transfer} B at {offset}: {error}"))?;
            if *op == DataOp::Check
                && let Some(at) = first_difference(buf, scratch, offset)
            {
                return Err(format!("wrong byte at {at} in the transfer of {transfer} B at {offset}"));
            }
        }
    }
    if *op == DataOp::WriteSync {
        file.sync().map_err(|error| format!("sync: {error}"))?;
    }
    Ok((*count, count * transfer))
}

fn run_meta(spec: &RankSpec, target: &mut Target, phase: &Phase) -> Result<(u64, u64), String> {
    let Phase::Meta { dir, count, op } = phase else { unreachable!("checked by the caller") };
    let of_rank = if *op == MetaOp::Stat { (spec.rank + 1) % spec.ranks } else { spec.rank };
    for index in 0..*count {
        let path = format!("{dir}/file.{of_rank}.{index}");
        match op {
            MetaOp::Create => target.create(&path),
            MetaOp::Stat => target.stat(&path),
            MetaOp::Remove => target.remove(&path),
        }
        .map_err(|error| format!("{op:?} of {path}: {error}"))?;
    }
    Ok((*count, 0))
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
