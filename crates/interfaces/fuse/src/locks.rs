//! Locks of processes behind the mount.
//!
//! The FUSE library does not distinguish `flock` from `fcntl` locks. If a lock could be either, the caller's system
//! call is looked up in /proc, which root may do and other users often may not.
//!
//! A lock of unknown kind is taken in both families. It then excludes `flock` and `fcntl` locks by other nodes and by
//! the preload library. A program that uses both kinds on one whole file at once would wait for itself.

use crate::answer::{Answer, Refusal, done};
use crate::caller::{interrupted, system_call};
use crate::filesystem::WeftFilesystem;
use fuser::{Errno, FileHandle, ReplyEmpty};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use weft_client::{Error, OpenFile, Wait};
use weft_env::real::{RealEnv, block_on};
use weft_wire::meta::{HeldLock, LockKind, LockOwner, LockRange, LockSpace, OpenFlags};

/// Maximum number of concurrent waits; each needs a thread.
const WAITS_MAX: u32 = 256;
/// End of a lock in the kernel's format that extends to the end of the file, however long.
const KERNEL_END: u64 = i64::MAX as u64;

/// Locks acquired through one open file, so that closing it releases only these.
#[derive(Default)]
pub struct HandleLocks {
    owners: Mutex<BTreeSet<u64>>,
}

/// Lock request of the kernel.
#[derive(Clone, Copy, Debug)]
pub struct LockCall {
    /// The kernel's number for the owner.
    pub owner: u64,
    /// First byte.
    pub start: u64,
    /// Last byte.
    pub end: u64,
    /// `F_RDLCK`, `F_WRLCK` or `F_UNLCK`.
    pub kind: i32,
    /// Thread of the caller.
    pub thread: u32,
    /// Whether to wait.
    pub wait: bool,
}

impl LockCall {
    fn range(&self) -> LockRange {
        let end = if self.end >= KERNEL_END { u64::MAX } else { self.end + 1 };
        LockRange { start: self.start, end }
    }

    fn whole(&self) -> bool {
        self.start == 0 && self.end >= KERNEL_END
    }

    /// Returns the families in which the lock may be. The kernel allows a record lock only through a file opened for
    /// the corresponding access: any other lock is a `flock`.
    fn spaces(&self, open: OpenFlags) -> &'static [LockSpace] {
        let fits = match self.lock_kind() {
            Some(LockKind::Shared) => open.read,
            Some(LockKind::Exclusive) => open.write,
            None => true,
        };
        match (self.whole(), fits) {
            (false, _) => &[LockSpace::Record],
            (true, false) => &[LockSpace::Flock],
            (true, true) => match system_call(self.thread) {
                Some(libc::SYS_flock) => &[LockSpace::Flock],
                Some(libc::SYS_fcntl) => &[LockSpace::Record],
                _ => &[LockSpace::Record, LockSpace::Flock],
            },
        }
    }

    fn lock_kind(&self) -> Option<LockKind> {
        match self.kind {
            libc::F_RDLCK => Some(LockKind::Shared),
            libc::F_WRLCK => Some(LockKind::Exclusive),
            _ => None,
        }
    }
}

impl WeftFilesystem {
    /// Returns the conflicting lock in the kernel's format.
    pub fn conflicting_lock(&self, fh: FileHandle, call: LockCall) -> Answer<(u64, u64, i32, u32)> {
        Ok(to_kernel(test(&self.handle(fh)?.file, call)?))
    }

    /// Acquires, changes or releases a lock, and replies.
    pub fn lock_for(&self, fh: FileHandle, call: LockCall, reply: ReplyEmpty) {
        let handle = match self.handle(fh) {
            Ok(handle) => handle,
            Err(Refusal(errno)) => return reply.error(errno),
        };
        let answer = move |reply| done(set(&handle.file, &handle.locks, call), reply);
        if !call.wait {
            return answer(reply);
        }
        // A wait may be long and must not block a thread that serves the kernel.
        if self.lock_waits.fetch_add(1, Ordering::AcqRel) >= WAITS_MAX {
            self.lock_waits.fetch_sub(1, Ordering::AcqRel);
            return reply.error(Errno::ENOLCK);
        }
        let waits = self.lock_waits.clone();
        let spawned = std::thread::Builder::new().name("weft-lock".to_owned()).spawn(move || {
            answer(reply);
            waits.fetch_sub(1, Ordering::AcqRel);
        });
        if spawned.is_err() {
            // Dropping the closure dropped the reply, which answered EIO.
            self.lock_waits.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

/// Acquires, changes or releases a lock.
fn set(file: &OpenFile<RealEnv>, held: &HandleLocks, call: LockCall) -> Answer<()> {
    let owner = LockOwner::Process(call.owner);
    let Some(kind) = call.lock_kind() else {
        // An owner holds locks of one kind only.
        for space in [LockSpace::Record, LockSpace::Flock] {
            block_on(file.unlock(space, owner, call.range()))?;
        }
        return Ok(());
    };
    held.owners.lock().insert(call.owner);
    let spaces = call.spaces(file.flags());
    for (taken, &space) in spaces.iter().enumerate() {
        let mut gone = || interrupted(call.thread);
        let wait = if call.wait { Wait::Until(&mut gone) } else { Wait::No };
        let result: Result<(), Error> = block_on(file.lock(space, owner, kind, call.range(), wait));
        if let Err(error) = result {
            for &space in &spaces[..taken] {
                let _ = block_on(file.unlock(space, owner, call.range()));
            }
            return Err(error.into());
        }
    }
    Ok(())
}

/// Returns the conflicting lock.
fn test(file: &OpenFile<RealEnv>, call: LockCall) -> Answer<Option<HeldLock>> {
    let Some(kind) = call.lock_kind() else { return Ok(None) };
    let owner = LockOwner::Process(call.owner);
    Ok(block_on(file.test_lock(LockSpace::Record, owner, kind, call.range()))?)
}

/// Releases the owner's locks on the file, as closing a descriptor does.
pub fn release(file: &OpenFile<RealEnv>, held: &HandleLocks, owner: u64) {
    if !held.owners.lock().remove(&owner) {
        return;
    }
    let all = LockRange { start: 0, end: u64::MAX };
    for space in [LockSpace::Record, LockSpace::Flock] {
        // An unreachable server drops the locks when this session ends.
        let _ = block_on(file.unlock(space, LockOwner::Process(owner), all));
    }
}

/// Converts a lock to the kernel's format: first byte, last byte, kind, process.
fn to_kernel(lock: Option<HeldLock>) -> (u64, u64, i32, u32) {
    match lock {
        None => (0, 0, libc::F_UNLCK, 0),
        Some(lock) => {
            let end = if lock.range.end > KERNEL_END { KERNEL_END } else { lock.range.end - 1 };
            let kind = match lock.kind {
                LockKind::Shared => libc::F_RDLCK,
                LockKind::Exclusive => libc::F_WRLCK,
            };
            (lock.range.start, end, kind, lock.pid)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(start: u64, end: u64) -> LockCall {
        LockCall { owner: 1, start, end, kind: libc::F_WRLCK, thread: 1, wait: false }
    }

    #[test]
    fn ranges_of_the_kernel_end_with_their_last_byte() {
        assert_eq!(call(10, 19).range(), LockRange { start: 10, end: 20 });
        assert_eq!(call(10, KERNEL_END).range(), LockRange { start: 10, end: u64::MAX });
        assert!(call(0, KERNEL_END).whole() && !call(0, 99).whole());
        let reads = OpenFlags { read: true, ..OpenFlags::default() };
        assert_eq!(call(0, KERNEL_END).spaces(reads), [LockSpace::Flock]);
        assert_eq!(call(0, 5).spaces(reads), [LockSpace::Record]);
        let held = HeldLock { kind: LockKind::Shared, range: LockRange { start: 5, end: u64::MAX }, pid: 7 };
        assert_eq!(to_kernel(Some(held)), (5, KERNEL_END, libc::F_RDLCK, 7));
    }
}
