//! Greeting and authentication: the first messages on every connection, before the server serves any other.
//!
//! On a Unix socket the operating system identifies the client, so `Hello` and `Welcome` suffice. On the network both
//! sides prove that they hold a key without sending it, and derive keys for this one connection:
//!
//! ```text
//! client -> server  Hello    { names, Keyed(first Noise message) }
//! server -> client  Challenge(second Noise message)
//! client -> server  Opening  encrypted
//! server -> client  Welcome  encrypted
//! ```
//! The [`Names`] travel in clear text. They are the prologue of the handshake, so that a change to any of them makes it
//! fail. Everything else, including the session id, is encrypted with the fresh keys. Every later message carries a
//! MAC; see [`secure`](crate::secure).
//!
//! The names include the claims of the client's key, which identify its holder ([`keys`](crate::keys)). User and groups
//! come from the proven key, never from a request. A peer that claims to be a server proves it on a Unix socket too;
//! messages after such a greeting carry no MAC.

use crate::bounded;
use crate::error::WireError;
use crate::keys::KeyClaims;
use crate::level::{Level, Levels};
use serde::{Deserialize, Serialize};
use weft_core::{ClusterId, Nanos, ServerId};

/// Maximum length of a body in this family, in bytes. It limits the memory that an unauthenticated peer can occupy.
pub const BODY_LEN_MAX: u32 = 4096;
/// Maximum number of supplementary groups in an [`Identity`]; decoding rejects more.
pub const GROUPS_MAX: usize = 64;

/// Client process. Its open files and locks end when its last connection ends.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct SessionId(pub u128);

impl std::fmt::Display for SessionId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "session {:08x}", (self.0 >> 96) as u32)
    }
}

/// Job whose I/O delegates cache pages of files. It follows from the job's key, so that other users cannot guess it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct JobNumber(pub u64);

impl JobNumber {
    /// Returns the number of the job of this name.
    pub fn of_name(name: &str) -> Self {
        let hash = blake3::derive_key("weft 2026 job number", name.as_bytes());
        Self(u64::from_le_bytes(hash[..8].try_into().expect("eight bytes")))
    }
}

/// User and groups that a request runs as.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Identity {
    /// User.
    pub uid: u32,
    /// Primary group.
    pub gid: u32,
    /// Supplementary groups, sorted, at most [`GROUPS_MAX`].
    #[serde(deserialize_with = "bounded::vec::<_, _, GROUPS_MAX>")]
    pub groups: Vec<u32>,
}

impl Identity {
    /// Returns the superuser.
    pub fn root() -> Self {
        Self { uid: 0, gid: 0, groups: Vec::new() }
    }

    /// Whether this identity bypasses permission checks.
    pub fn is_root(&self) -> bool {
        self.uid == 0
    }

    /// Whether `gid` is the primary group or a supplementary group.
    pub fn in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }
}

/// Role of the connecting peer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Role {
    /// Client process of this identity. On a Unix socket, the socket's credentials override it.
    Client(Identity),
    /// Server of the cluster. It must prove the cluster key, on a Unix socket too.
    Server(ServerId),
}

/// Protection of the messages on a connection, in ascending order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug, Serialize, Deserialize)]
pub enum Security {
    /// None: the operating system protects the connection, as for Unix sockets.
    None,
    /// Every message carries a MAC; its contents are readable on the network.
    #[default]
    Mac,
    /// Bodies and payloads are also encrypted.
    Encrypt,
}

/// Both ends of a connection as the client understands them. Sent in clear text; the handshake fails if a name is
/// changed on the way.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Names {
    /// Name of the cluster.
    pub cluster: String,
    /// Identity of the cluster; [`ClusterId::NONE`] before the client has learned it from the metadata server. A server
    /// of another cluster rejects the greeting.
    pub cluster_id: ClusterId,
    /// Name of the server. Another server rejects the greeting.
    pub server: String,
    /// Role of the client.
    pub role: Role,
    /// Feature levels that the client knows.
    pub levels: Levels,
    /// Claims of the client's key; `None` where the credentials of a Unix socket replace the key.
    pub key: Option<KeyClaims>,
}

/// First message, from client to server.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Hello {
    /// Both ends.
    pub names: Names,
    /// Authentication method.
    pub method: AuthMethod,
}

/// Authentication method of a client.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum AuthMethod {
    /// Credentials of the Unix socket.
    Credentials(Opening),
    /// Key of the client's role. The opening follows when both ends have proven that they hold it.
    Key(Exchange),
}

/// One message of the Noise handshake.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Exchange {
    /// Public key for this connection only.
    pub ephemeral: [u8; 32],
    /// Proof that the sender holds the key and uses the same names.
    pub tag: [u8; 16],
}

/// Maximum length of each name in a [`Process`], in bytes; servers cut longer ones.
pub const PROCESS_NAME_LEN_MAX: usize = 64;

/// Process of a client as it describes itself, for display only: nothing verifies the names.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Process {
    /// Name of its host; empty if unknown.
    pub host: String,
    /// Process id; 0 if unknown.
    pub pid: u32,
    /// Name of its program; empty if unknown.
    pub program: String,
}

/// Session of a connection and protection of its messages, from client to server.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Opening {
    /// Client process.
    pub session: SessionId,
    /// Number of this connection within the session; a reconnection keeps it. Identifies the slot in which the metadata
    /// service stores the last reply.
    pub slot: u32,
    /// Whether payloads carry checksums. A MAC replaces them.
    pub checksums: bool,
    /// Least protection that the client accepts.
    pub security: Security,
    /// Job of the process if it reads and writes all files through the delegates of that job, or is one of them.
    pub job: Option<JobNumber>,
    /// Description of the process.
    pub process: Process,
}

/// Last message, from server to client; requests may follow.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Welcome {
    /// Number of the server.
    pub server: ServerId,
    /// Changes with every start of the server, so that a client detects a restart.
    pub incarnation: u64,
    /// Changes with every boot of the machine. Earlier writes that were not synced are then lost.
    pub boot: u64,
    /// Time after which the server closes an idle connection; zero for never.
    pub idle_limit: Nanos,
    /// Whether payloads carry checksums on this connection.
    pub checksums: bool,
    /// Identity of the server's cluster; [`ClusterId::NONE`] from a data server that runs without a metadata server.
    pub cluster_id: ClusterId,
    /// Feature level of later messages: the latest that both sides know.
    pub level: Level,
    /// Protection of later messages: the stronger of the client's request and the server's setting.
    pub security: Security,
}

/// Reply of a server to `Hello` or `Opening`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum HelloReply {
    /// Second message of the handshake.
    Challenge(Exchange),
    /// The greeting succeeded.
    Welcome(Welcome),
    /// The greeting failed; the reason names the expected key or cluster.
    Refused(WireError),
}
