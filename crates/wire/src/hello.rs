//! Greeting and authentication: the first messages on every connection, before any other is served.
//!
//! On a Unix socket the operating system says who the peer is, and `Hello` / `Welcome` suffice (`proof` is empty).
//! On the network both sides prove that they hold a key without sending it:
//!
//! ```text
//! client -> server  Hello    { identity or server, client_nonce, ... }
//! server -> client  Challenge{ server_nonce, proof = MAC(key, "server" | transcript) }
//! client -> server  Proof    { proof = MAC(key, "client" | transcript) }
//! server -> client  Welcome
//! ```
//! where the transcript is both nonces and the encoded `Hello`. The key of an [`Identity`] is derived from the
//! cluster key, so that a user who has only his own key can be nobody else, and a holder of the cluster key
//! (servers, the administrator) can be anybody. User and groups come from what was proven, never from a request.

use crate::bounded;
use crate::error::WireError;
use serde::{Deserialize, Serialize};
use weft_core::{ClusterId, Nanos, ServerId};

/// The most body bytes of a message of this family: peers that are not yet known are given little room.
pub const BODY_LEN_MAX: u32 = 4096;
/// The most supplementary groups of an [`Identity`]; more are refused when it is decoded.
pub const GROUPS_MAX: usize = 64;

/// A client process. Everything that it has open or locked ends when its last connection ends.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct SessionId(pub u128);

impl std::fmt::Display for SessionId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "session {:08x}", (self.0 >> 96) as u32)
    }
}

/// For whom files are opened.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Identity {
    /// User.
    pub uid: u32,
    /// Primary group.
    pub gid: u32,
    /// Supplementary groups, at most [`GROUPS_MAX`], sorted.
    #[serde(deserialize_with = "bounded::vec::<_, _, GROUPS_MAX>")]
    pub groups: Vec<u32>,
}

impl Identity {
    /// The superuser.
    pub fn root() -> Self {
        Self { uid: 0, gid: 0, groups: Vec::new() }
    }

    /// Whether permission checks do not hold this one back.
    pub fn is_root(&self) -> bool {
        self.uid == 0
    }

    /// Whether `gid` is the primary or a supplementary group.
    pub fn in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }
}

/// Who greets.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Role {
    /// A client process of this identity. On a Unix socket the socket's credentials replace it.
    Client(Identity),
    /// A server of the cluster; it must prove the cluster key, on a Unix socket too.
    Server(ServerId),
}

/// Client to server, first.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Hello {
    /// Name of the cluster that the client means.
    pub cluster: String,
    /// The client process.
    pub session: SessionId,
    /// Number of this connection within the session; a reconnection keeps it. Names the slot in which the metadata
    /// service remembers the last reply.
    pub slot: u32,
    /// Who.
    pub role: Role,
    /// Fresh random bytes.
    pub client_nonce: [u8; 32],
    /// Whether payloads are to carry checksums.
    pub checksums: bool,
    /// Identity of the cluster that the client means; [`ClusterId::NONE`] before it learned it from the metadata server.
    /// A server of another cluster refuses the greeting.
    pub cluster_id: ClusterId,
}

/// Server to client, when a proof is needed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Challenge {
    /// Fresh random bytes.
    pub server_nonce: [u8; 32],
    /// That the server holds the key.
    pub proof: [u8; 32],
}

/// Client to server, when challenged.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Proof {
    /// That the client holds the key.
    pub proof: [u8; 32],
}

/// Server to client, last: from here on requests are served.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Welcome {
    /// Which server answered.
    pub server: ServerId,
    /// Changes with every start of the server, so that a client notices a restart.
    pub incarnation: u64,
    /// Changes with every boot of its machine: what was written and not synced before is lost then.
    pub boot: u64,
    /// How long the server keeps a silent connection; zero for ever.
    pub idle_limit: Nanos,
    /// Whether payloads carry checksums on this connection.
    pub checksums: bool,
    /// Identity of the server's cluster. [`ClusterId::NONE`] from a data server that runs without a metadata server.
    pub cluster_id: ClusterId,
}

/// What a server says to `Hello` or `Proof`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum HelloReply {
    /// Prove it.
    Challenge(Challenge),
    /// Come in.
    Welcome(Welcome),
    /// Go away; the reason tells which key or cluster was expected.
    Refused(WireError),
}

/// Which side proves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// The one that connected.
    Client,
    /// The one that listened.
    Server,
}

/// The proof of one side that it holds `key`.
pub fn prove(key: &[u8; 32], side: Side, hello: &Hello, server_nonce: &[u8; 32]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new_keyed(key);
    hasher.update(match side {
        Side::Client => b"client".as_slice(),
        Side::Server => b"server".as_slice(),
    });
    hasher.update(server_nonce);
    hasher.update(&postcard::to_allocvec(hello).expect("a greeting always encodes"));
    *hasher.finalize().as_bytes()
}

/// Whether `proof` is that of `side`; compares in constant time.
pub fn proof_holds(
    key: &[u8; 32],
    side: Side,
    hello: &Hello,
    server_nonce: &[u8; 32],
    proof: &[u8; 32],
) -> bool {
    blake3::Hash::from(prove(key, side, hello, server_nonce)) == blake3::Hash::from(*proof)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_holds_only_for_its_key_side_and_transcript() {
        let hello = Hello {
            cluster: "c".into(),
            session: SessionId(1),
            slot: 0,
            role: Role::Client(Identity { uid: 1, gid: 2, groups: vec![] }),
            client_nonce: [3; 32],
            checksums: true,
            cluster_id: ClusterId(4),
        };
        let (key, nonce) = ([1; 32], [2; 32]);
        let proof = prove(&key, Side::Client, &hello, &nonce);
        assert!(proof_holds(&key, Side::Client, &hello, &nonce, &proof));
        assert!(!proof_holds(&[9; 32], Side::Client, &hello, &nonce, &proof));
        assert!(!proof_holds(&key, Side::Server, &hello, &nonce, &proof), "no reflection");
        assert!(!proof_holds(&key, Side::Client, &hello, &[9; 32], &proof), "no replay");
        let other = Hello { role: Role::Client(Identity { uid: 0, gid: 0, groups: vec![] }), ..hello };
        assert!(!proof_holds(&key, Side::Client, &other, &nonce, &proof), "no other identity");
    }
}
