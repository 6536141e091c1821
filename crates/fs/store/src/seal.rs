//! Common layout of identity files.
//!
//! ```text
//! offset size | field
//!      0    8 | magic
//!      8    4 | version
//!     12    4 | target   number of the target in the cluster
//!     16    8 | cluster  XXH3-64 of the cluster's name
//!     24    n |          further fields
//!   24+n    4 | crc      CRC-32 of all bytes before it
//! ```
//!
//! Numbers are little-endian.

use weft_core::TargetId;

/// Reason why bytes are not a valid identity file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BadIdentity {
    /// The bytes are damaged.
    Damaged(&'static str),
    /// The file has an unsupported version.
    Version(u32),
}

/// Magic bytes and version of a kind of identity file.
pub struct Seal {
    /// Magic bytes.
    pub magic: &'static [u8; 8],
    /// Version that this program writes and reads.
    pub version: u32,
}

/// Returns the hash that stands for a cluster's name.
pub fn cluster_hash(name: &str) -> u64 {
    xxhash_rust::xxh3::xxh3_64(name.as_bytes())
}

impl Seal {
    /// Encodes a file; `rest` are the fields before the checksum.
    ///
    /// # Panics
    /// When `LEN` does not match the length of `rest`.
    pub fn closed<const LEN: usize>(&self, target: TargetId, cluster: u64, rest: &[u8]) -> [u8; LEN] {
        let mut out = [0; LEN];
        out[0..8].copy_from_slice(self.magic);
        out[8..12].copy_from_slice(&self.version.to_le_bytes());
        out[12..16].copy_from_slice(&target.0.to_le_bytes());
        out[16..24].copy_from_slice(&cluster.to_le_bytes());
        out[24..LEN - 4].copy_from_slice(rest);
        let crc = crc32fast::hash(&out[..LEN - 4]);
        out[LEN - 4..].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Verifies a file. Returns its target, the hash of its cluster's name, and the fields before the checksum.
    ///
    /// # Errors
    /// [`BadIdentity`] names the defect.
    pub fn opened<'a, const LEN: usize>(
        &self,
        bytes: &'a [u8],
    ) -> Result<(TargetId, u64, &'a [u8]), BadIdentity> {
        let Some((rest, crc)) = bytes.split_last_chunk::<4>().filter(|(rest, _)| rest.len() >= 24) else {
            return Err(BadIdentity::Damaged("wrong length"));
        };
        if &rest[0..8] != self.magic {
            return Err(BadIdentity::Damaged("wrong magic bytes"));
        }
        if crc32fast::hash(rest) != u32::from_le_bytes(*crc) {
            return Err(BadIdentity::Damaged("wrong checksum"));
        }
        // Checked before the length, because a later version may have another one.
        if u32_at(rest, 8) != self.version {
            return Err(BadIdentity::Version(u32_at(rest, 8)));
        }
        let bytes: &[u8; LEN] = bytes.try_into().map_err(|_| BadIdentity::Damaged("wrong length"))?;
        Ok((TargetId(u32_at(bytes, 12)), u64_at(bytes, 16), &bytes[24..LEN - 4]))
    }
}

/// Returns the little-endian number at offset `at`.
pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// Returns the little-endian number at offset `at`.
pub fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}
