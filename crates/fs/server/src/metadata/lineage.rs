//! File ids: the ids that a start of the service assigns, and all ids that this database ever assigned.
//!
//! An id is never assigned twice, even when an older copy of the database is restored and continues in its place. Each
//! start begins at an id that grows with the wall clock: 65,536 ids for each second since 1970. Ids assigned after the
//! copy was made are then lower, as long as the clock is right and fewer files than that are created per second.
//!
//! A database that was restored from a dump also owns the ids that were assigned between the dump and its first start.

use super::fault::Outcome;
use super::tables::{allocator, put_allocator, put_row};
use std::ops::Bound;
use weft_core::{FileId, Timestamp};
use weft_env::mutants::{Mutant, is_seeded};
use weft_store::metadata::{AllocatorRow, IdsRow, Scan, Snapshot, Table, Transaction, start_key};
use weft_wire::meta::ROOT;

/// File ids for each second of the wall clock; they last until the year 2106.
const IDS_PER_SECOND: u64 = 1 << 16;
/// Number of file ids skipped after a crash. Files whose creation was lost had such ids, and a client may still use
/// them. There were fewer: a connection waited for each lost creation, or its frame was among few that were not synced.
const SKIPPED_AFTER_CRASH: u64 = 1 << 20;

/// Begins the ids of start number `start`.
pub(super) fn begin(t: &mut dyn Transaction, start: u32, crashed: bool, now: Timestamp) -> Outcome<()> {
    let before = allocator(t)?;
    let mut first_s = u64::try_from(now.parts().0).unwrap_or(0);
    let earlier = last(t)?;
    if let Some((_, row)) = &earlier {
        // Two starts may fall into one second, and the clock may be set back.
        first_s = first_s.max(row.start_s + 1);
    }
    let first_s = first_s.min(FileId::INODES_END / IDS_PER_SECOND - 1);
    let skipped = if crashed { SKIPPED_AFTER_CRASH } else { 0 };
    // The first ids follow the root's, because layouts of new files depend on the low bits.
    let by_clock = first_s * IDS_PER_SECOND + ROOT.0 + 1;
    let first = FileId(by_clock.max(before.next.0 + skipped).min(FileId::INODES_END));
    let (number, row) = match earlier {
        // Start numbers are consecutive, except after a restore from a dump. This database then stands in for the one that
        // was dumped, and owns all ids that it assigned since.
        Some((number, row)) if start > number + 1 => (number, IdsRow { end: first, ..row }),
        Some((number, row)) => (number, IdsRow { end: before.next, ..row }),
        // A database without this table has one earlier start.
        None => (0, IdsRow { first: ROOT, end: before.next, start_s: 0 }),
    };
    put_row(t, Table::Starts, &start_key(number), &row);
    put_row(t, Table::Starts, &start_key(start), &IdsRow { first, end: first, start_s: first_s });
    put_allocator(t, &AllocatorRow { next: first, ..before });
    Ok(())
}

/// The latest start on record.
fn last(s: &dyn Snapshot) -> Outcome<Option<(u32, IdsRow)>> {
    let mut last = None;
    s.scan(Table::Starts, Bound::Unbounded, &mut |key, value| {
        last = Some((number(key), value.open(Table::Starts, key)?));
        Ok(Scan::Next)
    })?;
    Ok(last)
}

fn number(key: &[u8]) -> u32 {
    key.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes))
}

/// Whether this database assigned the id, for each file.
pub(super) fn were_assigned(s: &dyn Snapshot, files: &[FileId]) -> Outcome<Vec<bool>> {
    let mut ranges: Vec<IdsRow> = Vec::new();
    s.scan(Table::Starts, Bound::Unbounded, &mut |key, value| {
        ranges.push(value.open(Table::Starts, key)?);
        Ok(Scan::Next)
    })?;
    if let Some(last) = ranges.last_mut() {
        last.end = allocator(s)?.next;
    }
    ranges.sort_by_key(|range| range.first);
    let is_ours = |file: &FileId| {
        let file = file.inode();
        let after = ranges.partition_point(|range| range.first <= file);
        is_seeded(Mutant::ForgottenLineage) || after.checked_sub(1).is_some_and(|at| file < ranges[at].end)
    };
    Ok(files.iter().map(is_ours).collect())
}
