//! The two locations of a copy, local and Weft: paths and attributes.

use super::Copy;
use crate::commands::session::{base_name, join, why};
use crate::commands::{bytes, posix};
use crate::failure::Failure;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};
use weft_core::{FileId, Timestamp};
use weft_env::real::block_on;
use weft_wire::meta::{FileType, InodePath, SetAttr, SetTime};

/// A path on either side.
#[derive(Clone)]
pub(super) enum CopyPath {
    Weft(String),
    Local(PathBuf),
}

/// An existing file.
pub(super) struct ExistingFile {
    pub(super) kind: FileType,
    pub(super) size: u64,
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) mtime: Timestamp,
    pub(super) atime: Timestamp,
    /// Number of names.
    pub(super) links: u64,
    pub(super) id: Id,
}

/// Identity of a file, independent of its name.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Id {
    Weft(FileId),
    /// Device and inode number.
    Local(u64, u64),
}

pub(super) fn below(location: &CopyPath, name: &str) -> CopyPath {
    match location {
        CopyPath::Weft(path) => CopyPath::Weft(join(path, name)),
        CopyPath::Local(path) => CopyPath::Local(path.join(bytes::local(name))),
    }
}

/// Returns the last name, also of `.` and `dir/..`.
pub(super) fn name(location: &CopyPath) -> String {
    match location {
        CopyPath::Weft(path) => base_name(path).to_owned(),
        CopyPath::Local(path) => {
            let real = path.file_name().map(ToOwned::to_owned);
            let real = real.or_else(|| path.canonicalize().ok()?.file_name().map(ToOwned::to_owned));
            bytes::text(real.unwrap_or_default().as_bytes())
        }
    }
}

pub(super) fn inode_path(inside: &str, follow: bool) -> InodePath {
    InodePath::from_root(bytes::bytes(inside), follow)
}

/// Returns the directory of a path, or `None` at the top.
pub(super) fn above(location: &CopyPath) -> Option<CopyPath> {
    match location {
        CopyPath::Weft(path) => {
            let path = path.trim_end_matches('/');
            (!path.is_empty())
                .then(|| CopyPath::Weft(path.rsplit_once('/').map_or("", |(above, _)| above).to_owned()))
        }
        CopyPath::Local(path) => {
            let path = std::path::absolute(path).ok()?;
            path.parent().map(|above| CopyPath::Local(above.to_owned()))
        }
    }
}

impl Copy<'_> {
    pub(super) fn shown(&self, location: &CopyPath) -> String {
        match location {
            CopyPath::Weft(path) => self.weft.shown(path),
            CopyPath::Local(path) => path.display().to_string(),
        }
    }

    pub(super) fn local(&self, path: &Path, error: &std::io::Error) -> Failure {
        let why = error.raw_os_error().map_or_else(|| error.to_string(), posix);
        Failure::new(path.display(), why)
    }

    pub(super) fn find(&self, location: &CopyPath, follow: bool) -> Result<ExistingFile, Failure> {
        match self.look_at(location, follow)? {
            Some(found) => Ok(found),
            None => Err(Failure::new(self.shown(location), posix(libc::ENOENT))),
        }
    }

    pub(super) fn look(&self, location: &CopyPath) -> Result<Option<ExistingFile>, Failure> {
        self.look_at(location, true)
    }

    pub(super) fn look_at(&self, location: &CopyPath, follow: bool) -> Result<Option<ExistingFile>, Failure> {
        match location {
            CopyPath::Weft(path) => {
                let Some(known) = self.weft.look(path, follow)? else { return Ok(None) };
                // The copy needs the exact size.
                let attr = known.exact().map_err(|error| Failure::new(self.shown(location), why(&error)))?;
                Ok(Some(ExistingFile {
                    kind: attr.kind,
                    size: attr.size.0,
                    mode: attr.mode,
                    uid: attr.uid,
                    gid: attr.gid,
                    mtime: attr.mtime,
                    atime: attr.atime,
                    links: u64::from(attr.nlink),
                    id: Id::Weft(attr.file),
                }))
            }
            CopyPath::Local(path) => {
                let meta = if follow { std::fs::metadata(path) } else { std::fs::symlink_metadata(path) };
                let meta = match meta {
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
                    meta => meta.map_err(|error| self.local(path, &error))?,
                };
                let kind = match meta.file_type() {
                    kind if kind.is_dir() => FileType::Directory,
                    kind if kind.is_symlink() => FileType::Symlink,
                    kind if kind.is_file() => FileType::Regular,
                    _ => FileType::Fifo,
                };
                let time = |seconds, nanos: i64| Timestamp::from_parts(seconds, nanos as u32);
                Ok(Some(ExistingFile {
                    kind,
                    size: meta.len(),
                    mode: meta.mode() & 0o7777,
                    uid: meta.uid(),
                    gid: meta.gid(),
                    mtime: time(meta.mtime(), meta.mtime_nsec()),
                    atime: time(meta.atime(), meta.atime_nsec()),
                    links: meta.nlink(),
                    id: Id::Local(meta.dev(), meta.ino()),
                }))
            }
        }
    }

    /// Sets the mode, and times and owners if requested.
    pub(super) fn attributes(&self, location: &CopyPath, found: &ExistingFile) -> Result<(), Failure> {
        // SAFETY: geteuid has no preconditions and cannot fail.
        let root = unsafe { libc::geteuid() } == 0;
        let keep = self.options.preserve;
        match location {
            CopyPath::Weft(path) => {
                let set = SetAttr {
                    mode: Some(found.mode),
                    uid: (keep && root).then_some(found.uid),
                    gid: (keep && root).then_some(found.gid),
                    atime: keep.then_some(SetTime::At(found.atime)),
                    mtime: keep.then_some(SetTime::At(found.mtime)),
                };
                block_on(self.weft.client.set_attr(&inode_path(path, true), set))
                    .map(drop)
                    .map_err(|error| Failure::new(self.shown(location), why(&error)))
            }
            CopyPath::Local(path) => {
                let io = |error: std::io::Error| self.local(path, &error);
                if keep && root {
                    std::os::unix::fs::chown(path, Some(found.uid), Some(found.gid)).map_err(io)?;
                }
                std::fs::set_permissions(path, std::fs::Permissions::from_mode(found.mode)).map_err(io)?;
                if keep {
                    let time = |at: Timestamp| {
                        let (seconds, nanos) = at.parts();
                        let whole = Duration::from_secs(seconds.unsigned_abs());
                        let second = if seconds < 0 { UNIX_EPOCH - whole } else { UNIX_EPOCH + whole };
                        second + Duration::from_nanos(nanos.into())
                    };
                    let times = std::fs::FileTimes::new()
                        .set_accessed(time(found.atime))
                        .set_modified(time(found.mtime));
                    File::open(path).and_then(|file| file.set_times(times)).map_err(io)?;
                }
                Ok(())
            }
        }
    }
}
