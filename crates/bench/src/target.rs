//! The two ways in which a rank reaches files: system calls, and the client library.

use crate::rank::Reach;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::unix::fs::FileExt;
use weft_client::{Client, OpenFile};
use weft_core::FileOffset;
use weft_env::real::{RealEnv, block_on};
use weft_wire::meta::{LayoutSpec, OpenFlags, Place, ROOT};

/// A way to reach files.
pub enum Target {
    /// System calls.
    Calls,
    /// The client library; paths are relative to the root of the namespace.
    Library(Client<RealEnv>),
}

/// A file open for transfers.
pub enum OpenData {
    /// By a descriptor.
    Calls(std::fs::File),
    /// By the library.
    Library(OpenFile<RealEnv>),
}

/// How the library names a path.
pub fn place(path: &str) -> Place {
    Place { base: ROOT, path: path.as_bytes().to_vec(), follow: true }
}

impl Target {
    /// Sets up the way; a library client connects at its first call.
    ///
    /// # Errors
    /// A bad cluster file, as a sentence.
    pub fn reach(reach: &Reach) -> Result<Self, String> {
        match reach {
            Reach::Calls => Ok(Self::Calls),
            Reach::Library { cluster, transport } => crate::context::connect(cluster, transport)
                .map(Self::Library)
                .map_err(|error| error.to_string()),
        }
    }

    /// Opens, and makes when it is for writing.
    pub fn open(&mut self, path: &str, write: bool) -> io::Result<OpenData> {
        match self {
            Self::Calls => {
                let file =
                    std::fs::File::options().read(true).write(write).create(write).truncate(false).open(path);
                file.map(OpenData::Calls)
            }
            Self::Library(client) => {
                let flags = OpenFlags { read: true, write, create: write, ..OpenFlags::default() };
                let opened = block_on(client.open(&place(path), flags, 0o644, &LayoutSpec::default()));
                opened.map(OpenData::Library).map_err(to_io)
            }
        }
    }

    /// Makes an empty file that must be new, and closes it.
    pub fn create(&mut self, path: &str) -> io::Result<()> {
        match self {
            Self::Calls => std::fs::File::options().write(true).create_new(true).open(path).map(drop),
            Self::Library(client) => {
                let flags = OpenFlags { write: true, create: true, exclusive: true, ..OpenFlags::default() };
                block_on(client.open(&place(path), flags, 0o644, &LayoutSpec::default()))
                    .map(drop)
                    .map_err(to_io)
            }
        }
    }

    /// Asks for attributes.
    pub fn stat(&mut self, path: &str) -> io::Result<()> {
        match self {
            Self::Calls => std::fs::symlink_metadata(path).map(drop),
            Self::Library(client) => {
                let at = Place { follow: false, ..place(path) };
                block_on(client.stat(&at)).map(drop).map_err(to_io)
            }
        }
    }

    /// Removes a file.
    pub fn remove(&mut self, path: &str) -> io::Result<()> {
        match self {
            Self::Calls => std::fs::remove_file(path),
            Self::Library(client) => block_on(client.unlink(&place(path))).map_err(to_io),
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

    /// Fills all of `buf`.
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        match self {
            Self::Calls(file) => file.read_exact_at(buf, offset),
            Self::Library(file) => {
                let len = buf.len();
                let got =
                    block_on(file.read_at(&mut [IoSliceMut::new(buf)], FileOffset(offset))).map_err(to_io)?;
                if got == len { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
            }
        }
    }

    /// Makes it survive loss of power.
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
