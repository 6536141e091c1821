//! Pieces of a file, joined and reduced to grids.

use super::mapping::{Grid, MappedExtent, MappingError, SLOTS_MAX, Slot};
use std::collections::BTreeMap;

/// Maximum number of slots of a grid, which bounds the time to find one.
const GRID_SLOTS_MAX: usize = 4096;

/// Pieces as extents and grids, both ascending.
pub struct Compacted {
    pub extents: Vec<MappedExtent>,
    pub grids: Vec<Grid>,
    /// Slots of all grids, in their order.
    pub slots: Vec<Slot>,
}

/// Joins pieces, given in any order, and replaces regular ones by grids.
///
/// From each piece on, the next piece of the same object suggests a period: the piece whose place in the replica follows.
/// The pieces up to there are the slots, and every further period must repeat them.
pub fn compact(mut pieces: Vec<MappedExtent>) -> Result<Compacted, MappingError> {
    if let Some(bad) = pieces.iter().find(|piece| {
        piece.len == 0
            || piece.start.checked_add(piece.len).is_none()
            || piece.at.checked_add(piece.len).is_none()
    }) {
        return Err(MappingError::Length(bad.start));
    }
    pieces.sort_unstable();
    if let Some(two) = pieces.windows(2).find(|two| two[1].start < two[0].start + two[0].len) {
        return Err(MappingError::FileOrder(two[1].start));
    }
    pieces.dedup_by(|piece, before| {
        let continues = before.start + before.len == piece.start && before.at + before.len == piece.at;
        if continues {
            before.len += piece.len;
        }
        continues
    });
    if pieces.len() > SLOTS_MAX {
        return Err(MappingError::TooMany);
    }
    let by_place: BTreeMap<u64, u32> = (0..).zip(&pieces).map(|(number, piece)| (piece.at, number)).collect();
    let (mut extents, mut grids, mut slots) = (Vec::new(), Vec::new(), Vec::new());
    let mut at = 0;
    while at < pieces.len() {
        let Some((width, count)) = regular(&pieces, &by_place, at) else {
            extents.push(pieces[at]);
            at += 1;
            continue;
        };
        let (first, next) = (pieces[at], pieces[at + width]);
        grids.push(Grid {
            start: first.start,
            period: next.start - first.start,
            count: count as u32,
            slots: width as u32,
        });
        slots.extend(pieces[at..at + width].iter().map(|piece| Slot {
            offset: piece.start - first.start,
            len: piece.len,
            at: piece.at,
        }));
        at += width * count;
    }
    Ok(Compacted { extents, grids, slots })
}

/// Returns the number of slots and periods of a grid that begins with piece `at`, if it is shorter than its pieces.
fn regular(pieces: &[MappedExtent], by_place: &BTreeMap<u64, u32>, at: usize) -> Option<(usize, usize)> {
    let first = pieces[at];
    let next = *by_place.get(&(first.at + first.len))? as usize;
    let width = next.checked_sub(at).filter(|width| (1..=GRID_SLOTS_MAX).contains(width))?;
    let period = pieces[next].start - first.start;
    // The last slot ends within its period, because pieces are in order.
    let repeats = |number: usize| {
        let (piece, before) = (pieces[number], pieces[number - width]);
        piece.len == before.len && piece.at == before.at + before.len && piece.start - before.start == period
    };
    let repeated = (next..pieces.len()).take_while(|number| repeats(*number)).count();
    let count = (1 + repeated / width).min(u32::MAX as usize);
    // A grid needs an entry of its own.
    (count >= 2 && 1 + width < width * count).then_some((width, count))
}
