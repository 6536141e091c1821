//! The log: frames of changes, one after the other, each written and synced before the next one.
//!
//! ```text
//! offset size field
//!      0    4 magic      "WLOG"
//!      4    4 body_len   bytes
//!      8    8 number     of the frame: one more than that of the frame before it
//!     16    4 body_crc   CRC-32 of the body
//!     20    4 header_crc CRC-32 of bytes 0 to 19
//!     24    n body       changes, one after the other:
//!
//!      0    1 table      number
//!      1    1 kind       0 removed, 1 set
//!      2    2 key_len
//!      4    4 value_len  0 when removed
//!      8    k key
//!    8+k    v value
//! ```
//! Numbers are little-endian. A frame whose number does not follow on the one before it is left over from an earlier
//! use of the file: the log ends before it. So does one that is damaged: it was never acknowledged.

use super::delta::Delta;
use super::engine::Table;
use std::io;
use weft_core::LocalOffset;
use weft_env::BlockingFile;

pub(super) const FRAME_HEADER_LEN: usize = 24;
const MAGIC: [u8; 4] = *b"WLOG";
/// The longest body: far above what mutations between two commits can make, far below what memory cannot take.
const BODY_LEN_MAX: u32 = 256 << 20;

/// Starts a frame in `out`, which must be empty; its header is filled in by [`finish_frame`].
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
pub(super) fn finish_frame(out: &mut [u8], number: u64) {
    let body_len = u32::try_from(out.len() - FRAME_HEADER_LEN).expect("a frame is bounded");
    assert!(body_len <= BODY_LEN_MAX, "a frame is bounded");
    let body_crc = crc32fast::hash(&out[FRAME_HEADER_LEN..]);
    out[0..4].copy_from_slice(&MAGIC);
    out[4..8].copy_from_slice(&body_len.to_le_bytes());
    out[8..16].copy_from_slice(&number.to_le_bytes());
    out[16..20].copy_from_slice(&body_crc.to_le_bytes());
    let header_crc = crc32fast::hash(&out[..20]);
    out[20..24].copy_from_slice(&header_crc.to_le_bytes());
}

/// A frame as found: its header held, its body has still to be checked.
struct FoundHeader {
    body_len: u32,
    number: u64,
    body_crc: u32,
}

fn decode_header(bytes: &[u8; FRAME_HEADER_LEN]) -> Option<FoundHeader> {
    let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    let number = u64::from_le_bytes(bytes[8..16].try_into().expect("eight bytes"));
    let header = FoundHeader { body_len: u32_at(4), number, body_crc: u32_at(16) };
    let good =
        bytes[..4] == MAGIC && crc32fast::hash(&bytes[..20]) == u32_at(20) && header.body_len <= BODY_LEN_MAX;
    good.then_some(header)
}

/// Takes the changes of a frame's body into `delta`; `None` (and nothing taken that matters) when it is malformed.
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

/// The number of the first frame in a log; `None` when it holds none.
pub(super) fn first_frame(file: &impl BlockingFile) -> io::Result<Option<u64>> {
    let mut header = [0; FRAME_HEADER_LEN];
    if file.len()?.0 < FRAME_HEADER_LEN as u64 {
        return Ok(None);
    }
    file.read_at(&mut header, LocalOffset(0))?;
    Ok(decode_header(&header).map(|header| header.number))
}

/// Takes all changes of frames after `applied` into `delta`; the number of the last frame taken, or `applied`.
/// Frames must follow on one another without a gap, from `applied + 1` or earlier on; where frames are missing that
/// must have been there, it fails.
pub(super) fn replay(file: &impl BlockingFile, applied: u64, delta: &mut Delta) -> io::Result<u64> {
    let len = file.len()?.0;
    let (mut at, mut last, mut before) = (0u64, applied, None);
    let mut body = Vec::new();
    while at + FRAME_HEADER_LEN as u64 <= len {
        let mut bytes = [0; FRAME_HEADER_LEN];
        file.read_at(&mut bytes, LocalOffset(at))?;
        let Some(header) = decode_header(&bytes) else { break };
        at += FRAME_HEADER_LEN as u64;
        if before.is_none() && header.number > last + 1 {
            return Err(damaged(last + 1));
        }
        let follows = before.is_none_or(|before| header.number == before + 1);
        if !follows || u64::from(header.body_len) > len - at {
            break;
        }
        body.resize(header.body_len as usize, 0);
        file.read_at(&mut body, LocalOffset(at))?;
        if crc32fast::hash(&body) != header.body_crc {
            // The last frame may have been cut short by a crash. One that another follows was whole: each is on the
            // device before the next is written.
            let next = at + u64::from(header.body_len);
            if header.number > last && next + FRAME_HEADER_LEN as u64 <= len {
                file.read_at(&mut bytes, LocalOffset(next))?;
                if decode_header(&bytes).is_some_and(|next| next.number == header.number + 1) {
                    return Err(damaged(header.number));
                }
            }
            break;
        }
        if header.number > last {
            // A body that passes its checksum is one that this program wrote.
            decode_body(&body, delta).ok_or_else(|| {
                io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!("log frame {} is of another version", header.number),
                )
            })?;
            last = header.number;
        }
        before = Some(header.number);
        at += u64::from(header.body_len);
    }
    Ok(last)
}

fn damaged(number: u64) -> io::Error {
    let what = format!(
        "frame {number} is damaged or missing, and later ones are there; restore the metadata path from a copy"
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
        finish_frame(&mut out, 5);
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
            let header = decode_header(bad[..FRAME_HEADER_LEN].try_into().expect("24"));
            let intact = header.is_some_and(|header| {
                bad.len() - FRAME_HEADER_LEN == header.body_len as usize
                    && crc32fast::hash(&bad[FRAME_HEADER_LEN..]) == header.body_crc
            });
            assert!(!intact, "bit {bit}");
        }
    }

    #[test]
    fn a_body_of_any_bytes_is_refused_or_taken_without_panic() {
        let good = sample();
        let body = &good[FRAME_HEADER_LEN..];
        for cut in 0..body.len() {
            let taken = decode_body(&body[..cut], &mut Delta::default());
            assert_eq!(taken.is_some(), cut == 0 || cut == 13, "cut at {cut}");
        }
    }
}
