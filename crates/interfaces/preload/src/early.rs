//! Functions of the C library before this library is ready, as direct system calls.
//!
//! An allocator that initializes itself reads a link, a file or the processor's layout. These calls reach the hooks
//! while the allocator is waiting for its own initialization. A `dlsym` that allocates would then wait forever. See
//! "Rules before initialization" in the crate documentation.

use std::ffi::{CStr, c_char, c_int, c_long, c_void};

/// Converts the result of a system call as the C library does.
fn c_result(result: isize) -> isize {
    if (-4095..0).contains(&result) {
        crate::errno::set(-result as c_int);
        return -1;
    }
    result
}

macro_rules! early {
    ($($($name:literal)|+ => $function:ident ($($arg:ident: $ty:ty),*) -> $ret:ty
        = $number:ident [$($word:expr),*];)*) => {
        $(
            unsafe extern "C" fn $function($($arg: $ty),*) -> $ret {
                let mut words = [0usize; 6];
                let given: &[usize] = &[$($word as usize),*];
                words[..given.len()].copy_from_slice(given);
                c_result(crate::sys::syscall(libc::$number, words)) as $ret
            }
        )*

        /// Returns the function with this name as a system call, if an allocator may call it.
        pub fn find(name: &CStr) -> Option<*mut c_void> {
            match name.to_bytes() {
                $($($name)|+ => Some($function as *mut c_void),)*
                b"syscall" => Some(by_number as *mut c_void),
                _ => None,
            }
        }
    };
}

early! {
    b"open" | b"open64" | b"__open" | b"__open64" => open(path: *const c_char, flags: c_int, mode: u32) -> c_int
        = SYS_openat [libc::AT_FDCWD, path, flags, mode];
    b"__open_2" | b"__open64_2" => open_2(path: *const c_char, flags: c_int) -> c_int
        = SYS_openat [libc::AT_FDCWD, path, flags];
    b"openat" | b"openat64" => openat(dir: c_int, path: *const c_char, flags: c_int, mode: u32) -> c_int
        = SYS_openat [dir, path, flags, mode];
    b"read" | b"__read" => read(fd: c_int, buf: *mut c_void, len: usize) -> isize = SYS_read [fd, buf, len];
    b"__read_chk" => read_chk(fd: c_int, buf: *mut c_void, len: usize, _room: usize) -> isize
        = SYS_read [fd, buf, len];
    b"write" | b"__write" => write(fd: c_int, buf: *const c_void, len: usize) -> isize = SYS_write [fd, buf, len];
    b"close" | b"__close" => close(fd: c_int) -> c_int = SYS_close [fd];
    b"lseek" | b"lseek64" | b"__lseek" => lseek(fd: c_int, offset: i64, whence: c_int) -> i64
        = SYS_lseek [fd, offset, whence];
    b"fstat" | b"fstat64" | b"__fstat64" => fstat(fd: c_int, out: *mut libc::stat) -> c_int = SYS_fstat [fd, out];
    b"stat" | b"stat64" => stat(path: *const c_char, out: *mut libc::stat) -> c_int
        = SYS_newfstatat [libc::AT_FDCWD, path, out, 0];
    b"lstat" | b"lstat64" => lstat(path: *const c_char, out: *mut libc::stat) -> c_int
        = SYS_newfstatat [libc::AT_FDCWD, path, out, libc::AT_SYMLINK_NOFOLLOW];
    b"access" => access(path: *const c_char, mask: c_int) -> c_int = SYS_faccessat [libc::AT_FDCWD, path, mask];
    b"readlink" => readlink(path: *const c_char, out: *mut c_char, size: usize) -> isize
        = SYS_readlinkat [libc::AT_FDCWD, path, out, size];
    b"__readlink_chk" => readlink_chk(path: *const c_char, out: *mut c_char, size: usize, _real: usize) -> isize
        = SYS_readlinkat [libc::AT_FDCWD, path, out, size];
    b"fcntl" | b"fcntl64" | b"__fcntl" => fcntl(fd: c_int, command: c_int, argument: usize) -> c_int
        = SYS_fcntl [fd, command, argument];
    b"ioctl" => ioctl(fd: c_int, request: usize, argument: *mut c_int) -> c_int = SYS_ioctl [fd, request, argument];
    b"mmap" | b"mmap64" => mmap(
        address: *mut c_void, len: usize, protection: c_int, flags: c_int, fd: c_int, offset: i64
    ) -> *mut c_void = SYS_mmap [address, len, protection, flags, fd, offset];
    b"mprotect" => mprotect(address: *mut c_void, len: usize, protection: c_int) -> c_int
        = SYS_mprotect [address, len, protection];
    b"munmap" => munmap(address: *mut c_void, len: usize) -> c_int = SYS_munmap [address, len];
}

unsafe extern "C" fn by_number(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    c_result(crate::sys::syscall(number, [a, b, c, d, e, f])) as c_long
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_converted_as_in_the_c_library() {
        // SAFETY: plain calls on own memory.
        unsafe {
            let mut buf = [0; 8];
            assert_eq!(readlink(c"/there-is-no-such-name".as_ptr(), buf.as_mut_ptr(), buf.len()), -1);
            assert_eq!(crate::errno::get(), libc::ENOENT);
            let fd = open(c"/dev/null".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC, 0);
            assert!(fd >= 0);
            assert_eq!(read(fd, buf.as_mut_ptr().cast(), buf.len()), 0);
            assert_eq!((close(fd), close(fd)), (0, -1));
            assert_eq!(crate::errno::get(), libc::EBADF);
            let map = mmap(
                std::ptr::null_mut(),
                4096,
                libc::PROT_READ,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            assert_ne!(map, libc::MAP_FAILED);
            assert_eq!(munmap(map, 4096), 0);
            assert_eq!(by_number(libc::SYS_getpid, 0, 0, 0, 0, 0, 0), c_long::from(libc::getpid()));
        }
        assert!(find(c"readlink").is_some() && find(c"rename").is_none());
    }
}
