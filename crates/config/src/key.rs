//! Key files: the cluster key, and the key of one user that is derived from it.
//!
//! ```text
//! weft-cluster-key-1 <64 hexadecimal digits>
//! weft-user-key-1 <uid> <gid> <group,group,... or -> <64 hexadecimal digits>
//! ```

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use weft_wire::ClusterSecret;
use weft_wire::hello::Identity;

const CLUSTER: &str = "weft-cluster-key-1";
const USER: &str = "weft-user-key-1";

/// A key, as its file holds it.
#[derive(Clone)]
pub enum Key {
    /// Of the whole cluster: servers and administrators, who may be anybody.
    Cluster([u8; 32]),
    /// Of one user.
    User(Identity, [u8; 32]),
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Cluster(_) => f.write_str("Key::Cluster(..)"), // keys are never printed
            Self::User(identity, _) => write!(f, "Key::User({identity:?}, ..)"),
        }
    }
}

/// Why a key file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// It cannot be read or written.
    #[error("key file {path}: {source}; {remedy}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
        /// What to do.
        remedy: &'static str,
    },
    /// Others may use it.
    #[error("key file {path}: others than its owner may use it (mode {mode:04o}); run: chmod 600 {path}")]
    Open {
        /// The file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// It holds something else.
    #[error("key file {path}: it holds no Weft key; make one with `weft key make FILE`")]
    Malformed {
        /// The file.
        path: PathBuf,
    },
}

impl Key {
    /// The key of `identity`, to give to that user.
    pub fn for_user(cluster: &[u8; 32], identity: Identity) -> Self {
        let key = ClusterSecret::new(cluster).identity_key(&identity);
        Self::User(identity, key)
    }

    /// What stands in the file.
    pub fn to_text(&self) -> String {
        match self {
            Self::Cluster(key) => format!("{CLUSTER} {}\n", hex(key)),
            Self::User(identity, key) => {
                let groups = identity.groups.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
                let groups = if groups.is_empty() { "-" } else { &groups };
                format!("{USER} {} {} {groups} {}\n", identity.uid, identity.gid, hex(key))
            }
        }
    }

    /// From what stands in the file; `None` when that is no key.
    pub fn parse(text: &str) -> Option<Self> {
        let words: Vec<_> = text.split_whitespace().collect();
        match words[..] {
            [CLUSTER, key] => Some(Self::Cluster(unhex(key)?)),
            [USER, uid, gid, groups, key] => {
                let groups = match groups {
                    "-" => Vec::new(),
                    groups => groups.split(',').map(|g| g.parse().ok()).collect::<Option<Vec<_>>>()?,
                };
                let identity = Identity { uid: uid.parse().ok()?, gid: gid.parse().ok()?, groups };
                Some(Self::User(identity, unhex(key)?))
            }
            _ => None,
        }
    }

    /// Writes a new key file that only its owner can read.
    ///
    /// # Errors
    /// When the file exists or cannot be written.
    pub fn write_new(&self, path: &Path) -> Result<(), KeyError> {
        let remedy =
            "an existing key is never overwritten: choose another name, in a directory that can be written";
        let io = |source| KeyError::Io { path: path.to_owned(), source, remedy };
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(io)?;
        file.write_all(self.to_text().as_bytes()).and_then(|()| file.sync_all()).map_err(io)
    }
}

/// A fresh cluster key.
///
/// # Errors
/// When the system gives no random bytes.
pub fn make_cluster_key() -> std::io::Result<Key> {
    let mut key = [0; 32];
    File::open("/dev/urandom")?.read_exact(&mut key)?;
    Ok(Key::Cluster(key))
}

/// Reads a key file of either kind.
///
/// # Errors
/// When it cannot be read, is open to others, or holds something else.
pub fn read_key(path: &Path) -> Result<Key, KeyError> {
    let io = |source: std::io::Error| {
        let remedy = match source.kind() {
            std::io::ErrorKind::NotFound => "make it with `weft key make FILE`, or name yours with WEFT_KEY",
            _ => {
                "users get a key of their own from the administrator (`weft key user`); name it with WEFT_KEY"
            }
        };
        KeyError::Io { path: path.to_owned(), source, remedy }
    };
    let file = File::open(path).map_err(io)?;
    // The open file is asked, not its name, so that nobody can exchange it in between.
    let mode = file.metadata().map_err(io)?.mode();
    if mode & 0o077 != 0 {
        return Err(KeyError::Open { path: path.to_owned(), mode: mode & 0o7777 });
    }
    let mut text = String::new();
    (&file).take(4096).read_to_string(&mut text).map_err(io)?;
    Key::parse(&text).ok_or_else(|| KeyError::Malformed { path: path.to_owned() })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut out, byte| {
        let _ = write!(out, "{byte:02x}"); // a String takes every write
        out
    })
}

fn unhex(text: &str) -> Option<[u8; 32]> {
    let mut out = [0; 32];
    if text.len() != 64 || !text.is_ascii() {
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
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn keys_read_back_and_are_private() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("key");
        let key = make_cluster_key().expect("random bytes");
        key.write_new(&path).expect("written");
        assert_eq!(read_key(&path).expect("read").to_text(), key.to_text());
        assert!(key.write_new(&path).is_err(), "never overwritten");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).expect("chmod");
        assert!(matches!(read_key(&path), Err(KeyError::Open { mode: 0o640, .. })));
    }

    #[test]
    fn a_user_key_names_its_user() {
        let identity = Identity { uid: 1000, gid: 100, groups: vec![4, 24] };
        let key = Key::for_user(&[7; 32], identity.clone());
        let Some(Key::User(read, bytes)) = Key::parse(&key.to_text()) else { panic!("a user key") };
        assert_eq!(read, identity);
        assert_eq!(bytes, ClusterSecret::new(&[7; 32]).identity_key(&identity));
        for text in ["", "weft-cluster-key-1 12", "weft-user-key-1 1 2 - zz", "other"] {
            assert!(Key::parse(text).is_none(), "{text}");
        }
    }
}
