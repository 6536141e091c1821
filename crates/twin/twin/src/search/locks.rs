//! Model of file locks: which client may hold which lock.

use weft_core::{FileId, Nanos};
use weft_wire::meta::{LockKind, LockSpace};

/// A lock that a client was granted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GrantedLock {
    /// Owner: the client, and the open file or process that the lock belongs to.
    pub owner: (u32, u64),
    /// The locked file.
    pub file: FileId,
    /// Family of the lock.
    pub space: LockSpace,
    /// Shared or exclusive.
    pub kind: LockKind,
    /// First byte, and the byte after the last.
    pub range: (u64, u64),
    /// Whether the owner's connection was disturbed since. The lock may be lost without notice.
    pub in_doubt: bool,
    /// Moment at which a conflicting lock was granted.
    pub lost_at: Option<Nanos>,
}

/// Time for which a client may use a file without noticing that its lock is lost. A client asks the metadata server
/// before it uses a file under a lock that was not confirmed for this long.
const LOST_LOCK_GRACE: Nanos = Nanos::from_s(1);

impl GrantedLock {
    fn excludes(&self, other: &Self) -> bool {
        let overlap = self.range.0 < other.range.1 && other.range.0 < self.range.1;
        let both_shared = self.kind == LockKind::Shared && other.kind == LockKind::Shared;
        (self.file, self.space) == (other.file, other.space)
            && self.owner != other.owner
            && overlap
            && !both_shared
    }
}

/// All locks.
#[derive(Clone, Default, Debug)]
pub struct Locks {
    granted: Vec<GrantedLock>,
}

impl Locks {
    /// Records a granted lock and returns the lock that should have prevented it.
    pub fn grant(&mut self, lock: GrantedLock, now: Nanos) -> Option<GrantedLock> {
        let in_the_way =
            self.granted.iter().find(|granted| granted.excludes(&lock) && !granted.in_doubt).cloned();
        for granted in self.granted.iter_mut().filter(|granted| granted.excludes(&lock)) {
            granted.lost_at.get_or_insert(now);
        }
        self.granted.push(lock);
        in_the_way
    }

    /// A client read or wrote a file from `began` on. Returns a lock on the file that the client had lost long before
    /// that and not given up.
    pub fn used(&self, client: u32, file: FileId, began: Nanos) -> Option<GrantedLock> {
        let lost = |granted: &&GrantedLock| {
            granted.lost_at.is_some_and(|at| at.saturating_add(LOST_LOCK_GRACE) < began)
        };
        self.granted
            .iter()
            .filter(|granted| (granted.owner.0, granted.file) == (client, file))
            .find(lost)
            .cloned()
    }

    /// An owner begins to release a range.
    pub fn released(&mut self, owner: (u32, u64), file: FileId, space: LockSpace, range: (u64, u64)) {
        let mut rest = Vec::new();
        self.granted.retain(|granted| {
            let touched = (granted.owner, granted.file, granted.space) == (owner, file, space)
                && granted.range.0 < range.1
                && range.0 < granted.range.1;
            if touched && granted.range.0 < range.0 {
                rest.push(GrantedLock { range: (granted.range.0, range.0), ..granted.clone() });
            }
            if touched && range.1 < granted.range.1 {
                rest.push(GrantedLock { range: (range.1, granted.range.1), ..granted.clone() });
            }
            !touched
        });
        self.granted.append(&mut rest);
    }

    /// Drops all locks of a client on a file. POSIX releases them at any close of the file by the process.
    pub fn closed(&mut self, client: u32, file: FileId) {
        self.granted.retain(|granted| granted.owner.0 != client || granted.file != file);
    }

    /// A client has died.
    pub fn died(&mut self, client: u32) {
        self.granted.retain(|granted| granted.owner.0 != client);
    }

    /// The metadata connections of these clients are disturbed.
    pub fn doubt(&mut self, of: impl Fn(u32) -> bool) {
        self.granted
            .iter_mut()
            .filter(|granted| of(granted.owner.0))
            .for_each(|granted| granted.in_doubt = true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Nanos = Nanos::from_s(7);

    fn lock(client: u32, kind: LockKind, range: (u64, u64)) -> GrantedLock {
        let (file, space) = (FileId(9), LockSpace::Record);
        GrantedLock { owner: (client, 0), file, space, kind, range, in_doubt: false, lost_at: None }
    }

    #[test]
    fn only_conflicting_locks_exclude_each_other() {
        use LockKind::{Exclusive, Shared};
        let mut locks = Locks::default();
        assert_eq!(locks.grant(lock(1, Exclusive, (0, 10)), NOW), None);
        assert_eq!(locks.grant(lock(1, Exclusive, (5, 15)), NOW), None, "its own");
        assert_eq!(locks.grant(lock(2, Exclusive, (15, 20)), NOW), None);
        assert!(locks.clone().grant(lock(3, Shared, (9, 11)), NOW).is_some());
        locks.released((1, 0), FileId(9), LockSpace::Record, (4, 15));
        assert_eq!(locks.grant(lock(3, Shared, (4, 15)), NOW), None);
        assert_eq!(locks.grant(lock(4, Shared, (4, 15)), NOW), None);
        assert!(locks.clone().grant(lock(4, Shared, (3, 4)), NOW).is_some());
        locks.doubt(|client| client == 1);
        let (file, late) = (FileId(9), Nanos(NOW.0 + LOST_LOCK_GRACE.0 + 1));
        assert_eq!(locks.used(1, file, late), None);
        assert_eq!(locks.grant(lock(4, Shared, (3, 4)), NOW), None);
        assert_eq!(locks.used(1, file, Nanos(late.0 - 1)), None, "the loss may be unnoticed");
        assert!(locks.used(1, file, late).is_some() && locks.used(4, file, late).is_none());
        locks.released((1, 0), file, LockSpace::Record, (0, 4));
        assert_eq!(locks.used(1, file, late), None);
    }
}
