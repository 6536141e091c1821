//! Locks of processes behind the mount; see [`crate::lock_call`] and [`crate::lock_owners`].

use crate::answer::{Answer, Refusal, done};
use crate::caller::interrupted;
use crate::filesystem::WeftFilesystem;
use crate::lock_call::{Family, KERNEL_END, LockCall};
use crate::lock_owners::LockOwners;
use crate::open::OpenHandle;
use fuser::{Errno, FileHandle, ReplyEmpty};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use weft_client::{OpenFile, Wait};
use weft_env::real::{RealEnv, block_on};
use weft_wire::meta::{HeldLock, LockKind, LockOwner, LockRange, LockSpace};

/// Maximum number of concurrent waits; each needs a thread.
const WAITS_MAX: u32 = 256;
const WHOLE: LockRange = LockRange { start: 0, end: u64::MAX };

impl WeftFilesystem {
    /// Returns the conflicting lock in the kernel's format.
    pub fn conflicting_lock(&self, fh: FileHandle, call: LockCall) -> Answer<(u64, u64, i32, u32)> {
        let file = &self.handle(fh)?.file;
        let may_end = self.may_be_ending(file);
        let mut holder = test(file, call)?;
        if may_end && holder.is_some_and(|holder| holder.is_of_open_file) {
            self.releases.settle();
            holder = test(file, call)?;
        }
        Ok(to_kernel(holder))
    }

    /// Acquires, changes or releases a lock, and replies.
    pub fn lock_for(&self, fh: FileHandle, call: LockCall, reply: ReplyEmpty) {
        let handle = match self.handle(fh) {
            Ok(handle) => handle,
            Err(Refusal(errno)) => return reply.error(errno),
        };
        if call.lock_kind().is_none() {
            // The next holder must see the bytes that were stored under the lock.
            let (file, owners) = (handle.file.file(), Arc::clone(&self.lock_owners));
            let then = move || done(set(&handle, fh, &owners, call), reply);
            return self.pages.reporter.then(file, Box::new(then));
        }
        if !call.wait {
            let may_end = self.may_be_ending(&handle.file);
            let mut result = set(&handle, fh, &self.lock_owners, call);
            if may_end && matches!(result, Err(Refusal(Errno::EAGAIN))) {
                self.releases.settle();
                result = set(&handle, fh, &self.lock_owners, call);
            }
            return done(result, reply);
        }
        // A wait may be long and must not block a thread that serves the kernel.
        if self.lock_waits.fetch_add(1, Ordering::AcqRel) >= WAITS_MAX {
            self.lock_waits.fetch_sub(1, Ordering::AcqRel);
            return reply.error(Errno::ENOLCK);
        }
        let (waits, owners) = (self.lock_waits.clone(), Arc::clone(&self.lock_owners));
        let spawned = std::thread::Builder::new().name("weft-lock".to_owned()).spawn(move || {
            done(set(&handle, fh, &owners, call), reply);
            waits.fetch_sub(1, Ordering::AcqRel);
        });
        if spawned.is_err() {
            // Dropping the closure dropped the reply, which answered EIO.
            self.lock_waits.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Whether the kernel may have reported the end of an open file with locks that another thread has not handled. To be asked
    /// before the request that could meet such a lock.
    fn may_be_ending(&self, file: &OpenFile<RealEnv>) -> bool {
        self.lock_owners.may_be_ending(file.file()) || self.releases.are_in_progress()
    }

    /// Releases the locks that end with an open file.
    pub fn release_locks_with(&self, file: &OpenFile<RealEnv>, fh: FileHandle) {
        let (processes, owns_locks) = self.lock_owners.ended(file.file(), fh.0);
        for owner in processes {
            let _ = block_on(file.unlock(LockSpace::Record, LockOwner::Process(owner), WHOLE));
        }
        if owns_locks {
            for space in [LockSpace::Record, LockSpace::Flock] {
                let _ = block_on(file.unlock(space, LockOwner::Handle(file.handle()), WHOLE));
            }
        }
    }
}

/// Releases record locks of a process that has closed a descriptor.
pub fn release_locks_of(owners: &LockOwners, file: &OpenFile<RealEnv>, fh: FileHandle, owner: u64) {
    if owners.flushed(file.file(), owner, fh.0) {
        // An unreachable server drops the locks when this session ends.
        let _ = block_on(file.unlock(LockSpace::Record, LockOwner::Process(owner), WHOLE));
    }
}

/// Returns family and owner of a lock as the metadata service knows them.
fn place(file: &OpenFile<RealEnv>, call: LockCall) -> (LockSpace, LockOwner) {
    match call.family {
        Family::Flock => (LockSpace::Flock, LockOwner::Handle(file.handle())),
        Family::OpenFile => (LockSpace::Record, LockOwner::Handle(file.handle())),
        Family::Process => (LockSpace::Record, LockOwner::Process(call.owner)),
    }
}

/// Acquires, changes or releases a lock.
fn set(handle: &OpenHandle, fh: FileHandle, owners: &LockOwners, call: LockCall) -> Answer<()> {
    let file = &handle.file;
    let (space, owner) = place(file, call);
    let Some(kind) = call.lock_kind() else { return Ok(block_on(file.unlock(space, owner, call.range()))?) };
    let register = || match call.family {
        Family::Process => owners.process_asks(file.file(), call.owner, fh.0),
        Family::Flock | Family::OpenFile => owners.open_file_asks(file.file(), fh.0),
    };
    register();
    let mut gone = || interrupted(call.thread);
    let wait = if call.wait { Wait::Until(&mut gone) } else { Wait::No };
    block_on(file.lock_for(call.process, space, owner, kind, call.range(), wait))?;
    // During a wait, another thread of the process may have closed a descriptor of the file.
    register();
    Ok(())
}

/// Returns the conflicting lock.
fn test(file: &OpenFile<RealEnv>, call: LockCall) -> Answer<Option<HeldLock>> {
    let Some(kind) = call.lock_kind() else { return Ok(None) };
    let (space, owner) = place(file, call);
    Ok(block_on(file.test_lock(space, owner, kind, call.range()))?)
}

/// Converts a lock to the kernel's format: first byte, last byte, kind, process. The kernel takes no number for "no process" but 0.
fn to_kernel(lock: Option<HeldLock>) -> (u64, u64, i32, u32) {
    match lock {
        None => (0, 0, libc::F_UNLCK, 0),
        Some(lock) => {
            let end = if lock.range.end > KERNEL_END { KERNEL_END } else { lock.range.end - 1 };
            let kind = match lock.kind {
                LockKind::Shared => libc::F_RDLCK,
                LockKind::Exclusive => libc::F_WRLCK,
            };
            (lock.range.start, end, kind, if lock.is_of_open_file { 0 } else { lock.pid })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_have_the_kernels_format() {
        let range = LockRange { start: 5, end: u64::MAX };
        let held = HeldLock { kind: LockKind::Shared, range, pid: 7, is_of_open_file: false };
        assert_eq!(to_kernel(Some(held)), (5, KERNEL_END, libc::F_RDLCK, 7));
        let held = HeldLock { is_of_open_file: true, range: LockRange { start: 0, end: 1 }, ..held };
        assert_eq!(to_kernel(Some(held)), (0, 0, libc::F_RDLCK, 0));
        assert_eq!(to_kernel(None), (0, 0, libc::F_UNLCK, 0));
    }
}
