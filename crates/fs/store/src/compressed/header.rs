//! The headers of a map and of a container.
//!
//! ```text
//! offset size | field
//!      0    8 | magic        "WEFTMAP\n", or "WEFTBOX\n" for a container
//!      8    4 | version      1
//!     12    2 | compression  code of the datafile's compression (see `weft_core::Compression`)
//!     14    2 | component    component of the datafile
//!     16    2 | column       column of the datafile
//!     18    6 | zeros
//!     24    8 | file         file id of the datafile
//!     32    8 | pair         random number that a map and its container share
//!     40    8 | boot         boot of the machine in which the header was written
//!     48    8 | progress     map: number of the last frame of its checkpoint, 0 without one
//!            |              container: number of a frame that the map has durably, 0 before its first sync
//!     56    4 | frames       map: number of frames of its checkpoint
//!     60    4 | crc          CRC-32C of bytes 0 to 59
//! ```
//!
//! Numbers are little-endian. A header fits one sector, so a loss of power leaves the old or the new one.

use crate::datafile::DatafileKey;
use crate::seal::{u32_at, u64_at};
use weft_core::{Compression, FileId, ObjectId};

/// Largest number of a frame that a header names. Numbers count up from there, and must not overflow.
pub const PROGRESS_MAX: u64 = u64::MAX / 2;

/// Length of a header in bytes.
pub const HEADER_BYTES: usize = 64;
/// Version that this program writes, and the only one that it reads.
pub const VERSION: u32 = 1;

/// File that begins with a header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HeaderedFile {
    /// The map.
    Map,
    /// The container.
    Container,
}

impl HeaderedFile {
    const fn magic(self) -> &'static [u8; 8] {
        match self {
            Self::Map => b"WEFTMAP\n",
            Self::Container => b"WEFTBOX\n",
        }
    }
}

/// Header of a map or of a container.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Datafile.
    pub key: DatafileKey,
    /// Compression of the datafile.
    pub compression: Compression,
    /// Random number that a map and its container share.
    pub pair: u64,
    /// Boot of the machine in which the header was written.
    pub boot: u64,
    /// Map: number of the last frame of its checkpoint. Container: number of a frame that the map has durably.
    pub progress: u64,
    /// Map: number of frames of its checkpoint.
    pub frames: u32,
}

/// Reason why bytes are not a valid header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BadHeader {
    /// The file ends within the header, or the header is zero: it has not been written.
    Missing,
    /// The bytes are no header.
    Foreign,
    /// The bytes are damaged.
    Damaged(&'static str),
    /// A later version of Weft wrote the header.
    Version(u32),
}

impl Header {
    /// Encodes the header of `file`.
    pub fn encode(&self, file: HeaderedFile) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        out[0..8].copy_from_slice(file.magic());
        out[8..12].copy_from_slice(&VERSION.to_le_bytes());
        out[12..14].copy_from_slice(&self.compression.encode().to_le_bytes());
        out[14..16].copy_from_slice(&self.key.object.component.to_le_bytes());
        out[16..18].copy_from_slice(&self.key.object.column.to_le_bytes());
        out[24..32].copy_from_slice(&self.key.file.0.to_le_bytes());
        out[32..40].copy_from_slice(&self.pair.to_le_bytes());
        out[40..48].copy_from_slice(&self.boot.to_le_bytes());
        out[48..56].copy_from_slice(&self.progress.to_le_bytes());
        out[56..60].copy_from_slice(&self.frames.to_le_bytes());
        let crc = crc32c::crc32c(&out[..60]);
        out[60..].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Verifies and decodes the header of `file`; `bytes` may continue behind it.
    ///
    /// # Errors
    /// [`BadHeader`] names the defect.
    pub fn decode(file: HeaderedFile, bytes: &[u8]) -> Result<Self, BadHeader> {
        let Some(bytes) = bytes.first_chunk::<HEADER_BYTES>() else {
            let is_zero = bytes.iter().all(|&byte| byte == 0);
            return Err(if is_zero { BadHeader::Missing } else { BadHeader::Foreign });
        };
        if bytes == &[0; HEADER_BYTES] {
            return Err(BadHeader::Missing);
        }
        if &bytes[0..8] != file.magic() {
            return Err(BadHeader::Foreign);
        }
        if crc32c::crc32c(&bytes[..60]) != u32_at(bytes, 60) {
            return Err(BadHeader::Damaged("wrong checksum of its header"));
        }
        // Checked before the other fields, because a later version may have other ones.
        if u32_at(bytes, 8) != VERSION {
            return Err(BadHeader::Version(u32_at(bytes, 8)));
        }
        let number = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let compression = Compression::decode(number(12));
        let compression = compression.ok_or(BadHeader::Damaged("unknown compression"))?;
        let (progress, frames) = (u64_at(bytes, 48), u32_at(bytes, 56));
        if bytes[18..24] != [0; 6] || progress < u64::from(frames) || progress > PROGRESS_MAX {
            return Err(BadHeader::Damaged("impossible fields in its header"));
        }
        let object = ObjectId { component: number(14), column: number(16) };
        Ok(Self {
            key: DatafileKey::new(FileId(u64_at(bytes, 24)), object),
            compression,
            pair: u64_at(bytes, 32),
            boot: u64_at(bytes, 40),
            progress,
            frames,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        Header {
            key: DatafileKey::new(FileId(0x1234), ObjectId { component: 1, column: 0x203 }),
            compression: "zstd:3/64KiB".parse().expect("a setting"),
            pair: 0x1112_1314_1516_1718,
            boot: 0x2122_2324_2526_2728,
            progress: 9,
            frames: 2,
        }
    }

    #[test]
    fn golden_bytes() {
        let mut expected =
            b"WEFTMAP\n\x01\0\0\0\x43\0\x01\0\x03\x02\0\0\0\0\0\0\x34\x12\0\0\0\0\0\0".to_vec();
        expected.extend_from_slice(b"\x18\x17\x16\x15\x14\x13\x12\x11\x28\x27\x26\x25\x24\x23\x22\x21");
        expected.extend_from_slice(b"\x09\0\0\0\0\0\0\0\x02\0\0\0");
        expected.extend_from_slice(&crc32c::crc32c(&expected).to_le_bytes());
        assert_eq!(header().encode(HeaderedFile::Map).as_slice(), expected);
        for file in [HeaderedFile::Map, HeaderedFile::Container] {
            assert_eq!(Header::decode(file, &header().encode(file)), Ok(header()));
        }
    }

    #[test]
    fn every_flipped_bit_is_found() {
        for file in [HeaderedFile::Map, HeaderedFile::Container] {
            let bytes = header().encode(file);
            for bit in 0..HEADER_BYTES * 8 {
                let mut bad = bytes;
                bad[bit / 8] ^= 1 << (bit % 8);
                assert!(Header::decode(file, &bad).is_err(), "bit {bit}");
            }
        }
    }

    #[test]
    fn a_header_that_was_never_written_is_missing() {
        for len in [0, 1, 63, 64, 512] {
            assert_eq!(Header::decode(HeaderedFile::Map, &vec![0; len]), Err(BadHeader::Missing));
        }
        assert_eq!(Header::decode(HeaderedFile::Map, b"bytes"), Err(BadHeader::Foreign));
        let container = header().encode(HeaderedFile::Container);
        assert_eq!(Header::decode(HeaderedFile::Map, &container), Err(BadHeader::Foreign));
    }

    #[test]
    fn a_later_version_is_rejected() {
        let mut bytes = header().encode(HeaderedFile::Map);
        bytes[8] = 2;
        let crc = crc32c::crc32c(&bytes[..60]);
        bytes[60..].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(Header::decode(HeaderedFile::Map, &bytes), Err(BadHeader::Version(2)));
    }
}
