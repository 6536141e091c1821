//! The file by which a log tells whose it is, and how large its parts are.
//!
//! ```text
//! offset size field
//!      0    8 magic       "WEFTFRG\n"
//!      8    4 version     1
//!     12    4 target      the number of its target in the cluster
//!     16    8 cluster     XXH3-64 of the cluster's name
//!     24    8 log         a random number: frames of the journal are mixed with it
//!     32    4 segments    how many
//!     36    4 segment_len bytes
//!     40    4 crc         CRC-32 of bytes 0 to 39
//! ```
//! Numbers are little-endian.

use crate::seal::{self, Seal, u32_at, u64_at};
use weft_core::TargetId;

pub use crate::seal::BadIdentity;

/// Its name under the log's directory.
pub(super) const NAME: &str = "weft-fragments";
/// Its length in bytes.
pub const LEN: usize = 44;
/// The version that this program writes and knows.
pub const VERSION: u32 = 1;
const SEAL: Seal = Seal { magic: b"WEFTFRG\n", version: VERSION };

/// Whose a log is, and its sizes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    /// The number of its target.
    pub target: TargetId,
    /// Hash of the cluster's name.
    pub cluster: u64,
    /// A random number.
    pub log: u64,
    /// How many segments.
    pub segments: u32,
    /// Their length in bytes.
    pub segment_len: u32,
}

impl Identity {
    /// The hash by which a cluster's name is kept.
    pub fn cluster_hash(name: &str) -> u64 {
        seal::cluster_hash(name)
    }

    /// As bytes.
    pub fn encode(&self) -> [u8; LEN] {
        let mut rest = [0; 16];
        rest[0..8].copy_from_slice(&self.log.to_le_bytes());
        rest[8..12].copy_from_slice(&self.segments.to_le_bytes());
        rest[12..16].copy_from_slice(&self.segment_len.to_le_bytes());
        SEAL.closed(self.target, self.cluster, &rest)
    }

    /// Checks `bytes` and takes them apart.
    ///
    /// # Errors
    /// Whatever is wrong with them.
    pub fn decode(bytes: &[u8]) -> Result<Self, BadIdentity> {
        let (target, cluster, rest) = SEAL.opened::<LEN>(bytes)?;
        let (log, segments, segment_len) = (u64_at(rest, 0), u32_at(rest, 8), u32_at(rest, 12));
        if u64::from(segments) < super::LogSpec::SEGMENTS_MIN || segment_len < super::LogSpec::SEGMENT_LEN_MIN
        {
            return Err(BadIdentity::Damaged("sizes that no log has"));
        }
        Ok(Self { target, cluster, log, segments, segment_len })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Identity {
        let (target, cluster) = (TargetId(0x0102_0304), 0x1122_3344_5566_7788);
        Identity { target, cluster, log: 0x99, segments: 0x100, segment_len: 0x40_0000 }
    }

    #[test]
    fn golden_bytes() {
        let mut expected = b"WEFTFRG\n\x01\0\0\0\x04\x03\x02\x01\x88\x77\x66\x55\x44\x33\x22\x11".to_vec();
        expected.extend_from_slice(&[0x99, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0x40, 0]);
        let crc = crc32fast::hash(&expected);
        expected.extend_from_slice(&crc.to_le_bytes());
        assert_eq!(sample().encode().as_slice(), expected);
        assert_eq!(Identity::decode(&expected), Ok(sample()));
    }

    #[test]
    fn any_flipped_bit_and_any_missing_byte_is_noticed() {
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
    fn sizes_that_no_log_has_are_refused() {
        for (segments, segment_len) in [(0, 4 << 20), (7, 4 << 20), (8, 100)] {
            let bytes = Identity { segments, segment_len, ..sample() }.encode();
            assert_eq!(Identity::decode(&bytes), Err(BadIdentity::Damaged("sizes that no log has")));
        }
    }
}
