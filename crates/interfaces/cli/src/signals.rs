//! Signals, received at one place instead of interrupting arbitrary code.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

/// A set of signals that this thread and the threads it starts only receive by [`Blocked::wait`].
pub struct Blocked {
    set: libc::sigset_t,
    before: libc::sigset_t,
}

/// A received signal.
pub struct Received {
    /// Its number.
    pub number: i32,
    /// Whether a process sent it. The terminal sends to the whole foreground group by itself.
    pub sent: bool,
}

impl Blocked {
    /// Blocks `signals`. Must be called before any other thread is started.
    pub fn new(signals: &[i32]) -> Self {
        // SAFETY: both sets are initialized by sigemptyset before they are read, and all pointers are to locals.
        unsafe {
            let mut set = std::mem::zeroed();
            let mut before = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            for signal in signals {
                libc::sigaddset(&raw mut set, *signal);
            }
            libc::sigemptyset(&raw mut before);
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, &raw mut before);
            Self { set, before }
        }
    }

    /// Waits for the next of the signals.
    pub fn wait(&self) -> Received {
        loop {
            // SAFETY: siginfo_t is plain data that the call fills in; the set was initialized in `new`.
            unsafe {
                let mut info: libc::siginfo_t = std::mem::zeroed();
                let number = libc::sigwaitinfo(&raw const self.set, &raw mut info);
                if number > 0 {
                    return Received { number, sent: info.si_code <= 0 };
                }
            }
        }
    }

    /// Restores the former mask of this thread.
    pub fn unblock(&self) {
        // SAFETY: the set was initialized in `new`.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, std::ptr::null_mut()) };
    }

    /// Starts `command` with the former mask.
    ///
    /// # Errors
    /// Fails if the system cannot start it.
    pub fn spawn(&self, command: &mut Command) -> io::Result<Child> {
        let before = self.before;
        // SAFETY: pthread_sigmask is safe between fork and exec, and the closure touches only its own copy.
        unsafe {
            command.pre_exec(move || {
                libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
                Ok(())
            });
        }
        command.spawn()
    }
}

/// Whether a blocked signal that ends this process is pending.
pub fn end_is_pending() -> bool {
    is_pending(&[libc::SIGTERM, libc::SIGINT])
}

/// Whether one of these blocked signals is pending.
pub fn is_pending(signals: &[i32]) -> bool {
    // SAFETY: the set is filled in by sigpending before it is read, and all pointers are to locals.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigpending(&raw mut set) == 0
            && signals.iter().any(|signal| libc::sigismember(&raw const set, *signal) == 1)
    }
}

/// Lets a closed pipe end this process silently.
pub fn default_pipe() {
    // SAFETY: called at the start of main, when no other thread exists.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
    }
}

/// Whether this process was started with `signal` ignored.
pub fn is_ignored(signal: i32) -> bool {
    // SAFETY: zeros are a valid `sigaction`, which the call fills. Nothing is changed.
    unsafe {
        let mut found: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &raw mut found) == 0 && found.sa_sigaction == libc::SIG_IGN
    }
}

/// Sends `signal` to the process `pid`.
///
/// # Errors
/// The error number: `ESRCH` if it does not exist, `EPERM` if it belongs to another user.
pub fn send(pid: i32, signal: i32) -> Result<(), i32> {
    assert!(pid > 0, "a process, not a group");
    // SAFETY: kill has no memory effects.
    match unsafe { libc::kill(pid, signal) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL)),
    }
}

/// Whether the process `pid` exists; it may belong to another user.
pub fn exists(pid: i32) -> bool {
    send(pid, 0) != Err(libc::ESRCH)
}
