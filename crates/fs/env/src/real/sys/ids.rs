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
        // SAFETY: the calls read the groups only.
        unsafe {
            if before.can_be_root {
                // Only root may set groups, and become any user.
                call!(SYS_setresuid, KEEP, 0u32, KEEP)?;
                call!(SYS_setgroups, groups.len(), groups.as_ptr())?;
            } else if !before.has_groups(groups) {
                return Err(io::Error::from_raw_os_error(libc::EPERM));
            }
            call!(SYS_setresgid, KEEP, egid, KEEP)?;
            call!(SYS_setresuid, KEEP, euid, KEEP)?;
        }
        Ok(())
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

/// Blocks all signals of the calling thread, and returns those that were blocked.
pub fn block_signals() -> libc::sigset_t {
    // SAFETY: both sets live during the call, which writes the second one.
    unsafe {
        let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        before
    }
}

/// Blocks exactly these signals.
pub fn restore_signals(signals: &libc::sigset_t) {
    // SAFETY: reads the set.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, signals, std::ptr::null_mut()) };
}
