//! Who holds which lock, as far as can be said.

use weft_core::{FileId, Nanos};
use weft_wire::meta::{LockKind, LockSpace};

/// A lock that somebody was told he has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Held {
    /// Whose: a client, and one of its open files where the lock belongs to that.
    pub owner: (u32, u64),
    /// Of which file.
    pub file: FileId,
    /// In which family.
    pub space: LockSpace,
    /// Shared or exclusive.
    pub kind: LockKind,
    /// First byte and one past the last.
    pub range: (u64, u64),
    /// His connection to the metadata service was in trouble since: he may have lost it without being told.
    pub in_doubt: bool,
    /// Since when somebody else has, or has had, what it excludes.
    pub lost_at: Option<Nanos>,
}

/// Who has lost a lock may use the file for so long without noticing: the client asks the metadata service before it
/// uses a file under a lock of which it has not heard for this long.
const UNNOTICED: Nanos = Nanos::from_s(1);

impl Held {
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
    held: Vec<Held>,
}

impl Locks {
    /// Somebody got a lock; the one that should have kept it from him, if any.
    pub fn granted(&mut self, lock: Held, now: Nanos) -> Option<Held> {
        let in_the_way = self.held.iter().find(|held| held.excludes(&lock) && !held.in_doubt).cloned();
        for held in self.held.iter_mut().filter(|held| held.excludes(&lock)) {
            held.lost_at.get_or_insert(now);
        }
        self.held.push(lock);
        in_the_way
    }

    /// A client read or wrote a file, from `began` on: a lock on it that he had lost long before and not given up, if
    /// any.
    pub fn used(&self, client: u32, file: FileId, began: Nanos) -> Option<Held> {
        let lost = |held: &&Held| held.lost_at.is_some_and(|at| at.saturating_add(UNNOTICED) < began);
        self.held.iter().filter(|held| (held.owner.0, held.file) == (client, file)).find(lost).cloned()
    }

    /// Somebody begins to give up a range.
    pub fn released(&mut self, owner: (u32, u64), file: FileId, space: LockSpace, range: (u64, u64)) {
        let mut rest = Vec::new();
        self.held.retain(|held| {
            let touched = (held.owner, held.file, held.space) == (owner, file, space)
                && held.range.0 < range.1
                && range.0 < held.range.1;
            if touched && held.range.0 < range.0 {
                rest.push(Held { range: (held.range.0, range.0), ..held.clone() });
            }
            if touched && range.1 < held.range.1 {
                rest.push(Held { range: (range.1, held.range.1), ..held.clone() });
            }
            !touched
        });
        self.held.append(&mut rest);
    }

    /// All locks of a client on a file go: POSIX lets them go with any of its closes.
    pub fn closed(&mut self, client: u32, file: FileId) {
        self.held.retain(|held| held.owner.0 != client || held.file != file);
    }

    /// A client has died.
    pub fn died(&mut self, client: u32) {
        self.held.retain(|held| held.owner.0 != client);
    }

    /// The connections of these clients to the metadata service are in trouble.
    pub fn doubt(&mut self, of: impl Fn(u32) -> bool) {
        self.held.iter_mut().filter(|held| of(held.owner.0)).for_each(|held| held.in_doubt = true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Nanos = Nanos::from_s(7);

    fn lock(client: u32, kind: LockKind, range: (u64, u64)) -> Held {
        let (file, space) = (FileId(9), LockSpace::Record);
        Held { owner: (client, 0), file, space, kind, range, in_doubt: false, lost_at: None }
    }

    #[test]
    fn only_locks_that_exclude_each_other_are_in_the_way() {
        use LockKind::{Exclusive, Shared};
        let mut locks = Locks::default();
        assert_eq!(locks.granted(lock(1, Exclusive, (0, 10)), NOW), None);
        assert_eq!(locks.granted(lock(1, Exclusive, (5, 15)), NOW), None, "his own");
        assert_eq!(locks.granted(lock(2, Exclusive, (15, 20)), NOW), None);
        assert!(locks.clone().granted(lock(3, Shared, (9, 11)), NOW).is_some());
        locks.released((1, 0), FileId(9), LockSpace::Record, (4, 15));
        assert_eq!(locks.granted(lock(3, Shared, (4, 15)), NOW), None);
        assert_eq!(locks.granted(lock(4, Shared, (4, 15)), NOW), None);
        assert!(locks.clone().granted(lock(4, Shared, (3, 4)), NOW).is_some());
        locks.doubt(|client| client == 1);
        let (file, late) = (FileId(9), Nanos(NOW.0 + UNNOTICED.0 + 1));
        assert_eq!(locks.used(1, file, late), None);
        assert_eq!(locks.granted(lock(4, Shared, (3, 4)), NOW), None);
        assert_eq!(locks.used(1, file, Nanos(late.0 - 1)), None, "he need not have noticed");
        assert!(locks.used(1, file, late).is_some() && locks.used(4, file, late).is_none());
        locks.released((1, 0), file, LockSpace::Record, (0, 4));
        assert_eq!(locks.used(1, file, late), None);
    }
}
