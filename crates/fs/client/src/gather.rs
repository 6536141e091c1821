//! Gathers pieces of the caller's buffers into lists of slices, so that the payload of a sub-request is not copied.

use std::io::{IoSlice, IoSliceMut};
use weft_core::Piece;

/// Number of bytes in all of `bufs`.
pub(crate) fn total(bufs: &[IoSlice<'_>]) -> usize {
    bufs.iter().map(|buf| buf.len()).sum()
}

/// Number of bytes in all of `bufs`.
pub(crate) fn total_mut(bufs: &[IoSliceMut<'_>]) -> usize {
    bufs.iter().map(|buf| buf.len()).sum()
}

/// Start and length of each of `pieces`, cut off after `limit` bytes in all.
fn limited(pieces: impl Iterator<Item = Piece>, limit: usize) -> impl Iterator<Item = (usize, usize)> {
    let mut left = limit;
    pieces.map_while(move |piece| {
        let range = piece.range();
        let len = range.len().min(left);
        left -= len;
        (len > 0).then_some((range.start, len))
    })
}

/// Returns the slices of `bufs`, seen as one buffer, that the ascending `pieces` name, up to `limit` bytes in all.
pub(crate) fn pick<'a>(
    bufs: &'a [IoSlice<'_>],
    pieces: impl Iterator<Item = Piece>,
    limit: usize,
) -> Vec<IoSlice<'a>> {
    let mut out = Vec::new();
    let mut pieces = limited(pieces, limit);
    let mut current = pieces.next();
    let mut base = 0;
    for buf in bufs {
        let end = base + buf.len();
        while let Some((start, len)) = current.filter(|&(start, _)| start < end) {
            let part = &buf[start - base..(start - base + len).min(buf.len())];
            out.push(IoSlice::new(part));
            let taken = part.len();
            current = if taken < len { Some((start + taken, len - taken)) } else { pieces.next() };
        }
        base = end;
    }
    debug_assert!(current.is_none(), "pieces lie inside the buffer");
    out
}

/// Returns slices like [`pick`], to be written to.
pub(crate) fn pick_mut<'a>(
    bufs: &'a mut [IoSliceMut<'_>],
    pieces: impl Iterator<Item = Piece>,
    limit: usize,
) -> Vec<IoSliceMut<'a>> {
    let mut out = Vec::new();
    let mut pieces = limited(pieces, limit);
    let mut current = pieces.next();
    let mut base = 0;
    for buf in bufs {
        let end = base + buf.len();
        let mut rest: &mut [u8] = buf;
        while let Some((start, len)) = current.filter(|&(start, _)| start < end) {
            let from = std::mem::take(&mut rest).split_at_mut(start - base).1;
            let taken = len.min(from.len());
            let (part, behind) = from.split_at_mut(taken);
            out.push(IoSliceMut::new(part));
            (rest, base) = (behind, start + taken);
            current = if taken < len { Some((start + taken, len - taken)) } else { pieces.next() };
        }
        base = end;
    }
    debug_assert!(current.is_none(), "pieces lie inside the buffer");
    out
}

/// Fills the bytes that `pieces` name with zeros.
pub(crate) fn zero(bufs: &mut [IoSliceMut<'_>], pieces: impl Iterator<Item = Piece>) {
    for mut part in pick_mut(bufs, pieces, usize::MAX) {
        part.fill(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_core::{BufferOffset, ByteLen};

    fn piece(offset: u64, len: u64) -> Piece {
        Piece { offset: BufferOffset(offset), len: ByteLen(len) }
    }

    /// Splits `0..60` into buffers at `cuts` and compares with indexing the whole.
    fn check(cuts: &[usize], pieces: &[Piece], limit: usize) {
        let whole: Vec<u8> = (0..60).collect();
        let mut expected: Vec<u8> = pieces.iter().flat_map(|p| whole[p.range()].to_vec()).collect();
        expected.truncate(limit);
        let mut edges = vec![0];
        edges.extend_from_slice(cuts);
        edges.push(60);
        let bufs: Vec<IoSlice<'_>> = edges.windows(2).map(|w| IoSlice::new(&whole[w[0]..w[1]])).collect();
        let got: Vec<u8> =
            pick(&bufs, pieces.iter().copied(), limit).iter().flat_map(|part| part.to_vec()).collect();
        assert_eq!(got, expected, "{cuts:?} {pieces:?}");
        let mut copies: Vec<Vec<u8>> = bufs.iter().map(|buf| buf.to_vec()).collect();
        let mut muts: Vec<IoSliceMut<'_>> = copies.iter_mut().map(|b| IoSliceMut::new(b)).collect();
        let got: Vec<u8> =
            pick_mut(&mut muts, pieces.iter().copied(), limit).iter().flat_map(|p| p.to_vec()).collect();
        assert_eq!(got, expected, "{cuts:?} {pieces:?}");
    }

    #[test]
    fn pieces_across_any_buffer_boundaries_yield_the_bytes_they_name() {
        let sets = [
            vec![piece(0, 60)],
            vec![piece(5, 10), piece(15, 1), piece(30, 30)],
            vec![piece(59, 1)],
            vec![piece(0, 1), piece(20, 20)],
        ];
        for pieces in &sets {
            for cuts in [&[][..], &[30], &[5, 15], &[0, 0, 10, 10, 59], &[1, 2, 3, 4, 5, 6, 16, 31]] {
                for limit in [usize::MAX, 12, 1, 0] {
                    check(cuts, pieces, limit);
                }
            }
        }
    }

    #[test]
    fn zeroing_leaves_other_bytes_unchanged() {
        let (mut a, mut b) = ([1u8; 4], [1u8; 4]);
        zero(&mut [IoSliceMut::new(&mut a), IoSliceMut::new(&mut b)], [piece(3, 2)].into_iter());
        assert_eq!((a, b), ([1, 1, 1, 0], [0, 1, 1, 1]));
    }
}
