//! Writes in flight, so that a fence or seal can wait for those that passed their checks before it.
//!
//! A connection serves one request at a time, so it needs one slot, and a write takes no shared lock.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use weft_core::{FileId, Nanos};
use weft_env::Env;

/// Delay between two checks whether writes have ended, doubled up to the maximum.
const POLL_PAUSE_MIN: Nanos = Nanos(20_000);
const POLL_PAUSE_MAX: Nanos = Nanos::from_ms(5);

/// Slot of a connection.
#[derive(Debug, Default)]
pub(super) struct InFlightSlot {
    /// Odd while a write is in flight.
    sequence: AtomicU64,
    file: AtomicU64,
}

impl InFlightSlot {
    /// Begins a write of `file`; dropping the result ends it. A fence recorded after this call waits for the write.
    pub fn enter(self: &Arc<Self>, file: FileId) -> InFlightWrite {
        self.file.store(file.0, Ordering::SeqCst);
        self.sequence.fetch_add(1, Ordering::SeqCst);
        InFlightWrite(Arc::clone(self))
    }
}

/// A write in flight.
pub(super) struct InFlightWrite(Arc<InFlightSlot>);

impl Drop for InFlightWrite {
    fn drop(&mut self) {
        self.0.sequence.fetch_add(1, Ordering::SeqCst);
    }
}

/// Slots of all connections that have written.
#[derive(Debug, Default)]
pub(super) struct InFlightWrites(Mutex<BTreeMap<u64, Arc<InFlightSlot>>>);

impl InFlightWrites {
    /// Slot of a connection.
    pub fn add(&self, connection: u64) -> Arc<InFlightSlot> {
        Arc::clone(self.0.lock().entry(connection).or_default())
    }

    /// Removes the slot of a connection that has ended.
    pub fn remove(&self, connection: u64) {
        self.0.lock().remove(&connection);
    }

    /// Waits until the writes of `file` that are in flight now have ended; false if one has not within `timeout`.
    pub async fn wait<E: Env>(&self, env: &E, file: FileId, timeout: Nanos) -> bool {
        let sequence = |slot: &InFlightSlot| slot.sequence.load(Ordering::SeqCst);
        let mut in_flight: Vec<(Arc<InFlightSlot>, u64)> = {
            let all = self.0.lock();
            let now = all.values().map(|slot| (Arc::clone(slot), sequence(slot)));
            // The file is stored before the count becomes odd.
            now.filter(|(slot, sequence)| sequence % 2 == 1 && slot.file.load(Ordering::SeqCst) == file.0)
                .collect()
        };
        let deadline = env.now().saturating_add(timeout);
        let mut pause = POLL_PAUSE_MIN;
        loop {
            in_flight.retain(|(slot, began)| sequence(slot) == *began);
            if in_flight.is_empty() {
                return true;
            }
            if env.now() >= deadline {
                return false;
            }
            env.sleep(pause).await;
            pause = Nanos(pause.0 * 2).min(POLL_PAUSE_MAX);
        }
    }
}
