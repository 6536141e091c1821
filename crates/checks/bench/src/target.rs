//! The two ways in which a rank accesses files: system calls and the client library.

use crate::rank::FileAccess;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::unix::fs::FileExt;
use weft_client::{Client, OpenFile};
use weft_core::{ByteLen, FileOffset};
use weft_env::real::{RealEnv, block_on};
use weft_wire::meta::{InodePath, LayoutSpec, OpenFlags};

/// A way to access files.
pub enum Target {
    /// System calls.
    Calls,
    /// The client library. Paths are relative to the root of the namespace.
    Library(Client<RealEnv>),
}

/// A file open for transfers.
pub enum OpenData {
    /// A file opened with a system call.
    Calls(std::fs::File),
    /// A file opened with the client library.
    Library(OpenFile<RealEnv>),
}

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
        match access {
            FileAccess::Calls => Ok(Self::Calls),
            FileAccess::Library { cluster, transport } => crate::context::connect(cluster, transport)
                .map(Self::Library)
                .map_err(|error| error.to_string()),
        }
    }

    /// Opens a file for reading and, if `write` is set, for writing; then it is created if missing.
    pub fn open(&mut self, path: &str, write: bool) -> io::Result<OpenData> {
        match self {
            Self::Calls => {
                let file =
                    std::fs::File::options().read(true).write(write).create(write).truncate(false).open(path);
                file.map(OpenData::Calls)
            }
            Self::Library(client) => {
                let flags = OpenFlags { read: true, write, create: write, ..OpenFlags::default() };
                let opened = block_on(client.open(&inode_path(path), flags, 0o644, &LayoutSpec::default()));
                opened.map(OpenData::Library).map_err(to_io)
            }
        }
    }

    /// Creates a new empty file.
    pub fn create(&mut self, path: &str) -> io::Result<()> {
        match self {
            Self::Calls => std::fs::File::options().write(true).create_new(true).open(path).map(drop),
            Self::Library(client) => {
                let flags = OpenFlags { write: true, create: true, exclusive: true, ..OpenFlags::default() };
                block_on(client.open(&inode_path(path), flags, 0o644, &LayoutSpec::default()))
                    .map(drop)
                    .map_err(to_io)
            }
        }
    }

    /// Reads a file's attributes.
    pub fn stat(&mut self, path: &str) -> io::Result<()> {
        match self {
            Self::Calls => std::fs::symlink_metadata(path).map(drop),
            Self::Library(client) => {
                let at = InodePath { follow: false, ..inode_path(path) };
                block_on(client.stat(&at)).map(drop).map_err(to_io)
            }
        }
    }

    /// Truncates or extends a file.
    pub fn resize(&mut self, path: &str, len: u64) -> io::Result<()> {
        match self {
            Self::Calls => {
                let path = std::ffi::CString::new(path)?;
                let len = i64::try_from(len).map_err(io::Error::other)?;
                // SAFETY: the path is a C string for the call.
                match unsafe { libc::truncate(path.as_ptr(), len) } {
                    0 => Ok(()),
                    _ => Err(io::Error::last_os_error()),
                }
            }
            Self::Library(client) => {
                block_on(client.truncate(&inode_path(path), ByteLen(len))).map_err(to_io)
            }
        }
    }

    /// Creates a directory.
    pub fn mkdir(&mut self, path: &str) -> io::Result<()> {
        match self {
            Self::Calls => std::fs::create_dir(path),
            Self::Library(client) => {
                block_on(client.mkdir(&inode_path(path), 0o755)).map(drop).map_err(to_io)
            }
        }
    }

    /// Removes an empty directory.
    pub fn rmdir(&mut self, path: &str) -> io::Result<()> {
        match self {
            Self::Calls => std::fs::remove_dir(path),
            Self::Library(client) => block_on(client.rmdir(&inode_path(path))).map_err(to_io),
        }
    }

    /// Removes a file.
    pub fn remove(&mut self, path: &str) -> io::Result<()> {
        match self {
            Self::Calls => std::fs::remove_file(path),
            Self::Library(client) => block_on(client.unlink(&inode_path(path))).map_err(to_io),
        }
    }
}

impl OpenData {
    /// Writes all of `buf`.
    pub fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        match self {
            Self::Calls(file) => file.write_all_at(buf, offset),
            Self::Library(file) => {
                let wrote =
                    block_on(file.write_at(&[IoSlice::new(buf)], FileOffset(offset))).map_err(to_io)?;
                if wrote == buf.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
            }
        }
    }

    /// Reads until `buf` is full or the file ends. Returns the number of bytes.
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut got = 0;
        while got < buf.len() {
            let rest = &mut buf[got..];
            let at = offset + got as u64;
            let more = match self {
                Self::Calls(file) => match file.read_at(rest, at) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    read => read?,
                },
                Self::Library(file) => {
                    block_on(file.read_at(&mut [IoSliceMut::new(rest)], FileOffset(at))).map_err(to_io)?
                }
            };
            if more == 0 {
                break;
            }
            got += more;
        }
        Ok(got)
    }

    /// Truncates or extends the file.
    pub fn set_len(&self, len: u64) -> io::Result<()> {
        match self {
            Self::Calls(file) => file.set_len(len),
            Self::Library(file) => block_on(file.truncate(ByteLen(len))).map_err(to_io),
        }
    }

    /// Flushes the file to stable storage.
    pub fn sync(&self) -> io::Result<()> {
        match self {
            Self::Calls(file) => file.sync_all(),
            Self::Library(file) => block_on(file.sync()).map_err(to_io),
        }
    }
}

fn to_io(error: weft_client::Error) -> io::Error {
    io::Error::other(error.to_string())
}
