//! Decoding of a journal file into the mapping, from its bytes alone.

use super::frame::{self, FrameKey, HEADER_LEN, Header, Kind};
use super::map::Map;
use super::piece::{Location, State};
use super::record::{Put, Record};
use super::segments::{Chunk, SegmentState};
use crate::datafile::DatafileKey;
use std::collections::BTreeSet;
use weft_core::ranges::ByteRange;

/// Result of scanning a journal file that begins with a complete checkpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Scan {
    /// Offset behind the last valid frame.
    pub end: usize,
    /// Frame number of the checkpoint.
    pub number: u64,
    /// Number of the last valid frame.
    pub last: u64,
    /// Payloads of all frames up to this number are durable.
    pub sealed: u64,
    /// Boot of the machine in which the checkpoint was written.
    pub boot: u64,
    /// True if the last record is a clean shutdown.
    pub is_orderly: bool,
}

/// Decodes the frame at `at`; `None` if it is invalid.
fn next(bytes: &[u8], at: usize, key: FrameKey) -> Option<(Header, &[u8], usize)> {
    let rest = bytes.get(at..)?;
    let header = frame::header(rest, key)?;
    let body = rest[HEADER_LEN..].get(..header.body_len as usize)?;
    header.holds(body, key).then_some((header, body, at + HEADER_LEN + body.len()))
}

/// Calls `visit` for each record of `body`; returns false at the first invalid one.
fn records(mut body: &[u8], mut visit: impl FnMut(Record)) -> bool {
    while !body.is_empty() {
        match Record::decode(&mut body) {
            Some(record) => visit(record),
            None => return false,
        }
    }
    true
}

/// Scans a journal file; `None` if it does not begin with a complete checkpoint.
pub(super) fn scan(bytes: &[u8], key: FrameKey) -> Option<Scan> {
    let (mut at, mut parts) = (0, 0);
    let (mut number, mut begun, mut is_whole) = (None, None, false);
    while !is_whole {
        let (header, body, end) = next(bytes, at, key)?;
        let fits = header.kind == Kind::Checkpoint
            && header.durable == parts
            && number.is_none_or(|number| number == header.number);
        let good = records(body, |record| match record {
            Record::Begin { boot, sealed } => begun = Some((boot, sealed)),
            Record::Ready => is_whole = true,
            _ => {}
        });
        if !fits || !good {
            return None;
        }
        number = Some(header.number);
        parts += 1;
        at = end;
    }
    let (boot, sealed) = begun?;
    let number = number?;
    let mut found = Scan { end: at, number, last: number, sealed, boot, is_orderly: false };
    while let Some((header, body, end)) = next(bytes, found.end, key) {
        if header.kind != Kind::Changes || header.number != found.last + 1 {
            break;
        }
        let mut is_orderly = false;
        let good = records(body, |record| {
            is_orderly = record == Record::End;
            if let Record::Sealed(number) = record {
                found.sealed = found.sealed.max(number);
            }
        });
        if !good {
            break;
        }
        (found.last, found.end, found.is_orderly) = (header.number, end, is_orderly);
    }
    Some(found)
}

/// Searches for frames of changes behind `from`, at any offset. Returns the highest frame number, and the highest
/// frame number that one of them reports as durable.
pub(super) fn later(bytes: &[u8], from: usize, key: FrameKey) -> (u64, u64) {
    let (mut number, mut durable) = (0, 0);
    let mut at = from;
    while let Some(skip) = bytes.get(at..).and_then(|rest| find(rest, b'F')) {
        at += skip;
        match next(bytes, at, key) {
            Some((header, _, end)) => {
                number = number.max(header.number);
                if header.kind == Kind::Changes {
                    durable = durable.max(header.durable);
                }
                at = end;
            }
            None => at += 1,
        }
    }
    (number, durable)
}

/// Returns the first position of `byte`. Tests whole blocks first, because most of a journal file is zeros.
fn find(bytes: &[u8], byte: u8) -> Option<usize> {
    const BLOCK_LEN: usize = 4096;
    let (block, found) = bytes.chunks(BLOCK_LEN).enumerate().find(|(_, block)| block.contains(&byte))?;
    Some(block * BLOCK_LEN + found.iter().position(|found| *found == byte)?)
}

/// Returns the puts whose payloads are not known to be durable.
pub(super) fn unsealed(bytes: &[u8], scan: &Scan, key: FrameKey) -> Vec<Put> {
    let mut puts = Vec::new();
    let mut at = 0;
    while at < scan.end
        && let Some((header, body, end)) = next(bytes, at, key)
    {
        if header.kind == Kind::Changes && header.number > scan.sealed {
            records(body, |record| {
                if let Record::Put(put) = record
                    && put.label.state != State::Lost
                {
                    puts.push(put);
                }
            });
        }
        at = end;
    }
    puts
}

/// Replays a journal into an empty `map`. `torn` are the locations of unsealed puts whose payload is missing. They are
/// skipped, which restores what they replaced. The replaced payloads still exist, because reuse of their segment would
/// have sealed the puts.
///
/// # Errors
/// When the journal does not fit a log of these sizes.
pub(super) fn replay(
    bytes: &[u8],
    scan: &Scan,
    key: FrameKey,
    torn: &BTreeSet<(u32, u32)>,
    map: &mut Map,
) -> Result<(), &'static str> {
    let mut replay = Replay { map, is_sealed: true, segment: None, file: None, bad: None };
    let mut at = 0;
    while at < scan.end
        && let Some((header, body, end)) = next(bytes, at, key)
    {
        replay.is_sealed = header.kind == Kind::Checkpoint || header.number <= scan.sealed;
        records(body, |record| match record {
            Record::Put(put)
                if !replay.is_sealed && torn.contains(&(put.location.segment, put.location.position)) => {}
            record => replay.apply(record),
        });
        if let Some(bad) = replay.bad {
            return Err(bad);
        }
        at = end;
    }
    map.segments.classify_after_replay();
    Ok(())
}

struct Replay<'a> {
    map: &'a mut Map,
    /// True if the payloads of this frame are durable.
    is_sealed: bool,
    segment: Option<u32>,
    file: Option<(DatafileKey, weft_core::Timestamp)>,
    bad: Option<&'static str>,
}

impl Replay<'_> {
    fn apply(&mut self, record: Record) {
        if self.bad.is_none()
            && let Err(bad) = self.try_apply(record)
        {
            self.bad = Some(bad);
        }
    }

    fn try_apply(&mut self, record: Record) -> Result<(), &'static str> {
        let map = &mut *self.map;
        match record {
            Record::Put(Put { key, extent, label, mtime, location, generation, check }) => {
                if label.state == State::Lost {
                    check_extent(extent)?;
                    map.insert(key, extent, location, label, mtime);
                    return Ok(());
                }
                check_location(map, extent, location)?;
                let segment = map.segments.get_mut(location.segment);
                if segment.generation != generation {
                    return Err("a put into another generation of a segment");
                }
                let len = extent.len() as u32;
                segment.add_chunk(Chunk { position: location.position, len, check });
                match label.state {
                    State::Clean | State::Copy => map.insert_below_dirty(key, extent, location, label, mtime),
                    State::Dirty | State::Lost => map.insert(key, extent, location, label, mtime),
                }
            }
            Record::Clean(key, extent) => map.clean(key, extent),
            Record::Forget(key, extent) => {
                map.remove(key, extent, |state| state != State::Dirty);
            }
            Record::Abandon(key, extent) => {
                map.remove(key, extent, |_| true);
            }
            Record::Truncate(key, len) => {
                if let Some(extent) = ByteRange::from(len) {
                    map.remove(key, extent, |_| true);
                }
            }
            Record::Remove(key) => {
                map.remove(key, ByteRange::ALL, |_| true);
            }
            Record::Free { segment, generation } => {
                if segment >= map.segments.count() {
                    return Err("an unknown segment");
                }
                map.drop_evictable_of(segment);
                if map.segments.get(segment).dirty > 0 && !self.is_sealed {
                    // Its replacement was torn, so the segment has not been reused since.
                    return Ok(());
                }
                map.empty_segment(segment);
                let it = map.segments.get_mut(segment);
                it.chunks = Default::default();
                it.generation = generation;
            }
            Record::Segment { segment, generation } => {
                if segment >= map.segments.count() {
                    return Err("an unknown segment");
                }
                let it = map.segments.get_mut(segment);
                (it.generation, it.state) = (generation, SegmentState::Full);
                self.segment = Some(segment);
            }
            Record::Chunk { position, len, check } => {
                let segment = self.segment.ok_or("a chunk without a segment")?;
                if len == 0 || position.checked_add(len).is_none_or(|end| end > map.segments.len()) {
                    return Err("a chunk outside its segment");
                }
                map.segments.get_mut(segment).add_chunk(Chunk { position, len, check });
            }
            Record::File { key, mtime } => self.file = Some((key, mtime)),
            Record::Entry { extent, location, label } => {
                let (key, mtime) = self.file.ok_or("an entry without a datafile")?;
                if label.state == State::Lost {
                    check_extent(extent)?;
                } else {
                    check_location(map, extent, location)?;
                }
                map.insert(key, extent, location, label, mtime);
            }
            Record::Sealed(_) | Record::End | Record::Begin { .. } | Record::Ready => {}
        }
        Ok(())
    }
}

fn check_extent(extent: ByteRange) -> Result<(), &'static str> {
    match u32::try_from(extent.len()).is_ok() && extent.end() <= crate::target::DATAFILE_LEN_MAX {
        true => Ok(()),
        false => Err("a range beyond any datafile"),
    }
}

fn check_location(map: &Map, extent: ByteRange, location: Location) -> Result<(), &'static str> {
    check_extent(extent)?;
    let end = u64::from(location.position) + extent.len();
    match location.segment < map.segments.count() && end <= u64::from(map.segments.len()) {
        true => Ok(()),
        false => Err("a range outside all segments"),
    }
}
