//! Summarizes a workload as if it had been traced.

use weft_core::{ByteLen, FileOffset, Nanos};
use weft_planner::{Limits, Survey, TraceSummary};
use weft_trace::{HostId, Level, Names, Operation, Rank, Record};
use weft_workload::{Op, Workload};

/// Time between two rounds of requests, nanoseconds.
const ROUND: u64 = 1_000_000;

/// Summarizes a workload in which all ranks proceed at the same pace with overlapping requests. The only idle points
/// are the barriers of the workload, so the planner infers no others.
pub fn summarize_workload(workload: &dyn Workload) -> TraceSummary {
    summarize_workload_within(workload, &Limits::default())
}

/// Summarizes a workload as [`summarize_workload`] does, and keeps as much of it as `limits` allow.
pub fn summarize_workload_within(workload: &dyn Workload, limits: &Limits) -> TraceSummary {
    let (mut names, mut survey) = (Names::default(), Survey::new(limits));
    let mut ranks: Vec<_> = (0..workload.ranks()).map(|rank| Some(workload.ops(rank))).collect();
    let mut round = 0;
    let after = ROUND / u64::from(workload.ranks().max(1));
    loop {
        let (mut moved, mut waiting) = (false, false);
        let mut at_barrier = vec![false; ranks.len()];
        // Each rank runs until it reaches a barrier or ends.
        loop {
            let mut any = false;
            for (rank, ops) in ranks.iter_mut().enumerate() {
                if at_barrier[rank] {
                    continue;
                }
                let Some(stream) = ops else { continue };
                let next = stream.find_map(|op| match op {
                    Op::Read { file, offset, len, collective } => {
                        Some(Some((Operation::Read, file, offset, len, collective)))
                    }
                    Op::Write { file, offset, len, collective } => {
                        Some(Some((Operation::Write, file, offset, len, collective)))
                    }
                    Op::Sync { file } => Some(Some((Operation::Sync, file, 0, 0, false))),
                    Op::Barrier => Some(None),
                    _ => None,
                });
                let (op, file, offset, len, collective) = match next {
                    None => {
                        *ops = None;
                        continue;
                    }
                    Some(None) => {
                        at_barrier[rank] = true;
                        waiting = true;
                        continue;
                    }
                    Some(Some(request)) => request,
                };
                any = true;
                let file = names.file(&workload.name(file)).expect("workloads have fewer files");
                let record = Record {
                    rank: Rank(rank as u32),
                    host: HostId(0),
                    file,
                    op,
                    level: Level::Posix,
                    collective,
                    offset: FileOffset(offset),
                    len: ByteLen(len),
                    start: Nanos(round * ROUND + rank as u64 * after),
                    end: Nanos(round * ROUND + rank as u64 * after + ROUND - 1),
                };
                survey.add(&record, &names);
            }
            if !any {
                break;
            }
            moved = true;
            round += 1;
        }
        if !moved && !waiting {
            return survey.finish(None);
        }
        // All requests have ended before any rank continues.
        round += 1;
    }
}
