//! Files and names of the host or of Weft, for callers whose paths lead to either.

use crate::client::Client;
use crate::error::{Error, Result};
use crate::file::OpenFile;
use crate::file_system::{FileHandle, FileSystem, ReadPiece, WritePiece, forward_operations};
use crate::host_file::HostFile;
use crate::host_fs::{HostFs, HostPath};
use crate::size::LastKnown;
use std::io::{IoSlice, IoSliceMut};
use weft_core::{ByteLen, Extent, FileOffset};
use weft_env::Env;
use weft_env::real::RealEnv;
use weft_wire::Errno;
use weft_wire::meta::{InodePath, LayoutSpec, OpenFlags, SetAttr};

/// An open file of the host or of Weft.
pub enum HostOrWeftFile<E: Env> {
    /// A file of the host.
    Host(HostFile<E>),
    /// A file of Weft.
    Weft(Box<OpenFile<E>>),
}

impl<E: Env> HostOrWeftFile<E> {
    /// Returns the file of Weft.
    pub fn weft(&self) -> Option<&OpenFile<E>> {
        match self {
            Self::Host(_) => None,
            Self::Weft(file) => Some(file),
        }
    }

    /// Returns the file of the host.
    pub fn host(&self) -> Option<&HostFile<E>> {
        match self {
            Self::Host(file) => Some(file),
            Self::Weft(_) => None,
        }
    }
}

impl<E: Env> From<HostFile<E>> for HostOrWeftFile<E> {
    fn from(file: HostFile<E>) -> Self {
        Self::Host(file)
    }
}

impl<E: Env> From<OpenFile<E>> for HostOrWeftFile<E> {
    fn from(file: OpenFile<E>) -> Self {
        Self::Weft(Box::new(file))
    }
}

macro_rules! either {
    ($self:ident, $file:ident => $call:expr) => {
        match $self {
            HostOrWeftFile::Host($file) => $call,
            HostOrWeftFile::Weft($file) => $call,
        }
    };
}

impl<E: Env> FileHandle for HostOrWeftFile<E> {
    forward_operations!(either);

    async fn append(&self, bufs: &[IoSlice<'_>]) -> Result<(FileOffset, usize)> {
        either!(self, file => file.append(bufs).await)
    }

    async fn close(self) -> Result<()> {
        either!(self, file => file.close().await)
    }
}

/// A path of the host or of Weft.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HostOrWeftPath {
    /// A path of the host.
    Host(HostPath),
    /// A path of Weft.
    Weft(InodePath),
}

impl HostOrWeftPath {
    /// Returns the path that follows a symbolic link in the last component, or does not.
    #[must_use]
    pub fn following(&self, follow: bool) -> Self {
        match self {
            Self::Host(at) => Self::Host(HostPath { follow, ..at.clone() }),
            Self::Weft(at) => Self::Weft(InodePath { follow, ..at.clone() }),
        }
    }
}

/// The host's file systems, and Weft if there is a client.
#[derive(Clone, Debug)]
pub struct HostOrWeftFs {
    host: HostFs,
    weft: Option<Client<RealEnv>>,
}

impl HostOrWeftFs {
    /// Combines the file systems.
    pub fn new(host: HostFs, weft: Option<Client<RealEnv>>) -> Self {
        Self { host, weft }
    }

    fn weft(&self) -> Result<&Client<RealEnv>> {
        const WHY: &str = "a path of Weft without a cluster: name a cluster file with WEFT_CLUSTER";
        self.weft.as_ref().ok_or(Error::misuse(Errno::ENXIO, WHY))
    }
}

macro_rules! by_path {
    ($self:ident, $at:ident, $file_system:ident => $call:expr) => {
        match $at {
            HostOrWeftPath::Host($at) => {
                let $file_system = &$self.host;
                $call
            }
            HostOrWeftPath::Weft($at) => {
                let $file_system = $self.weft()?;
                $call
            }
        }
    };
}

impl FileSystem for HostOrWeftFs {
    type Path = HostOrWeftPath;
    type File = HostOrWeftFile<RealEnv>;

    async fn open(
        &self,
        at: &HostOrWeftPath,
        flags: OpenFlags,
        mode: u32,
        layout: &LayoutSpec,
    ) -> Result<HostOrWeftFile<RealEnv>> {
        by_path!(self, at, fs => Ok(fs.open(at, flags, mode, layout).await?.into()))
    }

    async fn stat(&self, at: &HostOrWeftPath) -> Result<LastKnown> {
        by_path!(self, at, fs => FileSystem::stat(fs, at).await)
    }

    async fn truncate(&self, at: &HostOrWeftPath, size: ByteLen) -> Result<()> {
        by_path!(self, at, fs => fs.truncate(at, size).await)
    }

    async fn set_attr(&self, at: &HostOrWeftPath, set: SetAttr) -> Result<()> {
        by_path!(self, at, fs => FileSystem::set_attr(fs, at, set).await)
    }

    async fn mkdir(&self, at: &HostOrWeftPath, mode: u32) -> Result<()> {
        by_path!(self, at, fs => FileSystem::mkdir(fs, at, mode).await)
    }

    async fn rmdir(&self, at: &HostOrWeftPath) -> Result<()> {
        by_path!(self, at, fs => fs.rmdir(at).await)
    }

    async fn symlink(&self, at: &HostOrWeftPath, target: &[u8]) -> Result<()> {
        by_path!(self, at, fs => FileSystem::symlink(fs, at, target).await)
    }

    async fn readlink(&self, at: &HostOrWeftPath) -> Result<Vec<u8>> {
        by_path!(self, at, fs => fs.readlink(at).await)
    }

    async fn unlink(&self, at: &HostOrWeftPath) -> Result<()> {
        by_path!(self, at, fs => fs.unlink(at).await)
    }

    async fn rename(&self, from: &HostOrWeftPath, to: &HostOrWeftPath) -> Result<()> {
        match (from, to) {
            (HostOrWeftPath::Host(from), HostOrWeftPath::Host(to)) => self.host.rename(from, to).await,
            (HostOrWeftPath::Weft(from), HostOrWeftPath::Weft(to)) => {
                FileSystem::rename(self.weft()?, from, to).await
            }
            _ => Err(Error::misuse(
                Errno::EXDEV,
                "a file cannot be renamed between Weft and the host: copy it",
            )),
        }
    }

    async fn read_dir(&self, at: &HostOrWeftPath) -> Result<Vec<Vec<u8>>> {
        by_path!(self, at, fs => fs.read_dir(at).await)
    }
}
