//! The identity file: whose database this is, and the version of its formats. Written last when a path is formatted,
//! so that a path without it holds nothing.
//!
//! ```text
//! offset size field
//!      0    8 magic      "WEFTMETA"
//!      8    4 version    1
//!     12    2 name_len   bytes
//!     14    n name       of the cluster, UTF-8
//!   14+n    4 check      CRC-32 of everything before it
//! ```
//! Numbers are little-endian.

const MAGIC: [u8; 8] = *b"WEFTMETA";
/// Version of the identity file, the log and the rows.
const VERSION: u32 = 1;

/// Whose database it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    /// Name of the cluster.
    pub cluster: String,
}

/// Why a path is not taken for the database of this cluster.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum IdentityError {
    /// The file is not an identity file or was damaged.
    #[error("its identity file is damaged; restore it from a copy of this path")]
    Damaged,
    /// Another version.
    #[error("it has format version {0}, this program version {VERSION}: start the Weft that made it")]
    Version(u32),
    /// Another cluster's.
    #[error("it belongs to cluster {found:?}, not to {expected:?}: correct the path or the cluster's name")]
    Cluster {
        /// Found there.
        found: String,
        /// Of this server.
        expected: String,
    },
}

impl Identity {
    /// The bytes of the file.
    pub fn encode(&self) -> Vec<u8> {
        let name_len = u16::try_from(self.cluster.len()).expect("cluster names are short");
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&name_len.to_le_bytes());
        out.extend_from_slice(self.cluster.as_bytes());
        let check = crc32fast::hash(&out);
        out.extend_from_slice(&check.to_le_bytes());
        out
    }

    /// Takes the bytes of the file apart.
    ///
    /// # Errors
    /// When they are damaged or of another version.
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
        if u32::from_le_bytes(*version) != VERSION {
            return Err(IdentityError::Version(u32::from_le_bytes(*version)));
        }
        let (name_len, name) = rest.split_first_chunk::<2>().ok_or(IdentityError::Damaged)?;
        if name.len() != usize::from(u16::from_le_bytes(*name_len)) {
            return Err(IdentityError::Damaged);
        }
        let cluster = String::from_utf8(name.to_vec()).map_err(|_| IdentityError::Damaged)?;
        Ok(Self { cluster })
    }

    /// Whether `found` is this.
    ///
    /// # Errors
    /// When it is another cluster's.
    pub fn check(&self, found: &Self) -> Result<(), IdentityError> {
        if self == found {
            return Ok(());
        }
        Err(IdentityError::Cluster { found: found.cluster.clone(), expected: self.cluster.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes() {
        let mut expected = b"WEFTMETA\x01\0\0\0\x02\0ab".to_vec();
        let crc = crc32fast::hash(&expected);
        expected.extend_from_slice(&crc.to_le_bytes());
        assert_eq!(Identity { cluster: "ab".into() }.encode(), expected);
    }

    #[test]
    fn damage_versions_and_other_clusters_are_told_apart() {
        let identity = Identity { cluster: "mine".into() };
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
        newer[8] = 2;
        let crc = crc32fast::hash(&newer);
        newer.extend_from_slice(&crc.to_le_bytes());
        assert_eq!(Identity::decode(&newer), Err(IdentityError::Version(2)));
        assert!(identity.check(&Identity { cluster: "other".into() }).is_err());
    }
}
