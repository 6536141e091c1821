//! The log: a sequence of frames, each written and synced before the next one.
//!
//! ```text
//! offset size | field
//!      0    4 | magic      "WLOG"
//!      4    4 | body_len   length of the body in bytes
//!      8    8 | number     number of the previous frame plus one
//!     16    4 | body_crc   CRC-32 of the body
//!     20    4 | header_crc CRC-32 of bytes 0 to 19
//!     24    n | body       a sequence of changes:
//!
//!      0    1 | table      number
//!      1    1 | kind       0: removed, 1: set
//!      2    2 | key_len
//!      4    4 | value_len  0 if removed
//!      8    k | key
//!    8+k    v | value
//! ```
//!
//! Numbers are little-endian. Both checksums are mixed with the [`LogKey`] under which the frame was written.
//!
//! | frame found | meaning |
//! | --- | --- |
//! | valid, next number | part of the log |
//! | valid, another number | left from an earlier use of the file: the log ends before it |
//! | invalid, no later frame | torn by a crash and never acknowledged: the log ends before it |
//! | invalid, later frames exist | was durable and has been damaged since: the log is rejected |

use super::delta::Delta;
use super::engine::Table;
use std::io;
use weft_core::LocalOffset;
use weft_env::BlockingFile;
use weft_env::mutants::{Mutant, is_seeded};

const FRAME_HEADER_LEN: usize = 24;
const MAGIC: [u8; 4] = *b"WLOG";
/// Maximum length of a body in bytes: far above the changes between two commits, and far below the memory of any
/// server.
const BODY_LEN_MAX: u32 = 256 << 20;

/// Number of bytes read at a time by the search for frames behind an invalid one.
const SEARCH_READ_BYTES: usize = 512 << 10;
/// Number of bytes searched: eight times the maximum amount of changes collected before a write. Searching the whole
/// log would take a good part of a second on a hard disk, at each start.
const SEARCH_BYTES: u64 = 2 << 20;

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

    fn header_crc(self, header: &[u8]) -> u32 {
        crc32fast::hash(&header[..20]) ^ self.0 as u32
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

/// Fills in the header of the frame in `out`.
pub(super) fn finish_frame(out: &mut [u8], number: u64, key: LogKey) {
    let body_len = u32::try_from(out.len() - FRAME_HEADER_LEN).expect("a frame is bounded");
    assert!(body_len <= BODY_LEN_MAX, "a frame is bounded");
    let body_crc = key.body_crc(&out[FRAME_HEADER_LEN..]);
    out[0..4].copy_from_slice(&MAGIC);
    out[4..8].copy_from_slice(&body_len.to_le_bytes());
    out[8..16].copy_from_slice(&number.to_le_bytes());
    out[16..20].copy_from_slice(&body_crc.to_le_bytes());
    let header_crc = key.header_crc(out);
    out[20..24].copy_from_slice(&header_crc.to_le_bytes());
}

/// Header of a frame with a valid checksum; its body has not been verified.
struct FoundHeader {
    body_len: u32,
    number: u64,
    body_crc: u32,
}

fn decode_header(bytes: &[u8; FRAME_HEADER_LEN], key: LogKey) -> Option<FoundHeader> {
    let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    let number = u64::from_le_bytes(bytes[8..16].try_into().expect("eight bytes"));
    let header = FoundHeader { body_len: u32_at(4), number, body_crc: u32_at(16) };
    let good = bytes[..4] == MAGIC && key.header_crc(bytes) == u32_at(20) && header.body_len <= BODY_LEN_MAX;
    good.then_some(header)
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
    Ok(header_at(file, 0)?.is_some_and(|bytes| bytes[..4] == MAGIC))
}

fn header_at(file: &impl BlockingFile, at: u64) -> io::Result<Option<[u8; FRAME_HEADER_LEN]>> {
    let mut bytes = [0; FRAME_HEADER_LEN];
    if file.len()?.0 < at + FRAME_HEADER_LEN as u64 {
        return Ok(None);
    }
    file.read_at(&mut bytes, LocalOffset(at))?;
    Ok(Some(bytes))
}

/// Applies all changes of frames after `applied` to `delta`. Returns the number of the last frame, or `applied`.
/// Frames must be consecutive from `applied + 1` or earlier. Fails if a frame is missing or damaged that had been
/// durable.
pub(super) fn replay(
    file: &impl BlockingFile,
    key: LogKey,
    applied: u64,
    delta: &mut Delta,
) -> io::Result<u64> {
    let len = file.len()?.0;
    let (mut at, mut last, mut before) = (0u64, applied, None);
    let mut body = Vec::new();
    while let Some(bytes) = header_at(file, at)? {
        let Some(header) = decode_header(&bytes, key) else { break };
        let body_at = at + FRAME_HEADER_LEN as u64;
        if before.is_none() && header.number > last + 1 {
            return Err(damaged(last + 1));
        }
        let follows = before.is_none_or(|before| header.number == before + 1);
        if !follows || u64::from(header.body_len) > len - body_at {
            break;
        }
        body.resize(header.body_len as usize, 0);
        file.read_at(&mut body, LocalOffset(body_at))?;
        if key.body_crc(&body) != header.body_crc {
            if is_seeded(Mutant::TornCommit) {
                let _ = decode_body(&body, delta);
                return Ok(last.max(header.number));
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
        at = body_at + u64::from(header.body_len);
    }
    // The frame after the last valid one is the newest and was torn by a crash, or it is damaged.
    let mut later = later_frame(file, key, at, last)?;
    if let Some(header) = header_at(file, at)?.and_then(|bytes| decode_header(&bytes, key)) {
        // Its header tells where the next frame is, however long the body is.
        later |= later_frame(
            file,
            key,
            at + FRAME_HEADER_LEN as u64 + u64::from(header.body_len),
            last.max(header.number),
        )?;
    }
    if later { Err(damaged(last + 1)) } else { Ok(last) }
}

/// Returns true if a valid frame with a number above `last` begins within [`SEARCH_BYTES`] bytes of `from`.
fn later_frame(file: &impl BlockingFile, key: LogKey, from: u64, last: u64) -> io::Result<bool> {
    let len = file.len()?.0.min(from.saturating_add(SEARCH_BYTES));
    let mut buffer = vec![0; SEARCH_READ_BYTES.min(len.saturating_sub(from) as usize)];
    let mut at = from;
    while len.saturating_sub(at) >= FRAME_HEADER_LEN as u64 {
        let part = buffer.len().min((len - at) as usize);
        let bytes = &mut buffer[..part];
        file.read_at(bytes, LocalOffset(at))?;
        let (mut start, end) = (0, part - FRAME_HEADER_LEN + 1);
        while let Some(skip) = find(&bytes[start..end], MAGIC[0]) {
            start += skip;
            let header = bytes[start..start + FRAME_HEADER_LEN].try_into().expect("as long");
            let header = decode_header(header, key).filter(|header| header.number > last);
            if let Some(header) = header
                && is_whole(file, key, &header, at + start as u64)?
            {
                return Ok(true);
            }
            start += 1;
        }
        // A header may cross the end of this part.
        at += end as u64;
    }
    Ok(false)
}

/// Returns the first position of `byte`. Tests whole blocks first, because most of a log is zeros.
fn find(bytes: &[u8], byte: u8) -> Option<usize> {
    const BLOCK_LEN: usize = 4096;
    let (block, found) = bytes.chunks(BLOCK_LEN).enumerate().find(|(_, block)| block.contains(&byte))?;
    Some(block * BLOCK_LEN + found.iter().position(|found| *found == byte)?)
}

fn is_whole(file: &impl BlockingFile, key: LogKey, header: &FoundHeader, at: u64) -> io::Result<bool> {
    let body_at = at + FRAME_HEADER_LEN as u64;
    if u64::from(header.body_len) > file.len()?.0 - body_at {
        return Ok(false);
    }
    let mut body = vec![0; header.body_len as usize];
    file.read_at(&mut body, LocalOffset(body_at))?;
    Ok(key.body_crc(&body) == header.body_crc)
}

fn damaged(number: u64) -> io::Error {
    let what = format!(
        "frame {number} of its log is damaged or missing, but later frames exist: nothing was changed; restore the \
         metadata path from a copy and then run `weft fsck`"
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
        finish_frame(&mut out, 5, LogKey::NONE);
        out
    }

    #[test]
    fn golden_bytes() {
        let mut body = vec![1, 1, 2, 0, 3, 0, 0, 0, 0, 1];
        body.extend_from_slice(b"xyz");
        body.extend_from_slice(&[4, 0, 1, 0, 0, 0, 0, 0, 9]);
        let mut expected = b"WLOG".to_vec();
        expected.extend_from_slice(&[22, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0]);
        expected.extend_from_slice(&crc32fast::hash(&body).to_le_bytes());
        let crc = crc32fast::hash(&expected);
        expected.extend_from_slice(&crc.to_le_bytes());
        expected.extend_from_slice(&body);
        assert_eq!(sample(), expected);
    }

    #[test]
    fn a_flipped_bit_ends_the_log_before_the_frame() {
        let good = sample();
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let header = decode_header(bad[..FRAME_HEADER_LEN].try_into().expect("24"), LogKey::NONE);
            let intact = header.is_some_and(|header| {
                bad.len() - FRAME_HEADER_LEN == header.body_len as usize
                    && crc32fast::hash(&bad[FRAME_HEADER_LEN..]) == header.body_crc
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
