//! The header of a checksum file.
//!
//! ```text
//! offset size | field
//!      0    8 | magic         "WEFTSUM\n"
//!      8    4 | version       1
//!     12    4 | block         length of a block in bytes, 4096
//!     16    8 | boot          boot of the machine in which the unsealed blocks were written
//!     24    8 | sealed_end    first block of the unsealed end
//!     32    8 | open_start    first block of an unsealed range before it
//!     40    8 | open_end      one past the last block of that range
//!     48    8 | file          file id of the datafile
//!     56    2 | component     component of the datafile
//!     58    2 | column        column of the datafile
//!     60    4 | crc           CRC-32 of bytes 0 to 59
//! ```
//!
//! Numbers are little-endian. The header fits one sector, so a loss of power leaves the old or the new one.

use super::block::BLOCK_BYTES;
use crate::datafile::DatafileKey;
use crate::seal::{u32_at, u64_at};
use weft_core::{FileId, ObjectId};

/// Length of the header in bytes.
pub const HEADER_BYTES: usize = 64;
/// Version that this program writes, and the only one that it reads.
pub const VERSION: u32 = 1;
const MAGIC: &[u8; 8] = b"WEFTSUM\n";

/// Header of a checksum file: its datafile, and the range of sealed blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Datafile that the checksums belong to.
    pub key: DatafileKey,
    /// Boot of the machine in which the unsealed blocks were written.
    pub boot: u64,
    /// First block of the unsealed end.
    pub sealed_end: u64,
    /// First block of the range before `sealed_end` that is unsealed.
    pub open_start: u64,
    /// One past the last block of that range; the range is empty when both are equal.
    pub open_end: u64,
}

/// Reason why bytes are not a valid header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BadHeader {
    /// The file ends within the header: the machine lost power while it was created.
    Missing,
    /// The bytes are damaged.
    Damaged(&'static str),
    /// A later version of Weft wrote the header.
    Version(u32),
}

impl Header {
    /// Returns the header of a datafile without sealed blocks.
    pub const fn new(key: DatafileKey, boot: u64) -> Self {
        Self { key, boot, sealed_end: 0, open_start: 0, open_end: 0 }
    }

    /// Returns true if `block` and its checksum are known to be on the disk.
    pub const fn is_sealed(&self, block: u64) -> bool {
        block < self.sealed_end && !(self.open_start <= block && block < self.open_end)
    }

    /// Returns true if all of a datafile of `blocks` blocks is sealed.
    pub const fn is_all_sealed(&self, blocks: u64) -> bool {
        blocks <= self.sealed_end && self.open_start == self.open_end
    }

    /// Encodes the header.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        out[0..8].copy_from_slice(MAGIC);
        out[8..12].copy_from_slice(&VERSION.to_le_bytes());
        out[12..16].copy_from_slice(&(BLOCK_BYTES as u32).to_le_bytes());
        out[16..24].copy_from_slice(&self.boot.to_le_bytes());
        out[24..32].copy_from_slice(&self.sealed_end.to_le_bytes());
        out[32..40].copy_from_slice(&self.open_start.to_le_bytes());
        out[40..48].copy_from_slice(&self.open_end.to_le_bytes());
        out[48..56].copy_from_slice(&self.key.file.0.to_le_bytes());
        out[56..58].copy_from_slice(&self.key.object.component.to_le_bytes());
        out[58..60].copy_from_slice(&self.key.object.column.to_le_bytes());
        let crc = crc32fast::hash(&out[..60]);
        out[60..].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Verifies and decodes a header; `bytes` may continue behind it.
    ///
    /// # Errors
    /// [`BadHeader`] names the defect.
    pub fn decode(bytes: &[u8]) -> Result<Self, BadHeader> {
        let Some(bytes) = bytes.first_chunk::<HEADER_BYTES>() else { return Err(BadHeader::Missing) };
        if bytes == &[0; HEADER_BYTES] {
            return Err(BadHeader::Missing);
        }
        if &bytes[0..8] != MAGIC {
            return Err(BadHeader::Damaged("wrong magic bytes"));
        }
        if crc32fast::hash(&bytes[..60]) != u32_at(bytes, 60) {
            return Err(BadHeader::Damaged("wrong checksum"));
        }
        let version = u32_at(bytes, 8);
        if version != VERSION {
            return Err(BadHeader::Version(version));
        }
        if u64::from(u32_at(bytes, 12)) != BLOCK_BYTES {
            return Err(BadHeader::Damaged("another block length"));
        }
        let short = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let header = Self {
            key: DatafileKey::new(
                FileId(u64_at(bytes, 48)),
                ObjectId { component: short(56), column: short(58) },
            ),
            boot: u64_at(bytes, 16),
            sealed_end: u64_at(bytes, 24),
            open_start: u64_at(bytes, 32),
            open_end: u64_at(bytes, 40),
        };
        if header.open_start > header.open_end {
            return Err(BadHeader::Damaged("an open range that ends before it begins"));
        }
        Ok(header)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        let key =
            DatafileKey::new(FileId(0x0102_0304_0506_0708), ObjectId { component: 0x1112, column: 0x2122 });
        Header { key, boot: 0x99, sealed_end: 300, open_start: 5, open_end: 7 }
    }

    #[test]
    fn golden_bytes() {
        let mut expected = b"WEFTSUM\n\x01\0\0\0\0\x10\0\0\x99\0\0\0\0\0\0\0\x2c\x01\0\0\0\0\0\0".to_vec();
        expected.extend_from_slice(b"\x05\0\0\0\0\0\0\0\x07\0\0\0\0\0\0\0");
        expected.extend_from_slice(b"\x08\x07\x06\x05\x04\x03\x02\x01\x12\x11\x22\x21");
        let crc = crc32fast::hash(&expected);
        expected.extend_from_slice(&crc.to_le_bytes());
        assert_eq!(header().encode().as_slice(), expected);
        assert_eq!(Header::decode(&expected), Ok(header()));
        expected.push(1);
        assert_eq!(Header::decode(&expected), Ok(header()), "slots follow");
    }

    #[test]
    fn any_flipped_bit_or_missing_byte_is_detected() {
        let good = header().encode();
        for bit in 0..HEADER_BYTES * 8 {
            let mut bad = good;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(Header::decode(&bad), Err(BadHeader::Damaged(_))), "bit {bit}");
        }
        for len in 0..HEADER_BYTES {
            assert_eq!(Header::decode(&good[..len]), Err(BadHeader::Missing), "length {len}");
        }
        assert_eq!(Header::decode(&[0; 100]), Err(BadHeader::Missing));
    }

    #[test]
    fn a_later_version_is_rejected() {
        let mut bytes = header().encode();
        bytes[8] = 2;
        let crc = crc32fast::hash(&bytes[..60]);
        bytes[60..].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(Header::decode(&bytes), Err(BadHeader::Version(2)));
    }

    #[test]
    fn blocks_outside_the_open_ranges_are_sealed() {
        let header = header();
        for (block, is_sealed) in
            [(0, true), (4, true), (5, false), (6, false), (7, true), (299, true), (300, false)]
        {
            assert_eq!(header.is_sealed(block), is_sealed, "block {block}");
        }
        assert!(!header.is_all_sealed(300));
        let closed = Header { open_end: 5, ..header };
        assert!(closed.is_all_sealed(300) && !closed.is_all_sealed(301));
    }
}
