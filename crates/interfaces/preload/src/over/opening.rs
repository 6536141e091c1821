//! Opening files of the host: the kernel opens them, then their descriptors are registered.

use super::{HostFileId, find, is_on};
use crate::errno::{self, Res};
use crate::open::{Access, HostDescriptor, Open, page_len_hint, settle};
use crate::serve::{answer, inside};
use crate::{guard, hooks, placeholder, sys, table};
use libc::{c_char, c_int};
use std::ffi::CStr;
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::Arc;
use weft_env::real::RealEnv;

/// Opens a path as `openat` does.
///
/// Delegates may hold bytes of an existing file, so they cut it instead of the kernel.
///
/// # Safety
/// `path` is a C string or null.
pub unsafe fn open(dir: c_int, path: *const c_char, flags: c_int, mode: u32) -> c_int {
    let (cuts, rest) = without_cut(flags);
    settle_now();
    match sys::openat(dir, path, rest, mode) {
        Ok(fd) => opened(fd, flags, cuts),
        Err(number) => failed(number),
    }
}

/// Opens a path as the kernel's `openat2` does, whose flags are at the start of `how`.
///
/// # Safety
/// `path` is a C string or null; `how` points to `size` bytes, at least eight.
pub unsafe fn openat2(dir: c_int, path: *const c_char, how: *const u8, size: usize) -> c_int {
    let mut how = std::slice::from_raw_parts(how, size).to_vec();
    let word = u64::from_ne_bytes(std::array::from_fn(|at| how[at]));
    // Unknown flags are the kernel's to reject.
    let flags = c_int::try_from(word).unwrap_or(libc::O_PATH);
    let (cuts, rest) = without_cut(flags);
    if cuts {
        how[..8].copy_from_slice(&(rest as u64).to_ne_bytes());
    }
    match sys::openat2(dir, path, &how) {
        Ok(fd) => opened(fd, flags, cuts),
        Err(number) => failed(number),
    }
}

/// Moves the bytes that a call of MPI-IO has gathered; errors surface at its end.
fn settle_now() {
    let _ = inside(settle);
}

fn failed(number: c_int) -> c_int {
    errno::set(number);
    -1
}

/// Whether an open with these flags cuts the file, and the flags without that. The kernel also cuts files that are
/// opened only for reading; programs do not rely on it.
fn without_cut(flags: c_int) -> (bool, c_int) {
    let cuts =
        flags & libc::O_TRUNC != 0 && flags & libc::O_PATH == 0 && flags & libc::O_ACCMODE != libc::O_RDONLY;
    (cuts, if cuts { flags & !libc::O_TRUNC } else { flags })
}

/// Registers `fd`, which the kernel has opened with `flags`, if delegates serve its file; `cuts` if the file remains to be
/// cut. Returns the descriptor. On failure it is closed.
fn opened(fd: c_int, flags: c_int, cuts: bool) -> c_int {
    // A number that a call without a hook has closed may still be registered.
    table::remove(fd);
    let is_candidate = flags & libc::O_PATH == 0 && flags & libc::O_TMPFILE != libc::O_TMPFILE;
    let Some(id) = is_candidate.then(|| find(fd)).flatten() else {
        return match cuts {
            true => cut_by_kernel(fd),
            false => fd,
        };
    };
    let result: c_int = answer(|| {
        let open = register(fd, Open::of_host(describe(fd, flags, id)?, flags))?;
        open.file()?;
        if cuts { open.truncate(0) } else { Ok(()) }.map(|()| fd)
    });
    if result < 0 {
        table::remove(fd);
        sys::close(fd);
    }
    result
}

/// Cuts a foreign file. Files that have no length are left alone, as by `O_TRUNC`.
fn cut_by_kernel(fd: c_int) -> c_int {
    match sys::ftruncate(fd, 0) {
        Ok(()) | Err(libc::EINVAL) => fd,
        Err(number) => {
            sys::close(fd);
            failed(number)
        }
    }
}

/// Registers a descriptor that the C library has opened itself. Returns it.
pub fn adopt(fd: c_int) -> c_int {
    if fd < 0 || !is_on() {
        return fd;
    }
    let Ok(flags) = sys::fcntl(fd, libc::F_GETFL, 0) else { return fd };
    opened(fd, flags, false)
}

/// Registers the descriptors that this program image inherited. Delegates are joined at the first use.
pub fn register_inherited() {
    if !super::ON.load(std::sync::atomic::Ordering::Relaxed) {
        return;
    }
    let Ok(listed) = std::fs::read_dir("/proc/self/fd") else { return };
    let numbers: Vec<c_int> =
        listed.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    for fd in numbers {
        let Ok(flags) = sys::fcntl(fd, libc::F_GETFL, 0) else { continue };
        let is_candidate = flags & libc::O_PATH == 0 && flags & libc::O_TMPFILE != libc::O_TMPFILE;
        if is_candidate
            && !table::is_ours(fd)
            && let Some(id) = find(fd)
        {
            let _ = describe(fd, flags, id)
                .and_then(|descriptor| register(fd, Open::inherited_host(descriptor, flags)));
        }
    }
}

/// Makes `fd` a descriptor of a file that delegates serve.
fn register(fd: c_int, open: Open) -> Res<Arc<Open>> {
    let open = Arc::new(open);
    if !table::set(fd, Arc::clone(&open)) {
        return Err(libc::EMFILE.into());
    }
    let _ = crate::libio::prepare();
    crate::lifecycle::watch_forks();
    Ok(open)
}

/// Opens the file of `fd` for the library and the delegates, with the right to read if possible. They get another open
/// file description, which neither `O_APPEND` and `O_DIRECT` nor a `flock` of the program affects.
pub fn describe(fd: c_int, flags: c_int, mut id: HostFileId) -> Res<HostDescriptor> {
    id.page_len = page_len_hint().unwrap_or(id.page_len);
    let wanted = flags & libc::O_ACCMODE;
    let path = sys::c(format!("/proc/self/fd/{fd}").as_bytes());
    let again =
        |access| sys::open(&path, access | libc::O_CLOEXEC | libc::O_NONBLOCK, 0).map(|fd| (fd, access));
    let opened = match wanted {
        libc::O_RDONLY => again(wanted),
        _ => again(libc::O_RDWR).or_else(|_| again(wanted)),
    };
    let is_shared = opened.is_err();
    let (own, access) = match opened {
        Ok(opened) => opened,
        // A new file whose mode forbids its owner to open it again, or no /proc.
        Err(_) => {
            let apart = libc::O_APPEND | libc::O_DIRECT;
            if flags & apart != 0 {
                sys::fcntl(fd, libc::F_SETFL, (flags & !apart) as usize)?;
            }
            (sys::fcntl(fd, libc::F_DUPFD_CLOEXEC, placeholder::floor() as usize)?, wanted)
        }
    };
    // SAFETY: just opened, and owned by nobody else.
    let own = unsafe { OwnedFd::from_raw_fd(own) };
    let file = RealEnv::with_fd_floor(placeholder::floor()).file(own);
    let access = Access { read: access != libc::O_WRONLY, write: access != libc::O_RDONLY };
    Ok(HostDescriptor { file, id, access, is_shared })
}

/// Opens a buffered stream, with the hooks' functions if delegates serve the file. `flags` are those of its mode.
///
/// # Safety
/// `path` is a C string or null, `mode` is a C string.
pub unsafe fn fopen(path: *const c_char, mode: *const c_char, flags: Res<c_int>) -> *mut libc::FILE {
    type OfPath = unsafe extern "C" fn(*const c_char, *const c_char) -> *mut libc::FILE;
    type OfNumber = unsafe extern "C" fn(c_int, *const c_char) -> *mut libc::FILE;
    let real: OfPath = real!(fopen: fn(*const c_char, *const c_char) -> *mut libc::FILE);
    let Ok(flags) = flags else { return real(path, mode) };
    let fd = open(libc::AT_FDCWD, path, flags, 0o666);
    if fd < 0 {
        return std::ptr::null_mut();
    }
    // The C library's `fdopen` knows no character set.
    let file = if table::is_ours(fd) || CStr::from_ptr(mode).to_bytes().contains(&b',') {
        hooks::stdio::open_host(fd, mode)
    } else {
        let real: OfNumber = real!(fdopen: fn(c_int, *const c_char) -> *mut libc::FILE);
        real(fd, mode)
    };
    if file.is_null() {
        let number = errno::get();
        hooks::close(fd);
        errno::set(number);
    }
    file
}

/// Whether `freopen` of `path` must create a stream of the hooks.
///
/// # Safety
/// `path` is a C string.
pub unsafe fn reopens(path: *const c_char) -> bool {
    is_on() && super::lies_below(CStr::from_ptr(path))
}

/// Runs `work` on the file at `path`, opened for writing, if delegates serve it.
pub fn with_writable<T>(path: &CStr, work: impl FnOnce(&Arc<Open>) -> Res<T>) -> Option<Res<T>> {
    let _inside = guard::enter();
    let only = sys::open(path, libc::O_PATH | libc::O_CLOEXEC, 0).ok()?;
    let id = find(only);
    sys::close(only);
    let id = id?;
    // Closing a descriptor of its own would release the record locks of the process.
    let known = table::all(0, u32::MAX).into_iter().find_map(|fd| {
        let open = Arc::clone(&*table::get(fd)?);
        (open.host_number() == Some(id.number) && open.flags() & libc::O_ACCMODE != libc::O_RDONLY)
            .then_some(open)
    });
    Some(inside(|| {
        settle()?;
        if let Some(open) = known {
            return work(&open);
        }
        let fd = sys::open(path, libc::O_WRONLY | libc::O_CLOEXEC, 0)?;
        let result = describe(fd, libc::O_WRONLY, id).and_then(|descriptor| {
            let open = Arc::new(Open::of_host(descriptor, libc::O_WRONLY));
            let done = work(&open);
            let closed = Arc::into_inner(open).map_or(Ok(()), Open::close);
            done.and_then(|done| closed.map(|()| done))
        });
        sys::close(fd);
        result
    }))
}
