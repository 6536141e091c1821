//! The two locations of a copy, on the host and on Weft: paths and attributes.

use super::Copy;
use crate::commands::session::{base_name, join, why};
use crate::commands::{bytes, posix};
use crate::failure::Failure;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use weft_client::{Error, FileSystem, HostOrWeftPath, HostPath};
use weft_core::FileId;
use weft_env::real::block_on;
use weft_wire::meta::{Attr, InodePath, SetAttr, SetTime};

/// An existing file.
pub(super) struct ExistingFile {
    pub(super) attr: Attr,
    pub(super) id: Id,
}

/// Identity of a file, independent of its name.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Id {
    /// Device number of the host's file system; 0 on Weft.
    device: u64,
    file: FileId,
}

/// Returns a path below the mount of Weft.
pub(super) fn on_weft(inside: &str) -> HostOrWeftPath {
    HostOrWeftPath::Weft(InodePath::from_root(bytes::bytes(inside), true))
}

/// Returns a path of the host.
pub(super) fn on_host(path: PathBuf) -> HostOrWeftPath {
    HostOrWeftPath::Host(HostPath { path, follow: true })
}

/// Returns the text of a path below the mount of Weft.
pub(super) fn inside(at: &InodePath) -> String {
    bytes::text(&at.path)
}

pub(super) fn below(location: &HostOrWeftPath, name: &str) -> HostOrWeftPath {
    match location {
        HostOrWeftPath::Weft(at) => on_weft(&join(&inside(at), name)),
        HostOrWeftPath::Host(at) => on_host(at.path.join(bytes::local(name))),
    }
}

/// Returns the last name, also of `.` and `dir/..`.
pub(super) fn name(location: &HostOrWeftPath) -> String {
    match location {
        HostOrWeftPath::Weft(at) => base_name(&inside(at)).to_owned(),
        HostOrWeftPath::Host(HostPath { path, .. }) => {
            let real = path.file_name().map(ToOwned::to_owned);
            let real = real.or_else(|| path.canonicalize().ok()?.file_name().map(ToOwned::to_owned));
            bytes::text(real.unwrap_or_default().as_bytes())
        }
    }
}

/// Returns the directory of a path, or `None` at the top.
pub(super) fn above(location: &HostOrWeftPath) -> Option<HostOrWeftPath> {
    match location {
        HostOrWeftPath::Weft(at) => {
            let path = inside(at);
            let path = path.trim_end_matches('/');
            (!path.is_empty()).then(|| on_weft(path.rsplit_once('/').map_or("", |(above, _)| above)))
        }
        HostOrWeftPath::Host(at) => {
            let path = std::path::absolute(&at.path).ok()?;
            path.parent().map(|above| on_host(above.to_owned()))
        }
    }
}

impl Copy<'_> {
    pub(super) fn shown(&self, location: &HostOrWeftPath) -> String {
        match location {
            HostOrWeftPath::Weft(at) => self.weft.shown(&inside(at)),
            HostOrWeftPath::Host(at) => at.path.display().to_string(),
        }
    }

    pub(super) fn failure(&self, location: &HostOrWeftPath, error: &Error) -> Failure {
        Failure::new(self.shown(location), why(error))
    }

    /// Calls `ask` with a path. On Weft, follows symbolic links with absolute targets under the mount.
    pub(super) fn at<T>(
        &self,
        location: &HostOrWeftPath,
        follow: bool,
        ask: impl Fn(&HostOrWeftPath) -> weft_client::Result<T>,
    ) -> Result<T, Failure> {
        match location {
            HostOrWeftPath::Weft(at) => {
                self.weft.at(&inside(at), follow, |place| ask(&HostOrWeftPath::Weft(place.clone())))
            }
            HostOrWeftPath::Host(_) => {
                ask(&location.following(follow)).map_err(|error| self.failure(location, &error))
            }
        }
    }

    pub(super) fn find(&self, location: &HostOrWeftPath, follow: bool) -> Result<ExistingFile, Failure> {
        match self.look_at(location, follow)? {
            Some(found) => Ok(found),
            None => Err(Failure::new(self.shown(location), posix(libc::ENOENT))),
        }
    }

    pub(super) fn look(&self, location: &HostOrWeftPath) -> Result<Option<ExistingFile>, Failure> {
        self.look_at(location, true)
    }

    pub(super) fn look_at(
        &self,
        location: &HostOrWeftPath,
        follow: bool,
    ) -> Result<Option<ExistingFile>, Failure> {
        let known = match block_on(self.files.stat(&location.following(follow))) {
            Err(error) if error.errno() == libc::ENOENT => return Ok(None),
            Err(Error::ExternalLink { .. }) => {
                self.at(location, follow, |place| block_on(self.files.stat(place)))?
            }
            known => known.map_err(|error| self.failure(location, &error))?,
        };
        let device = known.device;
        // The copy needs the exact size.
        let attr = known.exact().map_err(|error| self.failure(location, &error))?;
        Ok(Some(ExistingFile { id: Id { device, file: attr.file }, attr }))
    }

    /// Sets the mode, and times and owners if requested.
    pub(super) fn attributes(&self, location: &HostOrWeftPath, found: &ExistingFile) -> Result<(), Failure> {
        // SAFETY: geteuid has no preconditions and cannot fail.
        let root = unsafe { libc::geteuid() } == 0;
        let (keep, found) = (self.options.preserve, &found.attr);
        let set = SetAttr {
            mode: Some(found.mode),
            uid: (keep && root).then_some(found.uid),
            gid: (keep && root).then_some(found.gid),
            atime: keep.then_some(SetTime::At(found.atime)),
            mtime: keep.then_some(SetTime::At(found.mtime)),
            written_by: None,
        };
        self.set_attr(&location.following(true), set)
    }

    pub(super) fn set_attr(&self, location: &HostOrWeftPath, set: SetAttr) -> Result<(), Failure> {
        block_on(self.files.set_attr(location, set)).map_err(|error| self.failure(location, &error))
    }
}
