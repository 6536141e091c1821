//! Lustre-like extent locks of a stripe object.

use super::table::Table;
use super::{Answer, Costs, LockRequest, revoked};
use std::ops::Range;

/// Grants an extent lock.
///
/// The server revokes all conflicting locks at once and grants when the last one is released. The grant extends beyond
/// the requested blocks to the nearest conflicting lock. It also stops at the places that clients used whose locks were
/// revoked within `remember`: in Lustre, their next requests are already queued and limit the growth. On an object with
/// `contended` conflicting locks, the grant extends at most `growth` bytes behind its end, as in Lustre.
pub(super) fn grant(
    table: &mut Table,
    request: &LockRequest,
    (blocks, block): (&Range<u64>, u64),
    served: u64,
    costs: &Costs,
    (contended, growth): (usize, u64),
    remember: u64,
) -> Answer {
    let mut ready = served;
    let (mut taken, mut lost) = (Vec::new(), Vec::new());
    for held in table.iter_mut() {
        if !Table::conflicts(held, request.client, request.mode) || !held.overlaps(blocks) {
            continue;
        }
        let range = held.range.clone();
        let flushed = held.flush(&range);
        // Revocation message, current use, write-back, cancellation.
        ready = ready.max(costs.released_at(served + costs.latency, held, flushed) + costs.latency);
        taken.push(revoked(held.client, &range, flushed));
        lost.push((held.client, held.last.clone()));
        held.range = 0..0;
    }
    for (client, last) in lost {
        table.note_loser(client, last, served + remember);
    }
    table.tidy();
    let (mut low, mut high, mut others) = (0, u64::MAX, taken.len());
    for held in table.iter().filter(|held| Table::conflicts(held, request.client, request.mode)) {
        others += 1;
        if held.range.end <= blocks.start {
            low = low.max(held.range.end);
        } else {
            high = high.min(held.range.start);
        }
    }
    for last in table.losers(request.client, served) {
        if last.end <= blocks.start {
            low = low.max(last.end);
        } else if last.start >= blocks.end {
            high = high.min(last.start);
        }
    }
    // Round to whole blocks, so that no client gets a part of one.
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
