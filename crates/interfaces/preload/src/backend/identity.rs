//! User and groups of the calling thread, which decide about calls by path and may change at any time.
//!
//! While no call has changed the identity of this process, nothing is asked. Afterwards every call by path asks the
//! kernel, because threads may have identities of their own.

use std::sync::atomic::{AtomicBool, Ordering};
use weft_wire::hello::Identity;

static CHANGED: AtomicBool = AtomicBool::new(false);

/// Notes that the identity of a thread may have changed.
pub fn note_change() {
    CHANGED.store(true, Ordering::Release);
}

/// Whether the identity of a thread has ever changed.
#[inline]
pub fn has_changed() -> bool {
    CHANGED.load(Ordering::Acquire)
}

/// Makes a system call by number: the C library's functions would change all threads.
fn call(number: libc::c_long, argument: u32) -> u32 {
    // SAFETY: these calls read and write no memory.
    unsafe { crate::sys::syscall(number, [argument as usize, 0, 0, 0, 0, 0]) as u32 }
}

/// Returns the identity that decides about access to files.
pub fn effective() -> Identity {
    // An invalid id changes nothing.
    of(call(libc::SYS_setfsuid, u32::MAX), call(libc::SYS_setfsgid, u32::MAX))
}

/// Whether the user of this thread has the rights of the owner `uid` of a file.
pub fn owns(uid: u32) -> bool {
    let user = effective();
    user.is_root() || user.uid == uid
}

/// Returns the identity that `access` uses.
pub fn real() -> Identity {
    of(call(libc::SYS_getuid, 0), call(libc::SYS_getgid, 0))
}

fn of(uid: u32, gid: u32) -> Identity {
    let mut groups = [0u32; 4096];
    let arguments = [groups.len(), groups.as_mut_ptr() as usize, 0, 0, 0, 0];
    // SAFETY: writes at most as many groups as the buffer holds.
    let count = unsafe { crate::sys::syscall(libc::SYS_getgroups, arguments) }.max(0) as usize;
    weft_client::Credentials::identity_of(uid, gid, groups[..count.min(groups.len())].to_vec())
}

/// Whether this thread is `user`, or can become it.
pub fn can_be(user: &Identity) -> bool {
    let (mut real, mut effective, mut saved) = (0u32, 0u32, 0u32);
    let at = |id: &mut u32| std::ptr::from_mut(id) as usize;
    let arguments = [at(&mut real), at(&mut effective), at(&mut saved), 0, 0, 0];
    // SAFETY: writes the three numbers.
    unsafe { crate::sys::syscall(libc::SYS_getresuid, arguments) };
    [real, effective, saved].iter().any(|&id| id == 0 || id == user.uid)
}
