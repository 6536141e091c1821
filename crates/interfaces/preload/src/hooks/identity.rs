//! Calls that change the user or the groups. Open files keep the rights with which they were opened; calls by path have
//! those of the new user.

use crate::backend;
use crate::serve::inside;
use libc::{c_char, c_int, c_long, gid_t, size_t, uid_t};

/// Runs `change`, which may change the identity of this process or thread.
fn changing<T>(change: impl FnOnce() -> T) -> T {
    if !crate::config::is_ready() || crate::guard::inside() {
        return change();
    }
    let _ = inside(|| {
        backend::before_change();
        Ok(())
    });
    let result = change();
    let _ = inside(|| {
        backend::after_change();
        Ok(())
    });
    result
}

macro_rules! identity_hook {
    ($($name:ident ($($arg:ident: $ty:ty),*);)*) => { $(
        #[doc = concat!("`", stringify!($name), "`.")]
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> c_int {
            changing(|| real!($name: fn($($ty),*) -> c_int)($($arg),*))
        }
    )* };
}
identity_hook! {
    setuid(uid: uid_t);
    setgid(gid: gid_t);
    seteuid(uid: uid_t);
    setegid(gid: gid_t);
    setreuid(real: uid_t, effective: uid_t);
    setregid(real: gid_t, effective: gid_t);
    setresuid(real: uid_t, effective: uid_t, saved: uid_t);
    setresgid(real: gid_t, effective: gid_t, saved: gid_t);
    setfsuid(uid: uid_t);
    setfsgid(gid: gid_t);
    setgroups(count: size_t, groups: *const gid_t);
    initgroups(user: *const c_char, group: gid_t);
}

/// Whether the system call changes the user or the groups of the calling thread.
pub fn is_change(number: c_long) -> bool {
    matches!(
        number,
        libc::SYS_setuid
            | libc::SYS_setgid
            | libc::SYS_setreuid
            | libc::SYS_setregid
            | libc::SYS_setresuid
            | libc::SYS_setresgid
            | libc::SYS_setfsuid
            | libc::SYS_setfsgid
            | libc::SYS_setgroups
    )
}

/// Makes such a system call.
pub unsafe fn by_number(number: c_long, a: usize, b: usize, c: usize) -> c_long {
    changing(|| real!(syscall: fn(c_long, usize, usize, usize) -> c_long)(number, a, b, c))
}
