//! Output files of long operations. Whether the file can be written is checked first, and an old file stays until the
//! new one is complete.

use crate::failure::Failure;
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// An output file that is replaced atomically where possible.
pub struct AtomicFile {
    path: PathBuf,
    to: Destination,
}

enum Destination {
    /// `-`
    Stdout,
    /// Written in place: devices, pipes, files with several names or another owner, and unwritable directories.
    InPlace,
    /// Written to a temporary file in the same directory, with the mode of the old file, then renamed.
    Temporary(PathBuf, Option<u32>),
}

impl AtomicFile {
    /// Checks that `path` can be written. `-` is standard output. Nothing is changed yet.
    pub fn new(path: &Path) -> Result<Self, Failure> {
        let to = Destination::of(path).map_err(|error| Failure::new(path.display(), error))?;
        Ok(Self { path: path.to_owned(), to })
    }

    /// Whether the output goes to standard output.
    pub fn is_stdout(&self) -> bool {
        matches!(self.to, Destination::Stdout)
    }

    /// Path of the output.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the whole contents.
    pub fn write(&self, bytes: &[u8]) -> Result<(), Failure> {
        let written = match &self.to {
            Destination::Stdout => {
                crate::output::bytes(bytes);
                Ok(())
            }
            Destination::InPlace => std::fs::write(&self.path, bytes),
            Destination::Temporary(path, mode) => {
                TemporaryFile::new(path, *mode).and_then(|file| file.write(bytes, path))
            }
        };
        written.map_err(|error| Failure::new(self.path.display(), error))
    }
}

impl Destination {
    fn of(path: &Path) -> io::Result<Self> {
        if path == "-" {
            return Ok(Self::Stdout);
        }
        let found = match std::fs::metadata(path) {
            Ok(found) => found,
            // Writing follows a dangling link.
            Err(error) if error.kind() == io::ErrorKind::NotFound && path.is_symlink() => {
                return Ok(Self::InPlace);
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return TemporaryFile::new(path, None).map(|_| Self::Temporary(path.to_owned(), None));
            }
            Err(error) => return Err(error),
        };
        if found.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        if !found.is_file() {
            return Ok(Self::InPlace);
        }
        OpenOptions::new().write(true).open(path)?;
        // SAFETY: geteuid has no preconditions and cannot fail.
        let own = found.uid() == unsafe { libc::geteuid() };
        let real = path.canonicalize()?;
        let mode = Some(found.mode() & 0o7777);
        match own && found.nlink() == 1 && TemporaryFile::new(&real, mode).is_ok() {
            true => Ok(Self::Temporary(real, mode)),
            false => Ok(Self::InPlace),
        }
    }
}

/// A temporary file in the same directory. It is removed if it is dropped before it is renamed.
struct TemporaryFile {
    file: File,
    path: PathBuf,
    named: bool,
}

impl TemporaryFile {
    fn new(path: &Path, mode: Option<u32>) -> io::Result<Self> {
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        // Skip files that a killed process with this process id has left.
        for number in 0.. {
            let path = dir.join(format!(".weft-{}.{number}", std::process::id()));
            let file = match OpenOptions::new().write(true).create_new(true).open(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                made => made?,
            };
            let temporary = Self { file, path, named: false };
            if let Some(mode) = mode {
                temporary.file.set_permissions(Permissions::from_mode(mode))?;
            }
            return Ok(temporary);
        }
        unreachable!("some number is unused")
    }

    fn write(mut self, bytes: &[u8], path: &Path) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.file.sync_all()?;
        std::fs::rename(&self.path, path)?;
        self.named = true;
        Ok(())
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        if !self.named {
            // If this fails, an empty temporary file stays.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(dir: &Path) -> Vec<String> {
        let names = std::fs::read_dir(dir).expect("a directory").map(|entry| entry.expect("one").file_name());
        let mut names: Vec<_> = names.map(|name| name.into_string().expect("text")).collect();
        names.sort();
        names
    }

    #[test]
    fn an_old_file_stays_until_it_is_replaced_and_mode_and_links_are_kept() {
        let room = tempfile::tempdir().expect("a directory");
        let at = |name: &str| room.path().join(name);
        let write = |name: &str, text: &str| {
            let whole = AtomicFile::new(&at(name)).expect("it can be written");
            let before = std::fs::read_to_string(at(name)).ok();
            assert_ne!(before.as_deref(), Some(text));
            whole.write(text.as_bytes()).expect("written");
            assert_eq!(std::fs::read_to_string(at(name)).expect("there"), text);
        };
        write("new", "1");
        std::fs::set_permissions(at("new"), Permissions::from_mode(0o646)).expect("set");
        write("new", "2");
        assert_eq!(std::fs::metadata(at("new")).expect("there").mode() & 0o777, 0o646);
        std::os::unix::fs::symlink("new", at("link")).expect("made");
        std::os::unix::fs::symlink("later", at("loose")).expect("made");
        write("link", "3");
        write("loose", "4");
        assert!(at("link").is_symlink() && at("loose").is_symlink());
        assert_eq!(std::fs::read_to_string(at("new")).expect("there"), "3");
        std::fs::hard_link(at("new"), at("other")).expect("made");
        write("other", "5");
        assert_eq!(std::fs::read_to_string(at("new")).expect("there"), "5");
        AtomicFile::new(Path::new("/dev/null")).and_then(|null| null.write(b"x")).expect("a device");
        assert_eq!(names(room.path()), ["later", "link", "loose", "new", "other"]);
        for wrong in ["", "missing/a", "new/a"] {
            let failure = AtomicFile::new(&at(wrong)).err().expect("refused").to_string();
            assert!(failure.starts_with(&format!("weft: {}: ", at(wrong).display())), "{failure}");
            assert!(!failure.contains(".weft-"), "{failure}");
        }
    }
}
