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

use weft_core::TargetId;

/// Its name under the log's directory.
pub(super) const NAME: &str = "weft-fragments";
/// Its length in bytes.
pub const LEN: usize = 44;
/// The version that this program writes and knows.
pub const VERSION: u32 = 1;
const MAGIC: &[u8; 8] = b"WEFTFRG\n";

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

/// Why bytes are no identity.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BadIdentity {
    /// They are damaged.
    Damaged(&'static str),
    /// They are of another version.
    Version(u32),
}

impl Identity {
    /// The hash by which a cluster's name is kept.
    pub fn cluster_hash(name: &str) -> u64 {
        xxhash_rust::xxh3::xxh3_64(name.as_bytes())
    }

    /// As bytes.
    pub fn encode(&self) -> [u8; LEN] {
        let mut out = [0; LEN];
        out[0..8].copy_from_slice(MAGIC);
        out[8..12].copy_from_slice(&VERSION.to_le_bytes());
        out[12..16].copy_from_slice(&self.target.0.to_le_bytes());
        out[16..24].copy_from_slice(&self.cluster.to_le_bytes());
        out[24..32].copy_from_slice(&self.log.to_le_bytes());
        out[32..36].copy_from_slice(&self.segments.to_le_bytes());
        out[36..40].copy_from_slice(&self.segment_len.to_le_bytes());
        let crc = crc32fast::hash(&out[..40]);
        out[40..44].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Checks `bytes` and takes them apart.
    ///
    /// # Errors
    /// Whatever is wrong with them.
    pub fn decode(bytes: &[u8]) -> Result<Self, BadIdentity> {
        let bytes: &[u8; LEN] = bytes.try_into().map_err(|_| BadIdentity::Damaged("wrong length"))?;
        let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        if &bytes[0..8] != MAGIC {
            return Err(BadIdentity::Damaged("wrong magic bytes"));
        }
        if crc32fast::hash(&bytes[..40]) != u32_at(40) {
            return Err(BadIdentity::Damaged("wrong checksum"));
        }
        if u32_at(8) != VERSION {
            return Err(BadIdentity::Version(u32_at(8)));
        }
        let (segments, segment_len) = (u32_at(32), u32_at(36));
        if u64::from(segments) < super::LogSpec::SEGMENTS_MIN || segment_len < super::LogSpec::SEGMENT_LEN_MIN
        {
            return Err(BadIdentity::Damaged("sizes that no log has"));
        }
        Ok(Self { target: TargetId(u32_at(12)), cluster: u64_at(16), log: u64_at(24), segments, segment_len })
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
