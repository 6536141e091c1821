//! Functions that open buffered streams. `libio` describes the streams.

use super::bytes;
use crate::errno::{self, Res};
use crate::libio::{self, stream};
use crate::serve::{answer, inside, on_fd};
use crate::trace::{self, streams};
use crate::{open, over, sys, table};
use libc::{AT_FDCWD, FILE, c_char, c_int};

/// Converts the mode of `fopen` to flags of `open`.
fn flags_of(mode: &[u8]) -> Res<c_int> {
    let plus = mode.contains(&b'+');
    let access = |alone| if plus { libc::O_RDWR } else { alone };
    let mut flags = match mode.first() {
        Some(b'r') => access(libc::O_RDONLY),
        Some(b'w') => access(libc::O_WRONLY) | libc::O_CREAT | libc::O_TRUNC,
        Some(b'a') => access(libc::O_WRONLY) | libc::O_CREAT | libc::O_APPEND,
        _ => return Err(libc::EINVAL.into()),
    };
    let options = mode.split(|&byte| byte == b',').next().unwrap_or(mode);
    flags |= if options.contains(&b'e') { libc::O_CLOEXEC } else { 0 };
    flags |= if options.contains(&b'x') { libc::O_EXCL } else { 0 };
    Ok(flags)
}

/// Whether streams of this mode begin at the end of the file.
fn begins_at_end(mode: &[u8]) -> bool {
    mode.first() == Some(&b'a') && !mode.contains(&b'+')
}

/// Creates a stream over `fd`, which was opened for it.
unsafe fn opened(fd: c_int, mode: &[u8]) -> Res<*mut FILE> {
    let file = stream(fd, mode)?;
    if begins_at_end(mode) {
        match table::get(fd) {
            Some(open) => open.seek(fd, 0, libc::SEEK_END)?,
            // Devices have no position.
            None => sys::lseek(fd, 0, libc::SEEK_END).unwrap_or(0),
        };
    }
    Ok(file)
}

path_hook! { [fopen, fopen64] (path: *const c_char, mode: *const c_char) -> *mut FILE,
    (AT_FDCWD, path) |weft_path| {
        let mode = bytes(mode)?;
        let fd = open::open(weft_path, flags_of(mode)?, 0o666)?;
        opened(fd, mode).inspect_err(|_| drop(open::close(fd)))
    }
    over { over::fopen(path, mode, bytes(mode).and_then(flags_of)) }
    trace |start, file| { streams::opened(start, file, flags_of(bytes(mode).unwrap_or_default()).ok()) }
}

/// Creates a stream over a file of the host that `fopen` has opened as `fd`.
///
/// # Safety
/// `mode` is a C string.
pub unsafe fn open_host(fd: c_int, mode: *const c_char) -> *mut FILE {
    answer(|| opened(fd, bytes(mode)?))
}

hook! { [fdopen] (fd: c_int, mode: *const c_char) -> *mut FILE {
    on_fd(fd, |open| {
        let mode = bytes(mode)?;
        let flags = flags_of(mode)?;
        let (have, want) = (open.flags() & libc::O_ACCMODE, flags & libc::O_ACCMODE);
        if have != libc::O_RDWR && have != want {
            return Err(libc::EINVAL.into());
        }
        let file = stream(fd, mode)?;
        if flags & libc::O_APPEND != 0 && open.flags() & libc::O_APPEND == 0 {
            open.set_flags(fd, open.flags() | libc::O_APPEND)?;
            if begins_at_end(mode) {
                open.seek(fd, 0, libc::SEEK_END)?;
            }
        }
        Ok(file)
    })
} trace |start, file| { streams::opened(start, file, None) } }

/// Opens what `freopen` asks for: a path, or the file of the stream itself with another mode.
unsafe fn open_again(path: *const c_char, mode: *const c_char, file: *mut FILE) -> Res<c_int> {
    let flags = flags_of(bytes(mode)?)?;
    let own = sys::c(format!("/proc/self/fd/{}", libio::number(file)).as_bytes());
    let mut from = path;
    if path.is_null() {
        if flags & (libc::O_CREAT | libc::O_EXCL) == libc::O_CREAT | libc::O_EXCL {
            // The C library opens the link in `/proc`, which exists.
            return Err(libc::EEXIST.into());
        }
        if let Some(open) = table::get(libio::number(file)).filter(|open| !open.is_host()) {
            return inside(|| open::open(&open.weft_path()?, flags, 0o666));
        }
        from = own.as_ptr();
    }
    let fd = super::names::open(from, flags, 0o666);
    if fd < 0 { Err(errno::get().into()) } else { Ok(fd) }
}

/// Implements `freopen` if the old or the new file of the stream is a registered one. The stream stays the same: the C
/// library reopens it over `/dev/null`, and its descriptor then becomes one of the new file.
unsafe fn reopen(path: *const c_char, mode: *const c_char, file: *mut FILE) -> *mut FILE {
    let before = errno::get();
    libc::fflush(file);
    let opened = open_again(path, mode, file);
    let old = libio::number(file);
    let text = bytes(mode).unwrap_or_default();
    // The C library closes the old file also if the new one cannot be opened.
    let is_reopened = libio::reopen_scratch(opened.is_ok(), text, file);
    let number = errno::get();
    let Ok(fresh) = opened.as_ref().copied() else {
        forget(old);
        errno::set(opened.map_or_else(|fail| fail.errno(), |_| libc::EIO));
        return std::ptr::null_mut();
    };
    if !is_reopened {
        forget(old);
        super::descriptors::close(fresh);
        errno::set(number);
        return std::ptr::null_mut();
    }
    let own = libio::number(file);
    let moved = super::descriptors::dup3(fresh, own, if text.contains(&b'e') { libc::O_CLOEXEC } else { 0 });
    let number = errno::get();
    super::descriptors::close(fresh);
    if moved < 0 {
        errno::set(number);
        return std::ptr::null_mut();
    }
    if begins_at_end(text) {
        super::data::lseek(own, 0, libc::SEEK_END);
    }
    errno::set(before);
    file
}

/// Forgets a registered descriptor that the C library has closed.
fn forget(fd: c_int) {
    let Some(open) = table::get(fd).map(|open| std::sync::Arc::clone(&open)) else { return };
    open::release_locks(&open);
    table::remove(fd);
}

/// Whether delegates serve the files of `path`.
unsafe fn is_registered(path: *const c_char) -> bool {
    let is_weft = !matches!(
        crate::route::route(AT_FDCWD, path),
        crate::route::Route::Foreign | crate::route::Route::Moved(_),
    );
    is_weft || over::reopens(path)
}

hook! { [freopen, freopen64] (path: *const c_char, mode: *const c_char, file: *mut FILE) -> *mut FILE {
    let from_ours = !file.is_null() && table::is_ours(libio::number(file));
    let to_ours = !path.is_null() && is_registered(path);
    (from_ours || to_ours && !file.is_null()).then(|| reopen(path, mode, file))
} trace from { trace::begin().inspect(|&start| streams::closing(start, file)) } |start, done| {
    streams::opened(start, done, flags_of(bytes(mode).unwrap_or_default()).ok());
} }
