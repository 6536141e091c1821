//! Opens and locks of this session, to be reclaimed after the metadata server has lost them.

use parking_lot::{Mutex, RwLock};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use weft_core::FileId;
use weft_wire::hello::Identity;
use weft_wire::meta::{
    HandleId, LockOwner, LockRange, LockSpace, OpenFlags, ReclaimLock, ReclaimOpen, Redirected,
};
use weft_wire::{Capability, WalkProof};

/// One open of the session.
#[derive(Debug)]
pub(crate) struct OpenRecord {
    pub(crate) handle: HandleId,
    pub(crate) file: FileId,
    /// Proof that this session reached the file by a path.
    pub(crate) proof: WalkProof,
    /// User that the file was opened for, if that is not this client's own.
    pub(crate) identity: Option<Arc<Identity>>,
    pub(crate) flags: OpenFlags,
    pub(crate) cap: RwLock<Option<Capability>>,
    /// Whether the file was gone when the open was reclaimed.
    pub(crate) lost: AtomicBool,
    /// Whether the kernel may cache its pages.
    pub(crate) caching: AtomicBool,
    /// Whether requests go to the file's replica.
    pub(crate) redirected: Mutex<Redirected>,
}

impl OpenRecord {
    pub(crate) fn to_reclaim(&self) -> ReclaimOpen {
        ReclaimOpen {
            handle: self.handle,
            file: self.file,
            flags: self.flags,
            proof: Some(self.proof),
            cap: *self.cap.read(),
            caching: self.caching.load(Relaxed),
            redirected: *self.redirected.lock(),
        }
    }
}

/// Opens for one user.
pub(crate) type OpensOf = (Option<Arc<Identity>>, Vec<ReclaimOpen>);

/// All opens and locks of a session.
#[derive(Default, Debug)]
pub(crate) struct Registry {
    opens: Mutex<BTreeMap<HandleId, Arc<OpenRecord>>>,
    locks: Mutex<Locks>,
    /// Whether `locks` contains any.
    any_locks: AtomicBool,
}

#[derive(Default, Debug)]
struct Locks {
    held: Vec<ReclaimLock>,
    /// Locks that could not be reclaimed, and that their owners have not released yet.
    lost: Vec<ReclaimLock>,
}

/// State of this session's locks on a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LocksOn {
    None,
    Held,
    /// At least one was lost, and another session may have held it.
    Lost,
}

impl Registry {
    /// Changes the locks and updates `any_locks`.
    fn change(&self, change: impl FnOnce(&mut Locks)) {
        let mut locks = self.locks.lock();
        change(&mut locks);
        self.any_locks.store(!(locks.held.is_empty() && locks.lost.is_empty()), Relaxed);
    }

    /// Returns whether there is any lock, held or lost.
    #[inline]
    pub(crate) fn has_locks(&self) -> bool {
        self.any_locks.load(Relaxed)
    }

    pub(crate) fn locks_on(&self, file: FileId) -> LocksOn {
        let locks = self.locks.lock();
        let on_file = |lock: &ReclaimLock| lock.file == file;
        if locks.lost.iter().any(on_file) {
            LocksOn::Lost
        } else if locks.held.iter().any(on_file) {
            LocksOn::Held
        } else {
            LocksOn::None
        }
    }

    pub(crate) fn opened(&self, record: &Arc<OpenRecord>) {
        self.opens.lock().insert(record.handle, Arc::clone(record));
    }

    /// Removes an open, and the locks that end with it.
    pub(crate) fn closed(&self, handle: HandleId) {
        let gone = {
            let mut opens = self.opens.lock();
            let closed = opens.remove(&handle).map(|record| record.file);
            closed.filter(|file| opens.values().all(|record| record.file != *file))
        };
        // The last close of a file by this session ends its locks on the file.
        let stays = |lock: &ReclaimLock| lock.owner != LockOwner::Handle(handle) && Some(lock.file) != gone;
        if self.has_locks() {
            self.change(|locks| {
                locks.held.retain(stays);
                locks.lost.retain(stays);
            });
        }
    }

    pub(crate) fn locked(&self, lock: ReclaimLock) {
        self.change(|locks| {
            for part in [&mut locks.held, &mut locks.lost] {
                remove_range(part, lock.file, lock.space, lock.owner, lock.range);
            }
            locks.held.push(lock);
        });
    }

    pub(crate) fn unlocked(&self, file: FileId, space: LockSpace, owner: LockOwner, range: LockRange) {
        self.change(|locks| {
            for part in [&mut locks.held, &mut locks.lost] {
                remove_range(part, file, space, owner, range);
            }
        });
    }

    /// Returns the first lock of `owner` that overlaps `range`, together with those of its kind that adjoin it.
    pub(crate) fn held_lock(
        &self,
        file: FileId,
        space: LockSpace,
        owner: LockOwner,
        range: LockRange,
    ) -> Option<ReclaimLock> {
        let locks = self.locks.lock();
        let is_of = |lock: &&ReclaimLock| (lock.file, lock.space, lock.owner) == (file, space, owner);
        let mut own: Vec<&ReclaimLock> = locks.held.iter().filter(is_of).collect();
        own.sort_by_key(|lock| lock.range.start);
        let mut joined: Option<ReclaimLock> = None;
        for lock in own {
            match &mut joined {
                Some(before) if before.range.end == lock.range.start && before.kind == lock.kind => {
                    before.range.end = lock.range.end;
                }
                Some(before) if before.range.end > range.start => break,
                _ => joined = Some(lock.clone()),
            }
        }
        joined.filter(|lock| lock.range.start < range.end && range.start < lock.range.end)
    }

    /// Returns all opens, grouped by user, and all locks that are held.
    pub(crate) fn snapshot(&self) -> (Vec<OpensOf>, Vec<ReclaimLock>) {
        let mut by_user: Vec<OpensOf> = Vec::new();
        for record in self.opens.lock().values() {
            let open = record.to_reclaim();
            match by_user.iter_mut().find(|(identity, _)| *identity == record.identity) {
                Some((_, opens)) => opens.push(open),
                None => by_user.push((record.identity.clone(), vec![open])),
            }
        }
        (by_user, self.locks.lock().held.clone())
    }

    /// Marks the opens and locks that could not be reclaimed as lost.
    pub(crate) fn lost(&self, opens: &[HandleId], locks: &[ReclaimLock]) {
        {
            let mut all = self.opens.lock();
            for handle in opens {
                if let Some(record) = all.remove(handle) {
                    record.lost.store(true, Relaxed);
                }
            }
        }
        self.change(|all| {
            let (lost, held) =
                std::mem::take(&mut all.held).into_iter().partition(|lock| locks.contains(lock));
            all.held = held;
            all.lost.extend::<Vec<_>>(lost);
        });
    }

    /// Marks opens for which other clients' writes are no longer reported.
    pub(crate) fn uncached(&self, handles: &[HandleId]) {
        let opens = self.opens.lock();
        for record in handles.iter().filter_map(|handle| opens.get(handle)) {
            record.caching.store(false, Relaxed);
        }
    }
}

/// Removes `range` from the locks of `owner`.
fn remove_range(
    locks: &mut Vec<ReclaimLock>,
    file: FileId,
    space: LockSpace,
    owner: LockOwner,
    range: LockRange,
) {
    let mut rest = Vec::new();
    locks.retain(|lock| {
        let touched = (lock.file, lock.space, lock.owner) == (file, space, owner)
            && lock.range.start < range.end
            && range.start < lock.range.end;
        if touched && lock.range.start < range.start {
            rest.push(with_range(lock, lock.range.start, range.start));
        }
        if touched && range.end < lock.range.end {
            rest.push(with_range(lock, range.end, lock.range.end));
        }
        !touched
    });
    locks.append(&mut rest);
}

fn with_range(lock: &ReclaimLock, start: u64, end: u64) -> ReclaimLock {
    ReclaimLock { range: LockRange { start, end }, ..lock.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_wire::meta::LockKind;

    fn lock(owner: u64, start: u64, end: u64) -> ReclaimLock {
        ReclaimLock {
            file: FileId(1),
            space: LockSpace::Record,
            owner: LockOwner::Process(owner),
            kind: LockKind::Exclusive,
            range: LockRange { start, end },
            pid: 0,
        }
    }

    #[test]
    fn unlocking_the_middle_keeps_both_ends_and_other_owners_locks() {
        let registry = Registry::default();
        registry.locked(lock(1, 0, 100));
        registry.locked(lock(2, 200, 300));
        let range = LockRange { start: 40, end: 250 };
        registry.unlocked(FileId(1), LockSpace::Record, LockOwner::Process(1), range);
        let mut left = registry.snapshot().1;
        left.sort_by_key(|lock| lock.range.start);
        assert_eq!(left, [lock(1, 0, 40), lock(2, 200, 300)]);
        registry.locked(lock(1, 10, 20));
        let mut left = registry.snapshot().1;
        left.sort_by_key(|lock| lock.range.start);
        assert_eq!(left, [lock(1, 0, 10), lock(1, 10, 20), lock(1, 20, 40), lock(2, 200, 300)]);
    }

    #[test]
    fn the_first_own_lock_in_a_range_includes_adjoining_ones_of_its_kind() {
        let registry = Registry::default();
        for (start, end) in [(30, 40), (0, 10), (10, 20), (50, 60)] {
            registry.locked(lock(1, start, end));
        }
        registry.locked(ReclaimLock { kind: LockKind::Shared, ..lock(1, 20, 30) });
        let found = |start, end| {
            let range = LockRange { start, end };
            registry.held_lock(FileId(1), LockSpace::Record, LockOwner::Process(1), range)
        };
        let range_of = |start, end| found(start, end).map(|lock| (lock.range.start, lock.range.end));
        assert_eq!(range_of(15, 16), Some((0, 20)));
        assert_eq!(range_of(20, 100), Some((20, 30)));
        assert_eq!(range_of(35, 100), Some((30, 40)));
        assert_eq!(range_of(40, 50), None);
        assert_eq!(range_of(40, 51), Some((50, 60)));
        assert_eq!(range_of(60, u64::MAX), None);
        let others = registry.held_lock(
            FileId(1),
            LockSpace::Record,
            LockOwner::Process(2),
            LockRange { start: 0, end: u64::MAX },
        );
        assert_eq!(others, None);
    }

    #[test]
    fn a_lost_lock_is_remembered_until_its_owner_releases_or_replaces_it() {
        let registry = Registry::default();
        assert!(!registry.has_locks());
        registry.locked(lock(1, 0, 100));
        registry.locked(lock(2, 200, 300));
        assert_eq!(registry.locks_on(FileId(1)), LocksOn::Held);
        registry.lost(&[], &[lock(1, 0, 100), lock(2, 200, 300)]);
        assert_eq!(
            (registry.locks_on(FileId(1)), registry.locks_on(FileId(2))),
            (LocksOn::Lost, LocksOn::None)
        );
        assert!(registry.snapshot().1.is_empty(), "it is not reclaimed again");
        registry.unlocked(
            FileId(1),
            LockSpace::Record,
            LockOwner::Process(1),
            LockRange { start: 0, end: u64::MAX },
        );
        assert_eq!(registry.locks_on(FileId(1)), LocksOn::Lost, "the other owner's");
        registry.locked(lock(2, 200, 300));
        assert_eq!(registry.locks_on(FileId(1)), LocksOn::Held);
        registry.unlocked(
            FileId(1),
            LockSpace::Record,
            LockOwner::Process(2),
            LockRange { start: 0, end: u64::MAX },
        );
        assert!(!registry.has_locks());
    }
}
