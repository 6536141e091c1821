//! Mapping from ranges of a file to ranges of its replica.

use super::compaction::{Compacted, compact};
use crate::units::Extent;

/// Maximum number of extents and slots of a mapping: 256 MiB of memory.
pub const SLOTS_MAX: usize = (256 << 20) / size_of::<MappedExtent>();

/// A contiguous range of the file at one place in the replica (24 bytes).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct MappedExtent {
    /// First byte in the file.
    pub start: u64,
    /// Length in bytes.
    pub len: u64,
    /// First byte in the replica.
    pub at: u64,
}

impl MappedExtent {
    const fn end(&self) -> u64 {
        self.start.saturating_add(self.len)
    }
}

/// A piece of each period of a grid. The pieces of successive periods follow each other in the replica.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slot {
    /// First byte, relative to the start of the period.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
    /// Place of the first period's piece in the replica.
    pub at: u64,
}

/// A regular pattern: `count` periods of the file with the same slots. Bytes between the slots are not mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grid {
    /// First byte of the first period.
    pub start: u64,
    /// Length of a period in bytes.
    pub period: u64,
    /// Number of periods, at least 2.
    pub count: u32,
    /// Number of slots of a period, at least 1.
    pub slots: u32,
}

/// Why a mapping is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MappingError {
    /// Two ranges contain the same byte of the file, or are not in ascending order.
    #[error("ranges of the file overlap, or are not in order, at byte {0}")]
    FileOrder(u64),
    /// Two ranges lead to the same byte of the replica.
    #[error("two ranges of the file share byte {0} of the replica")]
    Shared(u64),
    /// A range, period or count is empty, or ends beyond the largest offset.
    #[error("the range at byte {0} is empty or too long")]
    Length(u64),
    /// The number of slots does not match.
    #[error("the grids have other slots than are listed")]
    Slots,
    /// More than [`SLOTS_MAX`] ranges.
    #[error("the mapping has more than {SLOTS_MAX} ranges")]
    TooMany,
}

/// A part of a request: in the replica, or not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    /// Range of the file.
    pub file: Extent,
    /// First byte in the replica; `None` if the range is not mapped.
    pub replica: Option<u64>,
}

/// Where bytes of a file lie in its replica. A byte has at most one place, and a place at most one byte.
///
/// A lookup takes O(log n) for n extents, grids and slots.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Mapping {
    extents: Vec<MappedExtent>,
    grids: Vec<Grid>,
    /// First slot of each grid.
    firsts: Vec<u32>,
    slots: Vec<Slot>,
}

impl Mapping {
    /// Creates a mapping of pieces in any order. Adjacent pieces are joined, and regular ones become grids.
    ///
    /// # Errors
    /// [`MappingError`] if pieces overlap in the file or in the replica, or are too many.
    pub fn of_pieces(pieces: Vec<MappedExtent>) -> Result<Self, MappingError> {
        let Compacted { extents, grids, slots } = compact(pieces)?;
        Self::new(extents, grids, slots)
    }

    /// Creates a mapping of extents and grids, both in ascending order, and the slots of all grids.
    ///
    /// # Errors
    /// [`MappingError`].
    pub fn new(extents: Vec<MappedExtent>, grids: Vec<Grid>, slots: Vec<Slot>) -> Result<Self, MappingError> {
        if extents.len() + grids.len() + slots.len() > SLOTS_MAX {
            return Err(MappingError::TooMany);
        }
        let mut firsts = Vec::with_capacity(grids.len());
        let mut first = 0usize;
        for grid in &grids {
            firsts.push(first as u32);
            first += grid.slots as usize;
        }
        if first != slots.len() {
            return Err(MappingError::Slots);
        }
        let this = Self { extents, grids, firsts, slots };
        this.check()?;
        Ok(this)
    }

    /// The extents outside of grids, ascending.
    pub fn extents(&self) -> &[MappedExtent] {
        &self.extents
    }

    /// The grids, ascending.
    pub fn grids(&self) -> &[Grid] {
        &self.grids
    }

    /// The slots of all grids, in the order of the grids.
    pub fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// Slots of grid `number`.
    fn slots_of(&self, number: usize) -> &[Slot] {
        let first = self.firsts[number] as usize;
        &self.slots[first..first + self.grids[number].slots as usize]
    }

    /// One past the last byte of the last slot of grid `number`.
    fn grid_end(&self, number: usize) -> u64 {
        let grid = &self.grids[number];
        let last = self.slots_of(number).last().map_or(0, |slot| slot.offset + slot.len);
        grid.start + grid.period * (u64::from(grid.count) - 1) + last
    }

    /// Bytes that the mapping needs on disk and, but for a few words, in memory.
    pub fn encoded_len(&self) -> usize {
        24 * (self.extents.len() + self.grids.len() + self.slots.len())
    }

    /// Number of mapped bytes.
    pub fn bytes(&self) -> u64 {
        let extents = self.extents.iter().map(|extent| extent.len);
        let grids = (0..self.grids.len()).map(|number| {
            let period: u64 = self.slots_of(number).iter().map(|slot| slot.len).sum();
            period * u64::from(self.grids[number].count)
        });
        extents.chain(grids).sum()
    }

    /// One past the last byte of the replica.
    pub fn replica_len(&self) -> u64 {
        self.runs().map(|(at, len)| at + len).max().unwrap_or(0)
    }

    /// One past the last mapped byte of the file.
    pub fn file_end(&self) -> u64 {
        let extents = self.extents.last().map_or(0, MappedExtent::end);
        extents.max((0..self.grids.len()).last().map_or(0, |number| self.grid_end(number)))
    }

    /// Ranges of the replica: place and length.
    fn runs(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let grids = (0..self.grids.len()).flat_map(|number| {
            let count = u64::from(self.grids[number].count);
            self.slots_of(number).iter().map(move |slot| (slot.at, slot.len.saturating_mul(count)))
        });
        self.extents.iter().map(|extent| (extent.at, extent.len)).chain(grids)
    }

    fn check(&self) -> Result<(), MappingError> {
        for extent in &self.extents {
            if extent.len == 0 || extent.start.checked_add(extent.len).is_none() {
                return Err(MappingError::Length(extent.start));
            }
        }
        for (number, grid) in self.grids.iter().enumerate() {
            let whole = grid.period.checked_mul(u64::from(grid.count));
            let fits = whole.is_some_and(|whole| grid.start.checked_add(whole).is_some());
            if grid.count < 2 || grid.slots == 0 || !fits {
                return Err(MappingError::Length(grid.start));
            }
            let mut from = 0;
            for slot in self.slots_of(number) {
                let end = slot.offset.checked_add(slot.len).filter(|end| *end <= grid.period);
                let Some(end) = end.filter(|_| slot.len > 0) else {
                    return Err(MappingError::Length(grid.start));
                };
                if slot.offset < from {
                    return Err(MappingError::FileOrder(grid.start + slot.offset));
                }
                from = end;
            }
        }
        let mut sections: Vec<(u64, u64)> =
            self.extents.iter().map(|extent| (extent.start, extent.end())).collect();
        let of_extents = first_not_ascending(self.extents.iter().map(|extent| extent.start));
        let of_grids = first_not_ascending(self.grids.iter().map(|grid| grid.start));
        if let Some(at) = of_extents.or(of_grids) {
            return Err(MappingError::FileOrder(at));
        }
        sections
            .extend((0..self.grids.len()).map(|number| (self.grids[number].start, self.grid_end(number))));
        sections.sort_unstable();
        if let Some(two) = sections.windows(2).find(|two| two[1].0 < two[0].1) {
            return Err(MappingError::FileOrder(two[1].0));
        }
        let mut runs: Vec<(u64, u64)> = self.runs().collect();
        if let Some((at, _)) = runs.iter().find(|(at, len)| at.checked_add(*len).is_none()) {
            return Err(MappingError::Length(*at));
        }
        runs.sort_unstable();
        match runs.windows(2).find(|two| two[1].0 < two[0].0 + two[0].1) {
            Some(two) => Err(MappingError::Shared(two[1].0)),
            None => Ok(()),
        }
    }

    /// Returns the place of byte `offset` of the file, or `None` if it is not mapped. The second value is the number of
    /// bytes from `offset` on that continue there, or are not mapped either.
    pub fn find(&self, offset: u64) -> (Option<u64>, u64) {
        let after = self.extents.partition_point(|extent| extent.start <= offset);
        if let Some(extent) = after.checked_sub(1).map(|at| &self.extents[at])
            && offset < extent.end()
        {
            return (Some(extent.at + (offset - extent.start)), extent.end() - offset);
        }
        let next = self.extents.get(after).map_or(u64::MAX, |extent| extent.start);
        let after = self.grids.partition_point(|grid| grid.start <= offset);
        if let Some(number) = after.checked_sub(1)
            && offset < self.grid_end(number)
        {
            return self.find_in_grid(number, offset);
        }
        let next = next.min(self.grids.get(after).map_or(u64::MAX, |grid| grid.start));
        (None, next - offset)
    }

    /// [`find`](Self::find) for an offset within grid `number`.
    fn find_in_grid(&self, number: usize, offset: u64) -> (Option<u64>, u64) {
        let (grid, slots) = (&self.grids[number], self.slots_of(number));
        let (turn, within) = ((offset - grid.start) / grid.period, (offset - grid.start) % grid.period);
        let after = slots.partition_point(|slot| slot.offset <= within);
        if let Some(slot) = after.checked_sub(1).map(|at| &slots[at])
            && within - slot.offset < slot.len
        {
            let at = slot.at + turn * slot.len + (within - slot.offset);
            // A slot as long as the period continues without a gap.
            let len = match slot.len == grid.period {
                true => self.grid_end(number) - offset,
                false => slot.offset + slot.len - within,
            };
            return (Some(at), len);
        }
        // The grid ends with its last slot, so that there is a next one.
        let next = slots.get(after).map_or(grid.period + slots[0].offset, |slot| slot.offset);
        (None, next - within)
    }

    /// Splits a range of the file into parts with one place each, ascending. Adjacent parts are never contiguous in both
    /// the file and the replica.
    pub fn split(&self, extent: Extent) -> Parts<'_> {
        let from = extent.offset.0;
        Parts { mapping: self, from, end: from.saturating_add(extent.len.0), ahead: None }
    }

    /// All mapped pieces, in the order of the file.
    pub fn pieces(&self) -> impl Iterator<Item = MappedExtent> + '_ {
        self.split(Extent::new(0, self.file_end())).filter_map(|part| {
            let at = part.replica?;
            Some(MappedExtent { start: part.file.offset.0, len: part.file.len.0, at })
        })
    }
}

fn first_not_ascending(mut starts: impl Iterator<Item = u64>) -> Option<u64> {
    let mut last = None;
    starts.find(|start| last.replace(*start).is_some_and(|last| last >= *start))
}

/// Iterator over the parts of a range.
#[derive(Clone, Debug)]
pub struct Parts<'a> {
    mapping: &'a Mapping,
    from: u64,
    end: u64,
    /// A part that was found, and may continue.
    ahead: Option<Part>,
}

impl Iterator for Parts<'_> {
    type Item = Part;

    fn next(&mut self) -> Option<Part> {
        let mut part = self.ahead.take();
        while self.from < self.end {
            let (replica, len) = self.mapping.find(self.from);
            let len = len.min(self.end - self.from);
            let found = Part { file: Extent::new(self.from, len), replica };
            self.from += len;
            match &mut part {
                None => part = Some(found),
                Some(before) => {
                    let continues = match (before.replica, replica) {
                        (Some(before_at), Some(at)) => before_at + before.file.len.0 == at,
                        (None, None) => true,
                        _ => false,
                    };
                    if !continues {
                        self.ahead = Some(found);
                        break;
                    }
                    before.file.len.0 += len;
                }
            }
        }
        part
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// Requests of `ranks` processes, interleaved, each process with an object of its own.
    fn strided(ranks: u64, len: u64, count: u64) -> Vec<MappedExtent> {
        let place = |number: u64| MappedExtent {
            start: number * len,
            len,
            at: number % ranks * count * len + number / ranks * len,
        };
        (0..ranks * count).map(place).collect()
    }

    #[test]
    fn a_strided_pattern_needs_a_slot_for_each_process() {
        let mapping = Mapping::of_pieces(strided(8, 4096, 10_000)).expect("a mapping");
        assert_eq!((mapping.grids().len(), mapping.slots().len(), mapping.extents().len()), (1, 8, 0));
        assert_eq!((mapping.bytes(), mapping.replica_len()), (8 * 4096 * 10_000, 8 * 4096 * 10_000));
        assert_eq!(mapping.find(3 * 4096 + 7), (Some(3 * 4096 * 10_000 + 7), 4096 - 7));
        assert_eq!(mapping.find(8 * 4096 * 10_000), (None, u64::MAX - 8 * 4096 * 10_000));
    }

    /// The bound for irregular requests of 4 KiB: 0.6 % of the replicated bytes.
    #[test]
    fn irregular_pieces_need_24_bytes_each() {
        let mut random = crate::random::SplitMix64::new(3);
        let (mut start, mut at) = (0, 0);
        let mut pieces = Vec::new();
        for _ in 0..10_000 {
            start += 1 + random.below(9000);
            pieces.push(MappedExtent { start, len: 4096, at });
            (start, at) = (start + 4096, at + 4096 + 512);
        }
        let mapping = Mapping::of_pieces(pieces).expect("a mapping");
        assert!(mapping.encoded_len() as f64 <= 0.006 * mapping.bytes() as f64);
    }

    #[test]
    fn mappings_that_contradict_themselves_are_refused() {
        let piece = |start, len, at| MappedExtent { start, len, at };
        let refused = |pieces: &[MappedExtent]| Mapping::of_pieces(pieces.to_vec()).expect_err("is refused");
        assert_eq!(refused(&[piece(0, 10, 0), piece(9, 10, 100)]), MappingError::FileOrder(9));
        assert_eq!(refused(&[piece(0, 10, 0), piece(20, 10, 9)]), MappingError::Shared(9));
        assert_eq!(refused(&[piece(7, 0, 0)]), MappingError::Length(7));
        assert_eq!(refused(&[piece(u64::MAX, 2, 0)]), MappingError::Length(u64::MAX));
        let grid = Grid { start: 0, period: 10, count: 3, slots: 1 };
        let slot = Slot { offset: 8, len: 4, at: 0 };
        assert_eq!(Mapping::new(vec![], vec![grid], vec![slot]), Err(MappingError::Length(0)));
        assert_eq!(Mapping::new(vec![], vec![grid], vec![]), Err(MappingError::Slots));
        let slot = Slot { offset: 0, len: 4, at: 0 };
        assert_eq!(
            Mapping::new(vec![piece(21, 1, 90)], vec![grid], vec![slot]),
            Err(MappingError::FileOrder(21))
        );
        assert_eq!(
            Mapping::new(vec![piece(30, 1, 11)], vec![grid], vec![slot]),
            Err(MappingError::Shared(11))
        );
        let turned = vec![piece(9, 1, 0), piece(3, 1, 5)];
        assert_eq!(Mapping::new(turned, vec![], vec![]), Err(MappingError::FileOrder(3)));
    }

    /// Pieces without overlaps: some regular, some not.
    fn pieces() -> impl Strategy<Value = Vec<MappedExtent>> {
        let run = (1..5u64, 1..6u64, 1..40u64, 0..3u64, 0..20u64, any::<bool>());
        prop::collection::vec(run, 0..8).prop_map(|runs| {
            let (mut start, mut at) = (0, 0);
            let mut all = Vec::new();
            for (ranks, count, len, gap, skip, reversed) in runs {
                start += skip;
                for turn in 0..count {
                    for rank in 0..ranks {
                        let turn_at = if reversed { count - 1 - turn } else { turn };
                        all.push(MappedExtent { start, len, at: at + (rank * count + turn_at) * len });
                        start += len + gap;
                    }
                }
                at += ranks * count * len + skip;
            }
            all
        })
    }

    proptest! {
        /// The mapping says of each byte what the pieces say.
        #[test]
        fn bytes_have_the_places_of_their_pieces(pieces in pieces(), from in 0..300u64, len in 0..400u64) {
            let mut places = BTreeMap::new();
            for piece in &pieces {
                places.extend((0..piece.len).map(|byte| (piece.start + byte, piece.at + byte)));
            }
            let mapping = Mapping::of_pieces(pieces.clone()).expect("a mapping");
            prop_assert_eq!(mapping.bytes(), places.len() as u64);
            prop_assert_eq!(mapping.replica_len(), places.values().max().map_or(0, |last| last + 1));
            prop_assert_eq!(mapping.file_end(), places.keys().max().map_or(0, |last| last + 1));
            prop_assert!(mapping.encoded_len() <= 24 * pieces.len());
            let mut at = from;
            let mut last: Option<Part> = None;
            for part in mapping.split(Extent::new(from, len)) {
                prop_assert_eq!(part.file.offset.0, at);
                prop_assert!(part.file.len.0 > 0);
                for byte in 0..part.file.len.0 {
                    let expected = places.get(&(at + byte)).copied();
                    prop_assert_eq!(part.replica.map(|first| first + byte), expected, "byte {}", at + byte);
                }
                if let Some(last) = last {
                    prop_assert_ne!(last.replica.map(|first| first + last.file.len.0), part.replica);
                }
                at += part.file.len.0;
                last = Some(part);
            }
            prop_assert_eq!(at, from + len);
            let again: u64 = mapping.pieces().map(|piece| piece.len).sum();
            prop_assert_eq!(again, mapping.bytes());
        }
    }
}
