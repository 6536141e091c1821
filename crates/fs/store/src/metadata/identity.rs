//! The identity file: cluster of a metadata path, and version of its formats.
//!
//! It is written last when a path is formatted, so a path without it holds nothing.
//!
//! ```text
//! offset size | field
//!      0    8 | magic      "WEFTMETA"
//!      8    4 | version    5
//!     12    2 | name_len   bytes
//!     14    n | name       name of the cluster, UTF-8
//!   14+n   16 | cluster    identity of the cluster, random, chosen when the path was formatted
//!   30+n    1 | origin     1: converted from version 1; otherwise 0
//!   31+n    4 | check      CRC-32 of all bytes before it
//! ```
//!
//! Numbers are little-endian. Version 1 has neither `cluster` nor `origin`. Version 2 has logs of which each frame was synced
//! before the next; it would not find later frames. Version 3 has no inline files. Version 4 has no file `synced`
//! beside the logs. Opening rewrites all as version 5.

use weft_core::ClusterId;

const MAGIC: [u8; 8] = *b"WEFTMETA";
/// Version of the identity file, the log and the rows.
const VERSION: u32 = 5;
/// First version with a file `synced`.
const VERSION_SYNCED: u32 = 5;

/// Identity of a database.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    /// Name of the cluster.
    pub cluster: String,
    /// Identity of the cluster; [`ClusterId::NONE`] in version 1.
    pub id: ClusterId,
    /// True if the database was created in version 1, whose targets have no identities either.
    pub was_version_1: bool,
}

/// Reason why a path does not hold the database of this cluster.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum IdentityError {
    /// The file is damaged, or not an identity file.
    #[error("its identity file is damaged; restore it from a copy of this path")]
    Damaged,
    /// The file has an unsupported version.
    #[error("it has format version {0}, this program version {VERSION}: start the Weft that made it")]
    Version(u32),
    /// The database belongs to another cluster.
    #[error("it belongs to cluster {found:?}, not to {expected:?}: correct the path or the cluster's name")]
    Cluster {
        /// Name of the cluster in the file.
        found: String,
        /// Name of the server's cluster.
        expected: String,
    },
}

impl Identity {
    /// Encodes the file.
    pub fn encode(&self) -> Vec<u8> {
        let name_len = u16::try_from(self.cluster.len()).expect("cluster names are short");
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&name_len.to_le_bytes());
        out.extend_from_slice(self.cluster.as_bytes());
        out.extend_from_slice(&self.id.0.to_le_bytes());
        out.push(u8::from(self.was_version_1));
        let check = crc32fast::hash(&out);
        out.extend_from_slice(&check.to_le_bytes());
        out
    }

    /// Verifies and decodes the file, of any version.
    ///
    /// # Errors
    /// [`IdentityError`] when it is damaged or of a later version.
    pub fn decode(bytes: &[u8]) -> Result<Self, IdentityError> {
        let (rest, check) = bytes.split_last_chunk::<4>().ok_or(IdentityError::Damaged)?;
        if crc32fast::hash(rest) != u32::from_le_bytes(*check) {
            return Err(IdentityError::Damaged);
        }
        let (magic, rest) = rest.split_first_chunk::<8>().ok_or(IdentityError::Damaged)?;
        let (version, rest) = rest.split_first_chunk::<4>().ok_or(IdentityError::Damaged)?;
        if *magic != MAGIC {
            return Err(IdentityError::Damaged);
        }
        let version = u32::from_le_bytes(*version);
        if !(1..=VERSION).contains(&version) {
            return Err(IdentityError::Version(version));
        }
        let (name_len, rest) = rest.split_first_chunk::<2>().ok_or(IdentityError::Damaged)?;
        let name_len = usize::from(u16::from_le_bytes(*name_len));
        let (name, rest) = rest.split_at_checked(name_len).ok_or(IdentityError::Damaged)?;
        let cluster = String::from_utf8(name.to_vec()).map_err(|_| IdentityError::Damaged)?;
        match (version, rest.split_first_chunk::<16>()) {
            (1, None) if rest.is_empty() => Ok(Self { cluster, id: ClusterId::NONE, was_version_1: true }),
            (2..=VERSION, Some((id, [origin @ 0..=1]))) if *id != [0; 16] => {
                let id = ClusterId(u128::from_le_bytes(*id));
                Ok(Self { cluster, id, was_version_1: *origin == 1 })
            }
            _ => Err(IdentityError::Damaged),
        }
    }

    /// Returns true if a valid file is of a version whose logs have a file `synced` beside them.
    pub(super) fn has_synced(bytes: &[u8]) -> bool {
        let version = bytes.get(8..12).and_then(|bytes| bytes.first_chunk()).copied();
        version.is_some_and(|version| u32::from_le_bytes(version) >= VERSION_SYNCED)
    }

    /// Checks that the database belongs to a cluster.
    ///
    /// # Errors
    /// [`IdentityError::Cluster`] if its name is not `cluster`.
    pub fn check(&self, cluster: &str) -> Result<(), IdentityError> {
        if self.cluster == cluster {
            return Ok(());
        }
        Err(IdentityError::Cluster { found: self.cluster.clone(), expected: cluster.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes() {
        let mut expected = b"WEFTMETA\x05\0\0\0\x02\0ab\x07".to_vec();
        expected.extend_from_slice(&[0; 15]);
        expected.push(1);
        let crc = crc32fast::hash(&expected);
        expected.extend_from_slice(&crc.to_le_bytes());
        let identity = Identity { cluster: "ab".into(), id: ClusterId(7), was_version_1: true };
        assert_eq!(identity.encode(), expected);
    }

    #[test]
    fn version_1_is_read() {
        let mut bytes = b"WEFTMETA\x01\0\0\0\x02\0ab".to_vec();
        let crc = crc32fast::hash(&bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
        let read = Identity { cluster: "ab".into(), id: ClusterId::NONE, was_version_1: true };
        assert_eq!(Identity::decode(&bytes), Ok(read));
    }

    #[test]
    fn versions_2_to_4_are_read() {
        let identity = Identity { cluster: "ab".into(), id: ClusterId(7), was_version_1: false };
        assert!(Identity::has_synced(&identity.encode()));
        for version in [2, 3, 4] {
            let mut bytes = identity.encode();
            bytes.truncate(bytes.len() - 4);
            bytes[8] = version;
            let crc = crc32fast::hash(&bytes);
            bytes.extend_from_slice(&crc.to_le_bytes());
            assert_eq!(Identity::decode(&bytes), Ok(identity.clone()));
            assert!(!Identity::has_synced(&bytes));
        }
    }

    #[test]
    fn damage_versions_and_other_clusters_have_distinct_errors() {
        let identity = Identity { cluster: "mine".into(), id: ClusterId(7), was_version_1: false };
        let good = identity.encode();
        assert_eq!(Identity::decode(&good), Ok(identity.clone()));
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Identity::decode(&bad), Err(IdentityError::Damaged), "bit {bit}");
        }
        for cut in 0..good.len() {
            assert_eq!(Identity::decode(&good[..cut]), Err(IdentityError::Damaged), "cut at {cut}");
        }
        let mut newer = good[..good.len() - 4].to_vec();
        newer[8] = 6;
        let crc = crc32fast::hash(&newer);
        newer.extend_from_slice(&crc.to_le_bytes());
        assert_eq!(Identity::decode(&newer), Err(IdentityError::Version(6)));
        assert!(identity.check("other").is_err() && identity.check("mine").is_ok());
    }
}
