//! A part of a workload: what it does to some of its files, and of that some windows of requests, of each rank the same.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use weft_workload::{FileRef, Op, Workload};

/// Requests in a row of a rank that are kept or left out together, where ranks have many; as the planner's sample.
const WINDOW: u64 = 64;
/// Of a rank that has fewer requests at least so many windows are kept.
const WINDOWS_KEPT: u64 = 16;
/// Operations between two calls of the progress.
const TICK: u64 = 256;

/// Told of operations that have been handed out since the last time.
pub type Progress<'a> = &'a (dyn Fn(u64) + Sync);

/// Reads and writes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Moved {
    /// How many.
    pub requests: u64,
    /// What they move.
    pub bytes: u64,
}

impl Moved {
    fn add(&mut self, op: &Op) {
        if let Op::Read { len, .. } | Op::Write { len, .. } = op {
            self.requests += 1;
            self.bytes += len;
        }
    }
}

/// A part of a workload. Waits stay: they are of all ranks.
pub struct Part<'a> {
    workload: &'a dyn Workload,
    files: Option<BTreeSet<u32>>,
    /// One window of so many is kept.
    every: u64,
    /// Requests of a window.
    window: u64,
    all: Moved,
    kept: Moved,
    /// Files that must be there: those that are read, where what wrote them may be left out.
    read_to: BTreeMap<u32, u64>,
    progress: Option<Progress<'a>>,
}

impl<'a> Part<'a> {
    /// What a workload does to `files` (to all without them), thinned to about `requests_max` reads and writes if there
    /// are more. Reads through the workload, twice where it is thinned.
    pub fn new(workload: &'a dyn Workload, files: Option<BTreeSet<u32>>, requests_max: u64) -> Self {
        let mut part = Self {
            workload,
            files,
            every: 1,
            window: WINDOW,
            all: Moved::default(),
            kept: Moved::default(),
            read_to: BTreeMap::new(),
            progress: None,
        };
        let (mut all, mut longest, mut read_to) = (Moved::default(), 0, BTreeMap::<u32, u64>::new());
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
            part.every = all.requests.div_ceil(requests_max.max(1));
            part.window = (longest / (part.every * WINDOWS_KEPT)).clamp(1, WINDOW);
            let mut kept = Moved::default();
            for rank in 0..workload.ranks() {
                part.ops(rank).for_each(|op| kept.add(&op));
            }
            part.kept = kept;
        }
        part
    }

    /// The same, telling of how far it has come.
    #[must_use]
    pub fn telling(self, progress: Progress<'a>) -> Self {
        Self { progress: Some(progress), ..self }
    }

    /// What is kept.
    pub fn kept(&self) -> Moved {
        self.kept
    }

    /// What there is.
    pub fn all(&self) -> Moved {
        self.all
    }

    /// Whether nothing is left out.
    pub fn is_whole(&self) -> bool {
        self.every == 1
    }

    /// How much longer all takes than what is kept: as much as it moves more bytes, or has more requests, in the middle
    /// of both.
    pub fn weight(&self) -> f64 {
        let by = |all: u64, kept: u64| all.max(1) as f64 / kept.max(1) as f64;
        (by(self.all.requests, self.kept.requests) * by(self.all.bytes, self.kept.bytes)).sqrt()
    }

    fn wants(&self, op: &Op) -> bool {
        self.files.as_ref().is_none_or(|files| op.file().is_none_or(|file| files.contains(&file.0)))
    }

    fn keeps(&self, number: u64) -> bool {
        (number / self.window).is_multiple_of(self.every)
    }
}

impl Workload for Part<'_> {
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
        let (mut number, mut untold) = (0, 0);
        let ops = self.workload.ops(rank).filter(move |op| {
            if !self.wants(op) {
                return false;
            }
            if !matches!(op, Op::Read { .. } | Op::Write { .. }) {
                return true;
            }
            number += 1;
            let keeps = self.keeps(number - 1);
            untold += u64::from(keeps);
            if untold == TICK {
                if let Some(progress) = self.progress {
                    progress(TICK);
                }
                untold = 0;
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
    fn a_small_workload_is_kept_whole() {
        let all = workload("kind = \"ior\"\nranks = 4\ntransfer = \"64 KiB\"\nper_rank = \"1 MiB\"");
        let part = Part::new(&*all, None, 1 << 20);
        assert!(part.is_whole());
        assert_eq!((part.kept(), part.weight()), (part.all(), 1.0));
        for rank in 0..4 {
            assert!(part.ops(rank).eq(all.ops(rank)));
        }
        assert!(part.inputs().eq(all.inputs()));
    }

    #[test]
    fn of_a_large_one_every_rank_keeps_the_same_windows_and_what_is_read_is_there() {
        let all =
            workload("kind = \"ior\"\nranks = 4\ntransfer = 4096\nper_rank = \"16 MiB\"\naccess = \"read\"");
        for max in [100, 1000, 5000] {
            let part = Part::new(&*all, None, max);
            let kept: Vec<Vec<Op>> = (0..4).map(|rank| moved(&part, rank)).collect();
            let count: u64 = kept.iter().map(|ops| ops.len() as u64).sum();
            assert_eq!(count, part.kept().requests);
            assert!(count <= 2 * max && 3 * count >= max, "{count} of {max}");
            assert!((part.weight() * count as f64 - part.all().requests as f64).abs() < 1e-6);
            // The same numbers of each rank's requests.
            let numbers = |rank: u32| -> Vec<usize> {
                let every = moved(&*all, rank);
                kept[rank as usize]
                    .iter()
                    .map(|op| every.iter().position(|other| other == op).unwrap())
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
    fn files_that_are_not_asked_for_are_left_alone() {
        let all = workload("kind = \"ior\"\nranks = 4\ntransfer = 4096\nper_rank = \"64 KiB\"");
        let none = Part::new(&*all, Some(BTreeSet::from([77])), 10);
        assert_eq!((none.all().requests, none.inputs().count()), (0, 0));
        assert!(none.ops(0).all(|op| op.file().is_none()));
    }
}
