//! Frames of a map: the records of one operation, and how much of map and container is on the disk.
//!
//! ```text
//! offset size | field
//!      0    4 | magic    "WMFR"
//!      4    4 | body     length of the records in bytes
//!      8    8 | number   number of the frame, one more than that of the frame before it
//!     16    8 | sealed   the bytes that frames up to this number name are on the disk
//!     24    8 | durable  the frames up to this number are on the disk
//!     32    8 | boot     boot of the machine in which the frame was written
//!     40    4 | sum      CRC-32C of the records
//!     44    4 | crc      CRC-32C of the pair's number and of bytes 0 to 43
//!     48    n |          records (see `record`)
//! ```
//!
//! Numbers are little-endian. The number of the pair rejects frames of other maps, which the system may leave in space
//! that it reuses.

use super::header::{HEADER_BYTES, Header, HeaderedFile};
use super::record::{RECORD_BYTES, Record};
use crate::seal::{u32_at, u64_at};

/// Length of a frame without its records, in bytes.
pub const FRAME_BYTES: usize = 48;
/// Maximum number of records per frame.
pub const RECORDS_MAX: usize = 4096;
const MAGIC: &[u8; 4] = b"WMFR";

/// Frame without its records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame {
    /// Number of the frame.
    pub number: u64,
    /// The bytes that frames up to this number name are on the disk.
    pub sealed: u64,
    /// The frames up to this number are on the disk.
    pub durable: u64,
    /// Boot of the machine in which the frame was written.
    pub boot: u64,
}

/// Result of decoding the start of some bytes as a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decoded<'a> {
    /// A valid frame and its encoded records.
    Whole(Frame, &'a [[u8; RECORD_BYTES]]),
    /// The bytes end within the frame.
    Cut,
    /// The bytes are no frame.
    Bad,
}

impl Frame {
    /// Appends the frame with `records` to `out`.
    ///
    /// # Panics
    /// With more than [`RECORDS_MAX`] records.
    pub fn encode(&self, pair: u64, records: &[Record], out: &mut Vec<u8>) {
        assert!(records.len() <= RECORDS_MAX, "the caller splits records into frames");
        let start = out.len();
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&((records.len() * RECORD_BYTES) as u32).to_le_bytes());
        for number in [self.number, self.sealed, self.durable, self.boot] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(&[0; 8]);
        records.iter().for_each(|record| out.extend_from_slice(&record.encode()));
        let sum = crc32c::crc32c(&out[start + FRAME_BYTES..]);
        out[start + 40..start + 44].copy_from_slice(&sum.to_le_bytes());
        let crc = head_crc(pair, &out[start..start + 44]);
        out[start + 44..start + 48].copy_from_slice(&crc.to_le_bytes());
    }

    /// Decodes the frame that `bytes` begin with.
    pub fn decode(pair: u64, bytes: &[u8]) -> Decoded<'_> {
        let Some((head, rest)) = bytes.split_first_chunk::<FRAME_BYTES>() else { return Decoded::Cut };
        let body_len = u32_at(head, 4) as usize;
        if &head[..4] != MAGIC
            || head_crc(pair, &head[..44]) != u32_at(head, 44)
            || !body_len.is_multiple_of(RECORD_BYTES)
            || body_len > RECORDS_MAX * RECORD_BYTES
        {
            return Decoded::Bad;
        }
        let Some(body) = rest.get(..body_len) else { return Decoded::Cut };
        if crc32c::crc32c(body) != u32_at(head, 40) {
            return Decoded::Bad;
        }
        let [number, sealed, durable, boot] = [8, 16, 24, 32].map(|at| u64_at(head, at));
        Decoded::Whole(Self { number, sealed, durable, boot }, body.as_chunks().0)
    }
}

fn head_crc(pair: u64, head: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&pair.to_le_bytes()), head)
}

/// Encodes a map that consists of a checkpoint of `records`, whose first frame has the number `first`. Returns the
/// number of the last one, and the map.
pub(super) fn checkpoint(header: Header, first: u64, records: &[Record]) -> (u64, Vec<u8>) {
    let frames = records.chunks(RECORDS_MAX);
    let last = first + frames.len() as u64 - 1;
    let header = Header { progress: last, frames: frames.len() as u32, ..header };
    let mut out = Vec::with_capacity(HEADER_BYTES + FRAME_BYTES + records.len() * (RECORD_BYTES + 1));
    out.extend_from_slice(&header.encode(HeaderedFile::Map));
    for (number, records) in (first..).zip(frames) {
        let frame = Frame { number, sealed: number, durable: number, boot: header.boot };
        frame.encode(header.pair, records, &mut out);
    }
    (last, out)
}

/// Returns the first valid frame in `bytes`, at any offset, and the bytes behind it.
pub(super) fn find(pair: u64, mut bytes: &[u8]) -> Option<(Frame, &[u8])> {
    loop {
        let at = bytes.windows(MAGIC.len()).position(|four| four == MAGIC)?;
        bytes = &bytes[at..];
        if let Decoded::Whole(frame, records) = Frame::decode(pair, bytes) {
            return Some((frame, &bytes[FRAME_BYTES + size_of_val(records)..]));
        }
        bytes = &bytes[1..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAIR: u64 = 0x0102_0304;

    fn encoded() -> (Frame, Vec<u8>) {
        let frame = Frame { number: 5, sealed: 4, durable: 3, boot: 0x99 };
        let mut out = Vec::new();
        frame.encode(PAIR, &[Record::Length { len: 7 }, Record::Hole { chunk: 1, count: 2 }], &mut out);
        (frame, out)
    }

    #[test]
    fn golden_bytes() {
        let (frame, out) = encoded();
        let mut expected = b"WMFR\x50\0\0\0\x05\0\0\0\0\0\0\0\x04\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0".to_vec();
        expected.extend_from_slice(b"\x99\0\0\0\0\0\0\0");
        let records = [Record::Length { len: 7 }.encode(), Record::Hole { chunk: 1, count: 2 }.encode()];
        expected.extend_from_slice(&crc32c::crc32c(records.as_flattened()).to_le_bytes());
        let crc = crc32c::crc32c(&[&PAIR.to_le_bytes()[..], &expected[..]].concat());
        expected.extend_from_slice(&crc.to_le_bytes());
        expected.extend_from_slice(records.as_flattened());
        assert_eq!(out, expected);
        assert_eq!(Frame::decode(PAIR, &out), Decoded::Whole(frame, &records));
        assert_eq!(Frame::decode(PAIR + 1, &out), Decoded::Bad, "a frame of another map");
    }

    #[test]
    fn damaged_and_cut_frames_are_found() {
        let (_, out) = encoded();
        for bit in 0..out.len() * 8 {
            let mut bad = out.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Frame::decode(PAIR, &bad), Decoded::Bad, "bit {bit}");
        }
        for len in 0..out.len() {
            assert_eq!(Frame::decode(PAIR, &out[..len]), Decoded::Cut, "{len}");
        }
    }

    #[test]
    fn frames_are_found_at_any_offset() {
        let (frame, out) = encoded();
        let bytes = [&b"WMFRWMFWMFR"[..], &out, b"rest"].concat();
        assert_eq!(find(PAIR, &bytes), Some((frame, &b"rest"[..])));
        assert_eq!(find(PAIR, &bytes[12..]), None);
        assert_eq!(find(PAIR, b""), None);
    }
}
