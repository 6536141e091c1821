//! Sessions as servers know them, and proofs that a session reached an inode.
//!
//! ```text
//! SessionId     random, made by the client, known to it and to the servers that it greets
//! SessionName   first 16 bytes of BLAKE3 over the id: names a session in requests of another session
//! BoundSession  first 16 bytes of BLAKE3 over name and owner: the key of all session state on servers
//! ```
//! A server computes the bound session from the identity that the peer has proven. The same id under another identity
//! is therefore another session. It has no access to the stored replies, opens, locks and events of the first one,
//! whose capabilities and walk proofs are invalid for it.

use crate::hello::SessionId;
use crate::keys::{ClusterSecret, MacUse};
use serde::{Deserialize, Serialize};
use weft_core::{FileId, Nanos};

/// Longest time for which a client repeats a request to a server that does not answer. Servers keep what they need to
/// recognize a repetition for longer.
pub const RETRY_FOR_MAX: Nanos = Nanos::from_s(3600);

/// Identity that opened a session.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SessionOwner {
    /// User that the peer proved or that the operating system reported. A mount that acts for several users has one
    /// owner: the identity of its own connections.
    pub uid: u32,
    /// Whether the peer has proven to be a server.
    pub is_server: bool,
}

/// Public name of a session, from which the id cannot be computed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SessionName(pub u128);

/// Session together with its owner.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BoundSession(pub u128);

impl std::fmt::Display for BoundSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "session {:08x}", (self.0 >> 96) as u32)
    }
}

fn first_half(hash: [u8; 32]) -> u128 {
    u128::from_le_bytes(hash[..16].try_into().expect("sixteen bytes"))
}

impl SessionId {
    /// Returns the session's name.
    pub fn name(self) -> SessionName {
        SessionName(first_half(blake3::derive_key("weft 2026 session name", &self.0.to_le_bytes())))
    }

    /// Returns the session as servers know it when `owner` opens it.
    pub fn bound_to(self, owner: SessionOwner) -> BoundSession {
        self.name().bound_to(owner)
    }
}

impl SessionName {
    /// Returns the session of this name as servers know it when `owner` has opened it.
    pub fn bound_to(self, owner: SessionOwner) -> BoundSession {
        let mut bytes = [0; 21];
        bytes[0..16].copy_from_slice(&self.0.to_le_bytes());
        bytes[16..20].copy_from_slice(&owner.uid.to_le_bytes());
        bytes[20] = u8::from(owner.is_server);
        BoundSession(first_half(blake3::derive_key("weft 2026 bound session", &bytes)))
    }
}

/// Proof that a session reached an inode by a walk on which it had search permission for every directory.
///
/// The proof consists of the first 16 bytes of keyed BLAKE3 over inode number and bound session. It contains no path
/// and does not expire. Like an open directory of a local file system, it stays valid when the inode is renamed or a
/// directory above it becomes inaccessible.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WalkProof(pub [u8; 16]);

impl ClusterSecret {
    /// Proves that `session` reached the inode of `file`.
    pub fn prove_walk(&self, file: FileId, session: BoundSession) -> WalkProof {
        WalkProof(self.mac(MacUse::Walk, &covered(file, session)))
    }

    /// Whether `proof` was made with this secret for the inode of `file` and `session`.
    pub fn walk_holds(&self, proof: &WalkProof, file: FileId, session: BoundSession) -> bool {
        self.mac_holds(MacUse::Walk, &covered(file, session), &proof.0)
    }
}

/// Returns the bytes that the MAC of a walk proof covers.
fn covered(file: FileId, session: BoundSession) -> [u8; 24] {
    let mut bytes = [0; 24];
    bytes[0..8].copy_from_slice(&file.inode().0.to_le_bytes());
    bytes[8..24].copy_from_slice(&session.0.to_le_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALICE: SessionOwner = SessionOwner { uid: 1000, is_server: false };

    #[test]
    fn a_session_of_another_owner_is_another_session() {
        let id = SessionId(7);
        let bound = id.bound_to(ALICE);
        assert_eq!(bound, id.name().bound_to(ALICE));
        assert_ne!(bound, SessionId(8).bound_to(ALICE), "another id");
        assert_ne!(bound, id.bound_to(SessionOwner { uid: 1001, ..ALICE }), "another user");
        assert_ne!(bound, id.bound_to(SessionOwner { is_server: true, ..ALICE }), "a server");
        assert_ne!(id.name().0, id.0, "the name does not reveal the id");
    }

    #[test]
    fn a_walk_proof_holds_for_its_inode_session_and_cluster_only() {
        let secret = ClusterSecret::new(&[7; 32]);
        let session = SessionId(7).bound_to(ALICE);
        let proof = secret.prove_walk(FileId(5), session);
        assert!(secret.walk_holds(&proof, FileId(5), session));
        assert!(secret.walk_holds(&proof, FileId(5).of_generation(3), session), "the same inode");
        assert!(!secret.walk_holds(&proof, FileId(6), session), "another inode");
        assert!(!secret.walk_holds(&proof, FileId(5), SessionId(8).bound_to(ALICE)), "another session");
        let other = SessionId(7).bound_to(SessionOwner { uid: 1001, ..ALICE });
        assert!(!secret.walk_holds(&proof, FileId(5), other), "another user");
        assert!(!ClusterSecret::new(&[8; 32]).walk_holds(&proof, FileId(5), session), "another cluster");
        for bit in 0..128 {
            let mut altered = proof;
            altered.0[bit / 8] ^= 1 << (bit % 8);
            assert!(!secret.walk_holds(&altered, FileId(5), session), "bit {bit}");
        }
    }
}
