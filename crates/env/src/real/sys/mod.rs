//! The operating system, by its call numbers.
//!
//! Weft's client is loaded into programs whose `open`, `close`, `read` … it replaces. A call from here by the C
//! library's name would come back into that replacement; so every call that could is made by number.

mod file;
pub mod kept;
mod memory;
mod processor;
mod socket;

pub use file::*;
pub use memory::*;
pub use processor::*;
pub use socket::*;

use std::io;
use std::os::fd::{AsRawFd, RawFd};

/// One call by number; the arguments are widened as the calling convention wants them.
macro_rules! call {
    ($number:ident $(, $argument:expr)* $(,)?) => {
        $crate::real::sys::check(libc::syscall(libc::$number $(, $argument as usize)*))
    };
}
pub(super) use call;

/// The result of a call: a count, or the error that the thread's `errno` names.
pub fn check(result: libc::c_long) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// Calls again as long as a signal interrupts it.
pub fn retry(mut attempt: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match attempt() {
            Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
            result => return result,
        }
    }
}

/// A descriptor that this process owns and closes.
#[derive(Debug)]
pub struct Fd(RawFd);

impl Fd {
    /// Takes over what a call returned.
    fn from_call(number: usize) -> Self {
        Self(number as RawFd)
    }

    /// Takes over a descriptor that arrived as a number.
    pub fn from_raw(number: RawFd) -> Self {
        Self(number)
    }

    /// The same open file at a number of at least `floor`, if there is room; else as it is.
    ///
    /// With a floor, the number is told by [`super::kept_fds`] until it is closed.
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
        kept::set(lifted.0);
        lifted
    }
}

impl AsRawFd for Fd {
    fn as_raw_fd(&self) -> RawFd {
        self.0
    }
}

impl Drop for Fd {
    fn drop(&mut self) {
        kept::clear(self.0);
        // SAFETY: the number is ours and is not used afterwards.
        let _ = unsafe { call!(SYS_close, self.0) };
    }
}

/// Runs `op` over `parts` until all are done or it returns zero, going on behind what was done.
///
/// `op` is given at most 1,024 parts (the kernel's limit) and the number of bytes done so far.
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

/// The parts as the kernel takes them.
pub fn gather<'a>(parts: &'a [io::IoSlice<'_>]) -> &'a [libc::iovec] {
    // SAFETY: the standard library guarantees that `IoSlice` is laid out as `iovec` on Unix.
    unsafe { std::slice::from_raw_parts(parts.as_ptr().cast(), parts.len()) }
}

/// The parts as the kernel takes them. What is made of them must only be used while `parts` is borrowed.
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

/// A number that changes with every boot; 0 where the kernel does not tell.
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
    // SAFETY: `time` is a valid place to write to. The C library's function reads the clock without a system call
    // and is not among those that the client replaces.
    let result = unsafe { libc::clock_gettime(clock, &mut time) };
    assert_eq!(result, 0, "the kernel has no clock {clock}");
    (time.tv_sec, time.tv_nsec as u32)
}

/// Has the timers of this thread expire when they are due instead of up to 50 us later.
pub fn prompt_timers() {
    // SAFETY: takes numbers and changes nothing but this thread's timer slack; where it is refused timers stay late.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong) };
}

/// Whether a write to a closed socket ends the process by SIGPIPE.
pub fn sigpipe_is_ignored() -> bool {
    // SAFETY: an all-zero `sigaction` is valid; only the present action is asked for.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGPIPE, std::ptr::null(), &mut action) == 0
            && action.sa_sigaction == libc::SIG_IGN
    }
}

/// Runs `f` with every signal of this thread blocked, so that a thread started by it handles none.
pub fn without_signals<R>(f: impl FnOnce() -> R) -> R {
    // SAFETY: both sets are valid places; the old mask is put back.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut old: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        // A fault must still end the process with a report, not by force.
        for fault in [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGABRT, libc::SIGTRAP] {
            libc::sigdelset(&mut all, fault);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &all, &mut old);
        let result = f();
        libc::pthread_sigmask(libc::SIG_SETMASK, &old, std::ptr::null_mut());
        result
    }
}
