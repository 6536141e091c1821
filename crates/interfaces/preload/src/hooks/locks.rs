//! Locks: fcntl records (per process and per description), flock, lockf.

use super::descriptors::before_kernel;
use crate::errno::Res;
use crate::memory::{self, Access};
use crate::open::{self, Open, note_lock};
use crate::serve::on_weft_fd;
use crate::signal_wait::SignalWait;
use crate::sys;
use libc::{c_int, c_short, off_t};
use std::sync::Once;
use weft_core::ByteRange;
use weft_core::ranges::RangeError;
use weft_wire::meta::{LockKind, LockRange, LockSpace};

/// Returns the range of a `flock` structure.
fn range(open: &Open, fd: c_int, lock: &libc::flock) -> Res<LockRange> {
    let base = match c_int::from(lock.l_whence) {
        libc::SEEK_SET => 0,
        libc::SEEK_CUR => sys::lseek(fd, 0, libc::SEEK_CUR)?,
        libc::SEEK_END => open.file()?.size()? as i64,
        _ => return Err(libc::EINVAL.into()),
    };
    let start = base.checked_add(lock.l_start).ok_or(libc::EOVERFLOW)?;
    let range = ByteRange::from_posix(start, lock.l_len).map_err(|error| match error {
        RangeError::Invalid => libc::EINVAL,
        RangeError::Overflow => libc::EOVERFLOW,
    })?;
    Ok(LockRange { start: range.start(), end: range.end() })
}

fn kind(of: c_short) -> Res<Option<LockKind>> {
    match c_int::from(of) {
        libc::F_RDLCK => Ok(Some(LockKind::Shared)),
        libc::F_WRLCK => Ok(Some(LockKind::Exclusive)),
        libc::F_UNLCK => Ok(None),
        _ => Err(libc::EINVAL.into()),
    }
}

/// Implements `F_SETLK` and similar commands.
///
/// # Safety
/// `lock` is null or valid.
pub unsafe fn set(
    open: &Open,
    fd: c_int,
    lock: *const libc::flock,
    by_handle: bool,
    wait: bool,
) -> Res<c_int> {
    let lock = &memory::load(lock)?;
    // The checks of Linux, in its order.
    open.is_opened()?;
    let range = range(open, fd, lock)?;
    let kind = kind(lock.l_type)?;
    if let Some(kind) = kind {
        open.has_mode(kind == LockKind::Exclusive)?;
    }
    if by_handle && lock.l_pid != 0 {
        return Err(libc::EINVAL.into());
    }
    if by_handle && kind.is_some() && open.is_inherited() {
        static SAID: Once = Once::new();
        SAID.call_once(|| {
            sys::complain(
                "lock: F_OFD_SETLK: the file was opened by another process, and such a lock cannot be held for all \
                 processes that share it; use flock, or open the file in the process that locks it",
            );
        });
        return Err(libc::ENOLCK.into());
    }
    let file = open.file()?;
    if kind.is_some() && !by_handle {
        note_lock(file.inode()?);
    }
    waiting(wait, |interrupted| file.lock(LockSpace::Record, by_handle, kind, range, interrupted))?;
    Ok(0)
}

/// Implements `F_GETLK` and `F_OFD_GETLK`, which with `F_UNLCK` finds the description's own locks.
///
/// # Safety
/// `lock` is null or valid.
pub unsafe fn test(open: &Open, fd: c_int, lock: *mut libc::flock, by_handle: bool) -> Res<c_int> {
    if !memory::has(lock.cast(), size_of::<libc::flock>(), Access::Write) {
        return Err(libc::EFAULT.into());
    }
    let lock = lock.as_mut().ok_or(libc::EFAULT)?;
    open.is_opened()?;
    let wanted = kind(lock.l_type)?;
    if wanted.is_none() && !by_handle {
        return Err(libc::EINVAL.into());
    }
    let range = range(open, fd, lock)?;
    if by_handle && lock.l_pid != 0 {
        return Err(libc::EINVAL.into());
    }
    let found = match wanted {
        Some(wanted) => open.file()?.test_lock(by_handle, wanted, range)?,
        None => open.file()?.own_lock(range)?,
    };
    match found {
        None => lock.l_type = libc::F_UNLCK as c_short,
        Some(held) => {
            lock.l_type = match held.kind {
                LockKind::Shared => libc::F_RDLCK,
                LockKind::Exclusive => libc::F_WRLCK,
            } as c_short;
            lock.l_whence = libc::SEEK_SET as c_short;
            lock.l_start = held.range.start as i64;
            lock.l_len =
                if held.range.end > i64::MAX as u64 { 0 } else { (held.range.end - held.range.start) as i64 };
            lock.l_pid = if held.is_of_open_file { -1 } else { held.pid as i32 };
        }
    }
    Ok(0)
}

hook! { [flock] (fd: c_int, operation: c_int) -> c_int {
    before_kernel(fd);
    on_weft_fd(fd, |open| {
        let kind = match operation & !libc::LOCK_NB {
            libc::LOCK_SH => Some(LockKind::Shared),
            libc::LOCK_EX => Some(LockKind::Exclusive),
            libc::LOCK_UN => None,
            _ => return Err(libc::EINVAL.into()),
        };
        open.is_opened()?;
        // Access mode 3 opens a file for `ioctl` alone.
        if kind.is_some() && open.flags() & libc::O_ACCMODE == libc::O_ACCMODE {
            return Err(libc::EBADF.into());
        }
        open::flock(open, fd, kind, operation & libc::LOCK_NB == 0)?;
        Ok(0)
    })
} }

hook! { [lockf, lockf64] (fd: c_int, command: c_int, len: off_t) -> c_int {
    before_kernel(fd);
    on_weft_fd(fd, |open| {
        let mut lock: libc::flock = std::mem::zeroed();
        lock.l_whence = libc::SEEK_CUR as c_short;
        lock.l_len = len;
        lock.l_type = if command == libc::F_ULOCK { libc::F_UNLCK } else { libc::F_WRLCK } as c_short;
        match command {
            libc::F_LOCK => set(open, fd, &lock, false, true),
            libc::F_TLOCK | libc::F_ULOCK => set(open, fd, &lock, false, false),
            libc::F_TEST => {
                // As in the C library, which asks for a shared lock.
                lock.l_type = libc::F_RDLCK as c_short;
                test(open, fd, &mut lock, false)?;
                let is_free = c_int::from(lock.l_type) == libc::F_UNLCK || lock.l_pid == libc::getpid();
                if is_free { Ok(0) } else { Err(libc::EACCES.into()) }
            }
            _ => Err(libc::EINVAL.into()),
        }
    })
} }

/// Runs `work` so that a signal interrupts its waits as it would interrupt a wait in the kernel.
pub fn waiting(wait: bool, work: impl FnOnce(Option<crate::backend::Interrupted<'_>>) -> Res<()>) -> Res<()> {
    if !wait {
        return work(None);
    }
    let mut signals = SignalWait::begin();
    work(Some(&mut || signals.is_interrupted()))
}
