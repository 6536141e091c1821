//! A workload as if it had been traced.

use weft_core::{ByteLen, FileOffset, Nanos};
use weft_planner::{Limits, Survey, Traced};
use weft_trace::{HostId, Level, Names, Operation, Rank, Record};
use weft_workload::{Op, Workload};

/// From one round of requests to the next, nanoseconds.
const ROUND: u64 = 1_000_000;

/// What a workload does to files, all ranks at the same pace and all under way at a time, one a little after the other, so
/// that there is no quiet but where the workload has barriers.
pub fn traced(workload: &dyn Workload) -> Traced {
    let (mut names, mut survey) = (Names::default(), Survey::new(&Limits::default()));
    let mut ranks: Vec<_> = (0..workload.ranks()).map(|rank| Some(workload.ops(rank))).collect();
    let mut round = 0;
    let after = ROUND / u64::from(workload.ranks().max(1));
    loop {
        let (mut moved, mut waiting) = (false, false);
        let mut at_barrier = vec![false; ranks.len()];
        // All go on until they wait or are done.
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
        // The last to begin are done before anybody goes on.
        round += 1;
    }
}
