//! The file by which a target tells whose it is.
//!
//! ```text
//! offset size field
//!      0    8 magic    "WEFTTGT\n"
//!      8    4 version  1
//!     12    4 target   its number in the cluster
//!     16    8 cluster  XXH3-64 of the cluster's name
//!     24    8 reserved zero
//!     32    4 crc      CRC-32 of bytes 0 to 31
//! ```
//! Numbers are little-endian.

use crate::seal::{self, Seal};
use weft_core::TargetId;

pub use crate::seal::BadIdentity;

/// Its name under the target's directory.
pub const NAME: &str = "weft-target";
/// Its length in bytes.
pub const LEN: usize = 36;
/// The version that this program writes and knows.
pub const VERSION: u32 = 1;
const SEAL: Seal = Seal { magic: b"WEFTTGT\n", version: VERSION };

/// Whose a target is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    /// Its number in the cluster.
    pub target: TargetId,
    /// Hash of the cluster's name.
    pub cluster: u64,
}

impl Identity {
    /// Of a target of the cluster with this name.
    pub fn new(cluster: &str, target: TargetId) -> Self {
        Self { target, cluster: seal::cluster_hash(cluster) }
    }

    /// As bytes.
    pub fn encode(&self) -> [u8; LEN] {
        SEAL.closed(self.target, self.cluster, &[0; 8])
    }

    /// Checks `bytes` and takes them apart.
    ///
    /// # Errors
    /// Whatever is wrong with them.
    pub fn decode(bytes: &[u8]) -> Result<Self, BadIdentity> {
        let (target, cluster, reserved) = SEAL.opened::<LEN>(bytes)?;
        if reserved != [0; 8] {
            return Err(BadIdentity::Damaged("reserved bytes are in use"));
        }
        Ok(Self { target, cluster })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes() {
        let identity = Identity { target: TargetId(0x0102_0304), cluster: 0x1122_3344_5566_7788 };
        let mut expected = b"WEFTTGT\n\x01\0\0\0\x04\x03\x02\x01\x88\x77\x66\x55\x44\x33\x22\x11".to_vec();
        expected.extend_from_slice(&[0; 8]);
        let crc = crc32fast::hash(&expected);
        expected.extend_from_slice(&crc.to_le_bytes());
        assert_eq!(identity.encode().as_slice(), expected);
        assert_eq!(Identity::decode(&expected), Ok(identity));
    }

    #[test]
    fn any_flipped_bit_and_any_missing_byte_is_noticed() {
        let good = Identity::new("cluster", TargetId(3)).encode();
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
    fn reserved_bytes_in_use_are_refused() {
        let mut bytes = Identity::new("cluster", TargetId(3)).encode();
        bytes[24] = 1;
        let crc = crc32fast::hash(&bytes[..32]);
        bytes[32..].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(Identity::decode(&bytes), Err(BadIdentity::Damaged("reserved bytes are in use")));
    }
}
