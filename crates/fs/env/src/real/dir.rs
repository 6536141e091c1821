//! Directory trees.

use super::file::file_meta;
use super::sys::{self, Fd};
use super::{BlockDevice, RealFile};
use crate::{Create, Dir, FileMeta, OpenMode, SharedLock, Space, check_name};
use std::ffi::CString;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use weft_core::{ByteLen, DeviceLoad};

/// Permission bits of files. They belong to the server; the metadata server checks permissions.
const FILE_MODE: u32 = 0o600;

/// Directory tree. Names are resolved beneath its root, and symbolic links are not followed.
#[derive(Clone, Debug)]
pub struct RealDir {
    root: Arc<Fd>,
    fd_floor: i32,
    /// Block device below the root, found at the first use.
    device: Arc<OnceLock<Option<BlockDevice>>>,
}

/// Folder of a name, opened only if it is not the root.
enum Parent<'a> {
    Root(&'a Fd),
    Below(Fd),
}

impl std::ops::Deref for Parent<'_> {
    type Target = Fd;
    fn deref(&self) -> &Fd {
        match self {
            Self::Root(fd) => fd,
            Self::Below(fd) => fd,
        }
    }
}

impl RealDir {
    pub(super) fn open(path: &Path, fd_floor: i32) -> io::Result<Self> {
        let path = CString::new(path.as_os_str().as_bytes())?;
        let root = sys::open(libc::AT_FDCWD, &path, libc::O_RDONLY | libc::O_DIRECTORY)?.lifted(fd_floor);
        Ok(Self { root: Arc::new(root), fd_floor, device: Arc::default() })
    }

    fn open_beneath(&self, name: &str, flags: i32) -> io::Result<Fd> {
        check_name(name)?;
        sys::open_beneath(self.root.as_raw_fd(), &CString::new(name)?, flags, FILE_MODE)
    }

    fn open_folder(&self, name: &str, flags: i32) -> io::Result<Fd> {
        let flags = flags | libc::O_DIRECTORY;
        if name.is_empty() {
            return sys::open_beneath(self.root.as_raw_fd(), c".", flags, 0);
        }
        self.open_beneath(name, flags)
    }

    /// Returns the folder of `name` and its last component.
    fn parent<'a>(&self, name: &'a str) -> io::Result<(Parent<'_>, CString)>
    where
        Self: 'a,
    {
        check_name(name)?;
        let (parent, last) = match name.rsplit_once('/') {
            Some((folder, last)) => (Parent::Below(self.open_folder(folder, libc::O_PATH)?), last),
            None => (Parent::Root(&self.root), name),
        };
        Ok((parent, CString::new(last)?))
    }
}

impl Dir for RealDir {
    type File = RealFile;

    async fn open(&self, name: &str, mode: OpenMode) -> io::Result<RealFile> {
        let mut flags = if mode.write { libc::O_RDWR } else { libc::O_RDONLY };
        flags |= match mode.create {
            Create::No => 0,
            Create::IfMissing => libc::O_CREAT,
            Create::New => libc::O_CREAT | libc::O_EXCL,
        };
        if mode.direct {
            flags |= libc::O_DIRECT;
        }
        let fd = self.open_beneath(name, flags)?.lifted(self.fd_floor);
        Ok(RealFile::new(fd, mode.direct))
    }

    async fn remove(&self, name: &str) -> io::Result<()> {
        let (parent, last) = self.parent(name)?;
        sys::unlink(&parent, &last)
    }

    async fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let (from_parent, from_last) = self.parent(from)?;
        let (to_parent, to_last) = self.parent(to)?;
        sys::rename((&from_parent, &from_last), (&to_parent, &to_last))
    }

    async fn make_dir(&self, name: &str) -> io::Result<()> {
        let (parent, last) = self.parent(name)?;
        match sys::mkdir(&parent, &last) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                // A name that exists but is not a folder is still an error.
                self.open_folder(name, libc::O_PATH).map(drop)
            }
            result => result,
        }
    }

    async fn sync(&self, name: &str) -> io::Result<()> {
        sys::fsync(&self.open_folder(name, libc::O_RDONLY)?)
    }

    async fn list(&self, name: &str) -> io::Result<Vec<String>> {
        let names = sys::names(&self.open_folder(name, libc::O_RDONLY)?)?;
        // This trait creates only UTF-8 names; ignore all others.
        let mut names: Vec<String> =
            names.into_iter().filter_map(|name| String::from_utf8(name).ok()).collect();
        names.sort_unstable();
        Ok(names)
    }

    async fn meta(&self, name: &str) -> io::Result<FileMeta> {
        let (parent, last) = self.parent(name)?;
        sys::statx_at(parent.as_raw_fd(), &last, false).map(|meta| file_meta(&meta))
    }

    async fn space(&self) -> io::Result<Space> {
        let figures = sys::statfs(&self.root)?;
        let unit = figures.f_frsize as u64;
        // Blocks that only root may use count neither as used nor as free, as in the percentage of df(1).
        let reserved = figures.f_bfree.saturating_sub(figures.f_bavail);
        Ok(Space {
            total: ByteLen(figures.f_blocks.saturating_sub(reserved).saturating_mul(unit)),
            free: ByteLen(figures.f_bavail.saturating_mul(unit)),
            device: sys::device(&self.root)?,
        })
    }

    fn device_load(&self) -> Option<DeviceLoad> {
        let find = || BlockDevice::of(sys::device(&self.root).ok()?);
        self.device.get_or_init(find).as_ref()?.load().ok()
    }

    async fn lock(&self, name: &str) -> io::Result<Box<dyn Send + Sync>> {
        let fd = self.open_beneath(name, libc::O_RDWR | libc::O_CREAT)?.lifted(self.fd_floor);
        sys::flock(&fd, libc::LOCK_EX | libc::LOCK_NB)?;
        Ok(Box::new(fd))
    }

    async fn shared_lock(&self, name: &str) -> io::Result<Box<dyn SharedLock>> {
        let fd = self.open_beneath(name, libc::O_RDWR | libc::O_CREAT)?.lifted(self.fd_floor);
        Ok(Box::new(RealSharedLock(fd)))
    }
}

/// Record lock of an open file description, which network file systems pass to their servers.
struct RealSharedLock(Fd);

impl SharedLock for RealSharedLock {
    fn try_acquire(&self, exclusive: bool) -> io::Result<bool> {
        let kind = if exclusive { libc::F_WRLCK } else { libc::F_RDLCK };
        match sys::lock_first_byte(&self.0, kind) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) if error.raw_os_error() == Some(libc::EACCES) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn release(&self) -> io::Result<()> {
        sys::lock_first_byte(&self.0, libc::F_UNLCK)
    }
}
