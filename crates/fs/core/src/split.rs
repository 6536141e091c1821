//! The splitting function: turns a range of a file into one sub-request per datafile that it touches.
//!
//! ```text
//! file      | A0  | B0  | C0  | A1  | B1  | C1  | A2  |     three columns, equal stripes
//! request        |--|-----|-----|-----|---|
//!                A0'  B0    C0    A1   B1'
//!                  \                                        pieces of the caller's buffer
//! sub-requests     A: A0' A1 (contiguous in datafile A)     at 0 and 0 + |A0'| + |B0| + |C0|
//!                  B: B0 B1' (contiguous in datafile B)     at |A0'|, ...
//!                  C: C0
//! ```
//!
//! Within one component, a contiguous range of the file is a contiguous range of each datafile that it touches,
//! because all stripes between its first and last byte are whole. A sub-request therefore has a single local extent,
//! and only the caller's buffer is scattered: [`SubRequest::pieces`] iterates over it in local order.
//!
//! | case | cost |
//! | --- | --- |
//! | within one stripe | one division for the round, one lookup of the column |
//! | several stripes of one component | one step per column touched |
//! | several components | as above for each component |

use crate::access::Access;
use crate::geometry::{Geometry, RoundPosition};
use crate::layout::{Layout, object_id};
use crate::units::{BufferOffset, ByteLen, Extent, LocalExtent, ObjectId, TargetId};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Selects the sub-requests that are flagged for the servers' placement policies.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SplitPolicy {
    /// No flags.
    Off,
    /// Sub-requests below this size are fragments, and requests below this size may be small random ones.
    Below(ByteLen),
}

impl SplitPolicy {
    /// 20 KiB, the threshold of the iBridge paper.
    pub const DEFAULT_BELOW: ByteLen = ByteLen::from_kib(20);
}

impl Default for SplitPolicy {
    fn default() -> Self {
        Self::Below(Self::DEFAULT_BELOW)
    }
}

/// Properties of a sub-request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug, Serialize, Deserialize)]
pub struct SubFlags {
    /// Below the threshold, and the parent spans several targets: the parent waits for it.
    pub fragment: bool,
    /// The whole parent is below the threshold and not sequential to the previous request.
    pub small_random: bool,
}

/// The part of a request that concerns one datafile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SubRequest {
    /// Datafile.
    pub object: ObjectId,
    /// Target that holds it.
    pub target: TargetId,
    /// Range of the datafile; never empty.
    pub local: LocalExtent,
    /// Number of sub-requests of the parent, this one included.
    pub siblings: u32,
    /// Properties for the servers' policies.
    pub flags: SubFlags,
    /// Offset of the first byte in the caller's buffer.
    buffer: u64,
    /// Bytes of the first stripe before the first byte.
    skip: u64,
    /// Stripe size in bytes.
    stripe: u64,
    /// Bytes of the buffer between the starts of consecutive stripes.
    round: u64,
}

/// A part of the caller's buffer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Piece {
    /// Offset in the buffer.
    pub offset: BufferOffset,
    /// Length; never zero.
    pub len: ByteLen,
}

impl Piece {
    /// Returns the piece as a range of indices into the buffer.
    ///
    /// # Panics
    /// When it exceeds the address space, which no buffer in memory does.
    #[inline]
    pub fn range(self) -> Range<usize> {
        let index = |n: u64| usize::try_from(n).expect("a buffer fits the address space");
        index(self.offset.0)..index(self.offset.0 + self.len.0)
    }
}

impl SubRequest {
    /// Iterates over the parts of the caller's buffer that this sub-request reads or writes, in local order.
    #[inline]
    pub fn pieces(&self) -> Pieces {
        self.pieces_after(ByteLen::ZERO)
    }

    /// Iterates over the pieces without the first `done` bytes: what is left after a short transfer, or the hole
    /// behind it.
    #[inline]
    pub fn pieces_after(&self, done: ByteLen) -> Pieces {
        let done = done.0.min(self.local.len.0);
        let left = self.local.len.0 - done;
        let into_first = self.stripe - self.skip;
        if done < into_first || left == 0 {
            return Pieces {
                buffer: self.buffer + done.min(into_first),
                skip: self.skip + done.min(into_first),
                left,
                stripe: self.stripe,
                round: self.round,
            };
        }
        let (stripes, skip) = ((done - into_first) / self.stripe + 1, (done - into_first) % self.stripe);
        // `buffer - self.skip`, the start of the first stripe, may lie before the buffer. This order of operations
        // neither falls below zero nor overflows.
        let buffer = self.buffer + (stripes - 1) * self.round + (self.round - self.skip) + skip;
        Pieces { buffer, skip, left, stripe: self.stripe, round: self.round }
    }

    /// Returns the number of pieces.
    pub fn piece_count(&self) -> u64 {
        let into_first = self.stripe - self.skip;
        1 + self.local.len.0.saturating_sub(into_first).div_ceil(self.stripe)
    }

    /// Returns the offset of the first byte in the caller's buffer.
    pub fn buffer_offset(&self) -> BufferOffset {
        BufferOffset(self.buffer)
    }
}

/// Iterator over the pieces of a sub-request; see [`SubRequest::pieces`].
#[derive(Clone, Debug)]
pub struct Pieces {
    buffer: u64,
    skip: u64,
    left: u64,
    stripe: u64,
    round: u64,
}

impl Iterator for Pieces {
    type Item = Piece;

    #[inline]
    fn next(&mut self) -> Option<Piece> {
        if self.left == 0 {
            return None;
        }
        let len = self.left.min(self.stripe - self.skip);
        let piece = Piece { offset: BufferOffset(self.buffer), len: ByteLen(len) };
        self.left -= len;
        if self.left > 0 {
            // Only if bytes are left, because the sum may overflow behind the last piece.
            self.buffer += self.round - self.skip;
            self.skip = 0;
        }
        Some(piece)
    }
}

impl Layout {
    /// Splits a range of the file into one sub-request per datafile that it touches, ordered by their first bytes in
    /// the file. Replaces the content of `out`; an empty range yields nothing.
    ///
    /// # Panics
    /// When the range exceeds 2^64 - 1, the maximum file size. Callers reject such ranges earlier.
    pub fn split_into(&self, extent: Extent, access: Access, policy: SplitPolicy, out: &mut Vec<SubRequest>) {
        out.clear();
        if extent.len.0 == 0 {
            return;
        }
        let Some(end) = extent.end() else {
            panic!("range of {} bytes at {} passes 2^64 - 1", extent.len, extent.offset)
        };
        let (offset, end) = (extent.offset.0, end.0);
        let first = self.component_at(offset);
        let geometry = &self.geometry()[first];
        let at = geometry.position(offset - geometry.start);
        let column = geometry.column(at.within);
        let into_stripe = at.within - geometry.before(column);
        let stripe = geometry.stripe(column);
        if extent.len.0 <= stripe - into_stripe && end <= geometry.end {
            let start = SubStart { object: object_id(first, column), buffer: 0, skip: into_stripe };
            out.push(self.sub_request(geometry, start, at.rounds * stripe + into_stripe, extent.len.0));
        } else {
            self.split_long(first, offset, end, out);
        }
        flag(extent, access, policy, out);
    }

    /// Splits as [`Layout::split_into`] does, into a new vector.
    pub fn split(&self, extent: Extent, access: Access, policy: SplitPolicy) -> Vec<SubRequest> {
        let mut out = Vec::new();
        self.split_into(extent, access, policy, &mut out);
        out
    }

    fn split_long(&self, first: usize, offset: u64, end: u64, out: &mut Vec<SubRequest>) {
        let mut from = offset;
        for (index, geometry) in self.geometry().iter().enumerate().skip(first) {
            let to = end.min(geometry.end);
            self.split_component(index, geometry, from..to, from - offset, out);
            if to == end {
                break;
            }
            from = to;
        }
    }

    /// Splits a non-empty `range` of the file within one component. `buffer` is the offset of its first byte in the
    /// caller's buffer.
    fn split_component(
        &self,
        index: usize,
        geometry: &Geometry,
        range: Range<u64>,
        buffer: u64,
        out: &mut Vec<SubRequest>,
    ) {
        let len = range.end - range.start;
        let at = geometry.position(range.start - geometry.start);
        let end = geometry.position(range.end - geometry.start);
        let columns = geometry.columns();
        let first = geometry.column(at.within);
        // Round-robin from the column of the first byte, each column once: the order of first bytes.
        for column in (first..columns).chain(0..first) {
            let before = geometry.before(column);
            // Bytes of the range before the column's first byte, and bytes of its stripe before the range.
            let (ahead, skip, rounds) = if column == first {
                (0, at.within - before, at.rounds)
            } else if column > first {
                (before - at.within, 0, at.rounds)
            } else {
                (geometry.round() - at.within + before, 0, at.rounds + 1)
            };
            if ahead >= len {
                break;
            }
            let local = geometry.held(column, RoundPosition { rounds, within: before + skip });
            let local_len = geometry.held(column, end) - local;
            let start = SubStart { object: object_id(index, column), buffer: buffer + ahead, skip };
            out.push(self.sub_request(geometry, start, local, local_len));
        }
    }

    #[inline]
    fn sub_request(&self, geometry: &Geometry, start: SubStart, local: u64, len: u64) -> SubRequest {
        let SubStart { object, buffer, skip } = start;
        let strips = &self.components()[usize::from(object.component)].strips;
        let strip = strips[usize::from(object.column)];
        let one_column = strips.len() == 1;
        SubRequest {
            object,
            target: strip.target,
            local: LocalExtent::new(local, len),
            siblings: 1,
            flags: SubFlags::default(),
            buffer,
            // The stripes of a single column are contiguous in the buffer too: one piece.
            skip: if one_column { 0 } else { skip },
            stripe: if one_column { len } else { strip.stripe_size.0 },
            round: geometry.round(),
        }
    }
}

/// Start of a sub-request.
struct SubStart {
    object: ObjectId,
    buffer: u64,
    skip: u64,
}

/// Sets the fields that depend on the whole request.
#[inline]
fn flag(extent: Extent, access: Access, policy: SplitPolicy, out: &mut [SubRequest]) {
    let siblings = out.len() as u32;
    let spans = siblings > 1 && out.iter().any(|sub| sub.target != out[0].target);
    let below = match policy {
        SplitPolicy::Off => ByteLen::ZERO,
        SplitPolicy::Below(below) => below,
    };
    let small_random = access == Access::Random && extent.len < below;
    for sub in out {
        sub.siblings = siblings;
        sub.flags = SubFlags { fragment: spans && sub.local.len < below, small_random };
    }
}
