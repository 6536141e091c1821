//! The one splitting function: a range of a file becomes one sub-request per datafile that it touches.
//!
//! Within one component a contiguous range of the file is one contiguous range of each datafile it touches
//! (the stripes between its first and its last are whole), so a sub-request is a single local extent, and only
//! the caller's buffer is scattered: [`SubRequest::pieces`] walks it in local order.

use crate::access::Access;
use crate::geometry::{Geometry, Turn};
use crate::layout::{Layout, object_id};
use crate::units::{BufferOffset, ByteLen, Extent, LocalExtent, ObjectId, TargetId};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Which sub-requests are flagged for the placement policies of the servers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SplitPolicy {
    /// No flags.
    Off,
    /// Sub-requests smaller than this are fragments, requests smaller than this may be small random ones.
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

/// What the splitting function found out about a sub-request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug, Serialize, Deserialize)]
pub struct SubFlags {
    /// Smaller than the threshold, and its parent spans several targets: the parent waits for it.
    pub fragment: bool,
    /// The parent as a whole is smaller than the threshold and not sequential to the one before it.
    pub small_random: bool,
}

/// The share of one datafile in one request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SubRequest {
    /// The datafile.
    pub object: ObjectId,
    /// The target that holds it.
    pub target: TargetId,
    /// The range of the datafile; never empty.
    pub local: LocalExtent,
    /// Sub-requests of the parent, this one included.
    pub siblings: u32,
    /// What the servers' policies want to know.
    pub flags: SubFlags,
    /// Where the first byte lies in the caller's buffer.
    buffer: u64,
    /// Bytes of the first stripe that lie before the first byte.
    skip: u64,
    /// Bytes in a stripe.
    stripe: u64,
    /// Bytes of the buffer from one stripe's start to the next one's.
    round: u64,
}

/// A part of the caller's buffer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Piece {
    /// Where it begins.
    pub offset: BufferOffset,
    /// Its length; never zero.
    pub len: ByteLen,
}

impl Piece {
    /// The piece as a range of indices into the buffer.
    ///
    /// # Panics
    /// When it does not fit the address space, which no buffer in memory does.
    #[inline]
    pub fn range(self) -> Range<usize> {
        let index = |n: u64| usize::try_from(n).expect("a buffer fits the address space");
        index(self.offset.0)..index(self.offset.0 + self.len.0)
    }
}

impl SubRequest {
    /// The parts of the caller's buffer that this sub-request fills or takes, in local order.
    #[inline]
    pub fn pieces(&self) -> Pieces {
        self.pieces_after(ByteLen::ZERO)
    }

    /// The same without the first `done` bytes: what is left after a short transfer, or the hole behind one.
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
        let (turns, skip) = ((done - into_first) / self.stripe + 1, (done - into_first) % self.stripe);
        // `buffer - self.skip`, the first stripe's own start, may lie before the buffer: in an order that
        // neither falls below zero nor passes the end of numbers.
        let buffer = self.buffer + (turns - 1) * self.round + (self.round - self.skip) + skip;
        Pieces { buffer, skip, left, stripe: self.stripe, round: self.round }
    }

    /// Number of pieces.
    pub fn piece_count(&self) -> u64 {
        let into_first = self.stripe - self.skip;
        1 + self.local.len.0.saturating_sub(into_first).div_ceil(self.stripe)
    }

    /// Where the first byte of the sub-request lies in the caller's buffer.
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
            // Only while bytes are left: behind the last piece the sum may pass the end of numbers.
            self.buffer += self.round - self.skip;
            self.skip = 0;
        }
        Some(piece)
    }
}

impl Layout {
    /// Splits a range of the file into one sub-request per datafile that it touches, ordered by the first byte
    /// of each in the file. `out` is cleared first and reused; an empty range gives none.
    ///
    /// # Panics
    /// When the range passes 2^64 - 1, the largest file size: callers have refused that as too large before.
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
        let at = geometry.turn(offset - geometry.start);
        let column = geometry.column(at.within);
        let into_stripe = at.within - geometry.before(column);
        let stripe = geometry.stripe(column);
        if extent.len.0 <= stripe - into_stripe && end <= geometry.end {
            let place = Place { object: object_id(first, column), buffer: 0, skip: into_stripe };
            out.push(self.sub_request(geometry, place, at.rounds * stripe + into_stripe, extent.len.0));
        } else {
            self.split_long(first, offset, end, out);
        }
        flag(extent, access, policy, out);
    }

    /// As [`Layout::split_into`], into a new vector.
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

    /// Splits the non-empty `range` of the file, which lies in one component; `buffer` is where its first byte
    /// lies in the caller's buffer.
    fn split_component(
        &self,
        index: usize,
        geometry: &Geometry,
        range: Range<u64>,
        buffer: u64,
        out: &mut Vec<SubRequest>,
    ) {
        let len = range.end - range.start;
        let at = geometry.turn(range.start - geometry.start);
        let end = geometry.turn(range.end - geometry.start);
        let columns = geometry.columns();
        let first = geometry.column(at.within);
        // Round-robin from the column of the first byte, each column once: the order of first bytes.
        for column in (first..columns).chain(0..first) {
            let before = geometry.before(column);
            // Bytes of the range before the column's first one, and of its stripe before the range.
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
            let local = geometry.held(column, Turn { rounds, within: before + skip });
            let local_len = geometry.held(column, end) - local;
            let place = Place { object: object_id(index, column), buffer: buffer + ahead, skip };
            out.push(self.sub_request(geometry, place, local, local_len));
        }
    }

    #[inline]
    fn sub_request(&self, geometry: &Geometry, place: Place, local: u64, len: u64) -> SubRequest {
        let Place { object, buffer, skip } = place;
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
            // The stripes of a lone column follow one another in the buffer too: one piece.
            skip: if one_column { 0 } else { skip },
            stripe: if one_column { len } else { strip.stripe_size.0 },
            round: geometry.round(),
        }
    }
}

/// Where a sub-request begins.
struct Place {
    object: ObjectId,
    buffer: u64,
    skip: u64,
}

/// Fills in what needs the whole request to be known.
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
