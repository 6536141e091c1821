//! Shared helpers of the generators' tests.

use crate::op::{FileRef, Op, Workload};
use std::ops::Range;

/// Returns offset and length of a rank's transfers, in order.
pub(crate) fn extents(workload: &dyn Workload, rank: u32) -> Vec<(u64, u64)> {
    file_extents(workload, rank).into_iter().map(|(_, offset, len)| (offset, len)).collect()
}

/// Returns file, offset and length of a rank's transfers, in order.
pub(crate) fn file_extents(workload: &dyn Workload, rank: u32) -> Vec<(FileRef, u64, u64)> {
    let extent = |op| match op {
        Op::Read { file, offset, len, .. } | Op::Write { file, offset, len, .. } => Some((file, offset, len)),
        _ => None,
    };
    workload.ops(rank).filter_map(extent).collect()
}

/// Asserts that the transfers of all ranks on `file` cover each byte of `range` exactly once, and nothing else.
pub(crate) fn covered_once(workload: &dyn Workload, file: FileRef, range: Range<u64>) {
    let mut all: Vec<(u64, u64)> = (0..workload.ranks())
        .flat_map(|rank| file_extents(workload, rank))
        .filter(|extent| extent.0 == file)
        .map(|(_, offset, len)| (offset, len))
        .collect();
    all.sort_unstable();
    let mut at = range.start;
    for (offset, len) in all {
        assert!(offset == at, "{len} bytes at {offset} follow a transfer that ends at {at}");
        at += len;
    }
    assert_eq!(at, range.end, "the end of the covered range");
}

/// Asserts that the ranks of a group pass equally many barriers, and that opens and closes are paired.
pub(crate) fn well_formed(workload: &dyn Workload) {
    let mut barriers = std::collections::BTreeMap::new();
    for rank in 0..workload.ranks() {
        let mut passed = 0;
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
                Op::Barrier => passed += 1,
                _ => {}
            }
        }
        assert!(open.is_empty(), "rank {rank} leaves {open:?} open");
        let group = workload.group(rank);
        assert!(group.contains(&rank), "rank {rank} is in its own group");
        let expected = *barriers.entry(group.start).or_insert(passed);
        assert_eq!(passed, expected, "barriers of rank {rank}");
    }
}
