//! Copies between an original and its replica.
//!
//! Pieces are small and scattered on one side or the other. A window of them is read in the order of its source, with the
//! small gaps between them, and written in the order of its destination.

use crate::error::Result;
use std::io::IoSlice;
use weft_core::replicas::{DirtyRegions, MappedExtent, Mapping};
use weft_core::{ByteLen, Extent};

/// Bytes of a window.
const WINDOW_LEN: u64 = 8 << 20;
/// Pieces of a window.
const WINDOW_PIECES: usize = 1 << 16;
/// Longest gap that is read rather than skipped.
const GAP_MAX: u64 = 16 << 10;
/// Slices of one write.
const SLICES_MAX: usize = 512;

/// Called after each window: limits the rate, and reports progress.
pub trait Pace {
    /// `bytes` more were copied.
    ///
    /// # Errors
    /// The copy ends with this error.
    async fn copied(&mut self, bytes: u64) -> Result<()>;

    /// Whether the client shall copy only while the disks are idle, for replicas of Weft's files.
    fn only_while_idle(&self) -> bool {
        false
    }

    /// The client waits until the disks are idle. Called again before each pause.
    ///
    /// # Errors
    /// The copy ends with this error.
    async fn waiting(&mut self) -> Result<()> {
        Ok(())
    }
}

/// No limit, and no reports.
#[derive(Clone, Copy, Debug)]
pub struct Unpaced;

impl Pace for Unpaced {
    async fn copied(&mut self, _bytes: u64) -> Result<()> {
        Ok(())
    }
}

/// Result of a comparison.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Difference {
    /// Number of bytes compared.
    pub compared: u64,
    /// Number of bytes that differ.
    pub differing: u64,
    /// First byte of the file that differs.
    pub first: Option<u64>,
}

/// A file that takes part in a transfer: an original or the data of a replica.
pub(crate) trait Bytes {
    /// Fills `buffer` with the bytes from `at` on. Bytes after the end are zeros.
    async fn read(&self, buffer: &mut [u8], at: u64) -> Result<()>;

    /// Writes all of `slices` at `at`.
    async fn write(&self, slices: &[IoSlice<'_>], at: u64) -> Result<()>;
}

/// Side of a transfer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Original,
    Replica,
}

impl Side {
    fn place(self, piece: &MappedExtent) -> u64 {
        match self {
            Self::Original => piece.start,
            Self::Replica => piece.at,
        }
    }
}

/// Reads all pieces of a window. Returns the bytes, piece after piece, in the order of the window. Bytes after the end of
/// the source are zeros.
async fn read(file: &impl Bytes, side: Side, window: &[MappedExtent]) -> Result<Vec<u8>> {
    let mut starts = Vec::with_capacity(window.len());
    let mut total = 0usize;
    for piece in window {
        starts.push(total);
        total += piece.len as usize;
    }
    let mut bytes = vec![0; total];
    let mut order: Vec<usize> = (0..window.len()).collect();
    order.sort_unstable_by_key(|number| side.place(&window[*number]));
    let mut span = Vec::new();
    let mut from = 0;
    while from < order.len() {
        let begin = side.place(&window[order[from]]);
        let (mut end, mut to) = (begin, from);
        while let Some(piece) = order.get(to).map(|number| &window[*number]) {
            if side.place(piece) > end + GAP_MAX || to > from && side.place(piece) - begin > WINDOW_LEN {
                break;
            }
            end = side.place(piece) + piece.len;
            to += 1;
        }
        span.clear();
        span.resize((end - begin) as usize, 0);
        file.read(&mut span, begin).await?;
        for number in &order[from..to] {
            let (piece, start) = (&window[*number], starts[*number]);
            let at = (side.place(piece) - begin) as usize;
            bytes[start..start + piece.len as usize].copy_from_slice(&span[at..at + piece.len as usize]);
        }
        from = to;
    }
    Ok(bytes)
}

/// Writes the pieces of a window, whose bytes lie one after another.
async fn write(file: &impl Bytes, side: Side, window: &[MappedExtent], bytes: &[u8]) -> Result<()> {
    let mut rest = bytes;
    let mut pieces: Vec<(u64, &[u8])> = Vec::with_capacity(window.len());
    for piece in window {
        let (own, after) = rest.split_at(piece.len as usize);
        pieces.push((side.place(piece), own));
        rest = after;
    }
    pieces.sort_unstable_by_key(|(place, _)| *place);
    let mut slices: Vec<IoSlice<'_>> = Vec::new();
    let (mut begin, mut end) = (0, 0);
    for (place, own) in pieces {
        if place != end || slices.len() == SLICES_MAX {
            if !slices.is_empty() {
                file.write(&slices, begin).await?;
            }
            slices.clear();
            begin = place;
        }
        slices.push(IoSlice::new(own));
        end = place + own.len() as u64;
    }
    if slices.is_empty() { Ok(()) } else { file.write(&slices, begin).await }
}

/// Windows of the mapped bytes before `size`, in the order of the file; with `only`, of these regions of the replica.
pub(crate) fn windows<'a>(
    mapping: &'a Mapping,
    size: ByteLen,
    only: Option<&'a DirtyRegions>,
) -> impl Iterator<Item = Vec<MappedExtent>> + 'a {
    let region_len = only.map_or(WINDOW_LEN, DirtyRegions::region_len);
    let parts = mapping.pieces().take_while(move |piece| piece.start < size.0).flat_map(move |piece| {
        let len = piece.len.min(size.0 - piece.start);
        let mut from = 0;
        std::iter::from_fn(move || {
            let at = piece.at + from;
            let part = (len - from).min(region_len - at % region_len).min(WINDOW_LEN);
            let found = MappedExtent { start: piece.start + from, len: part, at };
            from += part;
            (part > 0).then_some(found)
        })
    });
    let wanted = move |piece: &MappedExtent| only.is_none_or(|only| only.contains(piece.at / region_len));
    let mut parts = parts.filter(wanted).peekable();
    std::iter::from_fn(move || {
        let mut window = Vec::new();
        let mut bytes = 0;
        while window.len() < WINDOW_PIECES
            && let Some(piece) = parts.next_if(|piece| bytes + piece.len <= WINDOW_LEN)
        {
            bytes += piece.len;
            window.push(piece);
        }
        (!window.is_empty()).then_some(window)
    })
}

/// Copies a window, and returns its length.
pub(crate) async fn copy(
    from: (&impl Bytes, Side),
    to: (&impl Bytes, Side),
    window: &[MappedExtent],
    pace: &mut impl Pace,
) -> Result<u64> {
    let bytes = read(from.0, from.1, window).await?;
    write(to.0, to.1, window, &bytes).await?;
    pace.copied(bytes.len() as u64).await?;
    Ok(bytes.len() as u64)
}

/// Ranges of the replica, with their lengths, whose bytes of the file lie at or after `size`. The pieces of one object
/// follow each other and are joined.
pub(crate) fn runs_after(mapping: &Mapping, size: ByteLen) -> Vec<(u64, u64)> {
    let len = mapping.file_end().saturating_sub(size.0);
    let mut runs: Vec<(u64, u64)> = mapping
        .split(Extent::new(size.0, len))
        .filter_map(|part| part.replica.map(|at| (at, part.file.len.0)))
        .collect();
    runs.sort_unstable();
    runs.dedup_by(|next, before| {
        let continues = before.0 + before.1 == next.0;
        if continues {
            before.1 += next.1;
        }
        continues
    });
    runs
}

/// Compares all mapped bytes before `size`, except these regions of the replica.
pub(crate) async fn compare(
    mapping: &Mapping,
    (original, data): (&impl Bytes, &impl Bytes),
    size: ByteLen,
    except: &DirtyRegions,
    pace: &mut impl Pace,
) -> Result<Difference> {
    let mut found = Difference::default();
    let region_len = except.region_len();
    for mut window in windows(mapping, size, None) {
        if !except.is_empty() {
            window = window.into_iter().flat_map(|piece| clean_parts(piece, region_len, except)).collect();
        }
        let theirs = read(original, Side::Original, &window).await?;
        let ours = read(data, Side::Replica, &window).await?;
        let mut at = 0;
        for piece in &window {
            let range = at..at + piece.len as usize;
            at = range.end;
            let pairs = theirs[range.clone()].iter().zip(&ours[range]);
            for (byte, _) in (piece.start..).zip(pairs).filter(|(_, (theirs, ours))| theirs != ours) {
                found.first.get_or_insert(byte);
                found.differing += 1;
            }
        }
        found.compared += theirs.len() as u64;
        pace.copied(theirs.len() as u64).await?;
    }
    Ok(found)
}

/// Parts of a piece outside of these regions.
fn clean_parts(piece: MappedExtent, region_len: u64, except: &DirtyRegions) -> Vec<MappedExtent> {
    let mut parts = Vec::new();
    let mut from = 0;
    while from < piece.len {
        let at = piece.at + from;
        let len = (piece.len - from).min(region_len - at % region_len);
        if !except.contains(at / region_len) {
            parts.push(MappedExtent { start: piece.start + from, len, at });
        }
        from += len;
    }
    parts
}
