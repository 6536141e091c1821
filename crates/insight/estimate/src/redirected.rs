//! A workload whose requests go to a replica of its file.

use std::ops::Range;
use weft_planner::mix::Direction;
use weft_planner::replicas::Arrangement;
use weft_planner::sample::Request;
use weft_workload::{FileRef, Op, Workload};

/// A workload of one file with its reads and writes redirected to a replica, which takes the place of the file.
///
/// Only the run is redirected: making the replica and copying written bytes back are not part of it.
pub struct RedirectedWorkload<'a> {
    workload: &'a dyn Workload,
    arrangement: Arrangement,
    /// First byte of each object in the replica.
    starts: Vec<u64>,
    /// Number of the file in the arrangement.
    file: u32,
}

impl<'a> RedirectedWorkload<'a> {
    /// Redirects the requests of a workload, all of which the arrangement has.
    pub fn new(workload: &'a dyn Workload, arrangement: Arrangement, starts: Vec<u64>) -> Self {
        let file = arrangement.objects().first().map_or(0, |object| object.file);
        Self { workload, arrangement, starts, file }
    }

    fn redirect(&self, op: Op, rank: u32) -> Vec<Op> {
        let (file, offset, len, collective, direction) = match op {
            Op::Read { file, offset, len, collective } => (file, offset, len, collective, Direction::Read),
            Op::Write { file, offset, len, collective } => (file, offset, len, collective, Direction::Write),
            other => return vec![other],
        };
        let request = Request::new(rank, self.file, direction, offset, len, (0, 1));
        let parts = self.arrangement.redirected(&[request], &self.starts);
        let part = |part: Request| match direction {
            Direction::Read => Op::Read { file, offset: part.offset, len: part.len, collective },
            Direction::Write => Op::Write { file, offset: part.offset, len: part.len, collective },
        };
        parts.into_iter().map(part).collect()
    }
}

impl Workload for RedirectedWorkload<'_> {
    fn ranks(&self) -> u32 {
        self.workload.ranks()
    }

    fn name(&self, file: FileRef) -> String {
        self.workload.name(file)
    }

    fn phase(&self, phase: u16) -> String {
        self.workload.phase(phase)
    }

    fn group(&self, rank: u32) -> Range<u32> {
        self.workload.group(rank)
    }

    fn exchange(&self, rank: u32, barrier: u64) -> Vec<(u32, u64)> {
        self.workload.exchange(rank, barrier)
    }

    /// A file that the program reads exists as a replica with all of its bytes.
    fn inputs(&self) -> Box<dyn Iterator<Item = (FileRef, u64)> + Send + '_> {
        let ends =
            self.arrangement.objects().iter().zip(&self.starts).map(|(object, start)| start + object.len);
        let len = ends.max().unwrap_or(0);
        Box::new(self.workload.inputs().map(move |(file, _)| (file, len)))
    }

    fn ops(&self, rank: u32) -> Box<dyn Iterator<Item = Op> + Send + '_> {
        Box::new(self.workload.ops(rank).flat_map(move |op| self.redirect(op, rank)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_workload::WorkloadSpec;

    fn moved(workload: &dyn Workload) -> u64 {
        let len = |op| match op {
            Op::Read { len, .. } | Op::Write { len, .. } => len,
            _ => 0,
        };
        (0..workload.ranks()).flat_map(|rank| workload.ops(rank)).map(len).sum()
    }

    #[test]
    fn every_rank_reads_its_own_object_in_sequence() {
        let text = "kind = \"ior\"\nranks = 4\ntransfer = \"16 KiB\"\nper_rank = \"1 MiB\"\naccess = \"read\"\n\
                    layout = \"strided\"\norder = \"random\"";
        let workload = toml::from_str::<WorkloadSpec>(text).unwrap().build().unwrap();
        let traced = crate::summarize_workload(&*workload);
        let arrangement = Arrangement::of(&traced.sample);
        let (starts, stripe) = arrangement.starts_by_server();
        assert_eq!(stripe, 1 << 20);
        let redirected = RedirectedWorkload::new(&*workload, arrangement, starts);
        assert_eq!(moved(&redirected), moved(&*workload));
        assert_eq!(redirected.inputs().map(|(_, len)| len).collect::<Vec<_>>(), [4 << 20]);
        for rank in 0..4u64 {
            let mut at = rank << 20;
            for op in redirected.ops(rank as u32) {
                let Op::Read { offset, len, .. } = op else { continue };
                assert_eq!(offset, at, "rank {rank}");
                at += len;
            }
        }
    }
}
