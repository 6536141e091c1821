//! The log: a sequence of frames. A frame may be written before those in front of it are synced.
//!
//! ```text
//! offset size | field
//!      0    4 | magic      "WLO2"
//!      4    4 | body_len   length of the body in bytes
//!      8    8 | number     number of the previous frame plus one
//!     16    4 | unsynced   number of frames directly before this one that may not have been synced when it was written
//!     20    4 | body_crc   CRC-32 of the body
//!     24    4 | header_crc CRC-32 of bytes 0 to 23
//!     28    n | body       a sequence of changes:
//!
//!      0    1 | table      number
//!      1    1 | kind       0: removed, 1: set
//!      2    2 | key_len
//!      4    4 | value_len  0 if removed
//!      8    k | key
//!    8+k    v | value
//! ```
//!
//! Numbers are little-endian. Both checksums are mixed with the [`LogKey`] under which the frame was written. Frames of
//! earlier versions have the magic "WLOG" and no field `unsynced`: each was synced before the next was written.
//!
//! | frame found | meaning |
//! | --- | --- |
//! | valid, next number | part of the log |
//! | valid, another number | left from an earlier use of the file: the log ends before it |
//! | invalid or missing, no later frame proves that it was synced | lost with the power before its sync: the log ends before it |
//! | invalid or missing, a later frame proves that it was synced | damaged since: the log is rejected |
//!
//! Frames that a loss of power has left behind the end are not valid later: the next start chooses a new key.

use super::delta::Delta;
use super::engine::Table;
use std::io;
use weft_core::LocalOffset;
use weft_env::BlockingFile;
use weft_env::mutants::{Mutant, is_seeded};

const FRAME_HEADER_LEN: usize = 28;
const MAGIC: [u8; 4] = *b"WLO2";
/// Header of frames in which `unsynced` is 0 and has no field.
const FORMER_HEADER_LEN: usize = 24;
const FORMER_MAGIC: [u8; 4] = *b"WLOG";
/// Maximum length of a body in bytes: far above the changes between two commits, and far below the memory of any
/// server.
const BODY_LEN_MAX: u32 = 256 << 20;

/// Number of bytes read at a time by the search for frames behind an invalid one.
const SEARCH_READ_BYTES: usize = 512 << 10;
/// Number of bytes searched: eight times the maximum amount of bytes that wait for a sync. Searching the whole log would take
/// a good part of a second on a hard disk, at each start.
const SEARCH_BYTES: u64 = 8 << 20;

/// Random number that the base keeps and that is mixed into the checksums of frames.
///
/// Stale frames behind the end of a log contain bytes that users chose (names, extended attributes). Without the key,
/// a user cannot make these bytes look like a frame. Logs written before keys existed, and logs that are read without
/// a base, have [`LogKey::NONE`].
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct LogKey(pub u64);

impl LogKey {
    /// No key.
    pub const NONE: Self = Self(0);

    /// Checksum of a header without its last field, the checksum.
    fn header_crc(self, header: &[u8]) -> u32 {
        crc32fast::hash(header) ^ self.0 as u32
    }

    fn body_crc(self, body: &[u8]) -> u32 {
        crc32fast::hash(body) ^ (self.0 >> 32) as u32
    }
}

/// Begins a frame in `out`, which must be empty. [`finish_frame`] fills in its header.
pub(super) fn start_frame(out: &mut Vec<u8>) {
    debug_assert!(out.is_empty());
    out.resize(FRAME_HEADER_LEN, 0);
}

/// Appends a change to the frame in `out`.
pub(super) fn append_change(out: &mut Vec<u8>, table: Table, key: &[u8], value: Option<&[u8]>) {
    let key_len = u16::try_from(key.len()).expect("keys are a name and some numbers");
    let value_len = u32::try_from(value.map_or(0, <[u8]>::len)).expect("values are bounded by the protocol");
    out.extend_from_slice(&[table as u8, u8::from(value.is_some())]);
    out.extend_from_slice(&key_len.to_le_bytes());
    out.extend_from_slice(&value_len.to_le_bytes());
    out.extend_from_slice(key);
    out.extend_from_slice(value.unwrap_or_default());
}

/// Fills in the header of the frame in `out`. The `unsynced` frames before it may not have been synced.
pub(super) fn finish_frame(out: &mut [u8], number: u64, unsynced: u32, key: LogKey) {
    let body_len = u32::try_from(out.len() - FRAME_HEADER_LEN).expect("a frame is bounded");
    assert!(body_len <= BODY_LEN_MAX, "a frame is bounded");
    let (header, body) = out.split_at_mut(FRAME_HEADER_LEN);
    header[0..4].copy_from_slice(&MAGIC);
    header[4..8].copy_from_slice(&body_len.to_le_bytes());
    header[8..16].copy_from_slice(&number.to_le_bytes());
    header[16..20].copy_from_slice(&unsynced.to_le_bytes());
    header[20..24].copy_from_slice(&key.body_crc(body).to_le_bytes());
    let header_crc = key.header_crc(&header[..24]);
    header[24..28].copy_from_slice(&header_crc.to_le_bytes());
}

/// Header of a frame with a valid checksum; its body has not been verified.
struct FoundHeader {
    header_len: u64,
    body_len: u32,
    number: u64,
    /// Last frame that had been synced when this one was written.
    synced: u64,
    body_crc: u32,
}

impl FoundHeader {
    fn frame_len(&self) -> u64 {
        self.header_len + u64::from(self.body_len)
    }
}

/// Decodes the header at the beginning of `bytes`, which may continue behind it.
fn decode_header(bytes: &[u8], key: LogKey) -> Option<FoundHeader> {
    let is_former = bytes.first_chunk() == Some(&FORMER_MAGIC);
    let header_len = if is_former { FORMER_HEADER_LEN } else { FRAME_HEADER_LEN };
    let bytes = bytes.get(..header_len)?;
    let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    let number = u64::from_le_bytes(bytes[8..16].try_into().expect("eight bytes"));
    let unsynced = if is_former { 0 } else { u32_at(16) };
    let synced = number.checked_sub(1 + u64::from(unsynced))?;
    let crcs = header_len - 8;
    let (body_len, body_crc, header_crc) = (u32_at(4), u32_at(crcs), u32_at(crcs + 4));
    let is_good = (is_former || bytes[..4] == MAGIC)
        && key.header_crc(&bytes[..header_len - 4]) == header_crc
        && body_len <= BODY_LEN_MAX;
    let header_len = header_len as u64;
    is_good.then_some(FoundHeader { header_len, body_len, number, synced, body_crc })
}

/// Applies the changes in a frame's body to `delta`; `None` if it is malformed.
fn decode_body(mut body: &[u8], delta: &mut Delta) -> Option<()> {
    while !body.is_empty() {
        let (head, rest) = body.split_first_chunk::<8>()?;
        let table = Table::from_number(head[0])?;
        let key_len = usize::from(u16::from_le_bytes([head[2], head[3]]));
        let value_len = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
        let (key, rest) = rest.split_at_checked(key_len)?;
        let (value, rest) = rest.split_at_checked(value_len)?;
        match head[1] {
            0 if value_len == 0 => delta.set(table, key, None),
            1 => delta.set(table, key, Some(value.into())),
            _ => return None,
        }
        body = rest;
    }
    Some(())
}

/// Returns the number of the first frame in a log; `None` if it is missing or invalid.
pub(super) fn first_frame(file: &impl BlockingFile, key: LogKey) -> io::Result<Option<u64>> {
    let found = header_at(file, 0)?;
    Ok(found.and_then(|bytes| decode_header(&bytes, key)).map(|header| header.number))
}

/// Returns true if frames have been written to the log.
pub(super) fn is_used(file: &impl BlockingFile) -> io::Result<bool> {
    Ok(header_at(file, 0)?
        .is_some_and(|bytes| [MAGIC, FORMER_MAGIC].iter().any(|magic| bytes.starts_with(magic))))
}

/// The bytes of a header at `at`, and those behind a former one; `None` at the end of the file.
fn header_at(file: &impl BlockingFile, at: u64) -> io::Result<Option<Vec<u8>>> {
    let len = file.len()?.0.saturating_sub(at).min(FRAME_HEADER_LEN as u64) as usize;
    if len < FORMER_HEADER_LEN {
        return Ok(None);
    }
    let mut bytes = vec![0; len];
    file.read_at(&mut bytes, LocalOffset(at))?;
    Ok(Some(bytes))
}

/// End of a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct End {
    /// Number of the last frame, or the number before the first one.
    pub last: u64,
    /// Whether frames are left behind the end. They would follow new frames with the same key.
    pub has_remains: bool,
}

/// Remedy for a log that lacks frames.
pub(super) const LOST_FRAMES: &str = "nothing was changed; restore the metadata path from a copy, or the metadata from a \
     dump (`weft meta restore`); to go on without the lost changes, start once with `weft serve --accept-lost-log`; then run \
     `weft fsck`";

/// Applies all changes of frames after `applied` to `delta`. Frames must be consecutive from `applied + 1` or earlier.
/// Fails if a frame is missing or damaged that had been durable, unless `accepts_loss`: the log then ends before it.
pub(super) fn replay(
    file: &impl BlockingFile,
    key: LogKey,
    applied: u64,
    accepts_loss: bool,
    delta: &mut Delta,
) -> io::Result<End> {
    let len = file.len()?.0;
    let (mut at, mut last, mut before) = (0u64, applied, None);
    let mut body = Vec::new();
    while let Some(bytes) = header_at(file, at)? {
        let Some(header) = decode_header(&bytes, key) else { break };
        let body_at = at + header.header_len;
        if before.is_none() && header.number > last + 1 {
            // The frames between were in the other log.
            if header.synced > last && !accepts_loss {
                return Err(damaged(last + 1, at));
            }
            break;
        }
        let follows = before.is_none_or(|before| header.number == before + 1);
        if !follows || u64::from(header.body_len) > len.saturating_sub(body_at) {
            break;
        }
        body.resize(header.body_len as usize, 0);
        file.read_at(&mut body, LocalOffset(body_at))?;
        if key.body_crc(&body) != header.body_crc {
            if is_seeded(Mutant::TornCommit) {
                let _ = decode_body(&body, delta);
                return Ok(End { last: last.max(header.number), has_remains: true });
            }
            break;
        }
        if header.number > last {
            // A body with a valid checksum was written by Weft, possibly by another version.
            decode_body(&body, delta).ok_or_else(|| {
                io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!("log frame {} was written by another version", header.number),
                )
            })?;
            last = header.number;
        }
        before = Some(header.number);
        at += header.frame_len();
    }
    // The frame after the last valid one was lost with the power, or it is damaged.
    let mut behind = synced_behind(file, key, at, last)?;
    if let Some(header) = header_at(file, at)?.and_then(|bytes| decode_header(&bytes, key)) {
        // Its header tells where the next frame is, however long the body is.
        behind = behind.max(synced_behind(file, key, at + header.frame_len(), last)?);
    }
    match behind {
        Some(synced) if synced > last && !accepts_loss => Err(damaged(last + 1, at)),
        found => Ok(End { last, has_remains: found.is_some() }),
    }
}

/// Looks within [`SEARCH_BYTES`] bytes of `from` for valid frames with numbers above `last`. Returns the highest frame
/// that was synced when one of them was written; `None` if there are none.
fn synced_behind(file: &impl BlockingFile, key: LogKey, from: u64, last: u64) -> io::Result<Option<u64>> {
    let len = file.len()?.0.min(from.saturating_add(SEARCH_BYTES));
    let mut buffer = vec![0; SEARCH_READ_BYTES.min(len.saturating_sub(from) as usize)];
    let (mut at, mut synced) = (from, None);
    while len.saturating_sub(at) >= FRAME_HEADER_LEN as u64 {
        let part = buffer.len().min((len - at) as usize);
        let bytes = &mut buffer[..part];
        file.read_at(bytes, LocalOffset(at))?;
        let (mut start, end) = (0, part - FRAME_HEADER_LEN + 1);
        // The former magic begins with the same byte.
        while let Some(skip) = find(&bytes[start..end], MAGIC[0]) {
            start += skip;
            let header = decode_header(&bytes[start..], key).filter(|header| header.number > last);
            if let Some(header) = header
                && Some(header.synced) > synced
                && is_whole(file, key, &header, at + start as u64)?
            {
                synced = Some(header.synced);
            }
            start += 1;
        }
        // A header may cross the end of this part.
        at += end as u64;
    }
    Ok(synced)
}

/// Returns the first position of `byte`. Tests whole blocks first, because most of a log is zeros.
fn find(bytes: &[u8], byte: u8) -> Option<usize> {
    const BLOCK_LEN: usize = 4096;
    let (block, found) = bytes.chunks(BLOCK_LEN).enumerate().find(|(_, block)| block.contains(&byte))?;
    Some(block * BLOCK_LEN + found.iter().position(|found| *found == byte)?)
}

fn is_whole(file: &impl BlockingFile, key: LogKey, header: &FoundHeader, at: u64) -> io::Result<bool> {
    let body_at = at + header.header_len;
    if u64::from(header.body_len) > file.len()?.0.saturating_sub(body_at) {
        return Ok(false);
    }
    let mut body = vec![0; header.body_len as usize];
    file.read_at(&mut body, LocalOffset(body_at))?;
    Ok(key.body_crc(&body) == header.body_crc)
}

fn damaged(number: u64, at: u64) -> io::Error {
    let what = format!(
        "frame {number} of its log is damaged or missing at offset {at}, but later frames exist: {LOST_FRAMES}"
    );
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Vec<u8> {
        let mut out = Vec::new();
        start_frame(&mut out);
        append_change(&mut out, Table::Inodes, &[0, 1], Some(b"xyz"));
        append_change(&mut out, Table::Orphans, &[9], None);
        finish_frame(&mut out, 5, 2, LogKey::NONE);
        out
    }

    #[test]
    fn golden_bytes() {
        let mut body = vec![1, 1, 2, 0, 3, 0, 0, 0, 0, 1];
        body.extend_from_slice(b"xyz");
        body.extend_from_slice(&[4, 0, 1, 0, 0, 0, 0, 0, 9]);
        let mut expected = b"WLO2".to_vec();
        expected.extend_from_slice(&[22, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0]);
        expected.extend_from_slice(&crc32fast::hash(&body).to_le_bytes());
        let crc = crc32fast::hash(&expected);
        expected.extend_from_slice(&crc.to_le_bytes());
        expected.extend_from_slice(&body);
        assert_eq!(sample(), expected);
    }

    #[test]
    fn frames_of_earlier_versions_are_read() {
        let body = [4, 0, 1, 0, 0, 0, 0, 0, 9];
        let mut former = b"WLOG".to_vec();
        former.extend_from_slice(&[9, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0]);
        former.extend_from_slice(&crc32fast::hash(&body).to_le_bytes());
        let crc = crc32fast::hash(&former);
        former.extend_from_slice(&crc.to_le_bytes());
        let found = decode_header(&former, LogKey::NONE).expect("a header");
        assert_eq!((found.header_len, found.body_len, found.number, found.synced), (24, 9, 5, 4));
        assert_eq!(found.body_crc, crc32fast::hash(&body));
    }

    #[test]
    fn a_flipped_bit_ends_the_log_before_the_frame() {
        let good = sample();
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let header = decode_header(&bad, LogKey::NONE);
            let intact = header.is_some_and(|header| {
                bad.len() as u64 == header.frame_len()
                    && crc32fast::hash(&bad[header.header_len as usize..]) == header.body_crc
            });
            assert!(!intact, "bit {bit}");
        }
    }

    #[test]
    fn truncated_bodies_do_not_panic() {
        let good = sample();
        let body = &good[FRAME_HEADER_LEN..];
        for cut in 0..body.len() {
            let taken = decode_body(&body[..cut], &mut Delta::default());
            assert_eq!(taken.is_some(), cut == 0 || cut == 13, "cut at {cut}");
        }
    }
}
