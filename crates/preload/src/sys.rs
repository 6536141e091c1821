//! Raw system calls on the kernel's own objects: placeholders, `/proc`, signals. None of them meets a hook.

use std::ffi::{CStr, CString, c_int, c_long};

fn check(result: c_long) -> Result<i64, i32> {
    if result < 0 { Err(crate::errno::get()) } else { Ok(result) }
}

/// A raw system call with up to six word arguments; the error number on failure.
macro_rules! raw {
    ($number:ident $(, $arg:expr)*) => {
        // SAFETY: the callers of this module pass valid pointers and lengths.
        check(unsafe { libc::syscall(libc::$number $(, $arg)*) })
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
