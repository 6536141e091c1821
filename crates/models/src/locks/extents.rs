//! Lustre-like: extent locks of a stripe object, called back whole and granted as wide as nobody minds.

use super::table::Table;
use super::{Answer, Ask, Costs, revoked};
use std::ops::Range;

/// The server calls back all conflicting locks at once and grants when the last has been given up. The grant grows from
/// the blocks that were asked for to the nearest locks that it would conflict with, and to where those worked who have
/// lost theirs within `remember`: in Lustre their next requests wait already and stop the growth. On an object that `contended` locks
/// conflict on it grows by no more than `growth` behind its end, as Lustre has it.
pub(super) fn grant(
    table: &mut Table,
    ask: &Ask,
    (blocks, block): (&Range<u64>, u64),
    served: u64,
    costs: &Costs,
    (contended, growth): (usize, u64),
    remember: u64,
) -> Answer {
    let mut ready = served;
    let (mut taken, mut lost) = (Vec::new(), Vec::new());
    for held in table.iter_mut() {
        if !Table::conflicts(held, ask.client, ask.mode) || !held.overlaps(blocks) {
            continue;
        }
        let range = held.range.clone();
        let flushed = held.flush(&range);
        // Called back, used to the end, written back, and canceled.
        ready = ready.max(costs.given_up(served + costs.latency, held, flushed) + costs.latency);
        taken.push(revoked(held.client, &range, flushed));
        lost.push((held.client, held.last.clone()));
        held.range = 0..0;
    }
    for (client, last) in lost {
        table.note_loser(client, last, served + remember);
    }
    table.tidy();
    let (mut low, mut high, mut others) = (0, u64::MAX, taken.len());
    for held in table.iter().filter(|held| Table::conflicts(held, ask.client, ask.mode)) {
        others += 1;
        if held.range.end <= blocks.start {
            low = low.max(held.range.end);
        } else {
            high = high.min(held.range.start);
        }
    }
    for last in table.losers(ask.client, served) {
        if last.end <= blocks.start {
            low = low.max(last.end);
        } else if last.start >= blocks.end {
            high = high.min(last.start);
        }
    }
    // In whole blocks, so that nobody gets a part of one.
    low = low.next_multiple_of(block).min(blocks.start);
    high = if high == u64::MAX { high } else { (high / block * block).max(blocks.end) };
    if others >= contended {
        low = blocks.start;
        high = high.min(blocks.end.saturating_add(growth));
    }
    // To the server and back, and to each holder and back.
    let messages = 2 + 2 * taken.len() as u32;
    Answer { at: ready + costs.latency, range: low..high, revoked: taken, messages }
}
