//! Descriptors: duplicating, closing, flags.

use super::locks;
use crate::errno::{self, Res};
use crate::open::{self, install};
use crate::serve::{answer, on_fd};
use crate::trace::{self, posix};
use crate::{backend, memory, placeholder, sys, table};
use libc::{c_int, c_uint};
use std::sync::Arc;

/// Duplicates a descriptor for the same description, with a number of at least `min`.
fn duplicate(fd: c_int, min: usize, command: c_int) -> Res<c_int> {
    let open = Arc::clone(&*table::get(fd).ok_or(libc::EBADF)?);
    let copy = sys::fcntl(fd, command, min)?;
    install(copy, open)
}

/// Makes `to` a descriptor of the file of `from`; either may be a Weft descriptor.
fn duplicate_to(from: c_int, to: c_int, flags: c_int) -> Res<c_int> {
    let open = table::get(from).map(|open| Arc::clone(&open));
    // The old file of `to` is closed silently, as by dup2, after the kernel has replaced the descriptor.
    let old = table::get(to).map(|open| Arc::clone(&open));
    let fd = sys::dup3(from, to, flags)?;
    if let Some(old) = &old {
        open::release_locks(old);
    }
    match open {
        Some(open) => {
            install(fd, open)?;
        }
        None => {
            table::remove(fd);
        }
    }
    Ok(fd)
}

hook! { [dup] (fd: c_int) -> c_int {
    on_fd(fd, |_| duplicate(fd, 0, libc::F_DUPFD))
} trace |_start, done| { posix::replaced(done) } }

hook! { [dup2, __dup2] (from: c_int, to: c_int) -> c_int {
    if !table::is_ours(from) && !table::is_ours(to) || crate::guard::inside() {
        None
    } else if from == to {
        Some(to)
    } else {
        Some(answer(|| duplicate_to(from, to, 0)))
    }
} trace |_start, done| { posix::replaced(done) } }

hook! { [dup3] (from: c_int, to: c_int, flags: c_int) -> c_int {
    if !table::is_ours(from) && !table::is_ours(to) || crate::guard::inside() || from == to {
        None
    } else {
        Some(answer(|| duplicate_to(from, to, flags)))
    }
} trace |_start, done| { posix::replaced(done) } }

hook! { [close, __close] (fd: c_int) -> c_int {
    if table::is_ours(fd) && !crate::guard::inside() {
        Some(answer(|| open::settle().and(open::close(fd)).map(|()| 0)))
    } else if is_internal(fd) {
        errno::set(libc::EBADF);
        Some(-1)
    } else {
        None
    }
} trace from { trace::begin().map(|start| (start, posix::closing(fd))) } |(start, was), done| {
    if done == 0 {
        posix::closed(start, fd, was);
    }
} }

/// Whether the library needs `fd` for itself: a program that closes all descriptors must not close it.
#[inline]
fn is_internal(fd: c_int) -> bool {
    backend::in_use() && placeholder::is_internal(fd) && !crate::guard::inside()
}

/// Closes the Weft descriptors in the range one by one, then lets the kernel close the rest below the library's own
/// numbers.
unsafe fn close_all(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    const CLOEXEC: c_int = 4;
    if flags & CLOEXEC == 0 {
        posix::forgotten(first, last);
        for fd in table::all(first, last) {
            let _ = crate::serve::inside(|| open::close(fd));
        }
    }
    let real = real!(close_range: fn(c_uint, c_uint, c_int) -> c_int);
    let mut from = first;
    for own in placeholder::internal() {
        let own = own as c_uint;
        if own < from || own > last {
            continue;
        }
        if own > from && real(from, own - 1, flags) != 0 {
            return -1;
        }
        from = own + 1;
    }
    if from > last { 0 } else { real(from, last, flags) }
}

hook! { [close_range] (first: c_uint, last: c_uint, flags: c_int) -> c_int {
    (backend::in_use() && first <= last && !crate::guard::inside()).then(|| close_all(first, last, flags))
} trace |_start, done| {
    if done == 0 && !backend::in_use() {
        posix::forgotten(first, last);
    }
} }

/// Implements `closefrom`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn closefrom(first: c_int) {
    if backend::in_use() {
        close_all(first.max(0) as c_uint, c_uint::MAX, 0);
    } else {
        posix::forgotten(first.max(0) as c_uint, c_uint::MAX);
        real!(closefrom: fn(c_int) -> ())(first);
    }
}

/// Commands on a descriptor that only refers to a file.
const OF_PATHS: [c_int; 6] =
    [libc::F_DUPFD, libc::F_DUPFD_CLOEXEC, libc::F_GETFD, libc::F_SETFD, libc::F_GETFL, F_DUPFD_QUERY];
/// Compares two descriptors, which placeholders do as well; of Linux 6.10.
const F_DUPFD_QUERY: c_int = 1027;
const F_GET_RW_HINT: c_int = 1035;
const F_SET_RW_HINT: c_int = 1036;
const F_SETSIG: c_int = 10;
const F_GETSIG: c_int = 11;

/// Whether a command concerns attributes or locks of a file of the host.
fn is_for_kernel(fd: c_int, command: c_int) -> bool {
    const REGISTERED: [c_int; 4] = [libc::F_DUPFD, libc::F_DUPFD_CLOEXEC, libc::F_GETFL, libc::F_SETFL];
    let is = table::is_ours(fd) && !table::is_weft(fd) && !REGISTERED.contains(&command);
    if is {
        before_kernel(fd);
    }
    is
}

/// Moves the bytes that a call of MPI-IO has gathered, before a call of the kernel such as that of a lock. Errors
/// surface at the end of the call.
pub fn before_kernel(fd: c_int) {
    let _: Option<c_int> = on_fd(fd, |_| Ok(0));
}

hook! { [fcntl, fcntl64, __fcntl] (fd: c_int, command: c_int, argument: usize) -> c_int {
    if is_for_kernel(fd, command) {
        return real!(fcntl: fn(c_int, c_int, usize) -> c_int)(fd, command, argument);
    }
    on_fd(fd, |open| match command {
        _ if open.flags() & libc::O_PATH != 0 && !OF_PATHS.contains(&command) => Err(libc::EBADF.into()),
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => duplicate(fd, argument, command),
        libc::F_GETFD | libc::F_SETFD | F_DUPFD_QUERY => Ok(sys::fcntl(fd, command, argument)?),
        libc::F_GETFL => {
            open.refresh_flags(fd);
            // Files of Weft have it since their open.
            Ok(open.flags() | if open.is_host() { crate::open::LARGE } else { 0 })
        }
        libc::F_SETFL => open.set_flags(fd, argument as c_int).map(|()| 0),
        libc::F_GETLK | libc::F_OFD_GETLK => {
            locks::test(open, fd, argument as *mut libc::flock, command == libc::F_OFD_GETLK)
        }
        libc::F_SETLK | libc::F_SETLKW | libc::F_OFD_SETLK | libc::F_OFD_SETLKW => {
            let by_handle = command == libc::F_OFD_SETLK || command == libc::F_OFD_SETLKW;
            let wait = command == libc::F_SETLKW || command == libc::F_OFD_SETLKW;
            locks::set(open, fd, argument as *const libc::flock, by_handle, wait)
        }
        libc::F_SETOWN | libc::F_GETOWN | F_GETSIG => Ok(0),
        F_SETSIG if argument <= 64 => Ok(0),
        libc::F_GETLEASE => Ok(libc::F_UNLCK),
        libc::F_SETLEASE if argument <= libc::F_UNLCK as usize => Err(libc::EAGAIN.into()),
        libc::F_NOTIFY if !open.is_directory() => Err(libc::ENOTDIR.into()),
        libc::F_GETPIPE_SZ | libc::F_SETPIPE_SZ => Err(libc::EBADF.into()),
        F_GET_RW_HINT => unsafe { memory::store(argument as *mut u64, 0) }.map(|()| 0),
        F_SET_RW_HINT => match unsafe { memory::load(argument as *const u64) }? {
            0..=5 => Ok(0),
            _ => Err(libc::EINVAL.into()),
        },
        _ => Err(libc::EINVAL.into()),
    })
} trace |_start, done| {
    if matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) {
        posix::replaced(done);
    }
} }
