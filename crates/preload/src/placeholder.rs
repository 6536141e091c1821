//! Descriptors of the kernel that stand for ours.
//!
//! A placeholder is a write-only description of one sealed, empty memory file: its offset can be moved, shared by
//! dup and inherited, but a raw system call can neither read from it nor write to it.

use crate::errno::Res;
use crate::sys;
use std::ffi::c_int;
use std::sync::atomic::{AtomicI32, Ordering};

/// The name that `/proc/self/fd` shows.
pub const NAME: &std::ffi::CStr = c"weft";

// The memory file from which placeholders are opened; -1 before the first.
static SOURCE: AtomicI32 = AtomicI32::new(-1);

/// Numbers from here on are for the library's own descriptors: above what programs use, low enough that the
/// kernel's table stays small.
pub fn floor() -> c_int {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: writes one struct.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
    (limit.rlim_cur.min(4096 + 192) as c_int - 192).max(64)
}

/// A new placeholder with its own offset at 0, which keeps `O_CLOEXEC` of `flags`.
pub fn new(flags: c_int) -> Res<c_int> {
    let keep = flags & libc::O_CLOEXEC;
    for _ in 0..2 {
        let source = SOURCE.load(Ordering::Acquire);
        if source >= 0 {
            let path = sys::c(format!("/proc/self/fd/{source}").as_bytes());
            match sys::open(&path, libc::O_WRONLY | keep, 0) {
                Ok(fd) => return Ok(fd),
                Err(errno @ (libc::EMFILE | libc::ENFILE | libc::ENOMEM)) => return Err(errno.into()),
                // Closed behind our back by a raw system call, or no /proc.
                Err(_) => SOURCE.store(-1, Ordering::Release),
            }
        }
        let made = sealed()?;
        let high = sys::fcntl(made, libc::F_DUPFD_CLOEXEC, floor() as usize);
        let source = match high {
            Ok(high) => {
                sys::close(made);
                high
            }
            Err(_) => made,
        };
        if SOURCE.compare_exchange(-1, source, Ordering::AcqRel, Ordering::Acquire).is_err() {
            sys::close(source);
        }
    }
    // Without /proc: a memory file of its own, whose only fault is that a raw read sees an empty file.
    let fd = sealed()?;
    if keep == 0 {
        sys::fcntl(fd, libc::F_SETFD, 0)?;
    }
    Ok(fd)
}

/// Another description of the memory file behind the placeholder `fd`.
pub fn again(fd: c_int) -> Res<c_int> {
    let path = sys::c(format!("/proc/self/fd/{fd}").as_bytes());
    Ok(sys::open(&path, libc::O_WRONLY | libc::O_CLOEXEC, 0)?)
}

fn sealed() -> Res<c_int> {
    let fd = sys::memfd(NAME, libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING)?;
    let seals = libc::F_SEAL_WRITE | libc::F_SEAL_GROW | libc::F_SEAL_SHRINK | libc::F_SEAL_SEAL;
    sys::fcntl(fd, libc::F_ADD_SEALS, seals as usize)?;
    Ok(fd)
}

/// Whether `fd` is a placeholder, of whatever process.
pub fn is_one(fd: c_int) -> bool {
    let link = sys::readlinkat(libc::AT_FDCWD, &sys::c(format!("/proc/self/fd/{fd}").as_bytes()));
    link.is_ok_and(|target| target.starts_with(b"/memfd:weft "))
}

/// The library's own descriptors, ascending.
pub fn internal() -> Vec<c_int> {
    let mut found = weft_env::real::kept_fds();
    let source = SOURCE.load(Ordering::Acquire);
    if source >= 0 {
        found.push(source);
        found.sort_unstable();
    }
    found
}

/// Whether `fd` is one of the library's own descriptors.
pub fn is_internal(fd: c_int) -> bool {
    fd >= 0 && (weft_env::real::is_kept_fd(fd) || fd == SOURCE.load(Ordering::Relaxed))
}
