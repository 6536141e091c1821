//! The identity file of a target: cluster, number, disk, and the latest attaches.
//!
//! ```text
//! offset size | field
//!      0    8 | magic      "WEFTTGT\n"
//!      8    4 | version    2
//!     12    4 | target     number of the target in the cluster
//!     16    8 | name       XXH3-64 of the cluster's name
//!     24   16 | cluster    identity of the cluster
//!     40   16 | uuid       identity of the disk, random, chosen when it was formatted
//!     56   16 | previous   token recorded by the metadata server when the latest attach began: counter, nonce
//!     72   16 | latest     token of the latest attach: counter, nonce
//!     88    8 | reserved   zero
//!     96    4 | crc        CRC-32 of bytes 0 to 95
//! ```
//!
//! Numbers are little-endian. Once the metadata server has recorded `latest`, `previous` has the same value. Version 1
//! ends after `name` with 8 reserved bytes and the CRC-32; the first attach rewrites it as version 2.

use crate::seal::{self, Seal, u64_at};
use weft_core::{AttachToken, ClusterId, TargetId, TargetUuid};

pub use crate::seal::BadIdentity;

/// Name of the file in the target's directory.
pub const NAME: &str = "weft-target";
/// Length of the file in bytes.
pub const LEN: usize = 100;
/// Length of a version 1 file in bytes.
pub const LEN_1: usize = 36;
/// Version that this program writes.
pub const VERSION: u32 = 2;
const SEAL: Seal = Seal { magic: b"WEFTTGT\n", version: VERSION };
const SEAL_1: Seal = Seal { magic: b"WEFTTGT\n", version: 1 };

/// Decoded identity file of a target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    /// Number of the target in the cluster.
    pub target: TargetId,
    /// XXH3-64 of the cluster's name.
    pub cluster: u64,
    /// Identity of the cluster; [`ClusterId::NONE`] in version 1.
    pub cluster_id: ClusterId,
    /// Identity of the disk; [`TargetUuid::NONE`] in version 1.
    pub uuid: TargetUuid,
    /// Token that the metadata server had recorded when the latest attach began.
    pub previous: AttachToken,
    /// Token of the latest attach. The metadata server has recorded this one, or `previous` if it stopped before
    /// recording.
    pub latest: AttachToken,
}

impl Identity {
    /// Returns a version 1 identity, without cluster and disk identities.
    pub fn new(cluster: &str, target: TargetId) -> Self {
        Self {
            target,
            cluster: seal::cluster_hash(cluster),
            cluster_id: ClusterId::NONE,
            uuid: TargetUuid::NONE,
            previous: AttachToken::NONE,
            latest: AttachToken::NONE,
        }
    }

    /// Encodes the file.
    pub fn encode(&self) -> [u8; LEN] {
        let mut rest = [0; LEN - 28];
        rest[0..16].copy_from_slice(&self.cluster_id.0.to_le_bytes());
        rest[16..32].copy_from_slice(&self.uuid.0.to_le_bytes());
        for (at, token) in [(32, self.previous), (48, self.latest)] {
            rest[at..at + 8].copy_from_slice(&token.counter.to_le_bytes());
            rest[at + 8..at + 16].copy_from_slice(&token.nonce.to_le_bytes());
        }
        SEAL.closed(self.target, self.cluster, &rest)
    }

    /// Verifies and decodes a file of either version.
    ///
    /// # Errors
    /// [`BadIdentity`] when the file is damaged or of a later version.
    pub fn decode(bytes: &[u8]) -> Result<Self, BadIdentity> {
        let reserved = || BadIdentity::Damaged("reserved bytes are in use");
        if bytes.len() == LEN_1 {
            let (target, cluster, rest) = SEAL_1.opened::<LEN_1>(bytes)?;
            if rest != [0; 8] {
                return Err(reserved());
            }
            let (cluster_id, uuid) = (ClusterId::NONE, TargetUuid::NONE);
            let (previous, latest) = (AttachToken::NONE, AttachToken::NONE);
            return Ok(Self { target, cluster, cluster_id, uuid, previous, latest });
        }
        let (target, cluster, rest) = SEAL.opened::<LEN>(bytes)?;
        let id = |at: usize| u128::from_le_bytes(rest[at..at + 16].try_into().expect("16 bytes"));
        let token = |at: usize| AttachToken { counter: u64_at(rest, at), nonce: u64_at(rest, at + 8) };
        if rest[64..] != [0; 8] {
            return Err(reserved());
        }
        let (cluster_id, uuid) = (ClusterId(id(0)), TargetUuid(id(16)));
        Ok(Self { target, cluster, cluster_id, uuid, previous: token(32), latest: token(48) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Identity {
        Identity {
            target: TargetId(0x0102_0304),
            cluster: 0x1122_3344_5566_7788,
            cluster_id: ClusterId(0x0f0e_0d0c_0b0a_0908_0706_0504_0302_0100),
            uuid: TargetUuid(0x10),
            previous: AttachToken { counter: 0x20, nonce: 0x30 },
            latest: AttachToken { counter: 0x40, nonce: 0x50 },
        }
    }

    fn closed(mut bytes: Vec<u8>) -> Vec<u8> {
        let crc = crc32fast::hash(&bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
        bytes
    }

    #[test]
    fn golden_bytes() {
        let mut expected = b"WEFTTGT\n\x02\0\0\0\x04\x03\x02\x01\x88\x77\x66\x55\x44\x33\x22\x11".to_vec();
        expected.extend(0..16u8);
        for number in [0x10u8, 0, 0x20, 0x30, 0x40, 0x50, 0] {
            expected.push(number);
            expected.extend_from_slice(&[0; 7]);
        }
        let expected = closed(expected);
        assert_eq!(sample().encode().as_slice(), expected);
        assert_eq!(Identity::decode(&expected), Ok(sample()));
    }

    #[test]
    fn version_1_is_read() {
        let mut bytes = b"WEFTTGT\n\x01\0\0\0\x04\x03\x02\x01\x88\x77\x66\x55\x44\x33\x22\x11".to_vec();
        bytes.extend_from_slice(&[0; 8]);
        let read = Identity::decode(&closed(bytes)).expect("version 1");
        assert_eq!((read.target, read.cluster), (sample().target, sample().cluster));
        assert!(read.cluster_id.is_none() && read.uuid.is_none());
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
    fn reserved_bytes_in_use_and_later_versions_are_rejected() {
        let mut bytes = sample().encode()[..LEN - 4].to_vec();
        bytes[88] = 1;
        assert_eq!(Identity::decode(&closed(bytes)), Err(BadIdentity::Damaged("reserved bytes are in use")));
        for len in [40, LEN - 4, LEN] {
            let mut bytes = sample().encode().to_vec();
            bytes.resize(len, 0);
            bytes[8] = 3;
            assert_eq!(Identity::decode(&closed(bytes)), Err(BadIdentity::Version(3)), "{len} bytes");
        }
    }
}
