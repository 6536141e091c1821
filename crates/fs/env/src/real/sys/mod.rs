//! System calls, made by number.
//!
//! Weft's client is loaded into programs whose `open`, `close`, `read` and so on it replaces. A call through the C
//! library's name would reach the replacement again, so every call that could is made by number.

mod file;
mod ids;
mod memory;
mod processor;
pub mod reserved;
mod socket;

pub use file::*;
pub use ids::*;
pub use memory::*;
pub use processor::*;
pub use socket::*;

use std::io;
use std::os::fd::{AsRawFd, RawFd};

/// Makes one call by number; the arguments are widened as the calling convention requires.
macro_rules! call {
    ($number:ident $(, $argument:expr)* $(,)?) => {
        $crate::real::sys::check(libc::syscall(libc::$number $(, $argument as usize)*))
    };
}
pub(super) use call;

/// Converts the result of a call: a count, or the error in the thread's `errno`.
pub fn check(result: libc::c_long) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// Repeats a call while signals interrupt it.
pub fn retry(mut attempt: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match attempt() {
            Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
            result => return result,
        }
    }
}

/// Descriptor that this process owns and closes.
#[derive(Debug)]
pub struct Fd(RawFd);

impl Fd {
    /// Takes ownership of a descriptor that a call returned.
    fn from_call(number: usize) -> Self {
        Self(number as RawFd)
    }

    /// Takes ownership of a descriptor that arrived as a number.
    pub fn from_raw(number: RawFd) -> Self {
        Self(number)
    }

    /// Moves the descriptor to a number of at least `floor`, or leaves it if no such number is free.
    ///
    /// With a floor, [`super::reserved_fds`] lists the number until it is closed.
    pub fn lifted(self, floor: RawFd) -> Self {
        if floor <= 0 {
            return self;
        }
        let lifted = if self.0 >= floor {
            self
        } else {
            // SAFETY: no memory is involved.
            match unsafe { call!(SYS_fcntl, self.0, libc::F_DUPFD_CLOEXEC, floor) } {
                Ok(number) => Self::from_call(number),
                Err(_) => self,
            }
        };
        reserved::set(lifted.0);
        lifted
    }

    /// Closes the descriptor, and returns what the file system reports.
    pub fn close(self) -> io::Result<()> {
        let number = self.0;
        std::mem::forget(self);
        reserved::clear(number);
        // SAFETY: this process owns the number and does not use it afterwards.
        match unsafe { call!(SYS_close, number) } {
            // The kernel has closed it.
            Err(error) if error.raw_os_error() == Some(libc::EINTR) => Ok(()),
            result => result.map(drop),
        }
    }
}

impl AsRawFd for Fd {
    fn as_raw_fd(&self) -> RawFd {
        self.0
    }
}

impl Drop for Fd {
    fn drop(&mut self) {
        reserved::clear(self.0);
        // SAFETY: this process owns the number and does not use it afterwards.
        let _ = unsafe { call!(SYS_close, self.0) };
    }
}

/// Runs `op` repeatedly over the rest of `parts`, until all are processed or it returns zero.
///
/// `op` gets at most 1,024 parts (the kernel's limit) and the number of bytes processed so far.
pub fn through(
    parts: &[libc::iovec],
    mut op: impl FnMut(&[libc::iovec], usize) -> io::Result<usize>,
) -> io::Result<usize> {
    const PARTS_MAX: usize = 1024;
    let (mut index, mut skip, mut done) = (0, 0, 0);
    loop {
        while index < parts.len() && skip >= parts[index].iov_len {
            skip -= parts[index].iov_len;
            index += 1;
        }
        if index == parts.len() {
            return Ok(done);
        }
        let rest = &parts[index..parts.len().min(index + PARTS_MAX)];
        let count = if skip == 0 {
            op(rest, done)?
        } else {
            let mut window = [rest[0]; 16];
            let used = rest.len().min(window.len());
            window[..used].copy_from_slice(&rest[..used]);
            window[0].iov_base = window[0].iov_base.wrapping_byte_add(skip);
            window[0].iov_len -= skip;
            op(&window[..used], done)?
        };
        if count == 0 {
            return Ok(done);
        }
        done += count;
        skip += count;
    }
}

/// Converts the parts to the kernel's type.
pub fn gather<'a>(parts: &'a [io::IoSlice<'_>]) -> &'a [libc::iovec] {
    // SAFETY: the standard library guarantees that `IoSlice` is laid out as `iovec` on Unix.
    unsafe { std::slice::from_raw_parts(parts.as_ptr().cast(), parts.len()) }
}

/// Converts the parts to the kernel's type. The result must be used only while `parts` is borrowed.
pub fn scatter<'a>(parts: &'a mut [io::IoSliceMut<'_>]) -> &'a [libc::iovec] {
    // SAFETY: the standard library guarantees that `IoSliceMut` is laid out as `iovec` on Unix.
    unsafe { std::slice::from_raw_parts(parts.as_ptr().cast(), parts.len()) }
}

/// Fills `out` with random bytes from the kernel.
pub fn random(out: &mut [u8]) -> io::Result<()> {
    let mut done = 0;
    while done < out.len() {
        let rest = &mut out[done..];
        // SAFETY: the kernel writes at most `rest.len()` bytes to `rest`.
        done += retry(|| unsafe { call!(SYS_getrandom, rest.as_mut_ptr(), rest.len(), 0) })?;
    }
    Ok(())
}

/// Returns a number that changes with every boot; 0 if the kernel does not provide one.
pub fn boot() -> u64 {
    let mut text = [0u8; 36];
    let read =
        file::open(libc::AT_FDCWD, c"/proc/sys/kernel/random/boot_id", libc::O_RDONLY).and_then(|fd| {
            let part = libc::iovec { iov_base: text.as_mut_ptr().cast(), iov_len: text.len() };
            file::preadv(&fd, &[part], 0, |_| true)
        });
    // The first 64 of its 122 random bits.
    let digits = text.iter().filter_map(|&byte| char::from(byte).to_digit(16)).take(16);
    if read.is_ok() { digits.fold(0, |number, digit| number << 4 | u64::from(digit)) } else { 0 }
}

/// Reads `clock` as seconds and nanoseconds.
pub fn clock(clock: libc::clockid_t) -> (i64, u32) {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for writes. The C library's function reads the clock without a system call and is not
    // among those that the client replaces.
    let result = unsafe { libc::clock_gettime(clock, &mut time) };
    assert_eq!(result, 0, "the kernel has no clock {clock}");
    (time.tv_sec, time.tv_nsec as u32)
}

/// Makes timers of this thread expire when they are due instead of up to 50 us later.
pub fn prompt_timers() {
    // SAFETY: takes numbers and changes only this thread's timer slack; if it fails, timers stay late.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong) };
}

/// Whether writing to a closed socket leaves the process alive, because it ignores SIGPIPE.
pub fn sigpipe_is_ignored() -> bool {
    // SAFETY: an all-zero `sigaction` is valid; only the current action is queried.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGPIPE, std::ptr::null(), &mut action) == 0
            && action.sa_sigaction == libc::SIG_IGN
    }
}

/// Runs `f` with all signals of this thread blocked, so that a thread started by it handles none.
pub fn without_signals<R>(f: impl FnOnce() -> R) -> R {
    // SAFETY: both sets are valid; the old mask is restored.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut old: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        // A fault must end the process with its usual report.
        for fault in [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGABRT, libc::SIGTRAP] {
            libc::sigdelset(&mut all, fault);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &all, &mut old);
        let result = f();
        libc::pthread_sigmask(libc::SIG_SETMASK, &old, std::ptr::null_mut());
        result
    }
}
