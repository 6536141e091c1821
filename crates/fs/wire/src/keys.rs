//! Keys that authenticate clients and servers on the network, and the root secrets from which they are derived.
//!
//! A key is a secret of 32 bytes together with its [`KeyClaims`]: an id, a holder and an expiry. The secret is derived
//! from a root secret of the cluster and the encoded claims:
//!
//! ```text
//! secret = BLAKE3_keyed(BLAKE3_derive_key("weft 2026 issued key", root secret), postcard(claims))
//! ```
//!
//! Servers hold the root secrets and need no database of keys: changed claims require another secret. They store only
//! the ids of revoked keys. During a key rotation, a cluster accepts several generations of the root secret; new keys
//! and MACs use one of them.
//!
//! The first message of a greeting contains the claims in clear text. [`ClusterSecret::admit`] decides whether they
//! permit the role that the greeting asks for, and returns the secret that the peer has to prove.

use crate::bounded;
use crate::error::{Errno, WireError};
use crate::hello::{GROUPS_MAX, Identity, Role};
use parking_lot::RwLock;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use weft_core::Timestamp;

/// User and group that replace root of a host whose key squashes root.
pub const NOBODY: u32 = 65_534;
/// Maximum length of a host name in bytes.
pub const HOST_NAME_LEN_MAX: usize = 64;
/// Maximum number of revoked keys that a cluster stores. A rotation of the root secret invalidates them all.
pub const REVOKED_MAX: usize = 16_384;
/// Maximum number of root secret generations that are accepted at a time.
pub const GENERATIONS_MAX: usize = 8;

const CLAIMS_CONTEXT: &str = "weft 2026 issued key";
/// Context of [`derived_root`].
const DERIVED_CONTEXT: &str = "weft 2026 cluster key derived from another";

/// Id of a key, random; 0 is the key that servers derive for themselves.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct KeyId(pub u64);

impl KeyId {
    /// Key of the holders of a root secret.
    pub const ROOT: Self = Self(0);
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl FromStr for KeyId {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_hex = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let id = is_hex.then(|| u64::from_str_radix(text, 16).ok()).flatten();
        id.map(Self).ok_or("a key's id has 16 hexadecimal digits")
    }
}

/// Holder of a key.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Holder {
    /// Servers of the cluster.
    Server,
    /// Administrator, who may act for any user.
    Administrator,
    /// One user with these groups.
    User(Identity),
    /// Host whose mount acts for several users, without administrator rights.
    Host {
        /// Name of the host, for display.
        name: String,
        /// First user that the host may act for.
        first_uid: u32,
        /// Last user that the host may act for.
        last_uid: u32,
        /// Whether root of the host becomes [`NOBODY`].
        squash_root: bool,
    },
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server => f.write_str("servers"),
            Self::Administrator => f.write_str("an administrator"),
            Self::User(identity) => write!(f, "user {}, group {}", identity.uid, identity.gid),
            Self::Host { name, first_uid, last_uid, squash_root } => {
                let root = if *squash_root { "root squashed" } else { "root as root" };
                write!(f, "host {name}, users {first_uid} to {last_uid}, {root}")
            }
        }
    }
}

/// Claims of a key. They travel in clear text; a changed claim requires another secret.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct KeyClaims {
    /// Id of the key.
    pub id: KeyId,
    /// Generation of the root secret from which the secret is derived.
    pub root: u32,
    /// Holder.
    pub holder: Holder,
    /// Expiry in seconds since 1970; 0 for never.
    pub expires_s: u64,
}

impl KeyClaims {
    /// Rejects claims that no issued key has.
    ///
    /// # Errors
    /// `EINVAL`.
    pub fn check(&self) -> Result<(), WireError> {
        let refuse = |why: String| Err(WireError::new(Errno::EINVAL, format!("key {}: {why}", self.id)));
        match &self.holder {
            Holder::Server | Holder::Administrator => Ok(()),
            Holder::User(identity) => check_groups(identity),
            Holder::Host { name, .. } if !is_host_name(name) => refuse(format!(
                "the name of a host has 1 to {HOST_NAME_LEN_MAX} letters, digits, '.', '-' and '_'"
            )),
            Holder::Host { first_uid, last_uid, .. } if first_uid > last_uid => {
                refuse(format!("the range of users {first_uid} to {last_uid} is empty"))
            }
            Holder::Host { first_uid: 0, squash_root: true, .. } => {
                refuse("its range of users begins with root, which it squashes".into())
            }
            Holder::Host { .. } => Ok(()),
        }
    }

    /// Whether the key has expired at `now`.
    pub fn has_expired(&self, now: Timestamp) -> bool {
        self.expires_s != 0 && i128::from(self.expires_s) * 1_000_000_000 <= now.0
    }

    /// Returns the principal that the holder of this key is in `role`.
    ///
    /// # Errors
    /// `EACCES` if the key does not permit the role or user; `EINVAL` for a malformed identity.
    pub fn principal(&self, role: &Role) -> Result<Principal, WireError> {
        let refuse = |why: String| Err(WireError::new(Errno::EACCES, format!("key {}: {why}", self.id)));
        let of = |identity: Identity, delegation| Principal {
            identity,
            is_server: false,
            is_administrator: false,
            key: Some(self.id),
            delegation,
        };
        match (role, &self.holder) {
            (Role::Server(_), Holder::Server) => {
                Ok(Principal { is_server: true, ..of(Identity::root(), Delegation::Itself) })
            }
            (Role::Server(_), holder) => refuse(format!(
                "it is for {holder}, not for servers: servers need the cluster key, key_file in the cluster file"
            )),
            (Role::Client(_), Holder::Server) => refuse(
                "it is for servers, not for clients: make a key for this client with `weft key`".to_owned(),
            ),
            (Role::Client(requested), Holder::Administrator) => {
                check_groups(requested)?;
                Ok(Principal { is_administrator: true, ..of(requested.clone(), Delegation::Anyone) })
            }
            (Role::Client(requested), Holder::User(own)) if requested == own => {
                Ok(of(own.clone(), Delegation::Itself))
            }
            (Role::Client(requested), Holder::User(own)) => refuse(format!(
                "it is for user {} with group {}, not for user {} with group {}: get one for that user from the \
                 administrator (`weft key user`)",
                own.uid, own.gid, requested.uid, requested.gid
            )),
            (Role::Client(requested), Holder::Host { name, first_uid, last_uid, squash_root }) => {
                check_groups(requested)?;
                let users = Users {
                    key: self.id,
                    host: name.clone(),
                    first_uid: *first_uid,
                    last_uid: *last_uid,
                    squash_root: *squash_root,
                };
                let identity = users.admit(requested.clone())?;
                Ok(of(identity, Delegation::Users(Arc::new(users))))
            }
        }
    }
}

fn is_host_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    (1..=HOST_NAME_LEN_MAX).contains(&name.len()) && name.bytes().all(allowed)
}

fn check_groups(identity: &Identity) -> Result<(), WireError> {
    if identity.groups.len() <= GROUPS_MAX && identity.groups.is_sorted() {
        return Ok(());
    }
    let detail = format!("an identity has at most {GROUPS_MAX} supplementary groups, sorted");
    Err(WireError::new(Errno::EINVAL, detail))
}

/// Authenticated peer, by key or by the credentials of its socket.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Principal {
    /// Identity of its own requests.
    pub identity: Identity,
    /// Whether the peer is a server of the cluster.
    pub is_server: bool,
    /// Whether the peer may administrate the cluster.
    pub is_administrator: bool,
    /// Key that the peer proved, if one was needed.
    pub key: Option<KeyId>,
    /// Users that the peer may act for.
    pub delegation: Delegation,
}

impl Principal {
    /// Returns the principal of a process on this node. Root may act for any user.
    pub fn local(identity: Identity, is_administrator: bool) -> Self {
        let delegation = if identity.is_root() { Delegation::Anyone } else { Delegation::Itself };
        Self { identity, is_server: false, is_administrator, key: None, delegation }
    }

    /// Returns the identity of a request that names `on_behalf`. A peer that may act only for itself always gets its
    /// own identity.
    ///
    /// # Errors
    /// `EACCES` for a user that the peer may not act for.
    pub fn acting_for(&self, on_behalf: Option<Identity>) -> Result<Identity, WireError> {
        self.delegation.identity_for(&self.identity, on_behalf)
    }
}

/// Users that a peer may act for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Delegation {
    /// Only itself.
    Itself,
    /// Any user.
    Anyone,
    /// Users of a host.
    Users(Arc<Users>),
}

impl Delegation {
    /// Returns the identity of a request that names `on_behalf`, from a peer with the identity `own`.
    ///
    /// # Errors
    /// `EACCES` for a user that the peer may not act for.
    pub fn identity_for(&self, own: &Identity, on_behalf: Option<Identity>) -> Result<Identity, WireError> {
        match (self, on_behalf) {
            (Self::Itself, _) | (_, None) => Ok(own.clone()),
            (Self::Anyone, Some(user)) => Ok(user),
            (Self::Users(users), Some(user)) => users.admit(user),
        }
    }
}

/// Users that a host key acts for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Users {
    key: KeyId,
    host: String,
    first_uid: u32,
    last_uid: u32,
    squash_root: bool,
}

impl Users {
    /// Returns the identity as which the host acts for `user`: for a squashed root [`NOBODY`], never in group 0.
    fn admit(&self, mut user: Identity) -> Result<Identity, WireError> {
        if self.squash_root {
            user.groups.retain(|group| *group != 0);
            if user.gid == 0 {
                user.gid = NOBODY;
            }
            if user.uid == 0 {
                return Ok(Identity { uid: NOBODY, gid: NOBODY, groups: Vec::new() });
            }
        } else if user.uid == 0 {
            return Ok(user);
        }
        if (self.first_uid..=self.last_uid).contains(&user.uid) {
            return Ok(user);
        }
        let detail = format!(
            "key {}: host {} acts for users {} to {}, not for user {}: make a key for a wider range with `weft key host`",
            self.key, self.host, self.first_uid, self.last_uid, user.uid
        );
        Err(WireError::new(Errno::EACCES, detail))
    }
}

/// One generation of the root secret.
#[derive(Clone, PartialEq, Eq)]
pub struct RootSecret {
    /// Number, which claims refer to.
    pub generation: u32,
    /// Secret.
    pub secret: [u8; 32],
}

impl fmt::Debug for RootSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RootSecret({}, ..)", self.generation) // secrets are never printed
    }
}

/// Uses of MACs that servers make for each other; each has its own key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MacUse {
    /// MAC of a [`crate::Capability`].
    Capability,
    /// MAC of a [`crate::WalkProof`].
    Walk,
}

impl MacUse {
    const ALL: [Self; 2] = [Self::Capability, Self::Walk];
    const COUNT: usize = Self::ALL.len();

    const fn context(self) -> &'static str {
        match self {
            Self::Capability => "weft 2026 capability",
            Self::Walk => "weft 2026 walk",
        }
    }
}

/// Secret shared by all servers of a cluster, from which every key and MAC is derived, together with the revoked keys.
///
/// Clones share their state, so that a new generation or a revoked key takes effect everywhere in a server at once.
#[derive(Clone)]
pub struct ClusterSecret {
    ring: Arc<RwLock<Ring>>,
    /// Number of changes of the accepted keys.
    revision: Arc<AtomicU64>,
}

struct Ring {
    /// Accepted generations, the current one first.
    roots: Vec<RootSecret>,
    /// Keys of MACs, by generation (in the order of `roots`) and use.
    mac_keys: Vec<[[u8; 32]; MacUse::COUNT]>,
    revoked: BTreeSet<KeyId>,
}

impl fmt::Debug for ClusterSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClusterSecret(..)") // never printed
    }
}

impl ClusterSecret {
    /// Creates a secret with a single generation, number 0.
    pub fn new(secret: &[u8; 32]) -> Self {
        Self::of(vec![RootSecret { generation: 0, secret: *secret }])
    }

    /// Creates a secret with these generations, the current one first.
    ///
    /// # Panics
    /// If `roots` is empty.
    pub fn of(roots: Vec<RootSecret>) -> Self {
        assert!(!roots.is_empty(), "a cluster has a root secret");
        let mac_keys = roots.iter().map(mac_keys).collect();
        let ring = Ring { roots, mac_keys, revoked: BTreeSet::new() };
        Self { ring: Arc::new(RwLock::new(ring)), revision: Arc::default() }
    }

    /// Replaces the accepted generations, the current one first. Returns whether they changed.
    ///
    /// # Panics
    /// If `roots` is empty.
    pub fn replace(&self, roots: Vec<RootSecret>) -> bool {
        assert!(!roots.is_empty(), "a cluster has a root secret");
        let mut ring = self.ring.write();
        let is_new = ring.roots != roots;
        ring.mac_keys = roots.iter().map(mac_keys).collect();
        ring.roots = roots;
        self.revision.fetch_add(1, Ordering::Release);
        is_new
    }

    /// Returns a number that changes whenever a key may have become invalid, other than by time.
    pub fn revision(&self) -> u64 {
        self.revision.load(Ordering::Acquire)
    }

    /// Returns the generation that new keys and MACs use.
    pub fn generation(&self) -> u32 {
        self.ring.read().roots[0].generation
    }

    /// Returns the accepted generations, the current one first.
    pub fn generations(&self) -> Vec<u32> {
        self.ring.read().roots.iter().map(|root| root.generation).collect()
    }

    /// Revokes these keys in addition to earlier ones. Returns whether a new one is among them.
    pub fn revoke(&self, keys: impl IntoIterator<Item = KeyId>) -> bool {
        let mut ring = self.ring.write();
        let before = ring.revoked.len();
        ring.revoked.extend(keys);
        self.revision.fetch_add(1, Ordering::Release);
        ring.revoked.len() > before
    }

    /// Returns the revoked keys in ascending order.
    pub fn revoked(&self) -> Vec<KeyId> {
        self.ring.read().revoked.iter().copied().collect()
    }

    /// Returns the number of revoked keys.
    pub fn revoked_count(&self) -> usize {
        self.ring.read().revoked.len()
    }

    /// Returns the secret of the key with these claims; `None` if their generation is not accepted.
    pub fn key_of(&self, claims: &KeyClaims) -> Option<[u8; 32]> {
        let ring = self.ring.read();
        let root = ring.roots.iter().find(|root| root.generation == claims.root)?;
        Some(derive(&root.secret, claims))
    }

    /// Returns the key with which a holder of the root secret authenticates as a server.
    pub fn own_server_key(&self) -> (KeyClaims, [u8; 32]) {
        self.own_key(Holder::Server)
    }

    /// Returns the key with which a holder of the root secret authenticates as an administrator.
    pub fn own_administrator_key(&self) -> (KeyClaims, [u8; 32]) {
        self.own_key(Holder::Administrator)
    }

    /// Returns the key with which a holder of the root secret authenticates as this user.
    pub fn own_user_key(&self, identity: &Identity) -> (KeyClaims, [u8; 32]) {
        self.own_key(Holder::User(identity.clone()))
    }

    /// Returns the key with which a holder of the root secret authenticates in this role, as a server or as this user.
    pub fn own_key_of(&self, role: &Role) -> (KeyClaims, [u8; 32]) {
        match role {
            Role::Server(_) => self.own_server_key(),
            Role::Client(identity) => self.own_user_key(identity),
        }
    }

    /// Returns the secret of [`own_user_key`](Self::own_user_key).
    pub fn identity_key(&self, identity: &Identity) -> [u8; 32] {
        self.own_user_key(identity).1
    }

    /// Returns the secret of [`own_server_key`](Self::own_server_key).
    pub fn server_key(&self) -> [u8; 32] {
        self.own_server_key().1
    }

    fn own_key(&self, holder: Holder) -> (KeyClaims, [u8; 32]) {
        let ring = self.ring.read();
        let root = &ring.roots[0];
        let claims = KeyClaims { id: KeyId::ROOT, root: root.generation, holder, expires_s: 0 };
        let key = derive(&root.secret, &claims);
        (claims, key)
    }

    /// Checks whether the key with these claims may be used at `now`.
    ///
    /// # Errors
    /// `EACCES` for a key that has expired, is revoked or belongs to a generation that is not accepted; `EINVAL` for
    /// claims that no issued key has.
    pub fn check_key(&self, claims: &KeyClaims, now: Timestamp) -> Result<(), WireError> {
        claims.check()?;
        let refuse = |why: String| Err(WireError::new(Errno::EACCES, format!("key {}: {why}", claims.id)));
        if claims.has_expired(now) {
            let when = Timestamp(i128::from(claims.expires_s) * 1_000_000_000).utc();
            return refuse(format!(
                "it expired at {when}: get a new one from the administrator (`weft key`)"
            ));
        }
        let ring = self.ring.read();
        if claims.id != KeyId::ROOT && ring.revoked.contains(&claims.id) {
            return refuse("it was revoked: get a new one from the administrator (`weft key`)".into());
        }
        if !ring.roots.iter().any(|root| root.generation == claims.root) {
            let accepted: Vec<_> = ring.roots.iter().map(|root| root.generation.to_string()).collect();
            return refuse(format!(
                "it is of generation {} of the cluster's secret, and only {} is accepted: get a new one from the \
                 administrator (`weft key`)",
                claims.root,
                accepted.join(", ")
            ));
        }
        Ok(())
    }

    /// Returns the secret that a peer with these claims must prove, and its principal in this role after it has.
    ///
    /// # Errors
    /// See [`check_key`](Self::check_key) and [`KeyClaims::principal`].
    pub fn admit(
        &self,
        claims: &KeyClaims,
        role: &Role,
        now: Timestamp,
    ) -> Result<([u8; 32], Principal), WireError> {
        self.check_key(claims, now)?;
        let principal = claims.principal(role)?;
        // A rotation may have removed the generation since the check.
        let key = self.key_of(claims).ok_or(Errno::EACCES)?;
        Ok((key, principal))
    }

    /// Returns the first 16 bytes of a MAC over `bytes`, with the current generation.
    pub fn mac(&self, of: MacUse, bytes: &[u8]) -> [u8; 16] {
        short_mac(&self.ring.read().mac_keys[0][of as usize], bytes)
    }

    /// Whether `mac` was made over `bytes` by an accepted generation. Compares in constant time.
    pub fn mac_holds(&self, of: MacUse, bytes: &[u8], mac: &[u8; 16]) -> bool {
        let found = blake3::Hash::from(widen(*mac));
        let ring = self.ring.read();
        ring.mac_keys.iter().any(|keys| {
            // blake3::Hash compares in constant time; an array would not.
            blake3::Hash::from(widen(short_mac(&keys[of as usize], bytes))) == found
        })
    }
}

/// Returns the root secret of another cluster, which depends on `root` and `purpose` only and reveals nothing of `root`.
pub fn derived_root(root: &[u8; 32], purpose: &[u8]) -> [u8; 32] {
    *blake3::keyed_hash(&blake3::derive_key(DERIVED_CONTEXT, root), purpose).as_bytes()
}

fn derive(root: &[u8; 32], claims: &KeyClaims) -> [u8; 32] {
    let bytes = postcard::to_allocvec(claims).expect("claims always encode");
    *blake3::keyed_hash(&blake3::derive_key(CLAIMS_CONTEXT, root), &bytes).as_bytes()
}

fn mac_keys(root: &RootSecret) -> [[u8; 32]; MacUse::COUNT] {
    MacUse::ALL.map(|of| blake3::derive_key(of.context(), &root.secret))
}

fn short_mac(key: &[u8; 32], bytes: &[u8]) -> [u8; 16] {
    let hash = blake3::keyed_hash(key, bytes);
    hash.as_bytes()[..16].try_into().expect("sixteen bytes")
}

fn widen(mac: [u8; 16]) -> [u8; 32] {
    let mut out = [0; 32];
    out[..16].copy_from_slice(&mac);
    out
}

/// Revoked keys, as servers exchange them.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Revoked {
    /// Ids in ascending order.
    #[serde(deserialize_with = "bounded::vec::<_, _, REVOKED_MAX>")]
    pub keys: Vec<KeyId>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_core::ServerId;

    const HOUR: u64 = 1_800_003_600;

    fn now() -> Timestamp {
        Timestamp::from_parts(1_800_000_000, 0)
    }

    fn user(uid: u32) -> Identity {
        Identity { uid, gid: 100, groups: vec![4, 24] }
    }

    fn claims(holder: Holder) -> KeyClaims {
        KeyClaims { id: KeyId(7), root: 0, holder, expires_s: HOUR }
    }

    fn host(squash_root: bool) -> Holder {
        Holder::Host { name: "node17".into(), first_uid: 1000, last_uid: 60_000, squash_root }
    }

    fn refusal(secret: &ClusterSecret, claims: &KeyClaims, role: &Role) -> String {
        let error = secret.admit(claims, role, now()).expect_err("rejected");
        assert!(matches!(error.errno, Errno::EACCES | Errno::EINVAL), "{error:?}");
        error.detail
    }

    #[test]
    fn each_key_admits_to_its_own_role() {
        let secret = ClusterSecret::new(&[7; 32]);
        let server = Role::Server(ServerId(3));
        let client = |uid| Role::Client(user(uid));
        let admitted = |holder: Holder, role: &Role| secret.admit(&claims(holder), role, now());

        let (_, principal) = admitted(Holder::Server, &server).expect("a server");
        assert!(principal.is_server && !principal.is_administrator);
        let (_, principal) = admitted(Holder::Administrator, &client(1000)).expect("an administrator");
        assert!(principal.is_administrator && !principal.is_server);
        assert_eq!(principal.acting_for(Some(user(5))), Ok(user(5)));
        let (_, principal) = admitted(Holder::User(user(1000)), &client(1000)).expect("a user");
        assert!(!principal.is_administrator && !principal.is_server);
        assert_eq!(principal.acting_for(Some(user(5))), Ok(user(1000)), "a user acts for itself");

        for (holder, role) in [
            (Holder::Administrator, server.clone()),
            (Holder::User(user(0)), server.clone()),
            (host(false), server),
            (Holder::Server, client(0)),
            (Holder::User(user(1000)), client(1001)),
            (host(true), client(999)),
            (host(true), client(60_001)),
        ] {
            assert!(!refusal(&secret, &claims(holder), &role).is_empty());
        }
    }

    #[test]
    fn a_user_key_of_root_does_not_administrate() {
        let secret = ClusterSecret::new(&[7; 32]);
        let key = claims(Holder::User(user(0)));
        let (_, principal) = secret.admit(&key, &Role::Client(user(0)), now()).expect("a user");
        assert!(!principal.is_administrator);
        assert_eq!(principal.acting_for(Some(user(5))), Ok(user(0)));
    }

    #[test]
    fn a_host_acts_for_its_users_and_squashes_root() {
        let secret = ClusterSecret::new(&[7; 32]);
        let root = Identity { uid: 0, gid: 0, groups: vec![0, 4] };
        let nobody = Identity { uid: NOBODY, gid: NOBODY, groups: vec![] };
        let (_, squashed) =
            secret.admit(&claims(host(true)), &Role::Client(root.clone()), now()).expect("a host");
        assert_eq!(squashed.identity, nobody);
        assert!(!squashed.is_administrator && !squashed.is_server);
        assert_eq!(squashed.acting_for(None), Ok(nobody.clone()));
        assert_eq!(squashed.acting_for(Some(root.clone())), Ok(nobody));
        assert_eq!(squashed.acting_for(Some(user(1000))), Ok(user(1000)));
        let in_wheel = Identity { uid: 60_000, gid: 0, groups: vec![0, 4] };
        let out = Identity { uid: 60_000, gid: NOBODY, groups: vec![4] };
        assert_eq!(squashed.acting_for(Some(in_wheel.clone())), Ok(out), "group 0 belongs to root");
        for uid in [1, 999, 60_001, NOBODY, u32::MAX] {
            let error = squashed.acting_for(Some(user(uid))).expect_err("out of range");
            assert_eq!(error.errno, Errno::EACCES);
        }

        let (_, trusted) =
            secret.admit(&claims(host(false)), &Role::Client(root.clone()), now()).expect("a host");
        assert_eq!(trusted.identity, root);
        assert!(!trusted.is_administrator, "root of a host is no administrator");
        assert_eq!(trusted.acting_for(Some(in_wheel.clone())), Ok(in_wheel));
        assert!(trusted.acting_for(Some(user(999))).is_err());
    }

    #[test]
    fn changed_claims_require_another_secret() {
        let secret = ClusterSecret::new(&[7; 32]);
        let given = claims(host(true));
        let key = secret.key_of(&given).expect("its generation is accepted");
        let wider = Holder::Host { name: "node17".into(), first_uid: 1, last_uid: 60_000, squash_root: true };
        for changed in [
            KeyClaims { id: KeyId(8), ..given.clone() },
            KeyClaims { expires_s: 0, ..given.clone() },
            KeyClaims { expires_s: HOUR + 1, ..given.clone() },
            KeyClaims { holder: wider, ..given.clone() },
            KeyClaims { holder: host(false), ..given.clone() },
            KeyClaims { holder: Holder::Administrator, ..given.clone() },
            KeyClaims { holder: Holder::Server, ..given.clone() },
            KeyClaims { holder: Holder::User(user(0)), ..given.clone() },
        ] {
            assert_ne!(secret.key_of(&changed), Some(key), "{changed:?}");
        }
        assert_ne!(ClusterSecret::new(&[8; 32]).key_of(&given), Some(key), "another cluster");
        assert_eq!(secret.key_of(&KeyClaims { root: 1, ..given }), None);
    }

    #[test]
    fn expired_and_revoked_keys_are_rejected() {
        let secret = ClusterSecret::new(&[7; 32]);
        let (role, key) = (Role::Client(user(1000)), claims(Holder::User(user(1000))));
        assert!(secret.admit(&key, &role, now()).is_ok());
        let expired = KeyClaims { expires_s: 1_800_000_000, ..key.clone() };
        assert!(refusal(&secret, &expired, &role).contains("expired at 2027-01-15T08:00:00Z"));
        assert!(secret.clone().revoke([KeyId(7)]), "clones share the list");
        assert!(!secret.revoke([KeyId(7)]), "already revoked");
        assert!(refusal(&secret, &key, &role).contains("revoked"));
        assert!(secret.admit(&KeyClaims { id: KeyId(8), ..key }, &role, now()).is_ok());
        assert_eq!((secret.revoked(), secret.revoked_count()), (vec![KeyId(7)], 1));
        // Keys of the root secret can be invalidated only with the secret.
        secret.revoke([KeyId::ROOT]);
        let (own, _) = secret.own_server_key();
        assert!(secret.admit(&own, &Role::Server(ServerId(0)), now()).is_ok());
    }

    #[test]
    fn a_rotation_keeps_keys_and_macs_of_both_generations() {
        let root = |generation| RootSecret { generation, secret: [generation as u8 + 7; 32] };
        let (role, old) = (Role::Client(user(1000)), claims(Holder::User(user(1000))));
        let secret = ClusterSecret::of(vec![root(0)]);
        let mac = secret.mac(MacUse::Walk, b"bytes");
        let new = KeyClaims { root: 1, ..old.clone() };
        assert!(refusal(&secret, &new, &role).contains("generation 1"));
        assert!(secret.replace(vec![root(0), root(1)]) && !secret.replace(vec![root(0), root(1)]));
        assert_eq!((secret.generation(), secret.generations()), (0, vec![0, 1]));
        assert!(secret.admit(&new, &role, now()).is_ok() && secret.admit(&old, &role, now()).is_ok());
        assert!(secret.replace(vec![root(1), root(0)]));
        assert_eq!(secret.generation(), 1);
        assert!(secret.mac_holds(MacUse::Walk, b"bytes", &mac), "made by the previous generation");
        assert!(secret.admit(&old, &role, now()).is_ok());
        let newer = secret.mac(MacUse::Walk, b"bytes");
        assert_ne!(newer, mac);
        assert!(secret.replace(vec![root(1)]));
        assert!(
            !secret.mac_holds(MacUse::Walk, b"bytes", &mac)
                && secret.mac_holds(MacUse::Walk, b"bytes", &newer)
        );
        assert!(
            !secret.mac_holds(MacUse::Capability, b"bytes", &newer)
                && !secret.mac_holds(MacUse::Walk, b"byte", &newer)
        );
        assert!(refusal(&secret, &old, &role).contains("generation 0"));
    }

    #[test]
    fn claims_that_no_key_has_are_rejected() {
        let named =
            |name: &str| Holder::Host { name: name.into(), first_uid: 1, last_uid: 2, squash_root: true };
        let unsorted = Identity { uid: 1, gid: 1, groups: vec![2, 1] };
        let range = |first_uid, last_uid, squash_root| Holder::Host {
            name: "n".into(),
            first_uid,
            last_uid,
            squash_root,
        };
        for holder in [
            named(""),
            named("two words"),
            named(&"n".repeat(65)),
            range(2, 1, true),
            range(0, 1, true),
            Holder::User(unsorted),
        ] {
            let error = claims(holder.clone()).check().expect_err("rejected");
            assert_eq!(error.errno, Errno::EINVAL, "{holder:?}");
        }
        assert_eq!(claims(named(&"n".repeat(64))).check(), Ok(()));
        assert_eq!(claims(range(0, u32::MAX, false)).check(), Ok(()));
    }

    #[test]
    fn ids_parse_as_displayed() {
        for id in [0, 7, u64::MAX] {
            assert_eq!(KeyId(id).to_string().parse(), Ok(KeyId(id)));
        }
        for text in ["", "7", "+000000000000007", "00000000000000007", "000000000000000g"] {
            assert!(text.parse::<KeyId>().is_err(), "{text}");
        }
    }
}
