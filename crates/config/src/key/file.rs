//! Reading and writing key files: owner, mode and links are checked.

use super::Key;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Most bytes of a key file.
const LEN_MAX: u64 = 4096;
/// Any user may write.
const WRITABLE_BY_ALL: u32 = 0o002;
/// Only owners may remove and rename what is in the directory.
const STICKY: u32 = 0o1000;

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
    /// Another user can change it.
    #[error(
        "key file {path}: user {owner} owns {what}, and this process runs as user {uid}; run it as that user, or make a \
         copy that user {uid} owns, mode 600"
    )]
    Owner {
        /// The file.
        path: PathBuf,
        /// The file or link.
        what: &'static str,
        /// Its owner.
        owner: u32,
        /// User of this process.
        uid: u32,
    },
    /// Anyone can put another file in its place.
    #[error("key file {path}: any user may write to its directory; run: chmod o-w {dir}")]
    Directory {
        /// The file.
        path: PathBuf,
        /// Its directory.
        dir: PathBuf,
    },
    /// It holds something else.
    #[error("key file {path}: it holds no Weft key; make one with `weft key make FILE`")]
    Malformed {
        /// The file.
        path: PathBuf,
    },
    /// It holds a user's key of the first format.
    #[error(
        "key file {path}: a key of an earlier version, without an id and an end; get a new one from the administrator \
         (`weft key user`)"
    )]
    Outdated {
        /// The file.
        path: PathBuf,
    },
}

impl Key {
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

    /// Puts this key in the place of the one in the file, which a crash leaves whole, as it was or as it is to be.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn replace(&self, path: &Path) -> Result<(), KeyError> {
        let remedy = "the key in the file stays as it was: make its directory writable";
        let io = |source| KeyError::Io { path: path.to_owned(), source, remedy };
        // A link stays a link.
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
            let _ = std::fs::remove_file(&draft); // it may never have been made
            io(error)
        })
    }
}

/// Reads a key file of any kind.
///
/// # Errors
/// When it cannot be read, others may read or change it, or it holds something else.
pub fn read_key(path: &Path) -> Result<Key, KeyError> {
    // SAFETY: geteuid has no preconditions and cannot fail.
    let uid = unsafe { libc::geteuid() };
    read_as(path, uid)
}

fn read_as(path: &Path, uid: u32) -> Result<Key, KeyError> {
    let io = |source: io::Error| {
        let remedy = match source.kind() {
            io::ErrorKind::NotFound => "make it with `weft key make FILE`, or name yours with WEFT_KEY",
            _ => {
                "users get a key of their own from the administrator (`weft key user`); name it with WEFT_KEY"
            }
        };
        KeyError::Io { path: path.to_owned(), source, remedy }
    };
    let own = |what, owner: u32| match owner == uid || owner == 0 {
        true => Ok(()),
        false => Err(KeyError::Owner { path: path.to_owned(), what, owner, uid }),
    };
    // The owner of a link can lead to any other file.
    let named = std::fs::symlink_metadata(path).map_err(io)?;
    if named.is_symlink() {
        own("the link", named.uid())?;
        not_for_all(path, parent(path))?;
    }
    // A pipe in its place does not hold this process up.
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path).map_err(io)?;
    // The open file is asked, not its name, so that nobody can exchange it in between.
    let found: Metadata = file.metadata().map_err(io)?;
    if !found.is_file() {
        return Err(KeyError::Malformed { path: path.to_owned() });
    }
    own("it", found.uid())?;
    if found.mode() & 0o077 != 0 {
        return Err(KeyError::Open { path: path.to_owned(), mode: found.mode() & 0o7777 });
    }
    let real = path.canonicalize().map_err(io)?;
    not_for_all(path, parent(&real))?;
    let mut text = String::new();
    (&file).take(LEN_MAX).read_to_string(&mut text).map_err(io)?;
    match Key::parse(&text) {
        Some(key) => Ok(key),
        None if Key::is_outdated(&text) => Err(KeyError::Outdated { path: path.to_owned() }),
        None => Err(KeyError::Malformed { path: path.to_owned() }),
    }
}

/// Refuses a directory in which any user may put another file in the place of this one.
fn not_for_all(path: &Path, dir: &Path) -> Result<(), KeyError> {
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
    fn keys_read_back_and_are_private() {
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
    fn a_key_is_replaced_whole_also_behind_a_link() {
        let dir = tempfile::tempdir().expect("a directory");
        let (path, link) = (dir.path().join("key"), dir.path().join("link"));
        key().write_new(&path).expect("written");
        symlink(&path, &link).expect("a link");
        let next = key();
        next.replace(&link).expect("replaced");
        assert_eq!(read_key(&path).expect("read"), next);
        assert!(std::fs::symlink_metadata(&link).expect("there").is_symlink());
        assert_eq!(std::fs::metadata(&path).expect("there").mode() & 0o7777, 0o600);
        assert_eq!(std::fs::read_dir(dir.path()).expect("listed").count(), 2, "no draft stays");
        assert!(next.replace(&dir.path().join("none")).is_err());
    }

    #[test]
    fn files_and_links_of_other_users_are_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        let (path, link) = (dir.path().join("key"), dir.path().join("link"));
        key().write_new(&path).expect("written");
        symlink(&path, &link).expect("a link");
        let owner = std::fs::metadata(&path).expect("there").uid();
        assert!(read_as(&path, owner).is_ok() && read_as(&link, owner).is_ok());
        if owner != 0 {
            assert!(matches!(read_as(&path, owner + 1), Err(KeyError::Owner { what: "it", .. })));
            assert!(matches!(read_as(&link, owner + 1), Err(KeyError::Owner { what: "the link", .. })));
            return;
        }
        // As root the owner can be another one.
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
    fn a_directory_that_anyone_may_write_to_is_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        let open = dir.path().join("open");
        std::fs::create_dir(&open).expect("made");
        let path = open.join("key");
        key().write_new(&path).expect("written");
        chmod(&open, 0o777);
        assert!(matches!(read_key(&path), Err(KeyError::Directory { .. })));
        let link = dir.path().join("link");
        symlink(&path, &link).expect("a link");
        assert!(matches!(read_key(&link), Err(KeyError::Directory { .. })));
        chmod(&open, 0o1777);
        assert!(read_key(&path).is_ok() && read_key(&link).is_ok(), "a sticky one, such as /tmp");
    }

    #[test]
    fn other_files_are_no_keys() {
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
        assert!(matches!(read_key(&pipe), Err(KeyError::Malformed { .. })), "and does not wait");
    }
}
