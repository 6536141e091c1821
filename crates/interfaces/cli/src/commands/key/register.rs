//! The list of issued keys: a file beside the cluster key with a line of JSON for each key that was issued or revoked.
//!
//! Servers do not need the list, because a key contains its own claims. The list tells an administrator the ids of
//! keys. It is beside the cluster key because keys are issued there, with or without a running cluster.

use crate::failure::Failure;
use serde::{Deserialize, Serialize};
use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use weft_wire::keys::{KeyClaims, KeyId};

/// Maximum length of a list in bytes.
const LEN_MAX: u64 = 64 << 20;

/// A line of the list.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum Entry {
    /// A key was issued.
    Issued {
        /// Id of the key.
        #[serde(with = "hex_id")]
        id: KeyId,
        /// Holder of the key.
        holder: String,
        /// Generation of the root secret.
        generation: u32,
        /// Time of the event in seconds since 1970.
        at_s: u64,
        /// Expiration in seconds since 1970. 0 is never.
        expires_s: u64,
    },
    /// A key was revoked.
    Revoked {
        /// Id of the key.
        #[serde(with = "hex_id")]
        id: KeyId,
        /// Time of the event in seconds since 1970.
        at_s: u64,
    },
}

mod hex_id {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};
    use weft_wire::keys::KeyId;

    #[allow(clippy::trivially_copy_pass_by_ref)] // serde hands out references
    pub fn serialize<S: Serializer>(id: &KeyId, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(id)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<KeyId, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

impl Entry {
    /// Creates the entry of a key that is issued now.
    pub fn issued(claims: &KeyClaims, at_s: u64) -> Self {
        let KeyClaims { id, root, holder, expires_s } = claims;
        Self::Issued { id: *id, holder: holder.to_string(), generation: *root, at_s, expires_s: *expires_s }
    }

    /// Id of the key.
    pub fn id(&self) -> KeyId {
        match self {
            Self::Issued { id, .. } | Self::Revoked { id, .. } => *id,
        }
    }

    /// Time of the event in seconds since 1970.
    pub fn at_s(&self) -> u64 {
        match self {
            Self::Issued { at_s, .. } | Self::Revoked { at_s, .. } => *at_s,
        }
    }

    /// Expiration in seconds since 1970. 0 is never.
    pub fn expires_s(&self) -> u64 {
        match self {
            Self::Issued { expires_s, .. } => *expires_s,
            Self::Revoked { .. } => 0,
        }
    }

    /// Holder of the key.
    pub fn holder(&self) -> &str {
        match self {
            Self::Issued { holder, .. } => holder,
            Self::Revoked { .. } => "?",
        }
    }

    /// Generation of the root secret.
    pub fn generation(&self) -> u32 {
        match self {
            Self::Issued { generation, .. } => *generation,
            Self::Revoked { .. } => 0,
        }
    }
}

/// The list.
pub struct Register {
    path: PathBuf,
}

impl Register {
    /// Returns the list beside a cluster key.
    pub fn beside(key: &Path) -> Self {
        // Links to the same key must lead to one list.
        let key = key.canonicalize().unwrap_or_else(|_| key.to_owned());
        let mut path = key.into_os_string();
        path.push(".issued");
        Self { path: path.into() }
    }

    /// Path of the list.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Adds a line durably.
    pub fn add(&self, entry: &Entry) -> Result<(), Failure> {
        let failed = |error: std::io::Error| {
            Failure::new(self.path.display(), format!("the list of issued keys cannot be written: {error}"))
                .remedy("run this as the owner of the cluster key")
        };
        let mut line = serde_json::to_string(entry).expect("texts and numbers are JSON");
        line.push('\n');
        let mut options = OpenOptions::new();
        options.append(true).create(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
        let mut file = options.open(&self.path).map_err(failed)?;
        // A single write, so that concurrent commands do not mix their lines.
        file.write_all(line.as_bytes()).and_then(|()| file.sync_all()).map_err(failed)
    }

    /// Reads all entries, and counts the lines that are not entries. A missing list is empty.
    pub fn read(&self) -> Result<(Vec<Entry>, usize), Failure> {
        let file = match OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW).open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok((Vec::new(), 0)),
            Err(error) => {
                return Err(Failure::new(self.path.display(), error)
                    .remedy("run this as the owner of the cluster key, on a host that has it"));
            }
        };
        let mut bytes = Vec::new();
        file.take(LEN_MAX)
            .read_to_end(&mut bytes)
            .map_err(|error| Failure::new(self.path.display(), error))?;
        let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let (mut entries, mut unreadable) = (Vec::new(), 0);
        for line in lines {
            match serde_json::from_slice(line) {
                Ok(entry) => entries.push(entry),
                Err(_) => unreadable += 1,
            }
        }
        Ok((entries, unreadable))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;
    use weft_wire::keys::Holder;

    #[test]
    fn lines_read_back_and_others_are_counted() {
        let dir = tempfile::tempdir().expect("a directory");
        let register = Register::beside(&dir.path().join("cluster.key"));
        assert_eq!(register.read().expect("empty"), (vec![], 0));
        let holder = Holder::Host { name: "n".into(), first_uid: 1, last_uid: 2, squash_root: true };
        let claims = KeyClaims { id: KeyId(255), root: 3, holder, expires_s: 9 };
        let entries = [Entry::issued(&claims, 5), Entry::Revoked { id: KeyId(u64::MAX), at_s: 6 }];
        entries.iter().for_each(|entry| register.add(entry).expect("written"));
        let mode = std::fs::metadata(register.path()).expect("there").mode();
        assert_eq!(mode & 0o7777, 0o600);
        assert_eq!(register.read().expect("read"), (entries.to_vec(), 0));
        let mut text = std::fs::read(register.path()).expect("read");
        text.extend_from_slice(
            b"{\"event\":\"other\"}\n\xff\n{\"event\":\"revoked\",\"id\":\"12\",\"at_s\":1}\n\n{\"eve",
        );
        std::fs::write(register.path(), text).expect("written");
        assert_eq!(register.read().expect("read"), (entries.to_vec(), 4));
    }
}
