//! Raw system calls on objects of the kernel: placeholders, `/proc`, signals. None of them reaches a hook.

use std::ffi::{CStr, CString, c_char, c_int, c_long};

fn check(result: isize) -> Result<i64, i32> {
    // Errors are the last 4,095 values.
    if (-4095..0).contains(&result) { Err(-result as i32) } else { Ok(result as i64) }
}

/// Makes a system call with its machine instruction. It needs no symbol of the C library, so it works at any time, and
/// it does not change `errno`. An error is returned as a negative number.
#[cfg(target_arch = "x86_64")]
pub unsafe fn syscall(number: c_long, [a, b, c, d, e, f]: [usize; 6]) -> isize {
    let _allowed = crate::guard::allow();
    let result: isize;
    // SAFETY: the kernel's calling convention; it changes rcx, r11 and what the arguments point to.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// Makes a system call with its machine instruction, with the same properties as on x86-64.
#[cfg(target_arch = "aarch64")]
pub unsafe fn syscall(number: c_long, [a, b, c, d, e, f]: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY: the kernel's calling convention; it changes x0 and what the arguments point to.
    unsafe {
        std::arch::asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") a as isize => result,
            in("x1") b, in("x2") c, in("x3") d, in("x4") e, in("x5") f,
            options(nostack),
        );
    }
    result
}

/// Makes a system call through the C library's `syscall`, bypassing the hook of that name.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub unsafe fn syscall(number: c_long, [a, b, c, d, e, f]: [usize; 6]) -> isize {
    let before = crate::errno::get();
    let real = real!(syscall: fn(c_long, usize, usize, usize, usize, usize, usize) -> c_long);
    let result = real(number, a, b, c, d, e, f);
    let result = if result < 0 { -(crate::errno::get() as isize) } else { result as isize };
    crate::errno::set(before);
    result
}

/// Conversion of an argument to a system call's word.
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

/// Makes a raw system call with up to five word arguments. Returns the error number on failure.
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
        raw!($number, $a, $b, $c, $d, 0usize)
    };
    ($number:ident, $a:expr, $b:expr, $c:expr, $d:expr, $e:expr) => {
        // SAFETY: the callers of this module pass valid pointers and lengths.
        check(unsafe { syscall(libc::$number, [$a.word(), $b.word(), $c.word(), $d.word(), $e.word(), 0]) })
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

/// Opens the path of a program.
///
/// # Safety
/// `path` is a C string or null.
pub unsafe fn openat(dir: c_int, path: *const c_char, flags: c_int, mode: u32) -> Result<c_int, i32> {
    raw!(SYS_openat, dir, path, flags, mode).map(|n| n as c_int)
}

/// Opens the path of a program with the `struct open_how` in `how`.
///
/// # Safety
/// `path` is a C string or null.
pub unsafe fn openat2(dir: c_int, path: *const c_char, how: &[u8]) -> Result<c_int, i32> {
    raw!(SYS_openat2, dir, path, how.as_ptr(), how.len()).map(|n| n as c_int)
}

/// Reads into `bufs`, of which the first 1,024 are used.
pub fn preadv(fd: c_int, bufs: &mut [std::io::IoSliceMut<'_>], offset: u64) -> Result<i64, i32> {
    raw!(SYS_preadv, fd, bufs.as_mut_ptr(), bufs.len().min(1024), offset as usize, 0usize)
}

/// Writes from `bufs`, of which the first 1,024 are used.
pub fn pwritev(fd: c_int, bufs: &[std::io::IoSlice<'_>], offset: u64) -> Result<i64, i32> {
    raw!(SYS_pwritev, fd, bufs.as_ptr(), bufs.len().min(1024), offset as usize, 0usize)
}

pub fn fsync(fd: c_int) -> Result<(), i32> {
    raw!(SYS_fsync, fd).map(drop)
}

pub fn chdir(path: &CStr) {
    let _ = raw!(SYS_chdir, path.as_ptr());
}

/// Executes a program, without any hook.
///
/// # Safety
/// A C string and two null-ended arrays of C strings.
pub unsafe fn execve(path: *const c_char, argv: *const *const c_char, envp: *const *const c_char) {
    let _ = raw!(SYS_execve, path, argv, envp);
}

/// Returns the effective user of the calling thread.
pub fn effective_user() -> u32 {
    raw!(SYS_geteuid, 0).map_or(u32::MAX, |uid| uid as u32)
}

pub fn ftruncate(fd: c_int, len: i64) -> Result<(), i32> {
    raw!(SYS_ftruncate, fd, len).map(drop)
}

/// Cuts or extends the file at the path of a program.
///
/// # Safety
/// `path` is a C string or null.
pub unsafe fn truncate(path: *const c_char, len: i64) -> Result<(), i32> {
    raw!(SYS_truncate, path, len).map(drop)
}

pub fn fallocate(fd: c_int, mode: c_int, offset: i64, len: i64) -> Result<(), i32> {
    raw!(SYS_fallocate, fd, mode, offset, len).map(drop)
}

pub fn syncfs(fd: c_int) -> Result<(), i32> {
    raw!(SYS_syncfs, fd).map(drop)
}

pub fn memfd(name: &CStr, flags: u32) -> Result<c_int, i32> {
    raw!(SYS_memfd_create, name.as_ptr(), flags).map(|n| n as c_int)
}

pub fn read(fd: c_int, buf: &mut [u8]) -> Result<usize, i32> {
    raw!(SYS_read, fd, buf.as_mut_ptr(), buf.len()).map(|n| n as usize)
}

pub fn pread(fd: c_int, buf: &mut [u8], offset: i64) -> Result<usize, i32> {
    raw!(SYS_pread64, fd, buf.as_mut_ptr(), buf.len(), offset).map(|n| n as usize)
}

/// Moves bytes from a descriptor, at an offset if it has one, to another; one of them is a pipe.
pub fn splice(from: (c_int, Option<i64>), to: c_int, len: usize, flags: u32) -> Result<usize, i32> {
    let (fd, mut at) = from;
    let place = at.as_mut().map_or(std::ptr::null_mut(), std::ptr::from_mut);
    // SAFETY: the offset lives during the call.
    let moved =
        unsafe { syscall(libc::SYS_splice, [fd.word(), place.addr(), to.word(), 0, len, flags.word()]) };
    check(moved).map(|n| n as usize)
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

/// Returns the attributes of the path of a program.
///
/// # Safety
/// `path` is a C string or null.
pub unsafe fn fstatat_of(dir: c_int, path: *const c_char, flags: c_int) -> Result<libc::stat, i32> {
    // SAFETY: all zeros is a valid `stat`.
    let mut out: libc::stat = unsafe { std::mem::zeroed() };
    raw!(SYS_newfstatat, dir, path, &mut out as *mut libc::stat, flags)?;
    Ok(out)
}

/// Stores the extended attributes of the path of a program in `out`.
///
/// # Safety
/// `path` is a C string or null, `out` is writable.
pub unsafe fn statx(
    dir: c_int,
    path: *const c_char,
    flags: c_int,
    mask: u32,
    out: *mut libc::statx,
) -> Result<(), i32> {
    raw!(SYS_statx, dir, path, flags, mask, out).map(drop)
}

/// Whether `path` is missing or not a link: a cheap check for the many names that are missing.
pub fn is_no_link(dir: c_int, path: &CStr) -> bool {
    let mut byte = 0u8;
    raw!(SYS_readlinkat, dir, path.as_ptr(), &raw mut byte, 1usize).is_err()
}

/// Whether `path` exists, links followed.
pub fn exists(dir: c_int, path: &CStr) -> bool {
    raw!(SYS_faccessat, dir, path.as_ptr(), libc::F_OK).is_ok()
}

/// Whether the effective user may execute the file at `path`.
pub fn may_execute(path: &CStr) -> bool {
    raw!(SYS_faccessat2, libc::AT_FDCWD, path.as_ptr(), libc::X_OK, libc::AT_EACCESS).is_ok()
}

pub fn readlinkat(dir: c_int, path: &CStr) -> Result<Vec<u8>, i32> {
    let mut out = vec![0u8; libc::PATH_MAX as usize];
    let len = raw!(SYS_readlinkat, dir, path.as_ptr(), out.as_mut_ptr(), out.len())?;
    out.truncate(len as usize);
    Ok(out)
}

/// Reads a link without allocating. Returns the length of its target.
pub fn readlink_to(path: &CStr, buffer: &mut [u8]) -> Option<usize> {
    raw!(SYS_readlinkat, libc::AT_FDCWD, path.as_ptr(), buffer.as_mut_ptr(), buffer.len())
        .ok()
        .map(|len| len as usize)
}

/// Copies `text` as a C string to `buffer`; `None` if it is too long or contains a zero.
pub fn copy_to<'a>(text: &[u8], buffer: &'a mut [u8]) -> Option<&'a CStr> {
    let place = buffer.get_mut(..=text.len())?;
    place[..text.len()].copy_from_slice(text);
    place[text.len()] = 0;
    CStr::from_bytes_with_nul(place).ok()
}

/// Returns the path of the kernel's working directory (`AT_FDCWD`) or of an open directory, as the kernel names it.
pub fn directory_path(dir: c_int, buffer: &mut [u8; libc::PATH_MAX as usize]) -> Option<&[u8]> {
    let len = if dir == libc::AT_FDCWD {
        raw!(SYS_getcwd, buffer.as_mut_ptr(), buffer.len()).ok()? - 1
    } else {
        return descriptor_path(dir, buffer);
    };
    let path = buffer.get(..len as usize)?;
    path.starts_with(b"/").then_some(path)
}

/// Returns the path of a descriptor as the kernel names it. Does not allocate.
pub fn descriptor_path(fd: c_int, buffer: &mut [u8; libc::PATH_MAX as usize]) -> Option<&[u8]> {
    let mut name = [0u8; 32];
    let name = number_path(fd, &mut name)?;
    let len = raw!(SYS_readlinkat, libc::AT_FDCWD, name.as_ptr(), buffer.as_mut_ptr(), buffer.len()).ok()?;
    let path = buffer.get(..len as usize)?;
    path.starts_with(b"/").then_some(path)
}

/// Returns `/proc/self/fd/N`, without allocating.
fn number_path(fd: c_int, buffer: &mut [u8; 32]) -> Option<&CStr> {
    use std::io::Write;
    let mut rest = &mut buffer[..];
    write!(rest, "/proc/self/fd/{fd}\0").ok()?;
    CStr::from_bytes_until_nul(buffer).ok()
}

/// Opens a descriptor that only refers to a directory.
pub fn open_directory(dir: c_int, path: &CStr) -> Option<c_int> {
    let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC;
    raw!(SYS_openat, dir, path.as_ptr(), flags, 0u32).ok().map(|fd| fd as c_int)
}

/// Returns a directory's path without links, as the kernel sees it.
pub fn real_directory(path: &CStr) -> Option<Vec<u8>> {
    let fd = open_directory(libc::AT_FDCWD, path)?;
    let mut buffer = [0u8; libc::PATH_MAX as usize];
    let real = directory_path(fd, &mut buffer).map(<[u8]>::to_vec);
    close(fd);
    real
}

/// Returns the kernel's working directory; empty if it has no path.
pub fn getcwd() -> Vec<u8> {
    let mut buffer = [0u8; libc::PATH_MAX as usize];
    directory_path(libc::AT_FDCWD, &mut buffer).map(<[u8]>::to_vec).unwrap_or_default()
}

/// Returns `bytes`, which contain no zero, as a C string.
pub fn c(bytes: &[u8]) -> CString {
    CString::new(bytes).unwrap_or_default()
}

fn range_lock(kind: c_int, start: u64, len: u64) -> libc::flock {
    // SAFETY: all zeros is a valid `flock`.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_start = start as i64;
    lock.l_len = len as i64;
    lock
}

/// Locks or unlocks a range of the kernel's file `fd` for its open file description.
pub fn lock_range(fd: c_int, command: c_int, kind: c_int, start: u64, len: u64) -> Result<(), i32> {
    let lock = range_lock(kind, start, len);
    raw!(SYS_fcntl, fd, command, &raw const lock).map(drop)
}

/// Whether another open file description holds a lock on a range of the kernel's file `fd`.
pub fn is_range_locked(fd: c_int, start: u64, len: u64) -> Result<bool, i32> {
    let mut lock = range_lock(libc::F_WRLCK, start, len);
    raw!(SYS_fcntl, fd, libc::F_OFD_GETLK, &raw mut lock)?;
    Ok(c_int::from(lock.l_type) != libc::F_UNLCK)
}

/// Closes every descriptor except `kept`, and replaces the standard ones by `/dev/null`. Allocates nothing, because forked
/// children of programs with threads call this.
pub fn close_all_but(kept: &[c_int]) {
    let mut from = Some(0u32);
    while let Some(first) = from {
        let next = kept.iter().filter_map(|&fd| u32::try_from(fd).ok()).filter(|&fd| fd >= first).min();
        if let Some(last) = next.unwrap_or(u32::MAX).checked_sub(1)
            && last >= first
        {
            let _ = raw!(SYS_close_range, first, last, 0u32);
        }
        from = next.and_then(|own| own.checked_add(1));
    }
    for _ in 0..3 {
        let _ = open(c"/dev/null", libc::O_RDWR, 0);
    }
}

/// Sets the process's real-time interval timer.
pub fn set_timer(to: &libc::itimerval) {
    let _ = raw!(
        SYS_setitimer,
        libc::ITIMER_REAL as c_int,
        std::ptr::from_ref(to),
        std::ptr::null::<libc::itimerval>()
    );
}

/// Returns the limit on the size of the process's files; `None` without one.
pub fn file_size_limit() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: 0 };
    let _ =
        raw!(SYS_prlimit64, 0, libc::RLIMIT_FSIZE as c_int, std::ptr::null::<libc::rlimit>(), &raw mut limit);
    (limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

/// Sends `signal` to the calling thread.
pub fn raise(signal: c_int) {
    let (process, thread) = (raw!(SYS_getpid, 0), raw!(SYS_gettid, 0));
    if let (Ok(process), Ok(thread)) = (process, thread) {
        let _ = raw!(SYS_tgkill, process, thread, signal);
    }
}

/// Writes a line to standard error, if that is a file of the kernel.
pub fn complain(line: &str) {
    let _ = write(2, format!("weft: {line}\n").as_bytes());
}

/// Whether the program can read the byte at `address`, or write it. The kernel touches it without changing it.
pub fn touch(address: usize, writes: bool) -> bool {
    /// Reads the set of signals before it rejects the method.
    const NO_METHOD: c_int = -1;
    /// Operation of `FUTEX_WAKE_OP` (2 << 28) that sets no bits of a word, and a comparison (2 << 24) with zero. A program
    /// that sleeps on a word of its buffer may wake spuriously, which futexes allow.
    const OR_NOTHING: u32 = 2 << 28 | 2 << 24;
    if !writes {
        let seen = raw!(SYS_rt_sigprocmask, NO_METHOD, address & !7, 0usize, 8usize);
        return seen != Err(libc::EFAULT);
    }
    static UNUSED: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let op = libc::FUTEX_WAKE_OP | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the kernel checks the address.
    let changed = check(unsafe {
        syscall(
            libc::SYS_futex,
            [UNUSED.as_ptr().addr(), op as usize, 0, 0, address & !3, OR_NOTHING as usize],
        )
    });
    changed.is_ok()
}

/// Sets the protection of pages.
///
/// # Safety
/// As `mprotect`.
pub unsafe fn protect(start: *mut std::ffi::c_void, len: usize, protection: c_int) -> Result<(), i32> {
    raw!(SYS_mprotect, start, len, protection).map(drop)
}

/// Sleeps while `word` is `value`; may wake spuriously.
pub fn futex_wait(word: &std::sync::atomic::AtomicU32, value: u32) {
    let op = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    let _ = raw!(SYS_futex, word.as_ptr(), op, value, std::ptr::null::<libc::timespec>());
}

/// Wakes one sleeping thread.
pub fn futex_wake(word: &std::sync::atomic::AtomicU32) {
    let _ = raw!(SYS_futex, word.as_ptr(), libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, 1u32);
}
