//! Capabilities: what the metadata service lets a client do with one file, as data servers can verify it.
//!
//! Knowing a file id opens nothing: every data request carries a capability whose MAC only the servers of the
//! cluster can make. The MAC covers the session for which the capability was made, and with it the session's owner
//! ([`BoundSession`]): sent by another session, or by the same session of another identity, it is refused.

use crate::keys::{ClusterSecret, MacUse};
use crate::session::BoundSession;
use serde::{Deserialize, Serialize};
use weft_core::{FileId, Integrity, Timestamp};

/// What a capability allows.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Rights(pub u8);

impl Rights {
    /// Bytes may be read.
    pub const READ: Self = Self(1);
    /// Bytes may be written, and datafiles cut and extended.
    pub const WRITE: Self = Self(2);
    /// Only lengths may be asked for.
    pub const LENGTH: Self = Self(4);
    /// The datafiles may be watched and given up for others: what moves a file to another layout needs.
    pub const MOVE: Self = Self(8);

    /// Datafiles that are made get checksums, whatever the target's setting is.
    pub const CRC32C: Self = Self(16);
    /// Datafiles that are made get no checksums, whatever the target's setting is.
    pub const UNCHECKED: Self = Self(32);

    /// The right that stands for a file's setting of checksums at rest; none leaves it to the targets.
    pub const fn of_integrity(integrity: Option<Integrity>) -> Self {
        match integrity {
            None => Self(0),
            Some(Integrity::Crc32c) => Self::CRC32C,
            Some(Integrity::Off) => Self::UNCHECKED,
        }
    }

    /// The file's setting of checksums at rest; `None` leaves it to the targets.
    pub const fn integrity(self) -> Option<Integrity> {
        if self.allow(Self::CRC32C) {
            Some(Integrity::Crc32c)
        } else if self.allow(Self::UNCHECKED) {
            Some(Integrity::Off)
        } else {
            None
        }
    }

    /// What was found of the file's size and times may be settled ([`crate::meta::MetaRequest::Settle`]).
    pub const SETTLE: Self = Self(64);

    /// Both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all of `needed` are held.
    pub const fn allow(self, needed: Self) -> bool {
        self.0 & needed.0 == needed.0
    }
}

/// A right of one session to one file until a time, with a MAC over all of it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Capability {
    /// On this file, as the generation of its datafiles that the file has at the time.
    pub file: FileId,
    /// To do this.
    pub rights: Rights,
    /// Until this time of the servers' clocks, in seconds since 1970.
    pub expires_s: u64,
    /// First 16 bytes of BLAKE3, keyed, over the fields above and the session.
    pub mac: [u8; 16],
}

impl ClusterSecret {
    /// Makes a capability of `session`.
    pub fn grant(&self, session: BoundSession, file: FileId, rights: Rights, expires_s: u64) -> Capability {
        let mac = self.mac(MacUse::Capability, &covered(session, file, rights, expires_s));
        Capability { file, rights, expires_s, mac }
    }

    /// Whether `cap` was made with this secret for `session`, is for `file`, allows `needed` and has not expired at `now`.
    pub fn verify(
        &self,
        session: BoundSession,
        cap: &Capability,
        file: FileId,
        needed: Rights,
        now: Timestamp,
    ) -> bool {
        self.mac_holds(MacUse::Capability, &covered(session, cap.file, cap.rights, cap.expires_s), &cap.mac)
            && cap.file == file
            && cap.rights.allow(needed)
            && i128::from(cap.expires_s) * 1_000_000_000 > now.0
    }
}

/// What the MAC covers.
fn covered(session: BoundSession, file: FileId, rights: Rights, expires_s: u64) -> [u8; 33] {
    let mut bytes = [0; 33];
    bytes[0..8].copy_from_slice(&file.0.to_le_bytes());
    bytes[8] = rights.0;
    bytes[9..17].copy_from_slice(&expires_s.to_le_bytes());
    bytes[17..33].copy_from_slice(&session.0.to_le_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const SESSION: BoundSession = BoundSession(3);

    #[test]
    fn integrity_is_told_by_the_rights() {
        for integrity in [None, Some(Integrity::Off), Some(Integrity::Crc32c)] {
            let rights = Rights::READ.and(Rights::LENGTH).and(Rights::of_integrity(integrity));
            assert_eq!(rights.integrity(), integrity);
            assert!(rights.allow(Rights::READ) && !rights.allow(Rights::WRITE));
        }
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
        let forged = Capability { expires_s: 1000, ..cap };
        assert!(!secret.verify(SESSION, &forged, FileId(5), Rights::READ, at(99)), "prolonged");
    }
}
