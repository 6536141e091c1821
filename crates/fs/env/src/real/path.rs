//! Files of the host by their paths, as a program names them: relative to the working directory, through symbolic links.
//!
//! A command that runs under the preload library reaches the files that the library serves, because the library also
//! replaces `syscall`.

use super::sys;
use super::{RealEnv, RealFile};
use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use weft_core::{ByteLen, Timestamp};

/// How to open a path.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct PathOpen {
    /// Whether reading is allowed.
    pub read: bool,
    /// Whether writing is allowed.
    pub write: bool,
    /// Whether to create a missing file (`O_CREAT`).
    pub create: bool,
    /// Whether to fail if the file exists (`O_EXCL`).
    pub exclusive: bool,
    /// Whether to cut the file to length zero (`O_TRUNC`).
    pub truncate: bool,
    /// Whether to fail unless it is a directory (`O_DIRECTORY`).
    pub directory: bool,
    /// Whether to follow a symbolic link in the last component.
    pub follow: bool,
    /// Permission bits of a new file, from which the system takes those of the umask.
    pub mode: u32,
}

impl PathOpen {
    fn flags(self) -> i32 {
        let access = match (self.read, self.write) {
            (true, true) => libc::O_RDWR,
            (false, true) => libc::O_WRONLY,
            _ => libc::O_RDONLY,
        };
        let flags = [
            (self.create, libc::O_CREAT),
            (self.exclusive, libc::O_EXCL),
            (self.truncate, libc::O_TRUNC),
            (self.directory, libc::O_DIRECTORY),
            (!self.follow, libc::O_NOFOLLOW),
        ];
        flags.into_iter().filter(|(is_set, _)| *is_set).fold(access, |flags, (_, flag)| flags | flag)
    }
}

/// Attributes of a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PathMeta {
    /// Device number of the file system.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
    /// File type and permission bits, as in `st_mode`.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Number of hard links.
    pub nlink: u32,
    /// Length.
    pub len: ByteLen,
    /// Allocated space in units of 512 bytes.
    pub blocks_512: u64,
    /// Last read.
    pub atime: Timestamp,
    /// Last change of contents.
    pub mtime: Timestamp,
    /// Last change of attributes.
    pub ctime: Timestamp,
    /// Device number of a device node.
    pub rdev: u64,
}

/// Time to set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PathTime {
    /// Keeps the time.
    Keep,
    /// Current time.
    Now,
    /// The given time.
    At(Timestamp),
}

impl PathTime {
    fn timespec(self) -> libc::timespec {
        let (seconds, nanos) = match self {
            Self::Keep => (0, libc::UTIME_OMIT),
            Self::Now => (0, libc::UTIME_NOW),
            Self::At(time) => {
                let (seconds, nanos) = time.parts();
                (seconds, i64::from(nanos))
            }
        };
        libc::timespec { tv_sec: seconds, tv_nsec: nanos }
    }
}

fn c(path: &Path) -> io::Result<CString> {
    Ok(CString::new(path.as_os_str().as_bytes())?)
}

impl RealEnv {
    /// Opens the file at `path`.
    ///
    /// # Errors
    /// Errors of open(2).
    pub fn open_path(&self, path: &Path, how: &PathOpen) -> io::Result<RealFile> {
        let fd = sys::open_path(&c(path)?, how.flags(), how.mode)?;
        Ok(RealFile::new(fd.lifted(self.fd_floor), false))
    }
}

/// Returns the attributes of a path.
///
/// # Errors
/// Errors of stat(2).
pub fn meta(path: &Path, follow: bool) -> io::Result<PathMeta> {
    let found = sys::statx_at(libc::AT_FDCWD, &c(path)?, follow)?;
    let time = |time: libc::statx_timestamp| Timestamp::from_parts(time.tv_sec, time.tv_nsec);
    Ok(PathMeta {
        device: libc::makedev(found.stx_dev_major, found.stx_dev_minor),
        inode: found.stx_ino,
        mode: found.stx_mode.into(),
        uid: found.stx_uid,
        gid: found.stx_gid,
        nlink: found.stx_nlink,
        len: ByteLen(found.stx_size),
        blocks_512: found.stx_blocks,
        atime: time(found.stx_atime),
        mtime: time(found.stx_mtime),
        ctime: time(found.stx_ctime),
        rdev: libc::makedev(found.stx_rdev_major, found.stx_rdev_minor),
    })
}

/// Creates a directory. The system takes the bits of the umask from `mode`.
///
/// # Errors
/// Errors of mkdir(2).
pub fn mkdir(path: &Path, mode: u32) -> io::Result<()> {
    sys::mkdir_at(libc::AT_FDCWD, &c(path)?, mode)
}

/// Removes an empty directory.
///
/// # Errors
/// Errors of rmdir(2).
pub fn rmdir(path: &Path) -> io::Result<()> {
    sys::rmdir_path(&c(path)?)
}

/// Removes a name of a file that is not a directory.
///
/// # Errors
/// Errors of unlink(2).
pub fn unlink(path: &Path) -> io::Result<()> {
    sys::unlink_at(libc::AT_FDCWD, &c(path)?)
}

/// Renames `from` to `to` and replaces an existing file.
///
/// # Errors
/// Errors of rename(2).
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    sys::rename_at((libc::AT_FDCWD, &c(from)?), (libc::AT_FDCWD, &c(to)?))
}

/// Creates a symbolic link at `path`.
///
/// # Errors
/// Errors of symlink(2).
pub fn symlink(target: &[u8], path: &Path) -> io::Result<()> {
    sys::symlink_path(&CString::new(target)?, &c(path)?)
}

/// Returns the target of a symbolic link.
///
/// # Errors
/// Errors of readlink(2).
pub fn readlink(path: &Path) -> io::Result<Vec<u8>> {
    sys::readlink_path(&c(path)?)
}

/// Cuts or extends a file.
///
/// # Errors
/// Errors of truncate(2).
pub fn truncate(path: &Path, len: ByteLen) -> io::Result<()> {
    sys::truncate_path(&c(path)?, len.0)
}

/// Sets permission bits. Follows symbolic links.
///
/// # Errors
/// Errors of chmod(2).
pub fn chmod(path: &Path, mode: u32) -> io::Result<()> {
    sys::chmod_path(&c(path)?, mode)
}

/// Sets owner and group; `None` keeps one.
///
/// # Errors
/// Errors of chown(2).
pub fn chown(path: &Path, uid: Option<u32>, gid: Option<u32>, follow: bool) -> io::Result<()> {
    sys::chown_path(&c(path)?, uid.unwrap_or(u32::MAX), gid.unwrap_or(u32::MAX), follow)
}

/// Sets the times of last access and last change.
///
/// # Errors
/// Errors of utimensat(2).
pub fn set_times(path: &Path, atime: PathTime, mtime: PathTime, follow: bool) -> io::Result<()> {
    sys::utimens_path(&c(path)?, [atime.timespec(), mtime.timespec()], follow)
}

/// Returns the names in a directory without `.` and `..`, in the file system's order.
///
/// # Errors
/// Errors of opendir(3).
pub fn names(path: &Path) -> io::Result<Vec<Vec<u8>>> {
    sys::names(&sys::open_path(&c(path)?, libc::O_RDONLY | libc::O_DIRECTORY, 0)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_behave_as_the_calls_of_posix() {
        let dir = tempfile::tempdir().expect("a directory");
        let at = |name: &str| dir.path().join(name);
        let how = PathOpen { write: true, create: true, exclusive: true, mode: 0o640, ..PathOpen::default() };
        drop(RealEnv::new().open_path(&at("file"), &how).expect("created"));
        let again = RealEnv::new().open_path(&at("file"), &how).expect_err("it exists");
        assert_eq!(again.raw_os_error(), Some(libc::EEXIST));
        truncate(&at("file"), ByteLen(5)).expect("extended");
        chmod(&at("file"), 0o600).expect("changed");
        let time = Timestamp::from_parts(-5, 7);
        set_times(&at("file"), PathTime::Keep, PathTime::At(time), true).expect("set");
        let found = meta(&at("file"), true).expect("found");
        assert_eq!((found.mode, found.mtime, found.nlink), (libc::S_IFREG | 0o600, time, 1));
        assert_eq!(found.len, ByteLen(5));
        symlink(b"file", &at("link")).expect("created");
        assert_eq!(readlink(&at("link")).expect("a link"), b"file");
        assert_eq!(meta(&at("link"), false).expect("found").mode & libc::S_IFMT, libc::S_IFLNK);
        assert_eq!(meta(&at("link"), true).expect("found").inode, found.inode);
        mkdir(&at("dir"), 0o700).expect("created");
        rename(&at("file"), &at("dir/file")).expect("renamed");
        assert_eq!(rmdir(&at("dir")).expect_err("not empty").raw_os_error(), Some(libc::ENOTEMPTY));
        unlink(&at("dir/file")).expect("removed");
        rmdir(&at("dir")).expect("removed");
        assert_eq!(names(dir.path()).expect("listed"), [b"link"]);
    }

    #[test]
    fn a_close_of_the_last_clone_closes_the_descriptor() {
        use crate::File;
        use std::os::fd::AsRawFd;
        let dir = tempfile::tempdir().expect("a directory");
        let how = PathOpen { write: true, create: true, mode: 0o600, ..PathOpen::default() };
        let file = RealEnv::new().open_path(&dir.path().join("file"), &how).expect("created");
        let clone = file.clone();
        super::super::block_on(file.close()).expect("closed");
        // SAFETY: no memory is involved.
        let is_open = |fd| unsafe { libc::fcntl(fd, libc::F_GETFD) } >= 0;
        assert!(is_open(clone.as_raw_fd()));
        super::super::block_on(clone.close()).expect("closed");
    }
}
