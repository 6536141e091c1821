//! Identity file of a log: the cluster and target that it belongs to, and the sizes of its parts.
//!
//! ```text
//! offset size | field
//!      0    8 | magic       "WEFTFRG\n"
//!      8    4 | version     2
//!     12    4 | target      number of the target in the cluster
//!     16    8 | cluster     XXH3-64 of the cluster's name
//!     24    8 | log         random number that is mixed into the checksums of journal frames
//!     32    4 | segments    number of segments
//!     36    4 | segment_len length of a segment in bytes
//!     40    4 | crc         CRC-32 of bytes 0 to 39
//! ```
//!
//! Numbers are little-endian.
//!
//! Version 1 has the same fields. Its labels know two classes of bytes (see `record`). A start reads such a log and
//! writes version 2 before the first record that version 1 does not know.

use crate::seal::{self, Seal, u32_at, u64_at};
use weft_core::TargetId;

pub use crate::seal::BadIdentity;

/// Name of the file in the log's directory.
pub(super) const NAME: &str = "weft-fragments";
/// Length of the file in bytes.
pub const LEN: usize = 44;
/// Version that this program writes. It also reads version 1.
pub const VERSION: u32 = 2;
const SEAL: Seal = Seal { magic: b"WEFTFRG\n", version: VERSION };
const SEAL_1: Seal = Seal { magic: b"WEFTFRG\n", version: 1 };

/// Decoded identity file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    /// Number of the target.
    pub target: TargetId,
    /// XXH3-64 of the cluster's name.
    pub cluster: u64,
    /// Random number of the log.
    pub log: u64,
    /// Number of segments.
    pub segments: u32,
    /// Length of a segment in bytes.
    pub segment_len: u32,
}

impl Identity {
    /// Returns the hash that stands for a cluster's name.
    pub fn cluster_hash(name: &str) -> u64 {
        seal::cluster_hash(name)
    }

    /// Encodes the identity.
    pub fn encode(&self) -> [u8; LEN] {
        let mut rest = [0; 16];
        rest[0..8].copy_from_slice(&self.log.to_le_bytes());
        rest[8..12].copy_from_slice(&self.segments.to_le_bytes());
        rest[12..16].copy_from_slice(&self.segment_len.to_le_bytes());
        SEAL.closed(self.target, self.cluster, &rest)
    }

    /// Verifies and decodes an identity of either version.
    ///
    /// # Errors
    /// [`BadIdentity`] when the bytes are damaged or of a later version.
    pub fn decode(bytes: &[u8]) -> Result<Self, BadIdentity> {
        Self::decode_with_version(bytes).map(|(identity, _)| identity)
    }

    /// Verifies and decodes an identity, and returns its version.
    ///
    /// # Errors
    /// As for [`decode`](Self::decode).
    pub fn decode_with_version(bytes: &[u8]) -> Result<(Self, u32), BadIdentity> {
        let (opened, version) = match SEAL.opened::<LEN>(bytes) {
            Err(BadIdentity::Version(1)) => (SEAL_1.opened::<LEN>(bytes)?, 1),
            opened => (opened?, VERSION),
        };
        let (target, cluster, rest) = opened;
        let (log, segments, segment_len) = (u64_at(rest, 0), u32_at(rest, 8), u32_at(rest, 12));
        if u64::from(segments) < super::LogSpec::SEGMENTS_MIN || segment_len < super::LogSpec::SEGMENT_LEN_MIN
        {
            return Err(BadIdentity::Damaged("impossible sizes"));
        }
        Ok((Self { target, cluster, log, segments, segment_len }, version))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Identity {
        let (target, cluster) = (TargetId(0x0102_0304), 0x1122_3344_5566_7788);
        Identity { target, cluster, log: 0x99, segments: 0x100, segment_len: 0x40_0000 }
    }

    fn of_version(version: u8) -> Vec<u8> {
        let mut bytes = b"WEFTFRG\n\x00\0\0\0\x04\x03\x02\x01\x88\x77\x66\x55\x44\x33\x22\x11".to_vec();
        bytes.extend_from_slice(&[0x99, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0x40, 0]);
        bytes[8] = version;
        let crc = crc32fast::hash(&bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
        bytes
    }

    #[test]
    fn golden_bytes() {
        assert_eq!(sample().encode().as_slice(), of_version(2));
        assert_eq!(Identity::decode_with_version(&of_version(2)), Ok((sample(), 2)));
        assert_eq!(Identity::decode_with_version(&of_version(1)), Ok((sample(), 1)));
        assert_eq!(Identity::decode(&of_version(3)), Err(BadIdentity::Version(3)));
    }

    #[test]
    fn any_flipped_bit_or_missing_byte_is_detected() {
        let good = sample().encode();
        for bit in 0..LEN * 8 {
            let mut bad = good;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(Identity::decode(&bad).is_err(), "bit {bit}");
        }
        for len in 0..LEN {
            assert!(Identity::decode(&good[..len]).is_err(), "length {len}");
        }
    }

    #[test]
    fn impossible_sizes_are_rejected() {
        for (segments, segment_len) in [(0, 4 << 20), (7, 4 << 20), (8, 100)] {
            let bytes = Identity { segments, segment_len, ..sample() }.encode();
            assert_eq!(Identity::decode(&bytes), Err(BadIdentity::Damaged("impossible sizes")));
        }
    }
}
