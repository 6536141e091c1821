//! Reading, writing, seeking, lengths, syncing.

use crate::errno::{self, Fail, Res};
use crate::open::{Open, settle};
use crate::serve::{on_fd, on_fd_number, on_transfer};
use crate::sys;
use crate::trace::{Operation, posix};
use libc::{c_int, c_void, iovec, off_t, size_t, ssize_t};
use std::io::{IoSlice, IoSliceMut};

unsafe fn one_mut<'a>(buf: *mut c_void, len: size_t) -> [IoSliceMut<'a>; 1] {
    // At most the maximum of one Linux call, so that the sum fits the result.
    let len = if buf.is_null() { 0 } else { len.min(0x7fff_f000) };
    let buf = if len == 0 { std::ptr::NonNull::dangling().as_ptr() } else { buf.cast() };
    [IoSliceMut::new(std::slice::from_raw_parts_mut(buf, len))]
}

unsafe fn one<'a>(buf: *const c_void, len: size_t) -> [IoSlice<'a>; 1] {
    let len = if buf.is_null() { 0 } else { len.min(0x7fff_f000) };
    let buf = if len == 0 { std::ptr::NonNull::dangling().as_ptr() } else { buf.cast() };
    [IoSlice::new(std::slice::from_raw_parts(buf, len))]
}

fn check_parts(iov: *const iovec, count: c_int) -> Res<()> {
    // IOV_MAX
    if !(0..=1024).contains(&count) || (iov.is_null() && count > 0) {
        return Err(libc::EINVAL.into());
    }
    Ok(())
}

// IoSlice and IoSliceMut are documented to have the layout of iovec.
unsafe fn parts_mut<'a>(iov: *const iovec, count: c_int) -> Res<&'a mut [IoSliceMut<'a>]> {
    check_parts(iov, count)?;
    if count == 0 {
        return Ok(&mut []);
    }
    Ok(std::slice::from_raw_parts_mut(iov.cast_mut().cast(), count as usize))
}

unsafe fn parts<'a>(iov: *const iovec, count: c_int) -> Res<&'a [IoSlice<'a>]> {
    check_parts(iov, count)?;
    if count == 0 {
        return Ok(&[]);
    }
    Ok(std::slice::from_raw_parts(iov.cast(), count as usize))
}

/// Flags of `preadv2` and `pwritev2` that ask for speed alone: high priority, and no place in the page cache.
const HINTS: c_int = libc::RWF_HIPRI | RWF_DONTCACHE;
/// Of Linux 6.14; the crate `libc` does not have it.
const RWF_DONTCACHE: c_int = 0x80;

/// Refuses flags that would change what a call does, such as `RWF_APPEND`, as the kernel does for file systems that do
/// not support them.
fn check_flags(flags: c_int, known: c_int) -> Res<()> {
    if flags & !known == 0 { Ok(()) } else { Err(libc::EOPNOTSUPP.into()) }
}

fn counted(result: Res<usize>) -> Res<ssize_t> {
    result.map(|n| n as ssize_t)
}

hook! { [read, __read] (fd: c_int, buf: *mut c_void, len: size_t) -> ssize_t {
    on_transfer(fd, |open| counted(open.read(fd, &mut one_mut(buf, len))))
} trace |start, done| { posix::here(start, fd, Operation::Read, done) } }
hook! { [__read_chk] (fd: c_int, buf: *mut c_void, len: size_t, _room: size_t) -> ssize_t {
    on_transfer(fd, |open| counted(open.read(fd, &mut one_mut(buf, len))))
} trace |start, done| { posix::here(start, fd, Operation::Read, done) } }
hook! { [write, __write] (fd: c_int, buf: *const c_void, len: size_t) -> ssize_t {
    on_transfer(fd, |open| counted(open.write(fd, &one(buf, len))))
} trace |start, done| { posix::here(start, fd, Operation::Write, done) } }
hook! { [pread, pread64, __pread64] (fd: c_int, buf: *mut c_void, len: size_t, offset: off_t) -> ssize_t {
    on_transfer(fd, |open| counted(open.read_at(&mut one_mut(buf, len), offset)))
} trace |start, done| { posix::at(start, fd, Operation::Read, offset, done) } }
hook! { [__pread_chk, __pread64_chk] (fd: c_int, buf: *mut c_void, len: size_t, offset: off_t, _room: size_t)
    -> ssize_t {
    on_transfer(fd, |open| counted(open.read_at(&mut one_mut(buf, len), offset)))
} trace |start, done| { posix::at(start, fd, Operation::Read, offset, done) } }
hook! { [pwrite, pwrite64, __pwrite64] (fd: c_int, buf: *const c_void, len: size_t, offset: off_t) -> ssize_t {
    on_transfer(fd, |open| counted(open.write_at(&one(buf, len), offset)))
} trace |start, done| { posix::at(start, fd, Operation::Write, offset, done) } }
hook! { [readv] (fd: c_int, iov: *const iovec, count: c_int) -> ssize_t {
    on_transfer(fd, |open| counted(open.read(fd, parts_mut(iov, count)?)))
} trace |start, done| { posix::here(start, fd, Operation::Read, done) } }
hook! { [writev] (fd: c_int, iov: *const iovec, count: c_int) -> ssize_t {
    on_transfer(fd, |open| counted(open.write(fd, parts(iov, count)?)))
} trace |start, done| { posix::here(start, fd, Operation::Write, done) } }
hook! { [preadv, preadv64] (fd: c_int, iov: *const iovec, count: c_int, offset: off_t) -> ssize_t {
    on_transfer(fd, |open| counted(open.read_at(parts_mut(iov, count)?, offset)))
} trace |start, done| { posix::at(start, fd, Operation::Read, offset, done) } }
hook! { [pwritev, pwritev64] (fd: c_int, iov: *const iovec, count: c_int, offset: off_t) -> ssize_t {
    on_transfer(fd, |open| counted(open.write_at(parts(iov, count)?, offset)))
} trace |start, done| { posix::at(start, fd, Operation::Write, offset, done) } }
hook! { [preadv2, preadv64v2] (fd: c_int, iov: *const iovec, count: c_int, offset: off_t, flags: c_int)
    -> ssize_t {
    on_transfer(fd, |open| {
        check_flags(flags, HINTS)?;
        let parts = parts_mut(iov, count)?;
        counted(if offset == -1 { open.read(fd, parts) } else { open.read_at(parts, offset) })
    })
} trace |start, done| { posix::vector(start, fd, Operation::Read, offset, done) } }
hook! { [pwritev2, pwritev64v2] (fd: c_int, iov: *const iovec, count: c_int, offset: off_t, flags: c_int)
    -> ssize_t {
    on_transfer(fd, |open| {
        check_flags(flags, HINTS | libc::RWF_SYNC | libc::RWF_DSYNC)?;
        let parts = parts(iov, count)?;
        let done = if offset == -1 { open.write(fd, parts) } else { open.write_at(parts, offset) }?;
        if flags & (libc::RWF_SYNC | libc::RWF_DSYNC) != 0 {
            settle()?;
            open.sync()?;
        }
        Ok(done as ssize_t)
    })
} trace |start, done| { posix::vector(start, fd, Operation::Write, offset, done) } }

hook! { [lseek, lseek64, __lseek] (fd: c_int, offset: off_t, whence: c_int) -> off_t {
    on_transfer(fd, |open| open.seek(fd, offset, whence))
} }
hook! { [ftruncate, ftruncate64] (fd: c_int, size: off_t) -> c_int {
    on_fd(fd, |open| open.truncate(size).map(|()| 0))
} trace |start, done| { posix::whole(start, fd, Operation::Truncate, size, done) } }
hook! { [fallocate, fallocate64] (fd: c_int, mode: c_int, offset: off_t, len: off_t) -> c_int {
    on_fd(fd, |open| open.allocate(fd, mode, offset, len).map(|()| 0))
} }
hook! { [posix_fallocate, posix_fallocate64] (fd: c_int, offset: off_t, len: off_t) -> c_int {
    on_fd_number(fd, |open| match open.allocate(fd, 0, offset, len) {
        // A file system of the host that cannot reserve space: only the size changes.
        Err(Fail::Errno(libc::EOPNOTSUPP)) => open.grow(offset + len),
        other => other,
    })
} }
hook! { [posix_fadvise, posix_fadvise64] (fd: c_int, _offset: off_t, _len: off_t, advice: c_int) -> c_int {
    on_fd_number(fd, |_| if (0..=5).contains(&advice) { Ok(()) } else { Err(libc::EINVAL.into()) })
} }
hook! { [readahead] (fd: c_int, _offset: libc::off64_t, _len: size_t) -> ssize_t {
    on_fd(fd, |_| Ok(0))
} }

fn synced(open: &Open) -> Res<c_int> {
    open.sync().map(|()| 0)
}

hook! { [fsync] (fd: c_int) -> c_int { on_fd(fd, |open| synced(open)) } trace |start, done| { posix::whole(start, fd, Operation::Sync, 0, done) } }
hook! { [fdatasync] (fd: c_int) -> c_int { on_fd(fd, |open| synced(open)) } trace |start, done| { posix::whole(start, fd, Operation::Sync, 0, done) } }
hook! { [syncfs] (fd: c_int) -> c_int {
    on_fd(fd, |open| {
        synced(open)?;
        if open.is_host() { sys::syncfs(fd)? }
        Ok(0)
    })
} }
hook! { [sync_file_range] (fd: c_int, _offset: off_t, _len: off_t, _flags: libc::c_uint) -> c_int {
    on_fd(fd, |open| synced(open))
} trace |start, done| { posix::whole(start, fd, Operation::Sync, 0, done) } }

hook! { [ioctl] (fd: c_int, request: libc::c_ulong, argument: *mut c_int) -> c_int {
    // FICLONE and FICLONERANGE name a source descriptor, which may be a Weft descriptor even if this one is foreign.
    if !crate::table::is_ours(fd) && clone_source(request, argument).is_some_and(crate::table::is_ours) {
        errno::set(libc::EXDEV);
        return -1;
    }
    if is_for_kernel(fd, request) {
        return real!(ioctl: fn(c_int, libc::c_ulong, *mut c_int) -> c_int)(fd, request, argument);
    }
    on_fd(fd, |open| match request {
        libc::FIONREAD => {
            let left = open.stat()?.st_size - sys::lseek(fd, 0, libc::SEEK_CUR)?;
            *argument = left.clamp(0, i64::from(i32::MAX)) as c_int;
            Ok(0)
        }
        libc::FIOCLEX => Ok(sys::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC as usize)?),
        libc::FIONCLEX => Ok(sys::fcntl(fd, libc::F_SETFD, 0)?),
        FICLONE | FICLONERANGE => Err(libc::EOPNOTSUPP.into()),
        _ => Err(libc::ENOTTY.into()),
    })
} }

/// Whether a request concerns attributes of a file of the host.
fn is_for_kernel(fd: c_int, request: libc::c_ulong) -> bool {
    crate::table::is_ours(fd)
        && !crate::table::is_weft(fd)
        && !matches!(request, libc::FIONREAD | FICLONE | FICLONERANGE)
}

const FICLONE: libc::c_ulong = 0x4004_9409;
const FICLONERANGE: libc::c_ulong = 0x4020_940d;

unsafe fn clone_source(request: libc::c_ulong, argument: *mut c_int) -> Option<c_int> {
    match request {
        FICLONE => Some(argument as usize as c_int),
        FICLONERANGE if !argument.is_null() => Some(*argument),
        _ => None,
    }
}

hook! { [isatty] (fd: c_int) -> c_int {
    crate::table::is_ours(fd).then(|| {
        errno::set(libc::ENOTTY);
        0
    })
} }
