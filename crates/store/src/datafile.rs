//! Datafiles: their names, and those that are open.

use crate::integrity::BlockSums;
use crate::range_lock::RangeLocks;
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use weft_core::{FileId, ObjectId};
use weft_env::{Env, File, FileMeta};

/// Number of folders over which a target spreads its datafiles.
pub const FAN_OUT: usize = 256;
/// The folder of those folders.
pub const OBJECTS: &str = "objects";

/// Which datafile on a target. The order is that of [`Target::list`](crate::target::Target::list): by folder first.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct DatafileKey {
    /// The file that it is a part of.
    pub file: FileId,
    /// Which part.
    pub object: ObjectId,
}

impl DatafileKey {
    /// Of this part of this file.
    pub const fn new(file: FileId, object: ObjectId) -> Self {
        Self { file, object }
    }

    /// The number of its folder. File ids count up, so their low bits spread evenly.
    pub const fn fan(self) -> u8 {
        self.file.0 as u8
    }

    /// Its name relative to the target.
    pub fn name(self) -> String {
        let ObjectId { component, column } = self.object;
        format!("{OBJECTS}/{:02x}/{}.{component}.{column}", self.fan(), self.file)
    }

    /// From its name in folder `fan`; `None` when that is the name of no datafile.
    pub fn parse(fan: u8, name: &str) -> Option<Self> {
        let mut parts = name.split('.');
        let (file, component, column) = (parts.next()?, parts.next()?, parts.next()?);
        let key = Self {
            file: FileId(u64::from_str_radix(file, 16).ok()?),
            object: ObjectId { component: component.parse().ok()?, column: column.parse().ok()? },
        };
        // Only the one way of writing it: "+1" and "01" parse too.
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

/// The name of folder `fan` relative to the target.
pub(crate) fn fan_name(fan: u8) -> String {
    format!("{OBJECTS}/{fan:02x}")
}

/// An open datafile.
pub(crate) struct Datafile<E: Env> {
    pub key: DatafileKey,
    pub file: E::File,
    /// Whether the folder has been synced since this was opened. It may have been made by this open or not long
    /// before it; nobody remembers which, and syncing a folder in which nothing changed is cheap.
    pub name_synced: AtomicBool,
    /// Present with the direct module.
    pub direct: Option<DirectParts<E>>,
    /// Present when it has checksums.
    pub sums: Option<BlockSums<E>>,
}

impl<E: Env> Datafile<E> {
    /// Length, room (with that of the checksums) and time of change.
    pub async fn meta(&self) -> io::Result<FileMeta> {
        let mut meta = self.file.meta().await?;
        if let Some(sums) = &self.sums {
            meta.blocks_512 += sums.blocks_512().await?;
        }
        Ok(meta)
    }
}

/// What the direct module needs besides.
pub(crate) struct DirectParts<E: Env> {
    /// The same file through the page cache, for the block that holds its end.
    pub buffered: E::File,
    pub ranges: RangeLocks<E>,
}

/// The datafiles held open, at most so many; who was not used for long goes first.
///
/// A datafile that somebody uses at the moment is never dropped, because its range locks must be the only ones.
pub(crate) struct OpenDatafiles<E: Env> {
    capacity: usize,
    inner: RwLock<Inner<E>>,
}

struct Inner<E: Env> {
    slot_of: BTreeMap<DatafileKey, usize>,
    slots: Vec<Option<Slot<E>>>,
    free: Vec<usize>,
    /// Where the search for one to drop goes on: a clock's hand that passes over what was used since its last round.
    hand: usize,
}

struct Slot<E: Env> {
    datafile: Arc<Datafile<E>>,
    used: AtomicBool,
}

impl<E: Env> OpenDatafiles<E> {
    pub fn new(capacity: usize) -> Self {
        assert!(capacity > 0, "room for one open datafile at least");
        let inner = Inner { slot_of: BTreeMap::new(), slots: Vec::new(), free: Vec::new(), hand: 0 };
        Self { capacity, inner: RwLock::new(inner) }
    }

    pub fn get(&self, key: DatafileKey) -> Option<Arc<Datafile<E>>> {
        let inner = self.inner.read();
        let slot = inner.slots[*inner.slot_of.get(&key)?].as_ref().expect("a named slot is full");
        slot.used.store(true, Ordering::Relaxed);
        Some(Arc::clone(&slot.datafile))
    }

    /// Adds `datafile` unless one with its key is there already; gives the one to use.
    pub fn insert(&self, datafile: Datafile<E>) -> Arc<Datafile<E>> {
        let mut dropped = Vec::new(); // closed after the lock is free
        let mut inner = self.inner.write();
        if let Some(&at) = inner.slot_of.get(&datafile.key) {
            let slot = inner.slots[at].as_ref().expect("a named slot is full");
            return Arc::clone(&slot.datafile);
        }
        while inner.slot_of.len() >= self.capacity {
            match inner.evict() {
                Some(old) => dropped.push(old),
                None => break, // all are in use: bounded by the number of connections
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

    /// Puts `datafile` in the place of one with its key.
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
        drop(inner); // before the replaced one is closed
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
    fn names_read_back_as_written_and_nothing_else_is_one() {
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
