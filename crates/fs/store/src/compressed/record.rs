//! Records of a map: the changes of chunks.
//!
//! ```text
//! offset size | field
//!      0    1 | kind      1 version, 2 hole, 3 piece, 4 zeros, 5 length
//!      1    1 | codec     version: 0 raw, 1 LZ4, 2 Zstandard
//!      2    2 | zeros
//!      4    4 | start     piece, zeros: first byte within the chunk
//!      8    8 | chunk     number of the chunk; hole: of the first one; length: the length in bytes
//!     16    8 | at        version, piece: place of the stored bytes, in units of 512 bytes
//!                         hole: number of chunks
//!     24    4 | stored    version: number of stored bytes
//!     28    4 | len       version, piece, zeros: number of bytes of the chunk
//!     32    4 | crc       version, piece: CRC-32C of the stored bytes
//!     36    4 | zeros
//! ```
//!
//! Numbers are little-endian, fields that a kind does not have are zero.

use super::codec::Codec;
use crate::seal::{u32_at, u64_at};
use crate::target::DATAFILE_LEN_MAX;
use weft_core::ranges::ByteRange;

/// Length of a record in bytes.
pub const RECORD_BYTES: usize = 40;
/// Length in bytes of the unit in which containers are divided.
pub const UNIT_BYTES: u64 = 512;
/// Units behind which nothing is stored: offsets stay below the maximum of the system's file offsets.
const UNITS_MAX: u64 = DATAFILE_LEN_MAX / UNIT_BYTES;

/// Units of the container.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Extent {
    /// First unit.
    pub at: u64,
    /// Number of units, at least 1.
    pub units: u64,
}

impl Extent {
    /// Returns one past the last unit.
    pub const fn end(self) -> u64 {
        self.at + self.units
    }

    /// Returns the offset of the first byte.
    pub const fn offset(self) -> u64 {
        self.at * UNIT_BYTES
    }

    /// Returns the extent as a range of units.
    pub fn range(self) -> ByteRange {
        ByteRange::new(self.at, self.end()).expect("extents are not empty")
    }
}

/// Stored bytes of a whole chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Version {
    /// First unit.
    pub at: u64,
    /// Number of stored bytes.
    pub stored: u32,
    /// Number of bytes of the chunk that they stand for. The others are zeros.
    pub len: u32,
    /// CRC-32C of the stored bytes.
    pub crc: u32,
    /// How they are stored.
    pub codec: Codec,
}

/// Bytes of a part of a chunk, stored raw.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// First byte within the chunk.
    pub start: u32,
    /// Number of bytes.
    pub len: u32,
    /// First unit.
    pub at: u64,
    /// CRC-32C of the bytes.
    pub crc: u32,
}

/// A change of a compressed datafile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Record {
    /// Replaces a chunk with a version.
    Version {
        /// Number of the chunk.
        chunk: u64,
        /// Its bytes.
        version: Version,
    },
    /// Makes chunks holes.
    Hole {
        /// Number of the first chunk.
        chunk: u64,
        /// Number of chunks.
        count: u64,
    },
    /// Lays a piece over a chunk. A piece at the place of the newest one of the chunk replaces that one.
    Piece {
        /// Number of the chunk.
        chunk: u64,
        /// The bytes.
        piece: Piece,
    },
    /// Lays zeros over a part of a chunk.
    Zeros {
        /// Number of the chunk.
        chunk: u64,
        /// First byte within the chunk.
        start: u32,
        /// Number of bytes.
        len: u32,
    },
    /// Truncates or extends the datafile.
    Length {
        /// Length in bytes.
        len: u64,
    },
}

impl Version {
    /// Returns the number of units that the stored bytes occupy.
    pub const fn units(&self) -> u64 {
        units_of(self.stored)
    }

    /// Returns the units that the stored bytes occupy.
    pub const fn extent(&self) -> Extent {
        Extent { at: self.at, units: self.units() }
    }
}

impl Piece {
    /// Returns the number of units that the bytes occupy.
    pub const fn units(&self) -> u64 {
        units_of(self.len)
    }

    /// Returns the units that the bytes occupy.
    pub const fn extent(&self) -> Extent {
        Extent { at: self.at, units: self.units() }
    }

    /// Returns one past the last byte within the chunk.
    pub const fn end(&self) -> u32 {
        self.start + self.len
    }
}

/// Returns the number of units that `len` bytes occupy.
pub(super) const fn units_of(len: u32) -> u64 {
    (len as u64).div_ceil(UNIT_BYTES)
}

impl Record {
    /// Returns the minimum length of a datafile, with chunks of `chunk_len` bytes, that the record implies.
    pub fn len_min(&self, chunk_len: u64) -> u64 {
        match *self {
            Self::Version { chunk, version } => chunk * chunk_len + u64::from(version.len),
            Self::Piece { chunk, piece } => chunk * chunk_len + u64::from(piece.end()),
            Self::Length { len } => len,
            Self::Hole { .. } | Self::Zeros { .. } => 0,
        }
    }

    /// Encodes the record.
    pub fn encode(&self) -> [u8; RECORD_BYTES] {
        let mut out = [0; RECORD_BYTES];
        let (kind, chunk) = match *self {
            Self::Version { chunk, version } => {
                out[1] = version.codec.number();
                out[16..24].copy_from_slice(&version.at.to_le_bytes());
                out[24..28].copy_from_slice(&version.stored.to_le_bytes());
                out[28..32].copy_from_slice(&version.len.to_le_bytes());
                out[32..36].copy_from_slice(&version.crc.to_le_bytes());
                (1, chunk)
            }
            Self::Hole { chunk, count } => {
                out[16..24].copy_from_slice(&count.to_le_bytes());
                (2, chunk)
            }
            Self::Piece { chunk, piece } => {
                out[4..8].copy_from_slice(&piece.start.to_le_bytes());
                out[16..24].copy_from_slice(&piece.at.to_le_bytes());
                out[28..32].copy_from_slice(&piece.len.to_le_bytes());
                out[32..36].copy_from_slice(&piece.crc.to_le_bytes());
                (3, chunk)
            }
            Self::Zeros { chunk, start, len } => {
                out[4..8].copy_from_slice(&start.to_le_bytes());
                out[28..32].copy_from_slice(&len.to_le_bytes());
                (4, chunk)
            }
            Self::Length { len } => (5, len),
        };
        out[0] = kind;
        out[8..16].copy_from_slice(&chunk.to_le_bytes());
        out
    }

    /// Decodes a record of a datafile with chunks of `chunk_len` bytes; `None` if it is invalid.
    pub fn decode(bytes: &[u8; RECORD_BYTES], chunk_len: u64) -> Option<Self> {
        let [chunk, place] = [u64_at(bytes, 8), u64_at(bytes, 16)];
        let [start, stored, len, crc] = [4, 24, 28, 32].map(|at| u32_at(bytes, at));
        let record = match bytes[0] {
            1 => {
                let codec = Codec::from_number(bytes[1])?;
                Self::Version { chunk, version: Version { at: place, stored, len, crc, codec } }
            }
            2 => Self::Hole { chunk, count: place },
            3 => Self::Piece { chunk, piece: Piece { start, len, at: place, crc } },
            4 => Self::Zeros { chunk, start, len },
            5 => Self::Length { len: chunk },
            _ => return None,
        };
        // Also rejects values in fields that the kind does not have.
        (record.is_valid(chunk_len) && record.encode() == *bytes).then_some(record)
    }

    /// Returns true if all numbers are within their bounds.
    fn is_valid(&self, chunk_len: u64) -> bool {
        let ends_within = |chunk: u64, end: u32| {
            let start = chunk.checked_mul(chunk_len);
            let end = start.and_then(|start| start.checked_add(end.into()));
            end.is_some_and(|end| end <= DATAFILE_LEN_MAX)
        };
        let fits = |at: u64, units: u64| at > 0 && at < UNITS_MAX && units <= UNITS_MAX - at;
        let within = |start: u32, len: u32| {
            len > 0 && start.checked_add(len).is_some_and(|end| u64::from(end) <= chunk_len)
        };
        match *self {
            Self::Version { chunk, version } => {
                let Version { at, stored, len, codec, .. } = version;
                let is_raw = codec == Codec::Raw;
                let is_sized = if is_raw { stored == len } else { stored < len };
                within(0, len)
                    && stored > 0
                    && is_sized
                    && fits(at, version.units())
                    && ends_within(chunk, len)
            }
            Self::Piece { chunk, piece } => {
                within(piece.start, piece.len)
                    && fits(piece.at, piece.units())
                    && ends_within(chunk, piece.end())
            }
            Self::Zeros { chunk, start, len } => within(start, len) && ends_within(chunk, 0),
            Self::Hole { chunk, count } => {
                let chunks_max = DATAFILE_LEN_MAX / chunk_len + 1;
                count > 0 && chunk < chunks_max && count <= chunks_max - chunk
            }
            Self::Length { len } => len <= DATAFILE_LEN_MAX,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNK_LEN: u64 = 65_536;

    fn samples() -> [Record; 5] {
        let version =
            Version { at: 0x0807, stored: 0x0a09, len: 0x0c0b, crc: 0x1817_1615, codec: Codec::Zstd };
        let piece = Piece { start: 0x0201, len: 0x0403, at: 0x0605, crc: 0x1413_1211 };
        [
            Record::Version { chunk: 0x2122, version },
            Record::Hole { chunk: 0x2324, count: 0x2526 },
            Record::Piece { chunk: 0x2728, piece },
            Record::Zeros { chunk: 0x292a, start: 0x2b2c, len: 0x2d2e },
            Record::Length { len: 0x2f30_3132 },
        ]
    }

    #[test]
    fn golden_bytes() {
        let version = samples()[0].encode();
        assert_eq!(version[..8], [1, 2, 0, 0, 0, 0, 0, 0]);
        assert_eq!(version[8..24], [0x22, 0x21, 0, 0, 0, 0, 0, 0, 7, 8, 0, 0, 0, 0, 0, 0]);
        assert_eq!(version[24..], [9, 0xa, 0, 0, 0xb, 0xc, 0, 0, 0x15, 0x16, 0x17, 0x18, 0, 0, 0, 0]);
        let piece = samples()[2].encode();
        assert_eq!(piece[..16], [3, 0, 0, 0, 1, 2, 0, 0, 0x28, 0x27, 0, 0, 0, 0, 0, 0]);
        assert_eq!(
            piece[16..],
            [5, 6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 4, 0, 0, 0x11, 0x12, 0x13, 0x14, 0, 0, 0, 0]
        );
        assert_eq!(
            samples()[1].encode()[..18],
            [2, 0, 0, 0, 0, 0, 0, 0, 0x24, 0x23, 0, 0, 0, 0, 0, 0, 0x26, 0x25]
        );
        assert_eq!(samples()[3].encode()[..10], [4, 0, 0, 0, 0x2c, 0x2b, 0, 0, 0x2a, 0x29]);
        assert_eq!(samples()[4].encode()[..12], [5, 0, 0, 0, 0, 0, 0, 0, 0x32, 0x31, 0x30, 0x2f]);
    }

    #[test]
    fn records_round_trip() {
        for record in samples() {
            assert_eq!(Record::decode(&record.encode(), CHUNK_LEN), Some(record));
        }
    }

    #[test]
    fn records_out_of_bounds_are_rejected() {
        let version = Version { at: 1, stored: 10, len: 20, crc: 0, codec: Codec::Lz4 };
        let piece = Piece { start: 65_535, len: 1, at: 1, crc: 0 };
        let last = DATAFILE_LEN_MAX / CHUNK_LEN;
        let good = [
            Record::Version { chunk: last, version },
            Record::Version { chunk: 0, version: Version { codec: Codec::Raw, stored: 20, ..version } },
            Record::Piece { chunk: 0, piece },
            Record::Hole { chunk: 0, count: last + 1 },
            Record::Length { len: DATAFILE_LEN_MAX },
        ];
        let bad = [
            Record::Version { chunk: last + 1, version },
            Record::Version { chunk: u64::MAX, version },
            Record::Version { chunk: 0, version: Version { at: 0, ..version } },
            Record::Version { chunk: 0, version: Version { at: u64::MAX, ..version } },
            Record::Version { chunk: 0, version: Version { stored: 20, ..version } },
            Record::Version { chunk: 0, version: Version { stored: 0, ..version } },
            Record::Version { chunk: 0, version: Version { len: 65_537, ..version } },
            Record::Version { chunk: 0, version: Version { codec: Codec::Raw, ..version } },
            Record::Piece { chunk: 0, piece: Piece { len: 2, ..piece } },
            Record::Piece { chunk: 0, piece: Piece { len: 0, ..piece } },
            Record::Piece { chunk: last, piece },
            Record::Zeros { chunk: 0, start: u32::MAX, len: u32::MAX },
            Record::Hole { chunk: 0, count: last + 2 },
            Record::Hole { chunk: 5, count: 0 },
            Record::Length { len: DATAFILE_LEN_MAX + 1 },
        ];
        for record in good {
            assert_eq!(Record::decode(&record.encode(), CHUNK_LEN), Some(record));
        }
        for record in bad {
            assert_eq!(Record::decode(&record.encode(), CHUNK_LEN), None, "{record:?}");
        }
        let mut bytes = samples()[4].encode();
        bytes[39] = 1;
        assert_eq!(Record::decode(&bytes, CHUNK_LEN), None, "a value where there is no field");
    }
}
