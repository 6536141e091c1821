//! GPFS-like: byte-range tokens of a file, taken from their holders by those who want them.

use super::table::{Held, Table};
use super::{Answer, Ask, Costs, revoked};
use std::ops::Range;

/// The server tells who has what; the client takes it from all of them at once. A holder keeps the side on which it is
/// working: before what is asked for if it used that last, else behind; on either side what is not needed is kept by
/// neither of them, but goes to who asks. The first gets all.
pub(super) fn grant(table: &mut Table, ask: &Ask, blocks: &Range<u64>, served: u64, costs: &Costs) -> Answer {
    // The server's answer is the list; with nobody on it, it is the grant.
    let listed = served + costs.latency;
    let mut ready = listed;
    let mut taken = Vec::new();
    let (mut low, mut high) = (0, u64::MAX);
    let mut kept: Vec<Held> = Vec::new();
    for held in table.iter_mut().filter(|held| Table::conflicts(held, ask.client, ask.mode)) {
        if !held.overlaps(blocks) {
            // Not asked for what it has: the grant ends there.
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
            // Both want the same blocks: only these go.
            [old.start..blocks.start.max(old.start), blocks.end.min(old.end)..old.end]
        };
        let [before, behind] = keeps;
        let lost = before.end.max(old.start)..if behind.is_empty() { old.end } else { behind.start };
        let flushed = held.flush(&lost);
        ready = ready.max(costs.given_up(listed + costs.latency, held, flushed) + costs.latency);
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

impl Held {
    /// What lies behind `from` is another piece's to write back.
    fn flush_from(&mut self, from: u64) {
        self.flush(&(from..u64::MAX));
    }
}
