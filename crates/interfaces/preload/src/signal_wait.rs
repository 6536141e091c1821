//! A wait that a signal interrupts as it would interrupt a wait in the kernel.
//!
//! Signals are blocked meanwhile and checked between the short waits of which the wait consists. Handlers run there; one
//! without `SA_RESTART` interrupts the wait, so that the call fails with `EINTR`.

use std::cell::Cell;
use weft_client::ServerWait;

thread_local! {
    /// Signals that the program had blocked before the outermost wait of this thread; `None` outside of waits. A request
    /// for a lock may have to wait for the server, too.
    static BLOCKED_BEFORE: Cell<Option<libc::sigset_t>> = const { Cell::new(None) };
}

/// A wait in progress, until dropped.
pub struct SignalWait {
    all: libc::sigset_t,
    before: libc::sigset_t,
    is_outermost: bool,
}

impl SignalWait {
    /// Begins a wait on this thread.
    pub fn begin() -> Self {
        // SAFETY: plain signal mask calls on valid sets.
        unsafe {
            let mut all: libc::sigset_t = std::mem::zeroed();
            let mut before: libc::sigset_t = std::mem::zeroed();
            libc::sigfillset(&mut all);
            // Faults of this thread must still end the process where they occur.
            for fault in
                [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGABRT, libc::SIGTRAP]
            {
                libc::sigdelset(&mut all, fault);
            }
            let outer = BLOCKED_BEFORE.get();
            match outer {
                Some(outer) => before = outer,
                None => {
                    libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
                    BLOCKED_BEFORE.set(Some(before));
                }
            }
            Self { all, before, is_outermost: outer.is_none() }
        }
    }

    /// Whether a pending signal interrupts the wait. Runs its handler.
    pub fn is_interrupted(&mut self) -> bool {
        // SAFETY: as above; the sets are valid, and the action is written before it is read.
        unsafe {
            let mut pending: libc::sigset_t = std::mem::zeroed();
            libc::sigpending(&mut pending);
            let mut ends = false;
            let mut any = false;
            for signal in 1..=64 {
                if libc::sigismember(&pending, signal) != 1 || libc::sigismember(&self.before, signal) == 1 {
                    continue;
                }
                any = true;
                let mut action: libc::sigaction = std::mem::zeroed();
                libc::sigaction(signal, std::ptr::null(), &mut action);
                let handled = action.sa_sigaction != libc::SIG_IGN && action.sa_sigaction != libc::SIG_DFL;
                ends |= handled && action.sa_flags & libc::SA_RESTART == 0;
            }
            if any {
                // Handlers and default actions, which are the program's own code, run as soon as the mask is removed.
                let outside = crate::guard::leave();
                BLOCKED_BEFORE.set(None);
                libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, std::ptr::null_mut());
                libc::pthread_sigmask(libc::SIG_SETMASK, &self.all, std::ptr::null_mut());
                BLOCKED_BEFORE.set(Some(self.before));
                drop(outside);
            }
            ends
        }
    }
}

impl Drop for SignalWait {
    fn drop(&mut self) {
        if self.is_outermost {
            BLOCKED_BEFORE.set(None);
            // SAFETY: a valid set.
            unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, std::ptr::null_mut()) };
        }
    }
}

impl ServerWait for SignalWait {
    fn is_interrupted(&mut self) -> bool {
        SignalWait::is_interrupted(self)
    }
}
