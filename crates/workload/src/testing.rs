//! What tests of generators share.

use crate::op::{FileRef, Op, Workload};
use std::ops::Range;

/// Offsets and lengths of the transfers of a rank, in order.
pub(crate) fn extents(workload: &dyn Workload, rank: u32) -> Vec<(u64, u64)> {
    placed(workload, rank).into_iter().map(|(_, offset, len)| (offset, len)).collect()
}

/// The same with the files.
pub(crate) fn placed(workload: &dyn Workload, rank: u32) -> Vec<(FileRef, u64, u64)> {
    let place = |op| match op {
        Op::Read { file, offset, len, .. } | Op::Write { file, offset, len, .. } => Some((file, offset, len)),
        _ => None,
    };
    workload.ops(rank).filter_map(place).collect()
}

/// All ranks' transfers on `file` together touch each byte of `range` once, and nothing else.
pub(crate) fn covered_once(workload: &dyn Workload, file: FileRef, range: Range<u64>) {
    let mut all: Vec<(u64, u64)> = (0..workload.ranks())
        .flat_map(|rank| placed(workload, rank))
        .filter(|place| place.0 == file)
        .map(|(_, offset, len)| (offset, len))
        .collect();
    all.sort_unstable();
    let mut at = range.start;
    for (offset, len) in all {
        assert!(offset == at, "{len} bytes at {offset} follow what ends at {at}");
        at += len;
    }
    assert_eq!(at, range.end, "the end of what is covered");
}

/// Every rank meets as many barriers as the others of its group, and opens and closes in pairs what it uses.
pub(crate) fn well_formed(workload: &dyn Workload) {
    let mut barriers = std::collections::BTreeMap::new();
    for rank in 0..workload.ranks() {
        let mut met = 0;
        let mut open = std::collections::BTreeSet::new();
        for op in workload.ops(rank) {
            match op {
                Op::Open { file, .. } => assert!(open.insert(file), "rank {rank} opens {file:?} twice"),
                Op::Close { file } => assert!(open.remove(&file), "rank {rank} closes {file:?}"),
                Op::Read { file, len, .. } | Op::Write { file, len, .. } => {
                    assert!(open.contains(&file) && len > 0, "rank {rank}: {op:?}");
                }
                Op::Sync { file } | Op::SetLen { file, .. } => {
                    assert!(open.contains(&file), "rank {rank}: {op:?}")
                }
                Op::Barrier => met += 1,
                _ => {}
            }
        }
        assert!(open.is_empty(), "rank {rank} leaves {open:?} open");
        let group = workload.group(rank);
        assert!(group.contains(&rank), "rank {rank} is in its own group");
        let expected = *barriers.entry(group.start).or_insert(met);
        assert_eq!(met, expected, "barriers of rank {rank}");
    }
}
