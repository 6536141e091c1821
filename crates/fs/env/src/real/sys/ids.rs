//! Users and groups of the calling thread. The C library's functions would change all threads of the process.

use super::call;
use std::io;

/// Identity of a thread.
#[derive(Debug)]
pub struct Ids {
    pub euid: u32,
    pub egid: u32,
    pub groups: Vec<u32>,
    /// Whether the thread can get root's rights.
    can_be_root: bool,
    fs_uid: u32,
    fs_gid: u32,
}

const KEEP: u32 = u32::MAX;

/// Number of groups from which on a [`super::super::User`] may lack some.
const GROUPS_MAX: usize = 64;

impl Ids {
    /// Returns the identity of the calling thread, with sorted groups.
    pub fn now() -> io::Result<Self> {
        let (mut uids, mut gids) = ([0u32; 3], [0u32; 3]);
        let mut groups = vec![0u32; 65_536];
        // SAFETY: the calls write to the given variables only. An invalid id for the file system changes nothing.
        unsafe {
            call!(SYS_getresuid, &raw mut uids[0], &raw mut uids[1], &raw mut uids[2])?;
            call!(SYS_getresgid, &raw mut gids[0], &raw mut gids[1], &raw mut gids[2])?;
            let count = call!(SYS_getgroups, groups.len(), groups.as_mut_ptr())?;
            groups.truncate(count);
            groups.sort_unstable();
            groups.dedup();
            Ok(Self {
                euid: uids[1],
                egid: gids[1],
                groups,
                can_be_root: uids.contains(&0),
                fs_uid: call!(SYS_setfsuid, KEEP)? as u32,
                fs_gid: call!(SYS_setfsgid, KEEP)? as u32,
            })
        }
    }

    /// Whether the thread has these supplementary groups.
    pub fn has_groups(&self, groups: &[u32]) -> bool {
        self.groups == groups || groups.len() >= GROUPS_MAX && self.groups.starts_with(groups)
    }

    /// Gives the calling thread this effective user and these groups; `before` is an identity that it had.
    pub fn set(before: &Self, euid: u32, egid: u32, groups: &[u32]) -> io::Result<()> {
        let has_groups = Self::now()?.has_groups(groups);
        if !before.can_be_root && !has_groups {
            return Err(io::Error::from_raw_os_error(libc::EPERM));
        }
        // SAFETY: the calls read the groups only.
        unsafe {
            let mut result = Ok(0);
            if before.can_be_root {
                // Only root may set groups, and become any user.
                call!(SYS_setresuid, KEEP, 0u32, KEEP)?;
                if !has_groups {
                    // Root without `CAP_SETGID` may not.
                    result = call!(SYS_setgroups, groups.len(), groups.as_ptr());
                }
            }
            let result = result.and_then(|_| call!(SYS_setresgid, KEEP, egid, KEEP));
            // Also after an error, so that the thread does not stay root.
            call!(SYS_setresuid, KEEP, euid, KEEP)?;
            result.map(drop)
        }
    }

    /// Restores the identity for access to files, which a change of the effective user overwrites.
    pub fn restore_fs_ids(&self) {
        // SAFETY: no memory is involved.
        unsafe {
            let _ = call!(SYS_setfsgid, self.fs_gid);
            let _ = call!(SYS_setfsuid, self.fs_uid);
        }
    }
}

/// Set of signals as the kernel has it.
type Signals = u64;

/// Blocks all signals of the calling thread, and returns those that were blocked. Also blocks the signal by which the C
/// library changes the user of all threads, which the C library's own function leaves out: such a change waits.
pub fn block_signals() -> Signals {
    let (all, mut before) = (Signals::MAX, 0);
    // SAFETY: both sets live during the call, which writes the second one.
    let blocked = unsafe {
        call!(SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const all, &raw mut before, size_of::<Signals>())
    };
    debug_assert!(blocked.is_ok(), "the set has the kernel's size");
    before
}

/// Blocks exactly these signals.
pub fn restore_signals(signals: Signals) {
    let none = std::ptr::null_mut::<Signals>();
    // SAFETY: reads the set.
    let restored = unsafe {
        call!(SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const signals, none, size_of::<Signals>())
    };
    debug_assert!(restored.is_ok(), "the set has the kernel's size");
}
