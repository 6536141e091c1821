//! Capabilities: permissions of a client on one file that data servers can verify.
//!
//! Knowledge of a file id grants nothing. Every data request carries a capability whose MAC only the servers of the
//! cluster can compute. The MAC covers the session that received the capability, and thereby the session's owner
//! ([`BoundSession`]). A server rejects the capability from another session, or from the same session id under another
//! identity.

use crate::keys::{ClusterSecret, MacUse};
use crate::session::BoundSession;
use serde::{Deserialize, Serialize};
use weft_core::{ByteLen, Compression, FileId, Integrity, Timestamp};

/// Operations that a capability allows, and the settings of the file that data servers must know.
///
/// | bits | contents |
/// | --- | --- |
/// | 0 to 3, 6 | operations |
/// | 4, 5 | checksums at rest |
/// | 8 to 16 | [compression](Self::compression) |
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Rights(pub u32);

impl Rights {
    /// Read bytes.
    pub const READ: Self = Self(1);
    /// Write bytes; cut and extend datafiles.
    pub const WRITE: Self = Self(2);
    /// Query lengths only.
    pub const LENGTH: Self = Self(4);
    /// Watch and seal datafiles, for a move of the file to another layout.
    pub const MOVE: Self = Self(8);

    /// Create datafiles with checksums, whatever the target's setting is.
    pub const CRC32C: Self = Self(16);
    /// Create datafiles without checksums, whatever the target's setting is.
    pub const UNCHECKED: Self = Self(32);

    /// Returns the right that represents a file's setting of checksums at rest; no right leaves it to the targets.
    pub const fn of_integrity(integrity: Option<Integrity>) -> Self {
        match integrity {
            None => Self(0),
            Some(Integrity::Crc32c) => Self::CRC32C,
            Some(Integrity::Off) => Self::UNCHECKED,
        }
    }

    /// Returns the file's setting of checksums at rest; `None` leaves it to the targets.
    pub const fn integrity(self) -> Option<Integrity> {
        if self.allow(Self::CRC32C) {
            Some(Integrity::Crc32c)
        } else if self.allow(Self::UNCHECKED) {
            Some(Integrity::Off)
        } else {
            None
        }
    }

    /// Lowest bit of the compression.
    const COMPRESSION_SHIFT: u32 = 8;
    /// Maximum number that stands for a compression.
    const COMPRESSION_MAX: u32 = 511;

    /// Returns the rights that represent a file's compression; none for a file without.
    pub const fn of_compression(compression: Option<Compression>) -> Self {
        match compression {
            None => Self(0),
            Some(compression) => Self((compression.encode() as u32) << Self::COMPRESSION_SHIFT),
        }
    }

    /// Returns the file's compression; `None` for a file without.
    pub fn compression(self) -> Option<Compression> {
        // Data requests of files without compression pay one test.
        match (self.0 >> Self::COMPRESSION_SHIFT) & Self::COMPRESSION_MAX {
            0 => None,
            code => Compression::decode(code as u16),
        }
    }

    /// Store the measured size and times of the file.
    pub const VALIDATE_SIZE: Self = Self(64);

    /// Returns the union of both sets of rights.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether the rights include all of `needed`.
    pub const fn allow(self, needed: Self) -> bool {
        self.0 & needed.0 == needed.0
    }
}

/// Limit of a quota on the length of a file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct WriteLimit {
    /// Length with which the file is charged. A client asks for more before it writes behind that.
    pub file_len: ByteLen,
    /// Maximum length of any datafile of a file of that length. Data servers, which know no stripes, refuse bytes behind it.
    pub datafile_len: ByteLen,
}

/// Rights of one session on one file until a point in time, authenticated by a MAC.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Capability {
    /// File, with the current generation of its datafiles.
    pub file: FileId,
    /// Rights.
    pub rights: Rights,
    /// Expiry by the servers' clocks, in seconds since 1970.
    pub expires_s: u64,
    /// Length up to which the file may be written, if a quota limits that.
    pub limit: Option<WriteLimit>,
    /// First 16 bytes of keyed BLAKE3 over the fields above and the session.
    pub mac: [u8; 16],
}

impl ClusterSecret {
    /// Grants a capability to `session`.
    pub fn grant(&self, session: BoundSession, file: FileId, rights: Rights, expires_s: u64) -> Capability {
        self.seal(session, Capability { file, rights, expires_s, limit: None, mac: [0; 16] })
    }

    /// Grants a copy of `cap` under which the file may be written up to a limit.
    pub fn limit(&self, session: BoundSession, cap: &Capability, limit: WriteLimit) -> Capability {
        self.seal(session, Capability { limit: Some(limit), ..*cap })
    }

    fn seal(&self, session: BoundSession, cap: Capability) -> Capability {
        Capability { mac: self.mac(MacUse::Capability, &covered(session, &cap)), ..cap }
    }

    /// Whether `cap` is authentic, belongs to `session` and `file`, includes `needed`, and has not expired at `now`.
    pub fn verify(
        &self,
        session: BoundSession,
        cap: &Capability,
        file: FileId,
        needed: Rights,
        now: Timestamp,
    ) -> bool {
        self.mac_holds(MacUse::Capability, &covered(session, cap), &cap.mac)
            && cap.file == file
            && cap.rights.allow(needed)
            && i128::from(cap.expires_s) * 1_000_000_000 > now.0
    }
}

/// Returns the bytes that the MAC covers.
fn covered(session: BoundSession, cap: &Capability) -> [u8; 53] {
    let mut bytes = [0; 53];
    bytes[0..8].copy_from_slice(&cap.file.0.to_le_bytes());
    bytes[8..12].copy_from_slice(&cap.rights.0.to_le_bytes());
    bytes[12..20].copy_from_slice(&cap.expires_s.to_le_bytes());
    bytes[20..36].copy_from_slice(&session.0.to_le_bytes());
    if let Some(limit) = cap.limit {
        bytes[36] = 1;
        bytes[37..45].copy_from_slice(&limit.file_len.0.to_le_bytes());
        bytes[45..53].copy_from_slice(&limit.datafile_len.0.to_le_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const SESSION: BoundSession = BoundSession(3);

    #[test]
    fn rights_encode_integrity() {
        for integrity in [None, Some(Integrity::Off), Some(Integrity::Crc32c)] {
            let rights = Rights::READ.and(Rights::LENGTH).and(Rights::of_integrity(integrity));
            assert_eq!(rights.integrity(), integrity);
            assert!(rights.allow(Rights::READ) && !rights.allow(Rights::WRITE));
        }
    }

    #[test]
    fn rights_encode_compression() {
        for text in ["lz4/16KiB", "auto/1024KiB", "zstd:19/64KiB"] {
            let compression = text.parse().expect("a setting");
            let rights = Rights::READ.and(Rights::CRC32C).and(Rights::of_compression(Some(compression)));
            assert_eq!(rights.compression(), Some(compression));
            assert_eq!(rights.integrity(), Some(Integrity::Crc32c));
            assert!(rights.allow(Rights::READ) && !rights.allow(Rights::WRITE));
            assert!(!rights.allow(Rights::VALIDATE_SIZE));
        }
        assert_eq!(Rights::of_compression(None), Rights(0));
        assert_eq!(Rights(0xff).compression(), None);
        // Numbers that stand for no setting, as of a later version.
        assert_eq!(Rights(28 << 8).compression(), None);
    }

    #[test]
    fn only_the_granted_session_file_rights_and_time_pass() {
        let secret = ClusterSecret::new(&[7; 32]);
        let cap = secret.grant(SESSION, FileId(5), Rights::READ, 100);
        let at = |s: i64| Timestamp::from_parts(s, 0);
        assert!(secret.verify(SESSION, &cap, FileId(5), Rights::READ, at(99)));
        assert!(!secret.verify(SESSION, &cap, FileId(6), Rights::READ, at(99)), "another file");
        assert!(!secret.verify(SESSION, &cap, FileId(5), Rights::WRITE, at(99)), "another right");
        assert!(!secret.verify(SESSION, &cap, FileId(5), Rights::READ, at(100)), "expired");
        assert!(
            !ClusterSecret::new(&[8; 32]).verify(SESSION, &cap, FileId(5), Rights::READ, at(99)),
            "another cluster"
        );
        let other = BoundSession(SESSION.0 ^ 1 << 127);
        assert!(!secret.verify(other, &cap, FileId(5), Rights::READ, at(99)), "another session");
        let forged = Capability { rights: Rights::READ.and(Rights::WRITE), ..cap };
        assert!(!secret.verify(SESSION, &forged, FileId(5), Rights::WRITE, at(99)), "widened");
        let forged = Capability { rights: Rights::READ.and(Rights::UNCHECKED), ..cap };
        assert!(!secret.verify(SESSION, &forged, FileId(5), Rights::READ, at(99)), "another integrity");
        let compression = Rights::of_compression("lz4".parse().ok());
        let forged = Capability { rights: Rights::READ.and(compression), ..cap };
        assert!(!secret.verify(SESSION, &forged, FileId(5), Rights::READ, at(99)), "another compression");
        let limit = |file, datafile| WriteLimit { file_len: ByteLen(file), datafile_len: ByteLen(datafile) };
        let limited = secret.limit(SESSION, &cap, limit(0, 0));
        assert!(secret.verify(SESSION, &limited, FileId(5), Rights::READ, at(99)));
        for other in [None, Some(limit(1, 0)), Some(limit(0, 1))] {
            let forged = Capability { limit: other, ..limited };
            assert!(
                !secret.verify(SESSION, &forged, FileId(5), Rights::READ, at(99)),
                "another limit: {other:?}"
            );
        }
        let forged = Capability { expires_s: 1000, ..cap };
        assert!(!secret.verify(SESSION, &forged, FileId(5), Rights::READ, at(99)), "prolonged");
    }
}
