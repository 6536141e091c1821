//! Reading, writing, seeking, lengths, syncing.

use crate::errno::{self, Fail, Res};
use crate::memory::{self, Access, Buffers};
use crate::open::{Open, settle};
use crate::serve::{on_fd, on_fd_number, on_transfer};
use crate::sys;
use crate::trace::{Operation, posix};
use libc::{c_int, c_void, iovec, off_t, size_t, ssize_t};
use std::sync::Arc;

/// Reads into memory of the program: at `offset`, or at the position.
fn get(open: &Arc<Open>, fd: c_int, bufs: Res<Buffers>, offset: Option<i64>) -> Res<ssize_t> {
    open.has_mode(false)?;
    let mut bufs = bufs?;
    if bufs.is_list() && bufs.wanted() == 0 {
        // Before the kind of the file is looked at.
        return Ok(0);
    }
    ends_in_range(offset, bufs.wanted())?;
    if bufs.are_bad() {
        return counted(open.read_nothing(fd, offset));
    }
    // SAFETY: the program gave this memory for the time of the call.
    let targets = unsafe { bufs.targets() };
    counted(match offset {
        Some(offset) => open.read_at(targets, offset),
        None => open.read(fd, targets),
    })
}

/// Writes memory of the program: at `offset`, or at the position.
fn put(open: &Arc<Open>, fd: c_int, bufs: Res<Buffers>, offset: Option<i64>) -> Res<ssize_t> {
    open.has_mode(true)?;
    let bufs = bufs?;
    ends_in_range(offset, bufs.wanted())?;
    if bufs.are_bad() {
        return counted(open.write_nothing());
    }
    // SAFETY: the program gave this memory for the time of the call.
    let sources = unsafe { bufs.sources() };
    counted(match offset {
        Some(offset) => open.write_at(sources, offset),
        None => open.write(fd, sources),
    })
}

/// Whether the end of a transfer at `offset` is a valid offset.
fn ends_in_range(offset: Option<i64>, len: usize) -> Res<()> {
    let fits = |offset: i64| i64::try_from(len).ok().and_then(|len| offset.checked_add(len)).is_some();
    if offset.is_none_or(fits) { Ok(()) } else { Err(libc::EINVAL.into()) }
}

/// Checks an offset, which the kernel does before anything else.
fn place(offset: off_t) -> Res<Option<i64>> {
    if offset < 0 { Err(libc::EINVAL.into()) } else { Ok(Some(offset)) }
}

/// Returns the offset of `preadv2` and `pwritev2`, where -1 means the position.
fn place_or_position(offset: off_t) -> Res<Option<i64>> {
    if offset == -1 { Ok(None) } else { place(offset) }
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
    on_transfer(fd, |open| get(open, fd, Buffers::one(buf, len, Access::Write), None))
} trace |start, done| { posix::here(start, fd, Operation::Read, done) } }
hook! { [__read_chk] (fd: c_int, buf: *mut c_void, len: size_t, _room: size_t) -> ssize_t {
    on_transfer(fd, |open| get(open, fd, Buffers::one(buf, len, Access::Write), None))
} trace |start, done| { posix::here(start, fd, Operation::Read, done) } }
hook! { [write, __write] (fd: c_int, buf: *const c_void, len: size_t) -> ssize_t {
    on_transfer(fd, |open| put(open, fd, Buffers::one(buf, len, Access::Read), None))
} trace |start, done| { posix::here(start, fd, Operation::Write, done) } }
hook! { [pread, pread64, __pread64] (fd: c_int, buf: *mut c_void, len: size_t, offset: off_t) -> ssize_t {
    on_transfer(fd, |open| get(open, fd, Buffers::one(buf, len, Access::Write), place(offset)?))
} trace |start, done| { posix::at(start, fd, Operation::Read, offset, done) } }
hook! { [__pread_chk, __pread64_chk] (fd: c_int, buf: *mut c_void, len: size_t, offset: off_t, _room: size_t)
    -> ssize_t {
    on_transfer(fd, |open| get(open, fd, Buffers::one(buf, len, Access::Write), place(offset)?))
} trace |start, done| { posix::at(start, fd, Operation::Read, offset, done) } }
hook! { [pwrite, pwrite64, __pwrite64] (fd: c_int, buf: *const c_void, len: size_t, offset: off_t) -> ssize_t {
    on_transfer(fd, |open| put(open, fd, Buffers::one(buf, len, Access::Read), place(offset)?))
} trace |start, done| { posix::at(start, fd, Operation::Write, offset, done) } }
hook! { [readv] (fd: c_int, iov: *const iovec, count: c_int) -> ssize_t {
    on_transfer(fd, |open| get(open, fd, Buffers::list(iov, count, Access::Write), None))
} trace |start, done| { posix::here(start, fd, Operation::Read, done) } }
hook! { [writev] (fd: c_int, iov: *const iovec, count: c_int) -> ssize_t {
    on_transfer(fd, |open| put(open, fd, Buffers::list(iov, count, Access::Read), None))
} trace |start, done| { posix::here(start, fd, Operation::Write, done) } }
hook! { [preadv, preadv64] (fd: c_int, iov: *const iovec, count: c_int, offset: off_t) -> ssize_t {
    on_transfer(fd, |open| get(open, fd, Buffers::list(iov, count, Access::Write), place(offset)?))
} trace |start, done| { posix::at(start, fd, Operation::Read, offset, done) } }
hook! { [pwritev, pwritev64] (fd: c_int, iov: *const iovec, count: c_int, offset: off_t) -> ssize_t {
    on_transfer(fd, |open| put(open, fd, Buffers::list(iov, count, Access::Read), place(offset)?))
} trace |start, done| { posix::at(start, fd, Operation::Write, offset, done) } }
hook! { [preadv2, preadv64v2] (fd: c_int, iov: *const iovec, count: c_int, offset: off_t, flags: c_int)
    -> ssize_t {
    on_transfer(fd, |open| {
        let place = place_or_position(offset)?;
        open.has_mode(false)?;
        let bufs = Buffers::list(iov, count, Access::Write)?;
        if bufs.wanted() == 0 {
            // Before flags and kind of the file are looked at.
            return Ok(0);
        }
        ends_in_range(place, bufs.wanted())?;
        check_flags(flags, HINTS)?;
        get(open, fd, Ok(bufs), place)
    })
} trace |start, done| { posix::vector(start, fd, Operation::Read, offset, done) } }
hook! { [pwritev2, pwritev64v2] (fd: c_int, iov: *const iovec, count: c_int, offset: off_t, flags: c_int)
    -> ssize_t {
    on_transfer(fd, |open| {
        let place = place_or_position(offset)?;
        open.has_mode(true)?;
        let bufs = Buffers::list(iov, count, Access::Read)?;
        if bufs.wanted() == 0 {
            return Ok(0);
        }
        ends_in_range(place, bufs.wanted())?;
        check_flags(flags, HINTS | libc::RWF_SYNC | libc::RWF_DSYNC)?;
        let done = put(open, fd, Ok(bufs), place)?;
        if flags & (libc::RWF_SYNC | libc::RWF_DSYNC) != 0 {
            settle()?;
            open.sync()?;
        }
        Ok(done)
    })
} trace |start, done| { posix::vector(start, fd, Operation::Write, offset, done) } }

hook! { [lseek, lseek64, __lseek] (fd: c_int, offset: off_t, whence: c_int) -> off_t {
    on_transfer(fd, |open| open.seek(fd, offset, whence))
} }
hook! { [ftruncate, ftruncate64] (fd: c_int, size: off_t) -> c_int {
    on_fd(fd, |open| open.truncate(size).map(|()| 0))
} trace |start, done| { posix::whole(start, fd, Operation::Truncate, size, done) } }
hook! { [fallocate, fallocate64] (fd: c_int, mode: c_int, offset: off_t, len: off_t) -> c_int {
    on_fd(fd, |open| open.is_opened().and_then(|()| open.allocate(fd, mode, offset, len)).map(|()| 0))
} }
hook! { [posix_fallocate, posix_fallocate64] (fd: c_int, offset: off_t, len: off_t) -> c_int {
    on_fd_number(fd, |open| match open.is_opened().and_then(|()| open.allocate(fd, 0, offset, len)) {
        // A file system of the host that cannot reserve space: only the size changes.
        Err(Fail::Errno(libc::EOPNOTSUPP)) => open.grow(offset + len),
        other => other,
    })
} }
hook! { [posix_fadvise, posix_fadvise64] (fd: c_int, _offset: off_t, len: off_t, advice: c_int) -> c_int {
    on_fd_number(fd, |open| match open.flags() & libc::O_PATH {
        0 if len >= 0 && (0..=5).contains(&advice) => Ok(()),
        0 => Err(libc::EINVAL.into()),
        _ => Err(libc::EBADF.into()),
    })
} }
hook! { [readahead] (fd: c_int, _offset: libc::off64_t, _len: size_t) -> ssize_t {
    on_fd(fd, |open| {
        open.has_mode(false)?;
        if open.is_directory() { Err(libc::EINVAL.into()) } else { Ok(0) }
    })
} }

fn synced(open: &Open) -> Res<c_int> {
    open.sync().map(|()| 0)
}

hook! { [fsync] (fd: c_int) -> c_int { on_fd(fd, |open| synced(open)) } trace |start, done| { posix::whole(start, fd, Operation::Sync, 0, done) } }
hook! { [fdatasync] (fd: c_int) -> c_int { on_fd(fd, |open| synced(open)) } trace |start, done| { posix::whole(start, fd, Operation::Sync, 0, done) } }
hook! { [syncfs] (fd: c_int) -> c_int {
    on_fd(fd, |open| {
        open.is_opened()?;
        synced(open)?;
        if open.is_host() { sys::syncfs(fd)? }
        Ok(0)
    })
} }
hook! { [sync_file_range] (fd: c_int, offset: off_t, len: off_t, flags: libc::c_uint) -> c_int {
    on_fd(fd, |open| {
        let known = libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
        if open.flags() & libc::O_PATH != 0 {
            return Err(libc::EBADF.into());
        }
        if flags & !known != 0 || offset < 0 || len < 0 || offset.checked_add(len).is_none() {
            return Err(libc::EINVAL.into());
        }
        synced(open)
    })
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
        _ if open.flags() & libc::O_PATH != 0 => Err(libc::EBADF.into()),
        libc::FIONREAD => {
            // Linux cuts the number, too, and returns less than nothing behind the end.
            let left = open.stat()?.st_size - sys::lseek(fd, 0, libc::SEEK_CUR)?;
            memory::store(argument, left as c_int)?;
            Ok(0)
        }
        // `O_NONBLOCK` has no effect on files, but a program sees what it set.
        libc::FIONBIO => {
            open.refresh_flags(fd);
            let on = if memory::load(argument)? != 0 { libc::O_NONBLOCK } else { 0 };
            open.set_flags(fd, open.flags() & !libc::O_NONBLOCK | on)?;
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
        && !matches!(request, libc::FIONREAD | libc::FIONBIO | FICLONE | FICLONERANGE)
}

const FICLONE: libc::c_ulong = 0x4004_9409;
const FICLONERANGE: libc::c_ulong = 0x4020_940d;

unsafe fn clone_source(request: libc::c_ulong, argument: *mut c_int) -> Option<c_int> {
    match request {
        FICLONE => Some(argument as usize as c_int),
        FICLONERANGE => memory::load(argument).ok(),
        _ => None,
    }
}

hook! { [isatty] (fd: c_int) -> c_int {
    crate::table::get(fd).map(|open| {
        errno::set(if open.is_opened().is_ok() { libc::ENOTTY } else { libc::EBADF });
        0
    })
} }
