//! State that the datafiles of a target share: work for idle times, damage, and failed syncs.

use crate::datafile::DatafileKey;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use weft_core::Nanos;
use weft_env::Env;

/// Maximum number of damaged places that a target remembers in order to count each once.
const DAMAGED_MAX: usize = 65_536;
/// Maximum number of datafiles remembered for idle times. A scrub settles the others.
const UNSETTLED_MAX: usize = 65_536;

/// Work for idle times, counters of damage, and failed syncs.
pub(crate) struct Upkeep<E: Env> {
    env: E,
    /// Datafiles with work for idle times, and the time at which each may be settled.
    unsettled: Mutex<BTreeMap<DatafileKey, Nanos>>,
    /// Datafiles with records on the disk that do not count, because the disk lost their bytes.
    torn: Mutex<BTreeSet<DatafileKey>>,
    /// Blocks or chunks that did not match their checksums.
    damaged: Mutex<BTreeSet<(DatafileKey, u64)>>,
    /// Number of blocks accepted without verification after a loss of power.
    unverified: AtomicU64,
    /// Datafiles for which a sync failed. The system may have dropped written bytes and may report the next sync as a
    /// success, so no sync of these datafiles succeeds until they are emptied or removed.
    unsafe_datafiles: Mutex<BTreeSet<DatafileKey>>,
    /// Bytes of chunks that were compressed since the start, and the bytes that they became.
    compressed: AtomicU64,
    stored: AtomicU64,
}

impl<E: Env> Upkeep<E> {
    pub fn new(env: &E) -> Self {
        Self {
            env: env.clone(),
            unsettled: Mutex::default(),
            torn: Mutex::default(),
            damaged: Mutex::default(),
            unverified: AtomicU64::new(0),
            unsafe_datafiles: Mutex::default(),
            compressed: AtomicU64::new(0),
            stored: AtomicU64::new(0),
        }
    }

    /// Records that a datafile has work that may be done after `idle`.
    pub fn note_unsettled(&self, key: DatafileKey, idle: Nanos) {
        let mut unsettled = self.unsettled.lock();
        if unsettled.len() < UNSETTLED_MAX {
            unsettled.entry(key).or_insert(self.env.tick().saturating_add(idle));
        }
    }

    /// Returns true if this process has changed or recovered a datafile since it was last settled, and all records on the
    /// disk count.
    pub fn is_verified(&self, key: DatafileKey) -> bool {
        self.unsettled.lock().contains_key(&key) && !self.torn.lock().contains(&key)
    }

    /// Records that some records of a datafile do not count. Each open must find them, until a checkpoint.
    pub fn note_torn(&self, key: DatafileKey) {
        self.torn.lock().insert(key);
    }

    /// Records that a checkpoint has replaced the records of a datafile.
    pub fn note_whole(&self, key: DatafileKey) {
        self.torn.lock().remove(&key);
    }

    /// Sets the time at which a datafile may be settled.
    pub fn postpone(&self, key: DatafileKey, until: Nanos) {
        self.unsettled.lock().insert(key, until);
    }

    /// Forgets the work of a datafile.
    pub fn forget(&self, key: DatafileKey) {
        self.unsettled.lock().remove(&key);
    }

    /// Returns at most `limit` datafiles that may be settled now.
    pub fn due(&self, limit: usize) -> Vec<DatafileKey> {
        let now = self.env.tick();
        let due = |(key, at): (&DatafileKey, &Nanos)| (*at <= now).then_some(*key);
        self.unsettled.lock().iter().filter_map(due).take(limit).collect()
    }

    /// Returns the datafiles with work for idle times.
    pub fn unsettled(&self) -> Vec<DatafileKey> {
        self.unsettled.lock().keys().copied().collect()
    }

    /// Returns true if a datafile may be settled now.
    pub fn has_due(&self) -> bool {
        let now = self.env.tick();
        self.unsettled.lock().values().any(|at| *at <= now)
    }

    /// Returns the number of datafiles that wait to be settled.
    pub fn unsettled_count(&self) -> usize {
        self.unsettled.lock().len()
    }

    /// Counts a damaged block or chunk, unless it was counted before.
    pub fn note_damage(&self, key: DatafileKey, place: u64) {
        let mut damaged = self.damaged.lock();
        if damaged.len() < DAMAGED_MAX {
            damaged.insert((key, place));
        }
    }

    /// Counts a block that is accepted without verification.
    pub fn note_unverified(&self) {
        self.unverified.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of damaged places and of unverified blocks.
    pub fn damage(&self) -> (u64, u64) {
        (self.damaged.lock().len() as u64, self.unverified.load(Ordering::Relaxed))
    }

    /// Records that a sync of a datafile failed.
    pub fn note_unsafe(&self, key: DatafileKey) {
        self.unsafe_datafiles.lock().insert(key);
    }

    /// Returns true if a sync of a datafile has failed since it was last empty.
    pub fn is_unsafe(&self, key: DatafileKey) -> bool {
        self.unsafe_datafiles.lock().contains(&key)
    }

    /// Forgets the failed sync of a datafile whose bytes are gone. Returns true if there was one.
    pub fn forgive(&self, key: DatafileKey) -> bool {
        self.unsafe_datafiles.lock().remove(&key)
    }

    /// Counts `bytes` of a chunk that are stored as `stored` bytes.
    pub fn note_compressed(&self, bytes: u64, stored: u64) {
        self.compressed.fetch_add(bytes, Ordering::Relaxed);
        self.stored.fetch_add(stored, Ordering::Relaxed);
    }

    /// Returns the number of bytes of chunks compressed, and of the bytes that they became.
    pub fn compressed(&self) -> (u64, u64) {
        (self.compressed.load(Ordering::Relaxed), self.stored.load(Ordering::Relaxed))
    }
}
