//! Key files: the cluster key with the root secrets, and keys issued from it.
//!
//! ```text
//! weft-cluster-key-1 SECRET             one root secret, generation 0
//!
//! weft-cluster-key-2                    root secrets, the current one first
//! root GENERATION MADE SECRET           MADE in seconds since 1970; 1 to 8 such lines
//!
//! weft-key-2
//! id ID                                 16 hexadecimal digits
//! generation GENERATION                 of the root secret
//! holder administrator
//! holder user UID GID GROUP,GROUP,...   - without supplementary groups
//! holder host NAME FIRST-LAST squash    or no-squash: root of the host is nobody, or root
//! expires SECONDS                       since 1970, or never
//! secret SECRET
//! ```
//!
//! A SECRET is 64 hexadecimal digits. User keys of the first format (`weft-user-key-1`) have neither an id nor an
//! expiry and are rejected.

mod file;

pub use file::{KeyError, read_key};

use std::fmt::Write as _;
use std::fs::File;
use std::io::Read;
use weft_client::IssuedKey;
use weft_wire::ClusterSecret;
use weft_wire::hello::Identity;
use weft_wire::keys::{GENERATIONS_MAX, Holder, KeyClaims, KeyId, RootSecret, derived_root};

const CLUSTER_1: &str = "weft-cluster-key-1";
const CLUSTER: &str = "weft-cluster-key-2";
const USER_1: &str = "weft-user-key-1";
const ISSUED: &str = "weft-key-2";

/// Key, as its file contains it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Key {
    /// Cluster key: servers hold it and issue keys with it.
    Cluster(ClusterKey),
    /// Key of an administrator, a user or a host.
    Issued(Box<IssuedKey>),
}

/// Root secrets of a cluster.
#[derive(Clone, PartialEq, Eq)]
pub struct ClusterKey {
    /// Root secrets, the current one first: at least one, with distinct generations.
    roots: Vec<Root>,
}

#[derive(Clone, PartialEq, Eq)]
struct Root {
    generation: u32,
    made_s: u64,
    secret: [u8; 32],
}

impl std::fmt::Debug for ClusterKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ClusterKey({:?}, ..)", self.generations()) // keys are never printed
    }
}

/// State of a rotation of the root secret.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rotation {
    /// No rotation is in progress.
    None,
    /// Servers accept the next generation but use the previous one.
    Added {
        /// Next generation.
        next: u32,
    },
    /// The next generation is in use; the previous one is still accepted.
    Used {
        /// Previous generation.
        former: u32,
    },
}

impl ClusterKey {
    /// Creates a cluster key with a random root secret, generation 0.
    ///
    /// # Errors
    /// If the system returns no random bytes.
    pub fn make(now_s: u64) -> std::io::Result<Self> {
        Ok(Self { roots: vec![Root { generation: 0, made_s: now_s, secret: random()? }] })
    }

    /// Returns the key of another cluster, which depends on the current root secret and `purpose` only. So hosts with the
    /// same key agree on it without messages. It reveals nothing of this key.
    pub fn derive(&self, purpose: &str) -> Self {
        let secret = derived_root(&self.roots[0].secret, purpose.as_bytes());
        Self { roots: vec![Root { generation: 0, made_s: 0, secret }] }
    }

    /// Returns the secret from which servers derive keys and MACs.
    pub fn secret(&self) -> ClusterSecret {
        ClusterSecret::of(self.roots())
    }

    /// Returns the root secrets, the current one first.
    pub fn roots(&self) -> Vec<RootSecret> {
        let root = |root: &Root| RootSecret { generation: root.generation, secret: root.secret };
        self.roots.iter().map(root).collect()
    }

    /// Returns the generations, the current one first.
    pub fn generations(&self) -> Vec<u32> {
        self.roots.iter().map(|root| root.generation).collect()
    }

    /// Returns the creation time of the current generation in seconds since 1970; 0 if unknown.
    pub fn made_s(&self) -> u64 {
        self.roots[0].made_s
    }

    /// Returns the state of the rotation.
    pub fn rotation(&self) -> Rotation {
        match &self.roots[..] {
            [] | [_] => Rotation::None,
            [used, others @ ..] => {
                let latest = others.iter().map(|root| root.generation).max().unwrap_or_default();
                if latest > used.generation {
                    Rotation::Added { next: latest }
                } else {
                    Rotation::Used { former: latest }
                }
            }
        }
    }

    /// Adds the next generation, which is accepted but not used yet. Returns `None` during a rotation.
    ///
    /// # Errors
    /// If the system returns no random bytes.
    pub fn add(&self, now_s: u64) -> std::io::Result<Option<Self>> {
        let [used] = &self.roots[..] else { return Ok(None) };
        let Some(generation) = used.generation.checked_add(1) else { return Ok(None) };
        let next = Root { generation, made_s: now_s, secret: random()? };
        Ok(Some(Self { roots: vec![used.clone(), next] }))
    }

    /// Switches to the added generation; the previous one is still accepted. Returns `None` if none was added.
    pub fn use_next(&self, now_s: u64) -> Option<Self> {
        let Rotation::Added { next } = self.rotation() else { return None };
        let mut roots = self.roots.clone();
        let at = roots.iter().position(|root| root.generation == next)?;
        let mut used = roots.remove(at);
        // Keys and capabilities are made with this generation from now on.
        used.made_s = now_s;
        roots.insert(0, used);
        Some(Self { roots })
    }

    /// Accepts only the current generation from now on. Returns `None` if an added generation is not in use yet.
    pub fn finish(&self) -> Option<Self> {
        let Rotation::Used { .. } = self.rotation() else { return None };
        Some(Self { roots: vec![self.roots[0].clone()] })
    }

    /// Issues a key with a random id.
    ///
    /// # Errors
    /// If the system returns no random bytes.
    pub fn issue(&self, holder: Holder, expires_s: u64) -> std::io::Result<IssuedKey> {
        let mut id = KeyId::ROOT;
        while id == KeyId::ROOT {
            let mut bytes = [0; 8];
            File::open("/dev/urandom")?.read_exact(&mut bytes)?;
            id = KeyId(u64::from_le_bytes(bytes));
        }
        let claims = KeyClaims { id, root: self.roots[0].generation, holder, expires_s };
        let secret = self.secret().key_of(&claims).expect("the current generation is accepted");
        Ok(IssuedKey { claims, secret })
    }

    fn parse(lines: &mut std::str::Lines<'_>) -> Option<Self> {
        let mut roots: Vec<Root> = Vec::new();
        for line in lines {
            let words: Vec<_> = line.split_whitespace().collect();
            let ["root", generation, made, secret] = words[..] else { return None };
            let (generation, made_s) = (number(generation)?, number(made)?);
            if roots.len() == GENERATIONS_MAX || roots.iter().any(|root| root.generation == generation) {
                return None;
            }
            roots.push(Root { generation, made_s, secret: unhex(secret)? });
        }
        (!roots.is_empty()).then_some(Self { roots })
    }
}

fn random() -> std::io::Result<[u8; 32]> {
    let mut bytes = [0; 32];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

impl Key {
    /// Returns the contents of the key file.
    pub fn to_text(&self) -> String {
        match self {
            Self::Cluster(key) => {
                let mut out = format!("{CLUSTER}\n");
                for Root { generation, made_s, secret } in &key.roots {
                    let _ = writeln!(out, "root {generation} {made_s} {}", hex(secret)); // writing to a String succeeds
                }
                out
            }
            Self::Issued(key) => {
                let KeyClaims { id, root, holder, expires_s } = &key.claims;
                let expires = if *expires_s == 0 { "never".to_owned() } else { expires_s.to_string() };
                format!(
                    "{ISSUED}\nid {id}\ngeneration {root}\nholder {}\nexpires {expires}\nsecret {}\n",
                    holder_text(holder),
                    hex(&key.secret)
                )
            }
        }
    }

    /// Parses the contents of a key file; `None` if they are not a key.
    pub fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let first = lines.next()?;
        let words: Vec<_> = first.split_whitespace().collect();
        match words[..] {
            [CLUSTER_1, secret] if lines.next().is_none() => {
                let root = Root { generation: 0, made_s: 0, secret: unhex(secret)? };
                Some(Self::Cluster(ClusterKey { roots: vec![root] }))
            }
            [CLUSTER] => Some(Self::Cluster(ClusterKey::parse(&mut lines)?)),
            [ISSUED] => {
                let mut value = |word: &str| {
                    let line = lines.next()?;
                    line.strip_prefix(word)?.strip_prefix(' ')
                };
                let id = value("id")?.parse().ok()?;
                let root = number(value("generation")?)?;
                let holder = parse_holder(value("holder")?)?;
                let expires_s = match value("expires")? {
                    "never" => 0,
                    seconds => number::<u64>(seconds).filter(|seconds| *seconds > 0)?,
                };
                let secret = unhex(value("secret")?)?;
                if lines.next().is_some() {
                    return None;
                }
                let claims = KeyClaims { id, root, holder, expires_s };
                claims.check().ok()?;
                Some(Self::Issued(Box::new(IssuedKey { claims, secret })))
            }
            _ => None,
        }
    }

    /// Whether the text is a user key of the first format.
    pub fn is_outdated(text: &str) -> bool {
        text.split_whitespace().next() == Some(USER_1)
    }
}

fn holder_text(holder: &Holder) -> String {
    match holder {
        Holder::Server => "server".into(),
        Holder::Administrator => "administrator".into(),
        Holder::User(Identity { uid, gid, groups }) => {
            let groups = groups.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
            format!("user {uid} {gid} {}", if groups.is_empty() { "-" } else { &groups })
        }
        Holder::Host { name, first_uid, last_uid, squash_root } => {
            let root = if *squash_root { "squash" } else { "no-squash" };
            format!("host {name} {first_uid}-{last_uid} {root}")
        }
    }
}

fn parse_holder(text: &str) -> Option<Holder> {
    let words: Vec<_> = text.split(' ').collect();
    match words[..] {
        ["administrator"] => Some(Holder::Administrator),
        ["user", uid, gid, groups] => {
            let groups = match groups {
                "-" => Vec::new(),
                groups => groups.split(',').map(number).collect::<Option<Vec<_>>>()?,
            };
            Some(Holder::User(Identity { uid: number(uid)?, gid: number(gid)?, groups }))
        }
        ["host", name, uids, root] => {
            let (first, last) = uids.split_once('-')?;
            let squash_root = match root {
                "squash" => true,
                "no-squash" => false,
                _ => return None,
            };
            let (first_uid, last_uid) = (number(first)?, number(last)?);
            Some(Holder::Host { name: name.into(), first_uid, last_uid, squash_root })
        }
        _ => None,
    }
}

/// Parses a number that consists of digits only, without a sign.
fn number<N: std::str::FromStr>(text: &str) -> Option<N> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    is_plain.then(|| text.parse().ok()).flatten()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut out, byte| {
        let _ = write!(out, "{byte:02x}"); // writing to a String succeeds
        out
    })
}

fn unhex(text: &str) -> Option<[u8; 32]> {
    let mut out = [0; 32];
    if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    for (index, byte) in out.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * index..2 * index + 2], 16).ok()?;
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster() -> ClusterKey {
        ClusterKey { roots: vec![Root { generation: 0, made_s: 100, secret: [7; 32] }] }
    }

    fn holders() -> [Holder; 5] {
        let host = |squash_root| Holder::Host {
            name: "node-17.x".into(),
            first_uid: 1000,
            last_uid: 60_000,
            squash_root,
        };
        [
            Holder::Administrator,
            Holder::User(Identity { uid: 1000, gid: 100, groups: vec![] }),
            Holder::User(Identity { uid: 1000, gid: 100, groups: vec![4, 24] }),
            host(true),
            host(false),
        ]
    }

    #[test]
    fn issued_keys_parse_and_verify() {
        for holder in holders() {
            for expires_s in [0, 1_800_000_000] {
                let key = cluster().issue(holder.clone(), expires_s).expect("random bytes");
                assert_eq!(cluster().secret().key_of(&key.claims), Some(key.secret));
                let text = Key::Issued(Box::new(key.clone())).to_text();
                assert_eq!(Key::parse(&text), Some(Key::Issued(Box::new(key))), "{text}");
            }
        }
    }

    #[test]
    fn a_cluster_key_of_the_first_format_is_generation_0() {
        let secret = "07".repeat(32);
        let Some(Key::Cluster(read)) = Key::parse(&format!("weft-cluster-key-1 {secret}\n")) else {
            panic!("a cluster key")
        };
        assert_eq!((read.generations(), read.made_s()), (vec![0], 0));
        let (old, new) = (ClusterSecret::new(&[7; 32]), read.secret());
        assert_eq!(old.own_server_key(), new.own_server_key());
        assert_eq!(Key::parse(&Key::Cluster(read.clone()).to_text()), Some(Key::Cluster(read)));
    }

    #[test]
    fn a_rotation_adds_uses_and_finishes() {
        let begun = cluster();
        assert_eq!((begun.rotation(), begun.use_next(1), begun.finish()), (Rotation::None, None, None));
        let added = begun.add(200).expect("random bytes").expect("no rotation is in progress");
        assert_eq!((added.rotation(), added.generations()), (Rotation::Added { next: 1 }, vec![0, 1]));
        assert!(added.add(300).expect("random bytes").is_none() && added.finish().is_none());
        let used = added.use_next(400).expect("a generation was added");
        assert_eq!((used.rotation(), used.generations()), (Rotation::Used { former: 0 }, vec![1, 0]));
        assert_eq!((used.made_s(), used.use_next(500)), (400, None));
        let text = Key::Cluster(used.clone()).to_text();
        assert_eq!(Key::parse(&text), Some(Key::Cluster(used.clone())));
        let finished = used.finish().expect("the next generation is in use");
        assert_eq!((finished.rotation(), finished.generations()), (Rotation::None, vec![1]));
    }

    #[test]
    fn texts_that_are_not_keys_are_rejected() {
        let secret = "07".repeat(32);
        let issued = |holder: &str, expires: &str| {
            format!(
                "weft-key-2\nid 00000000000000ff\ngeneration 0\nholder {holder}\nexpires {expires}\nsecret {secret}\n"
            )
        };
        assert!(Key::parse(&issued("administrator", "never")).is_some());
        let bad = [
            String::new(),
            "other".into(),
            "weft-cluster-key-1 12".into(),
            format!("weft-cluster-key-1 {secret}\nmore\n"),
            format!("weft-cluster-key-1 {}", "+7".repeat(32)),
            "weft-cluster-key-2\n".into(),
            format!("weft-cluster-key-2\nroot 0 0 {secret}\nroot 0 0 {secret}\n"),
            format!("weft-cluster-key-2\nroot -1 0 {secret}\n"),
            format!("weft-cluster-key-3\nroot 0 0 {secret}\n"),
            format!("weft-user-key-1 1000 100 - {secret}\n"),
            issued("administrator", "0"),
            issued("administrator", "+1"),
            issued("administrator", "soon"),
            issued("user 1 2", "never"),
            issued("user 1 2 24,4", "never"),
            issued("host n 2-1 squash", "never"),
            issued("host n 0-1 squash", "never"),
            issued("host n 1-2", "never"),
            issued("host n 1-2 maybe", "never"),
            issued("host a b 1-2 squash", "never"),
            issued("anybody", "never"),
            issued("administrator", "never") + "more\n",
            issued("administrator", "never").replace("generation 0\n", ""),
            issued("administrator", "never").replace("00ff", "ff"),
        ];
        for text in bad {
            assert_eq!(Key::parse(&text), None, "{text}");
        }
        assert!(Key::is_outdated(&format!("weft-user-key-1 1000 100 - {secret}\n")));
    }

    #[test]
    fn derived_keys_depend_on_key_and_name_only() {
        let key = cluster();
        let derived = key.derive("job 17 of user 1000");
        assert_eq!(derived, key.derive("job 17 of user 1000"));
        assert_ne!(derived.roots(), key.derive("job 18 of user 1000").roots());
        assert_ne!(
            derived.roots(),
            ClusterKey::make(0).expect("random bytes").derive("job 17 of user 1000").roots()
        );
        assert_ne!(derived.roots(), key.roots());
        // Nodes with different versions of Weft must agree.
        assert_eq!(
            hex(&derived.roots()[0].secret),
            "ff190e4f1f77191298761ee792e0a8b042785f0a0c5a7e1f254c8fd88378bb53"
        );
        assert_eq!(Key::parse(&Key::Cluster(derived.clone()).to_text()), Some(Key::Cluster(derived)));
    }

    #[test]
    fn secrets_are_never_printed() {
        let key = Key::Cluster(cluster());
        assert!(!format!("{key:?}").contains("07"), "{key:?}");
        let issued = cluster().issue(Holder::Administrator, 0).expect("random bytes");
        let secret = hex(&issued.secret);
        assert!(!format!("{:?}", Key::Issued(Box::new(issued))).contains(&secret));
    }
}
