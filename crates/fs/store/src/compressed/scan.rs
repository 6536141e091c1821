//! Decoding of a map from its bytes alone.

use super::chunks::Chunks;
use super::frame::{self, Decoded, FRAME_BYTES, Frame};
use super::header::{HEADER_BYTES, Header};
use super::record::{Extent, RECORD_BYTES, Record};
use std::collections::BTreeMap;
use weft_core::ranges::{ByteRange, RangeSet};

/// Kind of damage to a map whose frame is broken.
const BROKEN_FRAME: &str = "a frame that was synced is broken";

/// Valid frames at the start of a map, up to the first invalid one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Scan {
    /// Number of the last valid frame; without one, that of the frame before the first.
    pub last: u64,
    /// Number of the last valid frame with records; 0 without one.
    pub changed: u64,
    /// Offset behind the last valid frame.
    pub end: usize,
    /// The bytes that frames up to this number name are on the disk.
    pub sealed: u64,
    /// The frames up to this number are on the disk.
    pub durable: u64,
    /// Boot of the machine in which the last valid frame, or the header, was written.
    pub boot: u64,
    /// True if bytes follow that are no frame: a loss of power, a disk that lost its cache, or the end of the process
    /// tore the last write.
    pub is_torn: bool,
}

/// Identifies a record: the number of its frame, and its index within it.
pub type RecordId = (u64, usize);

/// Finds the valid frames of a map, which begins with `header`.
///
/// A disk may lose its cache while the machine runs on, so the present boot proves nothing. Only a later frame, or the
/// header of the container, proves that a broken frame was on the disk.
///
/// # Errors
/// When a frame is broken that was on the disk.
pub fn scan(header: &Header, bytes: &[u8]) -> Result<Scan, &'static str> {
    let mut found = Scan {
        last: header.progress - u64::from(header.frames),
        changed: 0,
        end: HEADER_BYTES.min(bytes.len()),
        sealed: header.progress,
        durable: header.progress,
        boot: header.boot,
        is_torn: false,
    };
    let rest = loop {
        let rest = &bytes[found.end..];
        if rest.is_empty() {
            break rest;
        }
        match Frame::decode(header.pair, rest) {
            Decoded::Whole(frame, records) if frame.number == found.last + 1 => {
                if frame.sealed > frame.number || frame.durable > frame.number {
                    return Err("a frame names later ones");
                }
                found.last = frame.number;
                if !records.is_empty() {
                    found.changed = frame.number;
                }
                found.end += FRAME_BYTES + size_of_val(records);
                found.sealed = found.sealed.max(frame.sealed);
                found.durable = found.durable.max(frame.durable);
                found.boot = frame.boot;
            }
            _ => break rest,
        }
    };
    if found.last < header.progress {
        return Err("a frame of the checkpoint is broken or missing");
    }
    if rest.is_empty() {
        return Ok(found);
    }
    found.is_torn = true;
    // Unsynced frames may be lost in any order. A later frame may prove that the broken one was synced.
    let mut rest = rest;
    while let Some((frame, behind)) = frame::find(header.pair, rest) {
        if frame.durable > found.last {
            return Err(BROKEN_FRAME);
        }
        rest = behind;
    }
    Ok(found)
}

/// Calls `visit` with the frames of a scanned map, and their records.
///
/// # Errors
/// When a record is invalid.
pub fn visit(
    header: &Header,
    bytes: &[u8],
    scan: &Scan,
    mut visit: impl FnMut(RecordId, Record),
) -> Result<(), &'static str> {
    let chunk_len = header.compression.chunk_len();
    let mut at = HEADER_BYTES.min(scan.end);
    while at < scan.end
        && let Decoded::Whole(frame, records) = Frame::decode(header.pair, &bytes[at..scan.end])
    {
        for (index, record) in records.iter().enumerate() {
            let record = Record::decode(record, chunk_len).ok_or("an invalid record")?;
            visit((frame.number, index), record);
        }
        at += FRAME_BYTES + records.len() * RECORD_BYTES;
    }
    Ok(())
}

/// Records without their bytes.
pub type Torn = BTreeMap<RecordId, Missing>;

/// Why bytes of a record are not in its place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Missing {
    /// They did not reach the disk.
    Lost,
    /// The record was replaced, and a newer one has the space.
    Replaced,
}

/// Result of replaying a map.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Replayed {
    /// Chunks of the datafile.
    pub chunks: Chunks,
    /// Extents that the durable map may name although they have been replaced, and the frame that replaced each.
    pub pending: Vec<(u64, Extent)>,
}

/// Replays a scanned map, without the records in `torn`, whose bytes are missing. Chunks may have the same place, which
/// `Space::new` rejects.
///
/// # Errors
/// When a record is invalid.
pub fn replay(header: &Header, bytes: &[u8], scan: &Scan, torn: &Torn) -> Result<Replayed, &'static str> {
    let mut chunks = Chunks::new(header.compression.chunk_len());
    let (mut pending, mut freed) = (Vec::new(), Vec::new());
    visit(header, bytes, scan, |id, record| {
        match torn.get(&id) {
            None => {}
            Some(Missing::Lost) => return,
            // It made the datafile longer before it was replaced, and what replaced it may be zeros.
            Some(Missing::Replaced) => return chunks.reach(record.len_min(header.compression.chunk_len())),
        }
        chunks.apply(&record, &mut freed);
        // A record is effective for good when its bytes and the frame itself are on the disk.
        let is_final = id.0 <= scan.sealed.min(scan.durable);
        pending.extend(freed.drain(..).filter(|_| !is_final).map(|extent| (id.0, extent)));
    })?;
    // Units that were freed and used again are not pending.
    let pending = not_live(pending, &chunks);
    Ok(Replayed { chunks, pending })
}

/// Returns the parts of `pending` extents that no later pending extent and no live one has.
fn not_live(pending: Vec<(u64, Extent)>, chunks: &Chunks) -> Vec<(u64, Extent)> {
    if pending.is_empty() {
        return pending;
    }
    let mut taken: RangeSet = chunks.extents().map(Extent::range).collect();
    let mut kept = Vec::new();
    // The latest replacement decides.
    for (number, extent) in pending.into_iter().rev() {
        let gaps: Vec<ByteRange> = taken.gaps(extent.range()).collect();
        for gap in gaps {
            kept.push((number, Extent { at: gap.start(), units: gap.len() }));
            taken.insert(gap);
        }
    }
    kept
}
