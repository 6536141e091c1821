//! The user of a thread, for connections: a server learns the peer of a Unix socket from the thread that connected it.

use super::sys::Ids;
use std::io;

/// User, primary group and supplementary groups.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct User {
    /// User.
    pub uid: u32,
    /// Primary group.
    pub gid: u32,
    /// Supplementary groups, sorted.
    pub groups: Vec<u32>,
}

/// The thread has another user until this is dropped.
#[derive(Debug)]
pub(super) struct Former {
    ids: Ids,
    signals: u64,
}

impl User {
    /// Makes the calling thread this user until the result is dropped; `None` if it is this user already.
    ///
    /// # Errors
    /// `EPERM` if it cannot become this user.
    pub(super) fn become_for_a_while(&self) -> io::Result<Option<Former>> {
        let ids = Ids::now()?;
        if ids.euid == self.uid && ids.egid == self.gid && ids.has_groups(&self.groups) {
            return Ok(None);
        }
        // No handler of the program may run as this user.
        let former = Former { signals: super::sys::block_signals(), ids };
        // An error drops `former`, which restores what was changed.
        Ids::set(&former.ids, self.uid, self.gid, &self.groups)?;
        Ok(Some(former))
    }
}

impl Drop for Former {
    fn drop(&mut self) {
        let Ids { euid, egid, groups, .. } = &self.ids;
        // The thread was this user, so it may become it again.
        let restored = Ids::set(&self.ids, *euid, *egid, groups);
        self.ids.restore_fs_ids();
        super::sys::restore_signals(self.signals);
        if restored.is_err() {
            // The thread was this user, so the kernel lets it return. A program must not go on with the rights of another.
            std::process::abort();
        }
    }
}
