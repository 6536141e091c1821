//! Processes that the library starts for itself.

use crate::sys;
use libc::c_int;

/// Calls the C library's `fork`, bypassing the hook of that name.
pub unsafe fn real_fork() -> libc::pid_t {
    real!(fork: fn() -> libc::pid_t)()
}

/// Forks a child whose end the program does not notice: it gets no `SIGCHLD`, and no `wait` of it finds the child, which
/// [`wait_unseen`] waits for.
///
/// # Safety
/// The child of a process with several threads makes system calls only.
pub unsafe fn unseen_fork() -> libc::pid_t {
    // No flags: no memory is shared, and no signal is sent at the end. The C library knows nothing of the child.
    let result = sys::syscall(libc::SYS_clone, [0; 6]);
    if result < 0 {
        crate::errno::set(-result as c_int);
        return -1;
    }
    result as libc::pid_t
}

/// Waits for a child of [`unseen_fork`], and returns its status.
pub fn wait_unseen(child: libc::pid_t) -> Option<c_int> {
    let mut status = 0;
    loop {
        // SAFETY: writes one number.
        if unsafe { libc::waitpid(child, &mut status, libc::__WALL) } == child {
            return Some(status);
        }
        if crate::errno::get() != libc::EINTR {
            return None;
        }
    }
}

/// Whether this thread is the only one of the process.
pub fn is_alone() -> bool {
    // SAFETY: zero is a valid value.
    let mut tasks: libc::stat = unsafe { std::mem::zeroed() };
    let arguments =
        [libc::AT_FDCWD as usize, c"/proc/self/task".as_ptr() as usize, (&raw mut tasks) as usize, 0, 0, 0];
    // `.`, `..` and one directory for each thread. SAFETY: writes the attributes.
    unsafe { sys::syscall(libc::SYS_newfstatat, arguments) == 0 && tasks.st_nlink == 3 }
}
