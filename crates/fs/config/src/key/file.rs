//! Reads and writes key files, and checks their owner, mode and links.

use super::Key;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Maximum length of a key file in bytes.
const LEN_MAX: u64 = 4096;
/// Permission of all users to write.
const WRITABLE_BY_ALL: u32 = 0o002;
/// Sticky bit: only owners may remove and rename the entries of a directory.
const STICKY: u32 = 0o1000;

/// Reason for which a key file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The file cannot be read or written.
    #[error("key file {path}: {source}; {remedy}")]
    Io {
        /// File.
        path: PathBuf,
        /// Error of the system.
        source: std::io::Error,
        /// Remedy.
        remedy: &'static str,
    },
    /// Users other than the owner may use the file.
    #[error("key file {path}: other users may use it (mode {mode:04o}); run: chmod 600 {path}")]
    Open {
        /// File.
        path: PathBuf,
        /// Mode.
        mode: u32,
    },
    /// Another user can change the file.
    #[error(
        "key file {path}: user {owner} owns {what}, and this process runs as user {uid}; run it as that user, or make a \
         copy that user {uid} owns, mode 600"
    )]
    Owner {
        /// File.
        path: PathBuf,
        /// File or link.
        what: &'static str,
        /// Owner.
        owner: u32,
        /// User of this process.
        uid: u32,
    },
    /// Any user can replace the file.
    #[error("key file {path}: any user may write to its directory; run: chmod o-w {dir}")]
    Directory {
        /// File.
        path: PathBuf,
        /// Directory.
        dir: PathBuf,
    },
    /// The file does not contain a key.
    #[error("key file {path}: it contains no Weft key; make one with `weft key make FILE`")]
    Malformed {
        /// File.
        path: PathBuf,
    },
    /// The file contains a user key of the first format.
    #[error(
        "key file {path}: a key of an earlier version, without an id and an expiry; get a new one from the \
         administrator (`weft key user`)"
    )]
    Outdated {
        /// File.
        path: PathBuf,
    },
}

impl Key {
    /// Writes a new key file that only its owner can read.
    ///
    /// # Errors
    /// If the file exists or cannot be written.
    pub fn write_new(&self, path: &Path) -> Result<(), KeyError> {
        let remedy = "an existing key is never overwritten: choose another name, in a writable directory";
        let io = |source| KeyError::Io { path: path.to_owned(), source, remedy };
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(io)?;
        file.write_all(self.to_text().as_bytes()).and_then(|()| file.sync_all()).map_err(io)
    }

    /// Replaces the key in the file. After a crash, the file contains either the old or the new key.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn replace(&self, path: &Path) -> Result<(), KeyError> {
        let remedy = "the key in the file is unchanged: make its directory writable";
        let io = |source| KeyError::Io { path: path.to_owned(), source, remedy };
        // A symbolic link stays a link.
        let target = path.canonicalize().map_err(io)?;
        let mut name = target.file_name().unwrap_or_default().to_owned();
        name.push(format!(".new-{}", std::process::id()));
        let draft = target.with_file_name(name);
        let written = (|| {
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
            file.write_all(self.to_text().as_bytes())?;
            file.sync_all()?;
            std::fs::rename(&draft, &target)?;
            File::open(parent(&target))?.sync_all()
        })();
        written.map_err(|error| {
            let _ = std::fs::remove_file(&draft); // it may not exist
            io(error)
        })
    }
}

/// Reads a key file of any kind.
///
/// # Errors
/// If it cannot be read, other users may read or change it, or it is not a key.
pub fn read_key(path: &Path) -> Result<Key, KeyError> {
    // SAFETY: geteuid has no preconditions and cannot fail.
    let uid = unsafe { libc::geteuid() };
    read_as(path, uid)
}

fn read_as(path: &Path, uid: u32) -> Result<Key, KeyError> {
    let io = |source: io::Error| {
        let remedy = match source.kind() {
            io::ErrorKind::NotFound => "make it with `weft key make FILE`, or name yours with WEFT_KEY",
            _ => "users get their own key from the administrator (`weft key user`); name it with WEFT_KEY",
        };
        KeyError::Io { path: path.to_owned(), source, remedy }
    };
    let own = |what, owner: u32| match owner == uid || owner == 0 {
        true => Ok(()),
        false => Err(KeyError::Owner { path: path.to_owned(), what, owner, uid }),
    };
    // The owner of a link can redirect it to any other file.
    let named = std::fs::symlink_metadata(path).map_err(io)?;
    if named.is_symlink() {
        own("the link", named.uid())?;
        check_not_writable_by_all(path, parent(path))?;
    }
    // Opening a pipe must not block.
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path).map_err(io)?;
    // Check the open file instead of its name, which another process could exchange.
    let found: Metadata = file.metadata().map_err(io)?;
    if !found.is_file() {
        return Err(KeyError::Malformed { path: path.to_owned() });
    }
    own("it", found.uid())?;
    if found.mode() & 0o077 != 0 {
        return Err(KeyError::Open { path: path.to_owned(), mode: found.mode() & 0o7777 });
    }
    let real = path.canonicalize().map_err(io)?;
    check_not_writable_by_all(path, parent(&real))?;
    let mut text = String::new();
    (&file).take(LEN_MAX).read_to_string(&mut text).map_err(io)?;
    match Key::parse(&text) {
        Some(key) => Ok(key),
        None if Key::is_outdated(&text) => Err(KeyError::Outdated { path: path.to_owned() }),
        None => Err(KeyError::Malformed { path: path.to_owned() }),
    }
}

/// Rejects a directory in which any user may replace the file.
fn check_not_writable_by_all(path: &Path, dir: &Path) -> Result<(), KeyError> {
    let found = std::fs::metadata(dir);
    match found.is_ok_and(|dir| dir.mode() & (WRITABLE_BY_ALL | STICKY) == WRITABLE_BY_ALL) {
        true => Err(KeyError::Directory { path: path.to_owned(), dir: dir.to_owned() }),
        false => Ok(()),
    }
}

fn parent(path: &Path) -> &Path {
    path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::super::ClusterKey;
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn chmod(path: &Path, mode: u32) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("chmod");
    }

    fn key() -> Key {
        Key::Cluster(ClusterKey::make(5).expect("random bytes"))
    }

    #[test]
    fn written_keys_are_private_and_can_be_read() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("key");
        let key = key();
        key.write_new(&path).expect("written");
        assert_eq!(read_key(&path).expect("read"), key);
        assert!(key.write_new(&path).is_err(), "never overwritten");
        for mode in [0o640, 0o604, 0o620, 0o601, 0o666] {
            chmod(&path, mode);
            assert!(matches!(read_key(&path), Err(KeyError::Open { mode: found, .. }) if found == mode));
        }
        chmod(&path, 0o400);
        assert!(read_key(&path).is_ok());
    }

    #[test]
    fn a_key_is_replaced_atomically_even_through_a_link() {
        let dir = tempfile::tempdir().expect("a directory");
        let (path, link) = (dir.path().join("key"), dir.path().join("link"));
        key().write_new(&path).expect("written");
        symlink(&path, &link).expect("a link");
        let next = key();
        next.replace(&link).expect("replaced");
        assert_eq!(read_key(&path).expect("read"), next);
        assert!(std::fs::symlink_metadata(&link).expect("exists").is_symlink());
        assert_eq!(std::fs::metadata(&path).expect("exists").mode() & 0o7777, 0o600);
        assert_eq!(std::fs::read_dir(dir.path()).expect("listed").count(), 2, "no temporary file remains");
        assert!(next.replace(&dir.path().join("none")).is_err());
    }

    #[test]
    fn files_and_links_of_other_users_are_rejected() {
        let dir = tempfile::tempdir().expect("a directory");
        let (path, link) = (dir.path().join("key"), dir.path().join("link"));
        key().write_new(&path).expect("written");
        symlink(&path, &link).expect("a link");
        let owner = std::fs::metadata(&path).expect("exists").uid();
        assert!(read_as(&path, owner).is_ok() && read_as(&link, owner).is_ok());
        if owner != 0 {
            assert!(matches!(read_as(&path, owner + 1), Err(KeyError::Owner { what: "it", .. })));
            assert!(matches!(read_as(&link, owner + 1), Err(KeyError::Owner { what: "the link", .. })));
            return;
        }
        // Root can change the owner.
        std::os::unix::fs::lchown(&link, Some(1234), None).expect("chown");
        assert!(matches!(
            read_as(&link, 0),
            Err(KeyError::Owner { what: "the link", owner: 1234, uid: 0, .. })
        ));
        std::os::unix::fs::lchown(&link, Some(0), None).expect("chown");
        std::os::unix::fs::chown(&path, Some(1234), None).expect("chown");
        assert!(matches!(read_as(&link, 0), Err(KeyError::Owner { what: "it", owner: 1234, .. })));
        assert!(matches!(read_as(&path, 0), Err(KeyError::Owner { what: "it", owner: 1234, .. })));
    }

    #[test]
    fn a_directory_that_all_users_may_write_is_rejected() {
        let dir = tempfile::tempdir().expect("a directory");
        let open = dir.path().join("open");
        std::fs::create_dir(&open).expect("created");
        let path = open.join("key");
        key().write_new(&path).expect("written");
        chmod(&open, 0o777);
        assert!(matches!(read_key(&path), Err(KeyError::Directory { .. })));
        let link = dir.path().join("link");
        symlink(&path, &link).expect("a link");
        assert!(matches!(read_key(&link), Err(KeyError::Directory { .. })));
        chmod(&open, 0o1777);
        assert!(read_key(&path).is_ok() && read_key(&link).is_ok(), "a sticky directory, such as /tmp");
    }

    #[test]
    fn other_files_are_rejected() {
        let dir = tempfile::tempdir().expect("a directory");
        assert!(matches!(read_key(dir.path()), Err(KeyError::Malformed { .. })));
        assert!(matches!(read_key(&dir.path().join("none")), Err(KeyError::Io { .. })));
        let write = |name: &str, text: &[u8]| {
            let path = dir.path().join(name);
            std::fs::write(&path, text).expect("written");
            chmod(&path, 0o600);
            read_key(&path)
        };
        assert!(matches!(write("empty", b""), Err(KeyError::Malformed { .. })));
        assert!(matches!(write("bytes", b"\xff\xfe"), Err(KeyError::Io { .. })));
        let old = format!("weft-user-key-1 1000 100 - {}\n", "07".repeat(32));
        assert!(matches!(write("old", old.as_bytes()), Err(KeyError::Outdated { .. })));
        let pipe = dir.path().join("pipe");
        let name = std::ffi::CString::new(pipe.to_str().expect("utf-8")).expect("no zeros");
        // SAFETY: the name is a C string.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        assert!(matches!(read_key(&pipe), Err(KeyError::Malformed { .. })), "without blocking");
    }
}
