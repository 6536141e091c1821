//! Names of the host's own file systems. They exist in the real world only.

use crate::error::Result;
use crate::file_system::FileSystem;
use crate::host_file::HostFile;
use crate::size::LastKnown;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use weft_core::{ByteLen, FileId};
use weft_env::real::RealEnv;
use weft_env::real::path::{self, PathMeta, PathOpen, PathTime};
use weft_wire::WalkProof;
use weft_wire::meta::{Attr, FileType, LayoutSpec, OpenFlags, SetAttr, SetTime};

/// A path of the host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostPath {
    /// Absolute path, or relative to the working directory.
    pub path: PathBuf,
    /// Whether to follow a symbolic link in the last component.
    pub follow: bool,
}

/// The host's own file systems: local ones, and mounted ones such as Lustre or NFS.
#[derive(Clone, Copy, Default, Debug)]
pub struct HostFs {
    env: RealEnv,
}

impl HostFs {
    /// Returns the file systems that this process sees.
    pub fn new(env: RealEnv) -> Self {
        Self { env }
    }
}

fn of<T>(path: &Path, result: io::Result<T>) -> Result<T> {
    result.map_err(|error| HostFile::<RealEnv>::failure(path.as_os_str().as_bytes(), &error))
}

fn attr_of(meta: &PathMeta) -> Attr {
    Attr {
        file: FileId(meta.inode),
        proof: WalkProof([0; 16]),
        // A type that Linux does not have yet is not a regular file.
        kind: FileType::of_mode(meta.mode).unwrap_or(FileType::CharDevice),
        mode: meta.mode & 0o7777,
        uid: meta.uid,
        gid: meta.gid,
        nlink: meta.nlink,
        size: meta.len,
        blocks_512: meta.blocks_512,
        atime: meta.atime,
        mtime: meta.mtime,
        ctime: meta.ctime,
        rdev: meta.rdev,
        invalid_size: None,
    }
}

fn time_of(time: Option<SetTime>) -> PathTime {
    match time {
        None => PathTime::Keep,
        Some(SetTime::Now) => PathTime::Now,
        Some(SetTime::At(time)) => PathTime::At(time),
    }
}

fn set(at: &HostPath, set: SetAttr) -> io::Result<()> {
    // The system itself drops set-id bits at a write.
    let SetAttr { mode, uid, gid, atime, mtime, written_by: _ } = set;
    // First the owner, because the system removes set-id bits with it.
    if uid.is_some() || gid.is_some() {
        path::chown(&at.path, uid, gid, at.follow)?;
    }
    if let Some(mode) = mode {
        path::chmod(&at.path, mode)?;
    }
    if atime.is_some() || mtime.is_some() {
        path::set_times(&at.path, time_of(atime), time_of(mtime), at.follow)?;
    }
    Ok(())
}

impl FileSystem for HostFs {
    type Path = HostPath;
    type File = HostFile<RealEnv>;

    async fn open(
        &self,
        at: &HostPath,
        flags: OpenFlags,
        mode: u32,
        _layout: &LayoutSpec,
    ) -> Result<HostFile<RealEnv>> {
        let OpenFlags { read, write, create, exclusive, truncate, directory, execute: _ } = flags;
        let how = PathOpen { read, write, create, exclusive, truncate, directory, follow: at.follow, mode };
        let file = of(&at.path, self.env.open_path(&at.path, &how))?;
        Ok(HostFile::new(file, at.path.as_os_str().as_bytes().to_vec()))
    }

    async fn stat(&self, at: &HostPath) -> Result<LastKnown> {
        let meta = of(&at.path, path::meta(&at.path, at.follow))?;
        Ok(LastKnown { attr: attr_of(&meta), error: None, device: meta.device })
    }

    async fn truncate(&self, at: &HostPath, size: ByteLen) -> Result<()> {
        of(&at.path, path::truncate(&at.path, size))
    }

    async fn set_attr(&self, at: &HostPath, attributes: SetAttr) -> Result<()> {
        of(&at.path, set(at, attributes))
    }

    async fn mkdir(&self, at: &HostPath, mode: u32) -> Result<()> {
        of(&at.path, path::mkdir(&at.path, mode))
    }

    async fn rmdir(&self, at: &HostPath) -> Result<()> {
        of(&at.path, path::rmdir(&at.path))
    }

    async fn symlink(&self, at: &HostPath, target: &[u8]) -> Result<()> {
        of(&at.path, path::symlink(target, &at.path))
    }

    async fn readlink(&self, at: &HostPath) -> Result<Vec<u8>> {
        of(&at.path, path::readlink(&at.path))
    }

    async fn unlink(&self, at: &HostPath) -> Result<()> {
        of(&at.path, path::unlink(&at.path))
    }

    async fn rename(&self, from: &HostPath, to: &HostPath) -> Result<()> {
        of(&to.path, path::rename(&from.path, &to.path))
    }

    async fn read_dir(&self, at: &HostPath) -> Result<Vec<Vec<u8>>> {
        of(&at.path, path::names(&at.path))
    }
}
