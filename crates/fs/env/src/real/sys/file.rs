//! Files and folders.

use super::{Fd, call, retry, through};
use std::ffi::CStr;
use std::io;
use std::os::fd::RawFd;
use weft_core::Timestamp;

const ALWAYS: i32 = libc::O_CLOEXEC;

/// Opens `path` relative to `dir` (`AT_FDCWD`: the working directory), following symbolic links.
pub fn open(dir: RawFd, path: &CStr, flags: i32) -> io::Result<Fd> {
    // SAFETY: `path` is a C string.
    retry(|| unsafe { call!(SYS_openat, dir, path.as_ptr(), flags | ALWAYS, 0) }).map(Fd::from_call)
}

/// Opens `path` relative to the working directory; `mode` is for a new file.
pub fn open_path(path: &CStr, flags: i32, mode: u32) -> io::Result<Fd> {
    // SAFETY: `path` is a C string.
    retry(|| unsafe { call!(SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags | ALWAYS, mode) })
        .map(Fd::from_call)
}

/// Opens `path` beneath `dir`, without following symbolic links in any component.
pub fn open_beneath(dir: RawFd, path: &CStr, flags: i32, mode: u32) -> io::Result<Fd> {
    // SAFETY: zeros are a valid `open_how`.
    let mut how: libc::open_how = unsafe { std::mem::zeroed() };
    how.flags = (flags | ALWAYS) as u64;
    how.mode = if flags & libc::O_CREAT != 0 { u64::from(mode) } else { 0 };
    how.resolve = libc::RESOLVE_BENEATH | libc::RESOLVE_NO_SYMLINKS;
    let size = size_of::<libc::open_how>();
    // SAFETY: `path` is a C string and `how` a valid structure of `size` bytes.
    let opened = retry(|| unsafe { call!(SYS_openat2, dir, path.as_ptr(), &raw const how, size) });
    match opened {
        // Old kernels and some sandboxes lack openat2.
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) => {
            walk_beneath(dir, path, flags, mode)
        }
        result => result.map(Fd::from_call),
    }
}

fn walk_beneath(dir: RawFd, path: &CStr, flags: i32, mode: u32) -> io::Result<Fd> {
    let mut parts = path.to_bytes().split(|&byte| byte == b'/').peekable();
    let mut at: Option<Fd> = None;
    while let Some(part) = parts.next() {
        if part == b".." {
            return Err(io::Error::from_raw_os_error(libc::EXDEV));
        }
        let part = std::ffi::CString::new(part).expect("a part of a C string");
        let flags = match parts.peek() {
            Some(_) => libc::O_PATH | libc::O_DIRECTORY,
            None => flags,
        } | libc::O_NOFOLLOW
            | ALWAYS;
        let parent = at.as_ref().map_or(dir, |fd| fd.0);
        // SAFETY: `part` is a C string.
        let next = retry(|| unsafe { call!(SYS_openat, parent, part.as_ptr(), flags, mode) })?;
        at = Some(Fd::from_call(next));
    }
    at.ok_or_else(|| io::Error::from_raw_os_error(libc::ENOENT))
}

/// Reads at `offset` until `parts` are full, the file ends, or `stop_short` accepts a short count as the end.
pub fn preadv(
    fd: &Fd,
    parts: &[libc::iovec],
    offset: u64,
    stop_short: impl Fn(usize) -> bool,
) -> io::Result<usize> {
    let mut ended = false;
    through(parts, |parts, done| {
        if ended {
            return Ok(0);
        }
        let at = offset + done as u64;
        // SAFETY: the caller borrowed the memory that `parts` name for writing, for as long as this runs.
        let count = retry(|| unsafe {
            match parts {
                [one] => call!(SYS_pread64, fd.0, one.iov_base, one.iov_len, at),
                many => call!(SYS_preadv, fd.0, many.as_ptr(), many.len(), at, 0),
            }
        })?;
        ended = stop_short(count);
        Ok(count)
    })
}

/// Writes all of `parts` at `offset`.
pub fn pwritev(fd: &Fd, parts: &[libc::iovec], offset: u64) -> io::Result<()> {
    let total: usize = parts.iter().map(|part| part.iov_len).sum();
    let done = through(parts, |parts, done| {
        let at = offset + done as u64;
        // SAFETY: the caller keeps the memory that `parts` name readable for as long as this runs.
        retry(|| unsafe {
            match parts {
                [one] => call!(SYS_pwrite64, fd.0, one.iov_base, one.iov_len, at),
                many => call!(SYS_pwritev, fd.0, many.as_ptr(), many.len(), at, 0),
            }
        })
    })?;
    if done == total { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

/// Sends at most `len` bytes of `from` at `offset` to the socket `to`. Returns zero at the end of the file.
pub fn sendfile(to: &Fd, from: &Fd, offset: u64, len: usize) -> io::Result<usize> {
    let mut at = offset as libc::loff_t;
    // SAFETY: `at` is valid for reads and writes.
    unsafe { call!(SYS_sendfile, to.0, from.0, &raw mut at, len) }
}

/// Returns all attributes of an open file or folder.
pub fn statx(fd: &Fd) -> io::Result<libc::statx> {
    // SAFETY: zeros are a valid `statx`.
    let mut meta: libc::statx = unsafe { std::mem::zeroed() };
    let (flags, mask) = (libc::AT_EMPTY_PATH, libc::STATX_BASIC_STATS);
    // SAFETY: the path is an empty C string and `meta` is valid for writes.
    retry(|| unsafe { call!(SYS_statx, fd.0, c"".as_ptr(), flags, mask, &raw mut meta) })?;
    Ok(meta)
}

/// Returns all attributes of a name; `follow` says whether to follow a symbolic link in the last component.
pub fn statx_at(dir: RawFd, path: &CStr, follow: bool) -> io::Result<libc::statx> {
    // SAFETY: zeros are a valid `statx`.
    let mut meta: libc::statx = unsafe { std::mem::zeroed() };
    let (flags, mask) = (link_flag(follow), libc::STATX_BASIC_STATS);
    // SAFETY: `path` is a C string and `meta` is valid for writes.
    retry(|| unsafe { call!(SYS_statx, dir, path.as_ptr(), flags, mask, &raw mut meta) })?;
    Ok(meta)
}

/// Returns the flag of calls on a name that says whether to follow a symbolic link in the last component.
const fn link_flag(follow: bool) -> i32 {
    if follow { 0 } else { libc::AT_SYMLINK_NOFOLLOW }
}

/// Returns the figures of the file system.
pub fn statfs(fd: &Fd) -> io::Result<libc::statfs> {
    // SAFETY: zeros are a valid `statfs`.
    let mut figures: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: `figures` is valid for writes.
    retry(|| unsafe { call!(SYS_fstatfs, fd.0, &raw mut figures) })?;
    Ok(figures)
}

/// Returns the number of the file system that contains a file, never 0.
pub fn device(fd: &Fd) -> io::Result<u64> {
    let meta = statx(fd)?;
    Ok(libc::makedev(meta.stx_dev_major, meta.stx_dev_minor).max(1))
}

/// Frees the space of a range, which then reads as zeros; the length does not change.
pub fn punch(fd: &Fd, offset: u64, len: u64) -> io::Result<()> {
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: no memory is involved.
    retry(|| unsafe { call!(SYS_fallocate, fd.0, mode, offset, len) }).map(drop)
}

/// Returns the start of data or of a hole (as `whence` says) at or after `offset`; `None` after the last one.
pub fn seek(fd: &Fd, offset: u64, whence: i32) -> io::Result<Option<u64>> {
    // SAFETY: no memory is involved. The position of the descriptor is not used.
    match retry(|| unsafe { call!(SYS_lseek, fd.0, offset, whence) }) {
        Ok(at) => Ok(Some(at as u64)),
        Err(error) if error.raw_os_error() == Some(libc::ENXIO) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Cuts or extends a file.
pub fn ftruncate(fd: &Fd, len: u64) -> io::Result<()> {
    // SAFETY: no memory is involved.
    retry(|| unsafe { call!(SYS_ftruncate, fd.0, len) }).map(drop)
}

/// Sets the modification time and keeps the access time.
pub fn set_mtime(fd: &Fd, mtime: Timestamp) -> io::Result<()> {
    let (seconds, nanos) = mtime.parts();
    let leave = libc::timespec { tv_sec: 0, tv_nsec: libc::UTIME_OMIT };
    let times = [leave, libc::timespec { tv_sec: seconds, tv_nsec: nanos.into() }];
    // SAFETY: a null path refers to the descriptor itself; `times` is read before the call returns.
    retry(|| unsafe { call!(SYS_utimensat, fd.0, 0, times.as_ptr(), 0) }).map(drop)
}

/// Makes contents and length durable.
pub fn fdatasync(fd: &Fd) -> io::Result<()> {
    // SAFETY: no memory is involved.
    retry(|| unsafe { call!(SYS_fdatasync, fd.0) }).map(drop)
}

/// Drops the clean pages of a file from the page cache.
pub fn forget(fd: &Fd) -> io::Result<()> {
    // SAFETY: no memory of this process is involved.
    retry(|| unsafe { call!(SYS_fadvise64, fd.0, 0, 0, libc::POSIX_FADV_DONTNEED) }).map(drop)
}

/// Makes a range read as zeros without writing them, and keeps its space.
pub fn zero_range(fd: &Fd, offset: u64, len: u64) -> io::Result<()> {
    let mode = libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: no memory is involved.
    retry(|| unsafe { call!(SYS_fallocate, fd.0, mode, offset, len) }).map(drop)
}

/// Extends a file to `len` and allocates all of its space.
pub fn allocate(fd: &Fd, len: u64) -> io::Result<()> {
    // SAFETY: no memory is involved.
    retry(|| unsafe { call!(SYS_fallocate, fd.0, 0, 0, len) }).map(drop)
}

/// Allocates space for the first `len` bytes without changing the length.
pub fn reserve(fd: &Fd, len: u64) -> io::Result<()> {
    // SAFETY: no memory is involved.
    retry(|| unsafe { call!(SYS_fallocate, fd.0, libc::FALLOC_FL_KEEP_SIZE, 0, len) }).map(drop)
}

/// Makes a folder's names durable.
pub fn fsync(fd: &Fd) -> io::Result<()> {
    // SAFETY: no memory is involved.
    retry(|| unsafe { call!(SYS_fsync, fd.0) }).map(drop)
}

/// Removes a file's name.
pub fn unlink(dir: &Fd, name: &CStr) -> io::Result<()> {
    unlink_at(dir.0, name)
}

/// Removes a file's name relative to a folder descriptor (`AT_FDCWD`: the working directory).
pub fn unlink_at(dir: RawFd, name: &CStr) -> io::Result<()> {
    // SAFETY: `name` is a C string.
    retry(|| unsafe { call!(SYS_unlinkat, dir, name.as_ptr(), 0) }).map(drop)
}

/// Removes an empty folder, by its path from the working directory.
pub fn rmdir_path(path: &CStr) -> io::Result<()> {
    // SAFETY: `path` is a C string.
    retry(|| unsafe { call!(SYS_unlinkat, libc::AT_FDCWD, path.as_ptr(), libc::AT_REMOVEDIR) }).map(drop)
}

/// Renames a file and replaces an existing one.
pub fn rename(from: (&Fd, &CStr), to: (&Fd, &CStr)) -> io::Result<()> {
    rename_at((from.0.0, from.1), (to.0.0, to.1))
}

/// Renames a file relative to folder descriptors (`AT_FDCWD`: the working directory) and replaces an existing one.
pub fn rename_at(from: (RawFd, &CStr), to: (RawFd, &CStr)) -> io::Result<()> {
    let ((from_dir, from), (to_dir, to)) = (from, to);
    // SAFETY: both names are C strings.
    retry(|| unsafe { call!(SYS_renameat2, from_dir, from.as_ptr(), to_dir, to.as_ptr(), 0) }).map(drop)
}

/// Creates a folder that only this user can enter.
pub fn mkdir(dir: &Fd, name: &CStr) -> io::Result<()> {
    mkdir_at(dir.0, name, 0o700)
}

/// Creates a folder relative to a folder descriptor (`AT_FDCWD`: the working directory).
pub fn mkdir_at(dir: RawFd, name: &CStr, mode: u32) -> io::Result<()> {
    // SAFETY: `name` is a C string.
    retry(|| unsafe { call!(SYS_mkdirat, dir, name.as_ptr(), mode) }).map(drop)
}

/// Creates a symbolic link at `path`, relative to the working directory.
pub fn symlink_path(target: &CStr, path: &CStr) -> io::Result<()> {
    // SAFETY: both are C strings.
    retry(|| unsafe { call!(SYS_symlinkat, target.as_ptr(), libc::AT_FDCWD, path.as_ptr()) }).map(drop)
}

/// Returns the target of the symbolic link at `path`, relative to the working directory.
pub fn readlink_path(path: &CStr) -> io::Result<Vec<u8>> {
    let mut target = vec![0_u8; libc::PATH_MAX as usize];
    let (start, room) = (target.as_mut_ptr(), target.len());
    // SAFETY: `path` is a C string, and the kernel writes at most `room` bytes.
    let len = retry(|| unsafe { call!(SYS_readlinkat, libc::AT_FDCWD, path.as_ptr(), start, room) })?;
    target.truncate(len);
    Ok(target)
}

/// Cuts or extends the file at `path`, relative to the working directory.
pub fn truncate_path(path: &CStr, len: u64) -> io::Result<()> {
    // SAFETY: `path` is a C string.
    retry(|| unsafe { call!(SYS_truncate, path.as_ptr(), len) }).map(drop)
}

/// Sets the permission bits of the file at `path`, relative to the working directory. Follows symbolic links.
pub fn chmod_path(path: &CStr, mode: u32) -> io::Result<()> {
    // SAFETY: `path` is a C string.
    retry(|| unsafe { call!(SYS_fchmodat, libc::AT_FDCWD, path.as_ptr(), mode) }).map(drop)
}

/// Sets owner and group of the file at `path`, relative to the working directory; `u32::MAX` keeps one.
pub fn chown_path(path: &CStr, uid: u32, gid: u32, follow: bool) -> io::Result<()> {
    let flags = link_flag(follow);
    // SAFETY: `path` is a C string.
    retry(|| unsafe { call!(SYS_fchownat, libc::AT_FDCWD, path.as_ptr(), uid, gid, flags) }).map(drop)
}

/// Sets the times of last access and change of the file at `path`, relative to the working directory.
pub fn utimens_path(path: &CStr, times: [libc::timespec; 2], follow: bool) -> io::Result<()> {
    let flags = link_flag(follow);
    // SAFETY: `path` is a C string; `times` is read before the call returns.
    retry(|| unsafe { call!(SYS_utimensat, libc::AT_FDCWD, path.as_ptr(), times.as_ptr(), flags) }).map(drop)
}

/// Locks an open file description.
pub fn flock(fd: &Fd, operation: i32) -> io::Result<()> {
    // SAFETY: no memory is involved.
    retry(|| unsafe { call!(SYS_flock, fd.0, operation) }).map(drop)
}

/// Sets the record lock of the open file description on the first byte, without waiting.
pub fn lock_first_byte(fd: &Fd, kind: i32) -> io::Result<()> {
    let lock = libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 1,
        l_pid: 0,
    };
    // SAFETY: the kernel reads the struct.
    retry(|| unsafe { call!(SYS_fcntl, fd.0, libc::F_OFD_SETLK, std::ptr::from_ref(&lock)) }).map(drop)
}

/// Returns the names in an open folder without `.` and `..`, in the file system's order.
pub fn names(dir: &Fd) -> io::Result<Vec<Vec<u8>>> {
    // Record: inode (8), offset (8), record length (2), type (1), name with a terminating zero.
    const NAME_AT: usize = 19;
    let mut names = Vec::new();
    let mut buffer = vec![0_u8; 32 * 1024];
    loop {
        // SAFETY: the kernel writes at most the buffer's length to it.
        let count = retry(|| unsafe { call!(SYS_getdents64, dir.0, buffer.as_mut_ptr(), buffer.len()) })?;
        if count == 0 {
            return Ok(names);
        }
        let mut rest = &buffer[..count];
        while !rest.is_empty() {
            let len = usize::from(u16::from_ne_bytes([rest[16], rest[17]]));
            let name = &rest[NAME_AT..len];
            let name = &name[..name.iter().position(|&byte| byte == 0).unwrap_or(name.len())];
            if name != b"." && name != b".." {
                names.push(name.to_vec());
            }
            rest = &rest[len..];
        }
    }
}
