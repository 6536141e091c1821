//! Datafiles whose foreground bytes are durable on the disk.
//!
//! A client's sync of such a datafile needs the SSD alone. Without this record it would also sync what writeback has
//! copied to the disk. These bytes are dirty in the log until writeback syncs them, so the client need not wait for
//! them. A checkpoint that fits the SSD would otherwise wait for the disk.
//!
//! A datafile is durable from a sync of it on the disk, or from the moment at which writeback creates it, until a
//! request changes it on the disk. Nothing is known of a datafile at the start of the server, because its last changes
//! may not have been synced.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use weft_env::mutants::{Mutant, is_seeded};
use weft_store::datafile::DatafileKey;

/// Number of datafiles that are remembered. When there are more, all are forgotten, and their next sync reaches the
/// disk.
const DATAFILES_MAX: usize = 1 << 16;

/// The durable datafiles of one target.
#[derive(Default)]
pub(super) struct DurableDatafiles(Mutex<Datafiles>);

#[derive(Default)]
struct Datafiles {
    last_sync: u64,
    states: BTreeMap<DatafileKey, Durability>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Durability {
    /// This sync is in progress, and nothing has changed since its start.
    Syncing(u64),
    Durable,
}

/// A change of a datafile on the disk. The datafile stops being durable when the change ends, so that a sync which ran
/// beside it does not count.
#[must_use]
pub(super) struct DiskChange<'a> {
    datafiles: &'a DurableDatafiles,
    key: DatafileKey,
}

impl Drop for DiskChange<'_> {
    fn drop(&mut self) {
        if !is_seeded(Mutant::ForgottenChange) {
            self.datafiles.0.lock().states.remove(&self.key);
        }
    }
}

impl DurableDatafiles {
    /// Whether all that requests have changed in the datafile on the disk is durable.
    pub fn contains(&self, key: DatafileKey) -> bool {
        self.0.lock().states.get(&key) == Some(&Durability::Durable)
    }

    /// Whether the datafile was neither synced nor looked for since its last change.
    pub fn is_unknown(&self, key: DatafileKey) -> bool {
        !self.0.lock().states.contains_key(&key)
    }

    /// Begins a change of the datafile on the disk by a request.
    pub fn begin_change(&self, key: DatafileKey) -> DiskChange<'_> {
        DiskChange { datafiles: self, key }
    }

    /// Begins a sync of the datafile on the disk, or a check whether it exists there; returns its number.
    pub fn begin_sync(&self, key: DatafileKey) -> u64 {
        let mut datafiles = self.0.lock();
        datafiles.last_sync += 1;
        let sync = datafiles.last_sync;
        if datafiles.states.get(&key) != Some(&Durability::Durable) {
            datafiles.set(key, Durability::Syncing(sync));
        }
        sync
    }

    /// Ends a sync. The datafile is durable if the sync succeeded, or if it does not exist on the disk, and no change
    /// ended meanwhile.
    pub fn end_sync(&self, key: DatafileKey, sync: u64, is_durable: bool) {
        let mut datafiles = self.0.lock();
        if !is_durable {
            datafiles.states.remove(&key);
        } else if datafiles.states.get(&key) == Some(&Durability::Syncing(sync)) {
            datafiles.set(key, Durability::Durable);
        }
    }
}

impl Datafiles {
    fn set(&mut self, key: DatafileKey, state: Durability) {
        if self.states.len() >= DATAFILES_MAX && !self.states.contains_key(&key) {
            self.states.clear();
        }
        self.states.insert(key, state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_core::{FileId, ObjectId};

    fn key(file: u64) -> DatafileKey {
        DatafileKey::new(FileId(file), ObjectId { component: 0, column: 0 })
    }

    fn synced(datafiles: &DurableDatafiles, key: DatafileKey) {
        let sync = datafiles.begin_sync(key);
        datafiles.end_sync(key, sync, true);
    }

    #[test]
    fn a_datafile_is_durable_from_its_sync_to_its_next_change() {
        let datafiles = DurableDatafiles::default();
        assert!(!datafiles.contains(key(1)));
        let sync = datafiles.begin_sync(key(1));
        assert!(!datafiles.contains(key(1)));
        datafiles.end_sync(key(1), sync, true);
        assert!(datafiles.contains(key(1)) && !datafiles.contains(key(2)));
        let again = datafiles.begin_sync(key(1));
        assert!(datafiles.contains(key(1)), "a second sync changes nothing");
        datafiles.end_sync(key(1), again, true);
        drop(datafiles.begin_change(key(1)));
        assert!(!datafiles.contains(key(1)));
    }

    #[test]
    fn a_sync_beside_a_change_does_not_count() {
        let datafiles = DurableDatafiles::default();
        // The change ends after the sync: its bytes may have reached the disk's memory after the sync had passed.
        let change = datafiles.begin_change(key(1));
        let sync = datafiles.begin_sync(key(1));
        datafiles.end_sync(key(1), sync, true);
        drop(change);
        assert!(!datafiles.contains(key(1)));
        // The change ends during the sync.
        let change = datafiles.begin_change(key(1));
        let sync = datafiles.begin_sync(key(1));
        drop(change);
        datafiles.end_sync(key(1), sync, true);
        assert!(!datafiles.contains(key(1)));
    }

    #[test]
    fn of_two_syncs_the_later_one_counts() {
        let datafiles = DurableDatafiles::default();
        let first = datafiles.begin_sync(key(1));
        let change = datafiles.begin_change(key(1));
        drop(change);
        let second = datafiles.begin_sync(key(1));
        datafiles.end_sync(key(1), first, true);
        assert!(!datafiles.contains(key(1)));
        datafiles.end_sync(key(1), second, true);
        assert!(datafiles.contains(key(1)));
    }

    #[test]
    fn a_failed_sync_leaves_nothing_durable() {
        let datafiles = DurableDatafiles::default();
        synced(&datafiles, key(1));
        let sync = datafiles.begin_sync(key(1));
        datafiles.end_sync(key(1), sync, false);
        assert!(!datafiles.contains(key(1)));
    }

    #[test]
    fn memory_is_bounded() {
        let datafiles = DurableDatafiles::default();
        for file in 0..=DATAFILES_MAX as u64 {
            synced(&datafiles, key(file));
        }
        assert!(!datafiles.contains(key(0)) && datafiles.contains(key(DATAFILES_MAX as u64)));
        assert!(datafiles.0.lock().states.len() <= DATAFILES_MAX);
    }
}
