//! Files that come of long work: whether they can be written is found out before it, and the old one stays until the new
//! one is complete.

use crate::failure::Failure;
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Where something is to be written.
pub struct Whole {
    path: PathBuf,
    to: To,
}

enum To {
    /// `-`
    Stdout,
    /// Devices, pipes, files with other names or of other people, directories in which no file can be made.
    Place,
    /// Under another name in the same directory first, with the mode of the one that was there.
    Beside(PathBuf, Option<u32>),
}

impl Whole {
    /// Sees that `path` can be written; `-` is standard output. Nothing is changed yet.
    pub fn new(path: &Path) -> Result<Self, Failure> {
        let to = To::of(path).map_err(|error| Failure::new(path.display(), error))?;
        Ok(Self { path: path.to_owned(), to })
    }

    /// Whether it goes to standard output.
    pub fn is_stdout(&self) -> bool {
        matches!(self.to, To::Stdout)
    }

    /// Where it goes.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes all of it.
    pub fn write(&self, bytes: &[u8]) -> Result<(), Failure> {
        let written = match &self.to {
            To::Stdout => {
                crate::output::bytes(bytes);
                Ok(())
            }
            To::Place => std::fs::write(&self.path, bytes),
            To::Beside(path, mode) => Beside::new(path, *mode).and_then(|file| file.write(bytes, path)),
        };
        written.map_err(|error| Failure::new(self.path.display(), error))
    }
}

impl To {
    fn of(path: &Path) -> io::Result<Self> {
        if path == "-" {
            return Ok(Self::Stdout);
        }
        let found = match std::fs::metadata(path) {
            Ok(found) => found,
            // A link to nothing is followed by whoever writes.
            Err(error) if error.kind() == io::ErrorKind::NotFound && path.is_symlink() => {
                return Ok(Self::Place);
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Beside::new(path, None).map(|_| Self::Beside(path.to_owned(), None));
            }
            Err(error) => return Err(error),
        };
        if found.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        if !found.is_file() {
            return Ok(Self::Place);
        }
        OpenOptions::new().write(true).open(path)?;
        // SAFETY: it only tells.
        let own = found.uid() == unsafe { libc::geteuid() };
        let real = path.canonicalize()?;
        let mode = Some(found.mode() & 0o7777);
        match own && found.nlink() == 1 && Beside::new(&real, mode).is_ok() {
            true => Ok(Self::Beside(real, mode)),
            false => Ok(Self::Place),
        }
    }
}

/// A new file in the same directory, which is gone when this is dropped before it has the name that it is for.
struct Beside {
    file: File,
    path: PathBuf,
    named: bool,
}

impl Beside {
    fn new(path: &Path, mode: Option<u32>) -> io::Result<Self> {
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        // What an earlier process of this number left, which was killed, is in nobody's way.
        for number in 0.. {
            let path = dir.join(format!(".weft-{}.{number}", std::process::id()));
            let file = match OpenOptions::new().write(true).create_new(true).open(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                made => made?,
            };
            let beside = Self { file, path, named: false };
            if let Some(mode) = mode {
                beside.file.set_permissions(Permissions::from_mode(mode))?;
            }
            return Ok(beside);
        }
        unreachable!("a number is free")
    }

    fn write(mut self, bytes: &[u8], path: &Path) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.file.sync_all()?;
        std::fs::rename(&self.path, path)?;
        self.named = true;
        Ok(())
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        if !self.named {
            // Who cannot even do this finds an empty file there.
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
    fn the_old_one_stays_until_the_new_one_is_there_and_keeps_its_mode_links_and_names() {
        let room = tempfile::tempdir().expect("a directory");
        let at = |name: &str| room.path().join(name);
        let write = |name: &str, text: &str| {
            let whole = Whole::new(&at(name)).expect("it can be written");
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
        Whole::new(Path::new("/dev/null")).and_then(|null| null.write(b"x")).expect("a device");
        assert_eq!(names(room.path()), ["later", "link", "loose", "new", "other"]);
        for wrong in ["", "missing/a", "new/a"] {
            let failure = Whole::new(&at(wrong)).err().expect("refused").to_string();
            assert!(failure.starts_with(&format!("weft: {}: ", at(wrong).display())), "{failure}");
            assert!(!failure.contains(".weft-"), "{failure}");
        }
    }
}
