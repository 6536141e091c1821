//! Placeholders: kernel descriptors that represent Weft descriptors.
//!
//! A placeholder is a write-only description of one sealed, empty memory file. Its offset can be moved, shared by dup
//! and inherited, but a raw system call can neither read from it nor write to it.

use crate::errno::Res;
use crate::sys;
use std::ffi::c_int;
use std::sync::atomic::{AtomicI32, Ordering};

/// Name that `/proc/self/fd` shows.
pub const NAME: &std::ffi::CStr = c"weft";

/// Begin of the target of a link in `/proc` to a placeholder.
pub const TARGET: &[u8] = b"/memfd:weft ";

// Memory file from which placeholders are opened; -1 before the first.
static SOURCE: AtomicI32 = AtomicI32::new(-1);
// Memory file on which processes take turns at files of the host, which have no placeholder; -1 before the first fork.
static TURNS: AtomicI32 = AtomicI32::new(-1);

/// Returns the lowest number for the library's own descriptors: above those that programs use, and low enough that the
/// kernel's table stays small.
pub fn floor() -> c_int {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: writes one struct.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
    (limit.rlim_cur.min(4096 + 192) as c_int - 192).max(64)
}

/// Flags of a description that its placeholder keeps, so that processes share their changes.
pub const SHARED_FLAGS: c_int = libc::O_APPEND | libc::O_NONBLOCK;

/// Creates a placeholder with its own offset at 0, which keeps `O_CLOEXEC` and [`SHARED_FLAGS`] of `flags`.
pub fn new(flags: c_int) -> Res<c_int> {
    let keep = flags & (libc::O_CLOEXEC | SHARED_FLAGS);
    for _ in 0..2 {
        let source = SOURCE.load(Ordering::Acquire);
        if source >= 0 {
            let path = sys::c(format!("/proc/self/fd/{source}").as_bytes());
            match sys::open(&path, libc::O_WRONLY | keep, 0) {
                Ok(fd) => return Ok(fd),
                Err(errno @ (libc::EMFILE | libc::ENFILE | libc::ENOMEM)) => return Err(errno.into()),
                // A raw system call closed it, or /proc is missing.
                Err(_) => SOURCE.store(-1, Ordering::Release),
            }
        }
        self::source()?;
    }
    // Without /proc, create a separate memory file. Its only defect is that a raw read sees an empty file.
    let fd = sealed()?;
    if keep & libc::O_CLOEXEC == 0 {
        sys::fcntl(fd, libc::F_SETFD, 0)?;
    }
    sys::fcntl(fd, libc::F_SETFL, (keep & SHARED_FLAGS) as usize)?;
    Ok(fd)
}

/// Returns the memory file from which placeholders are opened; creates it if there is none.
fn source() -> Res<c_int> {
    made(&SOURCE, libc::F_DUPFD_CLOEXEC)
}

/// Returns the memory file on which processes take turns at files of the host. Children and executed programs inherit it.
pub fn turns() -> Res<c_int> {
    made(&TURNS, libc::F_DUPFD)
}

/// Returns the number of [`turns`] for an executed program; `None` if no process shares a file of the host.
pub fn turns_for_exec() -> Option<c_int> {
    Some(TURNS.load(Ordering::Acquire)).filter(|&fd| fd >= 0)
}

/// Takes over the file of [`turns`] from the previous program image.
pub fn inherit_turns(fd: c_int) {
    if is_one(fd) {
        TURNS.store(fd, Ordering::Release);
    }
}

/// Returns a memory file, created at the first call with a number that `command` chooses.
fn made(place: &AtomicI32, command: c_int) -> Res<c_int> {
    let known = place.load(Ordering::Acquire);
    if known >= 0 {
        return Ok(known);
    }
    let low = sealed()?;
    let high = sys::fcntl(low, command, floor() as usize);
    if high.is_ok() {
        sys::close(low);
    }
    let fd = high.unwrap_or(low);
    match place.compare_exchange(-1, fd, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => Ok(fd),
        Err(other) => {
            sys::close(fd);
            Ok(other)
        }
    }
}

/// Opens another description of the memory file behind the placeholder `fd`.
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

/// Whether `fd` is a placeholder of any process.
pub fn is_one(fd: c_int) -> bool {
    let link = sys::readlinkat(libc::AT_FDCWD, &sys::c(format!("/proc/self/fd/{fd}").as_bytes()));
    link.is_ok_and(|target| target.starts_with(TARGET))
}

/// Returns the library's own descriptors, in ascending order.
pub fn internal() -> Vec<c_int> {
    let mut found = weft_env::real::reserved_fds();
    found.extend(
        [&SOURCE, &TURNS].map(|place| place.load(Ordering::Acquire)).into_iter().filter(|&fd| fd >= 0),
    );
    found.sort_unstable();
    found
}

/// Whether `fd` is one of the library's own descriptors.
pub fn is_internal(fd: c_int) -> bool {
    fd >= 0
        && (weft_env::real::is_reserved_fd(fd)
            || fd == SOURCE.load(Ordering::Relaxed)
            || fd == TURNS.load(Ordering::Relaxed))
}
