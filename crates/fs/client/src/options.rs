//! Options and credentials of a client.

use std::sync::Arc;
use weft_core::{Nanos, ServerId, SplitPolicy};
use weft_env::Address;
use weft_wire::hello::{GROUPS_MAX, Identity, JobNumber, Role, Security};
use weft_wire::{ClusterSecret, KeyClaims, Levels};

/// How file data is transferred.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Transport {
    /// Through leased descriptors where the server allows it, by messages otherwise.
    #[default]
    Auto,
    /// Through leased descriptors; an error where the server does not allow it.
    Descriptor,
    /// Always by messages.
    Socket,
}

/// When payloads carry checksums in transit.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Checksums {
    /// Where nothing else covers them and they can be damaged in transit. That is nowhere, because network connections
    /// have MACs.
    #[default]
    Auto,
    /// On every connection whose messages carry no MAC.
    On,
    /// Never, unless the server asks for them.
    Off,
}

/// Limits and behavior of one client process. The defaults suit most programs.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// How file data is transferred.
    pub transport: Transport,
    /// Longest time for one attempt to connect and greet.
    pub connect_timeout: Nanos,
    /// Longest time that a server may take to answer a request.
    pub request_timeout: Nanos,
    /// Time for which a request repeats the attempt to connect to a server that does not answer, so that a restart of
    /// the server goes unnoticed.
    pub retry_for: Nanos,
    /// Time for which requests to a dead server fail at once, before the next attempt.
    pub dead_for: Nanos,
    /// Most connections to one server, not counting the one that leases belong to.
    pub connections_max: u32,
    /// Most connections to the metadata server.
    pub metadata_connections_max: u32,
    /// Policy that decides which sub-requests are flagged as fragments.
    pub split: SplitPolicy,
    /// Whether payloads carry checksums on connections whose messages carry no MAC.
    pub checksums: Checksums,
    /// Minimum protection of network connections; [`Security::None`] counts as [`Security::Mac`]. A server may require
    /// more.
    pub security: Security,
    /// Smallest read or write that goes through shared memory on a connection to the same machine.
    pub shared_payload_min: u32,
    /// Largest read or write that goes through shared memory, and size of a connection's area. 0 turns shared memory
    /// off.
    pub shared_payload_max: u32,
    /// Whether a server on this machine may answer on the processor on which the client waits. That saves two wake-ups
    /// of other processors, and the bytes are still in the cache.
    pub same_processor: bool,
    /// Most datafile descriptors held under leases.
    pub leases_max: usize,
    /// Number of the use through one open file at which a datafile is leased. A file that is written once and closed
    /// then costs one message. 1 leases at once.
    pub lease_after_uses: u32,
    /// Length of a request, in bytes, from which its datafile is leased at once.
    pub lease_at_len: u64,
    /// Whether opens ask for permission to cache pages in the kernel (for mounts).
    pub kernel_cache: bool,
    /// Job whose I/O delegates transfer the bytes of all files that this client opens, or whose delegate this is. Opens by
    /// other processes end the caches of the delegates; those of the job do not.
    pub job: Option<JobNumber>,
    /// Number of processes of the parallel program that this client belongs to; `None` if it is not known to be one.
    /// Replicas serve programs with a certain number.
    pub ranks: Option<u32>,
    /// Reads the cluster file again while the metadata server does not answer and other servers do not know more. With `None`,
    /// the client asks neither the file nor other servers.
    pub metadata_search: Option<MetadataSearch>,
    /// Feature levels that this client knows.
    pub levels: Levels,
    /// Process id reported to other clients as the holder of a lock, and to administrators.
    pub pid: u32,
    /// Name of this host, shown to administrators; empty if unknown.
    pub host: String,
    /// Name of this program, shown to administrators; empty if unknown.
    pub program: String,
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
            job: None,
            ranks: None,
            metadata_search: None,
            levels: Levels::KNOWN,
            pid: 0,
            host: String::new(),
            program: String::new(),
        }
    }
}

/// Key with which a client authenticates itself on the network. Unix sockets need none.
#[derive(Clone, Debug)]
pub enum Key {
    /// No key: only servers on this machine can be reached.
    None,
    /// The cluster secret, which servers and administrators have.
    Cluster(Box<ClusterSecret>),
    /// A key that `weft key` issued.
    Issued(Box<IssuedKey>),
}

/// An issued key with its claims.
#[derive(Clone, PartialEq, Eq)]
pub struct IssuedKey {
    /// Claims of the key, which are sent in clear text.
    pub claims: KeyClaims,
    /// Secret that proves the claims.
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

/// Identity of a client, and its proof.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// Claimed role. On a Unix socket the server uses the socket's credentials instead of a client's identity.
    pub role: Role,
    /// Proof of the role.
    pub key: Key,
    /// Why there is no key, for the error of a server that requires one.
    pub no_key: Option<Arc<str>>,
    /// Reads the key again when a server refuses it, because it may have been replaced.
    pub renewal: Option<KeyRenewal>,
}

/// Reads the cluster file again; returns the addresses of the metadata server if the file has others than at the start.
#[derive(Clone)]
pub struct MetadataSearch(pub Arc<dyn Fn() -> Option<Vec<Address>> + Send + Sync>);

impl std::fmt::Debug for MetadataSearch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("MetadataSearch")
    }
}

/// Reads a key again; `None` if that fails.
#[derive(Clone)]
pub struct KeyRenewal(pub Arc<dyn Fn() -> Option<Key> + Send + Sync>);

impl std::fmt::Debug for KeyRenewal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KeyRenewal")
    }
}

impl Credentials {
    /// Returns credentials of a user's process, without a key.
    pub fn user(uid: u32, gid: u32, groups: Vec<u32>) -> Self {
        Self {
            role: Role::Client(Self::identity_of(uid, gid, groups)),
            key: Key::None,
            no_key: None,
            renewal: None,
        }
    }

    /// Returns the identity of a user as the wire names it.
    pub fn identity_of(uid: u32, gid: u32, mut groups: Vec<u32>) -> Identity {
        groups.sort_unstable();
        groups.dedup();
        groups.truncate(GROUPS_MAX);
        Identity { uid, gid, groups }
    }

    /// Adds a key.
    #[must_use]
    pub fn with_key(mut self, key: Key) -> Self {
        self.key = key;
        self
    }

    /// Notes why there is no key.
    #[must_use]
    pub fn without_key(mut self, why: &str) -> Self {
        self.no_key = Some(why.into());
        self
    }

    /// Returns credentials of a server of the cluster.
    pub fn server(server: ServerId, secret: ClusterSecret) -> Self {
        Self { role: Role::Server(server), key: Key::Cluster(Box::new(secret)), no_key: None, renewal: None }
    }

    /// Returns the key that the greeting names and proves: an issued one, or the one that the cluster secret has for
    /// this role; `None` without a key. A client with the cluster secret is an administrator.
    pub fn greeting_key(&self) -> Option<IssuedKey> {
        self.greeting_key_of(&self.key)
    }

    fn greeting_key_of(&self, key: &Key) -> Option<IssuedKey> {
        let (claims, secret) = match (key, &self.role) {
            (Key::None, _) => return None,
            (Key::Issued(key), _) => return Some(IssuedKey::clone(key)),
            (Key::Cluster(secret), Role::Client(_)) => secret.own_administrator_key(),
            (Key::Cluster(secret), Role::Server(_)) => secret.own_server_key(),
        };
        Some(IssuedKey { claims, secret })
    }

    /// Reads the key again. Returns what a greeting then names and proves, if that is for the same holder.
    pub(crate) fn renewed(&self) -> Option<IssuedKey> {
        let renewal = self.renewal.as_ref()?;
        let (before, renewed) = (self.greeting_key()?, self.greeting_key_of(&(renewal.0)()?)?);
        (renewed.claims.holder == before.claims.holder).then_some(renewed)
    }
}
