//! Raw system calls on the kernel's own objects: placeholders, `/proc`, signals. None of them meets a hook.

use std::ffi::{CStr, CString, c_int, c_long};

fn check(result: c_long) -> Result<i64, i32> {
    if result < 0 { Err(crate::errno::get()) } else { Ok(result) }
}

/// The C library's `syscall`, past our own hook of that name.
unsafe fn syscall(number: c_long, a: usize, b: usize, c: usize, d: usize, e: usize) -> c_long {
    real!(syscall: fn(c_long, usize, usize, usize, usize, usize) -> c_long)(number, a, b, c, d, e)
}

/// What a system call takes for a word.
trait Word {
    fn word(self) -> usize;
}

macro_rules! words {
    ($($ty:ty),*) => { $(impl Word for $ty {
        fn word(self) -> usize {
            self as usize
        }
    })* };
}
words!(c_int, u32, i64, usize);

impl<T> Word for *const T {
    fn word(self) -> usize {
        self as usize
    }
}

impl<T> Word for *mut T {
    fn word(self) -> usize {
        self as usize
    }
}

/// A raw system call with up to five word arguments; the error number on failure.
macro_rules! raw {
    ($number:ident, $a:expr) => {
        raw!($number, $a, 0usize)
    };
    ($number:ident, $a:expr, $b:expr) => {
        raw!($number, $a, $b, 0usize)
    };
    ($number:ident, $a:expr, $b:expr, $c:expr) => {
        raw!($number, $a, $b, $c, 0usize)
    };
    ($number:ident, $a:expr, $b:expr, $c:expr, $d:expr) => {
        // SAFETY: the callers of this module pass valid pointers and lengths.
        check(unsafe { syscall(libc::$number, $a.word(), $b.word(), $c.word(), $d.word(), 0) })
    };
}

pub fn lseek(fd: c_int, offset: i64, whence: c_int) -> Result<i64, i32> {
    raw!(SYS_lseek, fd, offset, whence)
}

pub fn close(fd: c_int) {
    let _ = raw!(SYS_close, fd);
}

pub fn fcntl(fd: c_int, cmd: c_int, arg: usize) -> Result<c_int, i32> {
    raw!(SYS_fcntl, fd, cmd, arg).map(|n| n as c_int)
}

pub fn dup3(from: c_int, to: c_int, flags: c_int) -> Result<c_int, i32> {
    raw!(SYS_dup3, from, to, flags).map(|n| n as c_int)
}

pub fn open(path: &CStr, flags: c_int, mode: u32) -> Result<c_int, i32> {
    raw!(SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, mode).map(|n| n as c_int)
}

pub fn memfd(name: &CStr, flags: u32) -> Result<c_int, i32> {
    raw!(SYS_memfd_create, name.as_ptr(), flags).map(|n| n as c_int)
}

pub fn read(fd: c_int, buf: &mut [u8]) -> Result<usize, i32> {
    raw!(SYS_read, fd, buf.as_mut_ptr(), buf.len()).map(|n| n as usize)
}

pub fn write(fd: c_int, buf: &[u8]) -> Result<usize, i32> {
    raw!(SYS_write, fd, buf.as_ptr(), buf.len()).map(|n| n as usize)
}

pub fn fstatat(dir: c_int, path: &CStr, flags: c_int) -> Result<libc::stat, i32> {
    // SAFETY: all zeros is a valid `stat`.
    let mut out: libc::stat = unsafe { std::mem::zeroed() };
    raw!(SYS_newfstatat, dir, path.as_ptr(), &mut out as *mut libc::stat, flags)?;
    Ok(out)
}

/// Whether a look for `path` finds no link: the cheap way for the many names that are simply not there.
pub fn is_no_link(dir: c_int, path: &CStr) -> bool {
    let mut byte = 0u8;
    raw!(SYS_readlinkat, dir, path.as_ptr(), &raw mut byte, 1usize).is_err()
}

/// Whether there is something, links followed.
pub fn exists(dir: c_int, path: &CStr) -> bool {
    raw!(SYS_faccessat, dir, path.as_ptr(), libc::F_OK).is_ok()
}

pub fn readlinkat(dir: c_int, path: &CStr) -> Result<Vec<u8>, i32> {
    let mut out = vec![0u8; libc::PATH_MAX as usize];
    let len = raw!(SYS_readlinkat, dir, path.as_ptr(), out.as_mut_ptr(), out.len())?;
    out.truncate(len as usize);
    Ok(out)
}

/// The kernel's working directory; empty when it has no path.
pub fn getcwd() -> Vec<u8> {
    let mut out = vec![0u8; libc::PATH_MAX as usize];
    match raw!(SYS_getcwd, out.as_mut_ptr(), out.len()) {
        Ok(len) if out[0] == b'/' => {
            out.truncate(len as usize - 1);
            out
        }
        _ => Vec::new(),
    }
}

/// A C string of `bytes`, which hold no zero.
pub fn c(bytes: &[u8]) -> CString {
    CString::new(bytes).unwrap_or_default()
}

/// A line to the standard error stream of the process, when it is the kernel's.
pub fn complain(line: &str) {
    let _ = write(2, format!("weft: {line}\n").as_bytes());
}

/// Sleeps while `word` is `value`; may wake for nothing.
pub fn futex_wait(word: &std::sync::atomic::AtomicU32, value: u32) {
    let errno = crate::errno::get();
    let op = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    let _ = raw!(SYS_futex, word.as_ptr(), op, value, std::ptr::null::<libc::timespec>());
    crate::errno::set(errno);
}

/// Wakes one that sleeps.
pub fn futex_wake(word: &std::sync::atomic::AtomicU32) {
    let errno = crate::errno::get();
    let _ = raw!(SYS_futex, word.as_ptr(), libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, 1u32);
    crate::errno::set(errno);
}
