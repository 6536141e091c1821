//! Frames of the journal: groups of records that are written together.
//!
//! ```text
//! offset size | field
//!      0    4 | magic      "FLOG": changes; "FCKP": a part of a checkpoint
//!      4    4 | body_len   length of the body in bytes
//!      8    8 | number     changes: the previous frame's number plus one;
//!             |            checkpoint: number of the last frame of changes that it includes
//!     16    8 | durable    changes: the last frame known to be durable when this one was written;
//!             |            checkpoint: index of this part, from 0
//!     24    4 | body_crc   CRC-32 of the body
//!     28    4 | header_crc CRC-32 of bytes 0 to 27
//!     32    n | body       records
//! ```
//!
//! Numbers are little-endian. Both checksums are mixed with the log's random number, so that stale frames of another
//! log in the same file are invalid.
//!
//! The metadata log syncs each frame before it writes the next, so a valid frame after an invalid one proves
//! damage. This journal writes many frames between two syncs, and a loss of power may keep any subset of them, so a
//! gap proves nothing. Only `durable` does: recovery rejects a journal that ends before the highest `durable` in it.

/// Length of a frame's header in bytes.
pub(super) const HEADER_LEN: usize = 32;
/// Maximum length of a frame's body in bytes.
pub(super) const BODY_LEN_MAX: u32 = 64 << 20;

/// Content of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Changes,
    Checkpoint,
}

impl Kind {
    const fn magic(self) -> [u8; 4] {
        match self {
            Self::Changes => *b"FLOG",
            Self::Checkpoint => *b"FCKP",
        }
    }
}

/// Random number of the log that is mixed into the checksums of its frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FrameKey(pub u64);

/// A header whose checksum is valid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Header {
    pub kind: Kind,
    pub body_len: u32,
    pub number: u64,
    pub durable: u64,
    body_crc: u32,
}

/// Begins a frame in `out`. [`finish`] fills in its header.
pub(super) fn start(out: &mut Vec<u8>) {
    debug_assert!(out.is_empty());
    out.resize(HEADER_LEN, 0);
}

/// Fills in the header of the frame in `out`.
pub(super) fn finish(out: &mut [u8], kind: Kind, number: u64, durable: u64, key: FrameKey) {
    let body_len = u32::try_from(out.len() - HEADER_LEN).expect("a frame is bounded");
    assert!(body_len <= BODY_LEN_MAX, "a frame is bounded");
    let body_crc = crc32fast::hash(&out[HEADER_LEN..]) ^ (key.0 >> 32) as u32;
    out[0..4].copy_from_slice(&kind.magic());
    out[4..8].copy_from_slice(&body_len.to_le_bytes());
    out[8..16].copy_from_slice(&number.to_le_bytes());
    out[16..24].copy_from_slice(&durable.to_le_bytes());
    out[24..28].copy_from_slice(&body_crc.to_le_bytes());
    let header_crc = crc32fast::hash(&out[..28]) ^ key.0 as u32;
    out[28..32].copy_from_slice(&header_crc.to_le_bytes());
}

/// Decodes the header at the beginning of `bytes`; `None` if there is no valid one.
pub(super) fn header(bytes: &[u8], key: FrameKey) -> Option<Header> {
    let bytes = bytes.first_chunk::<HEADER_LEN>()?;
    let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    let kind = [Kind::Changes, Kind::Checkpoint].into_iter().find(|kind| kind.magic() == bytes[..4])?;
    let good = crc32fast::hash(&bytes[..28]) ^ key.0 as u32 == u32_at(28);
    let body_len = u32_at(4);
    (good && body_len <= BODY_LEN_MAX).then(|| Header {
        kind,
        body_len,
        number: u64_at(8),
        durable: u64_at(16),
        body_crc: u32_at(24),
    })
}

impl Header {
    /// Returns true if `body` matches the header's length and checksum.
    pub fn holds(&self, body: &[u8], key: FrameKey) -> bool {
        body.len() == self.body_len as usize && crc32fast::hash(body) ^ (key.0 >> 32) as u32 == self.body_crc
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes_and_flipped_bits_are_checked() {
        let mut frame = Vec::new();
        start(&mut frame);
        frame.extend_from_slice(b"body");
        finish(&mut frame, Kind::Changes, 5, 4, FrameKey(0));
        let mut expected = b"FLOG\x04\0\0\0\x05\0\0\0\0\0\0\0\x04\0\0\0\0\0\0\0".to_vec();
        expected.extend_from_slice(&crc32fast::hash(b"body").to_le_bytes());
        let crc = crc32fast::hash(&expected);
        expected.extend_from_slice(&crc.to_le_bytes());
        expected.extend_from_slice(b"body");
        assert_eq!(frame, expected);

        let read = |bytes: &[u8], key| header(bytes, key).filter(|it| it.holds(&bytes[HEADER_LEN..], key));
        let found = read(&frame, FrameKey(0)).expect("good");
        assert_eq!((found.kind, found.number, found.durable), (Kind::Changes, 5, 4));
        assert_eq!(read(&frame, FrameKey(1)), None, "a frame of another log");
        assert_eq!(read(&frame, FrameKey(1 << 32)), None, "a frame of another log");
        for bit in 0..frame.len() * 8 {
            let mut bad = frame.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(read(&bad, FrameKey(0)), None, "bit {bit}");
        }
        for cut in 0..frame.len() {
            assert_eq!(frame.get(..cut).and_then(|bytes| read(bytes.get(..HEADER_LEN)?, FrameKey(0))), None);
        }
    }
}
