//! Owners of locks, by the open files through which they got them.
//!
//! The kernel names an owner by a number that it derives from an address. It uses the same number again, for another process or
//! another open file, as soon as the first one is gone. But it reports the end of an open file later (`RELEASE`), without waiting
//! for the reply. Therefore:
//!
//! | lock | owner | ends |
//! | --- | --- | --- |
//! | `flock`; record lock of an open file | the open file, whose number is never used again | when the open file ends |
//! | record lock of a process | the kernel's number | when the process closes any descriptor of the file (`FLUSH`), for which the kernel waits |
//! | record lock of an unknown owner | the kernel's number | as of a process; also when the last open file ends through which the owner got it |

use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use weft_core::FileId;

/// Owners of locks.
#[derive(Default)]
pub struct LockOwners(Mutex<Owners>);

#[derive(Default)]
struct Owners {
    /// Owners of record locks by the kernel's numbers, and the open files through which they got them.
    processes: BTreeMap<(FileId, u64), BTreeSet<u64>>,
    /// Open files that own locks, and whether a descriptor was closed since they got the last one.
    open_files: BTreeMap<(FileId, u64), bool>,
}

impl LockOwners {
    /// Registers that a process asks for a lock on `file` through the open file `handle`.
    pub fn process_asks(&self, file: FileId, owner: u64, handle: u64) {
        self.0.lock().processes.entry((file, owner)).or_default().insert(handle);
    }

    /// Registers that an open file asks for a lock.
    pub fn open_file_asks(&self, file: FileId, handle: u64) {
        self.0.lock().open_files.insert((file, handle), false);
    }

    /// Registers that the process `owner` has closed a descriptor of the open file `handle`. Returns whether the process may have
    /// locks on the file, which end.
    pub fn flushed(&self, file: FileId, owner: u64, handle: u64) -> bool {
        let mut owners = self.0.lock();
        if let Some(is_flushed) = owners.open_files.get_mut(&(file, handle)) {
            *is_flushed = true;
        }
        owners.processes.remove(&(file, owner)).is_some()
    }

    /// Whether an open file with locks on `file` may have ended already.
    pub fn may_be_ending(&self, file: FileId) -> bool {
        let owners = self.0.lock();
        owners.open_files.range((file, 0)..=(file, u64::MAX)).any(|(_, is_flushed)| *is_flushed)
    }

    /// Registers the end of an open file. Returns the processes whose locks end with it, and whether its own do.
    pub fn ended(&self, file: FileId, handle: u64) -> (Vec<u64>, bool) {
        let mut owners = self.0.lock();
        let of_file = owners.processes.range_mut((file, 0)..=(file, u64::MAX));
        let ended: Vec<u64> = of_file
            .filter_map(|(&(_, owner), handles)| {
                (handles.remove(&handle) && handles.is_empty()).then_some(owner)
            })
            .collect();
        for owner in &ended {
            owners.processes.remove(&(file, *owner));
        }
        (ended, owners.open_files.remove(&(file, handle)).is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: FileId = FileId(5);

    #[test]
    fn any_close_of_the_process_ends_its_locks_once() {
        let owners = LockOwners::default();
        owners.process_asks(FILE, 1, 10);
        owners.process_asks(FILE, 2, 10);
        assert!(!owners.flushed(FileId(6), 1, 20), "another file");
        assert!(owners.flushed(FILE, 1, 11), "through any open file");
        assert!(!owners.flushed(FILE, 1, 10));
        assert_eq!(owners.ended(FILE, 10), (vec![2], false));
        assert_eq!(owners.ended(FILE, 10), (vec![], false));
    }

    #[test]
    fn a_late_end_of_an_open_file_keeps_the_locks_of_a_later_owner_with_its_number() {
        let owners = LockOwners::default();
        owners.process_asks(FILE, 1, 10);
        assert!(owners.flushed(FILE, 1, 10));
        owners.process_asks(FILE, 1, 11);
        assert_eq!(owners.ended(FILE, 10), (vec![], false), "a process");
        owners.process_asks(FILE, 2, 10);
        owners.process_asks(FILE, 2, 12);
        assert_eq!(owners.ended(FILE, 10), (vec![], false), "an unknown owner");
        assert_eq!(owners.ended(FILE, 12), (vec![2], false));
    }

    #[test]
    fn an_open_file_may_end_after_a_descriptor_of_it_was_closed() {
        let owners = LockOwners::default();
        owners.open_file_asks(FILE, 10);
        assert!(!owners.flushed(FILE, 1, 11) && !owners.may_be_ending(FILE), "another open file");
        assert!(!owners.flushed(FILE, 1, 10) && owners.may_be_ending(FILE));
        assert!(!owners.may_be_ending(FileId(4)) && !owners.may_be_ending(FileId(6)));
        owners.open_file_asks(FILE, 10);
        assert!(!owners.may_be_ending(FILE), "another process uses it");
        assert_eq!(owners.ended(FILE, 10), (vec![], true));
        assert_eq!(owners.ended(FILE, 10), (vec![], false));
    }
}
