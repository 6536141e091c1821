//! GPFS-like byte-range tokens of a file. Clients request them from the holders.

use super::table::{HeldLock, Table};
use super::{Answer, Costs, LockRequest, revoked};
use std::ops::Range;

/// Grants a token.
///
/// The server answers with the list of holders, and the client asks all of them at once. A holder keeps the side that
/// it works on: the part before the requested blocks if it used that last, otherwise the part behind them. The new
/// client gets everything up to the parts that the holders keep. The first client gets the whole file.
pub(super) fn grant(
    table: &mut Table,
    request: &LockRequest,
    blocks: &Range<u64>,
    served: u64,
    costs: &Costs,
) -> Answer {
    // The server's answer is the list of holders. If the list is empty, it is the grant.
    let listed = served + costs.latency;
    let mut ready = listed;
    let mut taken = Vec::new();
    let (mut low, mut high) = (0, u64::MAX);
    let mut kept: Vec<HeldLock> = Vec::new();
    for held in table.iter_mut().filter(|held| Table::conflicts(held, request.client, request.mode)) {
        if !held.overlaps(blocks) {
            // This token is not affected. It limits the grant.
            if held.range.end <= blocks.start {
                low = low.max(held.range.end);
            } else {
                high = high.min(held.range.start);
            }
            continue;
        }
        let old = held.range.clone();
        let works_before = held.last.end <= blocks.start;
        let works_behind = held.last.start >= blocks.end;
        let keeps = if works_before {
            [old.start..blocks.start.min(old.end), 0..0]
        } else if works_behind {
            let from = held.last.start.clamp(blocks.end, old.end.max(blocks.end));
            [0..0, from..old.end]
        } else {
            // Both use the same blocks: only these are released.
            [old.start..blocks.start.max(old.start), blocks.end.min(old.end)..old.end]
        };
        let [before, behind] = keeps;
        let lost = before.end.max(old.start)..if behind.is_empty() { old.end } else { behind.start };
        let flushed = held.flush(&lost);
        ready = ready.max(costs.released_at(listed + costs.latency, held, flushed) + costs.latency);
        taken.push(revoked(held.client, &lost, flushed));
        if !before.is_empty() {
            low = low.max(before.end);
        }
        if !behind.is_empty() {
            high = high.min(behind.start);
        }
        match (before.is_empty(), behind.is_empty()) {
            (false, false) => {
                let mut second = held.clone();
                second.flush(&(0..behind.start));
                second.range = behind;
                held.flush_from(before.end);
                held.range = before;
                kept.push(second);
            }
            (false, true) => held.range = before,
            (true, false) => held.range = behind,
            (true, true) => held.range = 0..0,
        }
    }
    table.tidy();
    kept.into_iter().for_each(|held| table.push(held));
    let messages = 2 + 2 * taken.len() as u32;
    Answer { at: ready, range: low.min(blocks.start)..high.max(blocks.end), revoked: taken, messages }
}

impl HeldLock {
    /// Drops the dirty bytes behind `from`, which belong to the second part of a split token.
    fn flush_from(&mut self, from: u64) {
        self.flush(&(from..u64::MAX));
    }
}
