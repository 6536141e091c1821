//! A slice of a workload: the operations on some files, subsampled to the same windows of every rank.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use weft_workload::{FileRef, Op, Workload};

/// Consecutive requests of a rank that are kept or dropped together, as in the planner's sample.
const WINDOW_REQUESTS: u64 = 64;
/// Minimum windows of a rank with fewer requests.
const WINDOWS_KEPT_MIN: u64 = 16;
/// Operations between two progress reports.
const PROGRESS_OPS: u64 = 256;

/// Called with the number of operations issued since the last call.
pub type Progress<'a> = &'a (dyn Fn(u64) + Sync);

/// Number of reads and writes, and their bytes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct IoTotals {
    /// Number of requests.
    pub requests: u64,
    /// Total bytes.
    pub bytes: u64,
}

impl IoTotals {
    fn add(&mut self, op: &Op) {
        if let Op::Read { len, .. } | Op::Write { len, .. } = op {
            self.requests += 1;
            self.bytes += len;
        }
    }
}

/// A slice of a workload. Barriers are kept, since they involve all ranks.
pub struct WorkloadSlice<'a> {
    workload: &'a dyn Workload,
    files: Option<BTreeSet<u32>>,
    /// Every `stride`-th window is kept.
    stride: u64,
    /// Requests of a window.
    window: u64,
    all: IoTotals,
    kept: IoTotals,
    /// Length of files that are read, which must exist even if the writes are dropped.
    read_to: BTreeMap<u32, u64>,
    progress: Option<Progress<'a>>,
}

impl<'a> WorkloadSlice<'a> {
    /// The operations on `files`, or on all files. With more than `requests_max` reads and writes, subsamples to about
    /// that number. Iterates over the workload once, or twice if it subsamples.
    pub fn new(workload: &'a dyn Workload, files: Option<BTreeSet<u32>>, requests_max: u64) -> Self {
        let mut part = Self {
            workload,
            files,
            stride: 1,
            window: WINDOW_REQUESTS,
            all: IoTotals::default(),
            kept: IoTotals::default(),
            read_to: BTreeMap::new(),
            progress: None,
        };
        let (mut all, mut longest, mut read_to) = (IoTotals::default(), 0, BTreeMap::<u32, u64>::new());
        for rank in 0..workload.ranks() {
            let before = all.requests;
            for op in part.ops(rank) {
                all.add(&op);
                if let Op::Read { file, offset, len, .. } = op {
                    let end = read_to.entry(file.0).or_default();
                    *end = (*end).max(offset + len);
                }
            }
            longest = longest.max(all.requests - before);
        }
        (part.all, part.kept, part.read_to) = (all, all, read_to);
        if all.requests > requests_max.max(1) {
            part.stride = all.requests.div_ceil(requests_max.max(1));
            part.window = (longest / (part.stride * WINDOWS_KEPT_MIN)).clamp(1, WINDOW_REQUESTS);
            let mut kept = IoTotals::default();
            for rank in 0..workload.ranks() {
                part.ops(rank).for_each(|op| kept.add(&op));
            }
            part.kept = kept;
        }
        part
    }

    /// Reports progress to a callback.
    #[must_use]
    pub fn with_progress(self, progress: Progress<'a>) -> Self {
        Self { progress: Some(progress), ..self }
    }

    /// Totals of the slice.
    pub fn kept(&self) -> IoTotals {
        self.kept
    }

    /// Totals before subsampling.
    pub fn all(&self) -> IoTotals {
        self.all
    }

    /// Whether nothing was dropped.
    pub fn is_whole(&self) -> bool {
        self.stride == 1
    }

    /// Factor from the time of the slice to the time of the whole: the geometric mean of the ratios of requests and
    /// bytes.
    pub fn weight(&self) -> f64 {
        let by = |all: u64, kept: u64| all.max(1) as f64 / kept.max(1) as f64;
        (by(self.all.requests, self.kept.requests) * by(self.all.bytes, self.kept.bytes)).sqrt()
    }

    fn wants(&self, op: &Op) -> bool {
        self.files.as_ref().is_none_or(|files| op.file().is_none_or(|file| files.contains(&file.0)))
    }

    fn keeps(&self, number: u64) -> bool {
        (number / self.window).is_multiple_of(self.stride)
    }
}

impl Workload for WorkloadSlice<'_> {
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

    fn inputs(&self) -> Box<dyn Iterator<Item = (FileRef, u64)> + Send + '_> {
        let wanted = |file: &FileRef| self.files.as_ref().is_none_or(|files| files.contains(&file.0));
        let inputs = self.workload.inputs().filter(move |(file, _)| wanted(file));
        if self.is_whole() {
            return Box::new(inputs);
        }
        let mut all = self.read_to.clone();
        for (file, len) in inputs {
            let known = all.entry(file.0).or_default();
            *known = len.max(*known);
        }
        Box::new(all.into_iter().map(|(file, len)| (FileRef(file), len)))
    }

    fn ops(&self, rank: u32) -> Box<dyn Iterator<Item = Op> + Send + '_> {
        let (mut number, mut unreported) = (0, 0);
        let ops = self.workload.ops(rank).filter(move |op| {
            if !self.wants(op) {
                return false;
            }
            if !matches!(op, Op::Read { .. } | Op::Write { .. }) {
                return true;
            }
            number += 1;
            let keeps = self.keeps(number - 1);
            unreported += u64::from(keeps);
            if unreported == PROGRESS_OPS {
                if let Some(progress) = self.progress {
                    progress(PROGRESS_OPS);
                }
                unreported = 0;
            }
            keeps
        });
        Box::new(ops)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_workload::WorkloadSpec;

    fn workload(text: &str) -> Box<dyn Workload> {
        toml::from_str::<WorkloadSpec>(text).unwrap().build().unwrap()
    }

    fn moved(workload: &dyn Workload, rank: u32) -> Vec<Op> {
        workload.ops(rank).filter(|op| matches!(op, Op::Read { .. } | Op::Write { .. })).collect()
    }

    #[test]
    fn a_small_workload_is_not_subsampled() {
        let all = workload("kind = \"ior\"\nranks = 4\ntransfer = \"64 KiB\"\nper_rank = \"1 MiB\"");
        let part = WorkloadSlice::new(&*all, None, 1 << 20);
        assert!(part.is_whole());
        assert_eq!((part.kept(), part.weight()), (part.all(), 1.0));
        for rank in 0..4 {
            assert!(part.ops(rank).eq(all.ops(rank)));
        }
        assert!(part.inputs().eq(all.inputs()));
    }

    #[test]
    fn ranks_keep_the_same_windows_and_read_files_exist() {
        let all =
            workload("kind = \"ior\"\nranks = 4\ntransfer = 4096\nper_rank = \"16 MiB\"\naccess = \"read\"");
        for max in [100, 1000, 5000] {
            let part = WorkloadSlice::new(&*all, None, max);
            let kept: Vec<Vec<Op>> = (0..4).map(|rank| moved(&part, rank)).collect();
            let count: u64 = kept.iter().map(|ops| ops.len() as u64).sum();
            assert_eq!(count, part.kept().requests);
            assert!(count <= 2 * max && 3 * count >= max, "{count} of {max}");
            assert!((part.weight() * count as f64 - part.all().requests as f64).abs() < 1e-6);
            // Every rank keeps requests with the same indices.
            let numbers = |rank: u32| -> Vec<usize> {
                let all_ops = moved(&*all, rank);
                kept[rank as usize]
                    .iter()
                    .map(|op| all_ops.iter().position(|other| other == op).unwrap())
                    .collect()
            };
            assert!((1..4).all(|rank| numbers(rank) == numbers(0)));
            let ends: BTreeMap<u32, u64> = part.inputs().map(|(file, len)| (file.0, len)).collect();
            for op in kept.iter().flatten() {
                let Op::Read { file, offset, len, .. } = *op else { panic!("it only reads") };
                assert!(offset + len <= ends[&file.0]);
            }
        }
    }

    #[test]
    fn other_files_are_left_out() {
        let all = workload("kind = \"ior\"\nranks = 4\ntransfer = 4096\nper_rank = \"64 KiB\"");
        let none = WorkloadSlice::new(&*all, Some(BTreeSet::from([77])), 10);
        assert_eq!((none.all().requests, none.inputs().count()), (0, 0));
        assert!(none.ops(0).all(|op| op.file().is_none()));
    }
}
