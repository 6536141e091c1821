//! How a client behaves and who it is.

use weft_core::{Nanos, ServerId, SplitPolicy};
use weft_wire::hello::{Identity, Role, Security};
use weft_wire::{ClusterSecret, KeyClaims};

/// How bytes travel.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Transport {
    /// By leased descriptor where the server allows it, by messages otherwise.
    #[default]
    Auto,
    /// By leased descriptor; an error where the server does not allow it.
    Descriptor,
    /// By messages always.
    Socket,
}

/// Whether payloads carry checksums on their way.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Checksums {
    /// Where nothing else covers them and bytes can be damaged on the way: nowhere, since connections over the network have
    /// MACs.
    #[default]
    Auto,
    /// On every connection whose messages carry no MAC.
    On,
    /// Never (a server may still ask for them).
    Off,
}

/// Bounds and habits of one client process. The default suits most.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// How bytes travel.
    pub transport: Transport,
    /// Longest time for one attempt to connect and greet.
    pub connect_timeout: Nanos,
    /// Longest time that a server may be silent in the middle of a request.
    pub request_timeout: Nanos,
    /// How long a request goes on trying to connect to a server that does not answer, so that a restart of the
    /// server passes unnoticed.
    pub retry_for: Nanos,
    /// For how long requests to a server that was found dead fail at once, before it is tried again.
    pub dead_for: Nanos,
    /// Most connections to one server, apart from the one that leases hang on.
    pub connections_max: u32,
    /// Most connections to the metadata service.
    pub metadata_connections_max: u32,
    /// Which sub-requests are flagged as fragments.
    pub split: SplitPolicy,
    /// Whether payloads carry checksums on connections whose messages carry no MAC.
    pub checksums: Checksums,
    /// The least protection of connections over the network; [`Security::None`] counts as [`Security::Mac`]. A server may
    /// ask for more.
    pub security: Security,
    /// Reads and writes of at least this many bytes go through shared memory on connections of one node.
    pub shared_payload_min: u32,
    /// Those of more than this many bytes do not; also the size of a connection's area. 0 turns it off.
    pub shared_payload_max: u32,
    /// A server of this machine may answer on the processor on which the client waits. Two wake-ups of other processors
    /// less, and the bytes are still in the cache.
    pub same_processor: bool,
    /// Most datafile descriptors held under leases.
    pub leases_max: usize,
    /// A datafile is leased at its n-th use through one open file, so that files that are written once and closed
    /// cost one message. 1 leases at once.
    pub lease_after_uses: u32,
    /// A datafile is leased at once when a request for it has at least this many bytes.
    pub lease_at_len: u64,
    /// Opens ask whether the kernel may cache pages (for mounts).
    pub kernel_cache: bool,
    /// Told to others who ask who holds a lock.
    pub pid: u32,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            transport: Transport::Auto,
            connect_timeout: Nanos::from_s(3),
            request_timeout: Nanos::from_s(30),
            retry_for: Nanos::from_s(5),
            dead_for: Nanos::from_s(1),
            connections_max: 64,
            metadata_connections_max: 64,
            split: SplitPolicy::default(),
            checksums: Checksums::Auto,
            security: Security::Mac,
            shared_payload_min: 16 << 10,
            shared_payload_max: 512 << 10,
            same_processor: true,
            leases_max: 256,
            lease_after_uses: 2,
            lease_at_len: 32 << 10,
            kernel_cache: false,
            pid: 0,
        }
    }
}

/// By what a client proves who it is on the network. Unix sockets need none.
#[derive(Clone, Debug)]
pub enum Key {
    /// None: only servers of this node can be reached.
    None,
    /// The cluster's secret: that of servers, and of administrators.
    Cluster(Box<ClusterSecret>),
    /// A key that `weft key` issued.
    Issued(Box<IssuedKey>),
}

/// A key with what it stands for.
#[derive(Clone, PartialEq, Eq)]
pub struct IssuedKey {
    /// What it stands for, told in clear.
    pub claims: KeyClaims,
    /// By which that is proven.
    pub secret: [u8; 32],
}

impl From<(KeyClaims, [u8; 32])> for IssuedKey {
    fn from((claims, secret): (KeyClaims, [u8; 32])) -> Self {
        Self { claims, secret }
    }
}

impl std::fmt::Debug for IssuedKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IssuedKey").field("claims", &self.claims).finish_non_exhaustive() // secrets are never printed
    }
}

/// Who a client is.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// What it says it is. On a Unix socket the socket's own credentials replace a client's identity.
    pub role: Role,
    /// How it proves that.
    pub key: Key,
}

impl Credentials {
    /// A process of this user, without a key.
    pub fn user(uid: u32, gid: u32, mut groups: Vec<u32>) -> Self {
        groups.sort_unstable();
        groups.dedup();
        groups.truncate(64);
        Self { role: Role::Client(Identity { uid, gid, groups }), key: Key::None }
    }

    /// The same with a key.
    #[must_use]
    pub fn with_key(mut self, key: Key) -> Self {
        self.key = key;
        self
    }

    /// A server of the cluster, with its secret.
    pub fn server(server: ServerId, secret: ClusterSecret) -> Self {
        Self { role: Role::Server(server), key: Key::Cluster(Box::new(secret)) }
    }

    /// The key that a greeting names and proves: one that was issued, or the cluster secret's own for this role; `None`
    /// without a key. Whoever holds the cluster's secret is an administrator.
    pub fn greeting_key(&self) -> Option<IssuedKey> {
        let (claims, secret) = match (&self.key, &self.role) {
            (Key::None, _) => return None,
            (Key::Issued(key), _) => return Some(IssuedKey::clone(key)),
            (Key::Cluster(secret), Role::Client(_)) => secret.own_administrator_key(),
            (Key::Cluster(secret), Role::Server(_)) => secret.own_server_key(),
        };
        Some(IssuedKey { claims, secret })
    }
}
