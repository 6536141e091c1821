//! Greeting and authentication: the first messages on every connection, before any other is served.
//!
//! On a Unix socket the operating system says who a client is, and `Hello` / `Welcome` suffice. On the network both sides
//! prove that they hold a key without sending it, and agree on keys for this one connection:
//!
//! ```text
//! client -> server  Hello    { names, Keyed(first Noise message) }
//! server -> client  Challenge(second Noise message)
//! client -> server  Opening  encrypted
//! server -> client  Welcome  encrypted
//! ```
//! The [`Names`] travel in clear and are the prologue of the handshake: a change to any of them makes it fail. Everything
//! else, the session's id among it, travels encrypted under the fresh keys. From then on every message carries a MAC; see
//! [`secure`](crate::secure).
//!
//! The names include the claims of the client's key, which say whom it is for ([`keys`](crate::keys)). User and groups come
//! from what was proven, never from a request. A peer that claims to be a server proves it on a Unix socket too; there the
//! messages after the greeting carry no MAC.

use crate::bounded;
use crate::error::WireError;
use crate::keys::KeyClaims;
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

/// Protection of the messages on a connection, from the least to the most.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug, Serialize, Deserialize)]
pub enum Security {
    /// None: the operating system keeps others away from the connection, as it does with Unix sockets.
    None,
    /// Every message carries a MAC; its contents can be read on the way.
    #[default]
    Mac,
    /// Bodies and payloads are encrypted as well.
    Encrypt,
}

/// Both ends of a connection as the client means them. Sent in clear; the handshake fails if a name is changed on the way.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Names {
    /// Name of the cluster that the client means.
    pub cluster: String,
    /// Identity of the cluster that the client means; [`ClusterId::NONE`] before it learned it from the metadata server.
    /// A server of another cluster refuses the greeting.
    pub cluster_id: ClusterId,
    /// Name of the server that the client means. Another server refuses the greeting.
    pub server: String,
    /// The client.
    pub role: Role,
    /// What the client's key stands for; `None` where the credentials of a Unix socket take its place.
    pub key: Option<KeyClaims>,
}

/// Client to server, first.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Hello {
    /// Both ends.
    pub names: Names,
    /// How the client is authenticated.
    pub means: Means,
}

/// How a client is authenticated.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Means {
    /// By the credentials of its Unix socket.
    Credentials(Opening),
    /// By the key of its role. The opening follows when server and client have proven that they hold it.
    Key(Exchange),
}

/// One message of the Noise handshake.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Exchange {
    /// Public key for this one connection.
    pub ephemeral: [u8; 32],
    /// Proof that the sender holds the key and means the same names.
    pub tag: [u8; 16],
}

/// Client to server: the session that a connection belongs to, and how messages are to travel.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Opening {
    /// The client process.
    pub session: SessionId,
    /// Number of this connection within the session; a reconnection keeps it. Names the slot in which the metadata
    /// service remembers the last reply.
    pub slot: u32,
    /// Whether payloads are to carry checksums. A MAC takes their place.
    pub checksums: bool,
    /// The least protection that the client accepts.
    pub security: Security,
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
    /// How messages are protected from here on: the client's wish or the server's setting, whichever is more.
    pub security: Security,
}

/// What a server says to `Hello` or `Opening`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum HelloReply {
    /// The second message of the handshake.
    Challenge(Exchange),
    /// Come in.
    Welcome(Welcome),
    /// Go away; the reason tells which key or cluster was expected.
    Refused(WireError),
}
