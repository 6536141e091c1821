//! The files that a rank accesses, by system calls or by the client library.

use crate::rank::FileAccess;
use std::io;
use weft_client::{
    FileHandle, FileSystem, HostFs, HostOrWeftFile, HostOrWeftFs, HostOrWeftPath, HostPath, read_all,
    write_all,
};
use weft_core::{ByteLen, FileOffset};
use weft_env::real::{RealEnv, block_on};
use weft_wire::meta::{InodePath, LayoutSpec, OpenFlags};

/// A way to access files.
pub struct Target {
    files: HostOrWeftFs,
    /// Whether paths are those of the client library, relative to the root of the namespace. Otherwise they are those of
    /// the host, for system calls, which the preload library serves below its prefix.
    on_weft: bool,
}

/// A file open for transfers.
pub struct OpenData(HostOrWeftFile<RealEnv>);

/// Converts a path to the client library's form.
pub fn inode_path(path: &str) -> InodePath {
    InodePath::from_root(path.as_bytes().to_vec(), true)
}

impl Target {
    /// Sets up the access. A library client connects at its first call.
    ///
    /// # Errors
    /// Returns the reason as text for users if the cluster file is invalid.
    pub fn new(access: &FileAccess) -> Result<Self, String> {
        let weft = match access {
            FileAccess::Calls => None,
            FileAccess::Library { cluster, transport } => Some(crate::context::connect(cluster, transport)?),
        };
        let on_weft = weft.is_some();
        Ok(Self { files: HostOrWeftFs::new(HostFs::new(RealEnv::new()), weft), on_weft })
    }

    fn at(&self, path: &str, follow: bool) -> HostOrWeftPath {
        match self.on_weft {
            true => HostOrWeftPath::Weft(InodePath { follow, ..inode_path(path) }),
            false => HostOrWeftPath::Host(HostPath { path: path.into(), follow }),
        }
    }

    fn open_with(&self, path: &str, flags: OpenFlags) -> io::Result<HostOrWeftFile<RealEnv>> {
        Ok(block_on(self.files.open(&self.at(path, true), flags, 0o644, &LayoutSpec::default()))?)
    }

    /// Opens a file for reading and, if `write` is set, for writing; then it is created if missing.
    pub fn open(&self, path: &str, write: bool) -> io::Result<OpenData> {
        let flags = OpenFlags { read: true, write, create: write, ..OpenFlags::default() };
        self.open_with(path, flags).map(OpenData)
    }

    /// Creates a new empty file.
    pub fn create(&self, path: &str) -> io::Result<()> {
        let flags = OpenFlags { write: true, create: true, exclusive: true, ..OpenFlags::default() };
        self.open_with(path, flags).map(drop)
    }

    /// Reads a file's attributes.
    pub fn stat(&self, path: &str) -> io::Result<()> {
        block_on(self.files.stat(&self.at(path, false)))?.exact()?;
        Ok(())
    }

    /// Truncates or extends a file.
    pub fn resize(&self, path: &str, len: u64) -> io::Result<()> {
        Ok(block_on(self.files.truncate(&self.at(path, true), ByteLen(len)))?)
    }

    /// Creates a directory.
    pub fn mkdir(&self, path: &str) -> io::Result<()> {
        Ok(block_on(self.files.mkdir(&self.at(path, true), 0o755))?)
    }

    /// Removes an empty directory.
    pub fn rmdir(&self, path: &str) -> io::Result<()> {
        Ok(block_on(self.files.rmdir(&self.at(path, true)))?)
    }

    /// Removes a file.
    pub fn remove(&self, path: &str) -> io::Result<()> {
        Ok(block_on(self.files.unlink(&self.at(path, true)))?)
    }
}

impl OpenData {
    /// Writes all of `buf`.
    pub fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        Ok(block_on(write_all(&self.0, buf, FileOffset(offset)))?)
    }

    /// Reads until `buf` is full or the file ends. Returns the number of bytes.
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        Ok(block_on(read_all(&self.0, buf, FileOffset(offset)))?)
    }

    /// Truncates or extends the file.
    pub fn set_len(&self, len: u64) -> io::Result<()> {
        Ok(block_on(self.0.truncate(ByteLen(len)))?)
    }

    /// Flushes the file to stable storage.
    pub fn sync(&self) -> io::Result<()> {
        Ok(block_on(self.0.sync())?)
    }
}
