//! Datafiles: names, and the cache of open ones.

use crate::content::Content;
use crate::emulate::{self, Charge};
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use weft_core::{FileId, LocalOffset, ObjectId};
use weft_env::device::DeviceAction;
use weft_env::{Dir, Env};

/// Number of folders over which a target spreads its datafiles.
pub const FAN_OUT: usize = 256;
/// Name of the directory that holds those folders.
pub const OBJECTS: &str = "objects";

/// Identifies a datafile on a target. Keys are ordered as in [`Target::list`](crate::target::Target::list): by folder
/// first.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct DatafileKey {
    /// File that the datafile belongs to.
    pub file: FileId,
    /// Component and column within the file's layout.
    pub object: ObjectId,
}

impl DatafileKey {
    /// Returns the key of a component and column of a file.
    pub const fn new(file: FileId, object: ObjectId) -> Self {
        Self { file, object }
    }

    /// Returns the number of the datafile's folder. File ids count up, so their low bits spread evenly.
    pub const fn fan(self) -> u8 {
        self.file.0 as u8
    }

    /// Returns the datafile's path relative to the target.
    pub fn name(self) -> String {
        let ObjectId { component, column } = self.object;
        format!("{OBJECTS}/{:02x}/{}.{component}.{column}", self.fan(), self.file)
    }

    /// Parses a name in folder `fan`; `None` if it is not the name of a datafile.
    pub fn parse(fan: u8, name: &str) -> Option<Self> {
        let mut parts = name.split('.');
        let (file, component, column) = (parts.next()?, parts.next()?, parts.next()?);
        let key = Self {
            file: FileId(u64::from_str_radix(file, 16).ok()?),
            object: ObjectId { component: component.parse().ok()?, column: column.parse().ok()? },
        };
        // Accept only the canonical form: "+1" and "01" parse too.
        let same = key.fan() == fan && key.name().rsplit_once('/').is_some_and(|(_, last)| last == name);
        same.then_some(key)
    }
}

impl Ord for DatafileKey {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let order = |key: &Self| (key.fan(), key.file, key.object);
        order(self).cmp(&order(other))
    }
}

impl PartialOrd for DatafileKey {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// Returns the path of folder `fan` relative to the target.
pub(crate) fn fan_name(fan: u8) -> String {
    format!("{OBJECTS}/{fan:02x}")
}

/// An open datafile.
pub(crate) struct Datafile<E: Env> {
    pub key: DatafileKey,
    pub content: Content<E>,
    pub names: Arc<Names<E>>,
}

/// Names of a datafile's files, all of which are in one folder.
pub(crate) struct Names<E: Env> {
    dir: E::Dir,
    key: DatafileKey,
    charge: Charge<E>,
    /// True when the folder has been synced since the datafile was opened. The open may have created the names; syncing
    /// an unchanged folder is cheap.
    is_synced: AtomicBool,
}

impl<E: Env> Names<E> {
    /// Returns the names of a datafile that has just been opened.
    pub fn new(dir: &E::Dir, key: DatafileKey, charge: Charge<E>) -> Self {
        Self { dir: dir.clone(), key, charge, is_synced: AtomicBool::new(false) }
    }

    /// Returns the directory that the names are relative to.
    pub fn dir(&self) -> &E::Dir {
        &self.dir
    }

    /// Returns true if the names survive a loss of power.
    pub fn are_synced(&self) -> bool {
        self.is_synced.load(Ordering::Acquire)
    }

    /// Makes the names survive a loss of power.
    pub async fn sync(&self) -> io::Result<()> {
        if self.are_synced() {
            return Ok(());
        }
        self.sync_again().await
    }

    /// Makes names that have changed since the datafile was opened survive a loss of power.
    pub async fn sync_again(&self) -> io::Result<()> {
        let in_flight = self.charge.begin(DeviceAction::SyncNames, LocalOffset(0), 0);
        self.dir.sync(&fan_name(self.key.fan())).await?;
        emulate::finish(in_flight).await;
        self.is_synced.store(true, Ordering::Release);
        Ok(())
    }
}

/// A cache of at most `capacity` open datafiles with CLOCK eviction.
///
/// A datafile in use is never evicted, because its range locks must be the only ones.
pub(crate) struct OpenDatafiles<E: Env> {
    capacity: usize,
    inner: RwLock<Inner<E>>,
}

struct Inner<E: Env> {
    slot_of: BTreeMap<DatafileKey, usize>,
    slots: Vec<Option<Slot<E>>>,
    free: Vec<usize>,
    /// Clock hand: index of the next slot to consider for eviction.
    hand: usize,
}

struct Slot<E: Env> {
    datafile: Arc<Datafile<E>>,
    used: AtomicBool,
}

impl<E: Env> OpenDatafiles<E> {
    pub fn new(capacity: usize) -> Self {
        assert!(capacity > 0, "capacity of at least one open datafile");
        let inner = Inner { slot_of: BTreeMap::new(), slots: Vec::new(), free: Vec::new(), hand: 0 };
        Self { capacity, inner: RwLock::new(inner) }
    }

    pub fn get(&self, key: DatafileKey) -> Option<Arc<Datafile<E>>> {
        let inner = self.inner.read();
        let slot = inner.slots[*inner.slot_of.get(&key)?].as_ref().expect("a named slot is full");
        slot.used.store(true, Ordering::Relaxed);
        Some(Arc::clone(&slot.datafile))
    }

    /// Inserts `datafile` unless its key is present; returns the cached one.
    pub fn insert(&self, datafile: Datafile<E>) -> Arc<Datafile<E>> {
        let mut dropped = Vec::new(); // Closed after the lock is released.
        let mut inner = self.inner.write();
        if let Some(&at) = inner.slot_of.get(&datafile.key) {
            let slot = inner.slots[at].as_ref().expect("a named slot is full");
            return Arc::clone(&slot.datafile);
        }
        while inner.slot_of.len() >= self.capacity {
            match inner.evict() {
                Some(old) => dropped.push(old),
                None => break, // All are in use; the number of connections bounds them.
            }
        }
        let datafile = Arc::new(datafile);
        let slot = Slot { datafile: Arc::clone(&datafile), used: AtomicBool::new(true) };
        let at = match inner.free.pop() {
            Some(at) => at,
            None => {
                inner.slots.push(None);
                inner.slots.len() - 1
            }
        };
        inner.slots[at] = Some(slot);
        inner.slot_of.insert(datafile.key, at);
        drop(inner);
        datafile
    }

    /// Inserts `datafile`, replacing one with the same key.
    pub fn replace(&self, datafile: Datafile<E>) {
        let key = datafile.key;
        let mut inner = self.inner.write();
        let Some(&at) = inner.slot_of.get(&key) else {
            drop(inner);
            self.insert(datafile);
            return;
        };
        let slot = Slot { datafile: Arc::new(datafile), used: AtomicBool::new(true) };
        let replaced = inner.slots[at].replace(slot);
        drop(inner); // Released before the replaced file is closed.
        drop(replaced);
    }

    pub fn remove(&self, key: DatafileKey) {
        let mut inner = self.inner.write();
        let removed = inner.slot_of.remove(&key).and_then(|at| {
            inner.free.push(at);
            inner.slots[at].take()
        });
        drop(inner);
        drop(removed);
    }

    pub fn len(&self) -> usize {
        self.inner.read().slot_of.len()
    }
}

impl<E: Env> Inner<E> {
    fn evict(&mut self) -> Option<Slot<E>> {
        for _ in 0..self.slots.len() * 2 {
            let at = self.hand;
            self.hand = (self.hand + 1) % self.slots.len();
            let Some(slot) = &self.slots[at] else { continue };
            if slot.used.swap(false, Ordering::Relaxed) || Arc::strong_count(&slot.datafile) > 1 {
                continue;
            }
            let slot = self.slots[at].take().expect("seen above");
            self.slot_of.remove(&slot.datafile.key);
            self.free.push(at);
            return Some(slot);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip_and_other_names_are_rejected() {
        let key = DatafileKey::new(FileId(0xabcd), ObjectId { component: 1, column: 12 });
        assert_eq!(key.name(), "objects/cd/000000000000abcd.1.12");
        assert_eq!(DatafileKey::parse(0xcd, "000000000000abcd.1.12"), Some(key));
        for bad in [
            "000000000000abcd.1",
            "abcd.1.12",
            "000000000000abcd.01.12",
            "000000000000abcd.1.12.3",
            "000000000000ABCD.1.12",
            "000000000000abcd.1.65536",
            "",
        ] {
            assert_eq!(DatafileKey::parse(0xcd, bad), None, "{bad}");
        }
        assert_eq!(DatafileKey::parse(0xce, "000000000000abcd.1.12"), None, "another folder");
    }
}
