//! Buffered streams: `fopencookie` streams over Weft descriptors, because the C library's own streams read and write by
//! calls that no hook sees.
//!
//! The stream stores its descriptor's number where the C library's own streams store it, so that `fileno` finds it.

use super::bytes;
use crate::errno::{self, Res};
use crate::open;
use crate::serve::inside;
use crate::trace::{self, streams};
use crate::{over, sys, table};
use libc::{AT_FDCWD, FILE, c_char, c_int, c_void, off64_t, size_t, ssize_t};
use std::sync::atomic::{AtomicBool, Ordering};

#[repr(C)]
struct Functions {
    read: unsafe extern "C" fn(*mut c_void, *mut c_char, size_t) -> ssize_t,
    write: unsafe extern "C" fn(*mut c_void, *const c_char, size_t) -> ssize_t,
    seek: unsafe extern "C" fn(*mut c_void, *mut off64_t, c_int) -> c_int,
    close: unsafe extern "C" fn(*mut c_void) -> c_int,
}

unsafe extern "C" {
    fn fopencookie(cookie: *mut c_void, mode: *const c_char, functions: Functions) -> *mut FILE;
    static mut stdin: *mut FILE;
    static mut stdout: *mut FILE;
    static mut stderr: *mut FILE;
}

/// Offset of `_fileno` in the C library's FILE, whose layout is fixed by its public macros.
pub const FILENO_AT: usize = 112;
/// Buffer size of a stream in bytes: with the C library's 8 KiB, each buffer would be a small request.
const BUFFER: usize = 128 * 1024;

struct Cookie {
    fd: c_int,
    buffer: *mut c_char,
}

// Call the hooks, not their implementations: the descriptor of a standard stream may have become foreign.
unsafe extern "C" fn cookie_read(cookie: *mut c_void, buf: *mut c_char, len: size_t) -> ssize_t {
    super::data::read((*cookie.cast::<Cookie>()).fd, buf.cast(), len)
}

unsafe extern "C" fn cookie_write(cookie: *mut c_void, buf: *const c_char, len: size_t) -> ssize_t {
    let mut done = 0;
    while done < len {
        let n = super::data::write((*cookie.cast::<Cookie>()).fd, buf.add(done).cast(), len - done);
        if n <= 0 {
            // A cookie reports failure by 0; errno is set.
            return if done > 0 { done as ssize_t } else { 0 };
        }
        done += n as usize;
    }
    done as ssize_t
}

unsafe extern "C" fn cookie_seek(cookie: *mut c_void, at: *mut off64_t, whence: c_int) -> c_int {
    let result = super::data::lseek((*cookie.cast::<Cookie>()).fd, *at, whence);
    if result < 0 {
        return -1;
    }
    *at = result;
    0
}

unsafe extern "C" fn cookie_close(cookie: *mut c_void) -> c_int {
    let cookie = Box::from_raw(cookie.cast::<Cookie>());
    libc::free(cookie.buffer.cast());
    super::descriptors::close(cookie.fd)
}

/// Creates a stream over `fd`.
unsafe fn stream(fd: c_int, mode: &[u8]) -> Res<*mut FILE> {
    let cookie = Box::into_raw(Box::new(Cookie { fd, buffer: std::ptr::null_mut() }));
    let functions =
        Functions { read: cookie_read, write: cookie_write, seek: cookie_seek, close: cookie_close };
    let file = fopencookie(cookie.cast(), sys::c(mode).as_ptr(), functions);
    if file.is_null() {
        drop(Box::from_raw(cookie));
        return Err(libc::ENOMEM.into());
    }
    *file.cast::<u8>().add(FILENO_AT).cast::<c_int>() = fd;
    let buffer = libc::malloc(BUFFER).cast::<c_char>();
    if !buffer.is_null() {
        libc::setvbuf(file, buffer, libc::_IOFBF, BUFFER);
        (*cookie).buffer = buffer;
    }
    Ok(file)
}

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

/// Removes from the mode what `fopencookie` does not support.
fn plain(mode: &[u8]) -> Vec<u8> {
    let first = mode.first().copied().unwrap_or(b'r');
    if mode.contains(&b'+') { vec![first, b'+'] } else { vec![first] }
}

path_hook! { [fopen, fopen64] (path: *const c_char, mode: *const c_char) -> *mut FILE,
    (AT_FDCWD, path) |weft_path| {
        let mode = bytes(mode)?;
        let fd = open::open(weft_path, flags_of(mode)?, 0o666)?;
        stream(fd, &plain(mode)).inspect_err(|_| drop(open::close(fd)))
    }
    over { over::fopen(path, mode, bytes(mode).and_then(flags_of)) }
    trace |start, file| { streams::opened(start, file, flags_of(bytes(mode).unwrap_or_default()).ok()) }
}

hook! { [fdopen] (fd: c_int, mode: *const c_char) -> *mut FILE {
    crate::serve::on_fd(fd, |open| {
        let mode = bytes(mode)?;
        let flags = flags_of(mode)?;
        let (have, want) = (open.flags() & libc::O_ACCMODE, flags & libc::O_ACCMODE);
        if have != libc::O_RDWR && have != want {
            return Err(libc::EINVAL.into());
        }
        if flags & libc::O_APPEND != 0 {
            open.set_flags(fd, open.flags() | libc::O_APPEND)?;
        }
        stream(fd, &plain(mode))
    })
} trace |start, file| { streams::opened(start, file, None) } }

/// Returns the descriptor of a Weft stream.
unsafe fn number(file: *mut FILE) -> Option<c_int> {
    if file.is_null() {
        return None;
    }
    let fd = *file.cast::<u8>().add(FILENO_AT).cast::<c_int>();
    (table::is_ours(fd) || STANDARD.load(Ordering::Relaxed) && (0..=2).contains(&fd)).then_some(fd)
}

hook! { [fileno, fileno_unlocked] (file: *mut FILE) -> c_int { number(file) } }

/// Implements `freopen`. A stream of the C library cannot become a Weft stream in place: the standard streams are
/// replaced under their names, and other streams are closed and recreated.
unsafe fn reopen(path: *const c_char, mode: *const c_char, file: *mut FILE) -> *mut FILE {
    let fresh = fopen(path, mode);
    if fresh.is_null() || file.is_null() {
        return fresh;
    }
    libc::fflush(file);
    let old = *file.cast::<u8>().add(FILENO_AT).cast::<c_int>();
    if !(0..=2).contains(&old) {
        libc::fclose(file);
        return fresh;
    }
    let from = number(fresh).unwrap_or_else(|| libc::fileno(fresh));
    let moved = super::descriptors::dup2(from, old);
    libc::fclose(fresh);
    if moved < 0 {
        return std::ptr::null_mut();
    }
    // `dup2` replaced the stream when the descriptor became a Weft descriptor.
    match old {
        0 => stdin,
        1 => stdout,
        _ => stderr,
    }
}

hook! { [freopen, freopen64] (path: *const c_char, mode: *const c_char, file: *mut FILE) -> *mut FILE {
    let to_ours = !path.is_null() && !matches!(
        crate::route::route(AT_FDCWD, path),
        crate::route::Route::Foreign | crate::route::Route::Moved(_),
    );
    let to_ours = to_ours || !path.is_null() && over::reopens(path);
    let from_ours = number(file).is_some();
    if path.is_null() && from_ours {
        errno::set(libc::EBADF);
        return std::ptr::null_mut();
    }
    (to_ours || from_ours).then(|| reopen(path, mode, file))
} trace from { trace::begin().inspect(|&start| streams::closing(start, file)) } |start, done| {
    streams::opened(start, done, flags_of(bytes(mode).unwrap_or_default()).ok());
} }

// Whether the standard streams have been replaced.
static STANDARD: AtomicBool = AtomicBool::new(false);

/// Flushes the stream of `fd` before that descriptor is replaced.
pub fn before_replacing(fd: c_int) {
    if !(0..=2).contains(&fd) {
        return;
    }
    // SAFETY: the standard streams are valid or null.
    unsafe {
        let file = match fd {
            1 => stdout,
            2 => stderr,
            _ => return,
        };
        if !file.is_null() {
            let outside = crate::guard::leave();
            libc::fflush(file);
            drop(outside);
        }
    }
}

/// After `fd` has become a Weft descriptor: if it is a standard descriptor, replaces its stream by one that uses the
/// hooks. The new stream works with any descriptor, so it never has to be changed back.
pub fn follow(fd: c_int) {
    let _ = inside(|| {
        // SAFETY: replaces the C library's own variables, as the manual of glibc allows.
        unsafe {
            let (variable, mode): (*mut *mut FILE, &[u8]) = match fd {
                0 => (&raw mut stdin, b"r"),
                1 => (&raw mut stdout, b"w"),
                2 => (&raw mut stderr, b"w"),
                _ => return Ok(()),
            };
            let current = *variable;
            if !current.is_null() && STANDARD.load(Ordering::Relaxed) && is_cookie(current) {
                return Ok(());
            }
            let fresh = stream(fd, mode)?;
            if fd == 2 {
                libc::setvbuf(fresh, std::ptr::null_mut(), libc::_IONBF, 0);
            }
            STANDARD.store(true, Ordering::Relaxed);
            *variable = fresh;
            Ok(())
        }
    });
}

/// Whether a stream is a Weft stream: the C library's own standard streams lie in its data.
unsafe fn is_cookie(file: *mut FILE) -> bool {
    unsafe extern "C" {
        static _IO_2_1_stdin_: u8;
        static _IO_2_1_stdout_: u8;
        static _IO_2_1_stderr_: u8;
    }
    let own = [&raw const _IO_2_1_stdin_, &raw const _IO_2_1_stdout_, &raw const _IO_2_1_stderr_];
    !own.contains(&file.cast_const().cast())
}
